"""Files whose writer failed, where that is ignored or tried again: they are as sequential execution leaves them.

A writer that fails leaves the file as it was, every later reader finds what the last writer that succeeded has made,
and nothing of ours stays beside the file, whatever ends the attempt.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, barrier, io, open_file, program, task, wait_on
from penstock.runtime.session import current

pytestmark = pytest.mark.usefixtures("runtime")

#: how an attempt ends
FATES = ["delivers", "raises", "forgets"]


def end(fate: str, path: Any) -> None:
    """End a body that has written its file."""
    if fate == "raises":
        raise OSError("disk on fire")
    if fate == "forgets":
        os.unlink(path)
    if fate == "dies":
        os.kill(os.getpid(), signal.SIGKILL)


@task(path=FILE_INOUT, on_failure="ignore", retries=0)
def append(path: Any, text: str, fate: str = "delivers") -> None:
    with open(path, "a") as file:
        file.write(text)
    end(fate, path)


@task(path=FILE_OUT, on_failure="ignore", retries=0)
def write(path: Any, text: str, fate: str = "delivers") -> None:
    Path(path).write_text(text)
    end(fate, path)


@task(a=FILE_OUT, b=FILE_OUT, on_failure="ignore")
def write_both(a: Any, b: Any, text: str, fate: str = "delivers") -> None:
    for path in (a, b):
        Path(path).write_text(text)
    end(fate, b)


@io
@task(path=FILE_INOUT, on_failure="ignore")
def append_as_io(path: Any, text: str, fate: str = "delivers") -> None:
    with open(path, "a") as file:
        file.write(text)
    end(fate, path)


@task(path=FILE_IN, returns=1)
def read(path: Any) -> str:
    return Path(path).read_text()


@task(path=FILE_IN, returns=1)
def read_behind_gate(path: Any, gate: Gate) -> str:
    gate.enter()
    return Path(path).read_text()


def visible_only(folder: Path) -> list[str]:
    """The names in a folder, once the file system is at rest."""
    for name in os.listdir(folder):
        if not name.startswith("."):
            with open_file(folder / name, "r+"):  # nobody reads or writes it any more
                pass
    current().driver.house.finish()
    return sorted(os.listdir(folder))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "write", "append_as_io", "both", "read", "barrier"]),
        st.sampled_from(FATES),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.one_in(2)
@given(steps=STEPS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
def test_any_row_of_writers_that_may_fail_is_like_sequential_execution(steps: list[tuple[str, str, int]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ignored-"))
    try:
        files = [folder / "a.txt", folder / "b.txt"]
        content = ["0", "1"]
        for file, text in zip(files, content, strict=True):
            file.write_text(text)
        read_texts, expected = [], []
        for number, (what, fate, which) in enumerate(steps):
            text = f"+{number}"
            if what == "read":
                read_texts.append(read(files[which]))
                expected.append(content[which])
            elif what == "barrier":
                barrier()
            elif what == "both":
                write_both(*files, text, fate)
                content = [text, text] if fate == "delivers" else content
            else:
                {"append": append, "write": write, "append_as_io": append_as_io}[what](files[which], text, fate)
                if fate == "delivers":
                    content[which] = text if what == "write" else content[which] + text
        assert wait_on(read_texts) == expected
        barrier()
        assert visible_only(folder) == ["a.txt", "b.txt"]
        assert [file.read_text() for file in files] == content
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("failures", [1, 2, 3, 5])
def test_ignored_updates_after_one_that_succeeded_leave_its_file(tmp_path: Path, failures: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "results.csv"
    file.write_text("0")
    append(file, "1")
    for _ in range(failures):
        append(file, "x", "raises")
    assert wait_on(read(file)) == "01"
    append(file, "2")
    barrier()
    assert visible_only(folder) == ["results.csv"]
    assert file.read_text() == "012"


@task(path=FILE_INOUT, on_failure="ignore")
def append_and_wait(path: Any, arrived: Gate, leave: Gate) -> None:
    with open(path, "a") as file:
        file.write("x")
    arrived.enter()
    leave.enter()


@pytest.mark.parametrize("writer", [append, write, append_as_io])
@only_workers
def test_a_worker_that_dies_leaves_the_file_and_nothing_else(tmp_path: Path, writer: Any) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "results.csv"
    file.write_text("0")
    append(file, "1")
    writer(file, "x", "dies")
    append(file, "2")
    barrier()
    assert visible_only(folder) == ["results.csv"]
    assert file.read_text() == "012"


@only_workers
def test_a_writer_that_is_cancelled_leaves_the_file_and_nothing_else(tmp_path: Path, gate: Gate) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "results.csv"
    file.write_text("0")
    append(file, "1")
    future = append_and_wait(file, gate, Gate(tmp_path / "never"))
    gate.open()
    penstock.cancel(future)
    with pytest.raises(penstock.TaskCancelled):
        future.result()
    append(file, "2")
    barrier()
    assert visible_only(folder) == ["results.csv"]
    assert file.read_text() == "012"


@only_workers
def test_one_that_was_to_replace_the_file_while_older_versions_are_read_and_made(tmp_path: Path, gate: Gate) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "results.csv"
    file.write_text("0")
    before = read_behind_gate(file, gate)
    write(file, "1")
    write(file, "x", "raises")
    after = read(file)
    append(file, "x", "raises")
    append(file, "2")
    assert wait_on(after) == "1"
    gate.open()
    assert wait_on(before) == "0"
    barrier()
    assert visible_only(folder) == ["results.csv"]
    assert file.read_text() == "12"


def test_of_two_files_none_is_replaced_when_one_is_missing(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("old")
    second.write_text("old")
    write_both(first, second, "new", "forgets")
    barrier()
    assert (first.read_text(), second.read_text()) == ("old", "old")


def test_a_program_that_fails_leaves_the_file_it_was_to_update(tmp_path: Path) -> None:
    @program("echo {text} >> {path}; exit {status}", path=FILE_INOUT, on_failure="ignore")
    def append_by_program(path: Any, text: str, status: int) -> None: ...

    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "a"
    file.write_text("0\n")
    for text, status in [("1", 0), ("x", 1), ("x", 1), ("2", 0), ("x", 3)]:
        append_by_program(file, text, status)
    barrier()
    assert visible_only(folder) == ["a"]
    assert file.read_text() == "0\n1\n2\n"


def test_a_file_whose_name_is_as_long_as_names_may_be(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / ("n" * 255)
    write(file, "1")
    append(file, "2")
    append(file, "x", "raises")
    barrier()
    assert visible_only(folder) == [file.name]
    assert file.read_text() == "12"


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, (4 << 20) + 3])
def test_files_of_any_size_are_updated_whole(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "a"
    file.write_bytes(b"0" * size)
    append(file, "1")
    append(file, "x", "raises")
    append(file, "x", "raises")
    barrier()
    assert visible_only(folder) == ["a"]
    assert file.read_bytes() == b"0" * size + b"1"


def test_another_hard_link_of_a_file_keeps_what_it_had(tmp_path: Path) -> None:
    """A file is replaced, never changed in place; the page on files says so."""
    folder = tmp_path / "data"
    folder.mkdir()
    file, other = folder / "a", folder / "b"
    file.write_text("0")
    os.link(file, other)
    append(file, "1")
    append(file, "x", "raises")
    append(file, "x", "raises")
    barrier()
    assert (file.read_text(), other.read_text()) == ("01", "0")
    assert sorted(os.listdir(folder)) == ["a", "b"]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file, link = folder / "a", folder / "link"
    file.write_text("0")
    link.symlink_to(file)
    append(link, "1")
    append(file, "x", "raises")
    append(link, "x", "raises")
    append(file, "2")
    barrier()
    assert link.is_symlink()
    assert visible_only(folder) == ["a", "link"]
    assert file.read_text() == "012"


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("0")
    file.chmod(0o640)
    write(file, "1")
    barrier()
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("mode", ["inline"], indirect=True)
def test_a_file_that_must_not_be_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    file.write_text("0")
    allowed = os.access
    # For the super-user everything may be written, and the tests may be run by him.
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(file) and allowed(path, mode))
    write(file, "1")
    barrier()
    assert file.read_text() == "0"
