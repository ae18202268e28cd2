"""``task.map``: one record for an array of calls where that is possible, as many calls where it is not."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from penstock.data.owners import is_buffer
from penstock.data.serializer import LARGE, dump_stream
from penstock.data.slots import current
from penstock.executors.inside import inside_task
from penstock.graph.identity import Identity
from penstock.runtime import session
from penstock.runtime.declaration import Declaration
from penstock.runtime.futures import Future
from penstock.runtime.maps import Mapped
from penstock.runtime.neighbours import living, settle_others
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


def map_calls(task: Task[..., T], iterables: tuple[Any, ...]) -> Mapped[T] | Calls[T]:
    """Call a task on each item, as it is when it comes: what makes the items may use one object again and again."""
    declaration = task.declaration
    calls: Iterable[tuple[Any, ...]] = zip(*iterables, strict=False)
    plain = not declaration.directions and declaration.returns <= 1 and not inside_task() and declaration.mpi is None
    plain = plain and not declaration.streams and not declaration.generator and declaration.label is None
    plain = plain and not declaration.own_defaults  # each call is given its own
    plain = plain and not session.current().simulated  # each call has a duration of its own there
    if not plain:
        return Calls(task(*args) for args in calls)
    if len(living) > 1:
        settle_others(session.current())
    if _AT_REST.issuperset(map(type, iterables)):
        calls = list(calls)
        if _PLAIN.issuperset(map(type, chain.from_iterable(calls))):
            return _mapped(declaration, calls, calls[:1])
    else:
        numbers, others = _led_by_numbers(calls)
        if others is None:
            return _mapped(declaration, numbers, numbers[:1])
        calls = chain(numbers, others)
    packing = _Packing(declaration.name, calls)
    if packing.pack():
        return _mapped(declaration, packing.packed, packing.first)
    return Calls(task(*args) for args in (calls if isinstance(calls, list) else packing.all()))


def _mapped(declaration: Declaration, packed: list[Any], first: list[tuple[Any, ...]]) -> Mapped[Any]:
    for args in first:
        declaration.check(args, {})
    return Mapped(session.current(), declaration, packed)


#: types whose objects never change and are never large, so that they need not be pickled at the call
_PLAIN = frozenset({int, float, complex, bool, type(None)})
#: collections that give their items without any of the program's code in between
_AT_REST = frozenset({list, tuple, range, set, frozenset, dict, str, bytes})


def _led_by_numbers(
    calls: Iterable[tuple[Any, ...]],
) -> tuple[list[tuple[Any, ...]], Iterator[tuple[Any, ...]] | None]:
    """The calls before the first that is given more than numbers, and the others, if there are any."""
    numbers: list[tuple[Any, ...]] = []
    rest = iter(calls)
    for args in rest:
        if not _PLAIN.issuperset(map(type, args)):
            return numbers, chain([args], rest)
        numbers.append(args)
    return numbers, None


class _Packing:
    """The arguments of each call of a map, pickled one after the other."""

    def __init__(self, name: str, calls: Iterable[tuple[Any, ...]]) -> None:
        self._what = f"an item of a map of {name}"
        self._calls = iter(calls)
        self._runtime = session.current()
        self._known = len(self._runtime.identity) or self._runtime.memories.used
        self.packed: list[bytes] = []
        #: the arguments of the first call
        self.first: list[tuple[Any, ...]] = []
        #: those that only a single call can be given: futures, arrays, large objects, and what cannot be pickled
        self._special: list[tuple[Any, ...]] = []

    def pack(self) -> bool:
        """Whether all could be pickled; if not, some are left."""
        outside, current.referring = current.referring, _refuse_object
        try:
            for args in self._calls:
                if not self.packed:
                    self.first = [args]
                data = self._pickled(args)
                if data is None:
                    self._special = [args]
                    return False
                self.packed.append(data)
            return True
        finally:
            current.referring = outside

    def _pickled(self, args: tuple[Any, ...]) -> bytes | None:
        buffers: list[pickle.PickleBuffer] = []
        try:
            if self._known and not all(map(is_immutable, args)):
                data, buffers = dump_stream(args, self._what, _refuse_data(self._runtime.identity))
            else:
                data = pickle.dumps(args, 5, buffer_callback=buffers.append)
                if b"__main__" in data:
                    data, buffers = dump_stream(args, self._what)
        except Exception:
            return None  # the single call will say what is wrong with it, or do better
        return None if buffers or len(data) > LARGE else data

    def all(self) -> Iterator[tuple[Any, ...]]:
        """The arguments of every call: those that were pickled as they were then, all others as they come."""
        return chain(map(pickle.loads, self.packed), self._special, self._calls)


def _refuse_object(obj: Any) -> NoReturn:
    raise LookupError  # a persistent object may be with tasks too


def _refuse_data(identity: Identity) -> Callable[[Any], int | None]:
    def find(obj: Any) -> int | None:
        if identity.find(obj) is not None or is_buffer(type(obj)):
            raise LookupError  # its value is with the tasks, or may be: only a single call can wait for it
        return None

    return find
