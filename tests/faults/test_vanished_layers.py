"""A layer whose mount point has vanished: what would be written there fails with its name, and nothing is made anew."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.faults.layers import layer, remains, small_disk, start, unmount
from tests.faults.storage_tasks import content, read, write, write_temp
from tests.patience import eventually

import penstock
from penstock import ConfigError, Runtime, task
from penstock.executors.layer_files import LayerFolder

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["parallel", "inline"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def vanish(mount: Path) -> None:
    shutil.rmtree(mount)


def be_another(mount: Path) -> None:
    """Somebody has made a directory of the same name since."""
    shutil.rmtree(mount)
    mount.mkdir()


def end(*, lost: bool) -> None:
    """A file that was on the layer is lost, and that is said."""
    if not lost:
        penstock.stop()
        return
    with pytest.raises(OSError, match="one is lost"):
        penstock.stop()


def assert_not_made(mount: Path) -> None:
    """Nothing of ours came back."""
    assert not mount.exists() or remains(mount) == []


def test_a_mount_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    described = {"name": "fast", "mount": str(tmp_path / "gone"), "bandwidth": "100MB/s"}
    with pytest.raises(ConfigError, match=rf'"fast": mount = {str(tmp_path / "gone")!r} does not exist'):
        Runtime(storage=[described])
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("used", [True, False], ids=["in use", "not used yet"])
def test_a_task_that_would_write_on_a_vanished_layer_fails_with_its_name(tmp_path: Path, mode: str, used: bool) -> None:
    fast = tmp_path / "fast"
    start(layer("fast", fast), mode=mode)
    if used:
        write(tmp_path / "one", 1).result()
    vanish(fast)
    with pytest.raises(FileNotFoundError, match=rf"storage layer fast.*{fast}"):
        write(tmp_path / "two", 2).result()
    end(lost=used)
    assert not fast.exists()
    assert not os.path.lexists(tmp_path / "two")


def test_a_directory_that_somebody_made_in_its_place_is_not_the_layer(tmp_path: Path, mode: str) -> None:
    fast = tmp_path / "fast"
    start(layer("fast", fast), mode=mode)
    write(tmp_path / "one", 1).result()
    be_another(fast)
    with pytest.raises(FileNotFoundError, match=rf"storage layer fast: what this run had there is gone.*{fast}"):
        write(tmp_path / "two", 2).result()
    end(lost=True)
    assert remains(fast) == []


def test_who_looks_for_a_vanished_layer_is_not_taken_for_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several tasks look at a time; a full layer would be waited for."""
    folder, real = LayerFolder(str(tmp_path), "penstock-1-2-ab"), os.rmdir

    def look() -> None:
        with pytest.raises(FileNotFoundError, match="what this run had there is gone"):
            folder.make_room_for(folder.finished("file", 1, 1, temp=False))

    def rmdir(path: str) -> None:
        monkeypatch.undo()
        look()  # another one, in the middle of the first one's look
        real(path)

    monkeypatch.setattr(os, "rmdir", rmdir)
    look()
    assert remains(tmp_path) == []


@pytest.mark.parametrize("used", [True, False], ids=["in use", "not used yet"])
def test_an_unmounted_layer_is_not_written_to_below_its_mount_point(tmp_path: Path, mode: str, used: bool) -> None:
    fast = tmp_path / "fast"
    with small_disk(fast):
        start(layer("fast", fast), mode=mode)
        if used:
            write(tmp_path / "one", 1).result()
        unmount(fast)
        with pytest.raises(FileNotFoundError, match=rf"storage layer fast.*unmounted.*{fast}"):
            write(tmp_path / "two", 2).result()
        end(lost=used)
        assert remains(fast) == []


@pytest.mark.parametrize("befall", [vanish, be_another])
def test_a_file_does_not_move_to_a_vanished_layer(tmp_path: Path, befall: Callable[[Path], None]) -> None:
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    layers = layer("fast", fast), layer("slow", slow, bandwidth="50MB/s")
    log = tmp_path / "run" / "events.jsonl"
    start(*layers, data_movement=True, run_dir=tmp_path / "run")
    write_temp(tmp_path / "first", 1).result()
    eventually(lambda: os.path.realpath(tmp_path / "first").startswith(str(slow)))  # the layer is in use
    befall(slow)
    write_temp(tmp_path / "second", 2).result()
    eventually(lambda: f"cannot write on storage layer slow ({slow})" in log.read_text())
    assert read(tmp_path / "second").result() == content(2)
    penstock.stop()
    assert_not_made(slow)


NUMBERS = 50_000


@task
def make(number: int) -> np.ndarray:
    return np.full(NUMBERS, float(number))


def assert_whole(futures: list[penstock.Future[np.ndarray]]) -> None:
    """Whatever becomes of the disk, objects stay in memory, and are right."""
    penstock.barrier()
    assert [float(future.result().sum()) for future in futures] == [float(n * NUMBERS) for n in range(len(futures))]


@pytest.mark.parametrize("befall", [vanish, be_another])
def test_objects_are_not_spilled_to_a_vanished_layer(tmp_path: Path, befall: Callable[[Path], None]) -> None:
    fast, log = tmp_path / "fast", tmp_path / "run" / "events.jsonl"
    start(layer("fast", fast), store_capacity="1MB", run_dir=tmp_path / "run")
    first = [make(number) for number in range(6)]
    penstock.barrier()
    eventually(lambda: [path for path in remains(fast) if "/spilled/s" in path])  # the layer is in use
    del first
    eventually(lambda: not [path for path in remains(fast) if "/spilled/s" in path])
    befall(fast)
    futures = [make(number) for number in range(12)]
    assert_whole(futures)
    eventually(lambda: '"error":"No such file or directory"' in log.read_text())
    penstock.stop()
    assert_not_made(fast)


def test_a_spill_disk_that_vanishes_is_not_made_anew(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    start(layer("fast", tmp_path / "fast"), spill_dir=disk, store_capacity="1MB")
    vanish(disk)
    assert_whole([make(number) for number in range(12)])
    penstock.stop()
    assert not disk.exists()
