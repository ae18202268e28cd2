"""Directions as the user imports them, and the dictionary form: ``{Type: COLLECTION_IN, Depth: 2}``,
``{Type: FILE_OUT, Temp: True}``.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import DefinitionError
from penstock.model.directions import (
    COLLECTION_FILE_IN,
    COLLECTION_FILE_INOUT,
    COLLECTION_FILE_OUT,
    COLLECTION_IN,
    COLLECTION_INOUT,
    COLLECTION_OUT,
    DIRECTORY_IN,
    DIRECTORY_INOUT,
    DIRECTORY_OUT,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    IN,
    INOUT,
    OUT,
    SCATTER,
    STREAM_IN,
    STREAM_OUT,
    Direction,
)

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
    "Depth",
    "Direction",
    "Permanent",
    "Temp",
    "Type",
    "as_direction",
    "is_direction",
]

#: keys of the dictionary form
Type = "type"
Depth = "depth"
Temp = "temp"
Permanent = "permanent"


def is_direction(written: Any) -> bool:
    """Whether a decorator's argument is meant as a direction, in either form."""
    return isinstance(written, Direction) or (isinstance(written, dict) and isinstance(written.get(Type), Direction))


def as_direction(written: Any, parameter: str, task: str) -> Direction:
    """The direction that a decorator's argument means."""
    if isinstance(written, Direction):
        return written
    keys = {Type, Depth, Temp, Permanent}
    if isinstance(written, dict) and isinstance(written.get(Type), Direction) and written.keys() <= keys:
        direction: Direction = written[Type]
        if Permanent in written and Temp in written and bool(written[Permanent]) is bool(written[Temp]):
            raise DefinitionError(
                f"@task of {task}: {parameter}={written!r} is both permanent and temporary, or neither"
            )
        temp = not written[Permanent] if Permanent in written else written.get(Temp)
        try:
            return direction(int(written[Depth]) if Depth in written else None, temp=temp)
        except (TypeError, ValueError) as error:
            raise DefinitionError(f"@task of {task}: {parameter}={written!r}: {error}") from None
    raise DefinitionError(
        f"@task of {task}: {parameter}={written!r} is not a direction; use IN, OUT, INOUT, FILE_IN, FILE_OUT, "
        f"FILE_INOUT, DIRECTORY_IN, DIRECTORY_OUT, DIRECTORY_INOUT, COLLECTION_IN, COLLECTION_INOUT, COLLECTION_OUT, "
        f"COLLECTION_FILE_IN, COLLECTION_FILE_OUT, COLLECTION_FILE_INOUT, STREAM_IN, STREAM_OUT, "
        f"SCATTER, or {{Type: COLLECTION_IN, Depth: 2}}"
    )
