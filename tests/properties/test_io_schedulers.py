"""The ready set launches what the published algorithms launch, after every step of any history."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.properties.io_oracle import NaiveIOScheduler
from tests.unit.io_rig import Device, Node, Task, World, need

from penstock.model.resources import Auto, Requirements
from penstock.scheduling import io
from penstock.scheduling.io import DeviceView, IONodeView, IOTask

# Few distinct values, so that ties and exact fits are the rule.
KINDS = (
    need(10),
    need(20),
    need(20, 3),
    need(35),
    need(60, 5),
    need(0, 4),
    need(),
    Requirements(cpus=0, io=True, auto=Auto()),
    Requirements(cpus=0, io=True, capacity=2, auto=Auto()),
)
FUNCTIONS = (0, 1, 2)
LAYERS = ("fast", "slow", "shared")
NODES = ("a", "b")

functions = st.sampled_from(FUNCTIONS)
priorities = st.sampled_from([0, 0, 0, 0, 1, -1])
localities = st.dictionaries(st.sampled_from(NODES), st.integers(0, 2), max_size=2)
anchors = st.sampled_from(["", "", "", *LAYERS])
bandwidths = st.sampled_from([20.0, 50.0, 100.0])
capacities = st.sampled_from([0.0, 4.0, 12.0, float("inf")])
learned = st.sampled_from([None, 0.0, 5.0, 20.0, 40.0])


def device(name: str) -> st.SearchStrategy[Device]:
    means = st.dictionaries(functions, st.sampled_from([1.0, 2.0, 4.0, 9.0]), min_size=2)
    return st.builds(Device, st.just(name), bandwidths, capacities, st.builds(dict), means)


class SameLaunches(RuleBasedStateMachine):
    scheduler = "fcfs"
    ageing: float | None = None

    @initialize(data=st.data(), executors=st.tuples(st.integers(0, 4), st.integers(1, 8)))
    def start(self, data: st.DataObject, executors: tuple[int, int]) -> None:
        shared = data.draw(device("shared"))
        # Indices of nodes are not their order, and the nodes' layers are not the same.
        first = Node("a", 1, [data.draw(device("fast")), data.draw(device("slow")), shared], executors[0])
        second = Node("b", 0, [data.draw(device("slow")), shared], executors[1])
        self.world = World([first, second], self.scheduler, self.ageing)
        self.naive = NaiveIOScheduler(self.scheduler, self.ageing)
        self.demands: dict[tuple[int, str, str], float | None] = {}
        self.serial = 0
        self.world.demand = self.demand

    def demand(self, task: IOTask, node: IONodeView, device: DeviceView | None) -> float | None:
        """Fixed where it is declared, unless somebody learns there; learned values differ from device to device."""
        where = (task.function, node.name, device.name if device else "")
        if task.requirements.auto is not None:
            return self.demands.get(where, 20.0)
        return None if self.demands.get(where, 0.0) is None else task.requirements.bandwidth

    @rule(
        count=st.integers(1, 4),
        kind=st.sampled_from(KINDS),
        function=functions,
        priority=priorities,
        anchor=anchors,
        locality=localities,
    )
    def some_become_ready(
        self, count: int, kind: Requirements, function: int, priority: int, anchor: str, locality: dict[str, int]
    ) -> None:
        for _ in range(count):
            self.serial += 1
            self._add(Task(self.serial, kind, function, priority, self.world.now, anchor, locality))

    @rule(data=st.data())
    def one_is_cancelled(self, data: st.DataObject) -> None:
        if self.naive.tasks:
            task = data.draw(st.sampled_from(self.naive.tasks))
            self.naive.tasks.remove(task)
            if self.naive.waiting is task:
                self.naive.waiting = None
            self.world.ready.remove(task)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(data=st.data(), again=st.booleans())
    def one_ends(self, data: st.DataObject, again: bool) -> None:
        """And is perhaps to be tried again, in its old place."""
        if self.world.running:
            serial = data.draw(st.sampled_from(sorted(self.world.running)))
            task = self.world.running[serial].task
            self.world.finish(serial)
            if again:
                assert isinstance(task, Task)
                self._add(task)

    @rule(data=st.data(), function=functions, demand=learned)
    def a_demand_changes(self, data: st.DataObject, function: int, demand: float | None) -> None:
        node = data.draw(st.sampled_from(NODES))
        for layer in data.draw(st.sets(st.sampled_from([*LAYERS, ""]))):
            self.demands[function, node, layer] = demand

    @rule(data=st.data(), function=functions, seconds=st.sampled_from([0.5, 1.0, 3.0, 8.0]))
    def a_time_is_measured(self, data: st.DataObject, function: int, seconds: float) -> None:
        node = data.draw(st.sampled_from(self.world.nodes))
        data.draw(st.sampled_from(node.devices)).means[function] = seconds

    @rule(data=st.data())
    def something_is_deleted(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.world.nodes))
        data.draw(st.sampled_from(node.devices)).free_capacity += 4

    @rule()
    def a_round(self) -> None:
        expected = self.naive.iterate(deepcopy(self.world.nodes), self.world.now, self.demand)
        launched = self.world.round()
        assert [
            (p.task.serial, p.node.name, p.device and p.device.name, p.bandwidth)
            for p in (self.world.running[serial] for serial in launched)
        ] == [(s.task.serial, s.node.name, s.device and s.device.name, s.bandwidth) for s in expected]

    @invariant()
    def the_same_tasks_are_ready(self) -> None:
        ready = self.world.ready
        assert len(ready) == len(self.naive.tasks)
        assert sorted(task.serial for task in ready.tasks()) == sorted(task.serial for task in self.naive.tasks)
        for function in FUNCTIONS:
            assert ready.count(function) == sum(task.function == function for task in self.naive.tasks)

    @invariant()
    def only_the_sole_kind_is_sent_ahead(self) -> None:
        kinds = {(task.function, task.requirements, task.anchor) for task in self.naive.tasks}
        for task in self.naive.tasks:
            alike = self.world.ready.next_alike(task)
            if len(kinds) == 1:
                assert alike is min(self.naive.tasks, key=lambda task: (-task.priority, task.serial))
            else:
                assert alike is None

    def _add(self, task: Task) -> None:
        self.naive.tasks.append(task)
        self.world.add(task)


@pytest.mark.parametrize("ageing", [None, 4.0])
@pytest.mark.parametrize("scheduler", io.io_scheduler_names())
def test_launches_are_those_of_the_published_algorithms(
    scheduler: str, ageing: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "_DEAD_ALLOWED", 1)  # so that small examples see heaps being cleaned up

    class Machine(SameLaunches):
        pass

    Machine.scheduler, Machine.ageing = scheduler, ageing
    run_state_machine_as_test(Machine, settings=settings(max_examples=80, stateful_step_count=40, deadline=None))
