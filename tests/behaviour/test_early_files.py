"""Files handed over before their task ends: they bear their name, are complete, and stay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import Gate, only_workers
from tests.behaviour.storage_programs import LITTLE, files_below, layer
from tests.behaviour.storage_programs import run as run_on_layers

import penstock
from penstock import (
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    ReturnsMismatch,
    TaskError,
    barrier,
    constraint,
    io,
    open_file,
    ready_file,
    ready_value,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


@task(first=FILE_OUT, second=FILE_OUT)
def write_both(first: str, second: str, gate: Gate | None = None, text: str = "") -> None:
    Path(first).write_text(f"one{text}")
    ready_file(first)
    if gate is not None:
        gate.enter()
    Path(second).write_text(f"two{text}")


@task(path=FILE_IN, returns=1)
def read(path: str) -> str:
    return Path(path).read_text()


@task(path=FILE_IN, returns=1)
def read_slowly(path: str, gate: Gate) -> str:
    before = Path(path).read_text()
    gate.enter()
    assert Path(path).read_text() == before
    return before


@only_workers
def test_a_file_is_read_while_its_producer_runs(in_folder: Path, gate: Gate) -> None:
    write_both("a", "b", gate)
    early, late = read("a"), read("b")
    assert early.result(timeout=60) == "one"
    assert Path("a").read_text() == "one"
    assert not late.done()
    assert not Path("b").exists()
    gate.open()
    assert late.result(timeout=60) == "two"


@only_workers
def test_the_program_opens_an_early_file(in_folder: Path, gate: Gate) -> None:
    write_both("a", "b", gate)
    with open_file("a") as file:
        assert file.read() == "one"
    assert not Path("b").exists()
    gate.open()


def test_files_are_the_same_however_it_runs(in_folder: Path) -> None:
    write_both(Path("a"), "b")
    assert wait_on(read("a"), read(Path("b"))) == ["one", "two"]
    barrier()
    assert sorted(os.listdir()) == ["a", "b"]


@only_workers
def test_readers_of_the_old_version_keep_it(in_folder: Path, gate: Gate, second_gate: Gate) -> None:
    Path("a").write_text("old")
    with penstock.Runtime(cpus=3):
        reader = read_slowly("a", gate)
        write_both("a", "b", second_gate, " new")
        assert read("a").result(timeout=60) == "one new"  # in its private copy: the name still means the old one
        assert Path("a").read_text() == "old"
        gate.open()
        assert reader.result(timeout=60) == "old"
        with open_file("a") as file:
            assert file.read() == "one new"
        second_gate.open()
        barrier()
        assert sorted(name for name in os.listdir() if "gate" not in name) == ["a", "b"]


def test_a_task_that_reads_what_it_replaces_keeps_it(in_folder: Path) -> None:
    @task(old=FILE_IN, new=FILE_OUT)
    def replace(old: str, new: str) -> str:
        Path(new).write_text("new")
        ready_file(new)
        return Path(old).read_text()

    (in_folder / "a").write_text("old")
    assert replace("a", "a").result() == "old"
    with open_file("a") as file:
        assert file.read() == "new"


@only_workers
def test_a_writer_of_the_next_version_does_not_wait(in_folder: Path, gate: Gate) -> None:
    write_both("a", "b", gate)
    write_both("a", "c", None, " again")
    assert read("a").result(timeout=60) == "one again"
    gate.open()
    barrier()
    assert Path("a").read_text() == "one again"


def test_an_updated_file_can_be_early(in_folder: Path) -> None:
    @task(path=FILE_INOUT)
    def append(path: str, text: str) -> None:
        with open(path, "a") as file:
            file.write(text)
        ready_file(path)

    Path("a").write_text("x")
    append("a", "y")
    append("a", "z")
    assert wait_on(read("a")) == "xyz"


@pytest.mark.parametrize("fails", ["raises", "dies"])
@only_workers
def test_what_was_handed_over_stays_when_the_attempt_fails(in_folder: Path, fails: str) -> None:
    @task(first=FILE_OUT, second=FILE_OUT, retries=1)
    def flaky(first: str, second: str, marker: str) -> None:
        attempt = 2 if os.path.exists(marker) else 1
        Path(first).write_text(f"one of attempt {attempt}")
        ready_file(first)
        if attempt == 1:
            # Wait until the file has been read, so that it surely was handed over.
            while not os.path.exists(marker):
                pass
            if fails == "raises":
                raise RuntimeError("once")
            os._exit(1)
        Path(second).write_text(f"two of attempt {attempt}")

    marker = str(in_folder / "read")
    flaky("a", "b", marker)
    assert read("a").result(timeout=60) == "one of attempt 1"
    Path(marker).touch()
    assert read("b").result(timeout=60) == "two of attempt 2"
    barrier()
    assert Path("a").read_text() == "one of attempt 1"
    os.unlink(marker)
    assert sorted(os.listdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("twice", "has handed that file over already"),
        ("another", "is none of the files that task .* declares as FILE_OUT or FILE_INOUT: 'path'"),
        ("open", "has that file still open for writing; close it first"),
        ("missing", "did not create"),
    ],
)
def test_mistakes(in_folder: Path, mistake: str, message: str) -> None:
    @task(path=FILE_OUT, returns=1)
    def clumsy(path: str) -> None:
        if mistake == "another":
            ready_file("elsewhere")
        elif mistake == "open":
            with open(path, "w") as file:
                file.write("half")
                file.flush()
                ready_file(path)
        else:
            if mistake == "twice":
                Path(path).write_text("whole")
                ready_file(path)
            ready_file(path)

    with pytest.raises(TaskError, match=message) as caught:
        wait_on(clumsy("a"))
    assert ".penstock-" not in str(caught.value), "the program does not know that folder"
    assert Path("a").exists() is (mistake == "twice")


def test_outside_of_tasks_and_of_files(in_folder: Path) -> None:
    write_both.__wrapped__("a", "b")  # a plain call: the files have their names
    assert sorted(os.listdir()) == ["a", "b"]

    @task
    def no_files() -> None:
        ready_file("a")

    with pytest.raises(ReturnsMismatch, match=r"ready_file\(\) is for the body of a task that declares FILE_OUT"):
        wait_on(no_files())

    @task(path=FILE_OUT)
    def no_values(path: str) -> None:
        Path(path).write_text("whole")
        ready_value(1, 0)

    no_values("a")
    with pytest.raises(ReturnsMismatch, match="does not declare how many values it returns"):
        barrier()


def test_files_of_nested_calls(in_folder: Path) -> None:
    @task(returns=1)
    def outer(folder: str) -> str:
        first = os.path.join(folder, "a")
        write_both(first, os.path.join(folder, "b"))
        return Path(first).read_text()

    assert wait_on(outer(str(in_folder))) == "one"


def test_files_on_storage_layers(mode: str, tmp_path: Path) -> None:
    barrier()
    home = tmp_path / "home"
    home.mkdir()

    @constraint(**LITTLE, storage_size="1MB")
    @io
    @task(first=FILE_OUT, second=FILE_OUT, retries=1)
    def checkpoint(first: str, second: str, marker: str) -> None:
        attempt = 2 if os.path.exists(marker) else 1
        Path(first).write_text(f"one of attempt {attempt}")
        ready_file(first)
        if attempt == 1:
            Path(marker).touch()
            raise RuntimeError("once")
        Path(second).write_text(f"two of attempt {attempt}")

    @task(path=FILE_IN, returns=1)
    def place(path: str) -> tuple[str, bool]:
        return Path(path).read_text(), os.path.realpath(path).startswith(str(home))

    with run_on_layers(mode, storage=[layer(tmp_path, "fast", 100)]):
        checkpoint(str(home / "a"), str(home / "b"), str(tmp_path / "tried"))
        results: Any = wait_on(place(str(home / "a")), place(str(home / "b")))
        assert results == [("one of attempt 1", False), ("two of attempt 2", False)]
    assert (home / "a").read_text() == "one of attempt 1"
    assert (home / "b").read_text() == "two of attempt 2"
    assert not (home / "a").is_symlink()
    assert files_below(tmp_path / "fast") == []
