"""Emulated devices: what is charged, who counts as a stream, and that a paced `open` is an `open`.

What is charged is asked of a device that only counts; times are taken from real devices, by ratios.
"""

from __future__ import annotations

import builtins
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.patience import eventually

from penstock.errors import ConfigError
from penstock.executors import emulated_device
from penstock.executors.emulation import EmulatedDevice, from_layers
from penstock.executors.paced_files import install, uninstall
from penstock.model.resources import StorageLayer

MB = 1_000_000
PLAIN_OPEN = open


class CountingDevice:
    """Stands in for a device: adds up what its streams transfer, and takes no time."""

    part = None

    def __init__(self, mount: Path) -> None:
        self.mount = os.path.realpath(mount)
        self.charged = 0
        self.open_streams = 0

    def stream(self) -> CountingDevice:
        self.open_streams += 1
        return self

    def begin(self) -> None:
        pass

    def transfer(self, nbytes: int, *, reads: bool = False) -> None:
        self.charged += nbytes

    def close(self) -> None:
        self.open_streams -= 1


@pytest.fixture(autouse=True)
def _own_open() -> Iterator[None]:
    yield
    uninstall()
    assert builtins.open is io.open is PLAIN_OPEN


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    path = tmp_path / "mount"
    path.mkdir()
    return path


@pytest.fixture
def counted(mount: Path) -> CountingDevice:
    device = CountingDevice(mount)
    install([device])  # type: ignore[list-item]
    return device


@pytest.fixture
def make_device(mount: Path, tmp_path: Path) -> Iterator[Callable[..., EmulatedDevice]]:
    made = []

    def make(*curve: tuple[int, float]) -> EmulatedDevice:
        made.append(EmulatedDevice(str(mount), curve or ((1, 10.0 * MB),), str(tmp_path / "state")))
        return made[-1]

    yield make
    for device in made:
        device.close()


def seconds(action: Callable[[], object]) -> float:
    start = time.monotonic()
    action()
    return time.monotonic() - start


class PromptClock:
    """Time for threads that do nothing but sleep: as soon as all of them do, it is when the first one wakes up."""

    def __init__(self, threads: int = 1) -> None:
        self._now = 1000.0
        self._threads = threads
        self._dues: dict[int, float] = {}
        self._changed = threading.Condition()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        own = threading.get_ident()
        with self._changed:
            self._dues[own] = due = self._now + max(seconds, 1e-6)  # less would be lost in rounding
            self._go_on()
            self._changed.wait_for(lambda: self._now >= due)
            del self._dues[own]

    def leave(self) -> None:
        """A thread has ended."""
        with self._changed:
            self._threads -= 1
            self._go_on()

    def _go_on(self) -> None:
        waiting = [due for due in self._dues.values() if due > self._now]
        if len(waiting) == self._threads and waiting:
            self._now = min(waiting)
            self._changed.notify_all()


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], PromptClock]:
    """Gives the devices a clock that the machine cannot disturb."""

    def make(threads: int) -> PromptClock:
        clock = PromptClock(threads)
        monkeypatch.setattr(emulated_device, "time", clock)
        return clock

    return make


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_lone_stream_gets_what_the_curve_says(
    make_device: Callable[..., EmulatedDevice], prompt: Callable[[int], PromptClock]
) -> None:
    clock = prompt(1)
    with make_device((1, 10.0 * MB), (2, 1.0 * MB)).stream() as stream:
        stream.transfer(3 * MB)
    assert clock.monotonic() == pytest.approx(1000.3, abs=0.001)


def test_many_small_transfers_take_as_long_as_a_large_one(
    make_device: Callable[..., EmulatedDevice], prompt: Callable[[int], PromptClock]
) -> None:
    clock = prompt(1)
    with make_device().stream() as stream:
        for _ in range(3000):
            stream.transfer(1000)
    assert clock.monotonic() == pytest.approx(1000.3, abs=0.001)


def test_time_passes_as_a_device_says(make_device: Callable[..., EmulatedDevice]) -> None:
    with make_device().stream() as stream:
        assert seconds(lambda: stream.transfer(MB)) >= 0.099


def test_streams_share_fairly_and_the_rest_goes_to_whom_stays(
    make_device: Callable[..., EmulatedDevice], prompt: Callable[[int], PromptClock]
) -> None:
    device, clock = make_device(), prompt(2)
    together, ended = threading.Barrier(2), dict[int, float]()

    def run(size: int) -> None:
        with device.stream() as stream:
            stream.begin()
            together.wait()
            stream.transfer(size)
            ended[size] = clock.monotonic() - 1000
        clock.leave()

    threads = [threading.Thread(target=run, args=(size,)) for size in (2 * MB, 4 * MB)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # At half the bandwidth each until the small one has its 2 MB; the other has as much left, and all of the device.
    assert ended == pytest.approx({2 * MB: 0.4, 4 * MB: 0.6}, abs=0.012)  # they look every 10 ms


def test_a_stream_counts_while_it_transfers_and_shortly_after(make_device: Callable[..., EmulatedDevice]) -> None:
    device = make_device()
    first, second = device.stream(), device.stream()
    assert device.active_streams() == 0
    first.begin()
    second.begin()
    assert device.active_streams() == 2
    second.close()
    assert device.active_streams() == 1
    first.transfer(1)
    eventually(lambda: device.active_streams() == 0)
    # Unless this process was held up in between for longer than a stream counts.
    eventually(lambda: (first.transfer(1), device.active_streams())[1] == 1)
    first.close()
    assert device.active_streams() == 0


def test_rest_earns_no_credit(make_device: Callable[..., EmulatedDevice]) -> None:
    device = make_device()
    with device.stream() as stream:
        stream.transfer(MB // 10)
        eventually(lambda: device.active_streams() == 0)
        assert seconds(lambda: stream.transfer(2 * MB)) > 0.19


def test_a_trickle_earns_little_credit(make_device: Callable[..., EmulatedDevice]) -> None:
    with make_device().stream() as stream:
        for _ in range(25):  # never idle for long, and half a second behind what it could have had
            time.sleep(0.02)
            stream.transfer(1)
        assert seconds(lambda: stream.transfer(4 * MB)) > 0.14


def test_a_slot_of_an_earlier_process_of_the_same_number_is_freed(make_device: Callable[..., EmulatedDevice]) -> None:
    device = make_device()
    with device._state:
        device._state.take(os.getpid(), birth=1)
        assert device.join() is not None
    assert device.active_streams() == 1


def test_a_stream_that_finds_the_device_full_waits_for_another_to_leave(
    make_device: Callable[..., EmulatedDevice],
) -> None:
    device = make_device((1, 1e12))
    others = [device.stream() for _ in range(1024)]
    for other in others:
        other.begin()
    late, served = device.stream(), threading.Event()
    thread = threading.Thread(target=lambda: (late.transfer(1), served.set()))
    thread.start()
    assert not served.wait(0.1)
    others[500].close()
    assert served.wait(60)
    thread.join()


def test_an_interrupted_transfer_does_not_count_for_ever(make_device: Callable[..., EmulatedDevice]) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    device = make_device()
    stream = device.stream()
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            stream.transfer(100 * MB)
    finally:
        signal.signal(signal.SIGALRM, previous)
    eventually(lambda: device.active_streams() == 0)


@pytest.mark.parametrize("call", ["open", "read"])
def test_an_interruption_is_not_lost_while_the_device_looks_at_processes(
    make_device: Callable[..., EmulatedDevice], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def interrupted(*_: object) -> None:
        raise TimeoutError

    stream = make_device().stream()
    with monkeypatch.context() as patched, pytest.raises(TimeoutError):
        patched.setattr(os, call, interrupted)
        stream.transfer(1)
    assert seconds(lambda: stream.transfer(MB)) > 0.09


def test_a_curve_that_makes_no_sense_is_refused_at_once(mount: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        EmulatedDevice(str(mount), (), str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()


def test_layers_with_a_curve_become_devices_with_a_state_of_their_own(tmp_path: Path) -> None:
    curve = ((1, 5.0), (4, 7.0))
    layers = [
        StorageLayer(name="ssd", mount="/scratch/ssd", bandwidth=1.0),
        StorageLayer(name="a/b", mount="/scratch/a", bandwidth=1.0, curve=curve),
        StorageLayer(name="c", mount="/scratch/c", bandwidth=1.0, curve=curve),
    ]
    first, second = from_layers(layers, str(tmp_path))
    again, _ = from_layers(layers, str(tmp_path))
    assert (first.mount, second.mount, first.curve) == ("/scratch/a", "/scratch/c", curve)
    first.stream().begin()
    assert (first.active_streams(), again.active_streams(), second.active_streams()) == (1, 1, 0)
    for device in (first, second, again, _):
        device.close()


# --- what is charged --------------------------------------------------------------------------------------------------

DATA = bytes(range(256)) * 40


def test_buffered_and_unbuffered_transfers_are_charged_once(counted: CountingDevice, mount: Path) -> None:
    for buffering in (-1, 0, 100, 10**6):
        counted.charged = 0
        with open(mount / "x", "wb", buffering) as file:
            file.write(DATA)
            file.write(DATA[:10])
        assert counted.charged == len(DATA) + 10
        readers: list[Callable[[Any], object]] = [
            lambda file: file.read(),
            lambda file: [file.read(1000) for _ in range(20)],
            lambda file: file.readinto(bytearray(len(DATA) + 10)),
            lambda file: file.readlines(),
        ]
        for read in readers:
            counted.charged = 0
            with open(mount / "x", "rb", buffering) as file:
                read(file)
            assert counted.charged == len(DATA) + 10
    assert counted.open_streams == 0


def test_text_is_charged_by_its_bytes(counted: CountingDevice, mount: Path) -> None:
    with open(mount / "x", "w", encoding="utf-16-le") as file:
        file.write("abcde")
    assert counted.charged == 10


def test_overwriting_and_appending_are_charged_by_what_is_written(counted: CountingDevice, mount: Path) -> None:
    (mount / "x").write_bytes(DATA)
    counted.charged = 0
    with open(mount / "x", "r+b") as file:
        file.seek(5000)
        file.write(b"12345")
        file.seek(200_000)  # leaves a hole
        file.write(b"67")
    assert counted.charged == 7
    with open(mount / "x", "ab") as file:
        file.write(b"890")
    assert counted.charged == 10


def test_arrays_saved_and_loaded_are_charged(counted: CountingDevice, mount: Path) -> None:
    array = np.arange(10_000)
    np.save(mount / "x.npy", array)
    size = (mount / "x.npy").stat().st_size
    assert counted.charged == size
    counted.charged = 0
    assert (np.load(mount / "x.npy") == array).all()
    assert counted.charged == size


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
def test_what_goes_to_the_descriptor_is_charged_with_the_rest(counted: CountingDevice, mount: Path, mode: str) -> None:
    (mount / "x").touch()
    counted.charged = 0
    with open(mount / "x", mode) as file:
        file.write(b"head")
        np.arange(1000).tofile(file)
        file.write(b"tail")
        file.flush()
        subprocess.run([sys.executable, "-c", "print('x' * 499)"], stdout=file, check=True)
        os.write(file.fileno(), b"more")
    assert counted.charged == (mount / "x").stat().st_size == 8 + 8000 + 500 + 4


def test_a_new_file_is_charged_for_its_size_however_it_came_about(counted: CountingDevice, mount: Path) -> None:
    with open(mount / "x", "wb") as file:
        file.write(b"head")
        file.flush()
        os.pwrite(file.fileno(), DATA, 4)
    assert counted.charged == 4 + len(DATA)
    counted.charged = 0
    mapped = np.memmap(mount / "y", dtype=np.uint8, mode="w+", shape=(5000,))
    assert counted.charged == 5000
    del mapped


def test_a_failed_write_is_passed_on_and_not_charged(counted: CountingDevice, mount: Path) -> None:
    (mount / "x").write_bytes(DATA)
    counted.charged = 0
    file = open(mount / "x", "rb", 0)
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"1")
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed file"):
        file.read()
    assert (counted.charged, counted.open_streams) == (0, 0)


def test_a_saved_array_takes_its_time(
    make_device: Callable[..., EmulatedDevice], mount: Path, prompt: Callable[[int], PromptClock]
) -> None:
    device = make_device()
    install([device])
    clock = prompt(1)
    np.save(mount / "x.npy", np.zeros(3 * MB, np.uint8))
    assert clock.monotonic() == pytest.approx(1000.3, abs=0.01)
    assert device.active_streams() == 0


# --- which files are on the device ------------------------------------------------------------------------------------


def test_every_way_to_name_a_file_on_the_device(
    counted: CountingDevice, mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mount)
    (tmp_path / "link").symlink_to(mount)
    (tmp_path / "file_link").symlink_to(mount / "x")

    def charged(action: Callable[[], object]) -> int:
        before = counted.charged
        action()
        return counted.charged - before

    def write(file: Any) -> None:
        with open(file, "wb") as opened:
            opened.write(b"1")

    named: list[Any] = [
        "x",
        "new",
        mount / "x",
        str(mount / "x"),
        os.fsencode(mount / "x"),
        mount / "." / ".." / "mount" / "x",
        tmp_path / "link" / "x",
        tmp_path / "link" / "other",
        tmp_path / "file_link",
    ]
    for name in named:
        assert charged(lambda: write(name)) == 1, name  # noqa: B023
    assert charged(lambda: Path("x").read_bytes()) == 1
    assert charged(lambda: io.open(file="x").read()) == 1  # noqa: UP020

    def temporary(**options: Any) -> None:
        with tempfile.NamedTemporaryFile(dir=mount, **options) as file:
            file.write(b"123")

    assert charged(temporary) == 3

    def by_descriptor() -> None:
        with os.fdopen(os.open("x", os.O_WRONLY), "wb") as file:
            file.write(b"12345")

    assert charged(by_descriptor) == 5


def test_the_deepest_mount_is_the_one(mount: Path) -> None:
    (mount / "inner").mkdir()
    outer, inner = CountingDevice(mount), CountingDevice(mount / "inner")
    install([outer, inner])  # type: ignore[list-item]
    (mount / "inner" / "x").write_bytes(b"1")
    (mount / "x").write_bytes(b"12")
    assert (outer.charged, inner.charged) == (2, 1)


def test_files_elsewhere_are_plain(counted: CountingDevice, tmp_path: Path) -> None:
    (tmp_path / "mount2").mkdir()  # a name that begins like the mount's
    for path in (tmp_path / "x", tmp_path / "mount2" / "x"):
        for mode in ("w", "r", "wb", "rb", "r+b"):
            with open(path, mode) as file, PLAIN_OPEN(path, mode) as plain:
                assert type(file) is type(plain)
                raw = getattr(file, "buffer", file).raw
                assert type(raw) is io.FileIO
        with open(path, "rb", 0) as file:
            assert type(file) is io.FileIO
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb") as sink:
        assert type(source.raw) is type(sink.raw) is io.FileIO
    assert counted.charged == 0


def test_a_pipe_on_the_device_is_not_charged(counted: CountingDevice, mount: Path) -> None:
    os.mkfifo(mount / "pipe")
    with open(mount / "pipe", "r+b", 0) as file:
        file.write(b"12")
        assert file.read(2) == b"12"
    assert counted.charged == 0


# --- a paced open is an open ------------------------------------------------------------------------------------------

TEXT = "first\nsecond\r\nthird\rhäst €\n"


def written_and_read(open_: Callable[..., Any], path: Path) -> list[Any]:
    """What a program sees that does much of what can be done with files."""
    seen: list[Any] = []

    def look(file: Any) -> None:
        raw = getattr(file, "buffer", file)
        raw = getattr(raw, "raw", raw)
        names = ("mode", "closed", "encoding", "errors", "newlines", "line_buffering")
        seen.append([getattr(file, name, None) for name in names])
        seen.append([Path(file.name).name, raw.mode, raw.closefd, file.readable(), file.writable(), file.seekable()])
        seen.append(type(file) if file is not raw else isinstance(file, io.FileIO))
        seen.append(repr(file).replace(str(path), "PATH"))

    for buffering in (-1, 1, 7, 5000):
        for encoding, newline in ((None, None), ("utf-8", ""), ("utf-16", "\r\n"), ("latin-1", "\n")):
            options = {"encoding": encoding, "newline": newline, "errors": "replace"}
            with open_(path, "w", buffering, **options) as file:
                look(file)
                seen.append([file.write(TEXT), file.tell(), path.stat().st_size > 0])
                seen.append(file.writelines(["a\n", "b"]))
            seen.append(path.read_bytes())
            with open_(path, "a+", buffering, **options) as file:
                look(file)
                seen.append([file.tell(), file.write("end"), file.seek(0), file.read(3), file.readline(), file.tell()])
            with open_(path, buffering=buffering, **options) as file:
                look(file)
                seen.append(list(file))
    for buffering in (-1, 0, 7, 5000):
        with open_(path, "wb", buffering) as file:
            look(file)
            seen.append([file.write(DATA), file.tell(), file.seek(10), file.write(b"!"), file.truncate(5000)])
        with open_(path, "r+b", buffering) as file:
            look(file)
            seen.append([file.read(20), file.write(b"abc"), file.seek(-5, 2), file.read(), file.read(), file.tell()])
            seen.append([file.seek(0), file.readline(), file.read(0), file.readinto(bytearray(9)), file.read()])
        with open_(path, "ab", buffering) as file:
            look(file)
            seen.append([file.tell(), file.write(b"xyz"), file.tell()])
        with open_(path, "rb", buffering) as file:
            look(file)
            seen.append([file.read(), list(file)])
        path.unlink()
        with open_(path, "x+b", buffering) as file:
            look(file)
            seen.append([file.write(b"new"), file.seek(0), file.read()])
    return seen


def test_the_same_program_sees_the_same(counted: CountingDevice, mount: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    paced = written_and_read(open, mount / "x")
    assert paced == written_and_read(PLAIN_OPEN, tmp_path / "plain" / "x")
    assert counted.charged > len(DATA) and counted.open_streams == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("missing", {}),
        ("missing/x", {"mode": "w"}),
        ("", {}),
        ("", {"mode": "w"}),
        ("here", {"mode": "x"}),
        ("here", {"mode": "rw"}),
        ("here", {"mode": "rr"}),
        ("here", {"mode": "q"}),
        ("here", {"mode": "b"}),
        ("here", {"mode": ""}),
        ("here", {"mode": "+"}),
        ("here", {"mode": "rbt"}),
        ("here", {"mode": 3}),
        ("here", {"mode": None}),
        ("here", {"mode": "rb", "encoding": "utf-8"}),
        ("here", {"mode": "rb", "errors": "strict"}),
        ("here", {"mode": "rb", "newline": "\n"}),
        ("here", {"encoding": "no-such"}),
        ("here", {"encoding": 3}),
        ("here", {"newline": "x"}),
        ("here", {"newline": 3}),
        ("here", {"buffering": 0}),
        ("here", {"buffering": "many"}),
        ("here", {"buffering": -2, "mode": "rz"}),
        ("here", {"closefd": False}),
        ("here", {"opener": lambda path, flags: -1}),
        ("here", {"opener": lambda path, flags: "3"}),
        ("here", {"unknown": 1}),
        ("he\0re", {}),
    ],
)
def test_the_same_mistakes_are_answered_the_same(
    counted: CountingDevice, mount: Path, name: str, options: dict[str, Any]
) -> None:
    (mount / "here").write_bytes(b"content")

    def answer(open_: Callable[..., Any]) -> tuple[object, ...]:
        with pytest.raises(Exception) as raised:
            open_(os.path.join(mount, name), **options)
        return raised.type, getattr(raised.value, "filename", None), str(raised.value)

    assert answer(open) == answer(PLAIN_OPEN)
    assert counted.open_streams == 0
    assert (mount / "here").read_bytes() == b"content"


def test_what_is_no_name_is_answered_the_same(counted: CountingDevice) -> None:
    for arguments in ((), (None,), (3.5,), (-1,), (10**6,), ([],)):
        with pytest.raises((TypeError, ValueError, OSError)) as plain:
            PLAIN_OPEN(*arguments)  # type: ignore[call-overload]
        with pytest.raises((TypeError, ValueError, OSError)) as paced:
            open(*arguments)  # type: ignore[call-overload]
        assert (paced.type, str(paced.value)) == (plain.type, str(plain.value))


def test_warnings_name_the_caller(counted: CountingDevice, mount: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open(mount / "x", "wb", 1).close()
        open(mount / "x", "rb")
    kinds = [(warning.category, warning.filename) for warning in caught]
    assert kinds == [(RuntimeWarning, __file__), (ResourceWarning, __file__)]
    assert counted.open_streams == 0  # of the file that was not closed, too


def test_open_stays_a_function_that_classes_and_pickles_can_hold(counted: CountingDevice, mount: Path) -> None:
    class Holder:
        opener = open

    Holder().opener(mount / "x", "w").close()
    assert pickle.loads(pickle.dumps(open)) is open
    assert callable(open) and open.__name__ == "open"


def test_installing_again_replaces_the_devices(counted: CountingDevice, mount: Path, tmp_path: Path) -> None:
    other = CountingDevice(tmp_path)
    install([other])  # type: ignore[list-item]
    (mount / "x").write_bytes(b"12")
    assert (counted.charged, other.charged) == (0, 2)
    uninstall()
    uninstall()
    (mount / "x").write_bytes(b"12")
    assert other.charged == 2
