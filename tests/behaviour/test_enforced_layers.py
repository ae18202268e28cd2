"""Layers with ``enforced = true``: what a task writes there takes as long as the bandwidth that it holds says.

Times are bounded from below, where only a defect can come; from above only in a quiet moment.
"""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import only_workers
from tests.behaviour.storage_programs import layer, run
from tests.quiet_moments import in_a_quiet_moment

from penstock import FILE_IN, FILE_INOUT, FILE_OUT, constraint, io, program, task, wait_on

MB = 1_000_000
#: bytes per second that a task holds, the bytes that it writes, and the least that this takes: a tenth of a second may
#: have been saved up before the first byte
RATE, SIZE = 10 * MB, 4 * MB
LEAST = SIZE / RATE - 0.11
HELD = {"storage_bw": "10MB/s"}


def enforced(folder: Path, bandwidth: str = "100MB/s", **more: Any) -> list[dict[str, Any]]:
    return [layer(folder, "ssd", bandwidth, enforced=True, **more)]


def in_one_piece(path: str) -> None:
    Path(path).write_bytes(bytes(SIZE))


def unbuffered(path: str) -> None:
    with open(path, "wb", buffering=0) as file:
        assert file.write(bytes(SIZE)) == SIZE


def by_lines(path: str) -> None:
    with open(path, "w") as file:
        file.writelines("x" * 99 + "\n" for _ in range(SIZE // 100))


def as_an_array(path: str) -> None:
    with open(path, "wb") as file:
        np.zeros(SIZE, np.uint8).tofile(file)


def past_the_file_object(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    left = SIZE
    while left:
        left -= os.write(descriptor, bytes(left))
    os.close(descriptor)


def through_a_map(path: str) -> None:
    with open(path, "w+b") as file:
        file.truncate(SIZE)
        with mmap.mmap(file.fileno(), SIZE) as pages:
            pages[:] = b"m" * SIZE


def by_a_child(path: str) -> None:
    subprocess.run([sys.executable, "-c", f"open({path!r}, 'wb').write(bytes({SIZE}))"], check=True)


def by_four_threads(path: str) -> None:
    def part(number: int) -> None:
        with open(path, "r+b") as file:
            file.seek(number * SIZE // 4)
            file.write(bytes(SIZE // 4))

    open(path, "wb").close()
    threads = [threading.Thread(target=part, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def copied(path: str) -> None:
    source = f"{path}.source"
    shutil.copyfile("/proc/self/exe", source)
    os.truncate(source, SIZE)
    shutil.copyfile(source, path)
    os.unlink(source)


WAYS = [
    in_one_piece,
    unbuffered,
    by_lines,
    as_an_array,
    past_the_file_object,
    through_a_map,
    by_a_child,
    by_four_threads,
    copied,
]


def saving(body: Any, **options: Any) -> Any:
    """A new task that writes with that body, holding `RATE`."""

    def save(path: str) -> None:
        body(path)

    return constraint(**HELD)(io(task(path=FILE_OUT, **options)(save)))


@pytest.mark.parametrize("mode", ["workers", "inline"], indirect=True)
@pytest.mark.parametrize("body", WAYS, ids=lambda body: str(body.__name__))
def test_a_task_takes_as_long_as_what_it_holds_says(mode: str, tmp_path: Path, body: Any) -> None:
    path = tmp_path / "out"
    with run(mode, storage=enforced(tmp_path)):
        began = time.monotonic()
        saving(body)(str(path)).result()
        took = time.monotonic() - began
    assert took > LEAST
    assert path.stat().st_size == SIZE


@only_workers
def test_all_writers_together_stay_below_what_the_layer_bears(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=enforced(tmp_path, "20MB/s"), io_executors=8):
        began = time.monotonic()
        wait_on([saving(in_one_piece)(str(tmp_path / f"out-{number}")) for number in range(6)])
        took = time.monotonic() - began
    assert took > 3 * LEAST  # two at a time


@constraint(**HELD)
@io
@task(path=FILE_OUT, returns=1)
def moments_of_writing(path: str) -> list[float]:
    """Write many small pieces; tells how long each took."""
    moments = []
    with open(path, "wb", buffering=0) as file:
        for _ in range(SIZE // 100_000):
            began = time.monotonic()
            file.write(bytes(100_000))
            moments.append(time.monotonic() - began)
    return moments


@only_workers
def test_the_body_itself_is_held_back_piece_by_piece(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=enforced(tmp_path)):
        moments = moments_of_writing(str(tmp_path / "out")).result()
    assert sum(moments) > LEAST


@constraint(**HELD)
@io
@task(path=FILE_IN, returns=1)
def seconds_to_read(path: str) -> float:
    began = time.monotonic()
    assert len(Path(path).read_bytes()) == 20 * MB
    return time.monotonic() - began


@only_workers
@in_a_quiet_moment
def test_reads_are_not_held_back(mode: str, tmp_path: Path) -> None:
    storage = enforced(tmp_path)
    path = Path(storage[0]["mount"]) / "there"
    path.write_bytes(bytes(20 * MB))
    with run(mode, storage=storage):
        assert seconds_to_read(str(path)).result() < 1


@constraint(**HELD)
@io
@task(path=FILE_INOUT)
def append_a_byte(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


@only_workers
def test_the_copy_of_a_file_to_be_changed_counts(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_bytes(bytes(SIZE))
    with run(mode, storage=enforced(tmp_path)):
        began = time.monotonic()
        append_a_byte(str(path)).result()
        took = time.monotonic() - began
    assert took > LEAST
    assert path.stat().st_size == SIZE + 1


@constraint(**HELD)
@io
@program(f"head -c {SIZE} /dev/zero > {{path}}", path=FILE_OUT)
def by_a_program(path: str) -> None: ...


@only_workers
def test_a_program_pays_at_its_end(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=enforced(tmp_path)):
        began = time.monotonic()
        by_a_program(str(tmp_path / "out")).result()
        took = time.monotonic() - began
    assert took > LEAST


@constraint(**HELD)
@io
@task(path=FILE_OUT)
def write_and_fail(path: str) -> None:
    past_the_file_object(path)
    raise ValueError("after all that")


@only_workers
def test_an_attempt_that_fails_pays_for_what_it_wrote(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    probe = tmp_path / "counted"
    before = written_here()
    past_the_file_object(str(probe))
    if written_here() - before < SIZE:
        pytest.skip("the kernel does not count what is written to the file system of the tests")
    with run(mode, storage=enforced(tmp_path)):
        began = time.monotonic()
        with pytest.raises(ValueError, match="after all that"):
            write_and_fail(str(path)).result()
        took = time.monotonic() - began
    assert took > LEAST


def written_here() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).partition(":")[2])


@only_workers
def test_an_emulated_layer_may_be_enforced_too(mode: str, tmp_path: Path) -> None:
    slow = enforced(tmp_path, curve=[[1, "5MB/s"], [64, "5MB/s"]])
    with run(mode, storage=slow):
        began = time.monotonic()
        saving(in_one_piece)(str(tmp_path / "out")).result()
        took = time.monotonic() - began
    assert took > SIZE / (5 * MB) - 0.11


@only_workers
@in_a_quiet_moment
def test_a_layer_is_not_enforced_unless_it_says_so(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=[layer(tmp_path, "ssd", "100MB/s")]):
        saving(in_one_piece)(str(tmp_path / "first")).result()
        began = time.monotonic()
        saving(in_one_piece)(str(tmp_path / "out")).result()
        took = time.monotonic() - began
    assert took < LEAST


@only_workers
@in_a_quiet_moment
def test_what_is_written_elsewhere_is_not_held_back(mode: str, tmp_path: Path) -> None:
    """A task without a constraint holds nothing, and is admitted without limit."""
    free = io(task(path=FILE_OUT)(in_one_piece))
    storage = enforced(tmp_path)
    with run(mode, storage=storage):
        free(str(tmp_path / "first")).result()
        began = time.monotonic()
        free(str(tmp_path / "out")).result()
        free(str(Path(storage[0]["mount"]) / "out")).result()
        took = time.monotonic() - began
    assert took < LEAST


@constraint(**HELD)
@io
@task(path=FILE_OUT, returns=1)
def write_beyond_the_limit(path: str) -> tuple[int, str]:
    """Write more than files may have: what fits is written, and the next write says why no more is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, before[1]))
    try:
        with open(path, "wb", buffering=0) as file:
            written = file.write(bytes(SIZE))
            try:
                file.write(b"x")
            except OSError as error:
                return written, str(error)
            return written, ""
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@only_workers
def test_an_error_in_the_middle_of_a_large_write_is_that_of_the_next(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=enforced(tmp_path)):
        written, error = write_beyond_the_limit(str(tmp_path / "out")).result()
    assert written == SIZE // 2
    assert "File too large" in error
