"""Reading a document piece by piece: every piece knows where it stands, and mistakes are collected, not raised.

``language`` starts with the whole document as a ``Table``. A reader takes its keys as ``Value``s, and goes on with
something harmless after each mistake, so that one look shows all of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.errors import did_you_mean

__all__ = ["JsonObject", "Place", "Problem", "Report", "Table", "Value", "shown"]


class Problem(Struct, frozen=True):
    """One mistake, and where it is."""

    place: str
    message: str
    #: a schema cannot see it: the parts are well formed, but do not fit each other
    of_meaning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class Report:
    """What was found while reading: mistakes, and what is accepted but should be written otherwise."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def wrong(self, place: Place | str, message: str, *, of_meaning: bool = False) -> None:
        problem = Problem(str(place), message, of_meaning)
        if problem not in self.problems:
            self.problems.append(problem)

    def doubtful(self, place: Place | str, message: str) -> None:
        warning = f"{place}: {message}" if str(place) else message
        if warning not in self.warnings:
            self.warnings.append(warning)


class Place(Struct, frozen=True):
    """A way into a document: ``IO_Graph[0].streaming[1].mode``, or ``[[step]] 1 "plot", [[step.stream]] 2, fire``."""

    form: str
    keys: tuple[str | int, ...] = ()
    #: names of the tables on the way, by depth
    labels: tuple[tuple[int, str], ...] = ()

    def at(self, key: str | int) -> Place:
        return Place(self.form, (*self.keys, key), self.labels)

    def labelled(self, name: str) -> Place:
        return Place(self.form, self.keys, (*self.labels, (len(self.keys), name)))

    def __str__(self) -> str:
        return self._as_tables() if self.form == "toml" else self._as_path()

    def _as_path(self) -> str:
        text = ""
        for depth, key in enumerate(self.keys, start=1):
            text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
            text += "".join(f" ({name})" for at, name in self.labels if at == depth)
        return text

    def _as_tables(self) -> str:
        """Arrays of tables by their headings, counted from one as a reader of the file counts them."""
        parts: list[str] = []
        heading: list[str] = []
        depth = 0
        while depth < len(self.keys):
            key = self.keys[depth]
            following = self.keys[depth + 1] if depth + 1 < len(self.keys) else None
            if isinstance(following, int) and key in _ARRAYS_OF_TABLES:
                heading.append(str(key))
                label = "".join(f' "{name}"' for at, name in self.labels if at == depth + 2)
                parts.append(f"[[{'.'.join(heading)}]] {following + 1}{label}")
                depth += 2
            elif isinstance(key, int):
                parts[-1] += f"[{key}]"
                depth += 1
            elif key in _TABLES:
                heading.append(key)
                if following not in _ARRAYS_OF_TABLES:
                    parts.append(f"[{'.'.join(heading)}]")
                depth += 1
            else:
                parts.append(str(key))
                depth += 1
        return ", ".join(parts)


_ARRAYS_OF_TABLES = {"step", "stream", "manual"}
_TABLES = {"homes", "aliases", "env"}


class JsonObject(dict[str, Any]):
    """An object as it was written; which keys came twice is remembered."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = sorted({name for name in names if names.count(name) > 1}) if len(names) > len(self) else []


class Value(Struct, frozen=True):
    """Something written, and where."""

    given: Any
    place: Place
    report: Report

    def wrong(self, message: str, *, of_meaning: bool = False) -> None:
        self.report.wrong(self.place, message, of_meaning=of_meaning)

    def doubtful(self, message: str) -> None:
        self.report.doubtful(self.place, message)

    def of(self, given: object) -> Value:
        """Something else that is meant by what was written here."""
        return Value(given, self.place, self.report)

    def as_list(self) -> Value:
        """A text without an array around it is an array of one."""
        return self.of([self.given]) if isinstance(self.given, str) else self

    def text(self) -> str | None:
        """A text that is not empty; None after a mistake."""
        if not isinstance(self.given, str):
            self.wrong(f"expected a text, not {shown(self.given)}")
        elif not self.given:
            self.wrong("it is empty; expected a text")
        elif self.is_usable():
            return self.given
        return None

    def is_usable(self) -> bool:
        """Whether the system can take this text as a name or an argument; if not, that is a mistake."""
        try:
            usable = b"\0" not in os.fsencode(self.given)
        except UnicodeEncodeError:  # half of a character, which JSON can write
            usable = False
        if not usable:
            self.wrong(f"{self.given!a} holds what no name or argument can hold", of_meaning=True)
        return usable

    def items(self, at_least: int = 0) -> Iterator[Value]:
        """The elements of an array."""
        if not isinstance(self.given, list):
            hint = f"; write [{shown(self.given)}]" if isinstance(self.given, str) else ""
            self.wrong(f"expected an array, not {shown(self.given)}{hint}")
            return
        if len(self.given) < at_least:
            self.wrong("the array is empty; give at least one, or leave the key out")
        for number, item in enumerate(self.given):
            yield Value(item, self.place.at(number), self.report)

    def table(self, keys: Sequence[str], elsewhere: Mapping[str, str]) -> Table | None:
        """What a table holds; keys that it cannot have are mistakes."""
        if not isinstance(self.given, dict):
            self.wrong(f"expected {'an object' if self.place.form == 'json' else 'a table'}, not {shown(self.given)}")
            return None
        return Table(self.given, self.place, self.report, keys, elsewhere)


class Table:
    """An object or table whose keys are known."""

    def __init__(
        self, given: dict[str, Any], place: Place, report: Report, keys: Sequence[str], elsewhere: Mapping[str, str]
    ) -> None:
        self.given = given
        self.place = place
        self.report = report
        for key in given:
            if key not in keys:
                called = elsewhere.get(key)
                hint = f"; here it is called {called!r}" if called in keys else did_you_mean(key, keys)
                report.wrong(place, f"unknown key {key!r}{hint} (known: {', '.join(keys)})")
        for key in getattr(given, "repeated", ()):
            report.wrong(place, f"the key {key!r} is given more than once", of_meaning=True)

    def take(self, key: str) -> Value | None:
        """The value of a key, if it was given."""
        return Value(self.given[key], self.place.at(key), self.report) if key in self.given else None

    def require(self, key: str, what: str) -> Value | None:
        value = self.take(key)
        if value is None:
            self.report.wrong(self.place, f"the key {key!r} is missing: {what}")
        return value

    def labelled(self, name: object) -> None:
        """From now on messages name this table."""
        if isinstance(name, str) and name:
            self.place = self.place.labelled(name)


def shown(value: object) -> str:
    """A value as it was written, if that is short, or what it is."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 60 else value[:57] + "…", ensure_ascii=False)
    if isinstance(value, (bool, int, float)):
        return f"{json.dumps(value)} ({'a switch' if isinstance(value, bool) else 'a number'})"
    if isinstance(value, dict):
        return "a table of keys"
    return "an array" if isinstance(value, list) else "null" if value is None else f"a {type(value).__name__}"
