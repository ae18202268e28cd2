"""A file that a task has synced keeps its name if power is lost: the folder with the name is synced as well.

What a power cut does cannot be tried here. So it is noted which folders are synced: in workers, which import this
module for their tasks and find the place for notes in the environment, and here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, constraint, io, task
from penstock.executors import mover, written_files
from penstock.runtime import housekeeping

NOTES = "TEST_SYNCED_NAMES_NOTES"


def secure(path: str) -> None:
    with open(os.environ[NOTES], "a") as notes:
        notes.write(f"{path}\n")
    mover.secure(path)


if NOTES in os.environ:  # a worker; the tests have imported this before they said so
    written_files.secure = secure  # type: ignore[attr-defined]


def fill(path: str, sync: str) -> None:
    with open(path, "wb") as file:
        file.write(b"x" * 1000)
        if sync == "fsync":
            file.flush()
            os.fsync(file.fileno())
        elif sync == "fdatasync":
            file.flush()
            os.fdatasync(file)
    if sync == "sync":
        os.sync()


@task(path=FILE_OUT)
def write(path: str, sync: str) -> None:
    fill(path, sync)


@task(path=FILE_OUT)
def write_by_rename(path: str, sync: str) -> None:
    """As careful programs do."""
    fill(f"{path}.new", sync)
    os.replace(f"{path}.new", path)


@task(path=FILE_INOUT)
def update(path: str, sync: str) -> None:
    fill(path, sync)


@constraint(storage_bw="10MB/s")
@io
@task(path=FILE_OUT)
def place(path: str, sync: str) -> None:
    fill(path, sync)


@task(path=FILE_IN)
def size(path: str) -> int:
    return os.path.getsize(path)


class Notes:
    def __init__(self, path: Path) -> None:
        self._path = path

    def folders(self) -> set[str]:
        return set(self._path.read_text().split()) if self._path.exists() else set()


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    monkeypatch.setenv(NOTES, str(tmp_path / "notes"))
    monkeypatch.setattr(written_files, "secure", secure)
    monkeypatch.setattr(housekeeping, "secure", secure)
    return Notes(tmp_path / "notes")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture(params=["parallel", "inline"])
def runtime(request: pytest.FixtureRequest, notes: Notes, tmp_path: Path) -> Iterator[penstock.Runtime]:
    (tmp_path / "layer").mkdir()
    layer = {"name": "fast", "mount": str(tmp_path / "layer"), "bandwidth": "100MB/s"}
    with penstock.Runtime(cpus=1, mode=request.param, tuning="off", storage=[layer]) as runtime:
        yield runtime


@pytest.mark.parametrize("sync", ["fsync", "fdatasync", "sync"])
def test_the_folder_of_a_synced_file_is_synced_before_the_task_is_over(
    runtime: penstock.Runtime, notes: Notes, home: Path, sync: str
) -> None:
    write(str(home / "a"), sync).result()
    assert str(home) in notes.folders()


def test_nobody_waits_for_the_disk_who_did_not_ask(runtime: penstock.Runtime, notes: Notes, home: Path) -> None:
    write(str(home / "a"), "").result()
    write(str(home / "a"), "").result()
    place(str(home / "b"), "").result()
    assert notes.folders() == set()


def test_each_task_counts_for_itself(runtime: penstock.Runtime, notes: Notes, home: Path) -> None:
    (home / "one").mkdir()
    write(str(home / "one" / "a"), "fsync").result()
    write(str(home / "b"), "").result()
    assert notes.folders() == {str(home / "one")}


def test_a_synced_file_that_the_body_renames(runtime: penstock.Runtime, notes: Notes, home: Path) -> None:
    write_by_rename(str(home / "a"), "fsync").result()
    assert str(home) in notes.folders()


def test_an_updated_file_gets_its_name_later(runtime: penstock.Runtime, notes: Notes, home: Path) -> None:
    (home / "a").write_bytes(b"old")
    update(str(home / "a"), "fsync")
    assert size(str(home / "a")).result() == 1000
    penstock.barrier()
    assert str(home) in notes.folders()


def test_a_file_on_a_layer_and_the_link_to_it(
    runtime: penstock.Runtime, notes: Notes, home: Path, tmp_path: Path
) -> None:
    place(str(home / "a"), "fsync").result()
    (run,) = (tmp_path / "layer").glob("penstock-*")
    assert {str(tmp_path / "layer"), str(run), str(run / "kept"), str(home)} <= notes.folders()


def test_what_bodies_sync_is_as_it_was(runtime: penstock.Runtime, home: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_badly(str(home / "a")).result()
    assert os.fsync.__name__ == "fsync"


@task(path=FILE_OUT)
def write_badly(path: str) -> None:
    fill(path, "")
    os.fsync(12345)
