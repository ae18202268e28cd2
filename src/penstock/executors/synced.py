"""Which files a body has synced: their names must then survive a loss of power too, not only their bytes.

A file is written under a private path and gets its name by a rename. Whoever syncs it knows nothing of that; without a
sync of the folder the name could be lost, and with it the file, since what is private goes with the run. To sync every
folder would make all wait for the disk who did not ask for it. So ``os.fsync`` and its kind note what they are given
while a body runs that writes files. What libraries and programs sync by other means is not seen.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

__all__ = ["Syncs", "install"]

#: of bodies that write files and are under way; an inline one may call another
_under_way: list[Syncs] = []


class Syncs:
    """What is synced from now on, until the end."""

    def __init__(self) -> None:
        install()
        #: device and number of each file
        self._files: set[tuple[int, int]] = set()
        self._all = False
        _under_way.append(self)

    def note(self, status: os.stat_result | None) -> None:
        """A file was synced; None for all there are."""
        if status is None:
            self._all = True
        else:
            self._files.add((status.st_dev, status.st_ino))

    def has(self, path: str) -> bool:
        """Whether a file was."""
        status = os.stat(path)
        return self._all or (status.st_dev, status.st_ino) in self._files

    def end(self) -> None:
        if self in _under_way:
            _under_way.remove(self)


def install() -> None:
    """Have this process note what is synced, from now on."""
    for name in ("fsync", "fdatasync", "sync"):
        real = getattr(os, name)
        if not hasattr(real, "_notes_for_penstock"):
            setattr(os, name, _noting(real))


def _noting(real: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*file: Any, **named: Any) -> Any:
        outcome = real(*file, **named)
        if _under_way:
            with contextlib.suppress(OSError):  # another thread has closed it at this moment
                status = next((os.stat(_descriptor(one)) for one in (*file, *named.values())), None)
                for syncs in list(_under_way):
                    syncs.note(status)
        return outcome

    noting.__name__, noting.__doc__ = real.__name__, real.__doc__
    noting._notes_for_penstock = True  # type: ignore[attr-defined]
    return noting


def _descriptor(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())
