"""The event log: nothing lost, nothing delayed, readable after a crash, harmless when the disk is not there."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import eventually

from penstock.observe import records
from penstock.observe.log import EventLog, read_log
from penstock.observe.records import Cancelled, Dropped, Launched, Published, Record, RunStarted, Submitted


def cancelled(*tasks: int) -> list[Record]:
    return [Cancelled(float(task), task) for task in tasks]


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    log = EventLog(path)
    wrote: list[Record] = [
        RunStarted(0.0, 1e9, "1.0", ["app.py", "x"], 2, 1 << 30, "here", "fifo"),
        Submitted(0.1, 1, "count", 1, [], [1]),
        Submitted(0.1, 2, "wide", 3, [1], [2, 3], cpus=4),
        Launched(0.2, 1, 1, "here", 0),
    ]
    for record in wrote:
        log.append(record)
    log.close()
    assert list(read_log(path)) == wrote


@pytest.mark.parametrize("kind", get_args(Record), ids=lambda kind: kind.__name__)
def test_every_record_is_documented_with_its_fields(kind: type[Record]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "event-log.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{kind.__struct_config__.tag}` |"))
    fields = re.findall(r"`(\w+)`", row.rsplit("|", 2)[1])
    assert fields == [field for field in kind.__struct_fields__ if field != "t"]
    for field in kind.__struct_fields__:
        assert re.search(rf"^\|[^|]*`{field}`[^|]*\| [a-z]", page, re.MULTILINE), f"{field} is not explained"


def test_what_is_said_of_a_layer_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "event-log.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| `storage` |"))
    assert re.findall(r"`(\w+)`", row)[1:] == list(records.Layer.__struct_fields__)


def test_lines_are_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(str(path))
    log.append(Launched(0.5, 7, 1, "here", 3))
    log.close()
    assert json.loads(path.read_text()) == {
        "event": "launched", "t": 0.5, "task": 7, "attempt": 1, "node": "here", "lane": 3,
    }  # fmt: skip


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    log = EventLog(path, interval=0.001)
    batches: list[list[Record]] = []
    log.subscribe(batches.append)

    def work(first: int) -> None:
        for task in range(first, first + 5000):
            log.append(Cancelled(0.0, task))

    threads = [threading.Thread(target=work, args=(number * 5000,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    written = [record.task for record in read_log(path) if isinstance(record, Cancelled)]
    assert sorted(written) == list(range(20_000))
    assert [record.task for batch in batches for record in batch if isinstance(record, Cancelled)] == written
    assert all(batches)


def test_without_path_and_subscriber_nothing_is_kept_and_no_thread_runs() -> None:
    before = threading.active_count()
    log = EventLog(None)
    log.append(Cancelled(0.0, 1))
    assert not log.active
    assert threading.active_count() == before
    seen: list[Record] = []
    log.subscribe(seen.extend)
    assert log.active
    log.append(Cancelled(0.0, 2))
    log.close()
    assert seen == [Cancelled(0.0, 2)]
    assert not log.active


def test_batches_come_without_close() -> None:
    log = EventLog(None, interval=0.001)
    arrived = threading.Event()
    log.subscribe(lambda batch: arrived.set())
    log.append(Cancelled(0.0, 1))
    assert arrived.wait(60)
    log.close()


def test_a_subscriber_that_raises_is_removed_and_named(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []
    failed = threading.Event()

    def broken(batch: list[Record]) -> None:
        calls.append(len(batch))
        failed.set()
        raise RuntimeError("no ink")

    seen: list[Record] = []
    log = EventLog(None, interval=0.001)
    log.subscribe(broken)
    log.subscribe(seen.extend)
    log.append(Cancelled(0.0, 1))
    assert failed.wait(60)
    log.append(Cancelled(0.0, 2))
    log.close()
    assert len(seen) == 2
    assert sum(calls) == 1
    assert "broken" in caplog.text
    assert "no ink" in caplog.text


def test_records_after_close_are_ignored_and_close_may_be_repeated(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    log = EventLog(path)
    log.close()
    log.append(Cancelled(0.0, 1))
    log.close()
    assert list(read_log(path)) == []


def test_text_that_is_no_unicode_is_written_legibly(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    log = EventLog(path)
    log.append(Published(0.0, 1, os.fsdecode(b"caf\xe9")))
    log.append(RunStarted(0.0, 0.0, "1", [os.fsdecode(b"\xff")], 1, 1, "n", "fifo"))
    log.close()
    first, second = read_log(path)
    assert isinstance(first, Published)
    assert first.path == r"caf\udce9"
    assert isinstance(second, RunStarted)
    assert second.argv == [r"\udcff"]


def test_a_full_disk_is_said_once_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Record] = []
    log = EventLog("/dev/full", interval=0.001)
    log.subscribe(seen.extend)
    for task in range(100):
        log.append(Cancelled(0.0, task))
        time.sleep(0.0005)  # several batches
    log.close()
    assert len(seen) == 100
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "/dev/full: No space left on device" in warnings[0].getMessage()


def test_a_log_that_cannot_be_opened_is_said_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog(str(tmp_path / "missing" / "events.jsonl"))
    log.append(Cancelled(0.0, 1))
    log.close()
    assert "without an event log" in caplog.text


@pytest.fixture
def stalled_disk(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A path whose writes hang once 64 KiB are under way, until somebody reads from the descriptor."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, reader
    os.close(reader)


def test_a_stalled_disk_bounds_memory_and_leaves_a_note(stalled_disk: tuple[str, int]) -> None:
    path, reader = stalled_disk
    delivered = threading.Semaphore(0)
    log = EventLog(path, interval=0.001, backlog=1 << 18)
    log.subscribe(lambda batch: delivered.release(len(batch)))
    count = 20_000
    for task in range(count):
        log.append(Cancelled(0.0, task))
        if task % 1000 == 999:
            for _ in range(1000):  # views are fed although the disk hangs
                assert delivered.acquire(timeout=60)
    file = log._file
    assert file is not None
    assert file._waiting <= 1 << 18
    chunks = bytearray()

    def read() -> None:
        os.set_blocking(reader, True)
        while chunk := os.read(reader, 1 << 16):
            chunks.extend(chunk)

    thread = threading.Thread(target=read)
    thread.start()
    while file._waiting:  # the disk has recovered when all that waited is gone
        time.sleep(0.001)
    log.append(Cancelled(1.0, count))
    log.close()  # closes the only writing end, which ends the reader
    thread.join()
    kinds = [msgspec.json.decode(line, type=Record) for line in bytes(chunks).splitlines()]
    kept = [record for record in kinds if isinstance(record, Cancelled)]
    dropped = sum(record.records for record in kinds if isinstance(record, Dropped))
    assert dropped > 0
    assert len(kept) + dropped == count + 1
    assert kept[-1].task == count


#: what it wrote before it rests is no more than a buffer holds
WRITER = """
import itertools, sys, time
from penstock.observe.log import EventLog
from penstock.observe.records import Cancelled
log = EventLog(sys.argv[1])
for task in range(100):
    log.append(Cancelled(0.0, task))
print("rests", flush=True)
sys.stdin.readline()
for task in itertools.count(100):
    log.append(Cancelled(0.0, task))
    if task % 1000 == 0:
        print(task, flush=True)
        time.sleep(0.001)
"""


def test_kill_9_loses_at_most_the_last_moments(tmp_path: Path) -> None:
    """What is logged is in the file soon, though little follows; and of all that is written, the last line is whole."""
    path = str(tmp_path / "events.jsonl")

    def tasks() -> list[int]:
        return [record.task for record in read_log(path) if isinstance(record, Cancelled)]

    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "rests\n"
        eventually(lambda: os.path.exists(path) and len(tasks()) == 100)
        process.stdin.write("\n")
        process.stdin.flush()
        while int(process.stdout.readline()) < 20_000:
            continue
        process.send_signal(signal.SIGKILL)
    found = tasks()
    assert found == list(range(len(found))) and len(found) >= 100


@given(cut=st.integers(0, 200))
def test_a_log_cut_anywhere_gives_the_whole_lines(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "events.jsonl"
    whole = b"".join(msgspec.json.encode(record) + b"\n" for record in cancelled(1, 2, 3, 4))
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"\n")
    read = list(read_log(str(path)))
    # A last line that lacks nothing but its end is as good as whole.
    assert read in (cancelled(1, 2, 3, 4)[:complete], cancelled(1, 2, 3, 4)[: complete + 1])


def test_unknown_events_and_fields_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event":"teleported","t":1.0}\n{"event":"cancelled","t":2.0,"task":5,"mood":"fine"}\n')
    assert list(read_log(str(path))) == [Cancelled(2.0, 5)]


@pytest.mark.parametrize("line", ["{broken", '{"event":"cancelled","t":2.0}', '{"no":"event"}'])
def test_a_damaged_line_in_the_middle_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event":"cancelled","t":1.0,"task":1}\n' + line + '\n{"event":"cancelled","t":2.0,"task":2}\n')
    with pytest.raises(ValueError, match=r"events.jsonl, line 2: not a record"):
        list(read_log(str(path)))


def test_records_module_lists_every_record() -> None:
    assert {kind.__name__ for kind in get_args(Record)} == set(records.__all__) - {"Record", "Layer"}
