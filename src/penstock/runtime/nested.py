"""A task called inside a task: it runs at once, in that task's process, and gives futures that are done.

What it hands over early is kept, so that its results are the same as from the main program.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import os
import pickle
from collections.abc import Iterator
from typing import Any

from penstock.data.serializer import dump_stream
from penstock.errors import CallError, ReturnsMismatch, TaskError
from penstock.executors.coroutines import plain
from penstock.executors.early import HandedIndices, checked_index, checked_position, exhaust, following, remaining
from penstock.executors.nested import DoneFuture, DoneStream
from penstock.executors.outside import undone
from penstock.persistent.where import is_stored
from penstock.runtime.declaration import Declaration

__all__ = ["call_here"]


def call_here(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function itself; its result comes in the same form as from the main program."""
    declaration.check(args, kwargs)
    if declaration.mpi is not None:
        raise CallError(
            f"MPI task {declaration.name} was called inside a task, where it cannot have ranks of its own; call it "
            f"from the main program"
        )
    seen: set[int] = set()
    release = _Kept(declaration, args, kwargs) if declaration.returns != -1 or declaration.directions else None
    outside = following(release)
    try:
        args = tuple(_resolved(argument, seen) for argument in args)
        kwargs = {name: _resolved(kwargs[name], seen) for name in kwargs}
        if declaration.own_defaults:
            kwargs = copy.deepcopy(declaration.with_own_defaults(args, {})) | kwargs
        with undone(), contextlib.ExitStack() as files:
            if not declaration.is_program:
                args, kwargs = _with_open_files(declaration, args, kwargs, files)
            value = plain(declaration.body)(*args, **kwargs)
        for _, _, argument, direction in declaration.accesses(args, dict(kwargs)) if declaration.directions else ():
            if direction.writes and is_stored(argument):
                argument.mark_modified()
        if release is not None:
            value = release.result(value)
        if declaration.returns > 1 and (not isinstance(value, tuple | list) or len(value) != declaration.returns):
            count = len(value) if isinstance(value, tuple | list) else 1
            raise ReturnsMismatch(
                f"task {declaration.name} declares returns={declaration.returns} but returned {count} values"
            )
    except Exception as error:
        return _failed(declaration, error, release)
    finally:
        following(outside)
    if declaration.streams:
        return DoneStream([DoneFuture(part) for part in value])
    return DoneFuture(value) if declaration.returns <= 1 else [DoneFuture(part) for part in value]


def _failed(declaration: Declaration, error: Exception, release: _Kept | None) -> Any:
    """What was handed over before the failure stays; the rest fails."""
    kept = {} if release is None else release.values
    if declaration.streams:
        return DoneStream([DoneFuture(kept[index]) for index in sorted(kept)], DoneFuture(error=error))
    futures = [DoneFuture(kept[i]) if i in kept else DoneFuture(error=error) for i in range(declaration.outputs)]
    return futures[0] if declaration.returns <= 1 else futures


def _with_open_files(
    declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any], files: contextlib.ExitStack
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with open files in the place of those that are read as streams; here they are complete."""
    if not any(direction.stream and direction.reads for direction in declaration.directions.values()):
        return args, kwargs
    given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    for place, _, path, direction in list(declaration.accesses(args, kwargs)):
        if direction.stream and direction.reads:
            given[place] = files.enter_context(open(path, "rb"))  # noqa: SIM115
    return tuple(given[i] for i in range(len(args))), {name: given[name] for name in given if isinstance(name, str)}


class _Kept:
    """Keeps what a nested call hands over early, as it was then."""

    def __init__(self, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._declaration = declaration
        self._arguments = (args, kwargs)
        self.values: dict[int, Any] = {}
        self._over = HandedIndices()

    def value(self, obj: Any, index: int | None) -> None:
        """Keep an output."""
        declaration = self._declaration
        if declaration.streams:
            position = len(self.values)
            checked_position(declaration.name, position, index)
        else:
            position = checked_index(declaration.name, declaration.returns, self._over, index)
        data, buffers = dump_stream(obj, f"output {position} of task {declaration.name}")
        self._over.add(position)
        self.values[position] = pickle.loads(data, buffers=[bytearray(buffer.raw()) for buffer in buffers])

    def file(self, path: Any) -> None:
        """A nested call writes its files under their own names already."""
        args, kwargs = self._arguments
        given = os.path.abspath(os.fspath(path))
        for _, _, value, direction in self._declaration.accesses(args, dict(kwargs)):
            if direction.file and direction.writes and given in map(os.path.abspath, _paths(value)):
                return
        raise TaskError(f"ready_file({path!r}): that is none of the files that task {self._declaration.name} writes")

    def result(self, value: Any) -> Any:
        """What the body returned, with what it handed over in its place."""
        declaration = self._declaration
        count, generator = declaration.returns, declaration.generator
        if generator:
            value = exhaust(value, lambda part: self.value(part, None))
        if not (generator or declaration.streams or self.values):
            return value
        parts = remaining(declaration.name, count, self.values.keys(), value)
        if declaration.streams:
            return list(self.values.values())
        whole = [self.values.get(i) if i in self.values or parts is None else parts[i] for i in range(count)]
        return whole[0] if count == 1 else whole


def _paths(value: Any) -> Iterator[str]:
    """The paths that an argument is, or holds."""
    if isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _paths(part)
    else:
        yield os.fspath(value)


def _resolved(obj: Any, seen: set[int]) -> Any:
    """The object with what futures hold in their places; containers and instances stay the objects they are."""
    if isinstance(obj, concurrent.futures.Future):
        return obj.result()
    if id(obj) in seen:
        return obj
    if isinstance(obj, tuple):
        parts = [_resolved(part, seen) for part in obj]
        if all(new is old for new, old in zip(parts, obj, strict=True)):
            return obj
        return type(obj)(*parts) if hasattr(obj, "_fields") else type(obj)(parts)
    if isinstance(obj, list | dict):
        seen.add(id(obj))
        _resolve_items(obj, list(obj.items()) if isinstance(obj, dict) else list(enumerate(obj)), seen)
    elif type(getattr(obj, "__dict__", None)) is dict and not isinstance(obj, type):
        seen.add(id(obj))
        _resolve_items(obj.__dict__, list(obj.__dict__.items()), seen)
    return obj


def _resolve_items(container: Any, items: list[tuple[Any, Any]], seen: set[int]) -> None:
    for key, part in items:
        new = _resolved(part, seen)
        if new is not part:
            container[key] = new
