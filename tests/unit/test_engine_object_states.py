"""What the engine knows of persistent objects: who refers to which state, and where objects lie."""

from __future__ import annotations

from tests.unit.engine_rig import BOOM, Rig, call, spec, updates

from penstock.model.commands import Command, DropState, Launch
from penstock.model.data import Value
from penstock.model.events import Provided
from penstock.model.tasks import OnFailure
from penstock.scheduling.compute import Locality
from penstock.scheduling.ready_queues import ReadyQueues


def refers(*states: str) -> Value:
    return Value(b"reference", states=list(states))


def dropped(commands: list[Command]) -> list[str]:
    return [command.state for command in commands if isinstance(command, DropState)]


def test_a_state_is_dropped_when_its_last_reader_is_done() -> None:
    rig = Rig(lanes=3)
    rig.provide(1, refers("x\n0"))
    rig.submit(call(1, slots=(1,)), updates(2, 1, 2))
    assert dropped(rig.release(1)) == []
    assert dropped(rig.finish(2, refers("x\n1"))) == []
    assert dropped(rig.finish(1)) == ["x\n0"]
    assert dropped(rig.release(2)) == ["x\n1"]


def test_a_state_that_two_versions_refer_to_is_dropped_once_and_last() -> None:
    rig = Rig()
    rig.provide(1, refers("x\n0", "y\n0"))
    rig.provide(2, refers("x\n0"))
    assert dropped(rig.release(1)) == ["y\n0"]
    assert dropped(rig.release(2)) == ["x\n0"]


def test_a_failure_that_is_ignored_keeps_the_old_state() -> None:
    rig = Rig()
    rig.provide(1, refers("x\n0"))
    rig.submit(updates(1, 1, 2, spec("g", on_failure=OnFailure.IGNORE)))
    rig.release(1)
    assert dropped(rig.fail(1, BOOM)) == []
    assert dropped(rig.release(2)) == ["x\n0"]


def test_an_early_output_holds_its_state() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(1, 2), returns=2))
    rig.hand_over(1, 0, refers("x\n0"))
    rig.finish(1, None, refers("y\n0"))
    assert dropped(rig.release(1)) == ["x\n0"]
    assert dropped(rig.release(2)) == ["y\n0"]


def test_a_task_goes_where_most_of_its_objects_lie() -> None:
    rig = Rig(ready=ReadyQueues(Locality()), lanes=0, follows_data=True)
    rig.join("a", 1)
    rig.join("b", 1)
    rig.tell(Provided(1, refers("x\n0"), {"b": 1000, "a": 10}))
    rig.tell(Provided(2, refers("y\n0"), {"a": 500}))
    [launch] = [command for command in rig.submit(call(1, slots=(1, 2))) if isinstance(command, Launch)]
    assert launch.node == "b"
