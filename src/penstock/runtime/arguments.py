"""A call's arguments become a pickled value, its slots, and the versions it reads and makes. It is long because every
kind of argument (objects, futures, collections, files, persistent objects) can be read or written, alone or in others.

Runs in the calling thread, before the engine hears of the call: this is where objects of any size are pickled, so
that the control thread never has to. What the program does to its objects afterwards cannot reach the call.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext, suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.data.admission import Admission
from penstock.data.owners import Located, has_memory_of, is_buffer, locate
from penstock.data.picklers import Pickled
from penstock.data.reach import may_hold
from penstock.data.serializer import LARGE, dump, dump_parts, pack
from penstock.data.slots import SlotRef, current, element, slot
from penstock.errors import CallError, SerializationError
from penstock.executors.strict import picture
from penstock.graph.collections import containers, is_collection, is_numeric_array, leaves, refuse_cycles
from penstock.graph.identity import Datum
from penstock.graph.wiring import Wiring
from penstock.model.data import Value, VersionId, segments_of
from penstock.model.directions import Direction
from penstock.model.events import Provided
from penstock.model.tasks import Failure, OnFailure, Output, Steps
from penstock.persistent.where import is_stored
from penstock.runtime.declaration import Declaration, Place
from penstock.runtime.file_arguments import FileArguments
from penstock.runtime.futures import Future, PlacedFuture, StreamedFuture
from penstock.runtime.persistent_data import KnownObject
from penstock.runtime.reverting import Placed, datum_of, takes_back
from penstock.runtime.simple_arguments import EMPTY, is_immutable, kind_of_named, never_changes
from penstock.runtime.streams import Stream

if TYPE_CHECKING:
    from penstock.runtime.parts_of_call import PartsOfCall
    from penstock.runtime.runtime import Runtime

__all__ = ["Arguments", "TakenBack", "packed"]

_A = TypeVar("_A", bound="Arguments")


class TakenBack(Exception):
    """While a call was looked at, the program got an object back that the call had been wired to read from a task."""


def packed(make: Callable[[], _A], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_A, Value]:
    """The arguments of a call, and their pickle.

    Some arguments can only be had from the program's own memory, so that it takes back from the tasks what they are in.
    If the call uses that elsewhere too, it is looked at anew, and meets the program's object there as well.
    """
    while True:
        arguments = make()
        with suppress(TakenBack):
            return arguments, arguments.pack(args, kwargs)


class Arguments(FileArguments):
    """Packs the arguments of one call."""

    def __init__(self, runtime: Runtime, declaration: Declaration, task: int) -> None:
        self._runtime = runtime
        self._declaration = declaration
        self._task = task
        self.wiring = Wiring(runtime.new_version)
        #: objects that the task writes and that travel with this call, by address
        self._carried: dict[int, Any] = {}
        #: those of them that tasks hold too and that are only written, by address: their data, and their outputs
        self._unread: dict[int, tuple[Datum, int]] = {}
        #: objects that the task writes, by address: their outputs, and what stands for them in the arguments
        self._updated: dict[int, tuple[int, Any]] = {}
        #: the program's objects among them, what they were before, and their new versions; there may be very many
        self._values: list[Any] = []
        self._data: list[Datum | None] = []
        self._versions: list[VersionId] = []
        #: tuples among them that are elements of collections, by address
        self._elements: set[int] = set()
        #: all arguments, as they were given
        self._given: tuple[tuple[Any, ...], dict[str, Any]] = (), {}
        #: the parts of others' memory that the call uses
        self._parts: PartsOfCall | None = None
        #: done once the call is accepted: nothing changes if an argument turns out bad
        self.effects: list[Any] = [self._take_over]
        #: buffers of the arguments, kept until the call holds their segments
        self._buffers: list[pickle.PickleBuffer] = []
        #: told to the engine before the submission, and with it
        self.before: list[Provided] = []
        self.released: list[VersionId] = []
        #: versions that the call makes, and what each replaces
        self.replaces: list[tuple[VersionId, VersionId]] = []
        self.file_reads: list[tuple[VersionId, str]] = []
        #: persistent objects that the call reads, by id
        self.objects: dict[str, KnownObject] = {}

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        """The pickled arguments; the wiring holds the rest."""
        declaration = self._declaration
        if declaration.directions:
            self._given = args, kwargs
            arguments: dict[Place, Any] = dict(enumerate(args))
            arguments.update(kwargs)
            positions = len(args)
            kwargs = dict(kwargs)
            written: set[Place] = set()
            accesses = list(declaration.accesses(args, kwargs))
            self._expect_parts([(value, direction) for _, _, value, direction in accesses if direction.writes])
            for place, name, value, direction in accesses:
                if name == "self" and (kind_of_named(value) or (never_changes(value) and not is_immutable(value))):
                    continue  # a method of such a class changes nothing
                where = f"argument {name!r} of task {declaration.name}"
                arguments[place] = self._access(place, value, direction, where)
                if direction.writes:
                    written.add(place)
            if self._met is not None:
                self._claim_files(self._met)
            if self._unread:
                self._read_aliases([value for place, value in arguments.items() if place not in written])
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
            return self._files(place, value, direction, where)
        if direction.collection:
            return self._collection(place, value, direction, where)
        if direction.writes:
            if is_stored(value):
                return self._write_object((place,), value, where)
            if never_changes(value):
                raise CallError(f"{where} is declared {direction!r}, but {value!r:.60} can never change; return it")
            if kind := kind_of_named(value):
                raise CallError(
                    f"{where} is declared {direction!r}, but {value!r:.60} is {kind}, of which each process has its "
                    f"own: what a task changes there does not come back. Return what is new and set it in the program, "
                    f"or keep it in an object that the task is given"
                )
            return self._write((place,), value, direction, where)
        return value

    def _collection(self, place: Place, value: Any, direction: Direction, where: str) -> Any:
        """A collection travels as one value; what the task writes in it are versions of the elements."""
        if isinstance(value, Stream) and not direction.writes:
            return value
        if is_numeric_array(value):
            return self._numeric_collection(place, value, direction, where)
        if not is_collection(value):
            raise CallError(f"{where} is declared {direction!r} but is a {type(value).__name__}")
        refuse_cycles(value, direction.depth, where)
        if direction.writes:
            if len(self._runtime.identity):
                containers(value, direction.depth, lambda container: self._take_back(container, where))
            for path, container, key, leaf in leaves(value, direction.depth, (place,)):
                self._write_leaf(path, container, key, leaf, direction, where)
        return value

    def _numeric_collection(self, place: Place, value: Any, direction: Direction, where: str) -> Any:
        """The elements of an array of numbers are parts of its memory, rows or numbers: the array is the datum."""
        if direction.depth > value.ndim:
            raise CallError(
                f"{where} is declared {direction!r}, but is an array with {value.ndim} dimensions, each of which is a "
                f"level; lower the depth"
            )
        return self._write((place,), value, direction, where) if direction.writes else value

    def _take_back(self, container: Any, where: str) -> None:
        """Bring a container up to date that a task has changed as a whole: until then nobody knows its elements."""
        datum = datum_of(self._runtime, container, where)
        if datum is not None and not datum.shared:
            self.wiring.lose(datum.version)
            self._runtime.take_back(container, where)

    def _write_leaf(self, path: Steps, container: Any, key: Any, leaf: Any, direction: Direction, where: str) -> None:
        if self._stands_for_itself(leaf):
            leaf = container[key] = leaf.original
        if not never_changes(leaf) and not isinstance(leaf, Enum):
            if is_stored(leaf):
                self._write_object(path, leaf, where)
            else:
                if isinstance(leaf, tuple):
                    self._elements.add(id(leaf))
                self._write(path, leaf, direction, where)
            return
        if isinstance(container, tuple) and isinstance(leaf, Enum):
            return
        if isinstance(container, tuple):
            raise CallError(f"{where} holds {leaf!r:.40} inside a tuple, where no task can replace it; use a list")
        version = self.wiring.write(Output(path, self._kept(leaf, where)))

        def place() -> None:
            """A number or a string is replaced, not changed: from now on the program's collection holds its future."""
            placed = container[key] = self._runtime.driver.waiters[version] = self._placed(version)
            placed.original = leaf
            self.replaces.append((version, 0))

        self.effects.append(place)

    def _stands_for_itself(self, future: Any) -> bool:
        """Whether a future stands for a number that the program has: the task that was to replace it has failed."""
        if isinstance(future, Future) and type(future.outcome) is Failure:
            takes_back(self._runtime, future)
        return isinstance(future, Placed) and not future.version

    def _placed(self, version: VersionId) -> Any:
        """What stands in a collection of the program for a number that the task replaces."""
        return PlacedFuture(self._runtime, self._task, version, self._declaration.name)

    def _write(self, path: Steps, value: Any, direction: Direction, where: str) -> Any:
        """An object that the task updates; one that is at several places is one output."""
        known = self._updated.get(id(value))
        if known is not None:
            self.wiring.also(known[0], path)
            if direction.reads and id(value) in self._unread:
                self._read_too(id(value))
            return known[1]
        position = len(self.wiring.outputs)
        if isinstance(value, Future):
            own = self._runtime.own_results.of(value)
            if own is None and self._meets_its_result(value):
                own = value.known
            if own is not None:
                return self._write(path, own, direction, where)
            stands = self._write_future(path, value, where)
        elif is_buffer(type(value)) and not self._runtime.simulated:
            kept = direction.reads or self._declaration.on_failure is OnFailure.IGNORE
            self._runtime.memories.used = True
            part = self._parts_of_call().write(path, value, where, kept=kept)
            if part is not None:
                return part
            stands = self._write_own(path, value, direction, where)
        else:
            stands = self._write_own(path, value, direction, where)
        self._updated[id(value)] = position, stands
        return stands

    def _expect_parts(self, written: list[tuple[Any, Direction]]) -> None:
        """Look for parts before anything is written: an array that is met before a part of it is used as that is."""
        values: list[Any] = []
        for value, direction in written:
            if direction.collection and not direction.file and is_collection(value):
                values += (leaf for *_, leaf in leaves(value, direction.depth))
            else:
                values.append(value)
        if len(values) > 1 and any(is_buffer(type(value)) for value in values):
            self._parts_of_call().expect(values)

    def _parts_of_call(self) -> PartsOfCall:
        if self._parts is None:
            from penstock.runtime.parts_of_call import PartsOfCall  # arrays that tasks write: not in every program

            local = self._declaration.mpi is None
            self._parts = PartsOfCall(self._runtime, self.wiring, self._carried, local=local)
        return self._parts

    def _write_own(self, path: Steps, value: Any, direction: Direction, where: str) -> Any:
        """An object of the program's: the task reads its newest version and makes the next one."""
        wiring = self.wiring
        datum = datum_of(self._runtime, value, where)
        if datum is not None and datum.shared:
            raise CallError(f"{where} was given to share(), which promises that it will not change")
        if datum is not None:
            self._runtime.ensure_unchanged(datum, where)
        index = -1
        # What is only written is read all the same where it must be as it was, should the task fail.
        reads = direction.reads or self._declaration.on_failure is OnFailure.IGNORE
        if datum is not None and reads:
            index = wiring.read(datum.version)
        else:
            self._carried[id(value)] = value
            index = self._kept(value, where)
            if datum is not None:
                self._unread[id(value)] = datum, len(wiring.outputs)
        version = wiring.write(Output(path, index))
        self._values.append(value)
        self._data.append(datum)
        self._versions.append(version)
        return value if datum is None or not reads else SlotRef(index)

    def _read_aliases(self, others: list[Any]) -> None:
        """Find objects that the task only writes among its other arguments, however deep: there it reads them."""
        others += [value for address, value in self._carried.items() if address not in self._unread]
        if not may_hold(others, self._unread):
            return
        met: set[int] = set()
        known = self._runtime.identity.by_address

        def find(found: Any) -> int | None:
            located = locate(found) if is_buffer(type(found)) else None
            owner = id(located.holder) if isinstance(located, Located) else id(found)
            if owner in self._unread:
                met.add(owner)
            return 0 if id(found) in known else None

        with suppress(SerializationError):  # which pickling all of the arguments will meet again, and tell of
            self._dumped(others, f"an argument of task {self._declaration.name}", find)
        for address in met:
            self._read_too(address)

    def _read_too(self, address: int) -> None:
        """An object that the task only writes is among what it reads as well: it gets the newest version after all."""
        datum, output = self._unread.pop(address)
        del self._carried[address]  # pickling finds it as it finds any datum
        self.wiring.update(output, self.wiring.read(datum.version))

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

    def _meets_its_result(self, future: Future[Any]) -> bool:
        """Whether the call has what the program got of a future, or a part of it, too: in the task they are one."""
        runtime, known = self._runtime, future.known
        if known is None or is_immutable(known) or runtime.simulated or future in runtime.copied:
            return False
        if type(future.outcome) is Failure or future.source()[1] is not None or future.runtime is not runtime:
            return False
        return runtime.objects.of_future(future) is None and has_memory_of(self._given, known)

    def _write_future(self, path: Steps, future: Future[Any], where: str) -> Any:
        if isinstance(future, StreamedFuture):
            future.release()
        fixed = isinstance(future, StreamedFuture) and future.fixed
        if fixed or future.source()[1] is not None or future.runtime is not self._runtime:
            raise CallError(f"{where} is {future!r}, which no task can update; pass its result()")
        if future in self._runtime.copied:
            raise CallError(
                f"{where} is {future!r}, which a copy of what held it holds too, and which would change there as well; "
                f"copy its result() instead, or pass that"
            )
        takes_back(self._runtime, future)
        obj = self._runtime.objects.of_future(future)
        stands: Any = None
        if obj is not None:
            stands = self._write_object(path, obj, where)
            index = self.wiring.outputs[-1].slot
        else:
            index = self.wiring.read(future.version)
        version = self.wiring.write(Output(path, index))

        def renew() -> None:
            old = future.renew(self._task, version, self._declaration.name)
            self._runtime.driver.waiters.pop(old, None)
            self._runtime.driver.waiters[version] = future
            self.replaces.append((version, old))
            self.released.append(old)

        self.effects.append(renew)
        return stands or SlotRef(index)

    def _take_over(self) -> None:
        """The call is accepted: objects that it updates are with the tasks from now on."""
        identity, strict = self._runtime.identity, self._runtime.config.strict
        for value, datum, version in zip(self._values, self._data, self._versions, strict=True):
            self.replaces.append((version, 0 if datum is None else datum.version))
            if datum is not None:
                self.released.append(datum.version)
                datum.version = version
                continue
            datum = identity.track(value, version)
            if strict:
                datum.picture = picture(value)
        for value in self._values if self._elements else ():
            if id(value) in self._elements and (datum := identity.find(value)) is not None:
                datum.replaceable = True

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
        if self.wiring.stale:
            with claim or nullcontext():
                raise TakenBack
        if self._parts:
            self._sign_parts(self._parts)
        if mark is not None:
            self.wiring.writable_buffers = mark.position
        if not buffers and len(stream) == 1 and len(stream[0]) <= LARGE:
            return Value(stream[0])
        self._buffers = buffers
        with claim or nullcontext():
            value = self._store(stream, buffers)
        self.wiring.segments |= segments_of(value)
        return value

    def _sign_parts(self, parts: PartsOfCall) -> None:
        parts.wire()
        parts.sign()
        self.effects.append(lambda: parts.begin(self.released))

    def _dump(self, obj: Any, what: str, mark: _Mark | None = None, admission: Admission | None = None) -> Pickled:
        known, carried = self._runtime.identity.by_address, self._carried
        get, read = known.get, self.wiring.read
        memories = self._runtime.memories
        part = self._parts_of_call().read if memories.used or self._parts is not None else None

        def find(found: Any) -> Any:
            datum = get(id(found))
            if datum is None or id(found) in carried or datum.object() is not found:
                return part(found) if part is not None and is_buffer(type(found)) else None
            if datum.picture is not None:
                self._runtime.ensure_unchanged(datum, what)
            stands = datum_of(self._runtime, found, what)
            return None if stands is None else read(stands.version)

        # To look at an argument as a whole costs less than to be asked about each number in it.
        asks = (bool(known) or part is not None) and (bool(carried) or may_hold([obj], known))
        return self._dumped(obj, what, find if asks else None, mark, admission)

    def _dumped(self, obj: Any, what: str, find: Any, mark: Any = None, admission: Admission | None = None) -> Pickled:
        """Pickle an object; futures and persistent objects that are met become slots of this call."""
        previous = current.outgoing, current.referring
        current.outgoing, current.referring = self._outgoing, self._referring
        try:
            return dump_parts(obj, what, find, mark, admission)
        finally:
            current.outgoing, current.referring = previous

    def _outgoing(self, future: Any) -> tuple[Any, ...]:
        """A future met while pickling: the task waits for its version and finds it in a slot."""
        if future.runtime is not self._runtime:
            return _itself, (future.result(),)  # of another run, which knows nothing of our versions
        known = future.known if isinstance(future, Future) else None
        if known is not None and (id(known) in self._carried or self._runtime.own_results.of(future) is not None):
            return _itself, (known,)  # tasks update the program's own object, which the future stands for
        if self._stands_for_itself(future):
            return _itself, (future.result(),)
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
        return Value(own.data, (*own.buffers, *parts))


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
