"""The elements of collection arguments: walked anew at each call, because lists change between calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from penstock.errors import CallError
from penstock.model.tasks import Steps

__all__ = ["is_collection", "leaves"]


def is_collection(obj: Any) -> bool:
    """Whether an object has elements that can be data of their own."""
    return isinstance(obj, list | tuple | dict) or _is_object_array(obj)


def _is_object_array(obj: Any) -> bool:
    return type(obj).__name__ == "ndarray" and str(getattr(obj, "dtype", "")) == "object"


def leaves(obj: Any, depth: int, where: str) -> Iterator[tuple[Steps, Any, Any, Any]]:
    """``(steps, container, key, element)`` of every element down to ``depth``; ``where`` names the argument.

    Every dimension of an array is a level; its elements are never whole rows.
    """
    yield from _walk(obj, depth, (), (), where)


def _walk(
    obj: Any, depth: int, steps: Steps, above: tuple[int, ...], where: str
) -> Iterator[tuple[Steps, Any, Any, Any]]:
    above = (*above, id(obj))
    below = depth - (obj.ndim if _is_object_array(obj) else 1)
    for step, key, child in _elements(obj):
        here = (*steps, step)
        if id(child) in above:
            raise CallError(f"{where} contains itself, at {_show(here)}; a collection cannot have a cycle")
        if below > 0 and is_collection(child):
            yield from _walk(child, below, here, above, where)
        else:
            yield here, obj, key, child


def _elements(obj: Any) -> Iterator[tuple[Any, Any, Any]]:
    """``(step, key, element)``: a step is what travels, the key what the container itself understands."""
    if isinstance(obj, dict):
        for position, (key, child) in enumerate(obj.items()):
            yield position, key, child
    elif isinstance(obj, list | tuple):
        for position, child in enumerate(obj):
            yield position, position, child
    else:
        for place in product(*map(range, obj.shape)):
            yield place, place, obj[place]


def _show(steps: Steps) -> str:
    return "".join(f"[{step!r}]" for step in steps)
