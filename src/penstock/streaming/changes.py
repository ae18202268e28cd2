"""What a workflow in memory has done to the user's directory: names that were written, removed, made directories."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

__all__ = ["Changes", "is_directory", "is_removal_mark", "is_unchanged", "names_below"]


class Changes(NamedTuple):
    """Names of files and links; where a whole directory was removed, that of the directory too."""

    #: made anew, or perhaps changed: what exists may have been copied without a reason
    written: list[str]
    #: no longer there, or no longer what they were
    removed: list[str]
    #: directories that the user does not have yet, outer ones first
    made: list[str]


def is_unchanged(here: str, home: str) -> bool:
    """Whether a copy looks as what it was made from. A change through a mapping cannot be seen in this way."""
    try:
        copy, original = os.lstat(here), os.lstat(home)
    except FileNotFoundError:
        return False
    if copy.st_mode != original.st_mode:
        return False
    if stat.S_ISLNK(copy.st_mode):
        return os.readlink(here) == os.readlink(home)
    return (copy.st_size, copy.st_mtime_ns) == (original.st_size, original.st_mtime_ns)


def is_directory(path: str) -> bool:
    """Whether it is a directory itself, not a link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


def is_removal_mark(about: os.stat_result) -> bool:
    """Whether this is what an overlay leaves for a name that was removed."""
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == 0


def names_below(root: str, name: str) -> list[str]:
    """A name, if there is something of that name, and all names below it."""
    path = os.path.join(root, name)
    if not is_directory(path):
        return [name] if os.path.lexists(path) else []
    return [name, *(one for entry in os.listdir(path) for one in names_below(root, f"{name}/{entry}"))]
