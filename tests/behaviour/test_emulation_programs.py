"""Emulated devices as programs meet them: processes that read and write real files, each with its own `open`.

A script is run that forks the processes, starts them together and prints what each measured. Times are compared with
what the curve promises; each measurement lasts a third of a second or more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.quiet_moments import in_a_quiet_moment

MB = 1_000_000
Spans = list[tuple[float, float]]

# `DO` is what each process does. It knows its number `i` and its `path`, calls `begin()` to start with the others, and
# answers with the span from there to its end, unless it sets `answer` itself.
SCRIPT = """
import json, multiprocessing, os, signal, sys, threading, time
from pathlib import Path
from penstock.executors.emulation import from_layers
from penstock.executors.paced_files import install
from penstock.model.resources import StorageLayer

mount, state, count, curve = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
layer = StorageLayer(name="disk", mount=mount, bandwidth=1.0, curve=tuple((n, rate) for n, rate in curve))
fork = multiprocessing.get_context("fork")
start, answers = fork.Barrier(count), fork.SimpleQueue()

def process(i):
    install(from_layers([layer], state))  # each maps the state for itself, as unrelated processes do
    path = Path(mount) / str(i)
    begun = answer = None
    def begin():
        nonlocal begun
        start.wait()
        begun = time.monotonic()
{DO}
    answers.put((i, answer or (begun, time.monotonic())))

processes = [fork.Process(target=process, args=(i,)) for i in range(count)]
for each in processes: each.start()
print(json.dumps([answer for i, answer in sorted(answers.get() for _ in range(count - {DYING}))]))
for each in processes: each.join()
"""


class Device:
    def __init__(self, tmp_path: Path) -> None:
        self.mount, self.state = tmp_path / "mount", tmp_path / "state"
        self.mount.mkdir()
        self.state.mkdir()

    def run(self, body: str, count: int, *curve: tuple[int, float], dying: int = 0) -> Spans:
        """Run ``body`` in ``count`` processes; return the answers of those that live to give one, in order."""
        lines = "\n".join("    " + line for line in body.strip().splitlines())
        script = SCRIPT.replace("{DO}", lines).replace("{DYING}", str(dying))
        arguments = [str(self.mount), str(self.state), str(count), json.dumps(curve)]
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        return [(one, other) for one, other in json.loads(done.stdout)]


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def whole(spans: Spans) -> float:
    return max(ended for _, ended in spans) - min(begun for begun, _ in spans)


def write(size: int) -> str:
    return f"data = bytes({size})\nbegin()\nwith open(path, 'wb') as file: file.write(data)"


CONGESTING = ((1, 10.0 * MB), (8, 40.0 * MB), (32, 10.0 * MB))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("count", "aggregate"), [(1, 10 * MB), (2, 14.3 * MB), (8, 40 * MB), (32, 10 * MB)])
@in_a_quiet_moment
def test_processes_together_get_what_the_curve_says(device: Device, count: int, aggregate: float) -> None:
    # Measured while all are at it, since fewer, at the beginning and at the end, get another bandwidth.
    body = f"""
data = bytes({int(0.01 * aggregate / count)})
begin()
with open(path, "wb", 0) as file:
    marks = [(time.monotonic(), file.tell())]
    while marks[-1][0] < begun + 0.8:
        file.write(data)
        marks.append((time.monotonic(), file.tell()))
middle = [mark for mark in marks if begun + 0.2 <= mark[0] <= begun + 0.65]
answer = middle[-1][1] - middle[0][1], middle[-1][0] - middle[0][0]
"""
    rates = [moved / taken for moved, taken in device.run(body, count, *CONGESTING)]
    assert sum(rates) == pytest.approx(aggregate, rel=0.1)
    assert max(rates) < 2 * min(rates)


@in_a_quiet_moment
def test_too_many_streams_are_slower_than_few(device: Device) -> None:
    few = 8 * 2 * MB / whole(device.run(write(2 * MB), 8, *CONGESTING))
    many = 32 * MB // 8 / whole(device.run(write(MB // 8), 32, *CONGESTING))
    assert many < 0.5 * few


@in_a_quiet_moment
def test_two_processes_are_served_alike_however_they_write(device: Device) -> None:
    body = """
data = bytes(10_000)
begin()
with open(path, "wb", -1 if i else 0) as file:
    if i:
        for _ in range(200): file.write(data)
    else:
        file.write(data * 200)
"""
    (first, ended_first), (second, ended_second) = device.run(body, 2, (1, 10.0 * MB))
    assert ended_first - first == pytest.approx(0.4, rel=0.15)
    assert ended_second - second == pytest.approx(0.4, rel=0.15)


@in_a_quiet_moment
def test_readers_and_writers_share_one_device(device: Device) -> None:
    (device.mount / "0").write_bytes(bytes(2 * MB))
    body = """
begin()
if i: path.write_bytes(bytes(2_000_000))
else: assert len(path.read_bytes()) == 2_000_000
"""
    for begun, ended in device.run(body, 2, (1, 10.0 * MB)):
        assert ended - begun == pytest.approx(0.4, rel=0.15)


@in_a_quiet_moment
def test_a_file_that_is_open_and_at_rest_takes_no_share(device: Device) -> None:
    body = """
with open(path, "wb") as file:
    file.write(bytes(100_000))
    file.flush()
    begin()
    if i == 0:
        time.sleep(0.2)
        begun = time.monotonic()
        file.write(bytes(4_000_000))
        file.flush()
        ended = time.monotonic()
    else:
        time.sleep(1.0)
if i == 0: assert 0.36 < ended - begun < 0.48, ended - begun
"""
    device.run(body, 6, (1, 10.0 * MB))


@in_a_quiet_moment
def test_a_killed_process_gives_its_share_back(device: Device) -> None:
    body = """
if i:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
data = bytes(50_000_000 if i else 10_000_000)
begin()
with open(path, "wb") as file: file.write(data)
"""
    # Half the device for the first 0.3 s, and until the loss is noticed; then all of it. Never noticed: 2 s.
    [(begun, ended)] = device.run(body, 2, (1, 10.0 * MB), dying=1)
    assert 1.1 < ended - begun < 1.8


def test_a_text_file_is_what_a_plain_open_would_have_made(device: Device, tmp_path: Path) -> None:
    text = "häst €\nsecond\r\nthird\rlast"
    body = f"""
begin()
text = {text!r}
with open(path, "w", encoding="utf-16", newline="\\r\\n") as file: file.write(text)
with path.open(encoding="utf-16") as file: lines = file.readlines()
with open(path, "a", encoding="utf-16", buffering=1) as file: print(*lines, sep="|", file=file)
"""
    device.run(body, 1, (1, 1.0 * MB))
    plain = tmp_path / "plain"
    with open(plain, "w", encoding="utf-16", newline="\r\n") as file:
        file.write(text)
    with open(plain, encoding="utf-16") as file:
        lines = file.readlines()
    with open(plain, "a", encoding="utf-16", buffering=1) as file:
        print(*lines, sep="|", file=file)
    assert (device.mount / "0").read_bytes() == plain.read_bytes()
