"""Virtual time with a program that comes along: what it says, what the master needs, what executors cost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sim_rig import MB, SSD, node, simulate

from penstock.engine.engine import Engine
from penstock.engine.state import StorageRules
from penstock.errors import ConfigError
from penstock.model import commands, events
from penstock.model.data import Value
from penstock.model.resources import Node
from penstock.model.tasks import TaskCall, TaskSpec
from penstock.sim.simulation import make_engine
from penstock.sim.work import Costs, Work
from penstock.sim.workloads import Workload
from penstock.sim.world import World

SPEC = TaskSpec(0, "f")


def call(task: int, *reads: int) -> events.Submitted:
    return events.Submitted(TaskCall(task, SPEC, Value(b""), reads=reads, writes=(task,), returns=1))


def world(*nodes: Node, seconds: float = 1.0, **settings: Any) -> World:
    made = World(make_engine("fifo"), lambda launch: Work(seconds), **settings)
    for one in nodes or (node(),):
        made.join(one)
    return made


# --- a program ------------------------------------------------------------------------------------------------------


def test_time_stands_still_while_the_program_calls() -> None:
    settled: list[int] = []
    here = world(settled=lambda command: settled.append(command.version))
    for task in range(1, 5):
        here.tell(call(task))
    assert here.now == 0.0
    assert here.engine.unfinished == 4
    assert here.run_until(lambda: 3 in settled)
    assert here.now == 2.0
    assert settled == [1, 2, 3]
    here.tell(call(5))
    assert here.run_until(lambda: not here.engine.unfinished)
    assert here.now == 3.0


def test_what_will_never_happen_is_known() -> None:
    here = world()
    here.tell(call(1))
    assert not here.run_until(lambda: False)
    assert here.now == 1.0


def test_time_passes_as_far_as_it_is_let() -> None:
    here = world(seconds=2.0)
    here.tell(call(1))
    here.run_to(1.5)
    assert (here.now, here.engine.unfinished) == (1.5, 1)
    here.run_to(1.0)
    assert here.now == 1.5
    here.run_to(2.0)
    assert (here.now, here.engine.unfinished) == (2.0, 0)


def test_what_is_put_down_happens_after_all_else_at_that_time() -> None:
    here = world()
    here.tell(call(1))
    seen: list[int] = []
    here.at(1.0, lambda: seen.append(here.engine.unfinished))
    here.run_to(5.0)
    assert seen == [0]


def test_what_is_posted_waits_until_time_is_let_pass() -> None:
    here = world()
    here.post(call(1))
    assert not here.idle and here.engine.unfinished == 0
    assert here.run_until(lambda: here.idle)
    assert here.engine.unfinished == 1


def test_a_program_waits_while_the_master_deals_with_its_call() -> None:
    here = world(decision_seconds=0.25)
    for task in range(1, 4):
        here.tell(call(task))
        assert here.now == task * 0.25
    assert here.master.events == 1 + 3
    assert here.master.busy == 0.75


# --- the master -----------------------------------------------------------------------------------------------------


def tasks(count: int) -> Workload:
    workload = Workload()
    for _ in range(count):
        workload.task("f", seconds=1.0)
    return workload


def test_events_queue_while_the_master_decides() -> None:
    workload = Workload()
    for index in range(8):
        workload.task("f", seconds=10.0 - 0.25 * (index + 1))
    outcome = simulate(workload, node("n", 8), decision_seconds=0.25)
    # The calls are dealt with one after the other; all tasks end at 10 s, and so do their results queue.
    assert outcome.makespan == 10.0 + 8 * 0.25
    assert outcome.master.busy == 17 * 0.25  # the end of the program is an event too
    assert outcome.master.events == 1 + 17
    assert outcome.master.longest_queue == 7


def test_a_master_whose_decisions_cost_more_the_more_tasks_are_ready() -> None:
    def cost(engine: Engine) -> float:
        return 0.125 * len(engine.state.ready)

    outcome = simulate(tasks(4), node("n", 1), decision_seconds=cost)
    # Calls: nothing is left ready by the first, then 1, 2, 3 are; results at 1, …: 2, 1, 0, 0 are left.
    assert outcome.master.busy == 0.125 * (0 + 1 + 2 + 3 + 2 + 1)
    assert outcome.makespan == 1.0 + 0.25 + 1.0 + 0.125 + 1.0 + 1.0


def test_the_real_cost_of_decisions_may_be_measured() -> None:
    outcome = simulate(tasks(50), node("n", 1), decision_seconds="measured")
    assert outcome.done == 50
    assert 0 < outcome.master.busy < 5
    assert outcome.makespan > 50.0


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), float("nan"), "fast"])
def test_decisions_that_cannot_cost_that_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="decision_seconds"):
        world(decision_seconds=wrong)


def test_ready_tasks_that_wait_for_a_place_are_counted() -> None:
    workload = tasks(4)
    for index in range(2):
        workload.io_task("w", writes=[(f"/ssd/{index}", 100 * MB)], constraint=100)
    outcome = simulate(workload, node("n", 2, SSD))
    assert outcome.waiting.compute == 2 * 1.0
    assert outcome.waiting.io == 1.0


# --- what executors cost --------------------------------------------------------------------------------------------


def test_processes_take_time_to_start_and_tasks_to_be_sent_and_told_of() -> None:
    costs = Costs(start=2.0, first=0.25, told=0.5)
    outcome = simulate(tasks(2), node("n", 1), costs=costs)
    assert outcome.makespan == 2.0 + 0.25 + 1.0 + 0.5 + 0.25 + 1.0 + 0.5
    assert outcome.busy == {"n": 2.0}
    assert [event.seconds for _, event in outcome.log if isinstance(event, events.Finished)] == [1.0, 1.0]


def test_tasks_that_wait_on_their_lane_follow_at_once() -> None:
    workload = Workload()
    for _ in range(40):
        workload.task("f", seconds=0.001)
    costs = Costs(first=0.010, next=0.001, told=0.010)
    chained = simulate(workload, node("n", 1), costs=costs).makespan
    assert chained < 40 * 0.021 / 2
    assert chained > 40 * 0.002


def test_io_executors_start_with_their_first_task_and_cost_their_own() -> None:
    workload = Workload()
    workload.io_task("w", seconds=1.0)
    workload.io_task("w", seconds=1.0)
    outcome = simulate(workload, node("n", 1, executors=1), costs=Costs(start=50.0), io_costs=Costs(start=3.0))
    assert outcome.makespan == 3.0 + 2.0


def test_a_learning_phase_begins_when_its_executors_are_there() -> None:
    workload = Workload()
    for index in range(20):
        workload.io_task("w", writes=[(f"/ssd/{index}", 10 * MB)], constraint="auto(25,100,2)")
    here, rules = node("n", 1, SSD, executors=4), StorageRules(tuner="published")
    plain = simulate(workload, here, rules=rules)
    late = simulate(workload, here, rules=rules, io_costs=Costs(start=3.0, each=0.5))
    assert [epoch.tasks for epoch in late.epochs] == [epoch.tasks for epoch in plain.epochs] == [4, 2, 1]
    for with_start, without in zip(late.epochs, plain.epochs, strict=True):
        assert with_start.seconds == pytest.approx(without.seconds)
    assert late.makespan == pytest.approx(plain.makespan + 3.0 + 3 * 0.5)


def test_a_killed_worker_is_replaced_in_its_time() -> None:
    workload = Workload()
    workload.task("stuck", seconds=100.0, timeout=1.0)
    workload.task("f", seconds=1.0)
    outcome = simulate(workload, node("n", 1), costs=Costs(start=2.0, told=0.5))
    # The timeout runs from the launch: it is killed at 1 s, before its process was there; that is told at 1.5 s.
    assert outcome.makespan == 1.0 + 2.0 + 1.0 + 0.5


def test_costs_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="told=-1"):
        Costs(told=-1.0)


# --- who looks on ---------------------------------------------------------------------------------------------------


class Diary:
    """Notes what an observer is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []

    def event(self, event: events.Event, now: float) -> None:
        self.lines.append((now, type(event).__name__))

    def reports(self, now: float) -> None:
        self.lines.append((now, "reports"))

    def notes(self, now: float) -> None:
        self.lines.append((now, "notes"))

    def launched(self, command: commands.Launch, now: float) -> None:
        self.lines.append((now, f"launched {command.task}"))

    def fetched(self, task: int, attempt: int, seconds: float, size: int, now: float) -> None:
        self.lines.append((now, f"fetched {task} {seconds} {size}"))

    def moved(self, command: commands.Move, size: int, seconds: float, error: str, now: float) -> None:
        self.lines.append((now, f"moved {size} {seconds} {error}"))

    def published(self, version: int, path: str, now: float) -> None:
        self.lines.append((now, f"published {path}"))

    def draining(self, now: float) -> None:
        self.lines.append((now, "draining"))


def test_an_observer_is_told_everything_in_order() -> None:
    diary = Diary()
    workload = Workload()
    workload.io_task("w", writes=[("/home/x", 100 * MB)], constraint=10)
    workload.task("bad", seconds=0.5, fails=1.0)
    simulate(workload, node("n", 1, SSD), observer=diary)
    assert diary.lines == [
        (0.0, "NodeJoined"),
        (0.0, "Submitted"),
        (0.0, "launched 1"),
        (0.0, "Submitted"),
        (0.0, "launched 2"),
        (0.5, "Failed"),
        (0.5, "reports"),
        (1.0, "Finished"),
        (1.0, "Published"),
        (1.0, "published /home/x"),
        (1.0, "draining"),
        (1.0, "Draining"),
        (2.0, "Moved"),
        (2.0, "moved 100000000 1.0 "),
        (2.0, "Discarded"),
    ]


def test_an_observer_hears_of_data_from_other_nodes() -> None:
    from tests.unit.sim_rig import on

    from penstock.sim.network import Network

    diary = Diary()
    workload = Workload()
    made = workload.add("make", on("a"), makes=50 * MB, writes=[("/ssd/x", 50 * MB)])
    workload.add("use", on("b"), after=[made], reads=["/ssd/x"])
    simulate(workload, node("a", 1, SSD), node("b", 1, SSD), network=Network(100.0 * MB), observer=diary)
    assert [line for line in diary.lines if "fetched" in line[1]] == [(1.5, f"fetched 2 1.0 {100 * MB}")]


# --- the program of a workload --------------------------------------------------------------------------------------


def test_a_program_thinks_and_waits_between_its_calls() -> None:
    workload = Workload()
    first = workload.task("f", seconds=3.0)
    workload.task("f", seconds=1.0, steps=[1.0, first, 0.5])  # thinks while the first runs, then waits for it
    outcome = simulate(workload)
    assert outcome.makespan == 3.0 + 0.5 + 1.0
    called = [now for now, event in outcome.log if isinstance(event, events.Submitted)]
    assert called == [0.0, 3.5]


def test_a_program_goes_on_when_what_it_waits_for_failed() -> None:
    workload = Workload()
    bad = workload.task("bad", seconds=1.0, fails=1.0)
    workload.task("f", seconds=1.0, steps=[bad])
    assert simulate(workload).makespan == 2.0


def test_a_step_cannot_be_negative() -> None:
    with pytest.raises(ConfigError, match="a step=-1"):
        Workload().task("f", steps=[-1.0])
