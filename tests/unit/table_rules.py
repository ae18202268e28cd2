"""Rules areas for tests of the shared table, written by hand as table.h lays them out."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

OUTPUT, INPUT, FILE_RULE, DIRECTORY_RULE, EXCLUDE, PERMANENT, TEMPORARY = range(1, 8)
ON_TERMINATION, ON_CLOSE, ON_FILE, N_FILES = range(4)
UPDATE, NO_UPDATE = range(2)


class App(NamedTuple):
    name: str
    before: int = 0
    flags: int = 0


class Entry(NamedTuple):
    kind: int
    pattern: str
    app: int = 0xFFFF
    commit: int = ON_TERMINATION
    fire: int = UPDATE
    n: int = 0
    serial: int = 0


def rules_area(apps: Sequence[App], entries: Sequence[Entry], first_implied: int = 0) -> bytes:
    strings = bytearray()

    def place(text: str) -> tuple[int, int]:
        encoded = os.fsencode(text)
        strings.extend(encoded)
        return len(strings) - len(encoded), len(encoded)

    packed = b""
    for app in apps:
        packed += struct.pack("<IHHIIQ", *place(app.name), app.flags, 1, 0, app.before)
    for e in entries:
        at, length = place(e.pattern)
        packed += struct.pack("<4BHHIIHH", e.kind, e.commit, e.fire, 0, e.app, e.serial, e.n, at, length, 0)
    total = 32 + len(packed) + len(strings)
    head = struct.pack("<8I", 0x55525350, 1, total, len(apps), len(entries), len(strings), first_implied, 0)
    return head + packed + bytes(strings)
