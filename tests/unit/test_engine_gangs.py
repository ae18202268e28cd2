"""Gangs: tasks of several processes, on one node or several, all at once or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.engine_rig import Rig, call, failure_of, launched, spec

from penstock.engine import gangs
from penstock.engine.checks import check
from penstock.engine.nodes import Kept, NodeRecord
from penstock.engine.reservations import Reservation
from penstock.engine.state import State
from penstock.errors import ConstraintError, InternalError
from penstock.model.commands import Command, Kill, Launch
from penstock.model.events import WorkerLost
from penstock.model.resources import Requirements
from penstock.model.tasks import FailureKind, TaskSpec, TaskState


def gang(processes: int, cpus: int = 1, name: str = "gang", **fields: int) -> TaskSpec:
    return spec(name, requirements=Requirements(cpus, processes=processes, **fields))


def hosts(commands: list[Command]) -> dict[int, tuple[tuple[str, int], ...]]:
    return {command.task: command.hosts for command in commands if type(command) is Launch}


def cluster(*cpus: int, memory: int = 0) -> Rig:
    rig = Rig(lanes=0)
    for index, count in enumerate(cpus):
        rig.join(f"n{index}", count, memory)
    return rig


def free(rig: Rig) -> list[int]:
    return [node.free_cpus for node in rig.engine.state.ledger.nodes.values()]


def test_a_gang_is_spread_over_as_few_nodes_as_possible() -> None:
    rig = cluster(2, 8, 4, 2)
    commands = rig.submit(call(1, gang(13)))
    assert hosts(commands) == {1: (("n1", 8), ("n2", 4), ("n0", 1))}
    [launch] = [command for command in commands if type(command) is Launch]
    assert launch.node == "n1"
    assert free(rig) == [1, 0, 0, 2]


def test_a_single_task_has_no_hosts() -> None:
    assert hosts(cluster(2).submit(call(1))) == {1: ()}


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        (Requirements(3, processes=4), (("n0", 2), ("n1", 2))),
        (Requirements(1, 40, processes=4), (("n0", 2), ("n1", 2))),
        (Requirements(1, processes=4, processes_per_node=2), (("n0", 2), ("n1", 2))),
        (Requirements(1, processes=3, processes_per_node=1), (("n0", 1), ("n1", 1), ("n2", 1))),
    ],
)
def test_units_memory_and_the_limit_per_node_all_count(
    need: Requirements, expected: tuple[tuple[str, int], ...]
) -> None:
    rig = cluster(8, 8, 8, memory=100)
    assert hosts(rig.submit(call(1, spec("gang", requirements=need)))) == {1: expected}


def test_a_gang_waits_until_all_its_processes_fit_and_holds_nothing_meanwhile() -> None:
    rig = cluster(2, 2)
    rig.submit(call(1), call(2))
    assert launched(rig.submit(call(3, gang(4)))) == []
    assert launched(rig.submit(call(4))) == [4]  # it holds up nobody
    for task in (1, 2):
        assert launched(rig.finish(task)) == []
    assert launched(rig.finish(4)) == [3]
    assert free(rig) == [0, 0]


def test_what_a_gang_held_is_given_back_on_all_its_nodes() -> None:
    rig = cluster(2, 2)
    rig.submit(call(1, gang(3)), call(2, gang(4)))
    assert launched(rig.submit(call(3), call(4))) == [3]
    assert launched(rig.finish(1)) == [4]
    rig.finish(3)
    assert hosts(rig.finish(4)) == {2: (("n0", 2), ("n1", 2))}
    rig.finish(2)
    for task in (1, 2, 3, 4):
        rig.release(100 + task)
    assert rig.empty


def test_a_failed_gang_gives_back_and_is_tried_again_if_its_worker_died() -> None:
    rig = cluster(2, 2)
    rig.submit(call(1, gang(4)))
    commands = rig.tell(WorkerLost("n0", 0, "killed by SIGKILL"))
    assert hosts(commands) == {1: (("n0", 2), ("n1", 2))}
    assert rig.attempt(1) == 2
    assert failure_of(rig.fail(1), 101).kind is FailureKind.EXCEPTION
    assert free(rig) == [2, 2]


def test_gangs_and_others_start_in_the_order_of_priority_and_age() -> None:
    rig = cluster(2, 2)
    rig.submit(call(1, gang(4)))
    rig.submit(call(2), call(3, gang(4)), call(4), call(5, gang(4, name="urgent")), call(6))
    assert launched(rig.finish(1)) == [2, 4, 6]
    rig = cluster(2, 2)
    rig.submit(call(1, gang(4)))
    urgent = spec("urgent", requirements=Requirements(1, processes=3), priority=1)
    rig.submit(call(2), call(3, gang(3)), call(4, urgent))
    assert launched(rig.finish(1)) == [4, 2]
    rig.submit(call(5))
    assert launched(rig.finish(2)) == [5]  # of the gang, not enough would be free
    rig.finish(5)
    assert launched(rig.finish(4)) == [3]


def test_gangs_are_not_sent_ahead() -> None:
    rig = cluster(2)
    quick = gang(2, name="quick")
    rig.submit(call(1, quick))
    rig.finish(1, seconds=0.0001)
    rig.submit(call(2, quick), call(3, quick))
    assert (rig.state(2), rig.state(3)) == (TaskState.RUNNING, TaskState.READY)
    assert launched(rig.finish(2, seconds=0.0001)) == [3]


# --- lost nodes -------------------------------------------------------------------------------------------------------


def test_the_loss_of_any_of_its_nodes_ends_the_attempt() -> None:
    rig = cluster(2, 2, 2)
    rig.submit(call(1, gang(4)))
    commands = rig.lose_node("n1")
    assert commands == [Kill("n0", 0)]
    assert free(rig) == [0, 2]  # its other processes may still be there
    commands = rig.tell(WorkerLost("n0", 0, "killed by SIGKILL"))
    assert hosts(commands) == {1: (("n0", 2), ("n2", 2))}
    assert rig.attempt(1) == 2
    [report] = rig.engine.state.reports
    assert "node n1 was lost" in report.failure.message


def test_the_loss_of_the_node_of_its_lane_ends_it_at_once() -> None:
    rig = cluster(2, 2, 2)
    rig.submit(call(1, gang(4)))
    assert hosts(rig.lose_node("n0")) == {1: (("n1", 2), ("n2", 2))}


def test_a_gang_that_ends_before_it_is_killed_has_delivered() -> None:
    rig = cluster(2, 2)
    rig.submit(call(1, gang(4)), call(2))
    assert rig.lose_node("n1") == [Kill("n0", 0)]
    rig.finish(1)
    assert rig.state(1) is None
    assert launched(rig.tell(WorkerLost("n0", 0, "killed by SIGKILL"))) == []
    assert (rig.state(2), free(rig)) == (TaskState.RUNNING, [1])


def test_a_gang_that_fits_no_more_when_a_node_is_lost_fails() -> None:
    rig = cluster(2, 2)
    rig.submit(call(1, gang(4)), call(2, gang(3)))
    commands = rig.lose_node("n1")
    assert failure_of(commands, 102).kind is FailureKind.UNPLACEABLE
    commands = rig.tell(WorkerLost("n0", 0, "killed by SIGKILL"))
    assert rig.state(1) is None
    assert failure_of(commands, 101).kind is FailureKind.UNPLACEABLE


def test_a_blocked_gang_starts_when_enough_nodes_have_joined() -> None:
    rig = cluster(2, 2)
    rig.engine.state.elastic = True
    rig.submit(call(1, gang(4)))
    rig.lose_node("n0")
    assert rig.engine.blocked() == ["gang#1"]
    assert launched(rig.join("m", 1)) == []
    assert hosts(rig.join("o", 1)) == {1: (("n1", 2), ("m", 1), ("o", 1))}


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_gang_that_no_nodes_can_hold_is_refused_and_the_largest_named() -> None:
    rig = cluster(4, 8)
    rig.engine.ensure_possible("f", Requirements(2, processes=6))
    with pytest.raises(
        ConstraintError, match=r"f requires 7 processes at once, each with computing_units=2, .*room for 6"
    ):
        rig.engine.ensure_possible("f", Requirements(2, processes=7))
    with pytest.raises(ConstraintError, match=r"at most 1 to a node.*room for 2, the largest, 'n\d', for 1"):
        rig.engine.ensure_possible("f", Requirements(2, processes=3, processes_per_node=1))
    with pytest.raises(ConstraintError, match="computing_units=9, which no node can ever give: the largest, 'n1'"):
        rig.engine.ensure_possible("f", Requirements(9, processes=2))


# --- alternatives -----------------------------------------------------------------------------------------------------


def test_a_gang_among_other_implementations_must_fit_one_node() -> None:
    rig = cluster(2, 3)
    team, alone = gang(3, name="team"), spec("alone", requirements=Requirements(4))
    either = Requirements(4, or_else=(team.requirements,))
    either_spec = spec("alone", requirements=either, implementations=(alone, team))
    rig.engine.ensure_possible("alone", either)
    assert hosts(rig.submit(call(1, either_spec))) == {1: (("n1", 3),)}
    rig.submit(call(2, either_spec))
    assert hosts(rig.finish(1)) == {2: (("n1", 3),)}
    rig.finish(2)
    assert free(rig) == [2, 3]


# --- the invariants notice what is wrong ------------------------------------------------------------------------------


def break_share(state: State) -> None:
    first, (node, processes) = state.ledger.gangs[1]
    state.ledger.gangs[1] = [first, (node, processes - 1)]


def break_processes(state: State) -> None:
    first, (node, _) = state.ledger.gangs[1]
    state.ledger.gangs[1] = [first]
    node.free_cpus += 1
    node.guests.clear()


def break_guests(state: State) -> None:
    state.ledger.nodes["n1"].guests.clear()


def break_order(state: State) -> None:
    state.ledger.gangs[1].reverse()


def break_gangs(state: State) -> None:
    state.ledger.gangs[2] = []


def break_kept(state: State) -> None:
    state.ledger.nodes["n1"].kept = Kept(Requirements(), 1)


def break_reservation(state: State) -> None:
    state.reservations.current = Reservation(Requirements(), [(state.ledger.nodes["n1"], 1)])


BREAKS = [break_share, break_processes, break_guests, break_order, break_gangs, break_kept, break_reservation]


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda breaks: breaks.__name__)
def test_the_invariants_notice(breaks: Callable[[State], None]) -> None:
    rig = cluster(2, 2)
    rig.submit(call(1, gang(3)), call(2))
    check(rig.engine)
    breaks(rig.engine.state)
    with pytest.raises(InternalError):
        check(rig.engine)


# --- cost -------------------------------------------------------------------------------------------------------------


def test_a_gang_that_does_not_fit_does_not_look_at_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = cluster(*[2] * 200)
    rig.checking = False
    asked: list[str] = []
    ask = NodeRecord.room_for

    def counted(node: NodeRecord, need: Requirements) -> int:
        asked.append(node.name)
        return ask(node, need)

    monkeypatch.setattr(NodeRecord, "room_for", counted)
    rig.submit(call(1), call(2, gang(400)))
    assert len(asked) >= 200
    asked.clear()
    for task in range(3, 103):
        rig.submit(call(task))
    assert len(asked) <= 300
    for task in range(3, 103):
        rig.finish(task)
    asked.clear()
    assert launched(rig.finish(1)) == [2]
    assert len(asked) <= 10
    assert len(hosts(rig.submit(call(900)))) == 0


def test_the_room_of_kinds_without_gangs_is_kept_for_a_few_of_them() -> None:
    rig = cluster(8, 8)
    for task in range(1, 50):
        rig.submit(call(task, gang(2 + task % 12)))
        rig.finish(task)
    assert len(rig.engine.state.gangs._kinds) <= gangs._KEPT + 1
