"""The files of a simulated run: those on disk may be read, but what tasks write and remove is only computed."""

from __future__ import annotations

import os
from typing import IO, Any

from penstock.errors import SimulatedValueError
from penstock.runtime.files import Files, as_path
from penstock.runtime.simulated_values import program_line
from penstock.sim.files import Files as StoredFiles
from penstock.sim.files import make_device

__all__ = ["SimulatedFiles"]


class SimulatedFiles(Files):
    """Newest version of each file that tasks use, and which files there would be.

    ``stored`` are the files of the simulated tasks, ``before`` is what the program did while it had no runtime.
    """

    def __init__(self, stored: StoredFiles | None = None, before: SimulatedFiles | None = None) -> None:
        super().__init__()
        self._stored = StoredFiles({}, {}, make_device) if stored is None else stored
        #: files that the program has opened to write, or deleted
        self._made: set[str] = set() if before is None else set(before._made)
        self._deleted: set[str] = set() if before is None else set(before._deleted)

    def size(self, path: str) -> int | None:
        """Bytes of a file that would be there now; None if there would be none."""
        stored = self._stored.stored(path)
        if stored is not None:
            return stored.size
        if path in self._made:
            return 0
        try:
            return None if path in self._deleted else os.stat(path).st_size
        except OSError:
            return None

    def lost(self, path: str) -> bool:
        """Whether a task wrote it, on a node that is gone."""
        return bool(self._stored.lost_with(path))

    def leads_to(self, path: str, place: str) -> bool:
        """The program cannot have changed a name that is nowhere."""
        return True

    def open(self, path: Any, mode: str, options: dict[str, Any]) -> IO[Any]:
        """What the program may read is on disk; what it writes goes nowhere."""
        path = as_path(path, "the file")
        if not any(letter in mode for letter in "wax+"):
            if self._stored.stored(path) is not None or path in self._made:
                raise SimulatedValueError(
                    f"{program_line()}: the file {path} is opened to be read, but this run is simulated and nothing "
                    f"was written to it. Read it in a task, or leave this part out in simulated runs."
                )
            if path in self._deleted:
                raise FileNotFoundError(2, "deleted earlier in this simulated run", path)
            return open(path, mode, **options)
        if "+" in mode:
            raise SimulatedValueError(
                f"{program_line()}: the file {path} is opened with mode {mode!r}, but this run is simulated and leaves "
                f"files as they are: open it either to read or to write."
            )
        if "x" in mode and self.size(path) is not None:
            raise FileExistsError(17, "File exists", path)
        self._made.add(path)
        self._deleted.discard(path)
        return open(os.devnull, mode.replace("x", "w"), **options)

    def remove(self, path: Any) -> None:
        """A file is gone for this run; the one on disk stays."""
        path = as_path(path, "the file")
        if self.size(path) is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        self._stored.remove(path)
        self._made.discard(path)
        self._deleted.add(path)
