"""Memory for turning objects to bytes and back is given out over all processes, and comes back however they end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.data.admission import FREE, SLOTS, Admission, estimate
from penstock.data.segments import Segments
from penstock.data.serializer import dump, load

MB = 1 << 20
BUDGET = 64 * MB


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "admission")


@contextmanager
def process(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-c", "import sys, time\nfrom penstock.data.admission import Admission\n" + source]
    started = subprocess.Popen([*program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with started:
        try:
            yield started
        finally:
            started.kill()


HOLDER = """
claim = Admission(sys.argv[1], int(sys.argv[2])).claim(int(sys.argv[3]))
print("has it", flush=True)
sys.stdin.read()
"""


def in_background(act: Any) -> tuple[threading.Thread, threading.Event]:
    done = threading.Event()

    def run() -> None:
        act()
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, done


# --- claims ---------------------------------------------------------------------------------------------------------


def test_claims_within_the_budget_are_granted_at_once_and_one_beyond_it_waits(path: str) -> None:
    admission = Admission(path, BUDGET)
    others: list[Any] = []
    thread, _ = in_background(lambda: others.extend([Admission(path, BUDGET).claim(8 * MB)]))
    thread.join()
    first = admission.claim(16 * MB)  # of both, twice as much is counted: 16 and 32 of 64
    thread, granted = in_background(lambda: Admission(path, BUDGET).claim(10 * MB))
    assert not granted.wait(0.05)
    first.release()
    assert granted.wait(60)
    thread.join()


def test_what_is_larger_than_the_budget_runs_alone(path: str) -> None:
    admission = Admission(path, BUDGET)
    huge = admission.claim(1 << 40)
    assert huge.covers > 1 << 40
    thread, granted = in_background(lambda: Admission(path, BUDGET).claim(1))
    assert not granted.wait(0.05)
    huge.release()
    assert granted.wait(60)
    thread.join()


def test_killed_process_gives_back_what_it_had(path: str) -> None:
    with process(HOLDER, path, str(BUDGET), str(1 << 40)) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "has it\n"
        thread, granted = in_background(lambda: Admission(path, BUDGET).claim(MB).release())
        assert not granted.wait(0.05)
        os.kill(holder.pid, signal.SIGKILL)
        assert granted.wait(60)
        thread.join()


def test_process_killed_while_it_waits_keeps_nobody_from_the_gate(path: str) -> None:
    mine = Admission(path, BUDGET).claim(1 << 40)
    waiter = HOLDER.replace("claim =", 'print("waits", flush=True); claim =')
    with process(waiter, path, str(BUDGET), str(1 << 40)) as waiting:
        assert waiting.stdout is not None and waiting.stdout.readline() == "waits\n"
        thread, granted = in_background(lambda: Admission(path, BUDGET).claim(MB).release())
        assert not granted.wait(0.1)  # behind the one that waits, or behind us
        os.kill(waiting.pid, signal.SIGKILL)
        waiting.wait()
        mine.release()
        assert granted.wait(60)
        thread.join()


def test_thread_that_has_a_claim_never_waits_for_another(path: str) -> None:
    admission = Admission(path, BUDGET)
    outer = admission.claim(1 << 40)
    inner = admission.claim(MB)  # would wait for ever
    inner.release()
    outer.release()
    assert admission.claim(1 << 40).covers > 1 << 40


def test_claim_grows_only_where_nobody_has_to_wait(path: str) -> None:
    admission = Admission(path, BUDGET)
    claim = admission.claim(MB)
    assert claim.grow(16 * MB) and claim.covers >= 16 * MB
    with process(HOLDER, path, str(BUDGET), str(14 * MB)) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "has it\n"
        assert not claim.grow(24 * MB)
    assert claim.grow(24 * MB)
    claim.release()


def test_store_that_is_gone_limits_nobody(tmp_path: Path) -> None:
    claim = Admission(str(tmp_path / "gone" / "admission"), BUDGET).claim(1 << 30)
    assert claim.covers > 1 << 30
    claim.release()


CLAIMS = """
import random
path, budget, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
admission, chance = Admission(path, budget), random.Random(seed)
for _ in range(30):
    claim = admission.claim(chance.choice([1, 2, 5, 12, 40]) << 20)
    held = len(claim._held)
    print(time.monotonic_ns(), held)
    time.sleep(chance.random() * 0.004)
    if chance.random() < 0.3 and claim.grow(claim.covers + (3 << 20)):
        print(time.monotonic_ns(), len(claim._held) - held)
        held = len(claim._held)
    print(time.monotonic_ns(), -held)
    claim.release()
"""


def test_many_processes_never_have_more_than_the_budget_and_all_come_through(path: str) -> None:
    programs = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import sys, time\nfrom penstock.data.admission import Admission\n{CLAIMS}",
                path,
                str(BUDGET),
                str(seed),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(5)
    ]
    changes = []
    for program in programs:
        output, _ = program.communicate(timeout=60)
        assert program.returncode == 0
        changes += [tuple(map(int, line.split())) for line in output.splitlines()]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    assert held == 0
    assert 32 < most <= SLOTS  # they did run side by side


# --- estimates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "size"),
    [
        ([float(i) for i in range(200_000)], 9 * 200_000),
        ({f"key {i:06}": [i, "x" * 50] for i in range(50_000)}, 83 * 50_000),
        (["x" * random.Random(i).randrange(2000) for i in range(2_000)], 1000 * 2_000),
        ([b"x" * 10_000_000], 10_000_000),
        ([[{"deep": ["y" * 1000] * 1}] * 1 for _ in range(3_000)], 1030 * 3_000),
    ],
    ids=["numbers", "a dict", "texts", "bytes", "nested"],
)
def test_estimate_is_of_the_right_order(obj: Any, size: int) -> None:
    assert size / 4 < estimate(obj) < size * 4


def test_estimate_of_a_graph_with_cycles_ends() -> None:
    ring: list[Any] = []
    ring.append({"self": ring, "list": [ring] * 1000})
    assert estimate(ring) < 1_000_000


# --- in use ---------------------------------------------------------------------------------------------------------


class Watched(Admission):
    """Notes the sizes that were asked for."""

    def __init__(self, path: str, budget: int) -> None:
        super().__init__(path, budget)
        self.asked: list[int] = []

    def claim(self, size: int) -> Any:
        self.asked.append(size)
        return super().claim(size)


@pytest.fixture
def segments(tmp_path: Path) -> Iterator[Segments]:
    segments = Segments(str(tmp_path), str(tmp_path), 1)
    segments.admission = Watched(str(tmp_path / "admission"), BUDGET)
    yield segments
    segments.close()


def everything_is_free(segments: Segments) -> bool:
    assert segments.admission is not None
    whole = segments.admission.claim(1 << 40)
    free = whole.covers > 1 << 40
    whole.release()
    return free


class Deceptive:
    """Looks small and is not."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __reduce__(self) -> Any:
        return _length, ([b"%060d" % number for number in range(self._size // 60)],)


def _length(items: list[bytes]) -> int:
    return len(items)


def test_small_objects_and_large_buffers_ask_for_nothing(segments: Segments) -> None:
    import numpy

    for obj in ([1, 2], list(range(10_000)), numpy.zeros(4 * MB), {"a": numpy.zeros(4 * MB)}):
        load(dump(obj, segments, "it"), segments)
    assert segments.admission.asked == []  # type: ignore[union-attr]


def test_large_stream_is_claimed_both_ways_and_given_back(segments: Segments) -> None:
    texts = [f"{number:060}" for number in range(200_000)]
    value = dump(texts, segments, "it")
    assert load(value, segments) == texts
    packing, unpacking = segments.admission.asked  # type: ignore[union-attr]
    assert unpacking == value.data.size > FREE  # type: ignore[union-attr]
    assert 0.7 * unpacking < packing < 3 * unpacking
    assert everything_is_free(segments)


def test_claim_is_given_back_when_pickling_fails(segments: Segments) -> None:
    with pytest.raises(Exception, match="cannot pickle"):
        dump([[f"{number:060}" for number in range(200_000)], threading.Lock()], segments, "it")
    assert everything_is_free(segments)


def test_object_that_turns_out_larger_than_its_claim_begins_again_with_a_larger_one(segments: Segments) -> None:
    admission = segments.admission
    assert isinstance(admission, Watched)
    path = admission._path
    with process(HOLDER, path, str(BUDGET), str(15 * MB)) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "has it\n"
        values: list[Any] = []
        thread, done = in_background(lambda: values.append(dump(Deceptive(24 * MB), segments, "it")))
        deadline = time.monotonic() + 60
        while len(admission.asked) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(admission.asked) == 2 and not done.is_set()  # it has let go what it had, and waits
        assert admission.asked[1] >= 2 * FREE
        holder.kill()
        holder.wait()
        assert done.wait(60)
        thread.join()
    assert load(values[0], segments) == 24 * MB // 60
    assert everything_is_free(segments)
