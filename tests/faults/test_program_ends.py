"""The main program ends, in every way it can: what it shows, how fast it is gone, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.programs import Gate, Program, TaskSide, alive, gone, run, surroundings
from tests.patience import eventually

import penstock
from penstock import task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

BUSY = """
@task
def busy(number):
    arrive(number)
    if number % 2:
        signal.pause()
    while True:
        pass

@task
def never():
    print("this must not run")

with_consumers = [busy(0), busy(1), busy(2), never()]
"""


#: what a program waits for at its end if all goes wrong: who runs into that is not taken for one who was only slow
ENDLESS_PATIENCE = "from penstock.executors import forkserver; forkserver.CLOSE_PATIENCE = 600"


def busy_program(folder: Path, ending: str, environ: Mapping[str, str] | None = None) -> Program:
    """A program whose two lanes are busy for ever and which then does something."""
    return Program(folder, f"{ENDLESS_PATIENCE}\npenstock.start(cpus=2)\n{BUSY}\n{ending}\n", environ)


WAITS = {
    "in result": "with_consumers[0].result()",
    "in wait_on": "wait_on(with_consumers)",
    "in barrier": "barrier()",
    "in a computation": "while True: pass",
    "in as_completed": "list(penstock.as_completed(with_consumers))",
    "at its end": "",
    "in stop": "penstock.stop()",
    "in a with block": "with penstock.Runtime(cpus=2):\n    busy(4).result()",
    "at the window": "with penstock.Runtime(cpus=2, window=3):\n    [busy(4) for _ in range(9)]",
}


# --- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("where", WAITS)
def test_ctrl_c_gives_the_prompt_back_at_once_and_leaves_nothing(tmp_path: Path, where: str) -> None:
    with busy_program(tmp_path, WAITS[where]) as program:
        awaited = "4" if "busy(4)" in WAITS[where] else "1"
        while program.arrival() != awaited:
            continue
        family = program.family()
        assert len(family) >= 3  # the fork server and two workers
        program.interrupt_group()
        status, output, errors = program.ends()
        assert status in (130, 1, -signal.SIGINT)
        assert "nterrupt" in errors
        assert "this must not run" not in output
        gone(family, program)


def test_ctrl_c_twice_does_no_harm(tmp_path: Path) -> None:
    with busy_program(tmp_path, "barrier()") as program:
        for _ in range(2):
            program.arrival()
        family = program.family()
        program.interrupt_group()
        program.interrupt_group()
        program.ends()
        gone(family, program)


def test_ctrl_c_that_the_program_catches_lets_it_go_on(tmp_path: Path) -> None:
    ending = """
try:
    barrier()
except KeyboardInterrupt:
    penstock.cancel(*with_consumers)

@task
def fine():
    return "fine"

print(fine().result())
"""
    with busy_program(tmp_path, ending) as program:
        for _ in range(2):
            program.arrival()
        program.interrupt_group()
        status, output, errors = program.ends()
        assert (status, output.strip()) == (0, "fine"), errors
        gone([], program)


@pytest.mark.parametrize("keep", ["always", "never", "failed"])
def test_run_directory_after_ctrl_c_is_kept_as_configured(tmp_path: Path, keep: str) -> None:
    run_dir = tmp_path / "the run"
    settings = {"PENSTOCK_RUN_DIR": str(run_dir), "PENSTOCK_KEEP_RUN_DIR": keep}
    with busy_program(tmp_path, "barrier()", settings) as program:
        for _ in range(2):
            program.arrival()
        assert run_dir.is_dir()
        program.interrupt_group()
        program.ends()
        gone([], program)
    if keep == "never":
        assert not run_dir.exists()
    else:
        assert [path.name for path in run_dir.iterdir()] == ["events.jsonl"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT])
def test_signal_that_ends_the_main_program_ends_everything(tmp_path: Path, number: signal.Signals) -> None:
    with busy_program(tmp_path, "barrier()") as program:
        for _ in range(2):
            program.arrival()
        family = program.family()
        program.signal(number)
        status, _, _ = program.ends()
        assert status == -number
        gone(family, program)


def test_kill_of_the_main_program_takes_grandchildren_along(tmp_path: Path) -> None:
    source = """
import subprocess

@task
def start():
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
    arrive("started")
    signal.pause()

start().result()
"""
    with Program(tmp_path, source) as program:
        program.arrival()
        family = program.family()
        # A process that has just become another program has no command line for a moment.
        eventually(lambda: any("sleep" in process.cmdline() for process in family))
        program.signal(signal.SIGKILL)
        program.ends()
        gone(family, program)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_file_being_written_when_the_program_ends_stays_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "result.txt").write_text("old")
    source = f"""
@task(path=FILE_OUT)
def write(path):
    with open(path, "w") as file:
        file.write("half")
        file.flush()
        arrive("half")
        signal.pause()

write({str(folder / "result.txt")!r})
barrier()
"""
    with Program(tmp_path, source) as program:
        program.arrival()
        family = program.family()
        program.signal(number)
        program.ends()
        gone(family, program)
    assert (folder / "result.txt").read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["result.txt"]


def test_main_program_that_crashes_leaves_nothing(tmp_path: Path) -> None:
    with busy_program(tmp_path, "import ctypes; ctypes.string_at(0)") as program:
        family = program.family()
        status, _, _ = program.ends()
        assert status == -signal.SIGSEGV
        gone(family, program)


def test_os_exit_of_the_main_program_leaves_nothing(tmp_path: Path) -> None:
    with busy_program(tmp_path, "arrive('last'); os._exit(5)") as program:
        while program.arrival() != "last":
            continue
        status, _, _ = program.ends()
        assert status == 5
        gone([], program)


# --- exceptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["", "with penstock.Runtime(cpus=2):\n    busy(8); "])
def test_main_program_that_raises_ends_at_once_with_its_traceback(tmp_path: Path, inside: str) -> None:
    with busy_program(tmp_path, f"{inside}raise LookupError('mine')") as program:
        status, output, errors = program.ends()
        assert status == 1
        assert "LookupError: mine" in errors
        assert errors.count("Traceback") == 1
        assert "this must not run" not in output
        gone([], program)


def test_main_program_that_raises_from_a_thread_still_ends_normally(tmp_path: Path) -> None:
    source = """
@task
def double(number):
    return 2 * number

def submit():
    future = double(21)
    print(future.result())
    raise LookupError("in a thread")

thread = threading.Thread(target=submit)
thread.start()
thread.join()
print(double(4).result())
"""
    status, output, errors = run(tmp_path, source)
    assert (status, output.split()) == (0, ["42", "8"])
    assert "LookupError" in errors


def test_sys_exit_of_the_main_program_waits_for_its_tasks_and_keeps_its_status(tmp_path: Path) -> None:
    source = """
@task(path=FILE_OUT)
def write(path):
    time.sleep(0.2)
    with open(path, "w") as file:
        file.write("done")

write("result.txt")
sys.exit(3)
"""
    status, _, errors = run(tmp_path, source)
    assert status == 3, errors
    assert (tmp_path / "result.txt").read_text() == "done"


def test_tasks_in_flight_at_a_normal_end_are_completed(tmp_path: Path) -> None:
    source = """
@task(path=FILE_OUT)
def write(path, number):
    time.sleep(0.05)
    print("wrote", number, flush=True)
    with open(path, "w") as file:
        file.write(str(number))

for number in range(10):
    write(f"{number}.txt", number)
"""
    status, output, errors = run(tmp_path, source)
    assert status == 0, errors
    assert sorted(output.split("\n")) == ["", *(f"wrote {number}" for number in range(10))]
    assert [(tmp_path / f"{number}.txt").read_text() for number in range(10)] == [str(n) for n in range(10)]


FAILS = """
@task
def fail(number):
    raise LookupError(f"nobody looks at {number}")

@task
def consume(value):
    return value
"""


def test_failure_that_nobody_looked_at_is_reported_at_the_end(tmp_path: Path) -> None:
    source = FAILS + "consume(fail(1))\nprint('the end of the program')"
    status, output, errors = run(tmp_path, source)
    assert status == 1
    assert "the end of the program" in output
    assert "LookupError: nobody looks at 1" in errors
    assert "fail#1" in errors
    assert "app.py" in errors
    assert "raise LookupError" in errors


def test_failure_that_somebody_looked_at_is_not_reported_again(tmp_path: Path) -> None:
    source = (
        FAILS
        + """
future = fail(1)
try:
    wait_on(future)
except LookupError:
    print("seen")
other = fail(2)
assert "2" in str(other.exception())
"""
    )
    assert run(tmp_path, source) == (0, "seen\n", "")


def test_many_failures_that_nobody_looked_at_are_reported_in_short(tmp_path: Path) -> None:
    status, _, errors = run(tmp_path, FAILS + "futures = [fail(number) for number in range(500)]")
    assert status == 1
    assert "499 more" in errors
    assert len(errors.splitlines()) < 100


def test_exit_handlers_of_the_program_run_when_a_failure_is_reported(tmp_path: Path) -> None:
    source = "import atexit\natexit.register(lambda: print('handler ran'))\n" + FAILS + "fail(1)"
    status, output, _ = run(tmp_path, source)
    assert status == 1
    assert "handler ran" in output


def test_command_line_ends_in_the_same_ways(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "run", "--no-progress", "app.py"]
    (tmp_path / "app.py").write_text("from penstock import task, wait_on\n" + FAILS + "future = fail(1)\n")
    done = subprocess.run(
        command, cwd=tmp_path, env=surroundings(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "LookupError: nobody looks at 1" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_command_line_is_ended_by_signals_without_leftovers(tmp_path: Path, number: signal.Signals) -> None:
    wrapper = "import sys; sys.argv[0] = 'penstock'; from penstock.cli import main; sys.exit(main())"
    arguments = ("-c", wrapper, "run", "--no-progress", "--cpus", "2")
    with Program(tmp_path, BUSY + "barrier()", interpreter=arguments) as program:
        for _ in range(2):
            program.arrival()
        family = program.family()
        program.signal(number)
        status, _, errors = program.ends()
        ordered = {signal.SIGINT: 130, signal.SIGTERM: 143}
        assert status == ordered.get(number, -number), errors
        gone(family, program)


# --- ends seen from inside ----------------------------------------------------------------------------------------


def test_ctrl_c_in_inline_mode_ends_the_program_and_not_only_the_task(tmp_path: Path) -> None:
    source = """
@task
def busy(number):
    arrive(number)
    while True:  # a signal that came right before a pause would not end it
        time.sleep(0.05)

futures = [busy(number) for number in range(100)]
"""
    with Program(tmp_path, source, {"PENSTOCK_MODE": "inline"}) as program:
        assert program.arrival() == "0"
        program.interrupt_group()
        status, _, errors = program.ends()
        assert status in (130, 1, -signal.SIGINT)
        assert "KeyboardInterrupt" in errors
        gone([], program)


def test_kill_of_a_program_in_inline_mode_leaves_nothing(tmp_path: Path) -> None:
    source = """
import numpy as np

@task
def make():
    return np.ones(100_000)

array = make()
arrive("made")
signal.pause()
"""
    with Program(tmp_path, source, {"PENSTOCK_MODE": "inline"}) as program:
        program.arrival()
        program.signal(signal.SIGKILL)
        program.ends()
        gone([], program)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("wait", ["result", "as_completed", "wait_on", "barrier", "map"])
def test_thread_that_waits_is_told_when_another_one_stops_the_run(runtime: Runtime, gate: Gate, wait: str) -> None:
    @task
    def hold(gate: TaskSide) -> None:
        gate.hold()

    heard: list[BaseException] = []
    future = hold(gate)
    mapped = hold.map([gate] * 4) if wait == "map" else None
    gate.wait_reached()
    waits: dict[str, Callable[[], object]] = {
        "result": future.result,
        "as_completed": lambda: [done.result() for done in penstock.as_completed([future])],
        "wait_on": lambda: wait_on([future]),
        "barrier": penstock.barrier,
        "map": lambda: mapped.results() if mapped is not None else None,
    }

    def waiter() -> None:
        try:
            waits[wait]()
        except BaseException as error:
            heard.append(error)

    thread = threading.Thread(target=waiter, daemon=True)
    thread.start()
    thread.join(0.1)  # it waits: nothing tells when it has begun to
    penstock.stop(abort=True)
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(heard[0], penstock.PenstockError)
    assert "stopped" in str(heard[0])


FLOOD = """
@task
def flood():
    arrive("printing")
    for number in range(100_000):
        print("a line of output, number", number)

futures = [flood(), flood()]
"""


def test_output_that_nobody_reads_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    with Program(tmp_path, FLOOD + "barrier()") as program:
        program.arrival()
        family = program.family()
        program.process.send_signal(signal.SIGINT)
        program.process.wait(60)  # its output is not read, as when a pager waits
        gone(family, program)


def test_output_into_a_closed_pipe_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    with Program(tmp_path, FLOOD + "wait_on(futures)\narrive('done')") as program:
        assert program.process.stdout is not None
        program.process.stdout.readline()
        program.process.stdout.close()  # as `head` does
        while program.arrival() != "done":
            continue
        program.process.wait(60)
        gone([], program)


# --- a fork of the program ----------------------------------------------------------------------------------------


@task
def double(number: int) -> int:
    return 2 * number


def in_a_fork(work: str) -> int:
    """Fork this process, as user code may, and give the exit status of the child."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = _child(work)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _child(work: str) -> int:
    if work == "stop":
        penstock.stop()
        penstock.stop(abort=True)
    elif work == "barrier":
        penstock.barrier()
    elif work == "runtime of its own":
        with penstock.Runtime(cpus=1):
            return 0 if double(4).result() == 8 else 1
    return 0


@pytest.mark.parametrize("work", ["nothing", "stop", "barrier", "runtime of its own"])
def test_fork_of_the_main_program_does_not_disturb_its_tasks(runtime: Runtime, work: str) -> None:
    futures = [double(number) for number in range(50)]
    assert in_a_fork(work) == 0
    assert wait_on(futures) == [2 * number for number in range(50)]
    assert double(4).result() == 8


def test_fork_that_exits_normally_does_not_wait_for_or_end_the_parents_tasks(tmp_path: Path) -> None:
    source = """
@task
def slow():
    while not os.path.exists("may go on"):
        time.sleep(0.01)
    return "value"

future = slow()
pid = os.fork()
if pid == 0:
    sys.exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), future.done())
open("may go on", "w").close()
print(future.result())
"""
    status, output, errors = run(tmp_path, source)
    assert (status, output.split()) == (0, ["4", "False", "value"]), errors


def test_fork_that_outlives_the_main_program_keeps_no_worker_alive(tmp_path: Path) -> None:
    source = """
penstock.start(cpus=2)
@task
def double(number):
    return 2 * number

double(2).result()
pid = os.fork()
if pid == 0:
    arrive(os.getpid())
    signal.pause()
"""
    with Program(tmp_path, source) as program:
        fork = int(program.arrival())
        family = (
            [process for process in program.family() if process.pid != fork] if program.process.poll() is None else []
        )
        try:
            program.process.wait(60)
            gone(family, program)
        finally:
            os.kill(fork, signal.SIGKILL)
        assert not [process for process in family if alive(process)]
