"""A call's arguments become a pickled value, its slots, and the versions it reads and makes. It is long because every
kind of argument (objects, futures, collections, files, persistent objects) can be read or written, alone or in others.

Runs in the calling thread, before the engine hears of the call: this is where objects of any size are pickled, so
that the control thread never has to. What the program does to its objects afterwards cannot reach the call.
"""

from __future__ import annotations

import os
import pickle
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.data.admission import Admission
from penstock.data.picklers import Pickled
from penstock.data.reach import may_hold
from penstock.data.refresh import refresh
from penstock.data.serializer import LARGE, dump, dump_parts, pack
from penstock.data.slots import PathRef, SlotRef, StreamRef, current, element, slot
from penstock.errors import CallError, SerializationError
from penstock.executors.strict import picture
from penstock.graph.collections import containers, is_collection, leaves, refuse_cycles, size_of
from penstock.graph.identity import Datum
from penstock.graph.wiring import Wiring
from penstock.model.data import FileRef, Value, VersionId, segments_of
from penstock.model.directions import Direction
from penstock.model.events import Provided
from penstock.model.tasks import Failure, OnFailure, Output, Steps
from penstock.persistent.where import is_stored
from penstock.runtime.declaration import Declaration, Place
from penstock.runtime.files import as_path
from penstock.runtime.futures import Future, PlacedFuture, StreamedFuture
from penstock.runtime.persistent_data import KnownObject
from penstock.runtime.streams import Stream

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["EMPTY", "Arguments", "is_immutable", "plain"]

#: a call without arguments
EMPTY = Value(pickle.dumps(((), {}), 5))

_IMMUTABLE = frozenset({int, float, complex, bool, str, bytes, type(None), range, type(...)})

#: elements of a collection from which on it pays to look at all of it first
_MANY = 100


def is_immutable(obj: Any) -> bool:
    """Whether an object can never change, and so always travels by value and is never a datum."""
    return type(obj) in _IMMUTABLE


def plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value | None:
    """The pickled arguments, if they are numbers, strings and the like: there is nothing to look for in them."""
    for argument in args:
        if type(argument) not in _IMMUTABLE:
            return None
    for argument in kwargs.values():
        if type(argument) not in _IMMUTABLE:
            return None
    data = pickle.dumps((args, kwargs), 5)
    return Value(data) if len(data) <= LARGE else None


class Arguments:
    """Packs the arguments of one call."""

    def __init__(self, runtime: Runtime, declaration: Declaration, task: int) -> None:
        self._runtime = runtime
        self._declaration = declaration
        self._task = task
        self.wiring = Wiring(runtime.new_version)
        #: objects that the task writes and that travel with this call, by address
        self._carried: dict[int, Any] = {}
        #: objects that the task writes, by address: their outputs, and what stands for them in the arguments
        self._updated: dict[int, tuple[int, Any]] = {}
        #: the program's objects among them, what they were before, and their new versions; there may be very many
        self._values: list[Any] = []
        self._data: list[Datum | None] = []
        self._versions: list[VersionId] = []
        #: there is a collection with many elements
        self._large = False
        #: done once the call is accepted: nothing changes if an argument turns out bad
        self.effects: list[Any] = [self._take_over]
        #: buffers of the arguments, kept until the call holds their segments
        self._buffers: list[pickle.PickleBuffer] = []
        #: told to the engine before the submission, and with it
        self.before: list[Provided] = []
        self.released: list[VersionId] = []
        #: persistent objects that the call reads, by id
        self.objects: dict[str, KnownObject] = {}
        #: versions of files that are with the tasks, unless they leave them before the submission
        self.file_reads: list[tuple[VersionId, str]] = []

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        """The pickled arguments; the wiring holds the rest."""
        declaration = self._declaration
        if declaration.directions:
            arguments: dict[Place, Any] = dict(enumerate(args))
            arguments.update(kwargs)
            positions = len(args)
            kwargs = dict(kwargs)
            for place, name, value, direction in declaration.accesses(args, kwargs):
                where = f"argument {name!r} of task {declaration.name}"
                arguments[place] = self._access(place, value, direction, where)
            args = tuple(arguments[i] for i in range(positions))
            kwargs = {name: arguments.get(name, kwargs[name]) for name in kwargs}
        if not args and not kwargs:
            return EMPTY
        try:
            return self._pickle(args, kwargs)
        except SerializationError as error:
            raise self._culprit(args, kwargs) or error from error.__cause__

    def _culprit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SerializationError | None:
        """The error again, naming the argument that cannot be pickled."""
        names = self._declaration.positional
        named = [(names[i] if i < len(names) else f"*args[{i}]", value) for i, value in enumerate(args)]
        for name, value in [*named, *kwargs.items()]:
            try:
                self._dump(value, f"argument {name!r} of task {self._declaration.name}")
            except SerializationError as error:
                return error
        return None

    # --- accesses -----------------------------------------------------------------------------------------------

    def _access(self, place: Place, value: Any, direction: Direction, where: str) -> Any:
        """What stands in the pickled arguments for an argument with a direction."""
        if direction.file:
            return self._file(place, value, direction, where)
        if direction.collection:
            return self._collection(place, value, direction, where)
        if direction.writes:
            if is_stored(value):
                return self._write_object((place,), value, where)
            if is_immutable(value):
                raise CallError(f"{where} is declared {direction!r}, but {value!r:.60} can never change; return it")
            return self._write((place,), value, direction, where)
        return value

    def _collection(self, place: Place, value: Any, direction: Direction, where: str) -> Any:
        """A collection travels as one value; what the task writes in it are versions of the elements."""
        if isinstance(value, Stream) and not direction.writes:
            return value
        if not is_collection(value):
            raise CallError(f"{where} is declared {direction!r} but is a {type(value).__name__}")
        refuse_cycles(value, direction.depth, where)
        self._large = self._large or size_of(value) > _MANY
        if direction.writes:
            if len(self._runtime.identity):
                containers(value, direction.depth, lambda container: self._take_back(container, where))
            for path, container, key, leaf in leaves(value, direction.depth, (place,)):
                self._write_leaf(path, container, key, leaf, direction, where)
        return value

    def _take_back(self, container: Any, where: str) -> None:
        """Bring a container up to date that a task has changed as a whole: until then nobody knows its elements."""
        runtime = self._runtime
        datum = runtime.identity.find(container)
        if datum is None or datum.shared:
            return
        runtime.ensure_unchanged(datum, where)
        if not refresh(container, runtime.value_of(datum)):
            raise CallError(
                f"{where} has a {type(container).__name__} that a task has replaced as a whole; pass what wait_on() "
                f"gives for it"
            )
        runtime.forget(container)

    def _write_leaf(self, path: Steps, container: Any, key: Any, leaf: Any, direction: Direction, where: str) -> None:
        if type(leaf) not in _IMMUTABLE:
            if is_stored(leaf):
                self._write_object(path, leaf, where)
            else:
                self._write(path, leaf, direction, where)
            return
        if isinstance(container, tuple):
            raise CallError(f"{where} holds {leaf!r:.40} inside a tuple, where no task can replace it; use a list")
        version = self.wiring.write(Output(path, self._kept(leaf, where)))

        def place() -> None:
            """A number or a string is replaced, not changed: from now on the program's collection holds its future."""
            container[key] = self._runtime.driver.waiters[version] = self._placed(version)

        self.effects.append(place)

    def _placed(self, version: VersionId) -> Future[Any]:
        """What stands in a collection of the program for a number that the task replaces."""
        return PlacedFuture(self._runtime, self._task, version)

    def _write(self, path: Steps, value: Any, direction: Direction, where: str) -> Any:
        """An object that the task updates; one that is at several places is one output."""
        known = self._updated.get(id(value))
        if known is not None:
            self.wiring.also(known[0], path)
            return known[1]
        position = len(self.wiring.outputs)
        if isinstance(value, Future):
            stands = self._write_future(path, value, where)
        else:
            stands = self._write_own(path, value, direction, where)
        self._updated[id(value)] = position, stands
        return stands

    def _write_own(self, path: Steps, value: Any, direction: Direction, where: str) -> Any:
        """An object of the program's: the task reads its newest version and makes the next one."""
        wiring = self.wiring
        datum = self._runtime.identity.find(value)
        if datum is not None and datum.shared:
            raise CallError(f"{where} was given to share(), which promises that it will not change")
        if datum is not None:
            self._runtime.ensure_unchanged(datum, where)
        index = -1
        if datum is not None and direction.reads:
            index = wiring.read(datum.version)
        else:
            self._carried[id(value)] = value
            index = self._kept(value, where)
        version = wiring.write(Output(path, index))
        self._values.append(value)
        self._data.append(datum)
        self._versions.append(version)
        return value if datum is None or not direction.reads else SlotRef(index)

    def _write_object(self, path: Steps, obj: Any, where: str) -> Any:
        """A persistent object that the task updates: both versions are references to states in the store."""
        index = self.wiring.read(self._runtime.objects.read(obj, self, where))
        version = self.wiring.write(Output(path, index))
        self.effects.append(lambda: self._runtime.objects.write(obj, version, self))
        return _Object(self._with_inside(index, obj))

    def _referring(self, obj: Any) -> tuple[Any, ...]:
        """A persistent object met while pickling: the task finds it in a slot, where others of its id are too."""
        where = f"an argument of task {self._declaration.name}"
        return self._with_inside(self.wiring.read(self._runtime.objects.read(obj, self, where)), obj)

    def _with_inside(self, index: int, obj: Any) -> tuple[Any, ...]:
        """A persistent object in a slot, and in others those that it refers to and that tasks update."""
        inside = self._runtime.objects.inside(obj, self)
        if not inside:
            return slot, (index,)
        from penstock.persistent.links import together

        return together, (SlotRef(index), *(SlotRef(self.wiring.read(version)) for version in inside))

    def _kept(self, value: Any, where: str) -> int:
        """The slot of what an object of the program stays if the task fails and that is ignored."""
        ignored = self._declaration.on_failure is OnFailure.IGNORE
        return self.wiring.carry(self._as_it_is(value, where)) if ignored else -1

    def _as_it_is(self, value: Any, where: str) -> Value:
        return dump(value, self._runtime.segments, where)

    def _write_future(self, path: Steps, future: Future[Any], where: str) -> Any:
        fixed = isinstance(future, StreamedFuture) and future.fixed
        if fixed or future.source()[1] is not None or future.runtime is not self._runtime:
            raise CallError(f"{where} is {future!r}, which no task can update; pass its result()")
        obj = self._runtime.objects.of_future(future)
        stands: Any = None
        if obj is not None:
            stands = self._write_object(path, obj, where)
            index = self.wiring.outputs[-1].slot
        else:
            index = self.wiring.read(future.version)
        version = self.wiring.write(Output(path, index))

        def renew() -> None:
            old = future.renew(self._task, version)
            self._runtime.driver.waiters.pop(old, None)
            self._runtime.driver.waiters[version] = future
            self.released.append(old)

        self.effects.append(renew)
        return stands or SlotRef(index)

    def _take_over(self) -> None:
        """The call is accepted: objects that it updates are with the tasks from now on."""
        identity, strict = self._runtime.identity, self._runtime.config.strict
        for value, datum, version in zip(self._values, self._data, self._versions, strict=True):
            if datum is not None:
                self.released.append(datum.version)
                datum.version = version
                continue
            datum = identity.track(value, version)
            if strict:
                datum.picture = picture(value)

    def _file(self, place: Place, value: Any, direction: Direction, where: str) -> Any:
        """A file: it reads the newest version and, if it writes, makes the next one."""
        runtime = self._runtime
        if isinstance(value, Future):
            raise CallError(f"{where} is a future; a file's path must be known at the call")
        path = as_path(value, where)
        if path in runtime.driver.house.unnamed:
            raise runtime.observe(runtime.driver.house.unnamed.pop(path))
        newest = self._newest_version(path)
        stands: Any = value if isinstance(value, Path) else os.fspath(value)
        index = -1
        if direction.reads:
            if newest is None:
                newest = runtime.new_version()
                self.before.append(Provided(newest, self._found(place, path, where)))
                self.released.append(newest)
                self.effects.append(lambda: runtime.files.newest.__setitem__(path, newest))
            else:
                self.file_reads.append((newest, path))
            index = self.wiring.read(newest, stream=direction.stream)
            opens = direction.stream and not self._declaration.is_program
            stands = StreamRef(index) if opens else PathRef(index) if isinstance(value, Path) else SlotRef(index)
        if direction.writes:
            if os.path.isdir(path):
                raise CallError(f"{where} names {path}, which is a directory")
            version = self.wiring.write(
                Output((place,), index, path, direction.reads, direction.temp, direction.stream)
            )
            replaced = newest

            def succeed() -> None:
                runtime.files.newest[path] = version
                if replaced is not None:
                    self.released.append(replaced)

            self.effects.append(succeed)
        return stands

    def _found(self, place: Place, path: str, where: str) -> FileRef:
        """A file that no task of this run is making."""
        if not os.path.exists(path):
            raise CallError(f"{where} names the file {path}, which does not exist and which no task produces")
        return FileRef(path)

    def _newest_version(self, path: str) -> VersionId | None:
        """The version of a file that is with the tasks; None if what is on disk counts."""
        runtime = self._runtime
        newest = runtime.files.newest.get(path)
        record = runtime.driver.engine.state.versions.get(newest) if newest is not None else None
        if record is None:
            return None
        outcome = record.outcome
        if isinstance(outcome, Failure) and outcome.path[0] not in runtime.driver.unobserved:
            # The program knows that the file could not be made, and goes on with the one there is.
            self.released.append(record.version)
            return None
        return newest

    # --- pickling -----------------------------------------------------------------------------------------------

    def _pickle(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        """Pickle the arguments, with futures and data replaced by slots.

        Objects that the task changes come first in the stream, so that their buffers come first too: the worker maps
        those so that they can be written, and all others read-only. One stream keeps every alias and cycle.
        """
        what = f"an argument of task {self._declaration.name}"
        mark = _Mark() if self._carried else None
        obj: Any = (args, kwargs) if mark is None else ([*self._carried.values()], mark, args, kwargs)
        stream, buffers, claim = self._dump(obj, what, mark, self._runtime.segments.admission)
        if mark is not None:
            self.wiring.writable_buffers = mark.position
        if not buffers and len(stream) == 1 and len(stream[0]) <= LARGE:
            return Value(stream[0])
        self._buffers = buffers
        with claim or nullcontext():
            value = self._store(stream, buffers)
        self.wiring.segments |= segments_of(value)
        return value

    def _dump(self, obj: Any, what: str, mark: _Mark | None = None, admission: Admission | None = None) -> Pickled:
        known, carried = self._runtime.identity.by_address, self._carried
        get, read = known.get, self.wiring.read

        def find(found: Any) -> int | None:
            datum = get(id(found))
            if datum is None or id(found) in carried or datum.object() is not found:
                return None
            if datum.picture is not None:
                self._runtime.ensure_unchanged(datum, what)
            return read(datum.version)

        asks = bool(known) and not (self._large and not carried and not may_hold(obj, known))
        previous = current.outgoing, current.referring
        current.outgoing, current.referring = self._outgoing, self._referring
        try:
            return dump_parts(obj, what, find if asks else None, mark, admission)
        finally:
            current.outgoing, current.referring = previous

    def _outgoing(self, future: Any) -> tuple[Any, ...]:
        """A future met while pickling: the task waits for its version and finds it in a slot."""
        if future.runtime is not self._runtime:
            return _itself, (future.result(),)  # of another run, which knows nothing of our versions
        version, position = future.source()
        obj = None if position is not None else self._runtime.objects.of_future(future)
        if obj is not None:
            return self._referring(obj)
        index = self.wiring.read(version)
        return (slot, (index,)) if position is None else (element, (index, position))

    def _store(self, stream: list[bytes], buffers: list[pickle.PickleBuffer]) -> Value:
        """Large buffers of inputs are stored once per content; those of objects to be changed belong to this call."""
        runtime = self._runtime
        first = self.wiring.writable_buffers
        own = pack(stream, buffers[:first], runtime.segments)
        piece = runtime.buffers.piece
        parts = [bytes(one.raw()) if one.raw().nbytes <= LARGE else piece(one) for one in buffers[first:]]
        return Value(own.data, [*own.buffers, *parts])


def _itself(value: Any) -> Any:
    return value


class _Object:
    """Stands for a persistent object where an argument was."""

    __slots__ = ("_reduced",)

    def __init__(self, reduced: tuple[Any, ...]) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


class _Mark:
    """Stands between the objects that a task changes and its other arguments, and notes where the latter begin."""

    def __init__(self) -> None:
        self.position = 0
        #: the buffers collected so far, while pickling
        self.buffers: list[pickle.PickleBuffer] = []

    def __reduce__(self) -> tuple[Any, ...]:
        self.position = len(self.buffers)
        return tuple, ()
