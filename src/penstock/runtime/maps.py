"""``task.map(items)``: an array of calls as one record, cut into pieces by measured duration.

The items are pickled at the call; pieces of them are submitted as the earlier ones end, each about as long as
``_PIECE`` seconds of work, so a million tiny calls cost a few hundred tasks. A future for an element is made when it
is asked for. An element given to another task makes that task wait for the element's piece.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from msgspec.structs import replace

from penstock.alert_waits import until
from penstock.data.segments import Access
from penstock.data.serializer import load
from penstock.data.slots import FailedElement
from penstock.data.stand_ins import PromisedSequence
from penstock.engine.retries import DEFAULT_RETRIES, pause_before
from penstock.errors import DataLost
from penstock.model.data import Slot, Value, VersionId
from penstock.model.tasks import Failure, FailureKind, OnFailure
from penstock.runtime.declaration import Declaration
from penstock.runtime.futures import Future
from penstock.runtime.recovery import read

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["Mapped"]

T = TypeVar("T")

#: seconds of work in a piece
_PIECE = 0.02
#: what a worker spends on an item besides the body
_PER_ITEM = 1e-6
#: pieces under way per lane: one runs, one waits
_UNDER_WAY = 2
#: pieces that the rest is cut into when all of it must be cut at once
_AT_ONCE = 64


class _Piece:
    """A range of items submitted as one task, which makes two versions: the results, and the failures among them."""

    __slots__ = ("attempt", "failures", "indices", "mapped", "outcome", "pauses", "task", "version", "versions")

    def __init__(self, mapped: Mapped[Any], indices: range, attempt: int, *, pauses: bool) -> None:
        self.mapped = mapped
        self.indices = indices
        self.attempt = attempt
        #: it waits before it starts, so others need not wait for it
        self.pauses = pauses
        self.outcome: Slot | Failure | None = None
        self.failures: dict[int, Failure] = {}
        self.task = 0
        self.version: VersionId = 0
        self.versions: tuple[VersionId, ...] = ()

    def settle(self, outcome: Slot | Failure) -> bool:
        """The results are there; the failures, settled next, make the piece complete."""
        self.outcome = outcome
        return False

    def announce(self) -> None:
        pass

    def read(self, index: int, content: Value, access: Access = Access.READ) -> Any:
        """Load one of its two versions."""
        runtime = self.mapped._runtime
        version = self.versions[index] if self.versions else 0
        return read(runtime, version, content, lambda one: load(one, runtime.segments, access))


class _PieceFailures:
    """Waits for the second version of a piece."""

    __slots__ = ("_outcome", "_piece")

    def __init__(self, piece: _Piece) -> None:
        self._piece = piece
        self._outcome: Slot | Failure | None = None

    def settle(self, outcome: Slot | Failure) -> bool:
        self._outcome = outcome
        return True

    def announce(self) -> None:
        piece = self._piece
        if isinstance(self._outcome, Value):
            try:
                piece.failures = piece.read(1, self._outcome) or {}
            except DataLost as error:
                piece.outcome = Failure(FailureKind.LOST, str(error))
        piece.mapped._piece_done(piece)


class Mapped(PromisedSequence, Sequence[Future[T]]):
    """The calls of a map: a sequence of futures, and ``results()`` for all values at once."""

    def __init__(self, runtime: Runtime, declaration: Declaration, items: list[Any]) -> None:
        #: pieces are submitted later, but see what there was at the call
        self._spec, self._outside = runtime.functions.spec(declaration), runtime.here.now()
        self._runtime = runtime  # only now: a map that is refused has nothing to let go of
        self._declaration = declaration
        #: arguments of each call that is not over
        self._items: list[Any] = list(items)
        self._pieces: list[_Piece | None] = [None] * len(items)
        self._next = 0
        self._under_way = 0
        self._left = len(items)
        self._values: list[Any] = [None] * len(items)
        self._failures: dict[int, Failure] = {}
        self._loaded: set[_Piece] = set()
        self._futures: dict[int, _Element[T]] = {}
        self._lock = threading.RLock()
        runtime.stored.add(self)
        self._done = threading.Condition(self._lock)
        self._feed()

    # --- what the program sees ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Future[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Future[T]]: ...
    def __getitem__(self, index: int | slice) -> Future[T] | list[Future[T]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        with self._lock:
            future = self._futures.get(position)
            if future is None:
                future = self._futures[position] = _Element(self, position)
                piece = self._pieces[position]
                if position in self._failures:
                    future.settle(self._failures[position])
                elif piece is not None and self._items[position] is None:
                    future.settle(self._outcome(position, piece))
            return future

    def __iter__(self) -> Iterator[Future[T]]:
        return (self[i] for i in range(len(self)))

    def results(self, timeout: float | None = None) -> list[T]:
        """All values, in order; raises the first failure."""
        with self._runtime.driver.awaiting() if self._left else contextlib.nullcontext(), self._done:
            if not until(self._done, lambda: not self._left, timeout):
                raise TimeoutError(f"{self!r} is not done after {timeout:g} s")
        if self._failures:
            for failure in self._failures.values():
                self._runtime.observe(failure)
            raise self._runtime.observe(self._failures[min(self._failures)])
        for piece in self._submitted():
            self._load(piece)
        return self._values

    def cancel(self) -> None:
        """Give up what is not done."""
        with self._lock:
            pieces = [piece for piece in self._submitted() if piece.outcome is None]
            self._give_up(Failure(FailureKind.CANCELLED, "its map was cancelled"))
        for piece in pieces:
            self._runtime.cancel(piece.task, kill=True)

    def __copy__(self) -> Self:
        """Itself: no task can update its futures, so nobody can tell."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # as an argument of a task, it is the list of its values

    def __repr__(self) -> str:
        return f"<map of {self._declaration.name} over {len(self)} items: {len(self) - self._left} done>"

    # --- cutting ------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        with self._lock:
            while (
                not self._runtime.stopped
                and self._next < len(self._items)
                and self._under_way < _UNDER_WAY * self._runtime.cpus
            ):
                self._submit(range(self._next, self._next + self._size()))

    def _size(self) -> int:
        """Items of the next piece: a few milliseconds of work, and never so many that lanes run dry at the end."""
        left = len(self._items) - self._next
        seconds = self._runtime.functions.duration(self._spec)
        if seconds is None or self._declaration.timeout is not None:
            return 1
        wanted = int(_PIECE / (seconds + _PER_ITEM))
        return max(1, min(wanted, -(-left // (_UNDER_WAY * self._runtime.cpus)), left))

    def _submit(self, indices: range, attempt: int = 1, pause: float = 0.0) -> None:
        piece = _Piece(self, indices, attempt, pauses=pause > 0)
        self._next = max(self._next, indices.stop)
        self._under_way += not piece.pauses
        where = slice(indices.start, indices.stop)
        self._pieces[where] = [piece] * len(indices)
        items = self._items[where]
        task, version, second = self._runtime.submit_piece(
            self._spec,
            self._outside,
            items,
            piece,
            _PieceFailures(piece),
            pause,
        )
        piece.task, piece.version, piece.versions = task, version, (version, second)

    def cut_for(self, position: int) -> tuple[VersionId, int]:
        """The version that will hold an element, and the element's place in it; cuts the rest if need be."""
        with self._lock:
            left = len(self._items) - self._next
            while self._pieces[position] is None:
                size = max(self._size(), -(-left // _AT_ONCE))
                self._submit(range(self._next, min(self._next + size, len(self._items))))
            piece = self._pieces[position]
            assert piece is not None
            return piece.version, position - piece.indices.start

    def _submitted(self) -> list[_Piece]:
        """The pieces that hold some item, in order."""
        # Without a comprehension over all items: there may be a million of them in a few hundred pieces.
        return [piece for piece in dict.fromkeys(self._pieces) if piece is not None]

    # --- results ------------------------------------------------------------------------------------------------

    def _piece_done(self, piece: _Piece) -> None:
        """Called by the driver, without its lock, when a piece has ended."""
        with self._lock:
            self._under_way -= not piece.pauses
            again = self._to_repeat(piece)
            settled = self._finish(piece, set(again))
            for position, pause in again.items():
                self._submit(range(position, position + 1), piece.attempt + 1, pause)
            self._feed()
            if not self._left:
                self._done.notify_all()
        for future in settled:
            future.announce()

    def _finish(self, piece: _Piece, again: set[int]) -> list[_Element[T]]:
        """Count a piece's calls as over, but for those to be called again; gives the futures to announce."""
        if not again:
            self._left -= len(piece.indices)
            self._items[piece.indices.start : piece.indices.stop] = [None] * len(piece.indices)
        else:
            for position in piece.indices:
                if position not in again:
                    self._left -= 1
                    self._items[position] = None
        asked = (
            [self._futures[i] for i in piece.indices if i in self._futures and i not in again] if self._futures else []
        )
        return [future for future in asked if future.settle(self._outcome(future.position, piece))]

    def _to_repeat(self, piece: _Piece) -> dict[int, float]:
        """Items to call again on their own: to find the one that killed its worker, or because they may be retried.

        With the seconds to wait before.
        """
        spec = self._runtime.functions.spec(self._declaration)
        if type(piece.outcome) is Failure:
            if piece.outcome.kind is FailureKind.DIED and len(piece.indices) > 1:
                return dict.fromkeys(piece.indices, 0.0)
            if piece.outcome.kind is FailureKind.STOPPED:
                self._give_up(piece.outcome)
            for position in piece.indices:
                self._note_failure(position, replace(piece.outcome, path=(self._label(position),)))
            return {}
        again = {}
        for offset, failure in piece.failures.items():
            position = piece.indices.start + offset
            retries = DEFAULT_RETRIES if spec.retries is None else spec.retries
            if spec.on_failure is OnFailure.RETRY and piece.attempt <= retries:
                again[position] = pause_before(spec, failure, piece.attempt, piece.task + offset)
            elif spec.on_failure is not OnFailure.IGNORE:
                self._note_failure(position, replace(failure, path=(self._label(position),), attempt=piece.attempt))
        return again

    def _give_up(self, failure: Failure) -> None:
        """The run is over: what was not submitted never will be."""
        self._next = len(self._items)
        for position, piece in enumerate(self._pieces):
            if piece is None and position not in self._failures:
                self._fail(position, replace(failure, path=(self._label(position),)))

    def _note_failure(self, position: int, failure: Failure) -> None:
        self._failures[position] = failure
        if failure.kind not in (FailureKind.CANCELLED, FailureKind.STOPPED):
            self._runtime.driver.unobserved[failure.path[0]] = failure

    def _fail(self, position: int, failure: Failure) -> None:
        self._note_failure(position, failure)
        self._left -= 1
        future = self._futures.get(position)
        if future is not None and future.settle(failure):
            future.announce()
        if not self._left:
            self._done.notify_all()

    def _label(self, position: int) -> str:
        return f"{self._declaration.name}[{position}]"

    def _outcome(self, position: int, piece: _Piece) -> Any:
        failure = self._failures.get(position)
        if failure is not None:
            return failure
        return piece.outcome

    def _load(self, piece: _Piece) -> None:
        """Put a piece's values in their places, once."""
        content = piece.outcome
        if piece in self._loaded or not isinstance(content, Value):
            return
        results = piece.read(0, content, Access.COPY)  # without the lock: this may take long
        with self._lock:
            if piece in self._loaded:
                return
            self._loaded.add(piece)
            if not piece.failures:
                self._values[piece.indices.start : piece.indices.stop] = results
                return
            for position, value in zip(piece.indices, results, strict=True):
                if self._pieces[position] is piece:
                    self._values[position] = None if isinstance(value, FailedElement) else value

    def keep(self) -> None:
        """The run is over: map the values while their segments are still there."""
        for piece in self._submitted():
            with contextlib.suppress(DataLost):  # whoever asks for the values will be told
                self._load(piece)

    def value(self, position: int) -> Any:
        """The value of an element whose piece has ended."""
        piece = self._pieces[position]
        if piece is not None:
            self._load(piece)
        return self._values[position]

    def __del__(self) -> None:
        runtime = getattr(self, "_runtime", None)
        if runtime is not None:
            for piece in self._submitted():
                for version in piece.versions:
                    runtime.let_go(version, piece.outcome)


class _Element(Future[T]):
    """The future of one element; keeps the whole map alive."""

    __slots__ = ("_mapped", "_position")

    def __init__(self, mapped: Mapped[T], position: int) -> None:
        super().__init__(mapped._runtime, 0, 0)
        self._mapped = mapped
        self._position = position

    def _load(self, timeout: float | None = None) -> None:
        if type(self._outcome) is Failure:
            raise self._runtime.observe(self._outcome)
        self.loaded_at = 0  # the map may have it for longer, and gave it to another future of this element
        self._value = self._mapped.value(self._position)

    @property
    def position(self) -> int:
        """Its place in the map."""
        return self._position

    def source(self) -> tuple[VersionId, int | None]:
        return self._mapped.cut_for(self._position)

    def cancel(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<Future of {self._mapped._label(self._position)}: {'done' if self.done() else 'pending'}>"
