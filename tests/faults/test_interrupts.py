"""Ctrl-C at any moment of a call: a program that catches it goes on, and nothing that was begun is left half-done."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.programs import Program, gone

#: every call is interrupted once, some time around it; a thread that helps sends the signal and says so
SOURCE = """
import random
penstock.start(cpus=2, mode={mode!r})

@task
def add(x):
    return x + 1

armed, fired = threading.Event(), threading.Event()

def pester():
    while True:
        armed.wait()
        armed.clear()
        until = time.perf_counter() + random.random() * 400e-6
        while time.perf_counter() < until:
            pass
        os.kill(os.getpid(), signal.SIGINT)
        fired.set()

threading.Thread(target=pester, daemon=True).start()
futures = []
for number in range(2000):
    future = None
    try:
        armed.set()
        future = add(number)
        fired.wait()
        while True:  # the signal was sent: this does not last, also if it came right before a sleep
            time.sleep(0.05)
    except KeyboardInterrupt:
        pass
    fired.wait()
    fired.clear()
    if future is not None:
        futures.append((number, future))
assert all(future.result(timeout=60) == number + 1 for number, future in futures)
barrier()
print("all there")
"""


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_calls_that_are_interrupted_are_made_or_not_made(tmp_path: Path, mode: str) -> None:
    with Program(tmp_path, SOURCE.format(mode=mode)) as program:
        status, output, errors = program.ends()
        assert (status, output.strip()) == (0, "all there"), errors
        gone([], program)


#: a call is interrupted at its Nth line of our code, for N = 1, 2, … until it has fewer
LINE_BY_LINE = """
penstock.start(cpus=1, mode={mode!r})
ours = os.path.dirname(penstock.__file__)

@task
def add(x):
    return x + 1

def interrupt_at(line):
    left = line

    def lines(frame, event, argument):
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return lines

    return lambda frame, event, argument: lines if frame.f_code.co_filename.startswith(ours) else None

assert add(0).result(timeout=60) == 1
for line in range(1, 100_000):
    future = None
    try:
        sys.settrace(interrupt_at(line))
        future = add(line)
        sys.settrace(None)
        break
    except KeyboardInterrupt:
        pass
    if future is not None:
        assert future.result(timeout=60) == line + 1
    assert add(line).result(timeout=60) == line + 1, line
    barrier()
assert line > 100, line
print("interrupted at every line")
"""


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_a_call_can_be_interrupted_at_every_line(tmp_path: Path, mode: str) -> None:
    with Program(tmp_path, LINE_BY_LINE.format(mode=mode)) as program:
        status, output, errors = program.ends()
        assert (status, output.strip()) == (0, "interrupted at every line"), errors
        gone([], program)


SIGNALS = """
before = {before}
signal.signal(signal.SIGINT, before)
seen = []

def work():
    with penstock.Runtime(cpus=1):
        seen.append(signal.getsignal(signal.SIGINT) is before)

{how}
print(*seen, signal.getsignal(signal.SIGINT) is before)
"""
IN_A_THREAD = "thread = threading.Thread(target=work); thread.start(); thread.join()"


@pytest.mark.parametrize(
    ("before", "how", "seen"),
    [
        ("signal.default_int_handler", "work(); work()", "False False True"),
        ("signal.default_int_handler", IN_A_THREAD, "True True"),
        ("signal.SIG_IGN", "work()", "True True"),
    ],
    ids=["taken over and given back", "in another thread", "the program's own"],
)
def test_who_deals_with_ctrl_c(tmp_path: Path, before: str, how: str, seen: str) -> None:
    with Program(tmp_path, SIGNALS.format(before=before, how=how)) as program:
        status, output, errors = program.ends()
        assert (status, output.strip()) == (0, seen), errors
