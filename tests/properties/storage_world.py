"""A world with storage: layers with bandwidth and room, I/O executors, full disks.

Beyond what worlds with files judge: sums of bandwidth and room, tasks that could start, and who is refused for want
of room.
"""

from __future__ import annotations

from collections import Counter, deque

from tests.properties.engine_model import ModelTask
from tests.properties.engine_world import Attempt, WorldLane
from tests.properties.storage_files import FileWorld

from penstock.engine.crowding import GRACE
from penstock.engine.engine import Engine
from penstock.engine.state import IOTaskRecord, TaskRecord
from penstock.model import events
from penstock.model.commands import Command, Discard, Launch, Publish, Sample, Warm
from penstock.model.data import FileRef, Slot
from penstock.model.resources import Node, Requirements, StorageLayer
from penstock.model.tasks import Failure, FailureKind, TaskState
from penstock.tuning.epochs import epoch_size


class StorageWorld(FileWorld):
    def __init__(self, engines: list[Engine], scheduler: str) -> None:
        super().__init__(engines)
        self.scheduler = scheduler
        #: nodes whose executors are being started
        self.warming: deque[str] = deque()
        #: devices whose bytes are to be told, by node and layer
        self.asked: deque[tuple[str, str]] = deque()
        #: an event was not answered rightly: there is nothing to be learned from what comes after it
        self.broken = False
        #: when layers said that they are full
        self.said_full: dict[str, float] = {}
        #: mounts of those from which nothing was removed since: who meets a full layer late need not ask them again
        self.doubted: set[str] = set()
        #: tasks that met such a layer, and the one that has just met one
        self.told_full: set[int] = set()
        self._told_now: int | None = None
        #: layers that ready tasks are bound to, and since when tasks have been ready
        self._anchors: dict[int, str] = {}
        self._ready_since: dict[int, float] = {}

    # --- telling the engines ----------------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        self.broken = True
        super().tell(event)
        self._judge_sums()
        self._judge_names()
        self._judge_program()
        self.broken = False

    def _before_commands(self) -> None:
        first, *others = [engine.state for engine in self.engines]
        for other in others:
            assert other.reports == first.reports
            assert other.notes == first.notes
            other.reports.clear()
            other.notes.clear()
        refused = [
            self.model.tasks[report.task]
            for report in first.reports
            if report.final
            and report.failure.kind is FailureKind.STORAGE_FULL
            and len(report.failure.path) == 1
            # Else it found its layer full, and the model knows that it does not try again.
            and report.task in self.model.tasks
        ]
        if refused:
            self._refuse(refused)
        for note in first.notes:
            if isinstance(note, events.EpochEnded) and not note.partial:
                node = self.all_nodes[note.node]
                [layer] = [layer for layer in node.storage if layer.name == note.layer]
                assert note.tasks == epoch_size(note.constraint, layer.bandwidth, node.io_executors)
        first.reports.clear()
        first.notes.clear()

    def _refuse(self, tasks: list[ModelTask]) -> None:
        """Tasks may be refused if some have waited long for room, while nothing was done that could make any."""
        # Who was told "full" itself makes no room.
        assert {attempt.task for attempt in self.attempts()} <= self.told_full
        assert not self.moves
        assert not any(isinstance(errand, Discard) and errand.tell for errand in self.errands)
        waiting_since = min(self._ready_since[task.call.task] for task in tasks)
        assert self.now >= max(self.room_made, waiting_since) + GRACE
        for task in tasks:
            need = task.call.spec.requirements
            assert need.layered, f"{need} was refused for want of room"
            for node in self.nodes.values():
                free = {layer.mount for layer in self._free_layers(node, need, self._anchors[task.call.task])}
                if task.call.task == self._told_now:
                    free -= self.doubted
                assert not free, f"{need} was refused, but there is room"
            # Who ignores failures ignores that there is no room, as if it had been tried.
            self.model.end(task, FailureKind.STORAGE_FULL, ran=True)

    def _carry_out(self, command: Command) -> events.Event | None:
        if type(command) is Warm:
            assert 1 <= command.executors <= self.nodes[command.node].io_executors
            self.warming.append(command.node)
            return None
        if type(command) is Sample:
            assert command.layer in {layer.name for layer in self.nodes[command.node].storage}
            assert (command.node, command.layer) not in self.asked
            self.asked.append((command.node, command.layer))
            return None
        return super()._carry_out(command)

    def _launch(self, launch: Launch) -> None:
        assert not self.draining
        super()._launch(launch)
        self._note_ready(self.engine.state.tasks[launch.task])
        lane = self.lanes[launch.node, launch.lane]
        need = launch.call.spec.requirements
        assert need.io == (launch.lane >= self.nodes[launch.node].cpus)
        assert bool(launch.layer) == need.layered
        if need.layered and need.auto is None:
            assert launch.bandwidth == need.bandwidth
        if lane.attempts[0].launch is not launch:
            assert launch.layer == lane.attempts[0].launch.layer
        for index, output in enumerate(launch.call.outputs):
            if index in launch.redirected:
                assert output.file is not None and launch.layer

    def warm(self) -> None:
        self.tell(events.Warmed(self.warming.popleft()))

    def tell_bytes(self, per_second: float | None) -> None:
        """How far attempts are, if that can be told."""
        node, layer = self.asked.popleft()
        self.tell(events.Sampled(node, layer, None if per_second is None else per_second * self.now))

    def output(self, attempt: Attempt, index: int, *, large: bool) -> Slot:
        call = attempt.launch.call
        output = call.outputs[index - call.returns] if index >= call.returns else None
        if output is None or output.file is None:
            return super().output(attempt, index, large=large)
        launch = attempt.launch
        token = f"{attempt.task}.{launch.attempt}.{index}"
        version = call.writes[index]
        self.written_on[version] = launch.node
        # No more than was declared, so that room can be judged.
        size = min(4, call.spec.requirements.capacity or 3)
        layered = size if launch.layer else None
        if launch.layer:
            self.room_made = self.now
        if index - call.returns in launch.redirected:
            path = self._path_on(launch.node, launch.layer, attempt.task, output.file)
        elif launch.publish and not output.update:
            path = output.file
        else:
            path = f"{output.file}.waits.{attempt.task}"
        self.disk.put(path, token, layered)
        return FileRef(path, size)

    # --- judging ----------------------------------------------------------------------------------------------------

    def _judge_sums(self) -> None:
        """What attempts hold of devices, and what files fill, as this world sees it."""
        if self.draining:
            return  # the processes are gone, and the engine was not told of each
        bandwidth: Counter[str] = Counter()
        reserved: Counter[str] = Counter()
        for lane in self.lanes.values():
            for place, attempt in enumerate(lane.attempts):
                need = attempt.launch.call.spec.requirements
                assert not need.io or not need.cpus
                if attempt.launch.layer:
                    mount = self._layer(attempt.launch).mount
                    bandwidth[mount] += 0 if place else self._held(attempt)  # type: ignore[assignment]
                    reserved[mount] += need.capacity
        for engine in self.engines:
            for device in engine.state.ledger.devices():
                assert 0 <= device.free_bandwidth == device.layer.bandwidth - bandwidth[device.mount]
                assert device.reserved == reserved[device.mount]
                assert device.stored >= 0
                if self.is_still():
                    filled = self.disk.filled(device.mount)
                    right = filled <= device.stored <= filled + self.disk.loosely_filled(device.mount)
                    assert right, f"{device.mount} counts {device.stored} bytes of {filled}"

    def _held(self, attempt: Attempt) -> float:
        """The bandwidth that an attempt at work has: what it was sent with, unless it shares with others."""
        auto = attempt.launch.call.spec.requirements.auto
        if auto is None or self.engine.state.rules.tuner != "adaptive":
            return attempt.launch.bandwidth
        held: float = self.engine.state.tasks[attempt.task].bandwidth  # type: ignore[attr-defined]
        most = self._layer(attempt.launch).bandwidth
        if auto.bounded:
            assert min(auto.least, most) <= held <= auto.most
        assert 0 < held <= most and held == int(held)
        return held

    def _layer(self, launch: Launch) -> StorageLayer:
        [layer] = [layer for layer in self.all_nodes[launch.node].storage if layer.name == launch.layer]
        return layer

    # --- liveness -----------------------------------------------------------------------------------------------------

    def is_still(self) -> bool:
        return super().is_still() and not self.warming and not self.asked

    def _judge_liveness(self) -> None:
        state = self.engine.state
        ready = []
        for task in state.tasks.values():
            model = self.model.tasks[task.task]
            assert (task.state is TaskState.WAITING) == (not self.model.could_run(model))
            if task.state is TaskState.READY:
                ready.append(task)
        if self.draining:
            return
        for task in ready:
            anchor = self._note_ready(task)
            for node in self.nodes.values():
                could = self._fits(node, task.requirements) and self._storage_fits(node, task.requirements, anchor)
                assert not could, f"{task.label} could run on {node.name}"
        if ready and self.is_still():
            assert self.engine.next_look() is not None, f"{[task.label for task in ready]} wait for ever"

    def _note_ready(self, task: TaskRecord) -> str:
        """The layer that it is bound to."""
        self._ready_since.setdefault(task.task, self.now)
        anchor = self._anchors[task.task] = task.anchor if isinstance(task, IOTaskRecord) else ""
        return anchor

    def _fits(self, node: Node, need: Requirements) -> bool:
        lanes = [lane for lane in self.lanes.values() if lane.node == node.name]
        heads = [lane.attempts[0].launch.call.spec.requirements for lane in lanes if lane.attempts]
        seats = [lane for lane in lanes if (lane.index >= node.cpus) == need.io]
        seat = any(lane.open and not lane.attempts and not lane.kill_asked and not lane.ending for lane in seats)
        cpus = node.cpus - sum(head.cpus for head in heads)
        memory = node.memory - sum(head.memory for head in heads)
        return seat and need.cpus <= cpus and need.memory <= memory

    def _storage_fits(self, node: Node, need: Requirements, anchor: str) -> bool:
        """Whether an I/O task should have been placed there; False where that cannot be said so simply."""
        if not need.io:
            return True
        record = self.engine.state.ledger.nodes[node.name]
        courses = [course for course in self.engine.state.courses.values() if course.node is record]
        if courses and (len(self.nodes) > 1 or not need.layered):
            return False
        if not record.is_suitable(need):
            return False
        if self.scheduler != "fcfs" and any(attempt.launch.layer for attempt in self.attempts()):
            return False
        if need.auto is not None:
            return False
        if not need.layered:
            return True
        kept = {device.layer.name for device in record.devices if device.course is not None}
        return any(layer.name not in kept for layer in self._free_layers(node, need, anchor))

    def _free_layers(self, node: Node, need: Requirements, anchor: str) -> list[StorageLayer]:
        """Layers of a node with enough bandwidth and room, by what is really there."""
        found = []
        for layer in node.storage:
            if anchor not in ("", layer.name):
                continue
            attempts = [attempt for attempt in self.attempts() if attempt.launch.layer]
            here = [attempt for attempt in attempts if self._layer(attempt.launch).mount == layer.mount]
            heads = [
                attempt
                for attempt in here
                if self.lanes[attempt.launch.node, attempt.launch.lane].attempts[0] is attempt
            ]
            bandwidth = layer.bandwidth - sum(self._held(attempt) for attempt in heads)
            room = self._room(layer, here)
            full = self.said_full.get(layer.mount, -1e9) + 8 >= self.now
            if need.bandwidth <= bandwidth and room > 0 and need.capacity <= room and not full:
                found.append(layer)
        return found

    def _room(self, layer: StorageLayer, attempts: list[Attempt]) -> float:
        if layer.capacity is None:
            return float("inf")
        filled = self.disk.filled(layer.mount)
        coming = sum(self.disk.sizes[move.source] for move in self.moves if self._goes_to(move) == layer.mount)
        return layer.capacity - filled - coming - sum(a.launch.call.spec.requirements.capacity for a in attempts)

    def possible(self, need: Requirements) -> bool:
        return any(self._possible_on(node, need) for node in self.nodes.values())

    def _possible_on(self, node: Node, need: Requirements) -> bool:
        if need.cpus > node.cpus or need.memory > node.memory:
            return False
        if not need.io:
            return True
        layers = [
            layer
            for layer in node.storage
            if need.bandwidth <= layer.bandwidth and (layer.capacity is None or need.capacity <= layer.capacity)
        ]
        return node.io_executors > 0 and (not need.layered or bool(layers))

    # --- what happens to lanes and nodes ------------------------------------------------------------------------------

    def join(self, node: Node) -> None:
        self.all_nodes[node.name] = node
        self.nodes[node.name] = node
        for index in range(node.cpus + node.io_executors):
            self.lanes[node.name, index] = WorldLane(node.name, index)
        self.tell(events.NodeJoined(node))

    def _is_deserted(self, node: str) -> bool:
        """A node without executors of one kind is of no use any more."""
        cpus = self.nodes[node].cpus
        kinds = {lane.index >= cpus for lane in self.lanes.values() if lane.node == node}
        return kinds != {lane.index >= cpus for lane in self.lanes.values() if lane.node == node and lane.open}

    def _model_node_gone(self, name: str) -> None:
        for lane in self.lanes.values():
            if lane.node == name:
                self._model_loss(lane)
        super()._model_node_gone(name)

    def storage_full(self, lane: WorldLane) -> None:
        """An attempt finds its layer full; one that has a layer is tried elsewhere, unless it has spoilt its input."""
        attempt = self.start(lane)
        task = self.over(lane)
        launch = attempt.launch
        if launch.layer:
            self.said_full[self._layer(launch).mount] = self.now
            self.doubted.add(self._layer(launch).mount)
            self.told_full.add(attempt.task)
        if launch.layer and task.doom is None:
            if launch.in_place:
                self.model.end(task, FailureKind.STORAGE_FULL, ran=True)
        else:
            self.model.attempt_failed(task, FailureKind.STORAGE_FULL, in_place=bool(launch.in_place))
        failure = Failure(FailureKind.STORAGE_FULL, "no space left on device")
        self._told_now = attempt.task
        self.tell(events.Failed(attempt.task, launch.attempt, failure, 0.1))
        self._told_now = None

    def _discard(self, path: str) -> None:
        super()._discard(path)
        self.doubted -= {mount for mount in self.doubted if path.startswith(mount)}

    def drain(self) -> None:
        """The processes are gone, and nobody waits for a name any more."""
        while any(isinstance(errand, Publish) for errand in self.errands):
            self.do_errand()
        self.draining = True
        self.wanted_home.clear()  # who waited for that was told that the run is over
        for lane in self.lanes.values():
            lane.attempts.clear()
        self.tell(events.Draining())

    def judge_end(self) -> None:
        super().judge_end()
        for engine in self.engines:
            state = engine.state
            assert not (state.placed or state.discarding or state.publishing or state.moving)
            at_home: Counter[str] = Counter()
            for device, size in state.at_home.values():
                at_home[device.mount] += size
            for device in state.ledger.devices():
                assert device.stored == at_home[device.mount]
