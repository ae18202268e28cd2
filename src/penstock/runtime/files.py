"""Files as data: which path names which file, and which version of it is the newest."""

from __future__ import annotations

import os
from typing import IO, Any

from penstock.errors import CallError
from penstock.executors.layer_files import is_place, leads_to
from penstock.model.data import VersionId

__all__ = ["Files", "as_path"]

#: links that lead to a file by way of others, as many as the system follows
_LINKS = 40


def as_path(value: Any, where: str) -> str:
    """The absolute path that an argument names; one string per real file."""
    if not isinstance(value, str | bytes) and not hasattr(value, "__fspath__"):
        raise CallError(f"{where} must be a path (str or pathlib.Path), not {type(value).__name__} {value!r:.80}")
    text = os.fsdecode(value)
    if not text:
        raise CallError(f"{where} is an empty path")
    folder, name = os.path.split(os.path.abspath(text))
    # The file itself may not exist yet, or be replaced by a rename: links are followed in its folder only, and in
    # the file if it is a link already; but not one of ours, which only says on which layer the file is.
    path = os.path.join(os.path.realpath(folder), name)
    for _ in range(_LINKS):
        try:
            target = os.readlink(path)  # looked at once: a move may put the file in its place
        except OSError:
            return path
        if is_place(target):
            return path
        folder, name = os.path.split(os.path.join(os.path.dirname(path), target))
        if name in ("", ".", ".."):
            return os.path.realpath(path)  # a folder
        path = os.path.join(os.path.realpath(folder), name)
    return path  # it leads back to itself: whoever looks at it will be told


class Files:
    """Newest version of each file, or directory, that tasks use."""

    def __init__(self) -> None:
        self.newest: dict[str, VersionId] = {}
        #: those of them that are directories
        self.directories: set[str] = set()
        self._sweep_at = 1000

    def around(self, path: str) -> list[str]:
        """Directories that tasks use and that a path lies in, the innermost first."""
        if not self.directories:
            return []
        from pathlib import Path  # most programs have no use for it

        return [folder for folder in map(str, Path(path).parents) if folder in self.directories]

    def leads_to(self, path: str, place: str) -> bool:
        """Whether a file's name still is the link to its place on a layer."""
        return leads_to(path, place)

    def open(self, path: Any, mode: str, options: dict[str, Any]) -> IO[Any]:
        """Open a file that tasks are done with."""
        return open(path, mode, **options)

    def remove(self, path: Any) -> None:
        """Remove a file that tasks are done with."""
        os.unlink(path)

    def tidy(self, lives: Any) -> None:
        """Forget files whose versions are history: they are on disk under their own name."""
        if len(self.newest) >= self._sweep_at:
            self.newest = {path: version for path, version in self.newest.items() if lives(version)}
            self.directories &= self.newest.keys()
            self._sweep_at = max(1000, 2 * len(self.newest))
