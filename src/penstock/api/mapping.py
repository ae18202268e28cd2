"""``task.map``: one record for an array of calls where that is possible, as many calls where it is not."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from penstock.data.owners import is_buffer
from penstock.data.serializer import LARGE, dump_stream
from penstock.data.slots import current
from penstock.executors.inside import inside_task
from penstock.graph.identity import Identity
from penstock.runtime import session
from penstock.runtime.futures import Future
from penstock.runtime.maps import Mapped
from penstock.runtime.simple_arguments import is_immutable

if TYPE_CHECKING:
    from penstock.api.task import Task

__all__ = ["Calls", "map_calls"]

T = TypeVar("T")


class Calls(list[Future[T]]):
    """Futures of a map whose calls were submitted one by one."""

    def results(self, timeout: float | None = None) -> list[T]:
        """All values, in order; raises the first failure."""
        return [future.result(timeout) for future in self]


def map_calls(task: Task[..., T], iterables: Iterable[Any]) -> Mapped[T] | Calls[T]:
    """Call a task on each item."""
    declaration = task.declaration
    calls = list(zip(*iterables, strict=False))
    plain = not declaration.directions and declaration.returns <= 1 and not inside_task() and declaration.mpi is None
    plain = plain and not declaration.streams and not declaration.generator and declaration.label is None
    plain = plain and not session.current().simulated  # each call has a duration of its own there
    outside, current.referring = current.referring, _refuse_object
    try:
        packed = _pack(calls, declaration.name) if plain else None
    finally:
        current.referring = outside
    if packed is None:
        return Calls(task(*args) for args in calls)
    runtime = session.current()
    for args in calls[:1]:
        declaration.check(args, {})
    return Mapped(runtime, declaration, packed)


#: types whose objects never change and are never large, so that they need not be pickled at the call
_PLAIN = frozenset({int, float, complex, bool, type(None)})


def _pack(calls: list[tuple[Any, ...]], name: str) -> list[Any] | None:
    """The arguments of each call, as they are or pickled; None if some need more: futures, arrays, large objects."""
    if _PLAIN.issuperset(map(type, chain.from_iterable(calls))):
        return calls
    runtime = session.current()
    known = len(runtime.identity) or runtime.memories.used
    packed: list[bytes] = []
    buffers: list[pickle.PickleBuffer] = []
    append, dumps, keep = packed.append, pickle.dumps, buffers.append
    for args in calls:
        try:
            if known and not all(map(is_immutable, args)):
                data, buffers = dump_stream(args, f"an item of a map of {name}", _refuse_data(runtime.identity))
            else:
                data = dumps(args, 5, buffer_callback=keep)
                if b"__main__" in data:
                    data, buffers = dump_stream(args, f"an item of a map of {name}")
        except Exception:
            return None  # the single calls will say what is wrong with it, or do better
        if buffers or len(data) > LARGE:
            return None
        append(data)
    return packed


def _refuse_object(obj: Any) -> NoReturn:
    raise LookupError  # a persistent object may be with tasks too


def _refuse_data(identity: Identity) -> Callable[[Any], int | None]:
    def find(obj: Any) -> int | None:
        if identity.find(obj) is not None or is_buffer(type(obj)):
            raise LookupError  # its value is with the tasks, or may be: only a single call can wait for it
        return None

    return find
