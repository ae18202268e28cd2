"""Random graphs of tasks that stream files to each other, and random misfortune.

Whatever happens: the engine's records agree, a task that ended had read what the attempt wrote that delivered, nobody
runs on with a file whose writer has failed, and everything comes to an end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.engine.checks import check
from penstock.engine.engine import Engine
from penstock.model import events
from penstock.model.commands import Kill, Launch, Publish, Recall
from penstock.model.data import FileRef, Value
from penstock.model.resources import Node
from penstock.model.tasks import Failure, FailureKind, OnFailure, Output, TaskCall, TaskSpec
from penstock.scheduling.compute import Fifo
from penstock.scheduling.ready_queues import ReadyQueues

ARGUMENTS = Value(b"()")
SECONDS = {0: 0.0001, 1: 1.0}


@dataclass(eq=False)
class Attempt:
    launch: Launch
    began: bool = False
    opened: bool = False


@dataclass(eq=False)
class WorldLane:
    index: int
    attempts: deque[Attempt] = field(default_factory=deque)
    recall_asked: bool = False
    kill_asked: bool = False


class Streams(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(ReadyQueues(Fifo()))
        self.now = 0.0
        self.numbers = 0
        self.lanes: dict[int, WorldLane] = {}
        #: versions of files that tasks write, and where the attempt that delivered one has left it
        self.files: list[int] = []
        self.delivered: dict[int, str] = {}
        self.calls: dict[int, TaskCall] = {}

    # --- the world ------------------------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        pending: deque[events.Event] = deque([event])
        while pending:
            commands = self.engine.handle(pending.popleft(), self.now)
            check(self.engine)
            for command in commands:
                if isinstance(command, Launch):
                    self.launch(command)
                elif isinstance(command, Publish):
                    pending.append(events.Published(command.version, command.target))
                elif isinstance(command, Recall):
                    assert not self.lanes[command.lane].recall_asked
                    self.lanes[command.lane].recall_asked = True
                elif isinstance(command, Kill):
                    assert not self.lanes[command.lane].kill_asked
                    self.lanes[command.lane].kill_asked = True

    def launch(self, launch: Launch) -> None:
        lane = self.lanes[launch.lane]
        assert not lane.kill_asked
        for slot, content in zip(launch.call.slots, launch.slots, strict=True):
            assert type(content) is FileRef
            if content.open:
                assert slot in launch.call.streams
                assert any(content.path == self.private(one.launch) for one in self.heads()), "its writer is over"
        lane.attempts.append(Attempt(launch))

    def heads(self) -> list[Attempt]:
        return [lane.attempts[0] for lane in self.lanes.values() if lane.attempts]

    @staticmethod
    def private(launch: Launch) -> str:
        return f"/private/{launch.task}.{launch.attempt}.{launch.lane}"

    def could_end(self, lane: WorldLane) -> bool:
        """Who reads a stream ends after its end; not if the writer failed, for then it is being killed."""
        launch = lane.attempts[0].launch
        given = zip(launch.call.slots, launch.slots, strict=True)
        return all(self.delivered.get(slot) == ref.path for slot, ref in given if ref.open)  # type: ignore[union-attr, arg-type]

    # --- what may happen --------------------------------------------------------------------------------------------

    @initialize(lanes=st.integers(1, 4))
    def join(self, lanes: int) -> None:
        self.lanes = {index: WorldLane(index) for index in range(lanes)}
        self.tell(events.NodeJoined(Node("n", lanes, 0)))

    @rule(
        data=st.data(),
        writes=st.booleans(),
        retries=st.sampled_from([None, 0, 1, 2]),
        on_failure=st.sampled_from([*OnFailure, OnFailure.RETRY]),
        function=st.sampled_from([0, 0, 1]),
        plain=st.booleans(),
    )
    def submit(
        self,
        data: st.DataObject,
        writes: bool,
        retries: int | None,
        on_failure: OnFailure,
        function: int,
        plain: bool,
    ) -> None:
        self.numbers += 1
        task = self.numbers
        alive = [version for version in self.files[-6:] if version in self.engine.state.versions]
        reads = tuple(data.draw(st.lists(st.sampled_from(alive), unique=True, max_size=2))) if alive else ()
        streams = reads[1:] if plain else reads
        spec = TaskSpec(function, "f", retries=retries, on_failure=on_failure)
        version = 1000 + task
        outputs = (Output((0,), -1, f"/file{task}", stream=True),) if writes else ()
        call = TaskCall(
            task,
            spec,
            ARGUMENTS,
            reads,
            (),
            reads,
            (version,),
            0 if writes else 1,
            outputs,
            streams=streams,
        )
        if writes:
            self.files.append(version)
        self.calls[task] = call
        self.tell(events.Submitted(call))

    def lane_with(self, data: st.DataObject, lanes: list[WorldLane]) -> WorldLane:
        return data.draw(st.sampled_from(sorted(lanes, key=lambda lane: lane.index)))

    def busy(self) -> list[WorldLane]:
        return [lane for lane in self.lanes.values() if lane.attempts]

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def open_file(self, data: st.DataObject) -> None:
        lane = self.lane_with(data, self.busy())
        attempt = lane.attempts[0]
        attempt.began = True
        if attempt.launch.call.outputs and not attempt.opened:
            attempt.opened = True
            ref = FileRef(self.private(attempt.launch), open=True)
            self.tell(events.OutputReady(attempt.launch.task, attempt.launch.attempt, 0, ref))

    @precondition(lambda self: any(self.could_end(lane) for lane in self.busy()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.finish_head(self.lane_with(data, [lane for lane in self.busy() if self.could_end(lane)]))

    def finish_head(self, lane: WorldLane) -> None:
        attempt = lane.attempts.popleft()
        launch = attempt.launch
        output: FileRef | Value = Value(b"x")
        if launch.call.outputs:
            file = launch.call.outputs[0].file
            assert file is not None
            # One that was not handed over when it was begun takes its name at the end.
            output = FileRef(self.private(launch) if attempt.opened else file)
            self.delivered[launch.call.writes[0]] = output.path
        self.now += 0.001
        seconds = SECONDS[launch.call.spec.function]
        self.tell(events.Finished(launch.task, launch.attempt, [output], seconds))

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        attempt = self.lane_with(data, self.busy()).attempts.popleft()
        failure = Failure(FailureKind.EXCEPTION, "boom")
        self.tell(events.Failed(attempt.launch.task, attempt.launch.attempt, failure, 0.1))

    @rule(data=st.data())
    def lose_worker(self, data: st.DataObject) -> None:
        self.end_process(self.lane_with(data, list(self.lanes.values())))

    @precondition(lambda self: any(lane.kill_asked for lane in self.lanes.values()))
    @rule(data=st.data())
    def obey_kill(self, data: st.DataObject) -> None:
        self.end_process(self.lane_with(data, [lane for lane in self.lanes.values() if lane.kill_asked]))

    def end_process(self, lane: WorldLane) -> None:
        self.answer_recall(lane)
        lane.attempts.clear()
        lane.recall_asked = lane.kill_asked = False
        self.tell(events.WorkerLost("n", lane.index, "it died", True))

    @precondition(lambda self: any(lane.recall_asked for lane in self.lanes.values()))
    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        self.answer_recall(self.lane_with(data, [lane for lane in self.lanes.values() if lane.recall_asked]))

    def answer_recall(self, lane: WorldLane) -> None:
        if lane.attempts:
            lane.attempts[0].began = True
        taken = tuple(attempt.launch.task for attempt in lane.attempts if not attempt.began)
        lane.attempts = deque(attempt for attempt in lane.attempts if attempt.began)
        lane.recall_asked = False
        self.tell(events.Recalled("n", lane.index, taken))

    @rule(data=st.data(), kill=st.booleans())
    def cancel(self, data: st.DataObject, kill: bool) -> None:
        if self.calls:
            self.tell(events.CancelRequested(data.draw(st.sampled_from(sorted(self.calls))), kill))

    # --- the end ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """From now on nothing goes wrong: then all must end."""
        for _ in range(20 * (self.numbers + 1)):
            for lane in list(self.lanes.values()):
                if lane.kill_asked:
                    self.end_process(lane)
                elif lane.recall_asked:
                    self.answer_recall(lane)
                elif lane.attempts and self.could_end(lane):
                    self.finish_head(lane)
            if not self.engine.unfinished:
                break
        stuck = [(task.label, task.state.name) for task in self.engine.state.tasks.values()]
        assert not stuck, stuck
        assert not self.engine.state.open_files
        assert not self.engine.state.interrupted


TestStreams = Streams.TestCase
TestStreams.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
