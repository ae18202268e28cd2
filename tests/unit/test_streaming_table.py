"""The shared table between real processes: sleeping and waking, and what is left by those that die."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.patience import eventually
from tests.unit.table_program import Program
from tests.unit.table_rig import LAST, MAKE, RULES, USE, Child, shared_table

from penstock.errors import ConfigError, InternalError
from penstock.streaming import table as table_module
from penstock.streaming.native import table_library
from penstock.streaming.table import AppState, Born, Flag, Note, ProcessState, ServerState, Table, Violation, WaitKind
from penstock.streaming.table_records import NONE, CInfo, Info, info_of


@pytest.fixture(autouse=True, scope="module")
def _a_library_that_has_said_nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A copy: in one process it says only so much, and tests that ran before these may have heard it all."""
    copy = ctypes.CDLL(shutil.copy(table_library()._name, tmp_path_factory.mktemp("library")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "table_library", lambda: copy)
        yield


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with shared_table(tmp_path) as table:
        yield table


def sleeper(table: Table, kind: WaitKind) -> bool:
    return any(wait.kind is kind for wait in table.waits())


def flags(table: Table, name: str) -> int:
    slot = table.lookup(name)
    info = None if slot is None else table.info(slot)
    assert info is not None
    return info.flags


def test_a_slot_is_read_field_by_field() -> None:
    """The mirror is read in one go; every field must be the one of its name."""
    packed = bytes(range(1, 1 + ctypes.sizeof(CInfo)))
    mirror = CInfo.from_buffer_copy(packed)
    name = ctypes.create_string_buffer(b"out-stream")
    mirror.name, mirror.name_bytes, mirror.moved_to = ctypes.addressof(name), 10, NONE
    info = info_of(mirror)
    for field in Info.__struct_fields__:
        value, mirrored = getattr(info, field), getattr(mirror, field)
        match field:
            case "name":
                assert value == "out-stream"
            case "moved_to":
                assert value is None
            case "file" | "directory":
                assert (value.commit, value.fire, value.serial, value.n) == tuple(
                    getattr(mirrored, part) for part in ("commit", "fire", "serial", "n")
                )
            case _:
                assert value == mirrored, field


# --- sleeping and waking ----------------------------------------------------------------------------------------------


def test_readers_are_woken_by_the_write_they_wait_for(table: Table) -> None:
    """They look by themselves every 200 ms: who begins 50 ms after another one sees nothing together with it."""
    writer = Program(table, MAKE)
    writer.opened("out-stream")
    read, write = os.pipe()
    starts = count(0, 400)

    def wait(start: int) -> int:
        error = Program(table, USE).wait_range("out-stream", start, start + 100)
        os.write(write, struct.pack("d", time.monotonic()))
        return error

    def are_woken_together() -> bool:
        start = next(starts)
        readers = []
        for number in range(4):
            readers.append(Child(lambda number=number: wait(start + 100 * number)))  # type: ignore[misc]
            eventually(lambda: len(table.waits()) == len(readers))
            time.sleep(0.05)
        writer.wrote("out-stream", start, start + 99)
        time.sleep(0.2)  # their naps are 200 ms by now, and 99 bytes are not 100
        assert len(table.waits()) == 4
        at = time.monotonic()
        writer.wrote("out-stream", start + 99, start + 400)
        assert [reader.result() for reader in readers] == [0] * 4
        return max(struct.unpack("4d", os.read(read, 100))) - at < 0.05

    eventually(are_woken_together)  # unless others keep the processors busy
    os.close(read), os.close(write)


def test_a_fast_writer_does_not_wake_its_reader_per_record(table: Table) -> None:
    writer, records, size = Program(table, MAKE), 20_000, 4096
    writer.opened("out-stream")
    slot, written = writer.slot("out-stream"), table.code.psx_written

    def read() -> int:
        program = Program(table, USE)
        wait, asleep = table.code.psx_wait_range, resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        for i in range(records):
            assert wait(slot, program.app, i * size, (i + 1) * size, -1) == 0
        return min(98, (resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - asleep) * 100 // records)

    reader = Child(read)
    eventually(lambda: sleeper(table, WaitKind.RANGE))
    for i in range(records):
        written(slot, i * size, (i + 1) * size)
    assert reader.result() <= 10, "percent of records it slept for"


def test_a_slow_record_is_delivered_at_once(table: Table) -> None:
    writer = Program(table, MAKE)
    writer.opened("out-stream")

    def read() -> int:
        program = Program(table, USE)
        return max(program.wait_range("out-stream", i * 10, i * 10 + 10) for i in range(20))

    reader = Child(read)
    for i in range(20):
        eventually(lambda i=i: any(wait.start == i * 10 for wait in table.waits()))  # type: ignore[misc]
        writer.wrote("out-stream", i * 10, i * 10 + 10)
    assert reader.result() == 0


def test_readers_of_parts_wait_for_their_parts(table: Table) -> None:
    """Two readers of disjoint parts of a sparse file; each goes on with its own part."""
    writer = Program(table, MAKE)
    writer.opened("out-stream")
    first = Child(lambda: Program(table, USE).wait_range("out-stream", 0, 1000))
    second = Child(lambda: Program(table, LAST).wait_range("out-stream", 5000, 6000))
    eventually(lambda: len(table.waits()) == 2)
    writer.wrote("out-stream", 5500, 6000)
    writer.wrote("out-stream", 5000, 5500)
    assert second.result() == 0
    assert sleeper(table, WaitKind.RANGE)
    writer.wrote("out-stream", 0, 1000)
    assert first.result() == 0


def test_birth_close_and_end_wake(table: Table) -> None:
    writer = Program(table, MAKE)
    born = Child(lambda: Program(table, USE).wait_born("out-closed"))
    final = Child(lambda: Program(table, USE).wait_committed("out-closed"))
    eventually(lambda: len(table.waits()) == 2)
    holding = writer.opened("out-closed")
    assert born.result() == 0
    assert sleeper(table, WaitKind.COMMITTED)
    writer.closed(holding)
    assert final.result() == 0
    missing = Child(lambda: Program(table, USE).wait_born("out-never"))
    eventually(lambda: sleeper(table, WaitKind.BORN))
    table.app_over(MAKE, AppState.OVER)
    assert missing.result() == 0
    writer.opened("out-plain")
    assert table.settle() == 1  # not the root directory, in which the next step makes things too
    assert flags(table, "out-plain") & Flag.COMMITTED


def test_a_listing_streams_in_order_of_birth_and_ends_at_the_count(table: Table) -> None:
    writer = Program(table, MAKE)
    read, write = os.pipe()

    def listing() -> int:
        program, entry = Program(table, USE), 0xFFFFFFFF
        while True:
            error, following = program.wait_entry("out-dir", entry)
            if error or following is None:
                return error
            info = table.info(following)
            assert info
            os.write(write, info.name.encode() + b"\n")
            entry = following

    reader = Child(listing)
    names = [f"out-dir/{name}" for name in ("e", "d", "c", "b", "a")]
    writer.born("out-dir", Born.DIRECTORY)
    with os.fdopen(read) as lines:
        for name in names:
            eventually(lambda: sleeper(table, WaitKind.ENTRY))
            writer.closed(writer.opened(name))
            assert lines.readline() == name + "\n"
    assert reader.result() == 0
    os.close(write)
    assert flags(table, "out-dir") & Flag.COMMITTED


# --- errors instead of hanging ----------------------------------------------------------------------------------------


def test_the_reader_of_a_failed_producer_is_told_who_and_how(table: Table, capfd: pytest.CaptureFixture[str]) -> None:
    writer = Program(table, MAKE)
    writer.opened("out-stream")
    writer.wrote("out-stream", 0, 10)
    reader = Child(lambda: Program(table, USE).wait_range("out-stream", 0, 20))
    eventually(lambda: sleeper(table, WaitKind.RANGE))
    table.app_over(MAKE, AppState.FAILED, "was killed by SIGKILL")
    assert reader.result() == errno.EIO
    said = capfd.readouterr().err
    assert "'out-stream'" in said and "'make' was killed by SIGKILL" in said
    assert Program(table, USE).wait_range("out-stream", 0, 10) == 0  # what is there is there


def test_what_was_said_of_a_failure_stays_when_the_producer_then_ends_well(
    table: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    """A node that cannot store what it fetches says so while the producer, on another node, still runs."""
    writer = Program(table, MAKE)
    writer.opened("out-stream")
    writer.wrote("out-stream", 0, 10)
    table.app_over(MAKE, AppState.FAILED, "made it, but it cannot be stored")
    table.app_over(MAKE, AppState.OVER)
    assert Program(table, USE).wait_range("out-stream", 0, 20) == errno.EIO
    assert "'make' made it, but it cannot be stored" in capfd.readouterr().err


def test_a_dead_server_is_noticed_within_seconds(table: Table, capfd: pytest.CaptureFixture[str]) -> None:
    seen, serving = os.pipe()

    def serve() -> None:
        table.serve(ServerState.RUNS)
        os.write(serving, b".")
        time.sleep(600)

    server = Child(serve)
    os.read(seen, 1)  # before that, nobody is missed
    reader = Child(lambda: Program(table, USE).wait_committed("out-closed"))
    eventually(lambda: sleeper(table, WaitKind.COMMITTED))
    os.close(seen)
    os.close(serving)
    server.kill()  # and not waited for: a zombie does not serve either
    began = time.monotonic()
    assert reader.result() == errno.EIO
    assert time.monotonic() - began < 30
    assert "server of workflow 'rig' is gone" in capfd.readouterr().err
    assert server.result() == -signal.SIGKILL


def test_an_aborted_workflow_lets_nobody_wait(table: Table, capfd: pytest.CaptureFixture[str]) -> None:
    reader = Child(lambda: Program(table, USE).wait_born("out-x"))
    eventually(lambda: sleeper(table, WaitKind.BORN))
    table.abort("step make ended with status 3")
    assert reader.result() == errno.EIO
    assert "step make ended with status 3" in capfd.readouterr().err


@pytest.mark.parametrize(("restarts", "expected"), [(False, errno.EINTR), (True, 0)])
def test_signals_interrupt_as_they_do_read(table: Table, restarts: bool, expected: int) -> None:
    def wait() -> int:
        for number in range(1, signal.NSIG):  # of the test runner
            if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, not restarts)
        return Program(table, USE).wait_committed("out-closed")

    reader = Child(wait)
    eventually(lambda: sleeper(table, WaitKind.COMMITTED))
    for _ in range(20):  # one that comes just before the sleep is not noticed, as with read
        reader.kill(signal.SIGUSR1)
        time.sleep(0.005)
    if restarts:
        assert sleeper(table, WaitKind.COMMITTED)
        table.commit(Program(table, MAKE).slot("out-closed"))
    assert reader.result() == expected


# --- the killed -------------------------------------------------------------------------------------------------------


def test_locks_of_the_killed_are_taken_over(table: Table) -> None:
    def die() -> None:
        table.code.psx_lock_everything()
        os.kill(os.getpid(), signal.SIGKILL)

    assert Child(die).result() == -signal.SIGKILL
    writer = Program(table, MAKE)
    holding = writer.opened("out-closed")
    writer.wrote("out-closed", 50, 60)
    writer.wrote("out-closed", 0, 50)
    writer.closed(holding)
    info = table.info(writer.slot("out-closed"))
    assert info and info.flags & Flag.COMMITTED and info.solid == 60


def test_a_record_that_was_claimed_and_never_written_is_passed_over(table: Table) -> None:
    table.drain()
    table.code.psx_claim_record()
    Program(table, MAKE)
    records = []
    eventually(lambda: records.extend(table.drain()) or records)
    assert [record.kind for record in records] == [Note.HELLO]
    assert table.overflowed()


def test_the_files_of_a_killed_writer_are_let_go_but_not_closed(table: Table) -> None:
    def die() -> None:
        program = Program(table, MAKE)
        program.opened("out-closed")
        program.opened("out-stream")
        os.kill(os.getpid(), signal.SIGKILL)

    child = Child(die)
    assert child.result() == -signal.SIGKILL
    (process,) = [process for process in table.processes() if process.pid == child.pid]
    assert (process.state, process.holdings, process.app) == (ProcessState.ALIVE, 2, MAKE)
    table.process_reap(process.process)
    slot = table.lookup("out-closed")
    assert slot is not None
    info = table.info(slot)
    assert info and (info.writers, info.closes) == (0, 0) and not info.flags & Flag.COMMITTED
    assert not [process for process in table.processes() if process.pid == child.pid]


def test_a_program_that_says_goodbye_closes_its_files(table: Table) -> None:
    def end() -> None:
        program = Program(table, MAKE)
        for i in range(300):  # more than one block of holdings
            program.opened(f"out-closed-{i}")
        program.end()

    child = Child(end)
    assert child.result() == 0
    (process,) = [process for process in table.processes() if process.pid == child.pid]
    assert (process.state, process.holdings) == (ProcessState.ENDED, 0)
    assert all(flags(table, f"out-closed-{i}") & Flag.COMMITTED for i in range(300))


@pytest.mark.parametrize("writes", [False, True])
def test_one_opening_is_one_close_whoever_is_the_last(table: Table, writes: bool) -> None:
    """What ``system("date")`` does to a program that has a file open, and a shell with ``prog > file``."""
    writer = Program(table, MAKE)
    holding = writer.opened("out-twice")
    first, second = (table.code.ps_process_fork(writer.process) for _ in range(2))

    def run(child: int) -> None:
        table.code.ps_process_became(child)
        if writes:
            table.code.ps_writer_wrote(child, holding, writer.slot("out-twice"), MAKE)
        table.code.ps_process_end(child)

    def counted() -> tuple[int, int]:
        info = table.info(writer.slot("out-twice"))
        assert info
        return info.closes, info.writers

    assert Child(lambda: run(first)).result() == 0
    assert counted() == (0, 2)
    writer.closed(holding)
    assert counted() == (0, 1)
    again = writer.opened("out-twice", truncated=False)
    assert again == holding  # another opening, though it has the handle of the first
    writer.closed(again)
    assert counted() == (0, 1)
    assert Child(lambda: run(second)).result() == 0
    assert counted() == (1, 0)
    assert not flags(table, "out-twice") & Flag.COMMITTED


def test_a_close_is_kept_for_the_last_however_others_end(table: Table) -> None:
    writer = Program(table, MAKE)
    holding = writer.opened("out-closed")
    killed, last = (table.code.ps_process_fork(writer.process) for _ in range(2))
    table.code.ps_writer_wrote(killed, holding, writer.slot("out-closed"), MAKE)
    writer.closed(holding)
    table.code.ps_process_reap(killed)
    assert not flags(table, "out-closed") & Flag.COMMITTED
    table.code.ps_process_reap(last)
    assert flags(table, "out-closed") & Flag.COMMITTED


def test_between_fork_and_first_breath_the_files_have_a_writer(table: Table) -> None:
    writer = Program(table, MAKE)
    holding = writer.opened("out-closed")
    child = table.code.ps_process_fork(writer.process)
    writer.closed(holding)
    assert not flags(table, "out-closed") & Flag.COMMITTED
    table.code.ps_process_reap(child)  # the fork failed
    assert flags(table, "out-closed") & Flag.COMMITTED


def test_the_last_of_several_holders_makes_it_complete(table: Table) -> None:
    """A child that only inherited the file outlives the writer's close."""
    writer = Program(table, MAKE)
    holding = writer.opened("out-closed")
    child = table.code.ps_process_fork(writer.process)
    writer.wrote("out-closed", 0, 10)
    writer.closed(holding)
    assert not flags(table, "out-closed") & Flag.COMMITTED
    assert Child(lambda: (table.code.ps_process_became(child), table.code.ps_process_end(child), 0)[-1]).result() == 0
    assert flags(table, "out-closed") & Flag.COMMITTED


def test_a_child_that_is_slower_than_its_makers_death_is_not_forgotten(table: Table) -> None:
    """A daemon: its maker has ended when it draws its first breath, and the server may look in between."""

    def make() -> int:
        maker = Program(table, MAKE)
        return int(table.code.ps_process_fork(maker.process)) + 1

    child = Child(make).result() - 1
    assert [p.state for p in table.processes() if p.process == child] == [ProcessState.STARTING]
    eventually(lambda: all(p.process != child for p in table.processes()))  # it never came


# --- the kernel's witness ---------------------------------------------------------------------------------------------


def test_bytes_of_a_writer_without_the_library_are_seen(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "out-stream"
    with open(file, "wb", buffering=0) as out, open(file, "rb") as own:
        born = Child(lambda: Program(table, USE).wait_born("out-stream"))
        assert born.result() == 0
        out.truncate(1 << 20)  # a hole is not written

        def wait() -> int:
            return Program(table, USE).wait_range("out-stream", 0, 8192, own.fileno())

        reader = Child(wait)
        eventually(lambda: sleeper(table, WaitKind.RANGE))
        time.sleep(0.1)
        assert sleeper(table, WaitKind.RANGE)
        out.write(b"x" * 8192)
        assert reader.result() == 0
        assert own.tell() == 0


def test_the_kernel_is_not_believed_about_pages_known_in_part(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "out-stream"
    file.write_bytes(b"\0" * 4096)
    writer = Program(table, MAKE)
    holding = writer.opened("out-stream")
    writer.wrote("out-stream", 1000, 2000)
    with open(file, "rb") as own:
        reader = Child(lambda: Program(table, USE).wait_range("out-stream", 3000, 4000, own.fileno()))
        eventually(lambda: sleeper(table, WaitKind.RANGE))
        time.sleep(0.1)
        assert sleeper(table, WaitKind.RANGE)  # the writer may be about to write there
        writer.closed(holding)
        time.sleep(0.1)
        assert sleeper(table, WaitKind.RANGE)  # its page is known in part
        writer.wrote("out-stream", 3000, 4000)
        assert reader.result() == 0
        reader = Child(lambda: Program(table, USE).wait_range("out-stream", 0, 2000, own.fileno()))
        eventually(lambda: sleeper(table, WaitKind.RANGE))
        time.sleep(0.1)
        assert sleeper(table, WaitKind.RANGE)
        writer.wrote("out-stream", 0, 1000)
        assert reader.result() == 0


def test_a_file_of_an_earlier_run_is_not_born(tmp_path: Path) -> None:
    (tmp_path / "out-x").write_bytes(b"old")
    with shared_table(tmp_path) as table:
        reader = Child(lambda: Program(table, USE).wait_born("out-x"))
        eventually(lambda: sleeper(table, WaitKind.BORN))
        time.sleep(0.05)
        assert sleeper(table, WaitKind.BORN)
        (tmp_path / "out-x").write_bytes(b"new")
        assert reader.result() == 0
        assert flags(table, "out-x") & Flag.BORN


# --- bounded memory ---------------------------------------------------------------------------------------------------


def test_a_writer_too_far_ahead_waits_for_its_reader(tmp_path: Path) -> None:
    with shared_table(tmp_path) as table:
        table.set_limit(1_000_000)
        writer, reader = Program(table, MAKE), Program(table, USE)
        writer.opened("out-stream")
        assert writer.ask(WaitKind.ROOM, "out-stream", 0, 900_000) == 0
        writer.wrote("out-stream", 0, 900_000)
        ahead = Child(lambda: Program(table, MAKE).wait_room("out-stream", 900_000, 1_100_000))
        eventually(lambda: sleeper(table, WaitKind.ROOM))
        reader.consumed("out-stream", 500_000)
        assert sleeper(table, WaitKind.ROOM)  # what is read takes room until it is given back
        table.freed(writer.slot("out-stream"), 102_400)
        assert ahead.result() == 0
        assert writer.ask(WaitKind.ROOM, "out-stream", 1_100_000, 1_200_000) == -1
        # One larger than a quarter of the limit comes when there is room for a quarter.
        assert writer.ask(WaitKind.ROOM, "out-stream", 850_000, 9_000_000) == 0
        table.set_flags(writer.slot("out-stream"), Flag.READS_BACK)
        assert writer.ask(WaitKind.ROOM, "out-stream", 1_100_000, 1_200_000) == 0
        assert table.consumed_by(writer.slot("out-stream"), USE) == 500_000


def test_all_files_together_take_no_more_than_the_limit(tmp_path: Path) -> None:
    with shared_table(tmp_path) as table:
        table.set_limit(1 << 20)
        writer = Program(table, MAKE)
        for name in ("out-stream", "out-stream2"):
            writer.opened(name)
        assert writer.ask(WaitKind.ROOM, "out-stream", 0, 3 << 18) == 0
        assert writer.ask(WaitKind.ROOM, "out-stream", 0, 3 << 18) == 0  # it has that room
        assert writer.ask(WaitKind.ROOM, "out-stream2", 0, 1 << 18) == 0
        assert table.taken == 1 << 20
        held = Child(lambda: Program(table, MAKE).wait_room("out-stream2", 1 << 18, (1 << 18) + 100))
        eventually(lambda: sleeper(table, WaitKind.ROOM))
        table.freed(writer.slot("out-stream"), 4096)
        assert held.result() == 0
        assert table.taken == 1 << 20
        writer.removed("out-stream2")
        assert table.taken == (3 << 18) - 4096
        table.set_flags(writer.slot("out-stream"), Flag.READS_BACK)
        assert table.taken == 0


def test_what_the_slowest_reader_waits_for_is_written_above_the_limit(tmp_path: Path) -> None:
    with shared_table(tmp_path) as table:
        table.set_limit(1 << 20)
        writer, reader = Program(table, MAKE), Program(table, USE)
        for name in ("out-stream", "out-stream2"):
            writer.opened(name)
        assert writer.ask(WaitKind.ROOM, "out-stream", 0, 4096) == 0
        writer.wrote("out-stream", 0, 4096)
        assert writer.ask(WaitKind.ROOM, "out-stream2", 0, (1 << 20) - 4096) == 0
        held = Child(lambda: Program(table, MAKE).wait_room("out-stream", 4096, 8192))
        eventually(lambda: sleeper(table, WaitKind.ROOM))
        ahead = Child(lambda: Program(table, USE).wait_range("out-stream", 4096, 8192))
        eventually(lambda: sleeper(table, WaitKind.RANGE))
        # A slower one has something to read yet, so there will be room.
        assert writer.ask(WaitKind.ROOM, "out-stream", 4096, 8192) == -1
        reader.consumed("out-stream", 4096)
        assert writer.ask(WaitKind.ROOM, "out-stream", 4096, 8192) == -1  # it comes now
        table.set_room(1 << 19)
        table.freed(writer.slot("out-stream"), 4096)
        assert held.result() == 0
        assert table.taken == 1 << 20
        assert writer.ask(WaitKind.ROOM, "out-stream", 8192, 8200) == -1  # not awaited
        writer.wrote("out-stream", 4096, 8192)
        assert ahead.result() == 0


def test_what_was_read_of_all_files_is_spare(tmp_path: Path) -> None:
    with shared_table(tmp_path) as table:
        table.set_limit(1 << 20)
        writer, reader = Program(table, MAKE), Program(table, USE)
        writer.opened("out-stream")
        slot = writer.slot("out-stream")
        assert writer.ask(WaitKind.ROOM, "out-stream", 0, 5000) == 0
        writer.wrote("out-stream", 0, 5000)
        reader.consumed("out-stream", 5000)
        assert list(table.spares()) == [slot] and table.spare(slot) == 4096
        table.freed(slot, 4096)
        assert list(table.spares()) == []
        table.commit(slot)
        assert list(table.spares()) == [slot] and table.spare(slot) == 8192  # its last page too
        table.freed(slot, 8192)
        assert list(table.spares()) == [] and table.taken == 0


def test_another_file_of_the_same_name_begins_with_nothing_read(tmp_path: Path) -> None:
    with shared_table(tmp_path) as table:
        table.set_limit(1 << 20)
        writer, reader = Program(table, MAKE), Program(table, USE)
        writer.opened("out-stream")
        writer.wrote("out-stream", 0, 8192)
        reader.consumed("out-stream", 8192)
        slot = writer.slot("out-stream")
        table.punched(slot, 8192)
        table.freed(slot, 8192)
        writer.removed("out-stream")
        writer.opened("out-stream")
        writer.wrote("out-stream", 0, 4096)
        assert table.consumed_by_all(slot) == 0
        assert reader.ask(WaitKind.RANGE, "out-stream", 0, 4096) == 0


def test_reading_what_was_given_back_is_an_error_not_zeros(table: Table, capfd: pytest.CaptureFixture[str]) -> None:
    writer = Program(table, MAKE)
    writer.opened("out-stream")
    writer.wrote("out-stream", 0, 5000)
    slot = writer.slot("out-stream")
    reader = Program(table, USE)
    reader.consumed("out-stream", 4096)
    assert table.consumed_by_all(slot) == 4096
    table.punched(slot, 4096)
    assert reader.wait_range("out-stream", 4096, 5000) == 0
    assert reader.wait_range("out-stream", 4000, 5000) == errno.EIO
    assert "byte 4000 of 'out-stream'" in capfd.readouterr().err


def test_room_that_a_write_did_not_use_comes_back_with_the_commit(tmp_path: Path) -> None:
    """It failed, or its process was killed, and the step went on."""
    with shared_table(tmp_path) as table:
        table.set_limit(1 << 20)
        writer, reader = Program(table, MAKE), Program(table, USE)
        for name, written in (("out-stream", 5000), ("out-stream2", 0)):
            writer.opened(name)
            assert writer.ask(WaitKind.ROOM, name, 0, 1 << 18) == 0
            writer.wrote(name, 0, written)
            table.commit(writer.slot(name))
        assert table.taken == 8192
        reader.consumed("out-stream", 5000)
        assert table.give_back(writer.slot("out-stream"), 8192)
        table.freed(writer.slot("out-stream"), 8192)
        assert table.taken == 0


def test_room_that_a_killed_process_was_about_to_take_comes_back(tmp_path: Path) -> None:
    with shared_table(tmp_path) as table:
        table.set_limit(1 << 20)
        writer = Program(table, MAKE)
        writer.opened("out-stream")
        assert writer.ask(WaitKind.ROOM, "out-stream", 0, 4096) == 0
        slot = writer.slot("out-stream")

        def take_and_die() -> None:
            Program(table, MAKE)
            table.code.psx_take_halfway(slot, 1 << 19)
            os.kill(os.getpid(), signal.SIGKILL)

        assert Child(take_and_die).result() == -signal.SIGKILL
        assert table.taken == (1 << 19) + 4096
        for process in table.processes():
            if process.pid != os.getpid():
                table.process_reap(process.process)
        assert table.taken == 4096


def test_what_is_given_back_is_what_was_looked_at(tmp_path: Path) -> None:
    """Between the look and the deed a reader may go back, and a file may go and another come."""
    with shared_table(tmp_path) as table:
        table.set_limit(1 << 20)
        writer, reader = Program(table, MAKE), Program(table, USE)

        def read_up() -> int:
            writer.opened("out-stream")
            writer.wrote("out-stream", 0, 8192)
            reader.consumed("out-stream", 8192)
            assert table.spare(writer.slot("out-stream")) == 8192
            return writer.slot("out-stream")

        slot = read_up()
        writer.removed("out-stream")
        writer.opened("out-stream")
        writer.wrote("out-stream", 0, 8192)
        assert not table.give_back(slot, 8192)
        assert reader.ask(WaitKind.RANGE, "out-stream", 0, 8192) == 0
        writer.removed("out-stream")
        slot = read_up()
        writer.renamed("out-stream", "out-stream3")
        assert not table.give_back(slot, 8192)
        assert reader.ask(WaitKind.RANGE, "out-stream3", 0, 8192) == 0
        slot = read_up()
        table.set_flags(slot, Flag.READS_BACK)
        assert not table.give_back(slot, 8192)
        assert reader.ask(WaitKind.RANGE, "out-stream", 0, 8192) == 0


# --- limits of the table ----------------------------------------------------------------------------------------------


def test_an_overflow_of_the_journal_is_said_once(tmp_path: Path) -> None:
    with shared_table(tmp_path, ring=64) as table:
        program = Program(table, MAKE)
        for i in range(200):
            program.slot(f"out{i}")
        assert table.wait_journal(0)
        records = table.drain()
        assert len(records) == 64
        assert table.overflowed() and not table.overflowed()
        program.slot("out-later")
        assert [record.kind for record in table.drain()] == [Note.NEW]


def test_a_full_table_says_so_and_goes_on(tmp_path: Path) -> None:
    with shared_table(tmp_path, slots=64) as table:
        program = Program(table, MAKE)
        slots = [table.obtain(f"out{i}") for i in range(70)]
        assert slots == [*range(64), *[None] * 6]
        assert table.obtain("out3") == 3
        assert [(r.kind, r.a) for r in table.drain() if r.kind is Note.FULL] == [(Note.FULL, 1)]
        program.closed(program.opened("out3"))  # its parent finds no place
        assert flags(table, "out3") & Flag.BORN
        assert table.obtain("x" * 4096) is None


def test_extents_that_find_no_place_cost_streaming_not_truth(tmp_path: Path) -> None:
    with shared_table(tmp_path, extents=4) as table:
        writer, reader = Program(table, MAKE), Program(table, USE)
        writer.opened("out-stream")
        for i in range(10, 0, -1):
            writer.wrote("out-stream", i * 100, i * 100 + 10)
        assert flags(table, "out-stream") & Flag.FULL
        assert reader.ask(WaitKind.RANGE, "out-stream", 1000, 1010) == 0
        assert reader.ask(WaitKind.RANGE, "out-stream", 100, 110) == -1
        table.commit(writer.slot("out-stream"))
        assert reader.ask(WaitKind.RANGE, "out-stream", 100, 110) == 0


def test_a_hundred_thousand_names_from_two_processes(tmp_path: Path) -> None:
    count = 50_000
    with shared_table(tmp_path) as table:

        def fill() -> int:
            for i in range(count):
                table.obtain(f"out/directory/file-{i}")
                table.obtain(f"out/{os.getpid()}/{i}")
            return 0

        children = [Child(fill), Child(fill)]
        assert [child.result(60) for child in children] == [0, 0]
        slots = [table.lookup(f"out/directory/file-{i}") for i in range(count)]
        assert None not in slots and len(set(slots)) == count
        assert table.obtain("out-new") == 3 * count


def test_names_are_any_bytes(table: Table) -> None:
    for name in ("a b", "new\nline", "ü", "\udcff\udcfe", "x" * 4095, "out " * 900):
        slot = table.obtain(name)
        assert slot is not None and table.lookup(name) == slot
        info = table.info(slot)
        assert info and info.name == name


# --- the journal and mistakes -----------------------------------------------------------------------------------------


def test_the_server_sleeps_until_there_is_a_record(table: Table) -> None:
    table.drain()
    assert not table.wait_journal(1)
    child = Child(lambda: (time.sleep(0.05), table.obtain("out-new"), 0)[-1])  # type: ignore[func-returns-value]
    began = time.monotonic()
    assert table.wait_journal(20_000)
    assert time.monotonic() - began < 60
    assert [record.kind for record in table.drain()] == [Note.NEW]
    assert child.result() == 0


def test_broken_promises_are_noted_once(table: Table) -> None:
    writer = Program(table, MAKE)
    holding = writer.opened("out-twice")
    writer.wrote("out-twice", 0, 100)
    writer.wrote("out-twice", 50, 60)
    writer.wrote("out-twice", 50, 60)
    writer.closed(holding)
    closed = writer.opened("out-closed")
    writer.closed(closed)
    writer.wrote("out-closed", 0, 1)
    noted = [(record.a, record.b) for record in table.drain() if record.kind is Note.VIOLATION]
    assert noted == [(Violation.REWRITTEN, 50), (Violation.WRITTEN_AFTER_COMMIT, 0)]


def test_who_only_saw_that_bytes_were_written_breaks_no_promise(table: Table) -> None:
    """Two readers may ask the kernel at once, and beside them a witness: each tells the table what it has seen."""
    writer, seen = Program(table, MAKE), table.code.psx_seen
    writer.opened("out-twice")
    slot = writer.slot("out-twice")
    for start, end in [(0, 100), (0, 100), (0, 50), (90, 200), (150, 200)]:
        seen(slot, start, end)
    info = table.info(slot)
    assert info is not None and info.solid == 200
    assert not [record for record in table.drain() if record.kind is Note.VIOLATION]
    table.code.psx_written(slot, 150, 200)
    assert [record.a for record in table.drain() if record.kind is Note.VIOLATION] == [Violation.REWRITTEN]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Table.attach(str(tmp_path / "none"))
    (tmp_path / "text").write_text("hello" * 10000)
    with pytest.raises(ConfigError, match="not a table"):
        Table.attach(str(tmp_path / "text"))
    with pytest.raises(ConfigError, match="damaged"):
        Table.create(str(tmp_path / "new"), "w", [str(tmp_path)], RULES[:-1])
    assert not (tmp_path / "new").exists()
    with shared_table(tmp_path), pytest.raises(InternalError, match="already"):
        Table.create(str(tmp_path / "second"), "w", [str(tmp_path)], RULES)


def test_a_full_tmpfs_is_an_answer_not_a_sigbus(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if os.system(f"mount -t tmpfs -o size=12m tmpfs {mount} 2>/dev/null"):
        pytest.skip("may not mount a tmpfs here")
    try:
        table = Table.create(str(mount / "table"), "w", [str(tmp_path)], RULES)
        try:
            program = Program(table, MAKE)
            with open(mount / "rest", "wb") as rest, pytest.raises(OSError, match="No space"):
                while True:
                    rest.write(b"x" * 65536)
                    rest.flush()
            slots = [table.obtain(f"out-{i:0200}") for i in range(20_000)]
            assert None in slots and slots[0] == 0
            assert Note.FULL in {record.kind for _ in range(60) for record in table.drain()}
            slot = table.lookup(f"out-{0:0200}")
            assert slot == 0
            for i in range(20_000, 0, -1):
                table.code.psx_written(slot, i * 10, i * 10 + 5)
            assert program.ask(WaitKind.COMMITTED, f"out-{0:0200}") == 0
        finally:
            table.close()
        (mount / "rest").write_bytes(b"x" * (11 << 20))
        with pytest.raises(ConfigError, match="No space"):
            Table.create(str(mount / "table"), "w", [str(tmp_path)], RULES)
        assert not (mount / "table").exists()
    finally:
        os.system(f"umount {mount}")
