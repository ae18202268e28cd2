"""What an attempt goes through: its data come, it computes, it writes; each step takes the time of what it uses.

The executor starts and ends attempts; here is what happens in between. A *course* is a generator that begins a step and
yields until everything the attempt waits for has arrived; it returns why the attempt failed, if it did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial

from penstock.model.commands import Launch
from penstock.model.data import FileRef, Slot, Value
from penstock.model.events import Event, OutputReady
from penstock.model.tasks import Failure, FailureKind, Output
from penstock.sim.clock import Clock
from penstock.sim.devices import Device
from penstock.sim.files import Files, Stored
from penstock.sim.network import Links, Objects
from penstock.sim.transfers import Transfer, TransferDevice, Transfers
from penstock.sim.work import Costs, Work

__all__ = ["Attempt", "Course", "Courses", "Lane"]

Course = Generator[None, None, Failure | None]

_RESULT = Value(b"")


class Lane:
    """The attempts on a lane, and when its process is there."""

    __slots__ = ("attempts", "costs", "io", "ready")

    def __init__(self, costs: Costs, ready: float, *, io: bool) -> None:
        self.attempts: deque[Attempt] = deque()
        #: it is of the I/O pool
        self.io = io
        self.costs = costs
        #: infinite for an I/O executor that was not started yet
        self.ready = ready


class Attempt:
    """An attempt on a lane; the clock and transfers call it when it may go on."""

    __slots__ = (
        "_begin",
        "_end",
        "alive",
        "course",
        "early",
        "lane",
        "launch",
        "pending",
        "room",
        "started",
        "transfer",
        "work",
    )

    def __init__(
        self,
        launch: Launch,
        lane: Lane,
        begin: Callable[[Attempt], None],
        end: Callable[[Attempt, Failure | None], None],
    ) -> None:
        self.launch = launch
        self.lane = lane
        self._begin = begin
        self._end = end
        self.alive = True
        #: when its body began; negative before
        self.started = -1.0
        self.work: Work | None = None
        self.course: Course | None = None
        #: arrivals that it still waits for
        self.pending = 0
        self.transfer: Transfer | None = None
        #: what it has taken of devices, for files that do not count yet
        self.room: tuple[tuple[TransferDevice | None, int], ...] = ()
        #: return values that it has handed over
        self.early: set[int] = set()

    def begin(self) -> None:
        """Its worker takes it up."""
        if self.alive:
            self._begin(self)

    def computed(self) -> None:
        """It has computed, and does nothing else."""
        if self.alive:
            self._end(self, None)

    def arrived(self) -> None:
        """Something that it waits for is there."""
        if self.alive:
            self.pending -= 1
            if not self.pending:
                self.proceed()

    def proceed(self) -> None:
        """Go on until there is something to wait for, or to the end."""
        assert self.course is not None
        self.transfer = None
        try:
            next(self.course)
        except StopIteration as stop:
            self.course = None
            self._end(self, stop.value)


class Courses:
    """Makes the courses of attempts, from where data are and what connects it."""

    def __init__(
        self,
        clock: Clock[Callable[[], None]],
        transfers: Transfers,
        files: Files,
        links: Links,
        objects: Objects,
        fetched: Callable[[Launch, float, int], None],
        tell: Callable[[Lane, Event], None],
    ) -> None:
        self._clock = clock
        self._transfers = transfers
        self._files = files
        self._links = links
        self._objects = objects
        #: told of attempts whose data came from other nodes: how long that took, and how many bytes
        self._fetched = fetched
        #: passes news of a lane on
        self._tell = tell
        #: bytes that attempts have transferred, by node and layer; those under way not counted
        self.transferred: dict[tuple[str, str], float] = {}

    def course(self, attempt: Attempt, work: Work) -> Course:
        """All steps of an attempt. Objects come at the same time, files one after the other."""
        failure = yield from self._gather(attempt)
        if failure is not None:
            return failure
        for index, seconds in enumerate(work.ready):
            self._clock.at(self._clock.now + seconds, partial(self._hand_over, attempt, index))
        if work.seconds:
            attempt.pending = 1
            self._clock.at(self._clock.now + work.seconds, attempt.arrived)
            yield
        if work.traffic and attempt.launch.layer:
            self._pass(attempt, self._held_to(attempt.launch, self._layer_of(attempt)), work.traffic)
            yield
        return (yield from self._write(attempt, work))

    def _hand_over(self, attempt: Attempt, index: int) -> None:
        """A return value is there before the attempt ends."""
        if attempt.alive:
            launch = attempt.launch
            value = self._returned(attempt, index)
            attempt.early.add(index)
            self._tell(attempt.lane, OutputReady(launch.task, launch.attempt, index, value))

    def _returned(self, attempt: Attempt, index: int) -> Value:
        work, count = attempt.work, attempt.launch.call.returns
        assert work is not None
        if not work.makes:
            return _RESULT
        each, rest = divmod(work.makes, count)
        return self._objects.make(attempt.launch.node, each + (index < rest))

    def _gather(self, attempt: Attempt) -> Course:
        """What the attempt needs comes to its node."""
        launch, clock = attempt.launch, self._clock
        came, since = self._fetch(attempt), clock.now
        if came:
            yield
        seconds = clock.now - since
        updates = {output.slot: output for output in launch.call.outputs if output.file is not None and output.update}
        for index, slot in enumerate(launch.slots):
            if type(slot) is not FileRef:
                continue
            lost = self._files.lost_with(slot.path)
            if lost:
                return Failure(FailureKind.EXCEPTION, f"file {slot.path} was on node {lost}, which was lost")
            since = clock.now
            size, far = self._read(attempt, slot, updates.get(index))
            if size:
                yield
            if far:
                came += size
                seconds += clock.now - since
        if seconds:
            self._fetched(launch, seconds, came)
        return None

    def _write(self, attempt: Attempt, work: Work) -> Course:
        """What the attempt made goes to files, as far as there is room."""
        launch = attempt.launch
        for index, output in enumerate(launch.call.outputs):
            if output.file is None:
                continue
            size = self._final_size(launch, index, work)
            device = self._target(launch, output.file)
            fits = self._files.take_room(device, size)
            attempt.room += ((device, fits),)
            if device is not None and fits and work.sizes and work.sizes[index]:
                self._pass(attempt, self._held_to(launch, device), fits)
                yield
            if device is not None and fits < size:
                kind = FailureKind.STORAGE_FULL if launch.layer else FailureKind.EXCEPTION
                return Failure(kind, f"no space left on {device.name}: {fits} of {size} bytes could be written")
        return None

    def _final_size(self, launch: Launch, index: int, work: Work) -> int:
        """Bytes of an output; a file whose update has no size keeps the one it had, and was copied already."""
        output = launch.call.outputs[index]
        size = work.sizes[index] if work.sizes else 0
        if not size and output.update and output.slot >= 0:
            slot = launch.slots[output.slot]
            if type(slot) is FileRef:
                return self._files.found(launch.node, slot.path, slot.size).size
        return size

    def _fetch(self, attempt: Attempt) -> int:
        """Have objects brought to the attempt's node; the bytes of those that it waits for."""
        launch = attempt.launch
        attempt.pending = size = 0
        for slot in launch.slots:
            if type(slot) is Value:
                arrivals = self._objects.fetch(slot, launch.node, attempt.arrived)
                attempt.pending += arrivals
                size += slot.nbytes() if arrivals else 0
        return size

    def _read(self, attempt: Attempt, slot: FileRef, update: Output | None) -> tuple[int, bool]:
        """Read a file; one that is to be updated is copied meanwhile. The bytes to wait for, and if from elsewhere."""
        launch = attempt.launch
        found = self._files.found(launch.node, slot.path, slot.size)
        target = None if update is None or update.file is None else self._target(launch, update.file)
        devices = [device for device in (found.device, target) if device is not None]
        if not devices or not found.size:
            return 0, False
        owner = launch.node if found.device is None else self._files.owners.get(found.device, launch.node)
        way = self._links.between(owner, launch.node)
        self._pass(attempt, (*devices, *way), found.size, self._links.latency if way else 0.0)
        return found.size, bool(way)

    def _pass(self, attempt: Attempt, devices: tuple[TransferDevice, ...], size: float, latency: float = 0.0) -> None:
        attempt.pending = 1
        arrived = attempt.arrived
        if attempt.launch.layer and self._layer_of(attempt) in devices:
            arrived = partial(self._count, attempt, size)
        attempt.transfer = self._transfers.start(devices, size, arrived, latency)

    def _held_to(self, launch: Launch, device: TransferDevice) -> tuple[TransferDevice, ...]:
        """A device, and what holds the attempt down to its bandwidth there, if its layer is enforced."""
        if not launch.bandwidth or not self._files.is_enforced(launch.node, launch.layer):
            return (device,)
        return device, Device(f"what task {launch.task} holds", launch.bandwidth)

    def _layer_of(self, attempt: Attempt) -> TransferDevice:
        return self._files.device(attempt.launch.node, attempt.launch.layer)

    def _count(self, attempt: Attempt, size: float) -> None:
        """An attempt has transferred bytes on its layer, and goes on."""
        key = attempt.launch.node, attempt.launch.layer
        self.transferred[key] = self.transferred.get(key, 0.0) + size
        attempt.arrived()

    def _target(self, launch: Launch, file: str) -> TransferDevice | None:
        """Where an attempt writes: on its layer, if it has one; what is not redirected has its home there."""
        if launch.layer:
            return self._files.device(launch.node, launch.layer)
        return self._files.home(launch.node, file)

    def outputs(self, attempt: Attempt) -> list[Slot | None]:
        """What an attempt made, which counts from now on."""
        launch, work = attempt.launch, attempt.work
        assert work is not None
        call = launch.call
        made: list[Slot | None] = [_RESULT] * call.returns
        if work.makes or attempt.early:
            for index in range(call.returns):
                made[index] = None if index in attempt.early else self._returned(attempt, index)
        for index, output in enumerate(call.outputs):
            size = self._final_size(launch, index, work)
            if output.file is None:
                made.append(self._objects.make(launch.node, size))
            else:
                made.append(self._finish_file(launch, index, output.file, size, output.update))
        attempt.room = ()
        return made

    def _finish_file(self, launch: Launch, index: int, file: str, size: int, update: bool) -> FileRef:
        if index in launch.redirected:
            path = self._files.path_on(launch.node, launch.layer, launch.task, file)
        elif launch.publish and not update:
            path = file
        else:
            path = f"{file}.waits.{launch.task}"
        self._files.put(path, Stored(launch.node, self._target(launch, file), size))
        return FileRef(path, size)

    def break_off(self, attempt: Attempt) -> None:
        """An attempt ends without delivering: what it was using and had written is given back."""
        attempt.alive = False
        attempt.course = None
        if attempt.transfer is not None:
            if attempt.launch.layer and attempt.transfer.pending:
                self._count(attempt, self._layer_of(attempt).transferred(self._clock.now, attempt.transfer))
            self._transfers.cancel(attempt.transfer)
        for device, size in attempt.room:
            self._files.give_room(device, size)
        attempt.room = ()
