"""Directions as the user imports them, and the dictionary form ``{Type: COLLECTION_IN, Depth: 2}``."""

from __future__ import annotations

from typing import Any

from penstock.errors import DefinitionError
from penstock.model.directions import (
    COLLECTION_IN,
    COLLECTION_INOUT,
    COLLECTION_OUT,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    IN,
    INOUT,
    OUT,
    Direction,
)

__all__ = [
    "COLLECTION_IN",
    "COLLECTION_INOUT",
    "COLLECTION_OUT",
    "FILE_IN",
    "FILE_INOUT",
    "FILE_OUT",
    "IN",
    "INOUT",
    "OUT",
    "Depth",
    "Direction",
    "Type",
    "as_direction",
]

#: keys of the dictionary form
Type = "type"
Depth = "depth"


def as_direction(written: Any, parameter: str, task: str) -> Direction:
    """The direction that a decorator's argument means."""
    if isinstance(written, Direction):
        return written
    if isinstance(written, dict) and isinstance(written.get(Type), Direction) and written.keys() <= {Type, Depth}:
        direction: Direction = written[Type]
        if Depth not in written:
            return direction
        try:
            return direction(depth=int(written[Depth]))
        except (TypeError, ValueError) as error:
            raise DefinitionError(f"@task of {task}: {parameter}={written!r}: {error}") from None
    raise DefinitionError(
        f"@task of {task}: {parameter}={written!r} is not a direction; use IN, OUT, INOUT, FILE_IN, FILE_OUT, "
        f"FILE_INOUT, COLLECTION_IN, COLLECTION_INOUT, COLLECTION_OUT, or {{Type: COLLECTION_IN, Depth: 2}}"
    )
