"""The elements of collection arguments: walked anew at each call, because lists change between calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import CallError

__all__ = ["is_collection", "leaves", "set_leaf"]

Path = tuple[int | str, ...]


def is_collection(obj: Any) -> bool:
    """Whether an object has elements that can be data of their own."""
    return isinstance(obj, list | tuple | dict) or _is_object_array(obj)


def _is_object_array(obj: Any) -> bool:
    return type(obj).__name__ == "ndarray" and str(getattr(obj, "dtype", "")) == "object" and obj.ndim == 1


def leaves(obj: Any, depth: int, where: str) -> Iterator[tuple[Path, Any, Any]]:
    """``(path, container, element)`` of every element down to ``depth``; ``where`` names the argument in errors."""
    yield from _walk(obj, depth, (), (), where)


def _walk(obj: Any, depth: int, path: Path, above: tuple[int, ...], where: str) -> Iterator[tuple[Path, Any, Any]]:
    if id(obj) in above:
        raise CallError(f"{where} contains itself (at {_show(path)}); a collection cannot have a cycle")
    items = obj.items() if isinstance(obj, dict) else enumerate(obj)
    for key, child in items:
        here = (*path, key)
        if depth > 1 and is_collection(child):
            yield from _walk(child, depth - 1, here, (*above, id(obj)), where)
        elif depth > 1 or child is not obj:
            yield here, obj, child
        else:
            raise CallError(f"{where} contains itself (at {_show(here)}); a collection cannot have a cycle")


def set_leaf(container: Any, key: Any, value: Any, where: str) -> None:
    """Put a future where an immutable element was; the task gives that place a new value."""
    if isinstance(container, tuple):
        raise CallError(f"{where} holds an immutable element inside a tuple, which no task can replace; use a list")
    container[key] = value


def _show(path: Path) -> str:
    return "".join(f"[{step!r}]" for step in path)
