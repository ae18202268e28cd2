"""Random programs and random misfortune: the engine against a naive model, with its invariants checked throughout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.properties.engine_world import Attempt, World, WorldLane

from penstock.engine.engine import Engine
from penstock.model import events
from penstock.model.data import FileRef, Slot, Value
from penstock.model.resources import Node, Requirements
from penstock.model.tasks import Failure, FailureKind, OnFailure, Output, TaskCall, TaskSpec
from penstock.scheduling.compute import Fifo, FifoData, Lifo, LoadBalance, Locality
from penstock.scheduling.ready_queues import ReadyQueues
from penstock.scheduling.reference import NaiveReadySet

ARGUMENTS = Value(b"()")
FILES = ["/a", "/b"]

#: functions by number, with what their bodies take: the first is sent ahead in numbers, the last never
SECONDS = [0.0001, 0.004, 1.0]
PLAIN = TaskSpec(0, "plain")
SPECS = st.one_of(
    st.just(PLAIN),
    st.builds(
        TaskSpec,
        function=st.integers(0, 2),
        name=st.just("f"),
        requirements=st.sampled_from(
            [Requirements()] * 3 + [Requirements(2), Requirements(1, 60), Requirements(1, countable=(("gpus", 1),))]
        ),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        retries=st.sampled_from([None, None, 0, 1]),
        timeout=st.sampled_from([None, None, None, 0.5]),
        on_failure=st.sampled_from([OnFailure.FAIL, *OnFailure]),
    ),
)
LARGE = st.sampled_from([True, True, True, False])
KINDS = st.sampled_from([FailureKind.EXCEPTION, FailureKind.EXCEPTION, FailureKind.RETURNS, FailureKind.SERIALIZATION])


class EngineMachine(RuleBasedStateMachine):
    world: World
    #: names of files that calls use
    files: Sequence[str] = FILES
    #: how: "anew" is reading a file and writing it as if it had not been there
    directions: Sequence[str] = ("in", "out", "inout", "anew")

    @initialize(policy=st.sampled_from([Fifo, Lifo, Locality, FifoData, LoadBalance]), cpus=st.integers(1, 3))
    def begin(self, policy: Any, cpus: int) -> None:
        self.policy = policy
        self.world = World([self._fresh(ReadyQueues), self._fresh(NaiveReadySet)])
        self.numbers = iter(range(1, 1 << 30))
        self.world.join(Node("n0", cpus, 100, countable=(("gpus", 2),)))
        self.joined = 1

    def _fresh(self, ready: Any) -> Engine:
        return Engine(ready(self.policy()), follows_data=self.policy in (Locality, FifoData, LoadBalance))

    def _lanes(self, *, working: bool) -> list[WorldLane]:
        return [lane for lane in self.world.lanes.values() if lane.open and (lane.attempts or not working)]

    # --- the program ------------------------------------------------------------------------------------------------

    @rule(data=st.data(), spec=SPECS, count=st.integers(1, 4))
    def submit(self, data: st.DataObject, spec: TaskSpec, count: int) -> None:
        # What is impossible from the beginning is refused before it comes to a call.
        if self.world.possible(spec.requirements) or self.world.engine.state.ledger.shrunk:
            for _ in range(count):
                self._submit(data, spec)

    @rule(count=st.integers(1, 6))
    def submit_plain(self, count: int) -> None:
        for _ in range(count):
            self._submit(None, PLAIN)

    def _submit(self, data: st.DataObject | None, spec: TaskSpec) -> None:
        """One call; with no data to draw, it reads nothing and returns one value."""
        world = self.world
        returns = 1 if data is None else data.draw(st.integers(0, 2))
        slots: list[Any] = []
        reads: list[int] = []
        outputs: list[Output] = []
        writable: list[int] = []
        segments: list[int] = []
        values = sorted(world.held - world.files)
        if data is not None and data.draw(st.integers(0, 9)):
            values = [version for version in values if world.model.versions[version].failure is None]
        if data is not None and values:
            chosen = data.draw(st.lists(st.sampled_from(values), max_size=3, unique=True))
            # The newest version is the likeliest to be updated, as in a loop over one object.
            if data.draw(st.booleans()):
                chosen = [values[-1], *(version for version in chosen if version != values[-1])]
            writable += [index for index in range(len(chosen)) if not index or data.draw(st.booleans())]
            slots += chosen
            reads += chosen
        if data is not None and data.draw(st.integers(0, 4)) == 0:
            segments.append(self._literal(slots))
            writable.append(len(slots) - 1)
        outputs += [Output((index,), index) for index in writable]
        for file in (
            data.draw(st.lists(st.sampled_from(self.files), max_size=2, unique=True)) if data is not None else ()
        ):
            assert data is not None
            direction = data.draw(st.sampled_from(self.directions))
            # Where a failure is ignored, what a file holds that was to be written anew is anybody's guess.
            if direction in ("in", "inout") or spec.on_failure is not OnFailure.IGNORE:
                self._use_file(direction, file, slots, reads, outputs, writable, temp=self._is_temp(data))
        writes = tuple(next(self.numbers) for _ in range(returns + len(outputs)))
        call = TaskCall(
            next(self.numbers),
            spec,
            ARGUMENTS,
            tuple(slots),
            tuple(writable),
            tuple(reads),
            writes,
            returns,
            tuple(outputs),
            tuple(segments),
        )
        replaced = [slots[output.slot] for output in outputs if output.slot >= 0 and type(slots[output.slot]) is int]
        for output, version in zip(outputs, writes[returns:], strict=True):
            if output.file is not None:
                world.name_version(version, output.file, temp=output.temp)
        world.held.update(writes)
        world.model.submit(call, possible=world.possible(spec.requirements))
        world.tell(events.Submitted(call))
        for version in replaced:
            self._release(version)
        for segment in segments:
            self._release_segment(segment)

    def _is_temp(self, data: st.DataObject) -> bool:
        """Whether a file that is written is of use during the run only."""
        return False

    def _literal(self, slots: list[Any]) -> int:
        """An argument that the program stores for this call alone."""
        world = self.world
        literal = world.store(f"literal {next(self.numbers)}")
        [piece] = literal.pieces()
        world.held_segments[piece.segment] += 1
        world.tell(events.SegmentMade(piece.segment, piece.size, piece.spilled))
        slots.append(literal)
        return piece.segment

    def _use_file(
        self,
        direction: str,
        file: str,
        slots: list[Any],
        reads: list[int],
        outputs: list[Output],
        writable: list[int],
        *,
        temp: bool,
    ) -> None:
        world = self.world
        index = -1
        if direction != "out":
            newest = world.newest.get(file)
            if newest is None or not world.engine.lives(newest):
                content = world.read(FileRef(file))
                if content is None:
                    return
                newest = next(self.numbers)
                world.name_version(newest, file)
                world.held.add(newest)
                world.model.provide(newest, content)
                world.tell(events.Provided(newest, FileRef(file)))
            index = len(slots)
            slots.append(newest)
            reads.append(newest)
        if direction != "in":
            update = direction == "inout"
            outputs.append(Output((index,), index if update else -1, file, update, temp))
            if update:
                writable.append(index)

    @rule(large=LARGE)
    def provide(self, large: bool) -> None:
        number = next(self.numbers)
        token = f"provided {number}"
        self.world.held.add(number)
        self.world.model.provide(number, token)
        self.world.tell(events.Provided(number, self.world.store(token) if large else Value(token.encode())))

    @rule()
    def provide_failure(self) -> None:
        number = next(self.numbers)
        self.world.held.add(number)
        self.world.model.provide(number, FailureKind.EXCEPTION)
        self.world.tell(events.Provided(number, Failure(FailureKind.EXCEPTION, "no")))

    @precondition(lambda self: self.world.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self._release(data.draw(st.sampled_from(sorted(self.world.held))))

    def _release(self, version: int) -> None:
        self.world.held.discard(version)
        self.world.tell(events.Released((version,)))

    def _release_segment(self, segment: int) -> None:
        self.world.held_segments[segment] -= 1
        self.world.tell(events.SegmentReleased(segment))

    @precondition(lambda self: self.world.model.tasks)
    @rule(data=st.data(), kill=st.booleans())
    def cancel(self, data: st.DataObject, kill: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.world.model.tasks)))
        task = self.world.model.tasks[number]
        place = {
            attempt.task: place for lane in self.world.lanes.values() for place, attempt in enumerate(lane.attempts)
        }
        if number not in place:
            self.world.model.end(task, FailureKind.CANCELLED)
        elif place[number] > 0:
            task.kill_if_started = kill or (task.doom is not None and task.kill_if_started)
            task.doom = FailureKind.CANCELLED
        elif kill:
            task.kill_if_started = True
            task.doom = FailureKind.CANCELLED
        self.world.tell(events.CancelRequested(number, kill))

    # --- workers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._lanes(working=True))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.world.start(data.draw(st.sampled_from(self._lanes(working=True))))

    @precondition(lambda self: self._lanes(working=True))
    @rule(data=st.data(), large=LARGE)
    def finish(self, data: st.DataObject, large: bool) -> None:
        lane = data.draw(st.sampled_from(self._lanes(working=True)))
        self._finish(lane, large=large, unchanged=data.draw(st.integers(0, 4)) == 0)

    @rule(count=st.integers(1, 4))
    def finish_some(self, count: int) -> None:
        for _ in range(count):
            for lane in self._lanes(working=True)[:1]:
                self._finish(lane, large=True, unchanged=False)

    def _finish(self, lane: WorldLane, *, large: bool, unchanged: bool) -> None:
        world = self.world
        attempt = world.start(lane)
        call = attempt.launch.call
        task = world.over(lane)
        made: list[Slot | None] = []
        for index, version in enumerate(call.writes):
            file = index >= call.returns and call.outputs[index - call.returns].file
            delivered = world.model.versions[version].settled
            if (unchanged and not file and not attempt.launch.in_place) or (delivered and file):
                world.model.delivered(task, index, world.model.old_content(call, index))
                made.append(None)
            else:
                output = world.output(attempt, index, large=large)
                world.model.delivered(task, index, f"{attempt.task}.{attempt.launch.attempt}.{index}")
                made.append(output)
        world.model.done(task)
        seconds = self._seconds(call.spec.function)
        world.tell(events.Finished(attempt.task, attempt.launch.attempt, made, seconds))

    def _seconds(self, function: int) -> float:
        return SECONDS[function]

    @precondition(lambda self: self._lanes(working=True))
    @rule(data=st.data(), large=LARGE)
    def hand_over(self, data: st.DataObject, large: bool) -> None:
        world = self.world
        attempt = world.start(data.draw(st.sampled_from(self._lanes(working=True))))
        call = attempt.launch.call
        # What is changed in place is not ready before the end, nor is a file that would be renamed over its readers.
        indices = [index for index in range(len(call.writes)) if index < call.returns]
        if indices:
            index = data.draw(st.sampled_from(indices))
            again = world.model.versions[call.writes[index]].settled
            if again and attempt.launch.attempt == 1:
                return
            self._hand_over(attempt, index, large=large)

    def _hand_over(self, attempt: Attempt, index: int, *, large: bool) -> None:
        world, task = self.world, self.world.model.tasks[attempt.task]
        output = world.output(attempt, index, large=large)
        if not world.model.versions[task.call.writes[index]].settled:
            world.early.setdefault(attempt.task, set()).add(index)
        world.model.delivered(task, index, f"{attempt.task}.{attempt.launch.attempt}.{index}")
        world.tell(events.OutputReady(attempt.task, attempt.launch.attempt, index, output))

    @precondition(lambda self: self._lanes(working=True))
    @rule(data=st.data())
    def hand_over_file(self, data: st.DataObject) -> None:
        """A worker is told which files were handed over by an earlier attempt, and hands over only others."""
        world = self.world
        attempt = world.start(data.draw(st.sampled_from(self._lanes(working=True))))
        call = attempt.launch.call
        indices = [
            index
            for index, output in enumerate(call.outputs, start=call.returns)
            if output.file and not output.update and not world.model.versions[call.writes[index]].settled
        ]
        if indices:
            self._hand_over(attempt, data.draw(st.sampled_from(indices)), large=False)

    @precondition(lambda self: self._lanes(working=True))
    @rule(data=st.data(), large=LARGE, count=st.integers(1, 3))
    def hand_over_further(self, data: st.DataObject, large: bool, count: int) -> None:
        """Outputs beyond those of the call, as of a stream; those that an earlier attempt made count no more."""
        world = self.world
        attempt = world.start(data.draw(st.sampled_from(self._lanes(working=True))))
        for _ in range(count):
            position, attempt.further = attempt.further, attempt.further + 1
            number = 0
            token = f"{attempt.task}.{attempt.launch.attempt}.+{position}"
            if position >= world.further[attempt.task]:
                world.further[attempt.task] += 1
                number = next(self.numbers)
                world.held.add(number)
                world.model.provide(number, token)
            value = world.store(token) if large else Value(token.encode())
            index = len(attempt.launch.call.writes) + position
            world.tell(events.OutputReady(attempt.task, attempt.launch.attempt, index, value, number))

    @precondition(lambda self: self._lanes(working=True))
    @rule(data=st.data(), kind=KINDS)
    def fail(self, data: st.DataObject, kind: FailureKind) -> None:
        world = self.world
        lane = data.draw(st.sampled_from(self._lanes(working=True)))
        attempt = world.start(lane)
        world.model.attempt_failed(world.over(lane), kind, in_place=bool(attempt.launch.in_place))
        world.tell(events.Failed(attempt.task, attempt.launch.attempt, Failure(kind, "it failed"), 0.1))

    @precondition(lambda self: self._lanes(working=False))
    @rule(data=st.data(), announced=st.booleans(), replaced=st.sampled_from([True, True, True, False]))
    def lose_worker(self, data: st.DataObject, announced: bool, replaced: bool) -> None:
        lane = data.draw(st.sampled_from(self._lanes(working=False)))
        self.world.lose_worker(lane, announced=announced, replaced=replaced)

    @precondition(lambda self: any(lane.kill_asked for lane in self.world.lanes.values()))
    @rule(data=st.data())
    def carry_out_kill(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from([lane for lane in self.world.lanes.values() if lane.kill_asked]))
        self.world.lose_worker(lane, announced=True, replaced=True)

    @precondition(lambda self: any(lane.recall_asked for lane in self.world.lanes.values()))
    @rule(data=st.data())
    def answer_recall(self, data: st.DataObject) -> None:
        self.world.answer_recall(
            data.draw(st.sampled_from([lane for lane in self.world.lanes.values() if lane.recall_asked]))
        )

    # --- time and nodes -----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.019, 0.02, 0.3, 1.0]))
    def tick(self, seconds: float) -> None:
        self._tick(seconds)

    def _tick(self, seconds: float) -> None:
        world = self.world
        world.now += seconds
        for lane in world.lanes.values():
            if lane.attempts:
                attempt = lane.attempts[0]
                timeout = attempt.launch.call.spec.timeout
                task = world.model.tasks[attempt.task]
                if timeout is not None and attempt.since + timeout <= world.now and task.doom is None:
                    task.doom = FailureKind.TIMEOUT
                    task.kill_if_started = True
        world.tell(events.Ticked())
        due = world.engine.next_look()
        assert due is None or due > world.now

    @precondition(lambda self: self.joined < 4)
    @rule(cpus=st.integers(1, 3))
    def join(self, cpus: int) -> None:
        self.world.join(Node(f"n{self.joined}", cpus, 100))
        self.joined += 1

    @precondition(lambda self: len(self.world.nodes) > 1)
    @rule(data=st.data())
    def lose_node(self, data: st.DataObject) -> None:
        self.world.lose_node(data.draw(st.sampled_from(sorted(self.world.nodes))))

    # --- the end ------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self._drain()
        world = self.world
        for version in sorted(world.held):
            self._release(version)
        for engine in world.engines:
            state = engine.state
            assert not state.tasks
            assert not state.versions
            assert not state.segments
            assert not state.files
            assert not len(state.ready)
            assert not state.ledger.holders
        assert not world.segments
        assert world.disk.keys() <= set(FILES)
        again = self._fresh(ReadyQueues)
        for event, now, commands in world.log:
            assert again.handle(event, now) == commands

    def _drain(self) -> None:
        """Let everything that was begun come to its end."""
        world = self.world
        for _ in range(10_000):
            lanes = list(world.lanes.values())
            for lane in lanes:
                if lane.kill_asked:
                    world.lose_worker(lane, announced=True, replaced=True)
                elif lane.recall_asked:
                    world.answer_recall(lane)
                elif lane.attempts:
                    self._finish(lane, large=True, unchanged=False)
                else:
                    continue
                break
            else:
                break
        states = {task.label: task.state.name for task in world.engine.state.tasks.values()}
        assert not states, f"something waits for ever: {states}"


EngineMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestEngineMachine = EngineMachine.TestCase
