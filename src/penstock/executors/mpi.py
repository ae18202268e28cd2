"""The keeper of an MPI world: a worker process whose tasks are carried out by ranks that it has started.

    node executor ══ claims, messages ══ keeper ══ a socket for each ══ ranks (mpi_worker.py)
                                           └ runner: mpiexec or another

Like any worker it is forked by the guardian, so all that it starts ends with it. It starts the runner, gives every
rank the attempt, makes one outcome of theirs, and then either waits for the next task or says that its world is spent.
If a rank does not deliver, the others are killed: they may be waiting for it.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Iterable

from msgspec.structs import replace

from penstock.data.gathered import gathered
from penstock.data.segments import Segments
from penstock.data.serializer import NONE
from penstock.executors.execution import Function
from penstock.executors.mpi_early import HandedOver
from penstock.executors.mpi_ranks import RankLost, Ranks, Refused, WorldFailed
from penstock.executors.mpi_wire import RankDone, RankRun, Welcome
from penstock.executors.tracebacks import describe
from penstock.executors.wire import (
    CLAIM,
    Define,
    Delivering,
    Done,
    Early,
    Error,
    Logged,
    RankFailed,
    Ready,
    Run,
    Setup,
    Spent,
    WorldStarted,
    frame,
    frames_down,
    sending_claimed,
)
from penstock.executors.written_files import WrittenFiles, is_for_want_of_room
from penstock.model.data import Slot, Value, segments_of
from penstock.model.outside import Outside
from penstock.model.tasks import Failure, FailureKind
from penstock.model.worlds import World

__all__ = ["keep_world"]

_RECEIVE = 1 << 18


def keep_world(setup: Setup, world: World, segments: Segments, tasks: socket.socket, messages: socket.socket) -> None:
    """Carry out tasks by the ranks of a world until the other side closes, or the world is spent."""
    keeper = Keeper(setup, world, segments, tasks, messages)
    try:
        keeper.serve()
    finally:
        keeper.close()


class Keeper:
    """Keeps one world."""

    def __init__(
        self, setup: Setup, world: World, segments: Segments, tasks: socket.socket, messages: socket.socket
    ) -> None:
        self._world = world
        self._segments = segments
        self._layers = {layer.name: layer for layer in setup.layers}
        self._tasks = tasks
        self._messages = messages
        self._frames = frames_down()
        self._runs: list[Run] = []
        self._outside: Outside | None = None
        self._functions: dict[int, Define] = {}
        path = [os.fsencode(str(entry)) for entry in sys.path]
        welcome = Welcome(setup, segments.writer, path, sys.argv, os.environ.get("PYTHONPATH"))
        address = os.path.join(segments.memory_dir, f"world{segments.writer}")
        self._ranks = Ranks(world, address, welcome, self._forward)

    def serve(self) -> None:
        self._messages.sendall(frame(Ready()))
        self._ranks.start()
        while (run := self._next()) is not None:
            if not self._attempt(run):
                return

    def close(self) -> None:
        self._ranks.end()

    # --- tasks --------------------------------------------------------------------------------------------------

    def _next(self) -> Run | None:
        """The next attempt; None if the other side is gone, or the world while nothing was asked of it."""
        watched = select.poll()
        watched.register(self._tasks, select.POLLIN)
        for descriptor in self._ranks.descriptors():
            watched.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in watched.poll()]
            if self._tasks.fileno() in ready:
                data = self._tasks.recv(CLAIM)
                return self._run(sending_claimed(data)) if data else None
            for descriptor in ready:
                watched.unregister(descriptor)
                if self._ranks.is_of_running_world(descriptor):
                    return None

    def _run(self, sending: int) -> Run | None:
        while True:
            for run in self._runs:
                if run.sending == sending:
                    self._runs.clear()
                    return run
            data = self._messages.recv(_RECEIVE)
            if not data:
                return None
            for message in self._frames.feed(data):
                if isinstance(message, Run):
                    self._runs.append(message)
                elif isinstance(message, Outside):
                    self._outside = message  # a world is given one task at a time, so the last is meant
                elif isinstance(message, Define):
                    self._functions[message.function] = message

    def _attempt(self, run: Run) -> bool:
        """Carry out an attempt and say how it ended; whether the world can take another."""
        declared = self._functions[run.function]
        function = Function(_nothing, declared.name, declared.returns, declared.parameters)
        files = WrittenFiles(run, function, self._segments, self._layers)
        started = time.perf_counter()
        try:
            over = HandedOver(run, declared, files, self._ranks.pids, self._forward)
            done, spoilt = self._together(run, declared, files.place(), over)
            files.ensure_left_alone()
            outputs = self._outputs(declared, done, over)
            outputs += [None if over.is_over(i) else files.finish(one) for i, one in enumerate(run.outputs)]
            files.deliver(outputs, started, self)
            self._ranks.delivered()
            outcome = Done(run.task, run.attempt, outputs, max(one.seconds for one in done))
        except BaseException as error:
            self._fail(run, error, declared, files, time.perf_counter() - started)
            return False
        finally:
            files.clear()
        self._messages.sendall((frame(Spent(spoilt)) if spoilt else b"") + frame(outcome))
        return not spoilt

    def _forward(self, message: Early | Logged) -> None:
        self._messages.sendall(frame(message))

    def announce(self, message: Delivering) -> None:
        """Say, before this returns, that an attempt has begun to deliver."""
        self._messages.sendall(frame(message))

    def _together(
        self, run: Run, declared: Define, files: dict[int, str], over: HandedOver
    ) -> tuple[list[RankDone], str]:
        """Have all ranks carry out an attempt; what each delivers, and why the world takes no other, if so."""
        for last_try in (False, True):
            seconds = self._ranks.assemble()
            if seconds is not None:
                self._messages.sendall(frame(WorldStarted(seconds)))
            try:
                done = self._ranks.run(declared, RankRun(run, files, self._outside), over.take)
            except Refused as refused:
                if last_try:
                    raise WorldFailed(f"its ranks refuse it: {refused}") from None
                self._ranks.end()
                self._ranks.start()
                over.begin_again()
                continue
            return done, next((one.spoilt for one in done if one.spoilt), "")
        raise AssertionError

    def _outputs(self, declared: Define, done: list[RankDone], over: HandedOver) -> list[Slot | None]:
        values = [_value(one) for one in done]
        if declared.returns in (-1, 1):
            return [gathered(values)]
        if declared.returns == 0:
            return [_nothing_of(declared, values)]
        if over.any_value():
            return over.rest(values, lambda value: self._remove(segments_of(value)))
        if declared.returns != len(values):
            raise WorldFailed(
                f"task {declared.name} declares returns={declared.returns} but its {len(values)} ranks return a value "
                f"each; declare returns=list or returns={len(values)}, or have the ranks hand over the outputs by "
                f"ready_value(obj, index)",
                FailureKind.RETURNS,
            )
        return list(values)

    def _fail(self, run: Run, error: BaseException, declared: Define, files: WrittenFiles, seconds: float) -> None:
        """End the world, remove what it has made, and say what was wrong."""
        self._ranks.end()
        files.withdraw()
        files.clear()  # before anybody hears of the failure
        self._remove(self._ranks.undelivered(self._segments))
        out = b""
        if isinstance(error, RankLost):
            out += frame(RankFailed(run.task, run.attempt, error.rank, error.failure.message))
            failure = _of_rank(error, self._world.processes)
        elif isinstance(error, WorldFailed):
            failure = Failure(error.kind, str(error))
        else:
            failure = describe(error, declared.name)
        if run.layer and is_for_want_of_room(error):
            failure = replace(failure, kind=FailureKind.STORAGE_FULL)
        self._messages.sendall(
            out + frame(Spent(failure.message)) + frame(Error(run.task, run.attempt, failure, seconds))
        )

    def _remove(self, segments: Iterable[int]) -> None:
        for segment in segments:
            self._segments.remove(segment)


def _nothing() -> None:
    """Stands for the body of a task, which only ranks call."""


def _nothing_of(declared: Define, values: list[Value]) -> Value:
    """The result of a task that says it has none."""
    for rank, value in enumerate(values):
        if value != NONE:
            message = f"task {declared.name} declares returns=0 but returned a value"
            raise RankLost(rank, Failure(FailureKind.RETURNS, message))
    return NONE


def _value(done: RankDone) -> Value:
    value = done.outputs[0]
    assert type(value) is Value
    return value


def _of_rank(lost: RankLost, processes: int) -> Failure:
    return replace(lost.failure, message=f"rank {lost.rank} of {processes}: {lost.failure.message}")
