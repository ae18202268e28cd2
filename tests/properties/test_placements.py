"""A whole engine places as one with the naive ready set does: the same commands in the same order, come what may.

Several nodes of several kinds, tasks with needs of several kinds, gangs among them, that read what others made (so
that policies that follow the data have something to follow), failures, lost workers and lost nodes, nodes that join.
After every event the ledger must add up. Time goes on, so that nodes are reserved for what was passed over. Nothing is
sent ahead here: every attempt takes a second.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.checks import check
from penstock.engine.engine import Engine
from penstock.model import events
from penstock.model.commands import Kill, Launch
from penstock.model.data import Value
from penstock.model.resources import Node, Requirements
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskCall, TaskSpec
from penstock.scheduling.compute import Fifo, FifoData, Lifo, LoadBalance, Locality
from penstock.scheduling.policy import SparsePolicy
from penstock.scheduling.ready_queues import ReadyQueues
from penstock.scheduling.reference import NaiveReadySet

KINDS = (
    Requirements(1),
    Requirements(2),
    Requirements(4),
    Requirements(1, 60),
    Requirements(1, properties=(("arch", "arm"),)),
    Requirements(1, countable=(("gpus", 1),)),
    Requirements(1, countable=(("gpus", 2), ("licences", 1))),
    Requirements(1, processes=3),
    Requirements(2, 30, processes=2, processes_per_node=1),
)
#: cpus, memory, properties, what is counted
MACHINES = (
    (1, 50, (), ()),
    (2, 100, (), (("gpus", 1),)),
    (4, 100, (), (("gpus", 3), ("licences", 1))),
    (2, 100, (("Arch", "ARM"),), ()),
)
BOOM = Failure(FailureKind.EXCEPTION, "boom")


class Twins:
    """Two engines that hear the same and must answer the same; and what runs, as they said."""

    def __init__(self, policy: Callable[[], SparsePolicy], elastic: bool) -> None:
        follows_data = policy not in (Fifo, Lifo)
        self.engines = [
            Engine(made(policy()), follows_data=follows_data, elastic=elastic) for made in (ReadyQueues, NaiveReadySet)
        ]
        self.running: dict[int, Launch] = {}
        self.nodes: dict[str, Node] = {}
        self.numbers = iter(range(1, 1 << 30))
        self.versions: list[int] = []
        self.now = 0.0
        #: lanes whose process is to end
        self.killed: list[Kill] = []
        self.reserved = 0

    def tell(self, event: events.Event) -> None:
        self.now += 3.0
        fast, naive = (engine.handle(event, self.now) for engine in self.engines)
        assert fast == naive
        for engine in self.engines:
            check(engine)
        for command in fast:
            if type(command) is Launch:
                self.running[command.task] = command
            elif type(command) is Kill:
                self.killed.append(command)
        self.reserved += self.engines[0].state.reservations.current is not None
        alive = self.engines[0].state.tasks
        self.running = {task: launch for task, launch in self.running.items() if task in alive and alive[task].lane}

    def submit(self, need: Requirements, priority: int, reads: list[int]) -> None:
        if not self.engines[0].state.is_hopeless(need):
            spec = TaskSpec(1, "f", need, priority, on_failure=OnFailure.IGNORE)
            task, made = next(self.numbers), next(self.numbers)
            read = tuple(dict.fromkeys(self.versions[-1 - back] for back in reads if back < len(self.versions)))
            self.tell(
                events.Submitted(TaskCall(task, spec, Value(b""), slots=read, reads=read, writes=(made,), returns=1))
            )
            self.versions.append(made)

    def end_killed(self) -> None:
        killed = self.killed.pop(0)
        if killed.node in self.nodes:
            self.tell(events.WorkerLost(killed.node, killed.lane, "killed"))


MOVES = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.sampled_from(KINDS),
            st.sampled_from([0, 0, 0, 1, -1]),
            st.lists(st.integers(0, 6), max_size=3),
        ),
        st.tuples(st.just("finish"), st.integers(0, 9), st.integers(1, 3)),
        st.tuples(st.just("finish"), st.integers(0, 9), st.integers(1, 3)),
        st.tuples(st.just("fail"), st.integers(0, 9)),
        st.tuples(st.just("worker dies"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("node lost"), st.integers(0, 9)),
        st.tuples(st.just("killed"), st.just(0)),
        st.tuples(st.just("node joins"), st.sampled_from(MACHINES)),
    ),
    min_size=40,
    max_size=120,
)


def play(twins: Twins, move: tuple[object, ...]) -> None:
    match move:
        case ("submit", Requirements() as need, int(priority), list(reads)):
            twins.submit(need, priority, reads)
        case ("node joins", (cpus, memory, properties, countable)):
            node = Node(f"n{next(twins.numbers)}", cpus, memory, properties, countable=countable)
            twins.nodes[node.name] = node
            twins.tell(events.NodeJoined(node))
        case ("node lost", int(which)) if twins.nodes:
            name = list(twins.nodes)[which % len(twins.nodes)]
            del twins.nodes[name]
            twins.tell(events.NodeLost(name))
        case ("killed", 0):
            if twins.killed:
                twins.end_killed()
        case (what, int(which), *rest) if twins.running:
            launch = list(twins.running.values())[which % len(twins.running)]
            if what == "finish":
                size = rest[0]
                assert isinstance(size, int)
                twins.tell(events.Finished(launch.task, launch.attempt, [Value(b"x" * size)], 1.0))
            elif what == "fail":
                twins.tell(events.Failed(launch.task, launch.attempt, BOOM, 1.0))
            elif what == "worker dies":
                twins.tell(events.WorkerLost(launch.node, launch.lane, "killed", replaced=bool(rest[0])))
                known = twins.engines[0].state.ledger.nodes
                twins.nodes = {name: node for name, node in twins.nodes.items() if name in known}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", [Fifo, Lifo, Locality, LoadBalance, FifoData], ids=lambda policy: policy.name)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(machines=st.lists(st.sampled_from(MACHINES), min_size=1, max_size=5), moves=MOVES, elastic=st.booleans())
def test_an_engine_places_as_the_naive_one_does(
    policy: Callable[[], SparsePolicy],
    machines: list[tuple[int, int, tuple[tuple[str, str], ...]]],
    moves: list[tuple[object, ...]],
    elastic: bool,
) -> None:
    twins = Twins(policy, elastic)
    for machine in machines:
        play(twins, ("node joins", machine))
    for move in moves:
        play(twins, move)
    while twins.running or twins.killed:
        play(twins, ("finish", 0, 1) if twins.running else ("killed", 0))
    # What is left is blocked, or needs what is.
    state = twins.engines[0].state
    ready = [task.label for task in state.tasks.values() if task.serial]
    assert twins.engines[0].blocked() == ready
    assert elastic or not state.tasks
