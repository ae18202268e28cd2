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


def diversions(commands: list[Command]) -> list[Divert]:
    return [command for command in commands if isinstance(command, Divert)]


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
    assert diversions(rig.make(1, 2, 3)) == []
    assert diversions(rig.make(4)) == [Divert(True)]
    assert diversions(rig.spilled(1)) == [Divert(False)]


def test_new_segments_do_not_go_to_a_disk_that_takes_none() -> None:
    rig = SmallRig(2)
    assert diversions(rig.make(1, 2, 3, 4)) == [Divert(True)]
    assert diversions(rig.spilled(1, "No space left on device")) == [Divert(False)]
    assert diversions(rig.make(5, 6)) == []
    rig.spilled(2, "Input/output error")
    rig.tick(6.0)  # it is tried again after a while
    assert diversions(rig.make(7)) == [Divert(True)]


def test_new_segments_go_to_disk_again_when_something_there_is_deleted() -> None:
    rig = SmallRig(1)
    rig.spill_all(rig.make(1, 2))
    rig.make(3, 4)
    assert diversions(rig.spilled(2) + rig.spilled(3, "No space left on device")) == [Divert(False)]
    assert diversions(rig.make(5)) == []
    assert diversions(rig.release(50_001)) == [Divert(True)]


def test_new_segments_do_not_go_to_a_layer_whose_room_is_used_up() -> None:
    rig = SmallRig(1, places=("disk",), direct="disk", layer=StorageLayer("disk", "/disk", 80.0, MB))
    rig.spill_all(rig.make(1, 2))
    assert diversions(rig.make(3, 4, 5)) == []


def test_a_segment_spilled_as_it_was_written_counts_where_it_is() -> None:
    rig = SmallRig(2, direct="disk")
    rig.provide(50_001, Value(b"stream", (Piece(1, True, 0, MB),)))
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
        began = time.process_time()
        rig.spill_all(rig.make(*range(1, segments)))
        for number in range(1, segments):
            rig.submit(call(number, slots=(50_000 + number,)))
        return (time.process_time() - began) / segments

    seconds(100)
    few, many = (min(seconds(segments) for _ in range(3)) for segments in (1000, 10_000))
    assert many < 5 * few


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


# --- what is used up before more is made ------------------------------------------------------------------------------


def test_who_reads_something_large_goes_before_those_who_make_more() -> None:
    rig = SmallRig(100, lanes=1)
    for number in (1, 2, 3):
        rig.submit(call(number))
    rig.submit(call(4, slots=(101,)))
    rig.release(101)
    assert launched(rig.finish(1, big(1))) == [4]
    assert launched(rig.finish(4)) == [2]


def test_who_frees_no_memory_waits_for_its_turn() -> None:
    rig = SmallRig(100, lanes=1)
    for number in (1, 2, 3):
        rig.submit(call(number))
    rig.submit(call(4, slots=(101,)))  # the program holds what it reads
    rig.submit(call(5, slots=(102,)))
    rig.release(102)  # small
    rig.submit(updates(6, 103, 206))
    rig.release(103)  # updated where it is
    assert launched(rig.finish(1, big(1))) == [2]
    assert launched(rig.finish(2)) == [3]
    assert launched(rig.finish(3, big(3))) == [4]
    assert launched(rig.finish(4)) == [5]
    assert launched(rig.finish(5)) == [6]


def test_all_readers_of_something_large_go_first_in_their_order() -> None:
    rig = SmallRig(100, lanes=1)
    rig.submit(call(1))
    rig.submit(call(2))
    for number in (3, 4, 5):
        rig.submit(call(number, slots=(101,)))
    rig.release(101)
    assert launched(rig.finish(1, big(1))) == [3]
    assert launched(rig.finish(3)) == [4]
    assert launched(rig.finish(4)) == [5]
    assert launched(rig.finish(5)) == [2]


def test_who_was_ready_when_the_program_dropped_what_it_reads_goes_first_from_then_on() -> None:
    rig = SmallRig(100, lanes=1)
    for number in (1, 2, 3, 4):
        rig.submit(call(number))
    rig.submit(call(5, slots=(101,)), call(6, slots=(101,)))
    assert launched(rig.finish(1, big(1))) == [2]
    rig.release(101)
    assert launched(rig.finish(2)) == [5]
    assert launched(rig.finish(5)) == [6]
    assert launched(rig.finish(6)) == [3]
    assert not rig.store.readers


def test_who_is_over_is_not_remembered_because_the_program_holds_what_it_read() -> None:
    rig = SmallRig(100, lanes=1)
    rig.make(1)
    for number in (1, 2, 3):
        rig.submit(call(number, slots=(50_001,)))
    rig.finish(1)
    rig.cancel(3)
    assert list(rig.store.readers.values()) == [{2: rig.engine.state.tasks[2]}]
    rig.finish(2)
    assert not rig.store.readers


def test_functions_that_make_much_are_not_sent_far_ahead() -> None:
    sent = {}
    for size in (0, 1, 8):
        rig = SmallRig(100, lanes=1)
        rig.submit(*(call(number) for number in range(1, 31)))
        made = value("x") if not size else Value(b"stream", (Piece(1, False, 0, size << 20),))
        sent[size] = len(launched(rig.finish(1, made, seconds=0.001)))
    assert sent == {0: 9, 1: 4, 8: 2}


# --- who would make more waits for those who use it up ------------------------------------------------------------


def sums_of_parts(rig: SmallRig, count: int, *, dropped: bool = True) -> None:
    """Tasks 1, 2, … make a part each; 101, 102, … add them up, one after the other."""
    for number in range(1, count + 1):
        parts = (number + 1000,) if number == 1 else (number + 1000, number + 1999)
        rig.submit(call(number, spec("make"), writes=(number + 1000,), returns=1))
        rig.submit(call(number + 100, spec("add"), slots=parts, writes=(number + 2000,), returns=1))
        if dropped:
            rig.release(number + 1000)


def test_while_the_store_is_full_each_that_uses_something_up_lets_one_go_on() -> None:
    rig = SmallRig(4, lanes=2)
    sums_of_parts(rig, 8)
    assert launched(rig.finish(1, big(1))) == [101]
    assert launched(rig.finish(2, big(2))) == [3]
    assert launched(rig.finish(3, big(3))) == [4]
    assert launched(rig.finish(4, big(4))) == []
    assert launched(rig.finish(101)) == [102, 5]
    assert launched(rig.finish(5, big(5))) == []
    assert launched(rig.finish(102)) == [103, 6]
    assert not rig.store.spills


def test_nobody_waits_when_nothing_is_used_up() -> None:
    rig = SmallRig(4, lanes=2)
    sums_of_parts(rig, 8)
    for number in (1, 2, 3, 4):
        rig.finish(number, big(number))
    assert launched(rig.fail(101)) == [5, 6]


def test_nobody_waits_for_memory_that_the_program_holds() -> None:
    rig = SmallRig(4, lanes=2)
    sums_of_parts(rig, 8, dropped=False)
    assert launched(rig.finish(1, big(1))) == [3]
    assert launched(rig.finish(2, big(2))) == [4]
    for number in (3, 4, 5):
        assert launched(rig.finish(number, big(number))) == [number + 2]


def test_what_makes_nothing_large_does_not_wait() -> None:
    rig = SmallRig(4, lanes=2)
    sums_of_parts(rig, 4)
    for number in (1, 2, 3):
        rig.finish(number, big(number))
    rig.submit(call(500, spec("other")))
    assert launched(rig.finish(4, big(4))) == [500]


def test_nobody_waits_long_for_one_that_uses_something_up() -> None:
    rig = SmallRig(4, lanes=2)
    sums_of_parts(rig, 8)
    for number in (1, 2, 3, 4):
        assert 5 not in launched(rig.finish(number, big(number)))
    until = rig.engine.next_look()
    assert until is not None
    assert launched(rig.tick(until - rig.now)) == [5]
