"""Whether an argument can hold data of tasks at all: looked up at the speed of C, before it is pickled.

To find data, pickling asks about every object that it meets, each number of a list of lists too. Where an argument is
made of plain containers alone, this says that there is nothing to ask for. It may be wrong in one direction only.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from penstock.data.slots import SlotRef

__all__ = ["may_hold", "reaches"]

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), SlotRef})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
_KNOWN = _PLAIN | _CONTAINERS
#: containers that can be gone through while another thread changes them
_ROWS = frozenset({list, tuple})
#: nothing deeper or larger is looked at, so that a cycle comes to an end
_LEVELS = 16
_MOST = 1_000_000
#: what leads to everything that a program has loaded
_CODE = (type, FunctionType, ModuleType)


def may_hold(objects: list[Any], known: Mapping[int, object], *, few: int | None = None) -> bool:
    """Whether some of the objects are known by their addresses, or hold one that is; True if that cannot be said.

    More than ``few`` are not looked at.
    """
    if len(objects) == 1 and type(objects[0]) in _ROWS:
        # The argument of most calls that have a container: what the loop below says of it, without a copy of the row.
        row = objects[0]
        if _PLAIN.issuperset(map(type, row)) and id(row) not in known and (few is None or len(row) < few):
            return False
    level, seen = objects, 0
    for _ in range(_LEVELS):
        if few is not None and seen + len(level) > few:
            return True
        kinds = set(map(type, level))
        if kinds <= _PLAIN:
            return False
        seen += len(level)
        if seen > _MOST or not kinds <= _KNOWN or (known and not known.keys().isdisjoint(map(id, level))):
            return True
        # Nearly always there is one list, or containers alone: to sort them out would cost as much as to pickle them.
        alike = kinds <= _CONTAINERS
        level = gc.get_referents(*(level if alike else (part for part in level if type(part) in _CONTAINERS)))
    return True


def reaches(obj: Any, known: Mapping[int, object]) -> bool:
    """Whether an object holds, however deep, one that is known by its address; True if it is too large to say."""
    level, seen = [obj], {id(obj)}
    while level:
        parts = gc.get_referents(*level)
        if set(map(type, parts)) <= _PLAIN:
            return False
        if not known.keys().isdisjoint(map(id, parts)) or len(seen) > _MOST:
            return True
        level = []
        for part in parts:
            if gc.is_tracked(part) and id(part) not in seen and not isinstance(part, _CODE):
                seen.add(id(part))
                level.append(part)
    return False
