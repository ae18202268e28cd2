"""Directories as data: one datum with all that is in it, which appears when it is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.behaviour.modes import Gate, only_workers

from penstock import (
    DIRECTORY_IN,
    DIRECTORY_INOUT,
    DIRECTORY_OUT,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    CallError,
    barrier,
    open_file,
    program,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def tree(path: Any) -> dict[str, str]:
    """What a directory holds: the text of each file by its way in it."""
    return {str(one.relative_to(path)): one.read_text() for one in sorted(Path(path).rglob("*")) if one.is_file()}


@task(path=DIRECTORY_OUT)
def fill(path: Any, files: dict[str, str], fails: bool = False) -> None:
    assert os.listdir(path) == []
    for name, text in files.items():
        Path(path, name).parent.mkdir(parents=True, exist_ok=True)
        Path(path, name).write_text(text)
    if fails:
        raise OSError("disk on fire")


@task(path=DIRECTORY_INOUT)
def add(path: Any, name: str, text: str, fails: bool = False) -> None:
    with open(Path(path, name), "a") as file:
        file.write(text)
    if fails:
        raise OSError("disk on fire")


@task(path=DIRECTORY_IN)
def look(path: Any) -> dict[str, str]:
    return tree(path)


@task(path=DIRECTORY_IN)
def look_behind_gate(path: Any, arrived: Gate, leave: Gate) -> tuple[dict[str, str], dict[str, str]]:
    before = tree(path)
    arrived.enter()
    leave.enter()
    return before, tree(path)


@task(paths=FILE_IN)
def read(*paths: Any) -> list[str]:
    return [Path(path).read_text() for path in paths]


@task(path=FILE_OUT)
def write(path: Any, text: str) -> None:
    Path(path).write_text(text)


@task(path=FILE_INOUT)
def append(path: Any, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_a_directory_goes_from_task_to_task(folder: Path) -> None:
    fill("data", {"a": "1", "sub/b": "2"})
    first = look("data")
    add("data", "a", "+")
    second = look(Path("data"))
    fill(folder / "data", {"c": "3"})
    third = look("data/")
    assert wait_on(first, second, third) == [{"a": "1", "sub/b": "2"}, {"a": "1+", "sub/b": "2"}, {"c": "3"}]
    barrier()
    assert tree("data") == {"c": "3"}
    assert os.listdir(folder) == ["data"]


def test_a_directory_that_was_there_is_read_updated_and_replaced(folder: Path) -> None:
    Path("data/sub").mkdir(parents=True)
    Path("data/sub/a").write_text("0")
    os.symlink("sub/a", "data/link")
    before = look("data")
    add("data", "sub/a", "1")
    assert wait_on(before) == {"sub/a": "0", "link": "0"}
    barrier()
    assert Path("data/link").is_symlink()
    assert Path("data/link").read_text() == "01"
    fill("data", {})
    barrier()
    assert os.listdir("data") == []
    assert os.listdir(folder) == ["data"]


def test_files_in_a_directory_that_a_task_makes(folder: Path) -> None:
    fill("data", {"a": "1", "sub/b": "2"})
    old = read("data/a", Path("data/sub/b"))
    inner = look("data/sub")
    add("data", "a", "+")
    new = read("data/a")
    assert wait_on(old, inner, new) == [["1", "2"], {"b": "2"}, ["1+"]]


def test_files_that_are_written_into_a_directory(folder: Path) -> None:
    fill("data", {"a": "1"})
    append("data/a", "2")
    write("data/b", "3")
    whole = look("data")
    write("data/b", "4")
    add("data", "b", "5")
    assert wait_on(whole) == {"a": "12", "b": "3"}
    assert wait_on(look("data")) == {"a": "12", "b": "45"}
    fill("data", {"c": "6"})
    assert wait_on(read("data/c")) == ["6"]
    barrier()
    assert tree("data") == {"c": "6"}


def test_the_program_opens_a_file_in_a_directory_that_a_task_makes() -> None:
    fill("data", {"a": "1"})
    with open_file("data/a") as file:
        assert file.read() == "1"
    with open_file("data/a", "w") as file:
        file.write("2")
    assert wait_on(look("data")) == {"a": "2"}


def test_directories_of_a_collection(folder: Path) -> None:
    @task(parts=DIRECTORY_IN, whole=DIRECTORY_OUT)
    def merge(parts: Any, whole: Any) -> None:
        for name, part in parts.items():
            shutil.copytree(part, Path(whole, name))

    fill("x", {"a": "1"})
    fill("y", {"b": "2"})
    merge({"one": "x", "two": "y"}, "z")
    assert wait_on(look("z")) == {"one/a": "1", "two/b": "2"}


def test_a_program_fills_a_directory(folder: Path) -> None:
    @program("cp -r {source}/. {target}; echo more > {target}/extra", source=DIRECTORY_IN, target=DIRECTORY_OUT)
    def copy(source: Any, target: Any) -> None: ...

    fill("data", {"a": "1"})
    copy("data", "copy of data")
    assert wait_on(look("copy of data")) == {"a": "1", "extra": "more\n"}


@only_workers
def test_a_reader_keeps_its_version_while_newer_ones_are_made(gate: Gate, tmp_path: Path, folder: Path) -> None:
    leave = Gate(tmp_path / "leave")
    fill("data", {"a": "1"})
    barrier()
    held = look_behind_gate("data", gate, leave)
    gate.open()
    add("data", "a", "2")
    later = look("data")
    fill("data", {"b": "3"})
    assert wait_on(later) == {"a": "12"}
    assert wait_on(read("data/b")) == ["3"]
    assert tree("data") == {"a": "1"}
    leave.open()
    assert wait_on(held) == ({"a": "1"}, {"a": "1"})
    barrier()
    assert tree("data") == {"b": "3"}


@pytest.mark.parametrize("writer", ["fill", "add"])
def test_a_failing_writer_leaves_the_directory_and_no_litter(writer: str, folder: Path) -> None:
    fill("data", {"a": "1"})
    with pytest.raises(OSError, match="disk on fire"):
        wait_on(fill("data", {"x": "?"}, True) if writer == "fill" else add("data", "a", "?", True))
    barrier()
    assert tree("data") == {"a": "1"}
    assert os.listdir(folder) == ["data"]


def test_files_whose_writers_failed_to_the_programs_knowledge_are_no_trouble_to_their_directory(folder: Path) -> None:
    fill("data", {"a": "1"})
    for path in ("data/a", "data/new"):
        assert isinstance(write_and_fail(path).exception(), OSError)
    add("data", "a", "2")
    assert wait_on(look("data")) == {"a": "12"}
    assert isinstance(fill("data", {}, fails=True).exception(), OSError)
    with open_file("data/a") as file:
        assert file.read() == "12"


@task(path=FILE_OUT)
def write_and_fail(path: Any) -> None:
    Path(path).write_text("half")
    raise OSError("disk on fire")


def test_a_task_that_removes_its_directory_fails(folder: Path) -> None:
    @task(path=DIRECTORY_OUT)
    def vanish(path: Any) -> None:
        os.rmdir(path)

    @task(path=DIRECTORY_OUT)
    def make_a_file(path: Any) -> None:
        os.rmdir(path)
        Path(path).touch()

    with pytest.raises(Exception, match="as a directory that it writes, but has removed .*/data"):
        wait_on(vanish("data"))
    with pytest.raises(Exception, match="something else than a directory"):
        wait_on(make_a_file("data"))
    assert os.listdir(folder) == []


def test_what_is_refused_at_the_call(folder: Path) -> None:
    @task(whole=DIRECTORY_OUT, part=FILE_OUT)
    def nested(whole: Any, part: Any) -> None: ...

    @task(paths=DIRECTORY_OUT)
    def several(*paths: Any) -> None: ...

    Path("file").touch()
    Path("data").mkdir()
    bad: list[tuple[Any, str]] = [
        (lambda: look("file"), "is declared DIRECTORY_IN and names .*/file, which is a file; declare it FILE_IN"),
        (lambda: fill("file", {}), "is declared DIRECTORY_OUT and names .*/file, which is a file; declare it FILE_OUT"),
        (lambda: read("data"), "is declared FILE_IN and names .*/data, which is a directory; declare it DIRECTORY_IN"),
        (lambda: write("data", ""), "is declared FILE_OUT and names .*/data, which is a directory"),
        (lambda: look("missing"), "names the directory .*/missing, which does not exist and which no task produces"),
        (lambda: fill(".", {}), "in which the program runs: it cannot be replaced"),
        (lambda: fill("..", {}), "in which the program runs: it cannot be replaced"),
        (lambda: nested("data", "data/part"), "one inside the other, and the call writes there"),
        (lambda: several("data", "data/inner/most"), "one inside the other"),
        (lambda: several("data", "data"), "which the call writes already"),
    ]
    for call, message in bad:
        with pytest.raises(CallError, match=message):
            call()
    fill("new", {"a": "1"})
    with pytest.raises(CallError, match="is declared FILE_IN and names .*/new, which is a directory"):
        read("new")
    barrier()
    assert sorted(os.listdir(folder)) == ["data", "file", "new"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fill", "add", "look", "read", "write", "append", "barrier"]),
        st.sampled_from(["a", "b"]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.one_in(2)
@given(steps=STEPS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
def test_any_row_of_calls_is_like_sequential_execution(steps: list[tuple[str, str]]) -> None:
    place = Path(tempfile.mkdtemp(prefix="directories-"))
    try:
        data = place / "data"
        data.mkdir()
        state: dict[str, str] = {}
        found: list[Any] = []
        expected: list[Any] = []
        for number, (what, name) in enumerate(steps):
            text = f"+{number}"
            if what == "fill":
                state = {"a": text, "b": text}
                fill(data, state)
            elif what == "add":
                add(data, name, text)
                state = state | {name: state.get(name, "") + text}
            elif what == "write" or (what == "append" and name in state):
                (write if what == "write" else append)(data / name, text)
                state = state | {name: text if what == "write" else state[name] + text}
            elif what == "look":
                found.append(look(data))
                expected.append(state)
            elif what == "read" and name in state:
                found.append(read(data / name))
                expected.append([state[name]])
            elif what == "barrier":
                barrier()
        assert wait_on(found) == expected
        barrier()
        assert tree(data) == state
        assert os.listdir(place) == ["data"]
        assert sorted(os.listdir(data)) == sorted(state)
    finally:
        shutil.rmtree(place)


def test_two_names_of_one_file_stay_that_when_the_directory_is_updated(folder: Path) -> None:
    os.mkdir("tree")
    Path("tree", "one").write_text("old ")
    os.link("tree/one", "tree/other")
    os.symlink("one", "tree/link")
    add("tree", "one", "and new")
    barrier()
    assert tree("tree") == dict.fromkeys(["link", "one", "other"], "old and new")
    assert os.path.samefile("tree/one", "tree/other") and os.path.islink("tree/link")
