"""The ranks of one world as their keeper sees them: a socket each, what they were told, and what they answered."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Callable

from penstock.data.segments import Segments
from penstock.executors.mpi_files import remove_files, shared_files_of
from penstock.executors.mpi_progress import Watched, progress_file
from penstock.executors.mpi_runner import Runner, short
from penstock.executors.mpi_wire import (
    FromRank,
    Hello,
    Leaving,
    RankDone,
    RankError,
    RankRun,
    Unfit,
    Welcome,
    frames_from_rank,
)
from penstock.executors.wire import Define, Early, Logged, frame
from penstock.model.data import SegmentId, Slot, segments_of
from penstock.model.tasks import Failure, FailureKind
from penstock.model.worlds import World

__all__ = ["RankLost", "Ranks", "Refused", "WorldFailed"]

#: seconds in which all ranks must have reported
_START = 60.0
#: seconds between two looks at ranks that may wait for others in vain, and for how long they must have
_LOOK = 0.5
_STUCK = 3.0
_RECEIVE = 1 << 18


class RankLost(Exception):
    """A rank did not deliver."""

    def __init__(self, rank: int, failure: Failure) -> None:
        super().__init__(failure.message)
        self.rank = rank
        self.failure = failure


class WorldFailed(Exception):
    """The ranks as a whole did not deliver."""

    def __init__(self, message: str, kind: FailureKind = FailureKind.EXCEPTION) -> None:
        super().__init__(message)
        self.kind = kind


class Refused(Exception):
    """A rank is not fit for another task: of what the last one left, it would notice something."""


class _Member:
    """One process of the world."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = frames_from_rank()
        self.hello: Hello | None = None
        self.answer: RankDone | None = None
        #: what it is seen to do
        self.watched: Watched | None = None


class Ranks:
    """Starts the ranks of a world, speaks to them, and ends them."""

    def __init__(self, world: World, address: str, welcome: Welcome, take_log: Callable[[Logged], None]) -> None:
        self._world = world
        self._take_log = take_log
        self._address = address
        self._welcome = welcome
        self._runner: Runner | None = None
        #: tells what is readable in the order in which it came to be: of ranks that are gone, who was the first
        self._watched = select.epoll()
        self._listener: socket.socket | None = None
        self._by_descriptor: dict[int, _Member] = {}
        #: by rank, once all are there
        self._ranks: list[_Member] = []
        self._defined: set[int] = set()
        self._started = 0.0
        #: by rank, the last segment of which the program was told
        self._last_segment = [0] * world.processes
        #: told of what ranks hand over in the attempt that runs
        self._take_early: Callable[[int, Early], None] = lambda rank, message: None

    def descriptors(self) -> list[int]:
        """What is readable when somebody of the world has something to say, or is gone."""
        listening = [] if self._listener is None else [self._listener.fileno()]
        # Ranks before the runner, which ends when one of them has: who began is to be heard first.
        return [*self._by_descriptor, *listening, *([] if self._runner is None else [self._runner.process])]

    def is_of_running_world(self, descriptor: int) -> bool:
        """Whether what is readable there between tasks means that the world is gone."""
        return bool(self._ranks) and descriptor in self.descriptors()

    # --- beginning and end --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Have the processes started; they report later."""
        self._started = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._address)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short(self._address) as address:
            self._listener.bind(address)
        self._listener.listen(self._world.processes)
        self._watched.register(self._listener, select.EPOLLIN)
        with contextlib.suppress(OSError):  # a runner that cannot be started is told of with the first task
            self._runner = Runner(self._world, self._address)
            self._watched.register(self._runner.process, select.EPOLLIN)

    def assemble(self) -> float | None:
        """Wait until all ranks are there; seconds since the start, or None if they were there already."""
        if self._ranks:
            return None
        if self._runner is None:
            raise WorldFailed(f"its runner {self._world.runner!r} cannot be started; does it exist, is it a program?")
        deadline = self._started + _START
        while any(member.hello is None for member in self._members()) or not self._complete():
            if not self._hear(max(0.0, deadline - time.monotonic())):
                raise WorldFailed(
                    f"of its {self._world.processes} processes, {len(self._by_descriptor)} have reported within "
                    f"{_START:g} s{self._said()}"
                )
        self._check_sizes()
        self._ranks = sorted(self._members(), key=lambda member: member.hello.rank)  # type: ignore[union-attr]
        assert self._listener is not None
        self._listener.close()
        self._listener = None
        os.unlink(self._address)
        # All are in, so the files by which they share memory need no name any more: killed ranks would leave them.
        remove_files(shared_files_of(self.pids()))
        return time.monotonic() - self._started

    def end(self) -> None:
        """Kill every process of the world."""
        left = shared_files_of(self.pids())
        if self._runner is not None:
            left |= self._runner.end()
            self._runner = None
        remove_files([*left, self._address])
        for member in self._members():
            member.connection.close()
            if member.watched is not None:
                member.watched.remove()
        self._by_descriptor.clear()
        self._ranks, self._defined = [], set()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _members(self) -> list[_Member]:
        return list(self._by_descriptor.values())

    def pids(self) -> list[int]:
        """Processes of those that have reported; once all have, by rank."""
        return [member.hello.pid for member in self._ranks or self._members() if member.hello is not None]

    def _complete(self) -> bool:
        return len(self._by_descriptor) == self._world.processes

    def _check_sizes(self) -> None:
        """Refuse processes that are each a world of their own: their MPI is not the one of their runner."""
        hello = self._members()[0].hello
        assert hello is not None
        if hello.size != self._world.processes:
            raise WorldFailed(
                f"runner {self._world.runner!r} started {self._world.processes} processes, but mpi4py here uses "
                f"{hello.library}, which gave them worlds of size {hello.size}: the two do not belong together. Name "
                f"the runner of that library in @mpi(runner=...)"
            )

    def _said(self) -> str:
        printed = "" if self._runner is None else self._runner.printed()
        return f"; {self._world.runner} said:\n{printed}" if printed else ""

    # --- attempts -----------------------------------------------------------------------------------------------

    def run(self, declared: Define, message: RankRun, take_early: Callable[[int, Early], None]) -> list[RankDone]:
        """Have every rank carry out an attempt; what each delivers. Outputs handed over before: to ``take_early``."""
        self._take_early = take_early
        data = frame(message)
        if declared.function not in self._defined:
            self._defined.add(declared.function)
            data = frame(declared) + data
        for rank, member in enumerate(self._ranks):
            member.answer = None
            try:
                member.connection.sendall(data)
            except ConnectionError:
                raise self._death(rank) from None
        next_look = 0.0
        while any(member.answer is None for member in self._ranks):
            returned = any(member.answer is not None for member in self._ranks)
            self._hear(_LOOK if returned else None)
            if returned and time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK
                self._look()
        return [member.answer for member in self._ranks if member.answer is not None]

    def delivered(self) -> None:
        """What the ranks last answered is the program's now."""
        for rank, member in enumerate(self._ranks):
            for output in () if member.answer is None else member.answer.outputs:
                self._is_delivered(rank, output)

    def _is_delivered(self, rank: int, output: Slot | None) -> None:
        self._last_segment[rank] = max([self._last_segment[rank], *segments_of(output)])

    def undelivered(self, segments: Segments) -> list[SegmentId]:
        """Segments of ranks that are of no use."""
        first = self._welcome.writer + 1
        return [
            segment
            for rank, last in enumerate(self._last_segment)
            for segment in segments.made_by(first + rank)
            if segment > last
        ]

    def _look(self) -> None:
        """Some ranks have returned: if all others wait in MPI, and have for a while, nobody will ever answer them."""
        late = [(rank, member.watched) for rank, member in enumerate(self._ranks) if member.answer is None]
        seen = [("", 0.0) if watched is None else watched.waits() for _, watched in late]
        if not late or any(seconds < _STUCK for _, seconds in seen):
            return
        rank, watched = late[0]
        returned = [str(number) for number, member in enumerate(self._ranks) if member.answer is not None]
        message = (
            f"it waits in {seen[0][0]}(), but {'ranks' if len(returned) > 1 else 'rank'} {', '.join(returned)} "
            f"returned already, and all others wait too"
        )
        stack = "" if watched is None else watched.stack()
        raise RankLost(rank, Failure(FailureKind.EXCEPTION, message, traceback=stack))

    # --- listening ----------------------------------------------------------------------------------------------

    def _hear(self, timeout: float | None) -> bool:
        """Take in what members say, or wait for it; False if the time is up."""
        ready = self._watched.poll(timeout)
        for descriptor, _ in ready:
            if descriptor in self._by_descriptor:
                self._listen_to(self._by_descriptor[descriptor])
            elif self._listener is not None and descriptor == self._listener.fileno():
                self._admit()
            else:
                self._runner_ended()
        return bool(ready)

    def _admit(self) -> None:
        assert self._listener is not None
        connection, _ = self._listener.accept()
        self._by_descriptor[connection.fileno()] = _Member(connection)
        # Each event is told once: a rank that is told of again would keep its place before those that went first.
        self._watched.register(connection, select.EPOLLIN | select.EPOLLET)
        sys.stdout.flush()
        socket.send_fds(connection, [frame(self._welcome)], [1, 2])

    def _listen_to(self, member: _Member) -> None:
        while True:
            try:
                data = member.connection.recv(_RECEIVE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                if not self._ranks:
                    self._runner_ended()
                raise self._death(self._ranks.index(member))
            for message in member.frames.feed(data):
                self._take(member, message)

    def _take(self, member: _Member, message: FromRank) -> None:
        match message:
            case Hello():
                member.hello = message
                folder, writer = self._welcome.setup.memory_dir, self._welcome.writer
                member.watched = Watched(progress_file(folder, writer, message.rank), message.pid)
            case Early():
                rank = self._ranks.index(member)
                self._take_early(rank, message)
                self._is_delivered(rank, message.value)
            case Logged():
                self._take_log(message)
            case RankDone():
                member.answer = message
            case RankError():
                raise RankLost(self._ranks.index(member), message.failure)
            case Leaving():
                failure = Failure(FailureKind.DIED, message.words, traceback=message.traceback)
                raise RankLost(self._ranks.index(member), failure)
            case Unfit():
                raise Refused(message.reason)

    def _runner_ended(self) -> None:
        """The runner is gone: before all ranks were there, or under them."""
        assert self._runner is not None
        status = self._runner.status(1.0)
        when = "under its ranks" if self._ranks else "before its ranks had reported"
        kind = FailureKind.DIED if self._ranks else FailureKind.EXCEPTION
        hint = "" if self._ranks else ". The MPI that mpi4py uses must be the one of this runner"
        raise WorldFailed(f"{self._world.runner} ended with status {status} {when}{hint}{self._said()}", kind)

    def _death(self, rank: int) -> RankLost:
        """A rank is gone, as the first; the runner kills the others then."""
        assert self._runner is not None
        words = self._runner.words_of_death(self.pids()[rank])
        return RankLost(rank, Failure(FailureKind.DIED, f"its process ended in the middle of the task: {words}"))
