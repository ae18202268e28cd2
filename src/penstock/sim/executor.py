"""Carries out the engine's commands on virtual time: lanes, transfers, and what is asked of file systems.

    command ─▶ Executor.carry_out ─▶ clock, devices ─▶ post(event)

An attempt reads its files, computes, then writes; each is a *stage*, on a device or on the clock alone. The head of a
lane runs and the others wait behind it, as with real workers. Whatever takes no time is answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random

from penstock.model import events
from penstock.model.commands import Command, Discard, Kill, Launch, Move, Publish, Recall, Warm
from penstock.model.data import FileRef, Slot, Value
from penstock.model.resources import Node
from penstock.model.tasks import Failure, FailureKind
from penstock.sim.clock import Clock
from penstock.sim.devices import Device
from penstock.sim.files import Files, Stored
from penstock.sim.workloads import Workload

__all__ = ["Executor"]

_RESULT = Value(b"")


class _Attempt:
    """An attempt on a lane; also the stream that it has on a device."""

    __slots__ = ("alive", "device", "executor", "launch", "stages", "started")

    def __init__(self, executor: Executor, launch: Launch) -> None:
        self.executor = executor
        self.launch = launch
        self.alive = True
        self.started = 0.0
        #: what is still to be done, the next at the end: seconds, or bytes on a device
        self.stages: list[tuple[_Device | None, float]] = []
        #: where it transfers now
        self.device: _Device | None = None

    def proceed(self) -> None:
        """A stage is over."""
        if self.alive:
            self.device = None
            self.executor.next_stage(self)


class _Copy:
    """A move of a file, which takes the time of the slower one of two devices."""

    __slots__ = ("_done", "_pending")

    def __init__(self, pending: int, done: Callable[[], None]) -> None:
        self._pending = pending
        self._done = done

    def proceed(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._done()


_Stream = _Attempt | _Copy
_Device = Device[_Stream]


class Executor:
    """All nodes of a simulation."""

    def __init__(
        self,
        nodes: Iterable[Node],
        workload: Workload,
        clock: Clock[Callable[[], None]],
        post: Callable[[events.Event], None],
        *,
        seed: int = 0,
        stream_bandwidth: Mapping[str, float] | None = None,
    ) -> None:
        nodes = list(nodes)
        self.files: Files[_Stream] = Files(nodes, stream_bandwidth or {})
        #: computing units times seconds that attempts held them, by node
        self.busy = dict.fromkeys((node.name for node in nodes), 0.0)
        self._clock = clock
        self._post = post
        self._seed = seed
        self._jobs = workload.jobs
        self._seconds = workload.durations(seed)
        lanes = {node.name: range(node.cpus + node.io_executors) for node in nodes}
        self._lanes: dict[str, list[deque[_Attempt]]] = {name: [deque() for _ in all_] for name, all_ in lanes.items()}
        #: devices whose next completion is to be computed anew
        self._changed: dict[_Device, None] = {}

    def carry_out(self, command: Command) -> None:
        """Do what the engine asks, or begin it."""
        match command:
            case Launch():
                self._launch(command)
            case Recall(node, lane):
                self._recall(node, lane)
            case Kill(node, lane):
                self._kill(node, lane)
            case Warm(node):
                self._post(events.Warmed(node))
            case Publish():
                self._publish(command)
            case Move():
                self._move(command)
            case Discard(path, tell):
                self.files.remove(path)
                if tell:
                    self._post(events.Discarded(path))
            case _:
                pass  # nobody waits for values here, and there is no store to free

    def plan(self) -> None:
        """Note when the next stream of each device ends; to be called before time goes on."""
        if not self._changed:
            return
        for device in self._changed:
            time = device.next_completion()
            if time is not None:
                due = partial(self._device_due, device, device.revision)
                self._clock.at(max(time, self._clock.now), due)
        self._changed.clear()

    def _device_due(self, device: _Device, revision: int) -> None:
        if device.revision == revision:
            self._changed[device] = None
            for stream in device.complete(self._clock.now):
                stream.proceed()

    def _transfer(self, device: _Device, stream: _Stream, size: float) -> None:
        device.start(self._clock.now, stream, size)
        self._changed[device] = None

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _launch(self, launch: Launch) -> None:
        lane = self._lanes[launch.node][launch.lane]
        attempt = _Attempt(self, launch)
        lane.append(attempt)
        if len(lane) == 1:
            self._begin(attempt)

    def _begin(self, attempt: _Attempt) -> None:
        attempt.started = self._clock.now
        self._set_stages(attempt)
        self.next_stage(attempt)

    def _set_stages(self, attempt: _Attempt) -> None:
        """What an attempt will do, the last first; what takes no time is left out."""
        launch, stages = attempt.launch, attempt.stages
        call = launch.call
        job = self._jobs[call.task - 1]
        for output, size in zip(reversed(call.outputs), reversed(job.sizes), strict=True):
            assert output.file is not None
            self._add_stage(stages, self._device_of(launch, output.file), size)
        if job.traffic and launch.layer:
            self._add_stage(stages, self.files.device(launch.node, launch.layer), job.traffic)
        seconds = self._seconds[call.task - 1]
        if seconds:
            stages.append((None, seconds))
        for slot in reversed(launch.slots):
            if isinstance(slot, FileRef):
                found = self.files.found(launch.node, slot.path, slot.size)
                self._add_stage(stages, found.device, found.size)

    @staticmethod
    def _add_stage(stages: list[tuple[_Device | None, float]], device: _Device | None, size: float) -> None:
        if device is not None and size:
            stages.append((device, size))

    def _device_of(self, launch: Launch, file: str) -> _Device | None:
        """Where an attempt writes: on its layer, if it has one; what is not redirected has its home there."""
        if launch.layer:
            return self.files.device(launch.node, launch.layer)
        return self.files.home(launch.node, file)

    def next_stage(self, attempt: _Attempt) -> None:
        """Begin the next stage of an attempt, or end it."""
        if not attempt.stages:
            self._end(attempt)
            return
        device, amount = attempt.stages.pop()
        if device is None:
            self._clock.at(self._clock.now + amount, attempt.proceed)
        else:
            attempt.device = device
            self._transfer(device, attempt, amount)

    def _end(self, attempt: _Attempt) -> None:
        launch = attempt.launch
        lane = self._lanes[launch.node][launch.lane]
        lane.popleft()
        seconds = self._leave(attempt)
        if self._fails(launch):
            failure = Failure(FailureKind.EXCEPTION, "it failed, as it was to do now and then")
            self._post(events.Failed(launch.task, launch.attempt, failure, seconds))
        else:
            self._post(events.Finished(launch.task, launch.attempt, self._outputs(launch), seconds))
        if lane:
            self._begin(lane[0])

    def _leave(self, attempt: _Attempt) -> float:
        """An attempt is over; how long it ran."""
        launch = attempt.launch
        attempt.alive = False
        seconds = self._clock.now - attempt.started
        self.busy[launch.node] += launch.call.spec.requirements.cpus * seconds
        return seconds

    def _fails(self, launch: Launch) -> bool:
        """By chance, but the same whatever happened before: an attempt fails under every scheduler or under none."""
        probability = self._jobs[launch.task - 1].fails
        return probability > 0 and Random(f"{self._seed}/{launch.task}/{launch.attempt}").random() < probability

    def _outputs(self, launch: Launch) -> list[Slot | None]:
        call = launch.call
        made: list[Slot | None] = [_RESULT] * call.returns
        if not call.outputs:
            return made
        for index, (output, size) in enumerate(zip(call.outputs, self._jobs[launch.task - 1].sizes, strict=True)):
            assert output.file is not None
            if index in launch.redirected:
                path = self.files.path_on(launch.node, launch.layer, launch.task, output.file)
            else:
                path = output.file if launch.publish else f"{output.file}.waits.{launch.task}"
            self.files.put(path, Stored(launch.node, self._device_of(launch, output.file), size))
            made.append(FileRef(path, size))
        return made

    def _recall(self, node: str, lane: int) -> None:
        attempts = self._lanes[node][lane]
        waiting = tuple(attempt.launch.task for attempt in list(attempts)[1:])
        while len(attempts) > 1:
            attempts.pop()
        self._post(events.Recalled(node, lane, waiting))

    def _kill(self, node: str, lane: int) -> None:
        """The head ends with its process; what was behind it is given back first."""
        self._recall(node, lane)
        attempts = self._lanes[node][lane]
        if attempts:
            attempt = attempts.popleft()
            self._leave(attempt)
            if attempt.device is not None:
                attempt.device.cancel(self._clock.now, attempt)
                self._changed[attempt.device] = None
        self._post(events.WorkerLost(node, lane, "its process was killed"))

    # --- files --------------------------------------------------------------------------------------------------------

    def _publish(self, publish: Publish) -> None:
        self.files.put(publish.target, self.files.stored(publish.source))
        self._post(events.Published(publish.version, publish.target))

    def _move(self, move: Move) -> None:
        old = self.files.stored(move.source)
        if move.layer:
            goal: _Device | None = self.files.device(old.node, move.layer)
            path = self.files.path_on(old.node, move.layer, -move.version, move.name)
        else:
            goal, path = self.files.home(old.node, move.name), move.name
        devices = [device for device in dict.fromkeys((old.device, goal)) if device is not None]

        def arrived() -> None:
            self.files.put(path, Stored(old.node, goal, old.size))
            if path != move.name:
                self.files.put(move.name, Stored(old.node, goal, old.size))
            self._post(events.Moved(move.version, path))

        if not devices or not old.size:
            arrived()
            return
        copy = _Copy(len(devices), arrived)
        for device in devices:
            self._transfer(device, copy, old.size)
