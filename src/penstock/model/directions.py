"""Directions: what a task does with a parameter."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

__all__ = [
    "COLLECTION_FILE_IN",
    "COLLECTION_FILE_INOUT",
    "COLLECTION_FILE_OUT",
    "COLLECTION_IN",
    "COLLECTION_INOUT",
    "COLLECTION_OUT",
    "DIRECTORY_IN",
    "DIRECTORY_INOUT",
    "DIRECTORY_OUT",
    "FILE_IN",
    "FILE_INOUT",
    "FILE_OUT",
    "IN",
    "INOUT",
    "OUT",
    "SCATTER",
    "STREAM_IN",
    "STREAM_OUT",
    "Direction",
]


class Direction(Struct, frozen=True):
    """What a task does with a parameter; ``COLLECTION_IN(depth=2)`` gives one for nested collections."""

    name: str
    reads: bool
    writes: bool
    file: bool = False
    collection: bool = False
    #: levels of a collection whose elements are data of their own
    depth: int = 1
    #: a file that is of use during the run only: it is not kept when the run ends
    temp: bool = False
    #: each rank of an MPI task receives its part
    scatter: bool = False
    #: a file that is read while it is being written
    stream: bool = False
    #: a directory, which is one datum with all that is in it
    directory: bool = False

    def __call__(self, depth: int | None = None, *, temp: bool | None = None) -> Direction:
        if depth is not None:
            if not self.collection:
                raise TypeError(f"{self.name} has no depth; only COLLECTION_… directions have")
            if depth < 1:
                raise ValueError(f"the depth of a collection is at least 1, not {depth}")
        if temp is not None and not (self.file and self.writes):
            raise TypeError(f"{self.name} cannot be temp; only files and directories that are written can")
        return replace(self, depth=depth or self.depth, temp=self.temp if temp is None else bool(temp))

    def __repr__(self) -> str:
        shown = self.name if self.depth == 1 else f"{self.name}(depth={self.depth})"
        return f"{shown}(temp=True)" if self.temp else shown


#: the task only looks at it
IN = Direction("IN", reads=True, writes=False)
#: the task fills it; what was in it before does not matter
OUT = Direction("OUT", reads=False, writes=True)
#: the task changes it
INOUT = Direction("INOUT", reads=True, writes=True)
#: a path that the task reads
FILE_IN = Direction("FILE_IN", reads=True, writes=False, file=True)
#: a path that the task creates or replaces
FILE_OUT = Direction("FILE_OUT", reads=False, writes=True, file=True)
#: a path that the task reads and changes
FILE_INOUT = Direction("FILE_INOUT", reads=True, writes=True, file=True)
#: paths in a list, tuple or dict, however nested, that the task reads; FILE_IN takes one path too
COLLECTION_FILE_IN = Direction("COLLECTION_FILE_IN", reads=True, writes=False, file=True, collection=True)
#: paths that the task creates or replaces
COLLECTION_FILE_OUT = Direction("COLLECTION_FILE_OUT", reads=False, writes=True, file=True, collection=True)
#: paths that the task reads and changes
COLLECTION_FILE_INOUT = Direction("COLLECTION_FILE_INOUT", reads=True, writes=True, file=True, collection=True)
#: a directory that the task reads, with all that is in it
DIRECTORY_IN = Direction("DIRECTORY_IN", reads=True, writes=False, file=True, directory=True)
#: a directory that the task finds empty and fills, in the place of what is there
DIRECTORY_OUT = Direction("DIRECTORY_OUT", reads=False, writes=True, file=True, directory=True)
#: a directory in which the task changes something
DIRECTORY_INOUT = Direction("DIRECTORY_INOUT", reads=True, writes=True, file=True, directory=True)
#: a collection whose elements the task looks at
COLLECTION_IN = Direction("COLLECTION_IN", reads=True, writes=False, collection=True)
#: a collection whose elements the task changes
COLLECTION_INOUT = Direction("COLLECTION_INOUT", reads=True, writes=True, collection=True)
#: a collection whose elements the task fills
COLLECTION_OUT = Direction("COLLECTION_OUT", reads=False, writes=True, collection=True)
#: a list, tuple or array of which each rank of an MPI task looks at its part
SCATTER = Direction("SCATTER", reads=True, writes=False, scatter=True)
#: a file that the task reads from the moment on at which it begins to be written
STREAM_IN = Direction("STREAM_IN", reads=True, writes=False, file=True, stream=True)
#: a path that the task creates or replaces, and that others may read meanwhile
STREAM_OUT = Direction("STREAM_OUT", reads=False, writes=True, file=True, stream=True)
