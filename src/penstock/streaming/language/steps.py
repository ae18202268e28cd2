"""What only the form with commands says about a step: how it is started, and what it may see."""

from __future__ import annotations

from typing import TypedDict

from penstock.errors import did_you_mean
from penstock.streaming.language.forms import Form
from penstock.streaming.language.model import Sizes
from penstock.streaming.language.reading import Table, Value, shown

__all__ = ["Options", "read_options"]

_MOST = 65_535


class Options(TypedDict, total=False):
    """Fields of a ``Step``."""

    command: str | tuple[str, ...] | None
    cwd: str | None
    env: tuple[tuple[str, str], ...]
    sizes: Sizes
    instances: int


def read_options(step: Table, form: Form) -> Options:
    """Nothing in the form that has none."""
    if not form.step_extra:
        return {}
    cwd = step.take("cwd")
    return {
        "command": _read_command(step.take("command")),
        "cwd": cwd.text() if cwd else None,
        "env": _read_environment(step.take("env")),
        "sizes": _read_sizes(step.take("sizes")),
        "instances": _read_instances(step.take("instances")),
    }


def _read_command(written: Value | None) -> str | tuple[str, ...] | None:
    if written is None:
        return None
    if not isinstance(written.given, (str, list)):
        written.wrong(f"expected a line for the shell, or an array of arguments, not {shown(written.given)}")
        return None
    if isinstance(written.given, str):
        if not written.given.strip():
            written.wrong("the command is empty")
        written.is_usable()
        return written.given
    words = []
    for number, item in enumerate(written.items(1)):
        if not isinstance(item.given, str) or (number == 0 and not item.given):
            item.wrong(f"expected a text, not {shown(item.given)}")
        elif item.is_usable():
            words.append(item.given)
    return tuple(words)


def _read_environment(written: Value | None) -> tuple[tuple[str, str], ...]:
    if written is None:
        return ()
    if not isinstance(written.given, dict):
        written.wrong(f"expected a table of variables, not {shown(written.given)}")
        return ()
    found = []
    for name, value in written.given.items():
        one = Value(value, written.place.at(name), written.report)
        if not isinstance(value, str):
            one.wrong(f'expected a text, as in {name} = "…", not {shown(value)}')
        elif not name or "=" in name:
            written.wrong(f"{name!r} cannot be the name of a variable")
        elif one.is_usable() and Value(name, one.place, written.report).is_usable():
            found.append((name, value))
    return tuple(found)


def _read_sizes(written: Value | None) -> Sizes:
    if written is None:
        return Sizes.AT_COMMIT
    if written.given in tuple(Sizes):
        return Sizes(written.given)
    hint = did_you_mean(written.given, map(str, Sizes)) if isinstance(written.given, str) else ""
    written.wrong(f"{shown(written.given)} is not known{hint} (allowed: {', '.join(Sizes)})")
    return Sizes.AT_COMMIT


def _read_instances(written: Value | None) -> int:
    if written is None:
        return 1
    number = written.given
    if isinstance(number, (int, float)) and not isinstance(number, bool) and 1 <= number <= _MOST and number % 1 == 0:
        return int(number)
    written.wrong(f"expected a whole number from 1 to {_MOST:,}, not {shown(number)}")
    return 1
