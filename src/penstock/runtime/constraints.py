"""Constraints: the names users write, and the requirements they become.

Names are accepted in any case, with or without underscores. A name that is none of ours and is given a whole number is
that of a countable resource; settings say how many there are (``[resources.countable]``). Values may be taken from the
environment, ``"$VAR"`` or ``"${VAR}"``, read when the task is first called; or a settings file gives them, in a table
for each task.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import ConfigError, ConstraintError, DefinitionError, did_you_mean
from penstock.model.resources import Auto, Requirements
from penstock.tuning import spec as auto_spec
from penstock.units import parse_rate, parse_size

__all__ = ["NAMES", "canonical", "ensure_readable", "is_constraint", "named", "of_tasks", "requirements"]

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def _units(value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{value!r} is not a number") from None
    if number != int(number) or number < 1:
        raise ConfigError(f"{value!r} is not a whole number of at least 1")
    return int(number)


def _memory(value: Any) -> int:
    """Bytes; a number needs a unit: it would be MB here as everywhere, and is GB where many of our users come from."""
    size = parse_size(value)
    if size < 0:
        raise ConfigError(f"{value!r} is negative")
    if size and str(value).strip()[-1] in "0123456789.":
        number = str(value).strip()
        raise ConfigError(f'it has no unit; write "{number}GB" (what PyCOMPSs means by it), or "{number}MB"')
    return size


def _bandwidth(value: Any) -> float | Auto:
    """Bytes per second, or how to learn them; a number without a unit is in MB/s."""
    if auto_spec.is_auto(value):
        return auto_spec.parse(value)
    # Tokens are whole bytes per second, so that they add up exactly.
    rate = float(round(parse_rate(value)))
    if rate <= 0:
        raise ConfigError(f"{value!r} is not more than 0")
    return rate


def _capacity(value: Any) -> int:
    """Bytes; a number without a unit is in MB."""
    return parse_size(value)


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{value!r} is not a name")
    return value


#: canonical name → how its value is read; those read as a word are matched against a node's properties
NAMES: Mapping[str, Callable[[Any], Any]] = {
    "computing_units": _units,
    "memory_size": _memory,
    "storage_bw": _bandwidth,
    "storage_size": _capacity,
    "processor_name": _word,
    "processor_architecture": _word,
    "operating_system": _word,
    "node_name": _word,
}

_SPELLINGS = {name.replace("_", ""): name for name in NAMES} | {
    "operatingsystemtype": "operating_system",
    "hostname": "node_name",
    "storagebandwidth": "storage_bw",
}


def canonical(name: str) -> str:
    """The constraint that a spelling means."""
    squeezed = name.replace("_", "").casefold()
    if squeezed in _SPELLINGS:
        return _SPELLINGS[squeezed]
    # Only what is clearly one of ours: any other name may be counted, and one that is not is refused at the call.
    hint = did_you_mean(name.casefold(), NAMES, 0.7) or did_you_mean(squeezed, _SPELLINGS, 0.7)
    if not hint and name.isidentifier():
        return name.casefold()
    raise DefinitionError(f"@constraint has no {name!r}{hint} (known are {', '.join(NAMES)})")


def is_constraint(name: str) -> bool:
    """Whether this is a spelling of a constraint of ours."""
    return name.replace("_", "").casefold() in _SPELLINGS


def _read(name: str, value: Any) -> Any:
    if name in NAMES:
        return NAMES[name](value)
    try:
        return _units(value)
    except ConfigError as error:
        known = ", ".join(NAMES)
        raise ConfigError(f"{error}; no constraint has that name (known are {known}), so it would be counted") from None


def named(written: Mapping[str, Any]) -> dict[str, Any]:
    """Constraints as a program writes them, by their canonical names."""
    constraints: dict[str, Any] = {}
    for name, value in written.items():
        known = canonical(name)
        if known in constraints:
            raise DefinitionError(f"@constraint gives {known} twice")
        constraints[known] = value
    return constraints


def ensure_readable(constraints: Mapping[str, Any], task: str, *, io: bool) -> None:
    """Refuse values that cannot be understood, as far as they do not come from the environment."""
    literal = {name: value for name, value in constraints.items() if "$" not in str(value)}
    try:
        requirements(literal, task, io=io)
    except ConstraintError as error:
        raise DefinitionError(str(error)) from None


def of_tasks(tables: object, shown: str) -> dict[str, dict[str, Any]]:
    """The constraints that a settings file gives to tasks, by their names; ``shown`` says where they stand."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{shown}: expected a table of constraints for each task")
    found: dict[str, dict[str, Any]] = {}
    for task, written in tables.items():
        where = f"{shown.removesuffix(']')}.{task}]"
        if not isinstance(written, Mapping):
            raise ConfigError(f"{where}: expected a table of constraints, such as computing_units = 4")
        values = {}
        for name, value in written.items():
            try:
                known = canonical(name)
                if "$" not in str(value):
                    _read(known, value)
            except (DefinitionError, ConfigError) as error:
                raise ConfigError(f"{where} {name} = {value!r}: {error}") from None
            values[known] = value
        found[task] = values
    return found


def requirements(constraints: Mapping[str, Any], task: str, *, io: bool) -> Requirements:
    """What the constraints of a task ask of a node. An I/O task needs no computing unit."""
    values: dict[str, Any] = {}
    for name, written in constraints.items():
        value = _expand(written, name, task) if isinstance(written, str) else written
        try:
            values[name] = _read(name, value)
        except ConfigError as error:
            shown = f"{written!r}" if written == value else f"{written!r} (which is {value!r})"
            raise ConstraintError(f"@constraint of task {task}: {name}={shown}: {error}") from None
    words = tuple(sorted((name, value) for name, value in values.items() if NAMES.get(name) is _word))
    countable = tuple(sorted((name, value) for name, value in values.items() if name not in NAMES))
    bandwidth = values.get("storage_bw", 0.0)
    auto = bandwidth if isinstance(bandwidth, Auto) else None
    return Requirements(
        0 if io else values.get("computing_units", 1),
        values.get("memory_size", 0),
        words,
        io,
        0.0 if auto is not None else bandwidth,
        values.get("storage_size", 0),
        auto,
        countable=countable,
    )


def _expand(text: str, name: str, task: str) -> str:
    def value(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        try:
            return os.environ[variable]
        except KeyError:
            raise ConstraintError(
                f"@constraint of task {task}: {name}={text!r}: the environment has no {variable}; "
                f"set it before the task is first called"
            ) from None

    return _VARIABLE.sub(value, text)
