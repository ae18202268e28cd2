"""Outputs that an attempt hands over before its end: what ``ready_value``, ``ready_file`` and ``yield`` do.

    body ── ready_value(obj, 1) ──▶ Release: checked, pickled ──▶ Channel ──▶ the driver: OutputReady
    body ── return (a, b, c)    ──▶ Release.rest: what was not handed over

The value is pickled inside the call, so what the body does to the object afterwards cannot reach anybody.
"""

from __future__ import annotations

import os
import threading
from _thread import _count
from collections.abc import Callable, Generator, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.data.segments import Segments
from penstock.data.serializer import NONE, dump
from penstock.errors import ReturnsMismatch, TaskError
from penstock.executors.inside import threads_of_bodies
from penstock.executors.wire import STREAM, Delivering, Early, Run
from penstock.executors.written_files import WrittenFiles
from penstock.model.data import Slot
from penstock.model.tasks import FailureKind

if TYPE_CHECKING:
    from penstock.executors.execution import Function

__all__ = [
    "Channel",
    "HandedIndices",
    "Mismatch",
    "Possible",
    "Release",
    "Releasing",
    "checked_index",
    "checked_position",
    "exhaust",
    "followed",
    "following",
    "is_left_behind",
    "release_of",
    "remaining",
]


class Mismatch(ReturnsMismatch):
    """Told apart by ``describe`` through its attribute; see tracebacks.py."""

    failure_kind = FailureKind.RETURNS


class Stopped(GeneratorExit):
    """Raised where a body hands over an output, or yields it, that is not wanted any more."""

    failure_kind = FailureKind.CANCELLED


class Channel(Protocol):
    """Where early outputs go."""

    def hand_over(self, message: Early) -> None:
        """Pass an output on."""
        ...

    def await_grant(self, task: int, above: int) -> int:
        """Wait until more than this many outputs may be handed over, or the task is to end; gives how many."""
        ...

    def is_to_end(self, task: int) -> bool:
        """Whether no more outputs are wanted; whoever asks will end then."""
        ...

    def announce(self, message: Delivering) -> None:
        """Say, before this returns, that an attempt has begun to deliver."""
        ...


class Releasing(Protocol):
    """What a body can be asked to do with its outputs while it runs."""

    def value(self, obj: Any, index: int | None) -> None: ...

    def file(self, path: Any) -> None: ...


class Possible:
    """The release of an attempt that will most likely hand nothing over: it is made when it is asked for."""

    __slots__ = ("_forks", "_parts", "release")

    def __init__(self, *parts: Any) -> None:
        self._parts = parts
        self._forks = _OfProcess.forks
        self.release: Release | None = None

    def get(self) -> Release:
        """The release itself."""
        with _handing_over:
            if self.release is None:
                self.release = Release(*(*self._parts, self._forks))
            return self.release


_Followed = Releasing | Possible | Literal[False] | None


class _Current(threading.local):
    #: of the task that this thread carries out; False if it never carried out any
    release: _Followed = False


class _OfProcess:
    """The task that all of this process carries out, for threads that its body starts; only in worker processes."""

    release: _Followed = None
    #: threads that were there before it: an earlier task has left them
    earlier: Sequence[threading.Thread] = ()
    #: whether there was ever one
    serves = False
    #: how many forks lie between this process and the one that loaded this module
    forks = 0

    @classmethod
    def is_forked(cls) -> None:
        """This process is a copy of another."""
        cls.forks += 1


# Asking for the number of the process for every task would be felt.
os.register_at_fork(after_in_child=_OfProcess.is_forked)


_current = _Current()
_of_process = _OfProcess()
#: a body may hand over outputs in several threads
_handing_over = threading.Lock()


def release_of() -> Releasing | None:
    """What takes the early outputs of the task that is being carried out here; None if there is none."""
    release = followed()
    return release.get() if isinstance(release, Possible) else release or None


def followed() -> _Followed:
    """The task that this thread belongs to: because it carries it out, or its body has started it."""
    release = _current.release
    if release is False:
        if threads_of_bodies and (body := threads_of_bodies.get(threading.current_thread())) is not None:
            return body.release  # type: ignore[no-any-return]
        release = None if _is_of_earlier_task() else _of_process.release
    return release


def is_left_behind() -> bool:
    """Whether this thread is one of a task's body, but not of the task that is being carried out."""
    return _current.release is False and _of_process.serves and (not _of_process.release or _is_of_earlier_task())


def _is_of_earlier_task() -> bool:
    return threading.current_thread() in _of_process.earlier


def following(release: _Followed, *, alone: bool = False) -> _Followed:
    """From now on this thread carries out another task, ``alone``: all of this process does; gives the one before."""
    before = _current.release
    _current.release = release
    if alone:
        _of_process.release = release
        _of_process.earlier = threading.enumerate() if release and _count() else ()
        _of_process.serves = True
    return before


def exhaust(generator: Generator[Any, None, Any], hand_over: Callable[[Any], None]) -> Any:
    """Run a body that yields its outputs; gives what it returns. What is wrong with one is raised at its ``yield``."""
    step: Callable[[], Any] = generator.__next__
    while True:
        try:
            value = step()
        except StopIteration as stop:
            return stop.value
        step = generator.__next__
        try:
            hand_over(value)
        except Stopped:
            generator.close()
            raise
        except Exception as error:
            problem = error
            step = lambda: generator.throw(problem)  # noqa: E731, B023


class HandedIndices(set[int]):
    """Outputs that were handed over, by their index; none is ever taken back."""

    def __init__(self) -> None:
        super().__init__()
        self._first = 0

    def first_missing(self) -> int:
        """The first that was not."""
        while self._first in self:
            self._first += 1
        return self._first


def checked_index(name: str, count: int, over: HandedIndices, index: int | None) -> int:
    """Which of ``count`` outputs is handed over; None is the first that was not yet."""
    if count < 1:
        raise Mismatch(f"ready_value(…, {index!r}): task {name} does not declare how many values it returns: returns=N")
    if index is None:
        index = over.first_missing()
        if index == count:
            raise Mismatch(f"task {name} declares returns={count} and hands over one output more")
    if type(index) is not int or not 0 <= index < count:
        raise Mismatch(
            f"ready_value(…, {index!r}): task {name} declares returns={count}, so its outputs are 0 to {count - 1}"
        )
    if index in over:
        raise Mismatch(
            f"ready_value(…, {index}): output {index} of task {name}, which declares returns={count}, was handed over "
            f"already; somebody may have read it"
        )
    return index


def checked_position(name: str, position: int, index: int | None) -> None:
    """Refuse an output of a stream that is not the next."""
    if index is not None and index != position:
        raise Mismatch(
            f"ready_value(…, {index!r}): task {name} declares returns=..., so its outputs come in order and the next "
            f"is {position}; leave the index out"
        )


def remaining(name: str, count: int, over: Set[int], result: Any) -> Sequence[Any] | None:
    """What a body returned after it handed over some outputs: a value for each of all; None if none is needed."""
    if count == STREAM:
        if result is not None:
            raise Mismatch(
                f"task {name} declares returns=..., so its outputs are those that it hands over; it also returned a "
                f"value of type {type(result).__name__}"
            )
        return None
    if result is None:
        missing = [str(index) for index in range(count) if index not in over]
        if missing:
            raise Mismatch(
                f"task {name} declares returns={count} but neither handed over nor returned output {', '.join(missing)}"
            )
        return None
    parts = [result] if count == 1 else result
    if not isinstance(parts, tuple | list) or len(parts) != count:
        shown = f"{len(parts)} values" if isinstance(parts, tuple | list) else f"a {type(parts).__name__}"
        raise Mismatch(
            f"task {name} declares returns={count} and handed over some outputs; then it must return nothing, or "
            f"{count} values of which the others are taken, but it returned {shown}"
        )
    return parts


class Release:
    """The early outputs of one attempt."""

    def __init__(
        self,
        run: Run,
        function: Function,
        segments: Segments,
        files: WrittenFiles | None,
        channel: Channel | None,
        forks: int,
    ) -> None:
        self._run = run
        self._function = function
        self._segments = segments
        self._files = files or WrittenFiles(run, function, segments, {})  # a task without any is told so
        self._channel = channel
        #: of the body's process, not of one that it started
        self._forks = forks
        #: return values, and files by their number among all outputs, that were handed over
        self._over = HandedIndices()
        self._files_over: set[int] = set()
        #: by earlier attempts
        self._delivered = frozenset(run.delivered)
        #: of a stream: how many this attempt has handed over, and how many it may
        self._count = 0
        self._granted = function.ahead or float("inf")
        #: the engine tells such a task that it is to end, before it has its process killed
        self._can_be_asked = function.generator or function.returns == STREAM
        #: files among the outputs: return values come before them
        self._first_file = max(1, function.returns)

    @property
    def used(self) -> bool:
        """Whether a return value was handed over."""
        return bool(self._over) or self._count > 0

    def value(self, obj: Any, index: int | None) -> None:
        """Hand over a return value."""
        with _handing_over:
            self._ensure_own_process("ready_value")
            self._ensure_wanted()
            if self._function.returns == STREAM:
                self._next_of_stream(obj, index)
                return
            number = checked_index(self._function.name, self._function.returns, self._over, index)
            if number not in self._delivered:
                self._tell(number, dump(obj, self._segments, self._what(number)))
            self._over.add(number)

    def _next_of_stream(self, obj: Any, index: int | None) -> None:
        position = self._count
        checked_position(self._function.name, position, index)
        if position >= self._granted:
            assert self._channel is not None
            self._granted = self._channel.await_grant(self._run.task, position)
            self._ensure_wanted()
        value = dump(obj, self._segments, self._what(position))
        self._tell(1 + len(self._run.outputs) + position, value)
        self._count += 1

    def _what(self, index: int) -> str:
        return f"output {index} of task {self._function.name}"

    def file(self, path: Any) -> None:
        """Hand over a file that is written and closed."""
        with _handing_over:
            self._ensure_own_process("ready_file")
            self._ensure_wanted()
            index, output = self._files.found(path)
            number = self._first_file + index
            if number in self._files_over:
                raise TaskError(
                    f"ready_file({output.file!r}): task {self._function.name} has handed that file over already"
                )
            if number not in self._delivered:
                self._tell(number, self._files.finish_early(output))
            self._files_over.add(number)

    def is_over(self, file: int) -> bool:
        """Whether one of the call's ``outputs`` was handed over, now or by an earlier attempt."""
        return self._first_file + file in self._files_over or self._first_file + file in self._delivered

    def _tell(self, index: int, content: Slot) -> None:
        if self._channel is not None:
            self._channel.hand_over(Early(self._run.task, self._run.attempt, index, content))

    def _ensure_own_process(self, call: str) -> None:
        if _OfProcess.forks != self._forks:
            raise TaskError(
                f"{call}() was called in a process that task {self._function.name} started; return the value from "
                f"there, and hand it over in the task's own process"
            )

    def _ensure_wanted(self) -> None:
        if self._can_be_asked and self._channel is not None and self._channel.is_to_end(self._run.task):
            raise Stopped("it was cancelled")

    def run(self, generator: Generator[Any, None, Any]) -> Any:
        """Carry out a body that yields its outputs."""
        return exhaust(generator, lambda value: self.value(value, None))

    def rest(self, result: Any) -> list[Slot | None]:
        """The outputs that the body has not handed over, from what it returned."""
        name, count = self._function.name, self._function.returns
        over = self._over.union(index for index in self._delivered if index < count)
        parts = remaining(name, count, over, result)
        if count == STREAM:
            return [NONE]
        if parts is None:
            return [None] * count
        what = f"the value that task {name} returned"
        return [None if i in over else dump(part, self._segments, what) for i, part in enumerate(parts)]
