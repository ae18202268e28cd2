"""Measuring a directory: real streams on a real folder, kept small; what the numbers mean, on numbers made up."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from penstock.errors import ConfigError, PenstockError
from penstock.runtime import probe, probe_stream
from penstock.runtime.probe import Limits, Measurement, Point, Progress, check_directory, measure
from penstock.runtime.probe_stream import BLOCK
from penstock.runtime.probe_streams import Passage, Streams

pytestmark = pytest.mark.leaks
FAR = 3600.0


def measured(*writes: float) -> Measurement:
    points = [Point(2**n, write, write, rounds=1, size=1, cut=False) for n, write in enumerate(writes)]
    return Measurement("/x", tuple(points))


# --- what the numbers mean --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("writes", "best", "knee", "congestion"),
    [
        ((100,), 1, 1, None),
        ((100, 200, 400, 800), 8, 8, None),
        ((100, 200, 380, 400, 399), 8, 4, None),  # 95 % is enough
        ((100, 200, 379, 400, 399), 8, 8, None),  # and less is not
        ((400, 400, 400), 1, 1, None),  # of equals, the fewest
        ((100, 400, 359, 100), 2, 2, 4),
        ((100, 400, 361, 100), 2, 2, 8),  # a little less is noise
        ((350, 100, 400, 390), 4, 4, None),  # slower before the best is no congestion
        ((0, 0), 1, 1, None),
    ],
)
def test_best_knee_and_congestion(writes: tuple[float, ...], best: int, knee: int, congestion: int | None) -> None:
    measurement = measured(*writes)
    fallen = measurement.congestion
    assert (measurement.best.streams, measurement.knee.streams) == (best, knee)
    assert (fallen.streams if fallen else None) == congestion


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])]
)
def test_streams_double_up_to_the_most(most: int, counts: list[int]) -> None:
    assert probe._stream_counts(most) == counts


def test_a_rate_counts_all_bytes_over_all_the_time() -> None:
    assert Passage(300, 2.0).rate == 150
    assert Passage(0, 0.0).rate == 0


# --- streams ----------------------------------------------------------------------------------------------------------


def stream_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(".penstock-probe-*/stream-*"))


def test_each_stream_writes_its_own_file_and_reads_it_again(tmp_path: Path) -> None:
    with Streams(str(tmp_path)) as streams:
        size = 2 * BLOCK + 12345
        written = streams.write(3, size, time.monotonic() + FAR)
        assert [path.stat().st_size for path in stream_files(tmp_path)] == [size] * 3
        read = streams.read(3, time.monotonic() + FAR)
        fewer = streams.write(2, BLOCK, time.monotonic() + FAR)
    assert written.moved == read.moved == 3 * size
    assert fewer.moved == 2 * BLOCK
    assert written.seconds > 0 and read.seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_at_the_deadline_streams_stop_and_report_what_they_managed(tmp_path: Path) -> None:
    with Streams(str(tmp_path)) as streams:
        cut = streams.write(2, 1 << 40, time.monotonic())
        assert cut.moved == 2 * BLOCK == sum(path.stat().st_size for path in stream_files(tmp_path))
        streams.write(2, 3 * BLOCK, time.monotonic() + FAR)
        assert streams.read(2, time.monotonic()).moved == 2 * BLOCK


def test_what_is_written_can_be_neither_compressed_nor_deduplicated(tmp_path: Path) -> None:
    with Streams(str(tmp_path)) as streams:
        streams.write(2, 3 * BLOCK, time.monotonic() + FAR)
        data = b"".join(path.read_bytes() for path in stream_files(tmp_path))
    pages = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    assert len(set(pages)) == len(pages)
    assert len(zlib.compress(data, 1)) > 0.99 * len(data)


def test_progress_is_told_while_it_runs(tmp_path: Path) -> None:
    told: list[int] = []
    with Streams(str(tmp_path)) as streams:
        streams.write(2, BLOCK, time.monotonic() + FAR, lambda moved, seconds: told.append(moved))
    assert told == [BLOCK, 2 * BLOCK]


def test_an_error_of_a_stream_is_raised_here_with_its_number(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, Streams(str(tmp_path)) as streams:
        streams.write(1, BLOCK, time.monotonic() + FAR)
        stream_files(tmp_path)[0].unlink()
        streams.read(1, time.monotonic() + FAR)
    assert caught.value.errno == errno.ENOENT
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_dies_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="status -9"), Streams(str(tmp_path)) as streams:
        streams.write(2, BLOCK, time.monotonic() + FAR)
        os.kill(streams._streams[1].process.pid, signal.SIGKILL)
        streams.write(2, BLOCK, time.monotonic() + FAR)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", [b"", b'{"do": "write", "size": 1048576}\n{"deadline": 1e18}\n'])
def test_a_stream_whose_probe_is_gone_removes_its_file_and_the_folder(tmp_path: Path, order: bytes) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    command = [sys.executable, "-I", "-S", probe_stream.__file__, str(folder / "stream-0")]
    done = subprocess.run(command, input=order, capture_output=True, timeout=60, check=True)
    assert done.stdout.count(b"ready") == (2 if order else 1)
    assert done.stderr == b""
    assert not folder.exists()


@pytest.mark.parametrize("heard", [0, 1, 2, 3])
def test_a_stream_that_nobody_listens_to_stops_wherever_it_is(tmp_path: Path, heard: int) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    command = [sys.executable, "-I", "-S", probe_stream.__file__, str(folder / "stream-0")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b'{"do": "write", "size": 1099511627776}\n{"deadline": 1e18}\n')
        process.stdin.flush()
        for _ in range(heard):  # there, ready to write, in the middle of it
            assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
    assert not folder.exists()


# --- measuring --------------------------------------------------------------------------------------------------------

SMALL = Limits(size=2 * BLOCK, time=20.0, streams=3)


def test_a_measurement_has_a_point_for_each_number_of_streams(tmp_path: Path) -> None:
    seen: list[Progress] = []
    measurement = measure(str(tmp_path), SMALL, seen.append)
    assert [point.streams for point in measurement.points] == [1, 2, 3]
    assert [point.size for point in measurement.points] == [2 * BLOCK, 4 * BLOCK, 6 * BLOCK]
    assert all(
        point.write > 0 and point.read > 0 and point.rounds >= 1 and not point.cut for point in measurement.points
    )
    assert measurement.stopped == ""
    assert list(tmp_path.iterdir()) == []
    shares = [progress.done for progress in seen]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] <= 1
    assert {(progress.streams, progress.phase) for progress in seen} == {
        (streams, phase) for streams in (1, 2, 3) for phase in ("write", "read")
    }


def test_when_the_time_is_used_up_no_step_is_added(tmp_path: Path) -> None:
    measurement = measure(str(tmp_path), Limits(size=1 << 30, time=1e-6, streams=32))
    assert [point.streams for point in measurement.points] == [1]
    assert measurement.points[0].size == BLOCK
    assert "time" in measurement.stopped


def test_no_more_than_a_quarter_of_the_free_space_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "free_bytes", lambda path: 12 * BLOCK)
    measurement = measure(str(tmp_path), Limits(size=1 << 30, time=20.0, streams=32))
    assert [(point.streams, point.size) for point in measurement.points] == [(1, 3 * BLOCK), (2, 2 * BLOCK)]
    assert "quarter" in measurement.stopped


def test_a_full_disk_ends_the_measurement_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Streams.write

    def refusing(self: Streams, count: int, *rest: object) -> Passage:
        if count == 2:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "file")
        return write(self, count, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Streams, "write", refusing)
    measurement = measure(str(tmp_path), SMALL)
    assert [point.streams for point in measurement.points] == [1]
    assert os.strerror(errno.EDQUOT) in measurement.stopped
    assert list(tmp_path.iterdir()) == []


def test_an_error_before_the_first_point_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        measure(str(tmp_path / "missing"), SMALL)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_good_directory_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_directory(".") == str(tmp_path)


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="there is no directory"):
        check_directory(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="not a directory"):
        check_directory(str(tmp_path / "file"))


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(ConfigError, match="not writable"):
        check_directory(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"), [({8: os.ST_RDONLY}, "read-only"), ({1: 4096, 4: 10_000}, "only 41 MB free")]
)
def test_file_systems_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[int, int], message: str
) -> None:
    fields = list(os.statvfs(tmp_path))
    for index, value in changes.items():
        fields[index] = value
    status = os.statvfs_result(fields)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    with pytest.raises(ConfigError, match=message):
        check_directory(str(tmp_path))
