"""What the engine waits for is told, however processes start and whatever file systems do: nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.layers import assert_given_back, devices, layer, start
from tests.faults.storage_tasks import content, write
from tests.patience import eventually

import penstock
from penstock import FILE_OUT, constraint, io, task
from penstock.data.segments import Segments
from penstock.executors import node
from penstock.runtime import housekeeping


@pytest.fixture(autouse=True)
def _ended_at_once() -> Iterator[None]:
    """What a failed test left waiting must not hold up the next."""
    yield
    penstock.stop(abort=True)


@constraint(storage_bw="auto")
@io
@task(path=FILE_OUT)
def save(path: str | Path) -> None:
    Path(path).write_bytes(bytes(1000))


@pytest.mark.parametrize("tuner", ["adaptive", "published"])
def test_learning_goes_on_when_io_workers_take_longer_to_start_than_idle_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuner: str
) -> None:
    monkeypatch.setattr(node, "_IDLE", 0.0)
    start(layer("disk", tmp_path / "disk", bandwidth="40MB/s"), cpus=1, io_executors=8, tuner=tuner)
    for number in range(40):
        save(tmp_path / "disk" / str(number))
    penstock.barrier()
    assert len(list((tmp_path / "disk").glob("[0-9]*"))) == 40


def test_a_file_that_cannot_be_named_for_a_reason_of_our_own_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(source: str, target: str) -> None:
        raise ValueError("out of luck")

    monkeypatch.setattr(housekeeping, "link", break_down)
    start(layer("disk", tmp_path / "disk"))
    write(tmp_path / "file", 1)
    with pytest.raises(OSError, match="cannot be given its name .* ValueError: out of luck"):
        penstock.barrier()


def test_a_segment_that_cannot_be_removed_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(segments: Segments, segment: int) -> None:
        raise OSError(5, "Input/output error")

    runtime = start(layer("disk", tmp_path / "disk"), store_capacity="1MB")
    blobs = [penstock.wait_on(make(number)) for number in range(4)]
    kept = [make(number) for number in range(8)]
    penstock.barrier()
    monkeypatch.setattr(Segments, "remove", break_down)
    del blobs, kept
    assert penstock.wait_on(make(9)) == content(9, 600_000)
    penstock.barrier()
    eventually(lambda: not any(device.moves for device in devices(runtime).values()))  # what is spilled is on its way
    assert_given_back(runtime)
    penstock.stop()


@task
def make(number: int) -> bytes:
    return content(number, 600_000)


def test_an_error_of_ours_in_a_thread_that_moves_files_is_told_to_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start(layer("disk", tmp_path / "disk"))
    handle = runtime.driver.engine.handle

    def break_down(event: object, now: float) -> object:
        if type(event).__name__ == "Published":
            raise KeyError("a version")
        return handle(event, now)  # type: ignore[arg-type]

    monkeypatch.setattr(runtime.driver.engine, "handle", break_down)
    write(tmp_path / "file", 1)
    with pytest.raises(penstock.PenstockError, match="an error inside Penstock, KeyError"):
        penstock.barrier()
