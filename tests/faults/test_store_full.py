"""The shared-memory store full, and then the disk behind it too: results stay right, or the error is clear.

The last tests replace /dev/shm by a really small one, in a mount namespace of their own.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.faults.programs import Program, empties, gone, segments_in
from tests.patience import eventually

import penstock
from penstock import INOUT, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

NUMBERS = 250_000  # 2 MB
SIZE = 8 * NUMBERS


@task
def make(value: float) -> Any:
    return np.full(NUMBERS, value)


@task(array=INOUT)
def add(array: Any, number: float) -> None:
    array += number


@task
def total(*arrays: Any) -> float:
    return float(sum(array.sum() for array in arrays))


@pytest.fixture
def small(tmp_path: Path) -> Runtime:
    """A runtime whose store holds two arrays."""
    (tmp_path / "spill").mkdir()
    return penstock.start(cpus=2, store_capacity=f"{2 * SIZE}B", spill_dir=tmp_path / "spill")


def spills(runtime: Runtime, count: int, within: float = 60.0) -> bool:
    """Whether so many segments lie on disk, soon; one after the other goes there while tasks run."""
    deadline = time.monotonic() + within
    while len(segments_in(runtime.segments.spill_dir)) != count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- the configured capacity --------------------------------------------------------------------------------------


def test_results_beyond_the_capacity_are_spilled_and_right(small: Runtime, tmp_path: Path) -> None:
    futures = [make(number) for number in range(4)]
    penstock.wait(futures)  # now the store is known to be full
    futures += [make(number) for number in range(4, 12)]
    assert total(*futures).result() == sum(range(12)) * NUMBERS
    assert spills(small, 10)
    assert small.segments.spill_dir.startswith(str(tmp_path / "spill"))
    for number, future in enumerate(futures):
        array = future.result()
        assert array[0] == array[-1] == number
    del futures, future, array
    gc.collect()
    penstock.barrier()
    assert total(np.ones(10)).result() == 10
    assert empties(small.segments.spill_dir)  # freed at once, not at the end
    penstock.stop()
    assert os.listdir(tmp_path / "spill") == []


def test_store_is_used_again_once_there_is_room(small: Runtime) -> None:
    first = [make(number) for number in range(4)]
    penstock.wait(first)
    first += [make(number) for number in range(4)]
    penstock.wait(first)
    assert spills(small, 6)
    del first
    gc.collect()
    assert total(np.ones(10)).result() == 10
    assert empties(small.segments.memory_dir, small.segments.spill_dir)
    again = make(5.0)
    penstock.wait([again])
    assert len(segments_in(small.segments.memory_dir)) == 1
    assert segments_in(small.segments.spill_dir) == []


def test_arguments_beyond_the_capacity_are_spilled_and_right(small: Runtime) -> None:
    arrays = [np.full(NUMBERS, float(number)) for number in range(10)]
    futures = [total(array) for array in arrays]
    assert wait_on(futures) == [float(number * NUMBERS) for number in range(10)]
    assert spills(small, 8)
    assert total(*arrays).result() == sum(range(10)) * NUMBERS


def test_updates_of_spilled_objects_are_right(small: Runtime) -> None:
    arrays = [np.zeros(NUMBERS) for _ in range(6)]
    for round_number in range(3):
        for index, array in enumerate(arrays):
            add(array, index + round_number)
    expected = [3 * index + 3 for index in range(6)]
    assert [total(array).result() for array in arrays] == [value * NUMBERS for value in expected]
    for array, value in zip(arrays, expected, strict=True):
        assert np.array_equal(wait_on(array), np.full(NUMBERS, float(value)))


def test_map_with_spilled_results_is_right(small: Runtime) -> None:
    mapped = make.map([float(number) for number in range(10)])
    assert [float(array[7]) for array in mapped.results()] == [float(number) for number in range(10)]


def test_shared_object_beyond_the_capacity_is_right(small: Runtime) -> None:
    shared = [penstock.share(np.full(NUMBERS, float(number))) for number in range(5)]
    assert wait_on([total(array) for array in shared]) == [float(number * NUMBERS) for number in range(5)]


def test_killed_program_leaves_no_spilled_file(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    source = f"""
import numpy as np

penstock.start(cpus=2, store_capacity="{2 * SIZE}B", spill_dir={str(tmp_path / "spill")!r})

@task
def make(value):
    return np.full({NUMBERS}, value)

futures = [make(number) for number in range(4)]
barrier()
futures += [make(number) for number in range(4)]
barrier()
arrive("spilled", *os.listdir({str(tmp_path / "spill")!r}))
signal.pause()
"""
    with Program(tmp_path, source) as program:
        [word, folder] = program.arrival().split()
        assert word == "spilled"
        assert os.listdir(tmp_path / "spill" / folder)
        program.process.kill()
        program.ends()
        gone([], program)
    eventually(lambda: not os.listdir(tmp_path / "spill"))


def test_more_large_results_than_descriptors_can_be_held_at_once(tmp_path: Path) -> None:
    source = """
import numpy as np

@task
def make(number):
    return np.full(50_000, float(number))

@task
def total(arrays):
    return float(sum(array[0] for array in arrays))

futures = [make(number) for number in range(400)]
arrays = wait_on(futures)
assert [float(array[-1]) for array in arrays] == [float(number) for number in range(400)]
assert total(futures).result() == sum(range(400))
assert total(arrays).result() == sum(range(400))
print("right")
"""
    # A soft limit, as most systems set one (1024): a program may raise it, up to the hard limit.
    prefix = ("sh", "-c", 'ulimit -S -n 128 && exec "$@"', "sh")
    with Program(tmp_path, source, prefix=prefix) as program:
        status, output, errors = program.ends()
        assert (status, output.strip()) == (0, "right"), errors
        gone([], program)


# --- a /dev/shm that is really full -------------------------------------------------------------------------------

MEGABYTES = 8


def cannot_mount() -> str:
    """Why a private /dev/shm cannot be had here; empty if it can."""
    if shutil.which("unshare") is None:
        return "the program unshare is not installed"
    for extra in ([], ["--map-root-user"]):
        tried = subprocess.run(
            ["unshare", *extra, "--mount", "sh", "-c", "mount -t tmpfs -o size=1m none /dev/shm"],
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode == 0:
            return ""
    return f"a private mount namespace is not permitted here: {tried.stderr.strip()}"


REFUSED = cannot_mount()
needs_mounts = pytest.mark.skipif(bool(REFUSED), reason=f"FULL /dev/shm IS NOT TESTED: {REFUSED}")


def with_small_shared_memory(folder: Path, source: str, disk: str = "") -> Program:
    """A program that sees a /dev/shm of a few megabytes, and optionally a disk as small."""
    script = f"mount -t tmpfs -o size={MEGABYTES}m none /dev/shm"
    if disk:
        script += f" && mount -t tmpfs -o size={MEGABYTES}m none {disk}"
    mapped = [] if os.getuid() == 0 else ["--map-root-user"]
    prefix = ("unshare", *mapped, "--mount", "sh", "-c", script + ' && exec "$@"', "sh")
    # Our own place in shared memory is out of sight there.
    return Program(folder, "import numpy as np\n" + source, {"PENSTOCK_MEMORY_DIR": ""}, prefix=prefix)


CHECKS_AT_END = """
penstock.stop()
print("left:", [name for name in os.listdir("/dev/shm") if name.startswith("penstock")])
"""


@needs_mounts
def test_results_are_right_when_shared_memory_is_really_full(tmp_path: Path) -> None:
    source = f"""
# The configured capacity is more than there is: the kernel says no, not our own count.
penstock.start(cpus=2, store_capacity="1GB")

@task
def make(value):
    return np.full({NUMBERS}, float(value))

@task(array=INOUT)
def add(array, number):
    array += number

@task
def total(array):
    return float(array.sum())

futures = [make(number) for number in range(12)]
totals = [total(future) for future in futures]
assert wait_on(totals) == [number * {NUMBERS}.0 for number in range(12)], wait_on(totals)
arrays = [np.zeros({NUMBERS}) for _ in range(6)]
for array in arrays:
    add(array, 1)
    add(array, 2)
assert [float(wait_on(array).sum()) for array in arrays] == [{NUMBERS} * 3.0] * 6
assert [float(future.result()[5]) for future in futures] == [float(number) for number in range(12)]
statistics = os.statvfs("/dev/shm")
print("size", statistics.f_blocks * statistics.f_frsize)
print("spilled", len(os.listdir(penstock.api.sync.session.running().segments.spill_dir)) > 0)
"""
    with with_small_shared_memory(tmp_path, source + CHECKS_AT_END) as program:
        status, output, errors = program.ends()
        assert status == 0, errors
        assert f"size {MEGABYTES << 20}" in output  # or the test would have tested nothing
        assert "spilled True" in output
        assert "left: []" in output
        assert list(program.temporary.iterdir()) == []


@needs_mounts
def test_one_object_larger_than_shared_memory_is_right(tmp_path: Path) -> None:
    source = f"""
penstock.start(cpus=2)

@task
def make():
    return np.arange({MEGABYTES * 3 * 131072})

@task
def total(array):
    return int(array.sum())

big = make()
assert total(big).result() == int(big.result().sum())
mine = np.arange({MEGABYTES * 3 * 131072})
assert total(mine).result() == int(mine.sum())
"""
    with with_small_shared_memory(tmp_path, source + CHECKS_AT_END) as program:
        status, output, errors = program.ends()
        assert status == 0, errors
        assert "left: []" in output
        assert list(program.temporary.iterdir()) == []


@needs_mounts
def test_disk_full_as_well_is_a_clear_error_and_the_run_goes_on(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    source = f"""
penstock.start(cpus=2, spill_dir={str(disk)!r})

@task
def make(value):
    return np.full({NUMBERS}, float(value))

@task
def total(array):
    return float(array.sum())

@task(array=INOUT)
def change(array):
    array += 1

@task
def small():
    return 1

futures = [make(number) for number in range(20)]
errors = [future.exception(timeout=60) for future in futures]
assert any(errors) and not all(errors), errors
error = next(filter(None, errors))
text = str(error.__cause__ or error)
assert "full" in text and {str(disk)!r} in text and "make" in text, text
for future, error in zip(futures, errors):
    if error is None:
        assert float(future.result()[0]) >= 0
print("failed", type(error).__name__)
assert small().result(timeout=60) == 1

# The main program's own arguments do not fit either: that is an error at the call.
mine = np.ones({NUMBERS * 10})
for call in (total, change, penstock.share):
    try:
        call(mine)
    except penstock.PenstockError as error:
        assert "full" in str(error) and {str(disk)!r} in str(error), error
        print("refused", call)
assert small().result(timeout=60) == 1

# Once there is room again, the same calls work.
del futures, future
assert small().result(timeout=60) == 1
deadline = time.monotonic() + 60
while time.monotonic() < deadline and os.statvfs("/dev/shm").f_bavail * 4096 < {2 * SIZE}:
    time.sleep(0.01)
assert float(make(7).result(timeout=60)[0]) == 7
print("works again")
"""
    with with_small_shared_memory(tmp_path, source + CHECKS_AT_END, disk=str(disk)) as program:
        status, output, errors = program.ends()
        assert status == 0, errors
        assert output.count("refused") == 3, output
        assert "works again" in output
        assert "left: []" in output


@needs_mounts
def test_message_too_large_for_a_packet_with_a_full_store_fails_its_call_and_nothing_else(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    source = f"""
penstock.start(cpus=2, spill_dir={str(disk)!r})

@task
def length(*values):
    return sum(map(len, values))

@task
def small():
    return 1

def fill(folder):
    try:
        with open(os.path.join(folder, "filling"), "wb") as file:
            for size in (1 << 16, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                        file.flush()
                except OSError:
                    continue
    except OSError:
        pass

assert small().result() == 1
fill("/dev/shm")
fill({str(disk)!r})
many = [b"y" * 50_000 for _ in range(40)]
try:
    future = length(*many)
    error = future.exception(timeout=60)
except penstock.PenstockError as raised:
    error = raised
assert "full" in f"{{error}} {{error.__cause__}}", error
assert small().result(timeout=60) == 1

@task
def long_result():
    return [b"z" * 50_000 for _ in range(40)]

error = long_result().exception(timeout=60)
assert "full" in f"{{error}} {{error.__cause__}}", error
assert small().result(timeout=60) == 1
os.unlink("/dev/shm/filling")
assert length(*many).result(timeout=60) == 2_000_000
print("works again")
"""
    with with_small_shared_memory(tmp_path, source + CHECKS_AT_END, disk=str(disk)) as program:
        status, output, errors = program.ends()
        assert status == 0, errors
        assert "works again" in output
        assert "left: []" in output


@needs_mounts
def test_output_files_on_a_full_disk_fail_their_task_and_leave_the_old_file(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    source = f"""
penstock.start(cpus=2)

@task(path=FILE_OUT)
def write(path, megabytes):
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(b"n" * (1 << 20))

path = os.path.join({str(disk)!r}, "result.bin")
with open(path, "wb") as file:
    file.write(b"old")
write(path, {MEGABYTES * 2})
try:
    penstock.open_file(path, "rb")
except OSError as error:
    print("failed", error.strerror)
with open(path, "rb") as file:
    print(file.read(), os.listdir({str(disk)!r}))
write(path, 1)
with penstock.open_file(path, "rb") as file:
    print(len(file.read()), os.listdir({str(disk)!r}))
"""
    with with_small_shared_memory(tmp_path, source + CHECKS_AT_END, disk=str(disk)) as program:
        status, output, errors = program.ends()
        assert status == 0, errors
        assert output.splitlines()[:3] == [
            "failed No space left on device",
            "b'old' ['result.bin']",
            f"{1 << 20} ['result.bin']",
        ]


@needs_mounts
def test_event_log_on_a_full_disk_does_not_end_the_run(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    source = f"""
penstock.start(cpus=2, run_dir={str(disk)!r}, log=True)
filling = os.open({str(disk / "filling")!r}, os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(filling, b"x" * 65536)
except OSError:
    os.close(filling)

@task
def double(number):
    return 2 * number

assert wait_on([double(number) for number in range(2000)]) == [2 * number for number in range(2000)]
print("right")
"""
    with with_small_shared_memory(tmp_path, source + CHECKS_AT_END, disk=str(disk)) as program:
        status, output, errors = program.ends()
        assert status == 0, errors
        assert "right" in output
        assert "left: []" in output


@needs_mounts
def test_start_on_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    source = f"""
filling = os.open({str(disk / "filling")!r}, os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(filling, b"x" * 65536)
except OSError:
    os.close(filling)
try:
    penstock.start(cpus=2, run_dir={str(disk)!r})
except (OSError, penstock.PenstockError) as error:
    assert {str(disk)!r} in str(error), error
    assert set(os.listdir({str(disk)!r})) <= {{"filling", "events.jsonl"}}, os.listdir({str(disk)!r})
    print("left:", [name for name in os.listdir("/dev/shm") if name.startswith("penstock")])
else:
    penstock.stop()
    print("left: []")  # it needs no room there, which is as good
"""
    with with_small_shared_memory(tmp_path, source, disk=str(disk)) as program:
        status, output, errors = program.ends()
        assert (status, output.strip()) == (0, "left: []"), errors


def test_store_that_somebody_deletes_is_a_clear_error_and_nothing_hangs(runtime: Runtime) -> None:
    future = make(1.0)
    penstock.wait([future])
    shutil.rmtree(runtime.segments.memory_dir)
    for lost in (future, total(future)):
        error = lost.exception(timeout=60) if lost is not future else _error_of(lost)
        assert error is not None
        assert runtime.segments.memory_dir in str(error)
    assert total(np.ones(10)).result(timeout=60) == 10  # what is small does not need the store


def _error_of(future: Any) -> BaseException | None:
    try:
        future.result(timeout=60)
    except Exception as error:
        return error
    return None
