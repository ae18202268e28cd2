"""The ready set launches what the published algorithms launch, after every step of any history.

It hears of what changes, and of nothing else: of the one node whose executors or devices changed, of nodes that join
and leave, of demands that changed on many nodes. What a shared device has left, how long functions take and rates that
follow the engine's choices change without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.properties.io_oracle import NaiveIOScheduler
from tests.unit.io_rig import Device, Node, Task, World, need

from penstock.model.resources import Auto, Requirements
from penstock.scheduling import io, io_heap, io_spots
from penstock.scheduling.io import DeviceView, IONodeView, IOTask, Rate

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
LAYERS = ("fast", "slow", "shared", "far")
SHARED = ("shared", "far")
NODES = ("a", "b", "c", "d")

functions = st.sampled_from(FUNCTIONS)
names = st.sampled_from(NODES)
priorities = st.sampled_from([0, 0, 0, 0, 1, -1])
localities = st.dictionaries(names, st.integers(0, 2), max_size=2)
anchors = st.sampled_from(["", "", "", *LAYERS])
bandwidths = st.sampled_from([20.0, 50.0, 100.0])
capacities = st.sampled_from([0.0, 4.0, 12.0, float("inf")])
learned = st.sampled_from([None, 0.0, 5.0, 20.0, 40.0])
means = st.dictionaries(functions, st.sampled_from([1.0, 2.0, 4.0, 9.0]), min_size=2)
# Layers have not the same place on all nodes, and shared ones may come first.
layerings = st.sampled_from(
    [("fast", "slow", "shared"), ("slow", "shared"), ("far", "fast", "shared"), ("fast", "far"), ("shared",), ()]
)


class ChosenRate:
    """What all nodes take of a layer for a function: whatever the engine chose last."""

    def __init__(self) -> None:
        self.now = 20.0

    def __call__(self) -> float:
        return self.now


class SameLaunches(RuleBasedStateMachine):
    scheduler = "fcfs"
    ageing: float | None = None

    @initialize(data=st.data(), count=st.integers(1, 3), pace=st.integers(1, 3))
    def start(self, data: st.DataObject, count: int, pace: int) -> None:
        self.steps = 0
        self.pace = pace  # a round after so many changes
        self.world = World([], self.scheduler, self.ageing, exact=True)
        self.naive = NaiveIOScheduler(self.scheduler, self.ageing)
        self.means = {layer: data.draw(means) for layer in LAYERS}
        self.shared = {layer: self._device(data, layer) for layer in SHARED}
        self.demands: dict[tuple[int, str, str], float | None] = {}
        self.rates = {(function, layer): ChosenRate() for function in FUNCTIONS for layer in LAYERS}
        self.serial = self.joined = 0
        self.world.demand = self.demand
        for name in NODES[:count]:
            self._join(data, name)

    def _device(self, data: st.DataObject, layer: str) -> Device:
        bandwidth, capacity = data.draw(bandwidths), data.draw(capacities)
        return Device(layer, bandwidth, capacity, {}, self.means[layer], layer in SHARED)

    def _join(self, data: st.DataObject, name: str) -> None:
        layers = data.draw(layerings)
        devices = [self.shared.get(layer) or self._device(data, layer) for layer in layers]
        self.joined += 1
        node = Node(name, self.joined, devices, data.draw(st.integers(0, 6)))
        self.world.nodes.append(node)
        self.world.told(node)

    def demand(self, task: IOTask, node: IONodeView, device: DeviceView | None) -> Rate | None:
        """Fixed where it is declared, unless somebody learns there; learned values differ from device to device."""
        where = (task.function, node.name, device.name if device else "")
        if task.requirements.auto is not None and device is not None:
            return self.demands.get(where, self.rates[task.function, device.name])
        return None if self.demands.get(where, 0.0) is None else task.requirements.bandwidth

    @rule(data=st.data(), name=names)
    def a_node_joins(self, data: st.DataObject, name: str) -> None:
        """Perhaps one of the name of a node that left."""
        if all(node.name != name for node in self.world.nodes):
            self._join(data, name)

    @rule(name=names)
    def a_node_leaves(self, name: str) -> None:
        for node in [node for node in self.world.nodes if node.name == name]:
            ended = [serial for serial, placement in self.world.running.items() if placement.node is node]
            for serial in ended:
                task = self.world.running[serial].task
                self.world.finish(serial)
                assert isinstance(task, Task)
                self._add(task)
            self.world.nodes.remove(node)
            self.world.ready.node_gone(node)

    @rule(name=names, executors=st.integers(-1, 1))
    def a_process_comes_or_goes(self, name: str, executors: int) -> None:
        for node in self.world.nodes:
            if node.name == name:
                node.executors = max(0, node.executors + executors)
                self.world.told(node)

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

    @rule(name=names, function=functions, layers=st.sets(st.sampled_from([*LAYERS, ""])), demand=learned)
    def a_demand_changes_on_a_node(self, name: str, function: int, layers: set[str], demand: float | None) -> None:
        self._demand(function, [name], layers, demand)
        self.world.told(*(node for node in self.world.nodes if node.name == name))

    @rule(function=functions, layers=st.sets(st.sampled_from([*LAYERS, ""])), demand=learned)
    def a_demand_changes_everywhere(self, function: int, layers: set[str], demand: float | None) -> None:
        self._demand(function, NODES, layers, demand)
        self.world.ready.demands_changed()

    @rule(function=functions, layer=st.sampled_from(LAYERS), demand=st.sampled_from([5.0, 20.0, 40.0]))
    def a_learned_demand_changes_everywhere(self, function: int, layer: str, demand: float) -> None:
        """Those that declare their bandwidth are not concerned."""
        known = {self.demands.get((function, name, layer), 0.0) is None for name in NODES}
        if not any(known):
            self._demand(function, NODES, {layer}, demand)
            self.world.ready.demands_changed(learned=True)

    def _demand(self, function: int, nodes: Sequence[str], layers: set[str], demand: float | None) -> None:
        self.demands |= {(function, name, layer): demand for name in nodes for layer in layers}

    @rule(function=functions, layer=st.sampled_from(LAYERS), value=st.sampled_from([5.0, 20.0, 40.0]))
    def another_rate_is_chosen(self, function: int, layer: str, value: float) -> None:
        self.rates[function, layer].now = value

    @rule(function=functions, layer=st.sampled_from(LAYERS), seconds=st.sampled_from([0.5, 1.0, 3.0, 8.0]))
    def a_time_is_measured(self, function: int, layer: str, seconds: float) -> None:
        self.means[layer][function] = seconds

    @rule(name=names, layer=st.sampled_from(LAYERS))
    def something_is_deleted(self, name: str, layer: str) -> None:
        for node in self.world.nodes:
            for device in node.devices:
                if node.name == name and device.name == layer:
                    device.free_capacity += 4
                    if not device.shared:
                        self.world.told(node)

    @invariant()
    def launches_are_the_same(self) -> None:
        self.steps += 1
        if self.steps % self.pace:
            return
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


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ageing", [None, 4.0])
@pytest.mark.parametrize("scheduler", io.io_scheduler_names())
def test_launches_are_those_of_the_published_algorithms(
    scheduler: str, ageing: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that small examples see what is outdated being cleaned up; and, for half of them, changes being forgotten.
    limits = [(io, "_DEAD_ALLOWED"), (io, "_KINDS_REMEMBERED"), (io_heap, "_DEAD_ALLOWED"), (io_spots, "_REMEMBERED")]
    for module, limit in limits if ageing is None else limits[:-1]:
        monkeypatch.setattr(module, limit, 1)

    class Machine(SameLaunches):
        pass

    Machine.scheduler, Machine.ageing = scheduler, ageing
    run_state_machine_as_test(Machine, settings=settings(max_examples=40, stateful_step_count=40, deadline=None))
