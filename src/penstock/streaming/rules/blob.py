"""The rules as the C library reads them: one flat piece of memory, laid out as ``table.h`` says.

    head | apps | entries | strings

A rule's serial is its index in ``Workflow.rules``. Written rules come before implied ones, so that the first match is
the one that ``Rules`` would name.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from penstock.errors import ConfigError
from penstock.streaming.language.model import Commit, Fire, Rule, Sizes, Target, Workflow
from penstock.streaming.rules.graph import before_each
from penstock.streaming.rules.patterns import LONGEST
from penstock.streaming.rules.sets import NameSet

__all__ = ["MOST_STEPS", "compiled"]

#: masks have 64 bits, and one is for programs that are no step
MOST_STEPS = 63

_MAGIC, _VERSION = 0x55525350, 1
_HEAD = struct.Struct("<8I")
_APP = struct.Struct("<IHHIIQ")
_ENTRY = struct.Struct("<4BHHIIHH")
_OUTPUT, _INPUT, _FILE_RULE, _DIRECTORY_RULE, _EXCLUDE, _PERMANENT, _TEMPORARY = range(1, 8)
_COMMITS = {Commit.ON_TERMINATION: 0, Commit.ON_CLOSE: 1, Commit.ON_FILE: 2, Commit.N_FILES: 3}
_FIRES = {Fire.UPDATE: 0, Fire.NO_UPDATE: 1}
_SIZES_SO_FAR = 1
_NO_APP = 0xFFFF
_MOST_RULES = 0xFFFF


class _Strings:
    """Text that others point to; equal text is kept once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._places: dict[bytes, tuple[int, int]] = {}

    def place(self, text: str) -> tuple[int, int]:
        """Where it stands, and its length."""
        encoded = os.fsencode(text)
        if encoded not in self._places:
            self._places[encoded] = (len(self.content), len(encoded))
            self.content += encoded
        return self._places[encoded]


def compiled(workflow: Workflow) -> bytes:
    """The rules area of a workflow's table."""
    steps = workflow.steps
    if len(steps) > MOST_STEPS:
        raise ConfigError(f"{workflow.name!r} has {len(steps)} steps; {MOST_STEPS} can stream to each other at once")
    if len(workflow.rules) > _MOST_RULES:
        raise ConfigError(f"{workflow.name!r} has {len(workflow.rules)} rules; {_MOST_RULES} can be told apart")
    strings = _Strings()
    numbers = {step.name: number for number, step in enumerate(steps)}
    before = before_each(steps)
    apps = b""
    for step in steps:
        flags = _SIZES_SO_FAR if step.sizes is Sizes.SO_FAR else 0
        mask = sum(1 << numbers[name] for name in before[step.name])
        apps += _APP.pack(*strings.place(step.name), flags, step.instances, 0, mask)
    entries = b"".join(_entries(workflow, numbers, strings))
    count = len(entries) // _ENTRY.size
    total = _HEAD.size + len(apps) + len(entries) + len(strings.content)
    first_implied = next((serial for serial, rule in enumerate(workflow.rules) if rule.implied), 0)
    head = _HEAD.pack(_MAGIC, _VERSION, total, len(steps), count, len(strings.content), first_implied, 0)
    return head + apps + entries + bytes(strings.content)


def _entries(workflow: Workflow, numbers: dict[str, int], strings: _Strings) -> Iterator[bytes]:
    for step in workflow.steps:
        yield from _listed(_OUTPUT, step.output, numbers[step.name], strings)
        yield from _listed(_INPUT, step.input, numbers[step.name], strings)
    for serial, rule in enumerate(workflow.rules):
        yield from (_ruled(rule, serial, pattern, numbers[rule.step], strings) for pattern in rule.patterns)
    lists = ((_EXCLUDE, workflow.exclude), (_PERMANENT, workflow.permanent), (_TEMPORARY, workflow.temporary))
    for kind, patterns in lists:
        yield from _listed(kind, patterns, _NO_APP, strings)


def _listed(kind: int, patterns: tuple[str, ...], app: int, strings: _Strings) -> Iterator[bytes]:
    """The entries of a list; what lies below the directories in it has entries of its own."""
    for pattern in NameSet(patterns, subtrees=True).meant:
        at, length = strings.place(pattern)
        if length <= LONGEST:
            yield _ENTRY.pack(kind, 0, 0, 0, app, 0, 0, at, length, 0)


def _ruled(rule: Rule, serial: int, pattern: str, app: int, strings: _Strings) -> bytes:
    kind = _FILE_RULE if rule.target is Target.FILES else _DIRECTORY_RULE
    count = rule.count if rule.commit in (Commit.ON_CLOSE, Commit.N_FILES) else 0
    at, length = strings.place(pattern)
    return _ENTRY.pack(kind, _COMMITS[rule.commit], _FIRES[rule.fire], 0, app, serial, count, at, length, 0)
