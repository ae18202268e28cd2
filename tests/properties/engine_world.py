"""A world for the engine to act on: lanes with worker processes, a store of segments, a disk, and a program.

Every command is carried out and judged: is this attempt given the right data, does anybody still read what is freed
or changed, is every version told once and truly? Every event goes to several engines, which must answer alike.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from tests.properties.engine_model import NOTHING, Model, ModelTask

from penstock.engine.checks import check
from penstock.engine.engine import Engine
from penstock.engine.failures import NONE
from penstock.model import events
from penstock.model.commands import Command, Discard, Free, Kill, Launch, Publish, Recall, Settle
from penstock.model.data import FileRef, Piece, Slot, Value
from penstock.model.resources import Node, Requirements
from penstock.model.tasks import Failure, FailureKind, TaskState


@dataclass(eq=False)
class Attempt:
    """An attempt on its way to a worker, or in it."""

    launch: Launch
    #: what its slots must hold for as long as it runs
    expected: list[str]
    since: float
    started: bool = False
    #: outputs beyond those of its call that it has handed over
    further: int = 0

    @property
    def task(self) -> int:
        return self.launch.task


@dataclass(eq=False, repr=False)
class WorldLane:
    node: str
    index: int
    attempts: deque[Attempt] = field(default_factory=deque)
    recall_asked: bool = False
    kill_asked: bool = False
    #: the engine was told that its process is ending
    ending: bool = False
    open: bool = True

    def __repr__(self) -> str:
        return f"<lane {self.index} of {self.node}: {[attempt.task for attempt in self.attempts]}>"


class World:
    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines
        self.engine = engines[0]
        self.model = Model()
        self.now = 1.0
        self.nodes: dict[str, Node] = {}
        self.lanes: dict[tuple[str, int], WorldLane] = {}
        self.log: list[tuple[events.Event, float, list[Command]]] = []
        #: contents of segments and files
        self.segments: dict[int, str] = {}
        self.disk: dict[str, str] = {}
        self.made_segments = 0
        #: what the program holds
        self.held_segments: Counter[int] = Counter()
        self.held: set[int] = set()
        self.told: dict[int, Slot | Failure] = {}
        #: newest version of each file, and all versions that are files
        self.newest: dict[str, int] = {}
        self.files: set[int] = set()
        #: outputs that unfinished tasks have handed over early: those of their calls, and how many beyond them
        self.early: dict[int, set[int]] = {}
        self.further: Counter[int] = Counter()

    # --- telling the engines ----------------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        pending = deque([event])
        while pending:
            event = pending.popleft()
            answers = [engine.handle(event, self.now) for engine in self.engines]
            assert all(answer == answers[0] for answer in answers)
            for engine in self.engines:
                check(engine, self.held_segments)
            self.log.append((event, self.now, answers[0]))
            self._before_commands()
            for command in answers[0]:
                further = self._carry_out(command)
                if further is not None:
                    pending.append(further)
            self._judge()

    def _before_commands(self) -> None:
        """For worlds where an engine decides what the model cannot foretell."""

    def _carry_out(self, command: Command) -> events.Event | None:
        match command:
            case Launch():
                self._launch(command)
            case Recall(node, lane):
                assert not self.lanes[node, lane].recall_asked
                self.lanes[node, lane].recall_asked = True
            case Kill(node, lane):
                assert not self.lanes[node, lane].kill_asked
                self.lanes[node, lane].kill_asked = True
            case Settle(version, outcome):
                return self._settle(version, outcome)
            case Free(segment):
                del self.segments[segment]
            case Publish(version, source, target):
                self.disk[target] = self.disk[source]
                return events.Published(version, target)
            case Discard(path):
                del self.disk[path]
        return None

    def _launch(self, launch: Launch) -> None:
        lane = self.lanes[launch.node, launch.lane]
        assert lane.open
        assert not lane.kill_asked
        assert not lane.ending
        assert not lane.attempts or not lane.recall_asked
        assert launch.call is self.model.tasks[launch.task].call
        assert set(launch.delivered) == self.early.get(launch.task, set())
        assert all(launch.task != other.task for other in self.attempts())
        expected = []
        for slot, content in zip(launch.call.slots, launch.slots, strict=True):
            token = self.model.versions[slot].content if type(slot) is int else self._token(slot)  # type: ignore[arg-type]
            assert token is not None
            expected.append(token)
            assert self.read(content) == token
        lane.attempts.append(Attempt(launch, expected, self.now))

    def _settle(self, version: int, outcome: Slot | Failure) -> events.Event | None:
        if not version:
            assert type(outcome) is Failure  # a task had handed over all its outputs, and then failed
            return None
        assert version in self.held
        assert version not in self.told
        self.told[version] = outcome
        model = self.model.versions[version]
        if type(outcome) is Failure:
            assert outcome.kind is model.failure
            return None
        assert self.read(outcome) == model.content  # type: ignore[arg-type]
        if type(outcome) is FileRef:
            # As the driver does: a file that bears its name needs no version.
            self.held.discard(version)
            return events.Released((version,))
        return None

    # --- contents ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _token(slot: Slot) -> str:
        if type(slot) is Value:
            return NOTHING if slot == NONE else slot.data.decode()  # type: ignore[union-attr]
        raise AssertionError(slot)

    def read(self, slot: Slot) -> str | None:
        """What a worker finds there; None if it is not there, or not what it says it is."""
        if type(slot) is FileRef:
            return self.disk.get(slot.path)
        token = self._token(slot)
        assert type(slot) is Value
        return token if all(self.segments.get(piece.segment) == token for piece in slot.pieces()) else None

    def name_version(self, version: int, file: str, *, temp: bool | None = None) -> None:
        """A version is the newest of a file: one that a task will write, or, if ``temp`` is None, what is there."""
        self.newest[file] = version
        self.files.add(version)

    def store(self, token: str) -> Value:
        self.made_segments += 1
        self.segments[self.made_segments] = token
        return Value(token.encode(), (Piece(self.made_segments, False, 0, 100),))

    def attempts(self) -> list[Attempt]:
        return [attempt for lane in self.lanes.values() for attempt in lane.attempts]

    # --- judging ----------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        state = self.engine.state
        assert state.tasks.keys() == self.model.tasks.keys()
        for attempt in self.attempts():
            for index, token in enumerate(attempt.expected):
                if attempt.started and index in attempt.launch.in_place:
                    continue
                assert self.read(attempt.launch.slots[index]) == token, "data changed under a task"
        for version in self.held:
            if self.model.versions[version].settled and version not in self.told:
                assert version not in state.versions or state.versions[version].file is not None
        self._judge_liveness()

    def _judge_liveness(self) -> None:
        """Whatever could start has been started."""
        state = self.engine.state
        for task in state.tasks.values():
            model = self.model.tasks[task.task]
            assert (task.state is TaskState.WAITING) == (not self.model.could_run(model))
            if task.state is TaskState.READY:
                for node in self.nodes.values():
                    kept = state.ledger.nodes[node.name].kept  # for a task that was passed over
                    could = kept is None and self._fits(node, task.requirements)
                    assert not could, f"{task.label} could run on {node.name}"

    def _fits(self, node: Node, need: Requirements) -> bool:
        lanes = [lane for lane in self.lanes.values() if lane.node == node.name]
        heads = [lane.attempts[0].launch.call.spec.requirements for lane in lanes if lane.attempts]
        seat = any(lane.open and not lane.attempts and not lane.kill_asked and not lane.ending for lane in lanes)
        cpus = node.cpus - sum(head.cpus for head in heads)
        memory = node.memory - sum(head.memory for head in heads)
        held = Counter({name: -count for name, count in node.countable})
        for head in heads:
            held.update(dict(head.countable))
        counted = all(held[name] + count <= 0 for name, count in need.countable)
        return seat and counted and need.cpus <= cpus and need.memory <= memory

    def possible(self, need: Requirements) -> bool:
        return any(self._could_host(node, need) for node in self.nodes.values())

    def _could_host(self, node: Node, need: Requirements) -> bool:
        counted = all(count <= dict(node.countable).get(name, 0) for name, count in need.countable)
        return counted and need.cpus <= node.cpus and need.memory <= node.memory

    # --- what happens to lanes and nodes ------------------------------------------------------------------------------

    def join(self, node: Node) -> None:
        self.nodes[node.name] = node
        for index in range(node.cpus):
            self.lanes[node.name, index] = WorldLane(node.name, index)
        self.tell(events.NodeJoined(node))

    def start(self, lane: WorldLane) -> Attempt:
        """The worker begins with its head; from then on what it changes in place is half-written."""
        attempt = lane.attempts[0]
        if not attempt.started:
            attempt.started = True
            for index in attempt.launch.in_place:
                self._overwrite(attempt.launch.slots[index], f"half-written by {attempt.task}")
        return attempt

    def _overwrite(self, slot: Slot, token: str) -> None:
        if type(slot) is FileRef:
            self.disk[slot.path] = token
        else:
            assert type(slot) is Value
            for piece in slot.pieces():
                self.segments[piece.segment] = token

    def output(self, attempt: Attempt, index: int, *, large: bool) -> Slot:
        """Make an output as a worker does."""
        call = attempt.launch.call
        token = f"{attempt.task}.{attempt.launch.attempt}.{index}"
        output = call.outputs[index - call.returns] if index >= call.returns else None
        if output is not None and output.file is not None:
            path = f"/private/{token}"
            if attempt.launch.publish and not output.update:
                path = output.file
            self.disk[path] = token
            return FileRef(path)
        if output is not None and output.slot in attempt.launch.in_place:
            old = attempt.launch.slots[output.slot]
            assert type(old) is Value
            self._overwrite(old, token)
            return Value(token.encode(), old.buffers)
        return self.store(token) if large else Value(token.encode())

    def over(self, lane: WorldLane) -> ModelTask:
        """The head of a lane ended; its model."""
        return self.model.tasks[lane.attempts.popleft().task]

    def answer_recall(self, lane: WorldLane) -> None:
        """Give back all that has not started, and tell the engine."""
        unstarted = [attempt for attempt in lane.attempts if not attempt.started]
        asked, lane.recall_asked = lane.recall_asked, False
        lane.ending = lane.ending or not asked
        lane.attempts = deque(attempt for attempt in lane.attempts if attempt.started)
        for attempt in unstarted:
            task = self.model.tasks.get(attempt.task)
            if task is not None:
                doom, task.doom = task.doom, None
                if doom is FailureKind.CANCELLED:
                    self.model.end(task, doom)
        for attempt in lane.attempts:
            task = self.model.tasks[attempt.task]
            if not task.kill_if_started and task.doom is FailureKind.CANCELLED:
                task.doom = None
        self.tell(events.Recalled(lane.node, lane.index, tuple(attempt.task for attempt in unstarted)))

    def lose_worker(self, lane: WorldLane, *, replaced: bool, announced: bool) -> None:
        """A process ends; a good executor gives back first what it had not started."""
        if announced:
            if lane.recall_asked:
                self.answer_recall(lane)
            self.answer_recall(lane)
        self._model_loss(lane)
        lane.recall_asked = lane.kill_asked = lane.ending = False
        lane.open = lane.open and replaced
        if self._is_deserted(lane.node):
            self._model_node_gone(lane.node)
        self.tell(events.WorkerLost(lane.node, lane.index, "it died", replaced))

    def _is_deserted(self, node: str) -> bool:
        return not any(lane.open for lane in self.lanes.values() if lane.node == node)

    def _model_loss(self, lane: WorldLane) -> None:
        attempts = list(lane.attempts)
        lane.attempts.clear()
        for place, attempt in enumerate(attempts):
            task = self.model.tasks.get(attempt.task)
            if task is None:
                continue
            in_place = bool(attempt.launch.in_place)
            if place and task.doom is not None:
                self.model.end(task, task.doom)
            elif place == 0 and (task.doom is not None or in_place or not lane.kill_asked):
                self.model.attempt_failed(task, task.doom or FailureKind.DIED, in_place=in_place)

    def lose_node(self, name: str) -> None:
        for lane in [lane for lane in self.lanes.values() if lane.node == name]:
            self._model_loss(lane)
        self._model_node_gone(name)
        self.tell(events.NodeLost(name))

    def _model_node_gone(self, name: str) -> None:
        del self.nodes[name]
        self.lanes = {key: lane for key, lane in self.lanes.items() if lane.node != name}
        busy = {attempt.task for attempt in self.attempts()}
        for task in list(self.model.tasks.values()):
            if task.call.task not in busy and not self.possible(task.call.spec.requirements):
                self.model.end(task, FailureKind.UNPLACEABLE)
