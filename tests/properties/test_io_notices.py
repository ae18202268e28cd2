"""The engine tells its I/O scheduler of every change that matters: decisions are those of one that looks at all anew.

Before the engine's ready set keeps up with changes, a second one with the same tasks is made of all nodes as they are.
Both must propose the same, in any history of tasks, learning phases, full devices, and nodes that come and go. And
nobody is forgotten: at the end of it everything can be run.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace
from tests.unit.engine_rig import call
from tests.unit.storage_rig import FULL, MB, StorageRig, io

from penstock.model.commands import Command, Warm
from penstock.model.events import NodeJoined, NodeLost, Warmed
from penstock.model.resources import Auto, Node, Requirements, StorageLayer
from penstock.model.tasks import OnFailure, TaskState
from penstock.scheduling.io import IOReadySet, Placement, StorageView, io_scheduler_names
from penstock.tuning.registry import Learned, Measure

NVM = StorageLayer("nvm", "/nvm", 90 * MB, 8)
SSD = StorageLayer("ssd", "/ssd", 60 * MB, 20)
PFS = StorageLayer("pfs", "/pfs", 80 * MB, 40, shared=True)
ARCHIVE = StorageLayer("archive", "/archive", 40 * MB, shared=True)

EXECUTORS = 3
LICENCES = (("licences", 2),)
TRIES: dict[str, Any] = {"retries": 50, "on_failure": OnFailure.RETRY}
BOUNDED = Auto(20 * MB, 40 * MB, 2)
FUNCTIONS = (
    io("small", bw=10, **TRIES),
    io("large", bw=40, size=4, **TRIES),
    io("bounded", auto=BOUNDED, **TRIES),
    io("unbounded", size=3, auto=Auto(), **TRIES),
    io("unlayered", **TRIES),
)
HUNGRY = io("hungry", **TRIES)
LAYERINGS = ((NVM, SSD, ARCHIVE), (PFS, SSD), (SSD, ARCHIVE), (NVM, PFS))

#: a function that begins on the shared layer, and learns on another when that is taken
MEASURES = (Measure(20 * MB, 2.0, 3, 3), Measure(40 * MB, 1.0, 2, 2))
KNOWN = {("bounded", "pfs"): Learned("bounded", "pfs", PFS.bandwidth, EXECUTORS, BOUNDED, MEASURES)}

TUNERS = st.sampled_from(["adaptive", "published"])

propose = IOReadySet.propose


def compared(ready: IOReadySet, now: float, storage: StorageView) -> Placement | None:
    """What is proposed, compared with what one would propose that looks at all nodes anew."""
    state = storage._state  # type: ignore[attr-defined]
    policy, tasks, courses = copy(ready._policy), list(ready.tasks()), list(state.courses)
    proposal = propose(ready, now, storage)
    if list(state.courses) != courses:
        return proposal  # it began a learning phase, so things are not what they were
    anew = IOReadySet()
    anew._policy = policy
    for task in tasks:
        anew.add(task)
    for node in state.ledger.nodes.values():
        anew.node_changed(node)
    assert propose(anew, now, storage) == proposal
    assert list(state.courses) == courses, "a learning phase could have begun"
    return proposal


class Notices(RuleBasedStateMachine):
    scheduler = "fcfs"

    @initialize(layers=st.lists(st.sampled_from(LAYERINGS), min_size=1, max_size=3), known=st.booleans(), tuner=TUNERS)
    def start(self, layers: list[tuple[StorageLayer, ...]], known: bool, tuner: str) -> None:
        rules = {"scheduler": self.scheduler, "ageing": 5.0, "known": KNOWN if known else {}, "tuner": tuner}
        self.rig = StorageRig(nodes=0, **rules)
        self.tasks = self.joined = 0
        self.cold: list[str] = []
        for one in layers:
            self._join(one)

    def _join(self, layers: tuple[StorageLayer, ...]) -> None:
        self.joined += 1
        self.hear(self.rig.tell(NodeJoined(Node(f"n{self.joined}", 1, 10, (), layers, EXECUTORS, LICENCES))))

    def hear(self, commands: list[Command]) -> None:
        self.cold += [command.node for command in commands if type(command) is Warm]

    @property
    def running(self) -> list[int]:
        tasks = self.rig.engine.state.tasks.values()
        return [task.task for task in tasks if task.state is TaskState.RUNNING]

    @rule(function=st.sampled_from(FUNCTIONS), count=st.integers(1, 8))
    def tasks_come(self, function: Any, count: int) -> None:
        for _ in range(count):
            self.tasks += 1
            self.hear(self.rig.submit(call(self.tasks, function, writes=())))

    @rule(memory=st.sampled_from([6, 10]), as_io=st.booleans())
    def one_that_needs_memory_comes(self, memory: int, as_io: bool) -> None:
        need = Requirements(0, memory, io=True, bandwidth=10 * MB) if as_io else Requirements(1, memory)
        self.tasks += 1
        function = 1000 + memory + as_io
        of = type(HUNGRY)(function, f"hungry{function}", need, **TRIES)
        self.hear(self.rig.submit(call(self.tasks, of, writes=())))

    @rule(count=st.integers(1, 2), as_io=st.booleans())
    def one_that_needs_licences_comes(self, count: int, as_io: bool) -> None:
        wanted = (("licences", count),)
        plain = Requirements(0, io=True, bandwidth=10 * MB) if as_io else Requirements(1)
        self.tasks += 1
        function = 2000 + 2 * count + as_io
        of = type(HUNGRY)(function, f"licensed{function}", replace(plain, countable=wanted), **TRIES)
        self.hear(self.rig.submit(call(self.tasks, of, writes=())))

    @rule(data=st.data(), count=st.integers(1, 4), seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def some_end(self, data: st.DataObject, count: int, seconds: float) -> None:
        for _ in range(count):
            if self.running:
                self.hear(self.rig.finish(data.draw(st.sampled_from(self.running)), seconds=seconds))

    @rule(seconds=st.sampled_from([1.0, 2.0]))
    def all_end(self, seconds: float) -> None:
        self.executors_are_there()
        self.rig.now += seconds
        for task in self.running:
            self.hear(self.rig.finish(task, seconds=seconds))

    @rule(data=st.data(), full=st.booleans())
    def one_fails(self, data: st.DataObject, full: bool) -> None:
        if self.running:
            task = data.draw(st.sampled_from(self.running))
            self.hear(self.rig.fail(task, FULL) if full else self.rig.fail(task))

    @rule()
    def executors_are_there(self) -> None:
        cold, self.cold = self.cold, []
        for node in cold:
            self.hear(self.rig.tell(Warmed(node)))

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.hear(self.rig.tick(seconds))

    @rule(layers=st.sampled_from(LAYERINGS))
    def a_node_joins(self, layers: tuple[StorageLayer, ...]) -> None:
        if len(self.rig.engine.state.ledger.nodes) < 4:
            self._join(layers)

    @rule(number=st.integers(0, 3))
    def a_node_is_lost(self, number: int) -> None:
        names = list(self.rig.engine.state.ledger.nodes)
        if len(names) > 1:
            self.hear(self.rig.tell(NodeLost(names[number % len(names)])))

    @invariant()
    def time_will_help_or_something_will_end(self) -> None:
        state = self.rig.engine.state
        if len(state.io_ready) and not state.ledger.holders and not self.cold:
            assert self.rig.engine.next_look() is not None

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        for _ in range(2000):
            if not self.rig.engine.unfinished:
                return
            self.executors_are_there()
            if self.running:
                self.hear(self.rig.finish(self.running[0]))
            else:
                self.hear(self.rig.tick(1.0))
        raise AssertionError(f"never run: {list(self.rig.engine.state.tasks)}")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("scheduler", io_scheduler_names())
def test_the_io_scheduler_is_told_of_all_that_matters(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IOReadySet, "propose", compared)

    class Machine(Notices):
        pass

    Machine.scheduler = scheduler
    run_state_machine_as_test(Machine, settings=settings(max_examples=20, stateful_step_count=40, deadline=None))
