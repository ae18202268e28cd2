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
from penstock.runtime import probe, probe_busy, probe_stream
from penstock.runtime.probe import Limits, Measurement, Point, Progress, check_directory, measure
from penstock.runtime.probe_busy import OtherUse
from penstock.runtime.probe_stream import BLOCK, FOLDER, clean
from penstock.runtime.probe_streams import Passage, Streams, Unanswered

pytestmark = pytest.mark.leaks
FAR = 3600.0


def measured(*writes: float | tuple[float, ...]) -> Measurement:
    """Points of 1, 2, 4, … streams: rates at which they wrote, or the one rate of all repeats."""
    rates = [write if isinstance(write, tuple) else (write, write, write) for write in writes]
    return Measurement("/x", tuple(Point(2**n, repeats, repeats, size=1) for n, repeats in enumerate(rates)))


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


def test_the_median_counts_and_repeats_are_kept() -> None:
    point = Point(4, (100.0, 500.0, 110.0), (7.0, 9.0, 8.0), size=1)
    assert (point.write, point.read, point.rounds) == (110.0, 8.0, 3)


@pytest.mark.parametrize(
    ("writes", "unsure"),
    [
        ((100.0, 100.0, 100.0), False),
        ((100.0, 115.0, 129.0), False),
        ((100.0, 115.0, 140.0), True),
        ((345.0, 167.0, 340.0), True),
        ((100.0,), True),  # once is not enough to tell
        ((0.0, 0.0), False),
    ],
)
def test_a_point_is_unsure_if_its_repeats_differ_or_if_there_are_none(writes: tuple[float, ...], unsure: bool) -> None:
    assert Point(1, writes, writes, size=1).unsure is unsure


def test_what_repeats_do_not_agree_on_is_no_congestion() -> None:
    """Seen on one disk on one day: 345 MB/s with 2 streams, 167 with 32."""
    assert measured(300, (345.0, 170.0, 350.0), (167.0, 320.0, 160.0)).congestion is None
    fallen = measured(300, (345.0, 340.0, 350.0), (167.0, 180.0, 160.0)).congestion
    assert fallen is not None and fallen.streams == 4


@pytest.mark.parametrize(("others", "busy"), [(None, False), (0.1, False), (0.6, True)])
def test_a_machine_is_busy_if_others_use_much_of_it(others: float | None, busy: bool) -> None:
    assert Measurement("/x", measured(1).points, others=others).busy is busy


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])]
)
def test_streams_double_up_to_the_most(most: int, counts: list[int]) -> None:
    assert probe._stream_counts(most) == counts


def test_a_rate_counts_all_bytes_over_all_the_time() -> None:
    assert Passage(300, 2.0).rate == 150
    assert Passage(0, 0.0).rate == 0


# --- what others use --------------------------------------------------------------------------------------------------


class Stat:
    """A /proc/stat of two CPUs, told by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fields = [1000] * 8

    def passes(self, seconds: float, *, worked: float) -> None:
        """CPU time passes on both; waiting for a disk is no work."""
        ticks = os.sysconf("SC_CLK_TCK")
        self.fields[0] += round(worked * ticks)
        self.fields[4] += round((2 * seconds - worked) * ticks)
        self.path.write_text(f"cpu  {' '.join(map(str, self.fields))} 7 7\ncpu0 1 2 3\n")


def test_what_others_used_is_what_was_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_busy.time, "process_time", lambda: 5.0)
    stat = Stat(tmp_path / "stat")
    use = OtherUse(str(stat.path))
    assert use.share is None
    stat.passes(1.0, worked=0.0)
    use.begin()
    stat.passes(10.0, worked=8.0)
    use.end(ours=3.0)
    assert use.share == pytest.approx(0.25)
    stat.passes(100.0, worked=200.0)  # nothing is measured meanwhile
    use.begin()
    stat.passes(10.0, worked=1.0)
    use.end(ours=3.0)  # clocks differ a little
    assert use.share == pytest.approx(0.125)


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu 1 2\n", "cpu a b c d e f g h\n"])
def test_where_the_kernel_tells_nothing_nothing_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "stat").write_text(text)
    for path in (tmp_path / "stat", tmp_path / "missing"):
        use = OtherUse(str(path))
        use.begin()
        use.end(1.0)
        assert use.share is None


# --- streams ----------------------------------------------------------------------------------------------------------


def stream_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(".penstock-probe-*/stream-*"))


def test_each_stream_writes_its_own_file_and_reads_it_again(tmp_path: Path) -> None:
    with Streams(str(tmp_path), time.monotonic() + FAR) as streams:
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
    with Streams(str(tmp_path), time.monotonic() + FAR) as streams:
        cut = streams.write(2, 1 << 40, time.monotonic())
        assert cut.moved == 2 * BLOCK == sum(path.stat().st_size for path in stream_files(tmp_path))
        streams.write(2, 3 * BLOCK, time.monotonic() + FAR)
        assert streams.read(2, time.monotonic()).moved == 2 * BLOCK


def test_what_is_written_can_be_neither_compressed_nor_deduplicated(tmp_path: Path) -> None:
    with Streams(str(tmp_path), time.monotonic() + FAR) as streams:
        streams.write(2, 3 * BLOCK, time.monotonic() + FAR)
        data = b"".join(path.read_bytes() for path in stream_files(tmp_path))
    pages = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    assert len(set(pages)) == len(pages)
    assert len(zlib.compress(data, 1)) > 0.99 * len(data)


def test_progress_is_told_while_it_runs(tmp_path: Path) -> None:
    told: list[int] = []
    with Streams(str(tmp_path), time.monotonic() + FAR) as streams:
        streams.write(2, BLOCK, time.monotonic() + FAR, lambda moved, seconds: told.append(moved))
    assert told == [BLOCK, 2 * BLOCK]


def test_an_error_of_a_stream_is_raised_here_with_its_number(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, Streams(str(tmp_path), time.monotonic() + FAR) as streams:
        streams.write(1, BLOCK, time.monotonic() + FAR)
        stream_files(tmp_path)[0].unlink()
        streams.read(1, time.monotonic() + FAR)
    assert caught.value.errno == errno.ENOENT
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_dies_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="status -9"), Streams(str(tmp_path), time.monotonic() + FAR) as streams:
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

SMALL = Limits(size=2 * BLOCK, time=60.0, streams=3)


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
    assert {(progress.streams, progress.phase) for progress in seen} >= {
        (streams, phase) for streams in (1, 2, 3) for phase in ("write", "read")
    }


class Device:
    """Streams that are only computed, on a clock of their own: so many bytes per second, whatever their number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate: float = 100e6) -> None:
        self.now = 0.0
        self.rate = rate
        #: number of streams → factor of the rate, in the order of its repeats; the last one stays
        self.factors: dict[int, list[float]] = {}
        #: what was done: phase, number of streams, bytes of each
        self.done: list[tuple[str, int, int]] = []
        self.hangs_at = -1
        monkeypatch.setattr(probe, "Streams", lambda directory, end: self)
        monkeypatch.setattr(probe, "time", self)
        monkeypatch.setattr(probe, "free_bytes", lambda path: 10**12)
        self.end = 0.0
        self.size = 0

    def monotonic(self) -> float:
        return self.now

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def write(self, count: int, size: int, deadline: float, told: object = None) -> Passage:
        factors = self.factors.get(count, [1.0])
        factor = factors.pop(0) if len(factors) > 1 else factors[0]
        self.size = size
        return self._pass("write", count, size, self.rate * factor)

    def read(self, count: int, deadline: float, told: object = None) -> Passage:
        return self._pass("read", count, self.size, self.rate)

    def _pass(self, phase: str, count: int, size: int, rate: float) -> Passage:
        self.done.append((phase, count, size))
        if len(self.done) == self.hangs_at:
            raise Unanswered
        self.now += count * size / rate
        return Passage(count * size, count * size / rate)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def test_numbers_of_streams_take_turns(device: Device) -> None:
    """What changes with time must show as a difference between repeats, not as one between numbers of streams."""
    measurement = measure("/x", Limits(size=BLOCK, time=60.0, streams=4))
    writes = [count for phase, count, _ in device.done[1:] if phase == "write"]
    assert writes == [1, 2, 4, 4, 2, 1, 1, 2, 4, 4, 2, 1, 1, 2, 4]
    assert [point.rounds for point in measurement.points] == [5, 5, 5]
    assert not measurement.unsure and measurement.stopped == measurement.unfinished == ""


def test_a_device_that_changes_makes_a_measurement_unsure(device: Device) -> None:
    device.factors = {2: [1.0, 0.5, 1.0, 0.5, 1.0]}
    measurement = measure("/x", Limits(size=BLOCK, time=60.0, streams=4))
    assert [point.streams for point in measurement.unsure] == [2]
    assert measurement.points[1].writes == pytest.approx((100e6, 50e6, 100e6, 50e6, 100e6))


def test_the_time_is_planned_for_three_rounds_of_all_and_each_repeat_is_as_large(device: Device) -> None:
    measurement = measure("/x", Limits(size=1 << 40, time=30.0, streams=32))
    assert [point.streams for point in measurement.points] == [1, 2, 4, 8, 16, 32]
    assert all(point.rounds >= 3 for point in measurement.points)
    assert device.now <= 30.0
    for point in measurement.points:
        sizes = {size for phase, count, size in device.done[1:] if count == point.streams}
        assert len(sizes) == 1


def test_a_slow_device_gets_as_far_as_the_time_lasts_and_nothing_is_begun_that_cannot_end(device: Device) -> None:
    device.rate = 2e6
    measurement = measure("/x", Limits(time=30.0, streams=32))
    assert measurement.points[-1].streams < 32
    assert "time is used up" in measurement.stopped
    last = measurement.points[-1]
    assert last.unsure and last.rounds == 1
    assert device.now < 30.0 + 2 * 32 * BLOCK / device.rate  # a step that nobody knows yet may be long


@pytest.mark.parametrize("at", [2, 3])
def test_a_device_that_hangs_before_anything_is_known_is_an_error(device: Device, at: int) -> None:
    device.hangs_at = at
    with pytest.raises(PenstockError, match=r"nothing could be measured in 30.*ing with 1 stream was not done"):
        measure("/x", Limits(streams=2))


def test_a_device_that_hangs_later_leaves_what_is_known(device: Device) -> None:
    device.hangs_at = 6  # the warm-up, 1 stream, 2 streams; then it writes with 4
    measurement = measure("/x", Limits(size=BLOCK, streams=4))
    assert [(point.streams, point.rounds, point.unsure) for point in measurement.points] == [(1, 1, True), (2, 1, True)]
    assert measurement.unfinished == "writing with 4 streams"
    assert measurement.stopped == "the time is used up"


def test_a_device_that_hangs_in_a_later_round(device: Device) -> None:
    device.hangs_at = 9
    measurement = measure("/x", Limits(size=BLOCK, streams=4))
    assert [point.rounds for point in measurement.points] == [1, 1, 2]
    assert (measurement.unfinished, measurement.stopped) == ("reading with 4 streams", "")


def test_without_time_nothing_is_measured_and_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="nothing could be measured in 1 µs"):
        measure(str(tmp_path), Limits(size=1 << 30, time=1e-6, streams=32))
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_hangs_is_waited_for_until_the_end_and_no_longer(tmp_path: Path) -> None:
    """One that is stopped is like one that waits for its disk: it does not answer."""
    with Streams(str(tmp_path), time.monotonic() + FAR) as streams:
        streams.write(2, BLOCK, time.monotonic() + FAR)
        os.kill(streams._streams[1].process.pid, signal.SIGSTOP)
        streams._end = time.monotonic() + 0.2
        with pytest.raises(Unanswered):
            streams.write(2, BLOCK, time.monotonic() + FAR)
    assert list(tmp_path.iterdir()) == []


# --- what a killed probe leaves ---------------------------------------------------------------------------------------


def killed_streams(folder: Path) -> Path:
    """The remains of a probe that was killed with its streams."""
    with Streams(str(folder), time.monotonic() + FAR) as streams:
        streams.write(2, BLOCK, time.monotonic() + FAR)
        for stream in streams._streams:
            stream.process.kill()
            stream.process.wait()
        (dead,) = folder.glob(f"{FOLDER}*")
        assert len(list(dead.iterdir())) == 2
        streams._streams.clear()  # nobody is left to clean up
    return dead


def test_the_next_probe_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    dead = killed_streams(tmp_path)
    assert dead.exists()
    with Streams(str(tmp_path), time.monotonic() + FAR) as streams:
        assert not dead.exists()
        streams.write(1, BLOCK, time.monotonic() + FAR)
        clean(str(tmp_path))  # another one begins
        assert len(stream_files(tmp_path)) == 1
        assert streams.read(1, time.monotonic() + FAR).moved == BLOCK
    assert list(tmp_path.iterdir()) == []


def test_only_folders_of_probes_are_removed(tmp_path: Path) -> None:
    mine = tmp_path / ".penstock-probes-of-mine"
    mine.mkdir()
    clean(str(tmp_path))
    assert mine.exists()


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
