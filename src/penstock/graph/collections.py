"""The elements of collection arguments: walked anew at each call, because lists change between calls.

A call that only reads a collection needs no walk: pickling meets every element. It is looked at for cycles alone, at
the speed of C; what a call writes is found one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from penstock.errors import CallError
from penstock.model.tasks import Steps

__all__ = ["containers", "is_collection", "is_numeric_array", "leaves", "refuse_cycles", "way_to"]

_SEQUENCES = (list, tuple)
_BUILT_IN = (list, tuple, dict)


def is_collection(obj: Any) -> bool:
    """Whether an object has elements that can be data of their own."""
    return isinstance(obj, _BUILT_IN) or _is_object_array(obj)


def is_numeric_array(obj: Any) -> bool:
    """Whether an object is an array whose elements are no objects: they are parts of its memory, at whatever depth."""
    return type(obj).__name__ == "ndarray" and str(getattr(obj, "dtype", "object")) != "object"


def _is_object_array(obj: Any) -> bool:
    return type(obj).__name__ == "ndarray" and str(getattr(obj, "dtype", "")) == "object"


def leaves(obj: Any, depth: int, steps: Steps = ()) -> Iterator[tuple[Steps, Any, Any, Any]]:
    """``(steps, container, key, element)`` of every element down to ``depth``; ``steps`` lead to ``obj``.

    Every dimension of an array is a level; its elements are never whole rows. There must be no cycles.
    """
    below = _below(obj, depth)
    for step, key, child in _elements(obj):
        if below > 0 and is_collection(child):
            yield from leaves(child, below, (*steps, step))
        else:
            yield (*steps, step), obj, key, child


def containers(obj: Any, depth: int, look: Callable[[Any], None]) -> None:
    """Show every container of a collection to ``look``, before what is in it is looked at."""
    look(obj)
    below = _below(obj, depth)
    if below > 0:
        for child in _parts(obj):
            if is_collection(child):
                containers(child, below, look)


def refuse_cycles(obj: Any, depth: int, where: str, steps: Steps = (), above: frozenset[int] = frozenset()) -> None:
    """Raise if a collection contains itself, down to ``depth``."""
    above |= {id(obj)}
    if not above.isdisjoint(map(id, _parts(obj))):
        raise _cycle(where, next((*steps, step) for step, _, child in _elements(obj) if id(child) in above))
    below = _below(obj, depth)
    if below > 0:
        for step, _, child in _elements(obj):
            if is_collection(child):
                refuse_cycles(child, below, where, (*steps, step), above)


def way_to(wanted: Callable[[Any], bool], obj: Any, steps: str = "", seen: frozenset[int] = frozenset()) -> str:
    """Where in a container, however deep, there is a part that is wanted, as one would write it; "" if nowhere."""
    seen |= {id(obj)}
    for _, key, child in _elements(obj):
        here = f"{steps}[{key!r}]"
        if wanted(child):
            return here
        found = way_to(wanted, child, here, seen) if is_collection(child) and id(child) not in seen else ""
        if found:
            return found
    return ""


def _below(obj: Any, depth: int) -> int:
    """How many levels of collections may lie inside a container."""
    return depth - (1 if isinstance(obj, _BUILT_IN) else max(obj.ndim, 1))


def _parts(obj: Any) -> Iterable[Any]:
    if isinstance(obj, dict):
        return obj.values()
    return obj if isinstance(obj, _SEQUENCES) else obj.flat


def _elements(obj: Any) -> Iterator[tuple[Any, Any, Any]]:
    """``(step, key, element)``: a step is what travels, the key what the container itself understands."""
    if isinstance(obj, dict):
        for position, (key, child) in enumerate(obj.items()):
            yield position, key, child
    elif isinstance(obj, _SEQUENCES):
        for position, child in enumerate(obj):
            yield position, position, child
    else:
        for place in product(*map(range, obj.shape)):
            yield place, place, obj[place]


def _cycle(where: str, steps: Steps) -> CallError:
    shown = "".join(f"[{step!r}]" for step in steps)
    return CallError(f"{where} contains itself, at {shown}; a collection cannot have a cycle")
