"""The segment store in the engine: what is spilled when, what tasks wait for, and what moves hold of devices."""

from __future__ import annotations

import time

from tests.unit.engine_rig import Rig, big, call, launched, spec, updates, value
from tests.unit.storage_rig import io

from penstock.engine.engine import Engine
from penstock.engine.segment_store import StoreRules
from penstock.model.commands import Command, Divert, Free, Launch, Restore, Spill
from penstock.model.data import Piece, Value
from penstock.model.events import Discarded, NodeJoined, Restored, Spilled
from penstock.model.resources import Node, StorageLayer
from penstock.model.tasks import TaskState
from penstock.scheduling.compute import Fifo
from penstock.scheduling.ready_queues import ReadyQueues

MB = 1 << 20
DISK = StorageLayer("disk", "/disk", 80.0, 5 * MB)


class SmallRig(Rig):
    """One node with one layer; segments are of a megabyte each."""

    def __init__(self, capacity: int = 2, *, lanes: int = 2, layer: StorageLayer = DISK, **rules: object) -> None:
        super().__init__(lanes=0)
        self.engine = Engine(ReadyQueues(Fifo()), store=StoreRules(capacity * MB, **rules))  # type: ignore[arg-type]
        self.tell(NodeJoined(Node("n", lanes, 0, (), (layer,), 4)))

    @property
    def store(self):  # type: ignore[no-untyped-def]
        return self.engine.state.store

    @property
    def disk(self):  # type: ignore[no-untyped-def]
        return self.engine.state.ledger.devices()[0]

    def make(self, *numbers: int) -> list[Command]:
        """Versions 50,000 + n that the program holds, each in segment n."""
        return [command for number in numbers for command in self.provide(50_000 + number, big(number))]

    def spilled(self, segment: int, error: str = "", *, lost: bool = False) -> list[Command]:
        return self.tell(Spilled(segment, error, lost))

    def restored(self, segment: int, error: str = "", *, lost: bool = False) -> list[Command]:
        return self.tell(Restored(segment, error, lost))

    def spill_all(self, commands: list[Command]) -> None:
        """Let spills that were asked for, and those that follow, come to their end."""
        pending = moves(commands)
        for command in pending:
            assert isinstance(command, Spill)
            pending += moves(self.spilled(command.segment))


def moves(commands: list[Command]) -> list[Spill | Restore]:
    return [command for command in commands if isinstance(command, Spill | Restore)]


def test_nothing_is_spilled_below_the_capacity() -> None:
    rig = SmallRig()
    assert not moves(rig.make(1, 2))


def test_what_was_idle_for_longest_goes_first_and_no_more_than_needed() -> None:
    rig = SmallRig()
    rig.make(1, 2)
    rig.submit(call(1, slots=(50_001,)))
    rig.finish(1)  # segment 1 was used last
    assert moves(rig.make(3)) == [Spill(2, "", MB)]
    assert moves(rig.make(4)) == [Spill(1, "", MB)]
    assert not moves(rig.make(5))  # two at a time
    assert moves(rig.spilled(2)) == [Spill(3, "", MB)]


def test_spills_to_the_layers_in_order_while_they_have_room() -> None:
    rig = SmallRig(1, places=("disk", ""), layer=StorageLayer("disk", "/disk", 80.0, MB))
    rig.spill_all(rig.make(1, 2, 3))
    assert rig.disk.stored == MB
    assert [rig.store.records[n].device for n in (1, 2, 3)] == [rig.disk, None, None]


def test_a_move_holds_an_eighth_of_the_bandwidth_and_gives_it_back() -> None:
    rig = SmallRig(1, places=("disk",))
    rig.make(1, 2, 3)
    assert rig.disk.free_bandwidth == 60.0
    rig.spilled(1)
    rig.spilled(2)
    assert rig.disk.free_bandwidth == 80.0
    assert rig.disk.stored == 2 * MB


def test_a_move_takes_what_is_left_and_waits_when_nothing_is() -> None:
    rig = SmallRig(1, places=("disk",))
    rig.submit(call(1, io("a", bw=75 / 1e6)))
    assert moves(rig.make(1, 2)) == [Spill(1, "disk", MB)]
    assert rig.disk.free_bandwidth == 0.0
    assert not moves(rig.make(3))
    assert moves(rig.spilled(1)) == [Spill(2, "disk", MB)]
    rig.finish(1)
    assert rig.disk.free_bandwidth == 75.0


def test_moves_go_before_io_tasks_that_wait() -> None:
    rig = SmallRig(1, places=("disk",))
    rig.submit(call(1, io("a", bw=80 / 1e6)), call(2, io("b", bw=80 / 1e6)))
    rig.make(1, 2)
    commands = rig.finish(1)
    assert moves(commands) == [Spill(1, "disk", MB)]
    assert launched(commands) == []
    assert launched(rig.spilled(1)) == [2]


def test_a_task_waits_until_what_it_reads_is_restored() -> None:
    rig = SmallRig()
    rig.spill_all(rig.make(1, 2, 3))
    assert moves(rig.submit(call(1, slots=(50_001,)))) == [Spill(2, "", MB)]  # room first
    assert rig.state(1) is TaskState.WAITING
    assert moves(rig.spilled(2)) == [Restore(1, "", MB)]
    assert rig.state(1) is TaskState.WAITING
    assert launched(rig.restored(1)) == [1]


def test_a_restore_from_a_layer_is_charged_and_frees_its_room() -> None:
    rig = SmallRig(1, places=("disk",))
    rig.spill_all(rig.make(1, 2))
    rig.submit(call(1, slots=(50_001,)))
    rig.spilled(2)
    assert rig.disk.free_bandwidth == 70.0
    rig.restored(1)
    assert rig.disk.free_bandwidth == 80.0
    assert rig.disk.stored == MB


def test_a_segment_that_memory_has_no_room_for_is_read_where_it_lies() -> None:
    rig = SmallRig(1)
    rig.spill_all(rig.make(1, 2))
    rig.submit(updates(1, 50_001, 111))
    rig.release(50_001)
    rig.spilled(2)
    [launch] = [c for c in rig.restored(1, "No space left on device") if isinstance(c, Launch)]
    assert launch.in_place == ()  # its checksum would be wrong
    assert rig.store.pinned == 0
    rig.finish(1, big(9))
    assert 1 not in rig.store.records


def test_a_restored_segment_may_be_changed_in_place() -> None:
    rig = SmallRig(1)
    rig.spill_all(rig.make(1, 2))
    rig.submit(updates(1, 50_001, 111))
    rig.release(50_001)
    rig.spilled(2)
    [launch] = [c for c in rig.restored(1) if isinstance(c, Launch)]
    assert launch.in_place == (0,)


def test_inputs_beyond_the_capacity_are_restored_as_far_as_it_goes() -> None:
    rig = SmallRig()
    rig.spill_all(rig.make(1, 2, 3, 4, 5))
    commands = rig.submit(call(1, slots=(50_001, 50_002, 50_003, 50_004, 50_005)))
    # 4 and 5 lie in memory and fill it: the others are read on disk.
    assert moves(commands) == []
    assert launched(commands) == [1]


def test_no_more_is_admitted_than_memory_holds() -> None:
    rig = SmallRig(2, lanes=8)
    rig.spill_all(rig.make(1, 2, 3, 4))
    for number in range(1, 5):
        rig.submit(call(number, slots=(50_000 + number,)))
    pending = [n for n in range(1, 5) if rig.state(n) is TaskState.WAITING]
    assert len(rig.store.needs) == 2
    assert len(rig.store.parked) == 2
    assert len(pending) == 4 - sum(rig.state(n) is TaskState.RUNNING for n in range(1, 5))


def test_those_with_priority_are_admitted_first() -> None:
    rig = SmallRig(1, lanes=1)
    rig.spill_all(rig.make(1, 2, 3))
    rig.submit(call(1, slots=(50_003,)))
    rig.submit(call(2, slots=(50_001,)), call(3, spec("urgent", priority=1), slots=(50_002,)))
    assert list(rig.store.parked) == [2, 3]
    commands = rig.finish(1)
    assert moves(commands) == [Spill(3, "", MB)]
    assert list(rig.store.parked) == [2]


def test_what_parked_tasks_need_last_is_spilled_first() -> None:
    rig = SmallRig(3, lanes=1)
    rig.make(1, 2, 3)
    rig.submit(call(1, slots=(50_001,)), call(2, slots=(50_002, 50_003)))
    commands = rig.make(4)  # nobody wants 4
    assert moves(commands) == [Spill(4, "", MB)]


def test_a_task_cancelled_while_it_waits_for_a_restore_leaves_no_trace() -> None:
    rig = SmallRig(1, places=("disk",))
    rig.spill_all(rig.make(1, 2))
    rig.submit(call(1, slots=(50_001,)))
    rig.spilled(2)
    rig.cancel(1)
    assert rig.state(1) is None
    assert not moves(rig.restored(1))
    assert list(rig.store.idle) == [1]
    assert rig.store.pinned == 0


def test_a_parked_task_that_is_cancelled_lets_the_next_in() -> None:
    rig = SmallRig(1, lanes=1)
    rig.make(1)
    rig.submit(call(1, slots=(50_001,)))
    rig.make(2)
    rig.submit(call(2, slots=(50_002,)))
    assert list(rig.store.parked) == [2]
    rig.cancel(2)
    assert not rig.store.parked
    assert rig.store.records[2].parked == 0


def test_a_segment_freed_while_it_is_moved_goes_when_that_is_over() -> None:
    rig = SmallRig(1, places=("disk",))
    rig.make(1, 2)
    assert not [c for c in rig.release(50_001) if isinstance(c, Free)]
    [free] = [c for c in rig.spilled(1) if isinstance(c, Free)]
    assert free == Free(1, MB, True)
    assert rig.disk.stored == MB
    rig.tell(Discarded("s1"))
    assert rig.disk.stored == 0


def test_a_place_that_refused_is_not_asked_again_for_a_while() -> None:
    rig = SmallRig(1)
    rig.make(1, 2)
    assert not moves(rig.spilled(1, "No space left on device"))
    assert not moves(rig.tick(1.0))
    assert moves(rig.tick(5.0)) == [Spill(2, "", MB)]


def test_far_above_the_capacity_new_segments_go_to_disk_and_back_again() -> None:
    rig = SmallRig(2)
    assert [c for c in rig.make(1, 2, 3) if isinstance(c, Divert)] == []
    assert [c for c in rig.make(4) if isinstance(c, Divert)] == [Divert(True)]
    assert [c for c in rig.spilled(1) if isinstance(c, Divert)] == [Divert(False)]


def test_a_segment_spilled_as_it_was_written_counts_where_it_is() -> None:
    rig = SmallRig(2, direct="disk")
    rig.provide(50_001, Value(b"stream", [Piece(1, True, 0, MB)]))
    assert rig.store.used == 0
    assert rig.disk.stored == MB
    assert moves(rig.submit(call(1, slots=(50_001,)))) == [Restore(1, "disk", MB)]


def test_tasks_without_segments_never_meet_the_store() -> None:
    rig = SmallRig(1)
    rig.make(1, 2, 3)
    rig.provide(200, value("x"))
    rig.submit(call(1, slots=(200,)))
    assert rig.state(1) is TaskState.RUNNING
    assert not rig.store.needs


def test_a_worker_killed_while_it_reads_keeps_its_segments_in_memory() -> None:
    rig = SmallRig(1, lanes=1)
    rig.make(1)
    rig.submit(call(1, slots=(50_001,)))
    rig.make(2)
    assert 1 not in rig.store.idle
    rig.lose_worker(0)
    assert rig.state(1) is TaskState.RUNNING
    assert rig.attempt(1) == 2


def test_a_decision_costs_the_same_however_many_segments_there_are() -> None:
    def seconds(segments: int) -> float:
        rig = SmallRig(1)
        rig.checking = False
        began = time.perf_counter()
        rig.spill_all(rig.make(*range(1, segments)))
        for number in range(1, segments):
            rig.submit(call(number, slots=(50_000 + number,)))
        return (time.perf_counter() - began) / segments

    seconds(100)
    assert seconds(10_000) < 5 * seconds(1000)


def test_a_segment_that_is_damaged_on_disk_is_computed_again() -> None:
    rig = SmallRig(1)
    rig.submit(call(1))
    rig.finish(1, big(1))
    rig.spill_all(rig.make(2))
    rig.submit(call(2, slots=(101,)))
    rig.spilled(2)
    commands = rig.restored(1, "its checksum is wrong", lost=True)
    assert launched(commands) == [1]
    assert Free(1, MB) in commands
    assert rig.state(2) is TaskState.WAITING
    assert launched(rig.finish(1, big(3))) == [2]
    assert rig.store.pinned == MB


def test_a_segment_that_is_gone_from_memory_is_computed_again() -> None:
    rig = SmallRig(1)
    rig.submit(call(1))
    rig.finish(1, big(1))
    assert moves(rig.make(2)) == [Spill(1, "", MB)]
    assert launched(rig.spilled(1, "it is gone", lost=True)) == [1]
