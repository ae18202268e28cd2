"""What a task has written on a machine that nobody described outlives the program, however that ends.

The programs are ended by SIGKILL, and what lay in shared memory is removed, as it is when the machine goes down.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.faults.programs import Program, alive
from tests.faults.storage_tasks import content
from tests.own_place import memory_dir
from tests.patience import eventually

FILES = 3

SOURCE = """
from penstock import FILE_OUT, constraint, io
from tests.faults.storage_tasks import content

penstock.start(cpus=1, tuning="off", mode={mode!r})

@constraint(storage_bw={bandwidth!r}, storage_size="1MB")
@io
@task(path=FILE_OUT)
def checkpoint(number, path):
    with open(path, "wb") as file:
        file.write(content(number))
        if {sync}:
            file.flush()
            os.fsync(file.fileno())

@constraint(storage_bw={bandwidth!r}, storage_size="1MB")
@io
@task(path=FILE_OUT(temp=True))
def stage(path):
    with open(path, "wb") as file:
        file.write(b"for this run")

done = [checkpoint(number, {home!r} + f"/{{number}}") for number in range({files})]
done.append(stage({home!r} + "/stage"))
penstock.wait_on(done)
print(os.path.realpath({home!r} + "/stage"), flush=True)
arrive("written")
signal.pause()
"""


def killed_when_written(folder: Path, home: Path, **values: object) -> str:
    """Where the temporary file was."""
    source = SOURCE.format(
        **{"mode": "parallel", "bandwidth": "auto", "sync": False, **values}, files=FILES, home=str(home)
    )
    with Program(folder, source) as program:
        program.arrival()
        family = program.family()
        program.signal(signal.SIGKILL)
        status, output, errors = program.ends()
        assert status == -signal.SIGKILL, errors
        eventually(lambda: not any(map(alive, family)))
        return output.strip()


def forget_memory() -> None:
    """The machine goes down."""
    for path in memory_dir().iterdir():
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    if os.stat(tmp_path).st_dev == os.stat(memory_dir()).st_dev:
        pytest.skip("the temporary directory of the tests lies in shared memory")
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("sync", [False, True], ids=["written", "synced"])
@pytest.mark.parametrize("bandwidth", ["auto", "10MB/s"])
def test_a_file_is_there_under_its_name_after_the_program_and_memory_are_gone(
    tmp_path: Path, home: Path, bandwidth: str, sync: bool
) -> None:
    killed_when_written(tmp_path, home, bandwidth=bandwidth, sync=sync)
    forget_memory()
    for number in range(FILES):
        assert (home / str(number)).read_bytes() == content(number)


def test_a_name_outside_the_working_directory(tmp_path: Path, home: Path) -> None:
    """It lies on no layer, so the file is on one, which keeps it, and its name leads there."""
    folder = tmp_path / "program"
    folder.mkdir()
    killed_when_written(folder, home, sync=True)
    forget_memory()
    for number in range(FILES):
        assert (home / str(number)).read_bytes() == content(number)


def test_temporary_files_are_in_memory(tmp_path: Path, home: Path) -> None:
    assert Path(killed_when_written(tmp_path, home)).is_relative_to(memory_dir().resolve())


def test_inline(tmp_path: Path, home: Path) -> None:
    killed_when_written(tmp_path, home, mode="inline")
    forget_memory()
    for number in range(FILES):
        assert (home / str(number)).read_bytes() == content(number)


def test_a_memory_layer_that_is_described_is_used_for_all(tmp_path: Path, home: Path) -> None:
    """Whoever describes it wants its speed, and has been told what it costs."""
    layer = memory_dir() / "described"
    layer.mkdir()
    described = (
        f'[[resources.storage]]\nname = "memory"\nmount = "{layer}"\nbandwidth = "2GB/s"\n'
        f'[[resources.storage]]\nname = "work"\nmount = "{tmp_path}"\nbandwidth = "450MB/s"\n'
    )
    (tmp_path / "penstock.toml").write_text(described)
    killed_when_written(tmp_path, home, bandwidth="10MB/s")
    try:
        for number in range(FILES):
            assert Path(os.readlink(home / str(number))).is_relative_to(layer)
            assert (home / str(number)).read_bytes() == content(number)
    finally:
        forget_memory()


def test_a_layer_that_is_described_for_temporary_files_takes_no_other(tmp_path: Path, home: Path) -> None:
    described = (
        f'[[resources.storage]]\nname = "memory"\nmount = "{memory_dir()}"\nbandwidth = "2GB/s"\ntemporary = true\n'
        f'[[resources.storage]]\nname = "work"\nmount = "{tmp_path}"\nbandwidth = "450MB/s"\n'
    )
    (tmp_path / "penstock.toml").write_text(described)
    stage = killed_when_written(tmp_path, home, bandwidth="10MB/s")
    forget_memory()
    assert Path(stage).is_relative_to(memory_dir().resolve())
    for number in range(FILES):
        assert (home / str(number)).read_bytes() == content(number)
