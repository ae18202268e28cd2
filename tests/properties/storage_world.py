"""A world with storage: layers, links, and two clerks who carry out what is asked of file systems when they get to it.

One gives names and removes copies, the other moves files; each works in order, and anything may happen in between.
Beyond what every world judges: sums of bandwidth and room, names that mean a complete file at any time and never an
older one than before, tasks that could start, and who is refused for want of room.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from tests.properties.engine_model import ModelTask, ModelVersion
from tests.properties.engine_world import Attempt, World, WorldLane

from penstock.engine.crowding import GRACE
from penstock.engine.engine import Engine
from penstock.engine.state import IOTaskRecord, Placed
from penstock.model import events
from penstock.model.commands import Command, Discard, Launch, Move, Publish, Warm
from penstock.model.data import FileRef, Slot
from penstock.model.resources import Node, Requirements, StorageLayer
from penstock.model.tasks import Failure, FailureKind, TaskState
from penstock.storage.redirect import home_of, is_below
from penstock.tuning.epochs import epoch_size


@dataclass(frozen=True)
class Link:
    """What a name holds that is a link."""

    to: str


class StorageWorld(World):
    def __init__(self, engines: list[Engine], scheduler: str) -> None:
        super().__init__(engines)
        self.scheduler = scheduler
        #: what the two clerks have before them
        self.errands: deque[Publish | Discard] = deque()
        self.moves: deque[Move] = deque()
        #: nodes whose executors are being started
        self.warming: deque[str] = deque()
        self.draining = False
        #: an event was not answered rightly: there is nothing to be learned from what comes after it
        self.broken = False
        #: names that are links
        self.links: dict[str, Link] = {}
        #: every node that ever was: its layers outlive it
        self.all_nodes: dict[str, Node] = {}
        #: sizes of real files that layered attempts wrote or that were moved
        self.sizes: dict[str, int] = {}
        #: and of those that others wrote over, who say nothing of what they fill
        self.loose: dict[str, int] = {}
        #: where a version was written
        self.written_on: dict[int, str] = {}
        #: versions that are of use during the run only
        self.temps: set[int] = set()
        #: versions of each name, oldest first; the least that the name may mean now, -1 if it need not exist
        self.history: dict[str, list[int]] = {}
        self.least: dict[str, int] = {}
        #: names that the program waits for, to change them itself or to delete them
        self.wanted_home: set[str] = set()
        self.deleting: set[str] = set()
        #: names that could not be given to some version: the program is told when it asks for them
        self.unnamed: set[str] = set()
        #: layers that ready tasks are bound to, and when layers said that they are full
        self._anchors: dict[int, str] = {}
        self.said_full: dict[str, float] = {}
        #: when something last showed that there is room, or made some; since when tasks have been ready
        self.room_made = 0.0
        self._ready_since: dict[int, float] = {}

    # --- telling the engines ----------------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        self.broken = True
        super().tell(event)
        self._judge_sums()
        self._judge_names()
        for name in sorted(self.wanted_home):
            self._await_home(name)
        waiting = self.wanted_home | {name for name in self.deleting if not self._has_left_layers(name)}
        assert not waiting or not self.is_still(), f"the program waits for ever for {waiting}"
        self.broken = False

    def is_alone(self, name: str) -> bool:
        """Whether the program may change or delete a file: it is under its name, and no task uses it."""
        if name in self.wanted_home | self.deleting or self.read(FileRef(name)) is None:
            return False
        if self.held.intersection(self.history[name]) or name in self.unnamed:
            return False
        records = [self.engine.state.versions[number] for number in self.engine.state.files.get(name, ())]
        return all(
            record.outcome is not None and not record.uses and (record.scratch is None or record.published)
            for record in records
        )

    def _await_home(self, name: str) -> None:
        """The program goes on once the file is under its name, or cannot be moved."""
        on_layers = self._on_layers(name)
        if all(placed.error for placed in on_layers):
            self.wanted_home.discard(name)
            if not on_layers:
                self._program_writes(name, -len(self.log))

    def _on_layers(self, name: str) -> list[Placed]:
        state = self.engine.state
        records = [state.versions[number] for number in state.files.get(name, ())]
        return [record.placed for record in records if record.placed is not None and record.scratch is not None]

    def want_home(self, name: str) -> None:
        self.wanted_home.add(name)
        self.tell(events.HomeWanted(name))

    def delete(self, name: str) -> None:
        """The program deletes a file: first its copies go, then its name."""
        self.deleting.add(name)
        self.tell(events.FileDropped(name))

    def _has_left_layers(self, name: str) -> bool:
        state = self.engine.state
        return not state.discarding and not any(state.versions[n].placed for n in state.files.get(name, ()))

    def finish_deletions(self) -> None:
        for name in sorted(self.deleting):
            if self._has_left_layers(name):
                while self.errands:
                    self.do_errand()
                self._remove(name)
                self.deleting.discard(name)
                # Nothing that was written before may come back.
                self.history[name] = []
                self.least[name] = -1

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
        assert not self.attempts()
        assert not self.moves
        assert not any(isinstance(errand, Discard) and errand.tell for errand in self.errands)
        waiting_since = min(self._ready_since[task.call.task] for task in tasks)
        assert self.now - max(self.room_made, waiting_since) >= GRACE
        for task in tasks:
            need = task.call.spec.requirements
            assert need.layered, f"{need} was refused for want of room"
            for node in self.nodes.values():
                free = self._free_layers(node, need, self._anchors[task.call.task])
                assert not free, f"{need} was refused, but there is room"
            self.model.end(task, FailureKind.STORAGE_FULL)

    def _carry_out(self, command: Command) -> events.Event | None:
        match command:
            case Publish() | Discard():
                self.errands.append(command)
            case Move():
                self._judge_move(command)
                self.moves.append(command)
            case Warm(node, executors):
                assert 1 <= executors <= self.nodes[node].io_executors
                self.warming.append(node)
            case _:
                return super()._carry_out(command)
        return None

    def _launch(self, launch: Launch) -> None:
        assert not self.draining
        super()._launch(launch)
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

    def _judge_move(self, move: Move) -> None:
        """Who moves a file while others read it, or while I/O runs, must have been asked to."""
        assert move.version not in [other.version for other in self.moves]
        if self.draining or move.name in self.wanted_home:
            return
        assert not any(attempt.launch.call.spec.requirements.io for attempt in self.attempts())
        assert not any(move.version in task.call.reads for task in self.model.tasks.values())

    # --- the clerks ---------------------------------------------------------------------------------------------------

    def fail_errand(self) -> None:
        """A file cannot be given its name, and stays on its layer."""
        errand = self.errands.popleft()
        assert isinstance(errand, Publish)
        self.unnamed.add(errand.target)
        self.tell(events.Published(errand.version, errand.source))

    def do_errand(self) -> None:
        errand = self.errands.popleft()
        match errand:
            case Publish(version, source, target, link):
                assert source in self.disk
                if link:
                    self._remove(target)
                    self.links[target] = Link(source)
                else:
                    # The same bytes under another name, which stay when the first one goes.
                    self._put(target, self.disk[source], self.sizes.pop(source, None))
                self.tell(events.Published(version, target))
            case Discard(path, tell):
                self._discard(path)
                if tell:
                    self.room_made = self.now
                    self.tell(events.Discarded(path))

    def _discard(self, path: str) -> None:
        if path in self.history:
            # A name goes at the end, if it is of use during the run only, or because the program deletes it.
            assert self.draining or path in self.deleting
            self.least[path] = -1
            self._remove(path)
            return
        assert path in self.disk, f"{path} is discarded, but is not there"
        self._remove(path)

    def do_move(self, error: str = "") -> None:
        move = self.moves.popleft()
        if error:
            self.tell(events.Moved(move.version, move.source, error))
            return
        assert move.source in self.disk
        content, size = self.disk[move.source], self.sizes[move.source]
        target = move.name
        if move.layer:
            target = self._path_on(self.written_on[move.version], move.layer, -move.version, move.name)
        # A node knows nothing of layers that it does not list.
        self._put(target, content, None if self._goes_to(move) is None else size)
        if target != move.name:
            self._remove(move.name)
            self.links[move.name] = Link(target)
        self.tell(events.Moved(move.version, target))

    def warm(self) -> None:
        self.tell(events.Warmed(self.warming.popleft()))

    def _path_on(self, node: str, layer: str, number: int, name: str) -> str:
        [found] = [one for one in self.all_nodes[node].storage if one.name == layer]
        return f"{found.mount}/ours/{number}{name}"

    def _put(self, path: str, content: str, size: int | None) -> None:
        if size is None and path in self.sizes:
            self.loose[path] = self.sizes[path]
        self._remove(path)
        self.disk[path] = content
        if size is not None:
            self.sizes[path] = size
            self.loose.pop(path, None)

    def _remove(self, path: str) -> None:
        self.links.pop(path, None)
        self.disk.pop(path, None)
        self.sizes.pop(path, None)

    # --- contents ---------------------------------------------------------------------------------------------------

    def read(self, slot: Slot) -> str | None:
        if type(slot) is FileRef and slot.path in self.links:
            return self.disk.get(self.links[slot.path].to)
        return super().read(slot)

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
        self._put(path, token, layered)
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
                    bandwidth[mount] += 0 if place else attempt.launch.bandwidth  # type: ignore[assignment]
                    reserved[mount] += need.capacity
        for engine in self.engines:
            for device in engine.state.ledger.devices():
                assert 0 <= device.free_bandwidth == device.layer.bandwidth - bandwidth[device.mount]
                assert device.reserved == reserved[device.mount]
                assert device.stored >= 0
                if self.is_still():
                    filled = sum(size for path, size in self.sizes.items() if is_below(path, device.mount))
                    loose = sum(size for path, size in self.loose.items() if is_below(path, device.mount))
                    right = filled <= device.stored <= filled + loose
                    assert right, f"{device.mount} counts {device.stored} bytes of {filled}"

    def _layer(self, launch: Launch) -> StorageLayer:
        [layer] = [layer for layer in self.all_nodes[launch.node].storage if layer.name == launch.layer]
        return layer

    def _judge_names(self) -> None:
        for name, versions in self.history.items():
            if name in self.deleting:
                continue
            content = self.read(FileRef(name))
            if content is None:
                if self.draining and versions[self.least[name]] in self.temps:
                    continue  # it goes, or what replaces it is on its way
                assert name not in self.links, f"{name} is a link to nothing"
                assert self.least[name] < 0, f"{name} is gone"
                continue
            meant = [i for i, version in enumerate(versions) if self.model.versions[version].content == content]
            assert meant, f"{name} holds {content!r}, which nobody has completed"
            assert meant[-1] >= self.least[name], f"{name} holds an older version than before"
            self.least[name] = meant[-1]

    def name_version(self, version: int, file: str, *, temp: bool | None = None) -> None:
        super().name_version(version, file)
        if self._is_temp(file) if temp is None else temp:
            self.temps.add(version)
        self.history.setdefault(file, []).append(version)
        self.least.setdefault(file, -1)

    def _program_writes(self, name: str, number: int) -> None:
        """The program changes a file that is at home and that no task uses."""
        assert name not in self.links
        if self._is_temp(name):
            self.temps.add(number)
        self.model.versions[number] = ModelVersion(content=f"program {number}")
        self._put(name, f"program {number}", None)
        self.history[name].append(number)

    # --- liveness -----------------------------------------------------------------------------------------------------

    def is_still(self) -> bool:
        """Nothing runs and nothing is under way."""
        pending = self.attempts() or self.errands or self.moves or self.warming
        return not pending and not any(lane.kill_asked or lane.ending for lane in self.lanes.values())

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
            anchor = task.anchor if isinstance(task, IOTaskRecord) else ""
            self._anchors[task.task] = anchor
            self._ready_since.setdefault(task.task, self.now)
            for node in self.nodes.values():
                could = self._fits(node, task.requirements) and self._storage_fits(node, task.requirements, anchor)
                assert not could, f"{task.label} could run on {node.name}"
        if ready and self.is_still():
            assert self.engine.next_look() is not None, f"{[task.label for task in ready]} wait for ever"

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
            bandwidth = layer.bandwidth - sum(attempt.launch.bandwidth for attempt in heads)
            room = self._room(layer, here)
            full = self.said_full.get(layer.mount, -1e9) + 8 >= self.now
            if need.bandwidth <= bandwidth and room > 0 and need.capacity <= room and not full:
                found.append(layer)
        return found

    def _room(self, layer: StorageLayer, attempts: list[Attempt]) -> float:
        if layer.capacity is None:
            return float("inf")
        filled = sum(size for path, size in self.sizes.items() if is_below(path, layer.mount))
        coming = sum(self.sizes[move.source] for move in self.moves if self._goes_to(move) == layer.mount)
        return layer.capacity - filled - coming - sum(a.launch.call.spec.requirements.capacity for a in attempts)

    def _goes_to(self, move: Move) -> str | None:
        layers = self.all_nodes[self.written_on[move.version]].storage
        if move.layer:
            return next(layer.mount for layer in layers if layer.name == move.layer)
        home = home_of(move.name, layers)
        return None if home is None else home.mount

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
        if launch.layer and task.doom is None:
            if launch.in_place:
                self.model.end(task, FailureKind.STORAGE_FULL, ran=True)
        else:
            self.model.attempt_failed(task, FailureKind.STORAGE_FULL, in_place=bool(launch.in_place))
        failure = Failure(FailureKind.STORAGE_FULL, "no space left on device")
        self.tell(events.Failed(attempt.task, launch.attempt, failure, 0.1))

    # --- the end ------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """The processes are gone, and nobody waits for a name any more."""
        while any(isinstance(errand, Publish) for errand in self.errands):
            self.do_errand()
        self.draining = True
        for lane in self.lanes.values():
            lane.attempts.clear()
        self.tell(events.Draining())

    def judge_end(self) -> None:
        for name, versions in self.history.items():
            assert name not in self.links, f"{name} is still a link"
            made = [version for version in versions if self.model.versions[version].content is not None]
            if made:
                content = None if self._is_temp(name) else self.model.versions[made[-1]].content
                assert self.read(FileRef(name)) == content, f"{name} is lost, or kept in vain"
        left = [path for path in self.disk if "/ours/" in path or ".waits." in path]
        assert not left, f"{left} were left behind"

    def _is_temp(self, name: str) -> bool:
        """Whether what is there, or will be when names have been given, is of use during the run only."""
        versions = self.history.get(name, [])
        made = [version for version in versions if self.model.versions[version].content is not None]
        return bool(made) and made[-1] in self.temps
