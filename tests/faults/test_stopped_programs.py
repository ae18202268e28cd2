"""Programs that are stopped (Ctrl-Z) and go on: what they were sent meanwhile reaches their main thread."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.faults.programs import Program, run
from tests.patience import PATIENCE, eventually

#: the kernel chooses a thread each time: so often it does not choose the main one by chance
TIMES = 15

#: ways to be busy with nothing, each with all the threads of ours that there are beside it
WAITS = {
    "result": "future.result()",
    "wait_on": "wait_on(future)",
    "barrier": "barrier()",
    "as_completed": "next(penstock.as_completed([future]))",
    "wait": "penstock.wait([future])",
    "sleep": "time.sleep(3600)",
}

PROGRAM = """
import logging
@task
def first():
    logging.warning("which brings a thread of its own")

@task
def busy():
    arrive("busy")
    signal.pause()

signal.signal(signal.SIGUSR1, lambda *_: arrive("told"))
penstock.start(cpus=2, log=True, run_dir="run")
wait_on(first())
future = busy()
{wait}
"""


def rests(program: Program) -> bool:
    """Whether its main thread sleeps for good; a signal that comes right before that is forgotten by Python itself."""
    status = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/status")

    def switches() -> list[str]:
        return [line for line in status.read_text().splitlines() if "ctxt_switches" in line or line.startswith("State")]

    before = switches()
    time.sleep(0.05)
    return before == switches() and "State:\tS (sleeping)" in before


@pytest.mark.one_in(6)
@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_that_comes_while_it_is_stopped_is_handled_when_it_goes_on(tmp_path: Path, wait: str) -> None:
    with Program(tmp_path, PROGRAM.format(wait=WAITS[wait])) as program:
        assert program.arrival() == "busy"
        for _ in range(TIMES):
            eventually(lambda: rests(program))
            program.signal(signal.SIGSTOP)
            program.signal(signal.SIGUSR1)
            program.signal(signal.SIGCONT)
            assert program.arrival() == "told"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_ended_so(tmp_path: Path, number: int) -> None:
    with Program(tmp_path, PROGRAM.format(wait="wait_on(future)")) as program:
        assert program.arrival() == "busy"
        eventually(lambda: rests(program))
        for one in (signal.SIGSTOP, number, signal.SIGCONT):
            program.signal(one)
        program.process.wait(PATIENCE)
    assert program.process.returncode == -number


def test_what_callbacks_and_handlers_start_can_be_sent_signals_as_ever(tmp_path: Path) -> None:
    """Although they are called by threads of ours, which take none."""
    source = """
import logging, subprocess

started = []

def begin(*_):
    started.append(subprocess.Popen(["sleep", "3600"]))

class Handler(logging.Handler):
    emit = begin

@task
def tell(words):
    logging.getLogger("told").warning(words)

logging.getLogger("told").addHandler(Handler())
penstock.start(cpus=1)
future = tell("something")
future.add_done_callback(begin)
future.result()
penstock.stop()
assert len(started) == 2, started
for process in started:
    process.terminate()
    print(process.wait())
"""
    status, output, errors = run(tmp_path, source)
    assert status == 0, errors
    assert output.split() == [str(-signal.SIGTERM)] * 2
