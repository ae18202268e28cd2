"""Layers that are really full, and layers that go away: tasks go elsewhere, wait, or hear why; nothing is lost.

A layer is a file system of eight megabytes, and tasks do not say how much they write, so that only the disk itself can
say that it is full. Whoever may not mount any runs these tests in a mount namespace, if the kernel allows one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults import storage_tasks as tasks
from tests.faults.layers import (
    assert_given_back,
    assert_home,
    assert_sums,
    devices,
    layer,
    may_mount,
    names_in,
    remains,
    small_disk,
    start,
)
from tests.faults.programs import Gate, run, surroundings, takes_less_than
from tests.faults.storage_tasks import MB, content
from tests.patience import Leap, eventually
from tests.trees import everything_below

import penstock
from penstock.engine import crowding
from penstock.errors import StorageFull

#: two of these fit into eight megabytes, three do not
SIZE = 3 * MB
MODES = pytest.mark.parametrize("mode", ["parallel", "inline"])
INSIDE = "FULL_LAYERS_INSIDE_A_NAMESPACE"


@pytest.fixture(autouse=True)
def _ended_at_once() -> Iterator[None]:
    """What a failed test left waiting must not hold up the next."""
    yield
    penstock.stop(abort=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as folder:
        yield folder


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "spare") as folder:
        yield folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that wait for room are not refused because the machine was slow to make it."""
    monkeypatch.setattr(crowding, "GRACE", 600.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks for which there is no room are refused soon."""
    monkeypatch.setattr(crowding, "GRACE", 0.3)


def occupy(folder: Path, size: int = 6 * MB) -> Path:
    """Somebody else's file."""
    (folder / "foreign").write_bytes(b"x" * size)
    return folder / "foreign"


def holds(path: Path) -> list[str]:
    """Files of the run on a layer, by name."""
    return sorted(Path(found).name for found in remains(path) if "/kept/" in found and Path(found).is_file())


@pytest.mark.timeout(150)
def test_in_a_mount_namespace() -> None:
    if INSIDE in os.environ or may_mount():
        pytest.skip("not needed: file systems may be mounted, so the tests below are run as they are")
    inside = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("a full disk needs a small one: run as root, or where unprivileged mount namespaces are allowed")
    command = [*inside, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env=surroundings(**{INSIDE: "1"}), capture_output=True, text=True, check=False, timeout=140
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


# --- overflow -----------------------------------------------------------------------------------------------------


@MODES
def test_full_layer_overflows_to_the_next(disk: Path, spare: Path, home: Path, mode: str) -> None:
    runtime = start(layer("disk", disk), layer("spare", spare), mode=mode)
    with runtime.driver.lock:
        assert [device.name for device in runtime.driver.engine.state.ledger.devices()] == ["disk", "spare"]
    for number in range(4):
        tasks.write(home / f"{number}", number, SIZE).result(timeout=60)
        assert (home / f"{number}").read_bytes() == content(number, SIZE)
    assert holds(disk) == ["0", "1"]
    assert holds(spare) == ["2", "3"]
    penstock.barrier()
    assert_given_back(runtime)
    penstock.stop()
    assert remains(disk, spare) == []
    for number in range(4):
        assert_home(home / f"{number}", number, SIZE)


def test_overflow_is_not_counted_as_a_retry(disk: Path, spare: Path, home: Path) -> None:
    occupy(disk)
    start(layer("disk", disk), layer("spare", spare))
    # It is not retried on failure at all, and yet it overflows.
    tasks.write(home / "file", 1, SIZE).result(timeout=60)
    penstock.stop()
    assert_home(home / "file", 1, SIZE)


@MODES
def test_error_that_was_caused_by_a_full_disk_counts_as_one(disk: Path, spare: Path, home: Path, mode: str) -> None:
    occupy(disk)
    start(layer("disk", disk), layer("spare", spare), mode=mode)
    tasks.wrap_the_error(home / "file", 1, SIZE).result(timeout=60)
    penstock.stop()
    assert_home(home / "file", 1, SIZE)
    assert remains(spare) == []


@MODES
def test_layer_without_inodes_overflows_too(tmp_path: Path, spare: Path, home: Path, mode: str) -> None:
    with small_disk(tmp_path / "crowded", inodes="10") as crowded:
        for number in range(7):
            (crowded / f"foreign-{number}").touch()
        start(layer("crowded", crowded), layer("spare", spare), mode=mode)
        for number in range(3):
            tasks.write(home / f"{number}", number).result(timeout=60)
        penstock.stop()
        assert [path for path in remains(crowded) if "foreign" not in path] == []
    for number in range(3):
        assert_home(home / f"{number}", number)


@MODES
def test_file_too_large_for_one_layer_goes_to_the_one_that_bears_it(
    tmp_path: Path, disk: Path, home: Path, mode: str
) -> None:
    start(layer("disk", disk), layer("large", tmp_path / "large"), mode=mode)
    tasks.write(home / "file", 1, 12 * MB).result(timeout=60)
    penstock.stop()
    assert_home(home / "file", 1, 12 * MB)
    assert remains(disk) == []


# --- all full: wait -----------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@MODES
def test_files_move_out_of_the_way_when_every_layer_is_full(disk: Path, home: Path, mode: str) -> None:
    runtime = start(layer("disk", disk), mode=mode)
    futures = [tasks.write(home / f"{number}", number, SIZE) for number in range(7)]
    penstock.wait(futures, timeout=60)
    for number, future in enumerate(futures):
        assert future.exception() is None
        assert (home / f"{number}").read_bytes() == content(number, SIZE)
    penstock.barrier()
    assert_given_back(runtime)
    penstock.stop()
    assert remains(disk) == []
    for number in range(7):
        assert_home(home / f"{number}", number, SIZE)


def test_producers_wait_for_a_reader_of_a_full_layer(disk: Path, home: Path, gate: Gate) -> None:
    runtime = start(layer("disk", disk))
    penstock.wait([tasks.write(home / f"{number}", number, SIZE) for number in range(2)])
    readers = [tasks.read_slowly(home / f"{number}", gate) for number in range(2)]
    gate.wait_reached(2)  # nothing may move away under them
    late = tasks.write(home / "late", 2, SIZE)
    eventually(lambda: devices(runtime)["disk"].doubts > 0)
    assert not late.done()
    gate.release()
    assert [reader.result(timeout=60) for reader in readers] == [content(0, SIZE), content(1, SIZE)]
    late.result(timeout=60)
    penstock.stop()
    assert_home(home / "late", 2, SIZE)


def test_producers_wait_until_the_program_deletes_a_file(disk: Path) -> None:
    # The layer is where the files are to be, so they cannot be moved out of the way.
    runtime = start(layer("disk", disk))
    penstock.wait([tasks.write(disk / f"{number}", number, SIZE) for number in range(2)])
    late = tasks.write(disk / "late", 2, SIZE)
    eventually(lambda: devices(runtime)["disk"].doubts > 0)
    penstock.delete_file(disk / "0")
    late.result(timeout=60)
    assert_sums(runtime)
    penstock.stop()
    assert names_in(disk) == ["1", "late"]
    assert_home(disk / "1", 1, SIZE)
    assert_home(disk / "late", 2, SIZE)


def test_producers_wait_until_somebody_else_makes_room(disk: Path, home: Path) -> None:
    runtime = start(layer("disk", disk))
    foreign = occupy(disk)
    late = tasks.write(home / "late", 1, SIZE)
    eventually(lambda: devices(runtime)["disk"].doubts > 0)
    foreign.unlink()
    late.result(timeout=60)
    penstock.stop()
    assert_home(home / "late", 1, SIZE)


# --- all full for good --------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@MODES
def test_task_is_refused_when_nothing_can_make_room(
    disk: Path, spare: Path, home: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowding, "GRACE", 1.0)  # longer than a device is believed that it is full
    (home / "file").write_text("old")
    occupy(disk)
    occupy(spare)
    runtime = start(layer("disk", disk), layer("spare", spare), mode=mode)
    refused = tasks.write(home / "file", 1, SIZE)
    consumer = tasks.read(home / "file")
    with pytest.raises(StorageFull) as caught:
        refused.result(timeout=60)
    for part in ("write#1", "disk", str(disk), "spare", str(spare), "full", "no storage layer has room"):
        assert part in str(caught.value)
    with pytest.raises(penstock.DependencyFailed, match="no storage layer has room"):
        consumer.result(timeout=60)
    assert_given_back(runtime)
    monkeypatch.setattr(crowding, "GRACE", 600.0)
    small = tasks.write(home / "small", 2, 1000)  # there is room for less
    small.result(timeout=60)
    penstock.stop()
    assert (home / "file").read_text() == "old"
    assert_home(home / "small", 2)
    assert [path for path in remains(disk, spare) if not path.endswith("foreign")] == []


@MODES
@pytest.mark.usefixtures("impatient")
def test_refusal_is_told_at_the_end_if_nobody_looks(disk: Path, home: Path, mode: str) -> None:
    occupy(disk)
    start(layer("disk", disk), mode=mode)
    tasks.write(home / "file", 1, SIZE)
    with pytest.raises(StorageFull, match="no storage layer has room"):
        penstock.barrier()
    penstock.stop()
    assert names_in(home) == []


def test_files_that_were_reported_done_are_complete_whatever_is_refused(disk: Path, leap: Leap) -> None:
    start(layer("disk", disk), io_executors=4)
    futures = [tasks.write(disk / f"{number}", number, SIZE) for number in range(6)]
    eventually(lambda: sum(future.done() for future in futures) == 2)

    def all_are_over() -> bool:
        leap(crowding.GRACE)  # those that were tried once more in between wait anew
        return all(future.done() for future in futures)

    eventually(all_are_over)
    done = [number for number, future in enumerate(futures) if future.exception() is None]
    assert len(done) == 2
    penstock.stop()
    assert names_in(disk) == sorted(map(str, done))
    for number in done:
        assert_home(disk / f"{number}", number, SIZE)


# --- moves to where there is no room ------------------------------------------------------------------------------


@MODES
def test_flush_to_a_full_layer_leaves_the_file_where_it_is(tmp_path: Path, disk: Path, mode: str) -> None:
    fast = layer("fast", tmp_path / "fast", bandwidth="200MB/s")
    runtime = start(fast, layer("disk", disk), mode=mode, data_movement=True)
    foreign = occupy(disk)
    tasks.write(disk / "file", 1, SIZE).result(timeout=60)
    eventually(lambda: bool(errors_of(runtime)))
    assert "No space left" in errors_of(runtime)[0]
    assert (disk / "file").is_symlink()
    assert (disk / "file").read_bytes() == content(1, SIZE)
    assert tasks.read(disk / "file").result(timeout=60) == content(1, SIZE)
    assert_given_back(runtime)
    foreign.unlink()
    penstock.stop()
    assert names_in(disk) == ["file"]
    assert_home(disk / "file", 1, SIZE)
    assert remains(tmp_path / "fast") == []


def errors_of(runtime: penstock.Runtime) -> list[str]:
    with runtime.driver.lock:
        placed = [version.placed for version in runtime.driver.engine.state.placed.values()]
        return [one.error for one in placed if one is not None and one.error]


@MODES
def test_home_that_is_full_at_the_end_is_told_and_the_links_lead_to_the_files(
    tmp_path: Path, disk: Path, mode: str
) -> None:
    fast = tmp_path / "fast"
    start(layer("fast", fast), mode=mode)
    penstock.wait([tasks.write(disk / f"{number}", number, SIZE) for number in range(3)])
    with pytest.raises(Exception, match="No space left") as caught:
        penstock.stop()
    linked = [path for path in sorted(disk.iterdir()) if path.is_symlink()]
    assert len(linked) == 1
    assert str(linked[0]) in str(caught.value)
    assert os.readlink(linked[0]) in str(caught.value)
    assert holds(fast) == [linked[0].name]
    assert names_in(disk) == ["0", "1", "2"]
    for number in range(3):
        assert (disk / f"{number}").read_bytes() == content(number, SIZE)


def test_program_whose_home_is_full_says_so_by_its_exit_status(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "fast").mkdir()
    source = f"""
from tests.faults.storage_tasks import write

penstock.start(cpus=1, tuning="off", storage=[
    {{"name": "fast", "mount": {str(tmp_path / "fast")!r}, "bandwidth": "100MB/s", "capacity": "1GB"}}])
for number in range(3):
    write({str(disk)!r} + f"/{{number}}", number, {SIZE})
"""
    status, _, errors = run(tmp_path, source)
    assert status == 1
    assert "No space left" in errors
    assert [path for path in disk.iterdir() if path.is_symlink() and str(path) in errors]
    for number in range(3):
        assert (disk / f"{number}").read_bytes() == content(number, SIZE)


# --- layers that go away ------------------------------------------------------------------------------------------


@MODES
def test_layer_that_is_removed_under_the_run(tmp_path: Path, home: Path, mode: str) -> None:
    fast = tmp_path / "fast"
    runtime = start(layer("fast", fast), mode=mode)
    tasks.write(home / "lost", 1).result(timeout=60)
    shutil.rmtree(fast)
    error = tasks.write(home / "file", 2).exception(timeout=60)
    assert isinstance(error, FileNotFoundError)
    assert "storage layer fast" in str(error) and str(fast) in str(error)
    assert not fast.exists()  # what is there now is no layer
    with pytest.raises(FileNotFoundError):
        tasks.read(home / "lost").result(timeout=60)
    assert_given_back(runtime)
    with takes_less_than(60), pytest.raises(Exception, match="lost") as caught:
        penstock.stop()
    assert str(home / "lost") in str(caught.value)
    assert "is kept as" not in str(caught.value)  # it is not


@MODES
def test_layer_that_becomes_read_only(disk: Path, home: Path, mode: str) -> None:
    runtime = start(layer("disk", disk), mode=mode)
    tasks.write(home / "early", 1).result(timeout=60)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    late = tasks.write(home / "late", 2)
    with pytest.raises(OSError, match="storage layer disk") as caught:
        late.result(timeout=60)
    assert caught.value.errno == errno.EROFS
    assert tasks.read(home / "early").result(timeout=60) == content(1)
    assert_given_back(runtime)
    with takes_less_than(60), contextlib.suppress(OSError):  # it may say what it could not delete
        penstock.stop()
    assert names_in(home) == ["early"]
    assert_home(home / "early", 1)


@MODES
def test_deletion_on_a_layer_that_became_read_only_does_not_hang(disk: Path, home: Path, mode: str) -> None:
    start(layer("disk", disk), mode=mode)
    tasks.write(home / "file", 1).result(timeout=60)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    penstock.delete_file(home / "file")
    tasks.read(__file__).result(timeout=60)
    with takes_less_than(60):
        penstock.stop()
    assert names_in(home) == []


@MODES
def test_home_that_becomes_read_only(tmp_path: Path, disk: Path, mode: str) -> None:
    start(layer("fast", tmp_path / "fast"), mode=mode)
    tasks.write(disk / "early", 1).result(timeout=60)
    penstock.barrier()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    newer = [tasks.write(disk / "late", 2), tasks.write(disk / "early", 3)]
    penstock.wait(newer, timeout=60)
    with takes_less_than(60), pytest.raises(Exception, match="Read-only"):
        penstock.stop()
    assert (disk / "early").read_bytes() == content(1)
    written = [Path(path).read_bytes() for path in remains(tmp_path / "fast") if Path(path).is_file()]
    assert content(2) in written  # what a task has written is not thrown away
    assert content(3) in written


@MODES
def test_task_that_deletes_its_own_output(tmp_path: Path, home: Path, mode: str) -> None:
    (home / "file").write_text("old")
    runtime = start(layer("fast", tmp_path / "fast"), mode=mode)
    with pytest.raises(penstock.TaskError, match=r"write_and_delete.*did not create .*file"):
        tasks.write_and_delete(home / "file", 1).result(timeout=60)
    assert_given_back(runtime)
    penstock.stop()
    assert (home / "file").read_text() == "old"
    assert remains(tmp_path / "fast") == []


@contextlib.contextmanager
def nobody_waits_at_pipes(folder: Path) -> Iterator[None]:
    """After a while, let go whoever opened a pipe that nobody writes to: nothing else would end that."""

    def open_them() -> None:
        for path in everything_below(folder):
            if path.is_fifo():
                os.close(os.open(path, os.O_RDWR))

    late = threading.Timer(90, open_them)
    late.start()
    try:
        yield
    finally:
        late.cancel()


@MODES
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "relative link"])
def test_output_that_is_no_plain_file(tmp_path: Path, home: Path, kind: str, mode: str) -> None:
    runtime = start(layer("fast", tmp_path / "fast"), mode=mode)
    error = tasks.make_oddly(home / "file", kind).exception(timeout=60)
    assert_given_back(runtime)
    with nobody_waits_at_pipes(tmp_path), takes_less_than(60):
        penstock.stop()
    assert remains(tmp_path / "fast") == []
    if error is None:  # the file that a link leads to is as good
        assert "link" in kind
        assert_home(home / "file", 1)
    else:
        assert isinstance(error, penstock.TaskError)
        assert str(home / "file") in str(error)
        assert names_in(home) == []


@MODES
def test_file_in_a_folder_that_does_not_exist(tmp_path: Path, home: Path, mode: str) -> None:
    runtime = start(layer("fast", tmp_path / "fast"), mode=mode)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tasks.write(home / "nowhere" / "file", 1).result(timeout=60)
    assert_given_back(runtime)
    tasks.write(home / "file", 2).result(timeout=60)
    penstock.stop()
    assert_home(home / "file", 2)
    assert remains(tmp_path / "fast") == []


@MODES
def test_folder_of_a_file_that_goes_away_before_the_file_is_home(tmp_path: Path, home: Path, mode: str) -> None:
    fast, folder = tmp_path / "fast", home / "folder"
    folder.mkdir()
    runtime = start(layer("fast", fast), mode=mode)
    tasks.write(folder / "file", 1).result(timeout=60)
    shutil.rmtree(folder)
    with takes_less_than(60), pytest.raises(Exception, match="No such file") as caught:
        penstock.stop()
    assert str(folder / "file") in str(caught.value)
    assert holds(fast) == ["file"]  # what a task has written is not thrown away
    kept = next(path for path in remains(fast) if path.endswith("/file"))
    assert Path(kept).read_bytes() == content(1)
    assert kept in str(caught.value)
    assert runtime.stopped


@MODES
def test_name_that_became_a_folder(tmp_path: Path, home: Path, mode: str) -> None:
    fast = tmp_path / "fast"
    start(layer("fast", fast), mode=mode)
    tasks.write(home / "file", 1).result(timeout=60)
    (home / "file").unlink()
    (home / "file").mkdir()
    with takes_less_than(60), pytest.raises(Exception, match=r"home/file") as caught:
        penstock.stop()
    assert names_in(home) == ["file"]
    kept = next(path for path in remains(fast) if path.endswith("/file"))
    assert Path(kept).read_bytes() == content(1)
    assert kept in str(caught.value)
