"""Layers that other programs use too: the engine asks, keeps within its part, and takes nothing back from attempts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.unit.storage_rig import FAST, MB, SLOW, StorageRig, io, writes

from penstock.engine import crowding
from penstock.engine.devices import DeviceRecord
from penstock.model.commands import Claim, Command, Launch
from penstock.model.events import BudgetChanged, LayerShared, Submitted, Ticked
from penstock.model.resources import Auto, StorageLayer
from penstock.model.tasks import TaskSpec
from penstock.tuning.registry import Delivered, Delivery


@dataclass
class Shared:
    """One node with layers that are shared with other programs."""

    rig: StorageRig
    count: int = 0

    def tell(self, mbs: float, layer: str = "fast", **fields: object) -> list[Command]:
        return self.rig.tell(BudgetChanged(layer, mbs * MB, **fields))  # type: ignore[arg-type]

    def call(self, of: TaskSpec) -> list[Command]:
        self.count += 1
        return self.rig.tell(Submitted(writes(self.count, f"/home/{self.count}", of)))

    def device(self, name: str = "fast") -> DeviceRecord:
        return next(one for one in self.rig.engine.state.ledger.devices() if one.name == name)


def shared(*layers: StorageLayer, executors: int = 8, lanes: int = 1, **rules: object) -> Shared:
    one = Shared(StorageRig(*layers, executors=executors, lanes=lanes, **rules))
    for layer in layers or (FAST, SLOW):
        one.tell(0, layer.name, closed=True)
    return one


def launched(commands: list[Command]) -> list[int]:
    return [command.task for command in commands if type(command) is Launch]


def test_a_layer_is_claimed_once_before_anything_begins_on_it_or_below() -> None:
    one = shared()
    assert one.call(io(bw=10)) == [Claim("fast")]
    assert one.call(io(bw=10)) == []
    commands = one.tell(100)
    assert launched(commands) == [1, 2]
    assert {command.layer for command in commands if type(command) is Launch} == {"fast"}


def test_a_lower_layer_is_claimed_when_the_higher_one_has_no_room() -> None:
    one = shared()
    one.call(io(bw=60))
    one.tell(100)
    assert launched(one.call(io(bw=40))) == [2]
    assert Claim("slow") in one.call(io(bw=10))
    assert launched(one.tell(40, "slow")) == [3]


def test_what_attempts_hold_is_given_up_when_they_end() -> None:
    one = shared(FAST)
    one.call(io(bw=40))
    one.tell(100)
    one.call(io(bw=40))
    device = one.device()
    one.tell(50, others=1)
    assert (device.others, device.owed, device.free_bandwidth) == (20 * MB, 30 * MB, 0)
    assert launched(one.call(io(bw=40))) == []
    assert launched(one.rig.wrote(1)) == []
    assert (device.others, device.owed, device.free_bandwidth) == (50 * MB, 0, 10 * MB)
    assert launched(one.rig.wrote(2)) == [3]
    assert launched(one.call(io(bw=40))) == []
    assert launched(one.tell(100)) == [4]
    assert device.others == 0


def test_a_part_ends_with_its_time() -> None:
    one = shared(FAST)
    one.call(io(bw=40))
    one.tell(100, until=one.rig.now + 10)
    one.rig.now += 11
    one.rig.tell(Ticked())
    assert launched(one.call(io(bw=40))) == []
    assert one.device().free_bandwidth == 0
    one.rig.wrote(1)
    assert launched(one.tell(100, until=one.rig.now + 10)) == [2]


def test_it_is_noted_when_other_programs_come_and_go() -> None:
    one = shared()
    one.tell(100)
    one.tell(50, others=1)
    one.tell(40, others=1)
    one.tell(30, others=2)
    one.tell(0, closed=True)
    noted = [note for note in one.rig.engine.state.notes if isinstance(note, LayerShared)]
    assert [(note.layer, note.others, note.bandwidth) for note in noted] == [
        ("fast", 1, 50 * MB),
        ("fast", 2, 30 * MB),
        ("fast", 0, 0),
    ]


def test_the_smaller_of_room_and_part_counts() -> None:
    one = shared(StorageLayer("fast", "/fast", 100 * MB, 100))
    one.call(io(bw=1, size=60))
    assert launched(one.tell(100, room=50, others=1)) == []
    assert launched(one.tell(100, room=60, others=1)) == [1]
    assert one.device().free_capacity == 0
    assert launched(one.tell(100, room=1000)) == []
    assert one.device().free_capacity == 40


def test_nobody_is_refused_for_want_of_what_other_programs_have() -> None:
    one = shared(FAST)
    one.call(io(bw=40))
    one.tell(0, others=1)
    for _ in range(5):
        one.rig.now += crowding.GRACE
        assert one.rig.tell(Ticked()) == []
    assert launched(one.tell(40, others=1)) == [1]


def known(best: int) -> dict[tuple[str, str], Delivery]:
    """What an earlier run has seen the first layer deliver."""
    curve = (Delivered(best, FAST.bandwidth, 0.01),)
    return {("writes", "fast"): Delivery("writes", "fast", FAST.bandwidth, 8, best, curve, True, 0.01, 50)}


def test_learned_constraints_have_their_part_of_the_limit_and_learn_nothing_meanwhile() -> None:
    one = shared(FAST, deliveries=known(6))
    for _ in range(20):
        one.call(io(auto=Auto()))
    alone = len(launched(one.tell(100)))
    device = one.device()
    assert device.controller is not None
    limit = device.controller.limit
    one.tell(50, others=1)
    assert device.controller.reading_at is None
    assert sum(task.bandwidth for task in device.holders.values()) <= 50 * MB
    for task in list(device.holders):
        one.rig.wrote(task, size=1000)
    assert device.controller.limit == limit
    assert len(device.holders) == limit // 2 == 3 < alone


def test_before_anything_is_learned_as_many_run_beside_others_as_there_are_cores() -> None:
    one = shared(FAST, lanes=3)
    for _ in range(20):
        one.call(io(auto=Auto()))
    for _ in range(5):
        one.tell(50, others=1)
        device = one.device()
        assert len(device.holders) == 3
        assert sum(task.bandwidth for task in device.holders.values()) <= 50 * MB
        for task in list(device.holders):
            one.rig.wrote(task, size=1000)


@pytest.mark.parametrize("bw", [10, 100])
def test_what_is_used_is_what_is_said(bw: int) -> None:
    one = shared(FAST)
    assert not one.rig.engine.usage("fast").busy
    one.call(io(bw=bw, size=5))
    usage = one.rig.engine.usage("fast")
    assert (usage.busy, usage.holds, usage.wants, usage.need) == (True, 0, bw * MB, bw * MB)
    one.tell(100)
    usage = one.rig.engine.usage("fast")
    assert (usage.holds, usage.wants, usage.need, usage.room) == (bw * MB, bw * MB, 0, 5)
    one.rig.wrote(1, size=3)
    usage = one.rig.engine.usage("fast")
    assert (usage.busy, usage.holds, usage.room) == (False, 0, 3)
