"""A process that ends while its task's files take their names: the task has delivered, or its files are as before."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.faults.programs import Gate, TaskSide, takes_less_than

import penstock
from penstock import DIRECTORY_OUT, FILE_IN, FILE_INOUT, FILE_OUT, Runtime, cancel, ready_file, task, wait
from penstock.executors import early, written_files

pytestmark = [pytest.mark.usefixtures("runtime"), pytest.mark.leaks]


def halt_at_rename(name: str, gate: TaskSide | None, *, after: bool) -> None:
    """Have this process stop, or die, right before or right after a finished file takes its name."""
    rename = written_files.rename

    def halting(path: str, target: str) -> None:
        if after:
            rename(path, target)
        if os.path.basename(target) == name:
            if gate is None:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                gate.hold()
        if not after:
            rename(path, target)

    written_files.rename = halting


@task(path=FILE_OUT, returns=1, retries=0)
def replace(path: Any, name: str, gate: TaskSide | None, after: bool) -> str:
    with open(path, "w") as file:
        file.write("new")
    halt_at_rename(name, gate, after=after)
    return "result"


@task(one=FILE_OUT, two=FILE_OUT, three=FILE_INOUT, returns=1, retries=0)
def replace_several(one: Any, two: Any, three: Any, gate: TaskSide) -> str:
    for path in (one, two):
        with open(path, "w") as file:
            file.write("new")
    with open(three, "a") as file:
        file.write(" new")
    halt_at_rename(os.path.basename(one), gate, after=True)
    return "result"


@task(path=DIRECTORY_OUT, returns=1, retries=0)
def replace_directory(path: Any, name: str, gate: TaskSide, after: bool) -> str:
    with open(os.path.join(path, "content"), "w") as file:
        file.write("new")
    halt_at_rename(name, gate, after=after)
    return "result"


@task(path=FILE_OUT, returns=1, retries=0)
def hand_over(path: Any, gate: TaskSide) -> str:
    with open(path, "w") as file:
        file.write("new")
    early.Early = lambda *message: gate.hold()  # type: ignore[assignment, misc, return-value]
    ready_file(path)
    return "result"


@task(path=FILE_IN, returns=1)
def read(path: Any) -> str:
    with open(path) as file:
        return file.read()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cancelled_while_its_file_takes_its_name(tmp_path: Path, gate: Gate, after: bool) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / "out.txt"
    path.write_text("old")
    written = replace(path, path.name, gate, after)
    gate.wait_reached()
    content = read(path)
    with takes_less_than(30):
        cancel(written)
        assert written.result() == "result"
    assert content.result() == "new"
    assert path.read_text() == "new"
    penstock.barrier()
    assert os.listdir(folder) == ["out.txt"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_while_its_file_takes_its_name(tmp_path: Path, after: bool) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    written = replace(folder / "out.txt", "out.txt", None, after)
    assert written.result() == "result"
    assert (folder / "out.txt").read_text() == "new"
    assert read(folder / "out.txt").result() == "new"
    penstock.stop()
    assert os.listdir(folder) == ["out.txt"]


def test_of_several_files_all_or_none_are_new(tmp_path: Path, gate: Gate) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = [folder / name for name in ("one", "two", "three")]
    for path in paths:
        path.write_text("old")
    written = replace_several(*paths, gate)
    gate.wait_reached()
    cancel(written)
    assert written.result() == "result"
    assert [path.read_text() for path in paths] == ["new", "new", "old new"]
    penstock.stop()
    assert sorted(os.listdir(folder)) == ["one", "three", "two"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cancelled_while_a_directory_takes_its_name(tmp_path: Path, gate: Gate, after: bool) -> None:
    folder = tmp_path / "files" / "out"
    folder.mkdir(parents=True)
    (folder / "content").write_text("old")
    (folder / "more").write_text("old")
    written = replace_directory(folder, folder.name, gate, after)
    gate.wait_reached()
    cancel(written)
    assert written.result() == "result"
    assert {one.name: one.read_text() for one in folder.iterdir()} == {"content": "new"}
    penstock.stop()
    assert os.listdir(folder.parent) == ["out"]


def test_cancelled_before_anybody_heard_of_a_file_handed_over(tmp_path: Path, gate: Gate) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "out.txt").write_text("old")
    handed = hand_over(folder / "out.txt", gate)
    gate.wait_reached()
    cancel(handed)
    wait([handed])
    assert handed.cancelled()
    assert read(folder / "out.txt").result() == "old"
    assert (folder / "out.txt").read_text() == "old"
    penstock.stop()
    assert os.listdir(folder) == ["out.txt"]


@task(path=FILE_OUT, returns=1)
def write(path: Any) -> str:
    with open(path, "w") as file:
        file.write("new")
    return "result"


@task(path=FILE_INOUT, returns=1)
def update(path: Any) -> str:
    with open(path, "w") as file:
        file.write("new")
    return "result"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("changed", [write, update], ids=["FILE_OUT", "FILE_INOUT"])
def test_cancelled_on_sight_of_its_file(tmp_path: Path, runtime: Runtime, changed: Any) -> None:
    path = tmp_path / "out.txt"
    for _ in range(30):
        path.write_text("old")
        future = changed(path)
        while path.read_text() != "new":
            pass
        cancel(future)
        wait([future])
        assert path.read_text() == ("old" if future.cancelled() else "new")
