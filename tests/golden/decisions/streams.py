"""A run as its engine saw it, as lines of JSON: the rules it was given, and each event with the commands that answered.

    run ─▶ recorder.py ─▶ write ─▶ runs/NAME.jsonl ─▶ read ─▶ test_pinned_decisions.py ─▶ Engine

What the engine never looks into is not kept: of bytes their number, of failures but the words, of calls the state of
the process. Whatever is said again and again (a call, its function) is told once and then referred to.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import fields

from penstock.engine.engine import Engine
from penstock.engine.segment_store import StoreRules
from penstock.engine.state import StorageRules
from penstock.model import commands, data, events, outside, profiles, resources, tasks, worlds
from penstock.runtime.policies import ready_set
from penstock.tuning import registry

__all__ = ["Rules", "Turn", "read", "write"]

_KNOWN: dict[str, type] = {
    name: found
    for module in (commands, data, events, outside, profiles, resources, tasks, worlds, registry)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, Struct | Enum)
} | {"StorageRules": StorageRules, "StoreRules": StoreRules}
#: bytes that are kept: the engine itself makes a pickled None
_SMALL = 4
#: said often
_SHARED = (tasks.TaskCall, tasks.TaskSpec)
#: of no concern to the engine
_LEFT_OUT = {
    "Failure": {"exception", "traceback", "output", "arguments"},
    "WorkerLost": {"output"},
    "TaskCall": {"outside"},
    "Node": {"properties"},
}
_PLACES = [
    (re.compile(r"/tmp/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/\"' ]+"), "/place"),
    (re.compile(r"/dev/shm/[^/\"' ]+(/penstock-[^/\"' ]+)?"), "/memory"),
    (re.compile(re.escape(str(Path(__file__).parents[3]))), "/project"),
    (re.compile(r"penstock-\d+-\d+-[0-9a-f]{8}"), "penstock-run"),
    (re.compile(rf"\b{re.escape(socket.gethostname())}\b"), "here"),
]


class Rules(NamedTuple):
    """What an engine is made with."""

    policy: str
    elastic: bool
    storage: StorageRules
    store: StoreRules | None

    def engine(self) -> Engine:
        ready, follows_data = ready_set(self.policy)
        return Engine(ready, follows_data=follows_data, storage=self.storage, elastic=self.elastic, store=self.store)


class Turn(NamedTuple):
    """One event, and what the engine said."""

    now: float
    event: Any
    commands: list[Any]


def write(path: Path, rules: Rules, turns: Iterable[Turn]) -> None:
    """A line for the rules, then one for each turn."""
    plain = _Plain()
    lines = [
        plain.of(tuple(rules)),
        *([turn.now, plain.of(turn.event), *map(plain.of, turn.commands)] for turn in turns),
    ]
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


class _Plain:
    """Values as JSON has them."""

    def __init__(self) -> None:
        #: by address; kept, so that no other gets it
        self._told: dict[int, tuple[int, Struct]] = {}

    def of(self, value: object) -> object:
        if isinstance(value, Struct):
            return self._struct(value)
        if isinstance(value, Enum):
            return {"is": type(value).__name__, "name": value.name}
        if isinstance(value, bytes | bytearray | memoryview):
            return {"bytes": len(value)} if len(value) > _SMALL else {"hex": bytes(value).hex()}
        if isinstance(value, Mapping):
            return {"items": [[self.of(key), self.of(item)] for key, item in value.items()]}
        if isinstance(value, list):
            return {"list": [self.of(item) for item in value]}
        if isinstance(value, tuple):
            return [self.of(item) for item in value]
        if isinstance(value, str):
            return _without_places(value)
        assert value is None or isinstance(value, bool | int | float), f"{type(value)} cannot be written"
        return value

    def _struct(self, value: Struct) -> dict[str, object]:
        if id(value) in self._told:
            return {"as": self._told[id(value)][0]}
        name = type(value).__name__
        assert _KNOWN.get(name) is type(value), f"{type(value)} cannot be read again"
        plain: dict[str, object] = {"is": name}
        for field in fields(value):
            found = getattr(value, field.name)
            if field.name not in _LEFT_OUT.get(name, ()) and (field.required or found != field.default):
                plain[field.encode_name] = self.of(found)
        if isinstance(value, _SHARED):
            plain["as"] = len(self._told)
            self._told[id(value)] = len(self._told), value
        return plain


def _without_places(text: str) -> str:
    for place, name in _PLACES:
        text = place.sub(name, text)
    return text


def read(path: Path) -> tuple[Rules, Iterator[Turn]]:
    """A run that was written."""
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    told: dict[int, object] = {}
    rules = Rules(*_value(json.loads(next(lines)), told))

    def turns() -> Iterator[Turn]:
        for line in lines:
            now, event, *answer = json.loads(line)
            yield Turn(now, _value(event, told), [_value(command, told) for command in answer])

    return rules, turns()


def _value(plain: Any, told: dict[int, object]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(item, told) for item in plain)
    if not isinstance(plain, dict):
        return plain
    if "is" not in plain:
        return _other(plain, told)
    kind = _KNOWN[plain["is"]]
    if issubclass(kind, Enum):
        return kind[plain["name"]]
    given = {name: _value(item, told) for name, item in plain.items() if name not in ("is", "as")}
    made = kind(**given)
    if "as" in plain:
        told[plain["as"]] = made
    return made


def _other(plain: dict[str, Any], told: dict[int, object]) -> Any:
    """What is no struct of its own, or was told before."""
    match plain:
        case {"as": number}:
            return told[number]
        case {"bytes": size}:
            return bytes(size)
        case {"hex": digits}:
            return bytes.fromhex(digits)
        case {"list": items}:
            return [_value(item, told) for item in items]
        case {"items": items}:
            return {_value(key, told): _value(item, told) for key, item in items}
    raise AssertionError(f"no value is written like this: {plain}")
