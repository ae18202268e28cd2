"""The invariants must notice when something is wrong: each is broken here, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.engine_rig import BOOM, Rig, big, call, spec, writes_file

from penstock.engine.checks import check
from penstock.engine.state import State, VersionRecord
from penstock.errors import InternalError
from penstock.model.data import FileRef
from penstock.model.tasks import TaskState

QUICK = spec("quick")


@pytest.fixture
def rig() -> Rig:
    """One task in each state, a segment, and a file that waits for its name."""
    rig = Rig(lanes=2)
    rig.teach(QUICK, 0.001)
    rig.provide(20, FileRef("/file"))
    rig.provide(50, big(7))
    rig.submit(writes_file(5, 21, "/file"))
    rig.submit(call(1, slots=(20, 50)))  # running; reads the old version of the file
    rig.finish(5, FileRef("/private"))
    rig.submit(call(2, QUICK), call(3, QUICK))  # running and queued behind it
    rig.submit(call(4), call(6, slots=(101,)))  # ready and waiting
    states = [rig.state(task) for task in (1, 2, 3, 4, 6)]
    assert states == [TaskState.RUNNING, TaskState.RUNNING, TaskState.QUEUED, TaskState.READY, TaskState.WAITING]
    return rig


def break_free_cpus(state: State) -> None:
    state.ledger.nodes["n"].free_cpus += 1


def break_free_memory(state: State) -> None:
    state.ledger.nodes["n"].free_memory -= 1


def break_idle(state: State) -> None:
    node = state.ledger.nodes["n"]
    node.idle.append(node.lanes[0])


def break_open(state: State) -> None:
    state.ledger.open[state.ledger.nodes["n"]] = None


def break_holders(state: State) -> None:
    state.ledger.holders[77] = state.ledger.nodes["n"]


def break_queue(state: State) -> None:
    lane = state.tasks[3].lane
    assert lane is not None
    lane.queue.popleft()


def break_lane(state: State) -> None:
    state.tasks[1].lane = None


def break_heir(state: State) -> None:
    state.ledger.holders[3] = state.ledger.nodes["n"]


def break_backlogged(state: State) -> None:
    state.backlogged.clear()


def break_hungry(state: State) -> None:
    lane = state.tasks[1].lane
    assert lane is not None
    lane.dying = True
    state.hungry[lane] = None


def break_ready(state: State) -> None:
    state.ready.remove(state.tasks[4])


def break_missing(state: State) -> None:
    state.tasks[6].missing = 2


def break_waiters(state: State) -> None:
    state.versions[101].waiters = ()


def break_doom(state: State) -> None:
    state.tasks[6].doom = BOOM


def break_uses(state: State) -> None:
    state.versions[50].uses += 1


def break_lifetime(state: State) -> None:
    version = state.versions[99] = VersionRecord(99)
    version.outcome = big()
    version.held = False


def break_read_version(state: State) -> None:
    del state.versions[50]


def break_segments_high(state: State) -> None:
    state.segments[7] += 1


def break_segments_low(state: State) -> None:
    del state.segments[7]


def break_chain(state: State) -> None:
    del state.files["/file"][21]


def break_publication(state: State) -> None:
    state.versions[21].published = True


def break_scratch(state: State) -> None:
    state.versions[21].outcome = FileRef("/elsewhere")


def break_over(state: State) -> None:
    state.tasks[4].state = TaskState.DONE


BREAKS = [thing for name, thing in sorted(globals().items()) if name.startswith("break_")]


@pytest.mark.parametrize("break_it", BREAKS)
def test_each_broken_invariant_is_noticed(rig: Rig, break_it: Callable[[State], None]) -> None:
    check(rig.engine, rig.held)
    break_it(rig.engine.state)
    with pytest.raises(InternalError):
        check(rig.engine, rig.held)


def test_a_broken_task_is_told_with_its_story(rig: Rig) -> None:
    rig.engine.state.tasks[6].missing = 0
    with pytest.raises(InternalError, match=r"task f#6, WAITING, counts 0 missing versions of 1; its story:"):
        check(rig.engine)
    rig.engine.state.tasks[6].missing = 1
    rig.engine.state.tasks[2].state = TaskState.QUEUED
    with pytest.raises(InternalError, match="READY → RUNNING"):
        check(rig.engine)
