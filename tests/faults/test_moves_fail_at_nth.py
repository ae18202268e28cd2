"""Fault loops for moving files: the 1st, 2nd, 3rd … call on the file system fails, or the program is killed there.

Wherever that is, every name means a complete file: as a link to its layer, or in truth. Room adds up, and nothing that
nobody refers to is left when the run is over. The last tests are for moves that something else gets in the way of.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults import storage_tasks as tasks
from tests.faults.failing_moves import CHANGING, INTERRUPTIBLE, Disk, Story, be_killed, failing, held_by
from tests.faults.layers import assert_home, assert_sums, folder_in_memory, layer, names_in, remains, start
from tests.faults.programs import takes_less_than
from tests.faults.storage_tasks import content
from tests.moments import SOME_MOMENTS, moments
from tests.patience import eventually

import penstock
from penstock.runtime import housekeeping

MOST_CALLS = 400


@pytest.fixture(autouse=True)
def _ended_at_once() -> Iterator[None]:
    """What a failed test left waiting must not hold up the next."""
    yield
    penstock.stop(abort=True)


@pytest.fixture
def memory() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


def unreferred(story: Story) -> list[str]:
    """Files, links and folders that are neither a name nor needed for one."""
    names = set(story.allowed)
    needed = {Path(os.readlink(name)) for name in names if name.is_symlink()}
    needed |= {Path(path) for path in remains(*story.layers.values()) if any(path in text for text in story.told)}
    folders = {folder for path in needed for folder in path.parents}
    found = {Path(path) for path in remains(story.home, *story.layers.values())}
    records = {folder / "run" for folder in folders if folder.name.endswith("-layer")}
    return sorted(str(path) for path in found - names - needed - folders - records)


def assert_told_of_links(story: Story) -> None:
    """Whatever is not home when the run is over, the program was told of: by its name, or that there are more."""
    links = [str(name) for name in story.allowed if name.is_symlink() and name.name not in ("temp", "deleted")]
    told = [name for name in links if any(name in text for text in story.told)]
    assert links == told or (told and "more" in story.told[-1]), f"{links}; told: {story.told}"


# --- a call fails -------------------------------------------------------------------------------------------------


def test_scenario_without_a_fault(tmp_path: Path, memory: Path) -> None:
    story = Story(tmp_path / "run", memory)
    with Disk(MOST_CALLS, be_killed).at_work() as disk:
        story.run()
    assert 40 < disk.calls < MOST_CALLS
    assert story.told == []
    assert unreferred(story) == []
    for name, number, size in (("plain", 5, 1000), ("last", 7, 1000)):
        assert_home(story.home / name, number, size)
    for name, number, size in (("inside", 3, 1000), ("crowded", 4, 2000)):
        assert_home(story.layers["low"] / name, number, size)


#: files move down during the run, or rest where they were written until its end
MOVEMENT = pytest.mark.parametrize("movement", [True, False], ids=["moving", "resting"])


@pytest.mark.one_in(3)
@SOME_MOMENTS
@MOVEMENT
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EINTR], ids=errno.errorcode.get)
def test_any_call_that_fails_once_loses_nothing(
    tmp_path: Path, memory: Path, error: int, movement: bool, every: int
) -> None:
    only = INTERRUPTIBLE if error == errno.EINTR else ()  # the others cannot fail so: nothing would happen
    for number in moments(MOST_CALLS, every, error):
        (memory / f"{number}").mkdir()
        story = Story(tmp_path / f"{number}", memory / f"{number}", data_movement=movement)
        with Disk(number, failing(error), only=only).at_work() as disk:
            story.run()
        where = f"call {number}, {disk.failed_call}; told: {story.told}"
        assert unreferred(story) == [], where
        assert_told_of_links(story)
        if not disk.happened:
            break
    assert 30 < number < MOST_CALLS


@pytest.mark.one_in(2)
@SOME_MOMENTS
def test_disk_that_fails_for_good_at_any_call_loses_nothing(tmp_path: Path, memory: Path, every: int) -> None:
    for number in moments(MOST_CALLS, every):
        (memory / f"{number}").mkdir()
        story = UnforgivingStory(tmp_path / f"{number}", memory / f"{number}")
        with Disk(number, failing(errno.EIO), for_good=True).at_work() as disk, takes_less_than(60):
            story.run()
        assert_told_of_links(story)
        if not disk.happened:
            break
    assert 30 < number < MOST_CALLS


class UnforgivingStory(Story):
    """On a disk that lets nothing be deleted, names of what is to go away may stay."""

    def verify(self) -> None:
        for path, texts in self.allowed.items():
            found = path.read_bytes() if path.exists() else None
            assert found in texts or path.name in ("temp", "deleted"), f"{path}: {self.told}"


# --- the program is killed ----------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@SOME_MOMENTS
@MOVEMENT
def test_program_killed_at_any_call_loses_nothing(tmp_path: Path, memory: Path, movement: bool, every: int) -> None:
    for number in moments(MOST_CALLS, every, movement):
        (memory / f"{number}").mkdir()
        journal = tmp_path / f"journal-{number}"
        story = Story(tmp_path / f"{number}", memory / f"{number}", journal=journal, data_movement=movement)
        status = in_a_fork(Disk(number, be_killed, only=CHANGING), story)
        for path, texts in could_hold(journal).items():
            if path.name != "temp" or path.exists():  # its name may outlive it
                assert held_by(path) in texts, f"{path}, killed at call {number}"
        if status == 0:
            break
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"killed at call {number}"
    assert 30 < number < MOST_CALLS


def in_a_fork(disk: Disk, story: Story) -> int:
    """Run the scenario in a copy of this process: how that ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with disk.at_work():
                story.run()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def could_hold(journal: Path) -> dict[Path, set[bytes | None]]:
    """What each name may hold by what was begun and done before the end."""
    allowed: dict[Path, set[bytes | None]] = {}
    for line in journal.read_text().splitlines():
        word, name, number, size = line.split()
        text = content(int(number), int(size)) if int(size) else None
        if word == "done":
            allowed[Path(name)] = {text}
        else:
            allowed.setdefault(Path(name), {None}).add(text)
    return allowed


# --- something gets in the way of a move --------------------------------------------------------------------------


class Held:
    """Holds a call of housekeeping until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self._reached, self._go = threading.Event(), threading.Event()
        real: Callable[..., Any] = getattr(housekeeping, name)

        def held(*args: Any, **kwargs: Any) -> Any:
            self._reached.set()
            assert self._go.wait(60)
            return real(*args, **kwargs)

        monkeypatch.setattr(housekeeping, name, held)

    def wait_reached(self) -> None:
        assert self._reached.wait(60)

    def release(self) -> None:
        self._go.set()

    def release_soon(self) -> None:
        """While the caller is busy waiting for what is held."""
        threading.Timer(0.2, self._go.set).start()


@pytest.fixture
def two_layers(tmp_path: Path) -> list[dict[str, Any]]:
    return [layer("fast", tmp_path / "fast", bandwidth="200MB/s"), layer("low", tmp_path / "low")]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


def test_run_that_ends_while_a_temporary_file_moves(
    tmp_path: Path, home: Path, two_layers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "relocate")
    start(*two_layers, data_movement=True)
    tasks.write_temp(home / "temp", 1).result(timeout=60)
    held.wait_reached()
    held.release_soon()
    penstock.stop()
    assert names_in(home) == []
    assert remains(tmp_path / "fast", tmp_path / "low") == []


def test_program_that_changes_a_file_while_it_moves(
    tmp_path: Path, home: Path, two_layers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "relocate")
    start(*two_layers, data_movement=True)
    tasks.write_temp(home / "temp", 1).result(timeout=60)
    held.wait_reached()
    held.release_soon()
    with takes_less_than(60), penstock.open_file(home / "temp", "ab") as file:
        file.write(b"more")
    assert tasks.read(home / "temp").result(timeout=60) == content(1) + b"more"
    penstock.stop()
    assert remains(tmp_path / "fast", tmp_path / "low") == []


def test_file_deleted_while_it_moves_stays_deleted(
    tmp_path: Path, home: Path, two_layers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "relocate")
    runtime = start(*two_layers, data_movement=True)
    tasks.write(home / "file", 1).result(timeout=60)
    held.wait_reached()
    held.release_soon()
    penstock.delete_file(home / "file")
    penstock.stop()
    assert runtime.stopped
    assert names_in(home) == []
    assert remains(tmp_path / "fast", tmp_path / "low") == []


def test_new_version_written_while_the_old_one_moves(
    tmp_path: Path, home: Path, two_layers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "relocate")
    runtime = start(*two_layers, data_movement=True)
    tasks.write(home / "file", 1).result(timeout=60)
    held.wait_reached()
    tasks.write(home / "file", 2)
    eventually(lambda: not runtime.driver.engine.unfinished)
    assert held_by(home / "file") == content(1)  # it keeps its name as long as it moves
    held.release_soon()
    penstock.barrier()
    assert_sums(runtime)
    assert held_by(home / "file") == content(2)
    penstock.stop()
    assert_home(home / "file", 2)
    assert remains(tmp_path / "fast", tmp_path / "low") == []


def test_reader_that_arrives_during_a_move_reads_the_whole_file(
    tmp_path: Path, home: Path, two_layers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "relocate")
    start(*two_layers, data_movement=True)
    tasks.write(home / "file", 1).result(timeout=60)
    held.wait_reached()
    reader = tasks.read(home / "file")
    assert reader.result(timeout=60) == content(1)
    held.release()
    assert tasks.read(home / "file").result(timeout=60) == content(1)
    penstock.stop()
    assert_home(home / "file", 1)


def test_run_that_is_given_up_while_a_file_gets_its_name(
    tmp_path: Path, home: Path, two_layers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "link")
    start(*two_layers)
    tasks.write(home / "file", 1)
    held.wait_reached()
    held.release_soon()
    with takes_less_than(60):
        penstock.stop(abort=True)
    assert_home(home / "file", 1)
    assert names_in(home) == ["file"]
    assert remains(tmp_path / "fast", tmp_path / "low") == []


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_move_that_fails_in_an_unforeseen_way_hangs_nobody(
    tmp_path: Path, home: Path, two_layers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise ValueError("this was never thought of")

    monkeypatch.setattr(housekeeping, "relocate", break_down)
    start(*two_layers, mode=mode)
    tasks.write(home / "file", 1).result(timeout=60)
    with takes_less_than(60), pytest.raises(Exception, match="never thought of"):
        penstock.stop()
    assert held_by(home / "file") == content(1)
