"""What a directory has on a file system, measured there: 4096 bytes, 20 for each entry, or 2 for each letter of a name.

Memory has other numbers than the user's disk. Programs whose directory is in memory are told those of the disk
(``native/interpose/directories.c``).
"""

from __future__ import annotations

import ctypes
import os

import msgspec

__all__ = ["CMeasure", "Measure", "measured"]


class Measure(msgspec.Struct, frozen=True):
    """What a directory has on some file system: ``struct ps_measure`` of ``table.h``."""

    size: int
    size_of_entry: int
    size_of_letter: int
    blocks: int
    block_bytes: int
    links: int
    links_of_directory: int


class CMeasure(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Measure.__struct_fields__]


def measured(place: str) -> Measure:
    """What directories have on the file system of a place, in which one is made and removed again."""
    folder = os.path.join(place, "measured")
    os.mkdir(folder)
    empty = os.stat(folder)
    names = ("a", "b" * 9)
    with_one = []
    for name in names:
        os.mkdir(os.path.join(folder, name))
        with_one.append(os.stat(folder))
        os.rmdir(os.path.join(folder, name))
    os.rmdir(folder)
    short, long = with_one
    letter = (long.st_size - short.st_size) // (len(names[1]) - len(names[0]))
    return Measure(
        size=empty.st_size,
        size_of_entry=short.st_size - empty.st_size - letter,
        size_of_letter=letter,
        blocks=empty.st_blocks,
        block_bytes=empty.st_blksize,
        links=empty.st_nlink,
        links_of_directory=short.st_nlink - empty.st_nlink,
    )
