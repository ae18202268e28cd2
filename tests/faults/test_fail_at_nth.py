"""Fault loops: the same scenario with its 1st, 2nd, 3rd … step failing, until it passes without the fault.

Whichever step it is, the results equal those of the sequential program, or the error is clear and what was there
before is still there; and nothing is left behind.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults import failing_disk
from tests.faults.programs import Gate, Tally
from tests.faults.scenario import SEQUENTIAL, STEPS, TASKS, Fault, NoFault, scenario
from tests.moments import SOME_MOMENTS, moments

import penstock
from penstock import FILE_INOUT, task

# --- a worker killed at the Nth attempt ---------------------------------------------------------------------------


@pytest.fixture
def sequential(tmp_path: Path) -> tuple[Any, ...]:
    folder = tmp_path / "sequential"
    folder.mkdir()
    return scenario(SEQUENTIAL, folder, NoFault())


@pytest.mark.one_in(8)
@SOME_MOMENTS
@pytest.mark.parametrize(
    ("point", "victim"),
    [
        ("begin", "worker"),
        ("end", "worker"),
        ("end", "fork server"),
        # As the one above, except that nothing has been changed yet when the server and its workers die.
        pytest.param("begin", "fork server", marks=pytest.mark.long),
    ],
)
def test_process_killed_at_any_attempt_changes_no_result(
    tmp_path: Path, sequential: tuple[Any, ...], point: str, victim: str, every: int
) -> None:
    for number in moments(10 * STEPS, every, ["begin", "end"].index(point)):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        fault = Fault(number, point, victim, Tally(tmp_path / f"tally-{number}"))
        with penstock.Runtime(cpus=2):
            assert scenario(TASKS, folder, fault) == sequential, f"killed at attempt {number}"
        assert [path.name for path in folder.iterdir()] == ["totals.txt"], f"killed at attempt {number}"
        if not fault.happened:
            break
    assert STEPS < number <= STEPS + every  # each attempt, or each of those tried, has been the killed one


# --- a disk that is full at the Nth call --------------------------------------------------------------------------


def on_a_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, work: Callable[[str], Any]
) -> tuple[BaseException | None, list[str], bool]:
    """Run something in a folder where the Nth call in a worker fails: its error, the folder's files, whether it did."""
    folder = tmp_path / f"{number}"
    folder.mkdir()
    (folder / "file.txt").write_text("old\n")
    tally = Tally(tmp_path / f"calls-{number}")
    monkeypatch.setenv(failing_disk.FOLDER, str(folder))
    monkeypatch.setenv(failing_disk.NUMBER, str(number))
    monkeypatch.setenv(failing_disk.TALLY, str(tally.path))
    error: BaseException | None = None
    penstock.start(cpus=2)
    try:
        work(str(folder / "file.txt"))
        penstock.barrier()
    except OSError as raised:
        error = raised
    finally:
        penstock.stop()
    return error, sorted(path.name for path in folder.iterdir()), tally.count() >= number


def assert_clear(error: BaseException | None, folder: str, name: str) -> None:
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert folder in str(error)
    assert name in str(error.__cause__)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "new"), [("write", "new\n"), ("append", "old\nnew\n")])
def test_disk_full_at_any_call_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, new: str
) -> None:
    for number in range(1, 50):
        error, files, failed = on_a_failing_disk(
            tmp_path, monkeypatch, number, lambda path: getattr(failing_disk, name)(path, "new\n")
        )
        content = (tmp_path / f"{number}" / "file.txt").read_text()
        assert files == ["file.txt"], f"call {number}"
        if not failed:
            break
        assert_clear(error, str(tmp_path / f"{number}"), name)
        assert content == "old\n", f"call {number}"
    assert number > 3  # a folder made, a file opened, a rename: at least those were made to fail
    assert error is None
    assert content == new


def test_disk_full_at_any_call_while_the_old_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    for number in range(1, 50):
        inside = tmp_path / f"gate-{number}"
        inside.mkdir()
        gate = Gate(inside)

        def work(path: str, gate: Gate = gate) -> None:
            reader = failing_disk.read_slowly(path, gate)
            gate.wait_reached()
            written = failing_disk.write(path, "new\n")
            penstock.wait([written], timeout=60)
            assert Path(path).read_text() == "old\n"  # not while somebody reads it
            gate.release()
            read.append(reader.result())
            written.result()

        error, files, failed = on_a_failing_disk(tmp_path, monkeypatch, number, work)
        gate.close()
        content = (tmp_path / f"{number}" / "file.txt").read_text()
        assert files == ["file.txt"], f"call {number}"
        if not failed:
            break
        assert_clear(error, str(tmp_path / f"{number}"), "write")
        assert content == "old\n", f"call {number}"
    assert number > 4
    assert error is None
    assert content == "new\n"
    assert set(read) == {"old\n"}


def test_disk_full_once_is_overcome_by_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 50):
        error, files, failed = on_a_failing_disk(
            tmp_path, monkeypatch, number, lambda path: failing_disk.write_persistently(path, "new\n")
        )
        assert error is None, f"call {number}"
        assert files == ["file.txt"], f"call {number}"
        assert (tmp_path / f"{number}" / "file.txt").read_text() == "new\n"
        if not failed:
            break
    assert number > 3


def test_publication_that_fails_in_the_main_program_is_told_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / "file.txt"
    path.write_text("old\n")
    replace = os.replace

    def refuse(source: Any, target: Any, **options: Any) -> None:
        if str(target) == str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        replace(source, target, **options)

    penstock.start(cpus=2)
    reader = failing_disk.read_slowly(str(path), gate)
    gate.wait_reached()
    written = failing_disk.write(str(path), "new\n")
    penstock.wait([written], timeout=60)
    monkeypatch.setattr(os, "replace", refuse)
    gate.release()
    assert reader.result() == "old\n"
    with pytest.raises(Exception, match="No space left") as caught:
        penstock.open_file(path)
    monkeypatch.undo()
    assert str(path) in str(caught.value)
    assert path.read_text() == "old\n"
    kept = [found for found in folder.rglob("file.txt") if found != path]
    assert [found.read_text() for found in kept] == ["new\n"]  # the finished file is not thrown away
    assert str(kept[0].parent) in str(caught.value)


# --- a file changed in place --------------------------------------------------------------------------------------


@task(path=FILE_INOUT)
def append_and_die(path: str, tally: Tally) -> None:
    with open(path, "a") as file:
        file.write("half of ")
        file.flush()
        if tally.mark() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        file.write("the new text\n")


def test_file_whose_update_was_cut_short_is_whole(tmp_path: Path, tally: Tally) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / "file.txt"
    path.write_text("the old text\n")
    with penstock.Runtime(cpus=2):
        appended = append_and_die(str(path), tally)
        failed = appended.exception()
    if failed is None:
        assert path.read_text() == "the old text\nhalf of the new text\n"
    else:
        assert "in place" in str(failed)
        assert path.read_text() == "the old text\n"
