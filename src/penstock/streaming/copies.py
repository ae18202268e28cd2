"""Which files in a workflow's directory are copies of other nodes' files: a list, for who comes after a killed server.

A server removes its copies when it ends. One that is killed leaves them, some of them with a part of the bytes and none
with a mark. The list is in its folder (``folders``) and grows by one entry per copy; an entry names a file by name and
number, so that nothing else is ever removed that has come to have the name since.

    +NUMBER NAME    a copy, or a directory that was made for copies
    -NAME           it is to stay
"""

from __future__ import annotations

import contextlib
import os
import stat

__all__ = ["CopyList", "remove_copies"]


class CopyList:
    """Written by a server as long as it lives."""

    def __init__(self, path: str, root: str) -> None:
        self._root = root
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, name: str) -> None:
        """This is a copy now, by this name too."""
        with contextlib.suppress(FileNotFoundError):  # gone already
            number = os.lstat(os.path.join(self._root, name)).st_ino
            os.write(self._descriptor, b"+%d %s\0" % (number, os.fsencode(name)))

    def keep(self, name: str) -> None:
        """This copy stays."""
        os.write(self._descriptor, b"-%s\0" % os.fsencode(name))

    def close(self) -> None:
        """All copies are gone, or are meant to stay."""
        os.close(self._descriptor)


def remove_copies(path: str, root: str) -> None:
    """Remove what is in a list, and the list."""
    try:
        with open(path, "rb") as file:
            entries = file.read().split(b"\0")
    except FileNotFoundError:
        return
    copies: dict[str, int] = {}
    for entry in entries[:-1]:  # behind the last one there is nothing, or what a killed server had begun
        if entry.startswith(b"-"):
            copies.pop(os.fsdecode(entry[1:]), None)
        else:
            number, name = os.fsdecode(entry[1:]).split(" ", 1)
            copies[name] = int(number)
    for name in sorted(copies, reverse=True):  # what lies in a directory before it
        place = os.path.join(root, name)
        with contextlib.suppress(OSError):
            about = os.lstat(place)
            if about.st_ino == copies[name]:
                (os.rmdir if stat.S_ISDIR(about.st_mode) else os.unlink)(place)
    os.unlink(path)
