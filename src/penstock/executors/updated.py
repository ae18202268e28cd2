"""What a task has made of the objects that it updates, found again after its body.

An element may have been changed where it is, or replaced: what counts is what stands at its place. Containers are
looked at once before the body and once after it, so that an element costs the same in a collection of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import TaskError
from penstock.model.tasks import Output, Steps

if TYPE_CHECKING:
    from penstock.executors.execution import Function

__all__ = ["Updated"]

Arguments = Mapping[int | str, Any]


class Updated:
    """The objects that one attempt updates; made before its body runs."""

    def __init__(self, function: Function, arguments: Arguments, outputs: Sequence[Output]) -> None:
        self._function = function
        self._arguments = arguments
        self._outputs = outputs
        places = _Places(arguments)
        for output in outputs:
            if output.file is None and output.use is None:
                for path in (output.path, *output.also):
                    places.at(path)
        self._keys = places.keys
        self._shapes = {path: _shape(container) for path, container in places.containers.items()}

    def objects(self) -> list[Any]:
        """The object that each output is now; None for files, and for signs that parts of memory were used."""
        places = _Places(self._arguments, self._keys)
        for path, shape in self._shapes.items():
            self._ensure_kept(path, shape, places.at(path))
        none = [output.file is not None or output.use is not None for output in self._outputs]
        return [
            None if nothing else self._now(places, output) for nothing, output in zip(none, self._outputs, strict=True)
        ]

    def _now(self, places: _Places, output: Output) -> Any:
        found = places.at(output.path)
        for path in output.also:
            if places.at(path) is not found:
                raise TaskError(
                    f"task {self._function.name} was given one object as {self._name(output.path)} and as "
                    f"{self._name(path)}, and replaced it at one place only; replace it at both, or change it in place"
                )
        return found

    def _ensure_kept(self, path: Steps, before: Any, container: Any) -> None:
        now = _shape(container)
        if now == before:
            return
        what = f"task {self._function.name} changed the {{}} of its collection argument {self._name(path)} from "
        if isinstance(before, int) and isinstance(now, int):
            raise TaskError(
                what.format("length") + f"{before} to {now}; a collection's elements may change, its length may not"
            )
        if isinstance(before, frozenset) and isinstance(now, frozenset):
            raise TaskError(
                what.format("keys") + f"{_some(before - now)} to {_some(now - before)}; a collection's values may "
                f"change, its keys may not"
            )
        raise TaskError(
            what.format("shape")
            + f"{_told(before)} to {_told(now)}; a collection's elements may change, not what holds "
            f"them"
        )

    def _name(self, path: Steps) -> str:
        return self._function.parameter(path[0]) + "".join(f"[{step!r}]" for step in path[1:])


class _Places:
    """Finds objects by the steps that lead to them."""

    def __init__(self, arguments: Arguments, keys: dict[Steps, list[Any]] | None = None) -> None:
        self._arguments = arguments
        #: containers passed on the way, those that hold others first
        self.containers: dict[Steps, Any] = {}
        #: of dicts among them, in the order that steps count
        self.keys: dict[Steps, list[Any]] = keys if keys is not None else {}
        self._parts: dict[Steps, Any] = {}

    def at(self, path: Steps) -> Any:
        if len(path) == 1:
            return self._arguments[path[0]]  # type: ignore[index]
        above = path[:-1]
        parts = self._parts.get(above)
        if parts is None:
            container = self.containers[above] = self.at(above)
            parts = container
            if isinstance(container, dict):
                parts = [container[key] for key in self.keys.setdefault(above, list(container))]
            self._parts[above] = parts
        return parts[path[-1]]  # type: ignore[index]


def _shape(container: Any) -> Any:
    """What of a container must stay: its length, a dict's keys, the dimensions of an array."""
    if isinstance(container, dict):
        return frozenset(container)
    if isinstance(container, list | tuple):
        return len(container)
    return getattr(container, "shape", None) or type(container).__name__


def _some(keys: frozenset[Any]) -> str:
    shown = sorted(map(repr, keys))
    return ", ".join(shown[:3] + ["…"] * (len(shown) > 3)) or "none"


def _told(shape: Any) -> str:
    return f"{len(shape)} keys" if isinstance(shape, frozenset) else str(shape)
