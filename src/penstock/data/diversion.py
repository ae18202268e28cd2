"""Whether new segments go to disk: one byte that all processes of a run see, and that the main program writes.

The engine asks for it when memory holds far more than it should (``Divert``). It is a wish, which slows those who make
data to the pace of the disk; who cannot write there writes to memory as before.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.units import format_size

__all__ = ["Diversion", "room_in"]

_NAME = "diverted"


class Diversion:
    """The byte, as one process sees it."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        """``folders``: where it may lie, best first; none for a process that shares it with nobody."""
        self._byte: mmap.mmap | bytearray = _shared(folders) if folders else bytearray(1)

    def __bool__(self) -> bool:
        return self._byte[0] != 0

    def set(self, diverted: bool) -> None:
        """Let new segments go to disk, or to memory again."""
        self._byte[0] = diverted

    def close(self) -> None:
        """Let the byte go."""
        if isinstance(self._byte, mmap.mmap):
            self._byte.close()


def _shared(folders: Sequence[str]) -> mmap.mmap:
    """The byte in a file: the one that another process of the run has made, or a new one where there is room."""
    for folder in folders:
        with contextlib.suppress(OSError):
            return _mapped(os.path.join(folder, _NAME), os.O_RDWR)
    refusals = []
    for folder in folders:
        try:
            return _mapped(os.path.join(folder, _NAME), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            refusals.append(f"{folder} ({error.strerror}; {room_in(folder)})")
    raise PenstockError(
        f"cannot write to {' nor to '.join(refusals)}. Free space there, or set memory_dir, spill_dir or run_dir to "
        f"another directory."
    )


def _mapped(path: str, flags: int) -> mmap.mmap:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size == 0:
            os.write(descriptor, b"\0")  # written, not only mapped: a full disk must be an error here
        return mmap.mmap(descriptor, 1)
    finally:
        os.close(descriptor)


def room_in(folder: str) -> str:
    """How large the file system of a folder is and how much of it is free, for messages."""
    while True:
        try:
            status = os.statvfs(folder)
        except FileNotFoundError:
            if folder != os.path.dirname(folder):
                folder = os.path.dirname(folder)
                continue
            return "which does not exist"
        except OSError as error:
            return f"which cannot be asked for its size: {error.strerror}"
        free, size = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
        return f"{format_size(free)} free of {format_size(size)}"
