"""What tasks write, ask and debug: it appears in whole lines, whatever wrote it, and what cannot work says so."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

WORKERS = {"PENSTOCK_CPUS": "1"}

PRINTS = """
import os, sys, subprocess, ctypes, contextlib
from penstock import task, barrier, program
from penstock.executors import output
output.PARTIAL_LINE_SECONDS = 60  # a stall between a line and its end does not show it without that

@task
def unfinished(text):
    print(text, end="")

@task
def raw():
    sys.stdout.buffer.write(b"bytes \\xff")

@task
def child():
    subprocess.run(["echo", "of a child"])
    ctypes.CDLL(None).printf(b"of C\\n")

@task
def bar():
    for i in range(3):
        print(f"\\r{i + 1}/3", end="")

@task
def replace():
    sys.stdout = open(os.devnull, "w")
    print("nobody sees this")

@task
def long():
    sys.stdout.write("x" * 3_000_000)

@program("printf unfinished-program")
def say(): ...

@program("printf unfinished-error >&2")
def complain(): ...

for i in range(3):
    unfinished(f"part {i}")
for one in (raw, child, bar, replace, say, complain, long):
    one().result()
    barrier()
unfinished("the last").result()
print("the program goes on")
"""


def test_unfinished_lines_are_neither_lost_nor_glued_to_others(script: Any) -> None:
    done = script(PRINTS, **WORKERS)
    lines = done.stdout.split("\n")
    expected = ["part 0", "part 1", "part 2", "bytes \ufffd", "of a child", "of C"]
    expected += ["", "1/3", "2/3", "3/3", "unfinished-program"]  # the reader takes a carriage return for an end of line
    assert lines[: len(expected)] == expected
    assert lines.count("the last") == 1 and lines.count("the program goes on") == 1, [one[:80] for one in lines]
    assert "x" * 3_000_000 in lines
    assert done.stderr == "unfinished-error\n"


PAST_THE_STREAMS = """
import os, subprocess
from penstock import task, barrier
from penstock.executors import output
output.PARTIAL_LINE_SECONDS = 60  # a stall between a line and its end does not show it without that

@task
def write():
    os.write(1, b"of os.write")

@task
def run():
    subprocess.run(["printf", "of a child"])

@task
def shell():
    os.system("printf 'of a shell'; printf 'its error' >&2")

@task
def fork():
    if (child := os.fork()) == 0:
        os.write(1, b"of a fork")
        os._exit(0)
    os.waitpid(child, 0)

@task
def whole():
    subprocess.run(["echo", "a whole line"])

@task
def redirect(path):
    here = os.dup(1)
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 1)
    os.system("printf 'into a file'")
    return here

@task
def back(here):
    os.dup2(here, 1)

for one in (write, run, shell, fork, whole, write):
    one()
back(redirect("file.txt")).result()
run()
print(open("file.txt").read() + "\\n", end="")  # in one piece: what a task prints may come in between
"""


def test_unfinished_lines_of_others_are_not_glued_to_those_of_other_tasks(script: Any) -> None:
    done = script(PAST_THE_STREAMS, **WORKERS)
    lines = ["of os.write", "of a child", "of a shell", "of a fork", "a whole line", "of os.write"]
    shown = done.stdout.splitlines()
    assert sorted(shown) == sorted([*lines, "into a file", "of a child"])
    assert [line for line in shown if line != "into a file"] == [*lines, "of a child"]
    assert done.stderr == "its error\n"


ASKING = """
from penstock import task

@task
def stop_here():
    breakpoint()

@task
def set_trace():
    import pdb
    pdb.set_trace()

@task
def ask():
    return input("name? ")

for one in (stop_here, set_trace, ask):
    # In one piece: what tasks print may come between the pieces of a print.
    print("ERROR " + str(one().exception().__cause__ or one().exception()) + "\\n", end="")
"""


def test_a_debugger_and_a_question_in_a_worker_say_what_to_do(script: Any) -> None:
    done = script(
        ASKING.replace("one().exception().__cause__ or one().exception()", "failure(one)").replace(
            "from penstock import task\n",
            "from penstock import task, TaskFailed\n\n"
            "def failure(one):\n    try:\n        one().result()\n    except Exception as error:\n"
            "        notes = [note for e in (error, error.__cause__) if e for note in getattr(e, '__notes__', ())]\n"
            "        return ' '.join([str(error), str(error.__cause__), *notes]).replace('\\n', ' ')\n",
        ),
        **WORKERS,
    )
    first, second, third = [line for line in done.stdout.splitlines() if "ERROR" in line]
    assert "PENSTOCK_MODE=inline" in first and "breakpoint() in a task" in first
    assert "PENSTOCK_MODE=inline" in second and "no terminal" in second
    assert "A task has no standard input" in third


def test_a_recursion_without_end_is_told_in_short(script: Any) -> None:
    text = """
from penstock import task

def other(n):
    try:
        return one(n + 1)
    except RecursionError as error:
        raise ValueError(n) from error

def one(n):
    return other(n + 1)

@task
def endless():
    return one(0)

endless().result()
"""
    done = script(text, status=1, **WORKERS)
    assert len(done.stderr) < 100_000
    assert "RecursionError" in done.stderr and "calls left out" in done.stderr
    assert "in endless" in done.stderr


LOGS = """
import logging, sys, os
from penstock import task, barrier

@task
def log(i):
    logging.getLogger("app.part").info("info %d", i)
    logging.getLogger("app.part").debug("debug %d", i)
    logging.getLogger().warning("warning %d", i)
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger().exception("wrong %d", i, extra={"odd": lambda: 0})

@task
def own():
    logger = logging.getLogger("own")
    logger.addHandler(logging.StreamHandler(sys.stdout))
    logger.warning("from the worker")

@task
def child():
    if os.fork() == 0:
        logging.warning("of a child")
        os._exit(0)
    os.wait()

log(0).result()
barrier()
print("---", file=sys.stderr, flush=True)
logging.basicConfig(level=logging.INFO, format="MY %(name)s %(message)s")
log(1).result()
barrier()
print("---", file=sys.stderr, flush=True)
logging.getLogger("app").setLevel(logging.DEBUG)
logging.getLogger().setLevel(logging.CRITICAL)
log(2).result()
barrier()
if sys.argv[1:]:
    logging.getLogger().setLevel(logging.INFO)
    own().result()
    child().result()
barrier()
"""


@pytest.mark.parametrize("environ", [WORKERS, {"PENSTOCK_MODE": "inline"}], ids=["workers", "inline"])
def test_records_of_tasks_go_where_the_program_says(script: Any, environ: dict[str, str]) -> None:
    before, usual, changed = script(LOGS, **environ).stderr.split("---\n")
    assert before.splitlines()[0].endswith("warning 0")
    assert "info 0" not in before
    lines = usual.splitlines()
    assert lines[:3] == ["MY app.part info 1", "MY root warning 1", "MY root wrong 1"]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert changed.splitlines() == ["MY app.part info 2", "MY app.part debug 2"]


def test_handlers_of_a_worker_write_once_and_a_child_of_a_task_logs_too(script: Any) -> None:
    done = script(LOGS, "more", **WORKERS)
    assert done.stdout == "from the worker\n"
    # The one is a record, the other output: they take different ways, and nobody has waited at a barrier in between.
    assert sorted(done.stderr.splitlines()[-2:]) == ["MY own from the worker", "of a child"]


def test_workers_that_are_retired_say_nothing(script: Any) -> None:
    text = """
import os, signal, time
from penstock import Runtime, io, task

@io
@task
def write(folder, i):
    open(f"{folder}/{i}", "w").close()
    return os.getpid()

import penstock.executors.node as node
node._IDLE = 0.01
import tempfile
folder = tempfile.mkdtemp()
with Runtime(cpus=1, io_executors=4):
    for round in range(5):
        for future in [write(folder, i) for i in range(8)]:
            future.result()
        time.sleep(0.1)
"""
    assert script(text).stderr == ""


def test_a_question_of_the_program_is_seen_under_the_live_view(tmp_path: Path, script: Any) -> None:
    app = tmp_path / "ask.py"
    app.write_text(
        "import time\nfrom penstock import task\n@task\ndef nap():\n    time.sleep(1.5)\n"
        "waiting = [nap() for _ in range(2)]\ntime.sleep(1)\nanswer = input('your name? ')\n"
        "[one.result() for one in waiting]\nprint('hello', answer)\n"
    )
    shown = _with_terminal(
        [sys.executable, "-m", "penstock.cli", "run", str(app)], script.environ, b"your name? ", b"Ada\n"
    )
    question = shown.index(b"your name? ")
    answer = shown.index(b"Ada", question)
    assert b"nap" not in shown[question:answer]  # no table was drawn over it
    assert b"hello Ada" in shown


def _with_terminal(command: list[str], environ: dict[str, str], question: bytes, answer: bytes) -> bytes:
    """Run a command on a terminal of its own, and answer some time after its question has come."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ | {"TERM": "xterm"}, start_new_session=True
    )
    os.close(theirs)
    shown, asked, answered = b"", 0.0, False
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:
                break  # the other end is closed
            shown += data
            if not data:
                break
        if question in shown and not asked:
            asked = time.monotonic()
        if asked and not answered and time.monotonic() > asked + 1:  # drawn four times a second, if it were
            os.write(ours, answer)
            answered = True
    os.close(ours)
    assert process.wait(60) == 0, shown
    return shown
