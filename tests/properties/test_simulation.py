"""Random workloads on random nodes: everything ends, nothing is lost or made up, and time is what it must be."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from penstock.engine.checks import check
from penstock.engine.state import StorageRules
from penstock.model.events import Event
from penstock.model.resources import Node, StorageLayer
from penstock.model.tasks import OnFailure
from penstock.sim.devices import Device
from penstock.sim.network import Network
from penstock.sim.simulation import Outcome, Simulation
from penstock.sim.transfers import Transfer
from penstock.sim.work import Costs
from penstock.sim.workloads import Job, Lognormal, Workload

SSD = StorageLayer("ssd", "/ssd", 100.0, capacity=5000)
CONGESTED = StorageLayer("nvme", "/nvme", 200.0, curve=((1, 100.0), (2, 200.0), (8, 50.0)))
SHARED = StorageLayer("gpfs", "/gpfs", 60.0, shared=True)

DURATIONS = st.sampled_from([0.0, 0.001, 0.002, 0.01, 0.25, 0.5, 1.0, 2.0])
SIZES = st.sampled_from([0, 1, 50, 100, 333])


@st.composite
def workloads(draw: st.DrawFn, *, files: bool = True, failures: bool = True) -> Workload:
    workload = Workload()
    jobs: list[Job] = []
    written: list[str] = []
    for index in range(draw(st.integers(1, 12))):
        details: dict[str, Any] = {"seconds": draw(DURATIONS)}
        details["after"] = draw(st.lists(st.sampled_from(jobs), max_size=3, unique_by=id)) if jobs else []
        details["makes"] = draw(SIZES)
        if draw(st.integers(0, 5)) == 0:
            details["steps"] = [draw(DURATIONS), *details["after"][:1]]
        if failures and draw(st.booleans()):
            details |= {"fails": draw(st.sampled_from([0.0, 0.3, 1.0])), "fails_first": draw(st.integers(0, 2))}
            details |= {"retries": draw(st.integers(0, 2)), "on_failure": draw(st.sampled_from(OnFailure))}
        if files:
            details |= draw(file_details(index, written))
        if files and draw(st.booleans()):
            constraint = draw(st.sampled_from([None, "10B/s", "50B/s", "auto", "auto(20B/s,60B/s,2)"]))
            capacity = draw(st.sampled_from([0, 100])) if constraint else 0
            jobs.append(workload.io_task("io", constraint=constraint, capacity=capacity, **details))
        else:
            cpus, processes = draw(st.sampled_from([(1, 1), (2, 1), (1, 2)]))
            jobs.append(workload.task("f", cpus=cpus, processes=processes, **details))
        written += [output.file for output in jobs[-1].call.outputs if output.file is not None]
    return workload


@st.composite
def file_details(draw: st.DrawFn, index: int, written: list[str]) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if written:
        details["reads"] = draw(st.lists(st.sampled_from(written), max_size=2, unique=True))
    kind = draw(st.sampled_from(["none", "new", "again", "update"]))
    folder = draw(st.sampled_from(["/ssd", "/nvme", "/gpfs", "/home"]))
    if kind == "new" or (kind != "none" and not written):
        details["writes"] = [(f"{folder}/{index}", draw(SIZES))]
    elif kind == "again":
        details["writes"] = [(draw(st.sampled_from(written)), draw(SIZES))]
    elif kind == "update":
        details["updates"] = [(draw(st.sampled_from(written)), draw(SIZES))]
    if draw(st.integers(0, 4)) == 0:
        details["temp"] = True
    return details


LAYERS = st.sampled_from([(SSD,), (CONGESTED, SSD), (SSD, SHARED), (CONGESTED, SSD, SHARED)])


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    layers = draw(LAYERS)
    count = draw(st.integers(1, 3))
    return [Node(f"n{i}", draw(st.integers(2, 4)), 10**9, (), layers, draw(st.integers(1, 4))) for i in range(count)]


@st.composite
def surroundings(draw: st.DrawFn, nodes: list[Node]) -> dict[str, Any]:
    """Everything that may happen besides."""
    more: dict[str, Any] = {"seed": draw(st.integers(0, 3))}
    more["scheduler"] = draw(st.sampled_from(["fifo", "lifo", "locality", "load_balance", "fifo_data"]))
    more["network"] = draw(st.sampled_from([None, Network(100.0), Network(30.0, 0.125)]))
    more["decision_seconds"] = draw(
        st.sampled_from([0.0, 0.001, 0.05, lambda engine: 0.01 * (1 + len(engine.state.ready))])
    )
    slow = Costs(start=0.1, each=0.05, first=0.01, next=0.001, told=0.01)
    more["costs"], more["io_costs"] = draw(st.sampled_from([(Costs(), Costs()), (slow, slow), (Costs(), slow)]))
    io_scheduler = draw(st.sampled_from(["fcfs", "priority", "backfilling"]))
    tuner = draw(st.sampled_from(["adaptive", "published"]))
    more["rules"] = StorageRules(io_scheduler, data_movement=draw(st.booleans()), tuner=tuner)
    more["room"] = draw(st.sampled_from([{}, {"ssd": 300}]))
    if len(nodes) > 1 and draw(st.booleans()):
        time = draw(st.sampled_from([0.0, 0.3, 0.75, 1.5, 4.0]))
        more["lost"] = [(time, nodes[0].name)]
        if draw(st.booleans()):
            more["joins"] = [(time + draw(st.sampled_from([0.0, 0.01, 1.0])), nodes[0])]
    return more


def run(workload: Workload, nodes: list[Node], **more: Any) -> tuple[Outcome, Simulation]:
    """Run a workload, with the engine's invariants checked after every event."""
    for job in workload.jobs:
        note(repr(job))

    def watch(_now: float, _event: Event) -> None:
        check(simulation.engine)
        assert simulation.world.master.events < 5000, "this never ends"

    simulation = Simulation(nodes, workload, record=True, watch=watch, **more)
    return simulation.run(), simulation


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_everything_ends_and_nothing_is_held_afterwards(data: st.DataObject) -> None:
    nodes = data.draw(clusters())
    workload = data.draw(workloads())
    more = data.draw(surroundings(nodes))
    outcome, simulation = run(workload, nodes, **more)
    state, executor = simulation.engine.state, simulation.executor
    assert outcome.done + outcome.failed == len(workload.jobs)
    assert not state.tasks and not state.ledger.holders and not state.segments
    for record in state.ledger.nodes.values():
        assert record.free_cpus == record.node.cpus and record.free_memory == record.node.memory
    for device in (*executor.files.devices.values(), *executor.links.devices.values()):
        assert len(device) == 0
        assert device.busy <= outcome.end + 1e-9
    assert not any(lane.attempts for lanes in executor._lanes.values() for lane in lanes)
    assert not executor._objects._arriving and not executor._objects._holders
    assert outcome.makespan <= outcome.end


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_same_seed_gives_the_same_outcome(data: st.DataObject) -> None:
    nodes = data.draw(clusters())
    workload = data.draw(workloads())
    more = data.draw(surroundings(nodes))
    assert run(workload, nodes, **more)[0] == run(workload, nodes, **more)[0]


@settings(max_examples=100, deadline=None)
@given(workloads(files=False, failures=False), clusters())
def test_no_run_is_shorter_than_its_longest_chain_or_its_work_shared_out(workload: Workload, nodes: list[Node]) -> None:
    outcome, _ = run(workload, nodes)
    ends: dict[int, float] = {}
    work = 0.0
    for job in workload.jobs:
        assert isinstance(job.seconds, float)
        need = job.call.spec.requirements
        work += job.seconds * need.cpus * need.processes
        ends[job.result] = job.seconds + max((ends[version] for version in job.call.reads), default=0.0)
    assert outcome.makespan >= max(ends.values()) - 1e-9
    assert outcome.makespan >= work / sum(node.cpus for node in nodes) - 1e-9
    assert sum(outcome.busy.values()) <= work + 1e-9
    assert sum(outcome.busy.values()) >= work - 1e-9


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.75, 3.0]), max_size=30),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_independent_tasks_start_in_order_whenever_a_unit_is_free(seconds: list[float], cores: list[int]) -> None:
    workload = Workload()
    for one in seconds:
        workload.task("f", seconds=one)
    nodes = [Node(f"n{i}", cpus, 10**9) for i, cpus in enumerate(cores)]
    free = [0.0] * sum(cores)
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    assert run(workload, nodes)[0].makespan == max(free)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """Durations in milliseconds, and earlier tasks that each one needs."""
    durations = draw(st.lists(st.integers(100, 5000), max_size=15, unique=True))
    return [
        (one, draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else [])
        for i, one in enumerate(durations)
    ]


def in_order_of_readiness(graph: list[tuple[int, list[int]]], cores: int) -> int:
    """The makespan if the task that became ready first starts first; 0 where two of them end at the same time."""
    now, ready, running = 0, deque(i for i, (_, needs) in enumerate(graph) if not needs), list[tuple[int, int]]()
    missing = [len(needs) for _, needs in graph]
    while ready or running:
        while ready and len(running) < cores:
            task = ready.popleft()
            heapq.heappush(running, (now + graph[task][0], task))
        now, over = heapq.heappop(running)
        if running and running[0][0] == now:
            return 0
        for task, (_, needs) in enumerate(graph):
            if over in needs:
                missing[task] -= 1
                if not missing[task]:
                    ready.append(task)
    return now


@settings(max_examples=80, deadline=None)
@given(graphs(), st.integers(1, 4))
def test_a_graph_takes_the_time_that_is_found_by_hand(graph: list[tuple[int, list[int]]], cores: int) -> None:
    expected = in_order_of_readiness(graph, cores)
    assume(expected or not graph)
    workload = Workload()
    for milliseconds, needs in graph:
        workload.task("f", seconds=milliseconds / 1000, after=[workload.jobs[i] for i in needs])
    outcome, _ = run(workload, [Node("n", cores, 10**9)])
    assert abs(outcome.makespan - expected / 1000) < 1e-9


class Counting(Device[Transfer]):
    """Counts what streams ask of it."""

    asked = 0.0

    def start(self, now: float, stream: Transfer, size: float) -> None:
        self.asked += size
        super().start(now, stream, size)


@settings(max_examples=60, deadline=None)
@given(workloads(failures=False), clusters(), st.sampled_from([None, Network(30.0)]))
def test_devices_serve_exactly_what_is_asked_of_them(
    workload: Workload, nodes: list[Node], network: Network | None
) -> None:
    made: dict[str, Counting] = {}

    def make(name: str, layer: StorageLayer, per_stream: float) -> Counting:
        return made.setdefault(name, Counting(name, layer.bandwidth, layer.curve, per_stream))

    outcome, _ = run(workload, nodes, device=make, network=network)
    for name, use in outcome.devices.items():
        assert abs(use.transferred - made[name].asked) < 1e-6
        fastest = {"ssd": 100.0, "nvme": 200.0, "gpfs": 60.0}[name.partition(":")[2] or name]
        assert use.transferred <= fastest * use.busy + 1e-6
    out = sum(use.transferred for name, use in outcome.links.items() if name.endswith(":out"))
    into = sum(use.transferred for name, use in outcome.links.items() if name.endswith(":in"))
    assert abs(out - into) < 1e-6
    written = sum(size for job in workload.jobs for size in job.sizes)
    if not any(job.call.slots for job in workload.jobs) and not outcome.failed:
        # Nobody reads: everything is written once, and once more, and read, where it goes home from its layer.
        assert sum(device.asked for device in made.values()) <= 3 * written


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=20), st.integers(1, 20))
def test_streams_on_one_device_take_the_time_of_all_bytes(sizes: list[int], executors: int) -> None:
    workload = Workload()
    for index, size in enumerate(sizes):
        workload.io_task("w", writes=[(f"/ssd/{index}", size)])
    node = Node("n", 1, 10**9, (), (SSD,), executors)
    outcome, _ = run(workload, [node])
    assert abs(outcome.makespan - sum(sizes) / 100.0) < 1e-6
    assert abs(outcome.devices["n:ssd"].transferred - sum(sizes)) < 1e-6


@pytest.mark.parametrize("tuner", ["adaptive", "published"])
def test_a_long_random_run_is_the_same_twice(tuner: str) -> None:
    def once() -> Outcome:
        workload = Workload()
        for index in range(400):
            made = workload.task("f", seconds=Lognormal(0.5, 1.0), makes=100, fails=0.1)
            workload.io_task("w", after=[made], writes=[(f"/ssd/{index % 50}", 40)], constraint="auto", fails=0.05)
        nodes = [Node(f"n{i}", 4, 10**9, (), (SSD, SHARED), 4) for i in range(4)]
        lost = [(5.0, "n1")]
        more: dict[str, Any] = {"rules": StorageRules(tuner=tuner), "scheduler": "locality", "lost": lost}
        return Simulation(nodes, workload, seed=7, network=Network(500.0), **more).run()

    first, again = once(), once()
    assert first == again
    assert first.done > 300
