"""Work that a ``penstock.Executor`` has accepted is done, however the executor or the program ends."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import pytest

#: notes in a file that it was called, after what comes next in the program
PROGRAM = """
import os, sys, time
import penstock

def note(word):
    with open("told", "a") as file:
        file.write(word + " ")

executor = penstock.Executor({arguments})
first = executor.submit(note, "first")
futures = [executor.submit(note, "later") for _ in range(20)]
{ending}
"""


@pytest.mark.one_in(5)
@pytest.mark.parametrize("arguments", ["2", ""], ids=["own", "current"])
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", 0),
        ("executor.shutdown(wait=False)", 0),
        ("del executor", 0),
        ("del executor, first, futures", 0),
        ("raise LookupError('lost')", 1),
        ("sys.exit(3)", 3),
    ],
    ids=["end", "shutdown", "dropped", "forgotten", "raised", "exit"],
)
def test_it_is_done(script: Any, arguments: str, ending: str, status: int) -> None:
    done = script(PROGRAM.format(arguments=arguments, ending=ending), status=status, PENSTOCK_CPUS="2")
    assert sorted((script.folder / "told").read_text().split()) == ["first", *["later"] * 20]
    assert "RuntimeStopped" not in done.stderr


def test_the_processes_end_when_it_is_done(script: Any) -> None:
    done = script(
        """
import gc, os, time
import penstock, psutil

def there():
    return [one for one in psutil.Process().children(recursive=True) if one.is_running()]

for end in (lambda one: one.shutdown(wait=False), lambda one: None):
    executor = penstock.Executor(2)
    future = executor.submit(os.getpid)
    end(executor)
    future.result()
    del executor
    gc.collect()
    deadline = time.monotonic() + 60
    while there() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(len(there()))
"""
    )
    assert done.stdout == "0\n0\n"


def test_nothing_is_accepted_at_the_end_of_the_program(script: Any) -> None:
    done = script(
        """
import atexit
import penstock

@atexit.register
def last():
    try:
        executor.submit(id, None)
    except RuntimeError as error:
        print(error)

executor = penstock.Executor(1)
executor.submit(id, 42).result()
"""
    )
    assert done.stdout.startswith("cannot schedule new futures")
    assert done.stderr == ""


def test_a_child_of_the_program_is_told_that_it_needs_its_own(script: Any) -> None:
    done = script(
        """
import os
import penstock

executor = penstock.Executor(1)
executor.submit(id, 42).result()
if os.fork() == 0:
    try:
        executor.submit(id, 42)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    )
    assert "make another one in its child" in done.stdout


def test_an_executor_inside_a_task_leaves_nothing(script: Any) -> None:
    done = script(
        """
import os
import penstock

def square(x):
    return x * x

@penstock.task(returns=1)
def kept():
    global executor
    executor = penstock.Executor(2)
    return list(executor.map(square, range(4))), os.getpid()

@penstock.task(returns=1)
def closed():
    with penstock.Executor(2) as executor:
        return sorted(set(executor.map(lambda _: os.getpid(), range(4)))), os.getpid()

values, first = kept().result()
processes, second = closed().result()
print(values, second in processes, first, second)
""",
        PENSTOCK_CPUS="1",
    )
    values, inside, first, second = done.stdout.rsplit(" ", 3)
    assert (values, inside) == ("[0, 1, 4, 9]", "False")
    left = [name for folder in ("/dev/shm", tempfile.gettempdir()) for name in os.listdir(folder)]
    assert not [name for name in left if {first, second.strip()} & set(name.split("-"))]
