"""Random programs on random storage: devices, learning phases, files on layers, moves, full disks, the end of a run.

The machine of the engine, with a world that has storage. A run ends in one of two ways: all that was begun comes to
its end, or everything is abandoned where it is; then what is permanent must come home.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.properties.engine_world import WorldLane
from tests.properties.storage_world import StorageWorld
from tests.properties.test_engine_machine import EngineMachine

from penstock.engine.engine import Engine
from penstock.engine.state import StorageRules
from penstock.model.resources import Auto, Node, Requirements, StorageLayer
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskSpec
from penstock.scheduling.compute import Fifo, Locality
from penstock.scheduling.ready_queues import ReadyQueues
from penstock.scheduling.reference import NaiveReadySet

#: names on no layer, on the shared one, and on one of the first node
FILES = ["/a", "/b", "/pfs/c", "/n0/slow/d"]
MB = 1e6

#: what functions require and how long they take, by number; the first three are compute tasks
FUNCTIONS: dict[int, tuple[Requirements, float]] = {
    0: (Requirements(), 0.0001),
    1: (Requirements(), 0.004),
    2: (Requirements(1, 60), 1.0),
    10: (Requirements(0, io=True), 0.5),
    11: (Requirements(0, io=True), 0.0001),
    12: (Requirements(0, 60, io=True), 0.5),
    13: (Requirements(0, io=True, bandwidth=3 * MB), 0.5),
    14: (Requirements(0, io=True, bandwidth=3 * MB, capacity=4), 0.0001),
    15: (Requirements(0, io=True, bandwidth=6 * MB, capacity=8), 0.7),
    16: (Requirements(0, io=True, capacity=6), 0.3),
    17: (Requirements(0, io=True, bandwidth=11 * MB), 0.9),
    18: (Requirements(0, io=True, auto=Auto()), 0.5),
    19: (Requirements(0, io=True, auto=Auto(), capacity=3), 0.4),
    20: (Requirements(0, io=True, auto=Auto(2 * MB, 8 * MB, 2)), 0.3),
}
COMPUTE = [0, 0, 1, 2]
IO = [number for number in FUNCTIONS if number >= 10]
AUTO = [18, 19, 20]


def specs(numbers: list[int]) -> st.SearchStrategy[TaskSpec]:
    def make(number: int, retries: int | None, timeout: float | None, on_failure: OnFailure, priority: int) -> TaskSpec:
        return TaskSpec(number, f"f{number}", FUNCTIONS[number][0], priority, retries, timeout, on_failure)

    return st.builds(
        make,
        st.sampled_from(numbers),
        st.sampled_from([None, None, None, 0, 1]),
        st.sampled_from([None, None, None, None, 0.5]),
        st.sampled_from([OnFailure.FAIL, OnFailure.FAIL, *OnFailure]),
        st.sampled_from([0, 0, 0, 1]),
    )


ROOM = st.sampled_from([None, None, 8, 16])


class StorageMachine(EngineMachine):
    world: StorageWorld
    files = FILES
    #: what devices are said to deliver; None: nobody can tell
    per_second: float | None = None

    @initialize(
        rules=st.builds(
            StorageRules,
            scheduler=st.sampled_from(["fcfs", "priority", "backfilling"]),
            ageing=st.sampled_from([None, 1.0]),
            data_movement=st.booleans(),
            tuner=st.sampled_from(["adaptive", "published"]),
        ),
        policy=st.sampled_from([Fifo, Locality]),
        shared=st.builds(StorageLayer, st.just("pfs"), st.just("/pfs"), st.just(8 * MB), ROOM, shared=st.just(True)),
        nodes=st.sampled_from([1, 1, 2]),
        executors=st.integers(1, 5),
        per_second=st.sampled_from([None, 5 * MB]),
        data=st.data(),
    )
    def begin(
        self,
        rules: Any,
        policy: Any,
        shared: StorageLayer,
        nodes: int,
        executors: int,
        per_second: float | None,
        data: st.DataObject,
    ) -> None:
        self._begin(rules, policy)
        self.per_second = per_second
        self.shared = shared
        self.executors = executors
        for _ in range(nodes):
            self._join(data)

    def _begin(self, rules: StorageRules, policy: Any) -> None:
        self.policy = policy
        self.rules = rules
        self.world = StorageWorld([self._fresh(ReadyQueues), self._fresh(NaiveReadySet)], rules.scheduler)
        self.numbers = iter(range(1, 1 << 30))
        self.joined = 0

    def _fresh(self, ready: Any) -> Engine:
        return Engine(ready(self.policy()), follows_data=self.policy is Locality, storage=self.rules)

    def _join(self, data: st.DataObject) -> None:
        name = f"n{self.joined}"
        self.joined += 1
        fast = StorageLayer("fast", f"/{name}/fast", 12 * MB, data.draw(ROOM))
        slow = StorageLayer("slow", f"/{name}/slow", 6 * MB, data.draw(ROOM))
        storage = data.draw(st.sampled_from([(fast,), (fast, self.shared), (fast, self.shared, slow), (self.shared,)]))
        cpus = data.draw(st.integers(1, 2))
        self.world.join(Node(name, cpus, 100, (), storage, self.executors))

    # --- the program ------------------------------------------------------------------------------------------------

    submit_plain = None  # type: ignore[assignment]
    provide_failure = None  # type: ignore[assignment]
    submit = None  # type: ignore[assignment]

    @rule(data=st.data(), spec=specs(COMPUTE), count=st.integers(1, 3))
    def submit_compute(self, data: st.DataObject, spec: TaskSpec, count: int) -> None:
        self._submit_some(data, spec, count)

    @rule(data=st.data(), spec=specs(IO), count=st.integers(1, 4))
    def submit_io(self, data: st.DataObject, spec: TaskSpec, count: int) -> None:
        self._submit_some(data, spec, count)

    @rule(data=st.data(), number=st.sampled_from(AUTO), count=st.integers(1, 8))
    def submit_auto(self, data: st.DataObject, number: int, count: int) -> None:
        spec = TaskSpec(number, f"f{number}", FUNCTIONS[number][0])
        if self._may_submit(spec):
            for _ in range(count):
                self._submit(None, spec)

    def _submit_some(self, data: st.DataObject, spec: TaskSpec, count: int) -> None:
        if self._may_submit(spec):
            for _ in range(count):
                self._submit(data, spec)

    def _may_submit(self, spec: TaskSpec) -> bool:
        return self.world.possible(spec.requirements) or self.world.engine.state.ledger.shrunk

    def _use_file(self, direction: str, file: str, *args: Any, **fields: Any) -> None:
        if file not in self.world.wanted_home | self.world.deleting:
            super()._use_file(direction, file, *args, **fields)

    def _is_temp(self, data: st.DataObject) -> bool:
        return data.draw(st.integers(0, 3)) == 0

    @precondition(lambda self: self._alone())
    @rule(data=st.data())
    def want_home(self, data: st.DataObject) -> None:
        self.world.want_home(data.draw(st.sampled_from(self._alone())))

    @precondition(lambda self: self._alone())
    @rule(data=st.data())
    def delete_file(self, data: st.DataObject) -> None:
        self.world.delete(data.draw(st.sampled_from(self._alone())))

    def _alone(self) -> list[str]:
        return [name for name in self.world.history if self.world.is_alone(name)]

    # --- workers ----------------------------------------------------------------------------------------------------

    def _seconds(self, function: int) -> float:
        return FUNCTIONS[function][1]

    @rule(count=st.integers(1, 8))
    def finish_io(self, count: int) -> None:
        """A good while passes: what runs ends, and what was asked for is done."""
        for _ in range(count):
            self._catch_up()
            for lane in self._io_lanes()[:1]:
                self._finish(lane, large=False, unchanged=False)

    @precondition(lambda self: self._io_lanes())
    @rule(data=st.data())
    def fill_layer(self, data: st.DataObject) -> None:
        self.world.storage_full(data.draw(st.sampled_from(self._io_lanes())))

    def _io_lanes(self) -> list[WorldLane]:
        return [lane for lane in self._lanes(working=True) if lane.attempts[0].launch.call.spec.requirements.io]

    # --- clerks, time, nodes ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.errands)
    @rule(count=st.integers(1, 3))
    def do_errands(self, count: int) -> None:
        for _ in range(min(count, len(self.world.errands))):
            self.world.do_errand()

    @precondition(lambda self: self.world.errands and getattr(self.world.errands[0], "link", False))
    @rule(dice=st.integers(0, 3))
    def fail_to_name(self, dice: int) -> None:
        if dice == 0:
            self.world.fail_errand()

    @precondition(lambda self: self.world.moves)
    @rule(error=st.sampled_from(["", "", "", "the disk is full"]))
    def do_move(self, error: str) -> None:
        self.world.do_move(error)

    @precondition(lambda self: self.world.warming)
    @rule()
    def warm(self) -> None:
        self.world.warm()

    @precondition(lambda self: self.world.asked)
    @rule()
    def tell_bytes(self) -> None:
        self.world.tell_bytes(self.per_second)

    def _catch_up(self) -> None:
        world = self.world
        while world.errands or world.moves or world.warming or world.asked:
            if world.errands:
                world.do_errand()
            elif world.moves:
                world.do_move()
            elif world.asked:
                self.tell_bytes()
            else:
                world.warm()
            world.finish_deletions()
        world.finish_deletions()

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.06, 0.6, 2.5, 10.5]))
    def tick(self, seconds: float) -> None:
        self._tick(seconds)

    @precondition(lambda self: self.joined < 3)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        self._join(data)

    # --- the end ------------------------------------------------------------------------------------------------------

    abandoned = False

    @precondition(lambda self: self.world.model.tasks)
    @rule(dice=st.integers(0, 9))
    def abandon(self, dice: int) -> None:
        """Mostly not: nothing that comes after it counts."""
        self.abandoned = self.abandoned or dice == 0

    def teardown(self) -> None:
        if not hasattr(self, "world") or self.world.broken:
            return
        world = self.world
        if not self.abandoned:
            self._drain()
            for version in sorted(world.held):
                self._release(version)
            self._catch_up()
            for engine in world.engines:
                self._judge_end_of_tasks(engine)
        world.drain()
        self._catch_up()
        world.judge_end()
        again = self._fresh(ReadyQueues)
        for event, now, commands in world.log:
            assert again.handle(event, now) == commands

    def _judge_end_of_tasks(self, engine: Engine) -> None:
        state = engine.state
        assert not state.tasks
        assert not state.segments
        assert not len(state.ready)
        assert not len(state.io_ready)
        assert not state.ledger.holders
        assert state.versions.keys() == state.placed.keys()

    def _drain(self) -> None:
        """Let everything that was begun come to its end, or be refused."""
        world = self.world
        for _ in range(10_000):
            self._catch_up()
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
                due = world.engine.next_look()
                if not world.model.tasks or due is None:
                    break
                self._tick(due - world.now)
        states = {task.label: task.state.name for task in world.engine.state.tasks.values()}
        assert not states, f"something waits for ever: {states}"


# The same histories in every run of the tests, so that what fails is what was changed; others are tried at leisure.
StorageMachine.TestCase.settings = settings(
    max_examples=35,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestStorageMachine = StorageMachine.TestCase


class OtherHistories(StorageMachine):
    """The same rules, at random."""


OtherHistories.TestCase.settings = settings(TestStorageMachine.settings, derandomize=False, max_examples=400)
# Of what it finds it also seeks a short form, which takes minutes.
TestOtherHistories = pytest.mark.timeout(1200)(pytest.mark.long(OtherHistories.TestCase))


class RefusedHistory(StorageMachine):
    """A task for which there is never room on any layer, as random histories seldom have it."""

    def __init__(self, on_failure: OnFailure, layers: list[str], pause: float) -> None:
        super().__init__()
        self._begin(StorageRules("fcfs"), Fifo)
        storage = tuple(StorageLayer(name, f"/n0/{name}", 12 * MB, 8) for name in layers)
        self.world.join(Node("n0", 1, 100, (), storage, 2))
        self._submit(None, TaskSpec(16, "f16", FUNCTIONS[16][0], on_failure=on_failure))
        self.pause = pause

    def refuse(self) -> list[FailureKind | None]:
        """What became of its output, once it has been refused."""
        world = self.world
        for _ in range(10):
            for lane in self._io_lanes():
                world.storage_full(lane)
            self._tick(self.pause)
        assert not world.model.tasks
        self.teardown()
        return [outcome.kind if isinstance(outcome, Failure) else None for outcome in world.told.values()]


@pytest.mark.parametrize("on_failure", OnFailure)
@pytest.mark.parametrize(
    ("layers", "pause"), [(["fast"], 10.5), (["fast", "slow"], 4.5)], ids=["found waiting", "found trying"]
)
def test_a_task_that_is_refused_for_want_of_room_is_one_that_failed(
    layers: list[str], pause: float, on_failure: OnFailure
) -> None:
    expected = None if on_failure is OnFailure.IGNORE else FailureKind.STORAGE_FULL
    assert RefusedHistory(on_failure, layers, pause).refuse() == [expected]
