"""Tasks that are called while a module is being imported: by the program, and again by each worker that needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODES = pytest.mark.parametrize(
    "environ", [{"PENSTOCK_CPUS": "2"}, {"PENSTOCK_MODE": "inline"}], ids=["workers", "inline"]
)

WORK = """
from penstock import task, wait_on

@task(returns=1)
def double(x):
    return 2 * x

VALUE = wait_on(double(21))
"""


@pytest.fixture
def module(tmp_path: Path) -> Any:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


@MODES
def test_a_module_that_waits_for_a_task_of_its_own(script: Any, module: Any, environ: dict[str, str]) -> None:
    module("work.py", WORK)
    done = script(
        "import work\nprint(work.VALUE, work.double(4).result(), work.double.map([1, 2]).results())", **environ
    )
    assert done.stdout == "42 8 [2, 4]\n"
    assert done.stderr == ""


@MODES
def test_a_package_that_waits_for_a_task_of_its_module(script: Any, module: Any, environ: dict[str, str]) -> None:
    module("pack/work.py", "from penstock import task\n@task(returns=1)\ndef double(x):\n    return 2 * x\n")
    module("pack/__init__.py", "from pack.work import double\nVALUE = double(21).result()\n")
    assert script("import pack\nprint(pack.VALUE, pack.double(1).result())", **environ).stdout == "42 2\n"


@MODES
def test_modules_that_import_each_other(script: Any, module: Any, environ: dict[str, str]) -> None:
    module("first.py", "import second\nVALUE = second.double(21).result()\n")
    module(
        "second.py",
        "import first\nfrom penstock import task\n@task(returns=1)\ndef double(x):\n    return 2 * x\n",
    )
    done = script("import first, second\nprint(first.VALUE, second.double(1).result())", **environ)
    assert done.stdout == "42 2\n"


@MODES
def test_a_module_that_starts_a_runtime_and_executors(script: Any, module: Any, environ: dict[str, str]) -> None:
    module(
        "work.py",
        """
import penstock

penstock.start()
pool = penstock.Executor(max_workers=2)

def square(x):
    return x * x

@penstock.task(returns=1)
def double(x):
    return 2 * x

SQUARES = list(pool.map(square, range(4)))
DOUBLES = double.map(range(3)).results()
with penstock.Runtime(cpus=1):
    INNER = double(3).result()
""",
    )
    program = "import work\nprint(work.SQUARES, work.DOUBLES, work.INNER, work.double(5).result())"
    assert script(program, **environ).stdout == "[0, 1, 4, 9] [0, 2, 4] 6 10\n"


@MODES
def test_a_failure_nobody_looks_at_while_a_module_is_imported(
    script: Any, module: Any, environ: dict[str, str]
) -> None:
    # The program would end with it, so the worker that imports the module must not blame the next task either.
    module(
        "work.py",
        "from penstock import task\n@task(returns=1)\ndef fail(x):\n    raise LookupError(x)\nfail('lost')\n",
    )
    done = script("import work", status=1, **environ)
    assert "LookupError: lost" in done.stderr


@MODES
def test_a_package_run_as_a_program(script: Any, module: Any, environ: dict[str, str]) -> None:
    module("pack/__init__.py", WORK)
    module("pack/__main__.py", "from pack import VALUE, double\nprint(VALUE, double(1).result())\n")
    done = subprocess.run(
        [sys.executable, "-m", "pack"],
        cwd=script.folder,
        env=script.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("42 2\n", "", 0)


@pytest.mark.one_in(6)
@MODES
@pytest.mark.parametrize("import_mode", ["prepend", "importlib"])
def test_a_test_module_that_waits_when_it_is_collected(
    script: Any, module: Any, environ: dict[str, str], import_mode: str
) -> None:
    module("test_work.py", WORK + "\ndef test_value():\n    assert (VALUE, double(1).result()) == (42, 2)\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--import-mode={import_mode}"],
        cwd=script.folder,
        env=script.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.one_in(2)
@MODES
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_children_of_the_program_have_runtimes_of_their_own(script: Any, environ: dict[str, str], method: str) -> None:
    done = script(
        f"""
import multiprocessing
from penstock import task

@task(returns=1)
def double(x):
    return 2 * x

VALUE = double(21).result()

def child(path):
    with open(path, "w") as file:
        file.write(f"{{VALUE}} {{double(3).result()}}")

if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=child, args=("told",))
    process.start()
    process.join()
    print(open("told").read(), process.exitcode, double(1).result())
""",
        **environ,
    )
    assert done.stdout == "42 6 0 2\n"
    assert done.stderr == ""


@MODES
def test_a_child_of_the_program_finishes_what_it_has_called(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
import multiprocessing
import os
from penstock import task

@task(returns=0)
def note(path):
    with open(path, "w") as file:
        file.write("done")

def child():
    note(os.path.abspath("told"))

note(os.path.abspath("first")).result()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print(open("told").read(), process.exitcode)
""",
        **environ,
    )
    assert (done.stdout, done.stderr) == ("done 0\n", "")


def test_a_thread_of_a_task_calls_tasks_on_the_spot(script: Any) -> None:
    done = script(
        """
import os
import threading
from penstock import task

@task(returns=1)
def where():
    return os.getpid()

@task(returns=1)
def outer():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(where().result()))
    thread.start()
    thread.join()
    return seen == [os.getpid()]

print(outer().result())
""",
        PENSTOCK_CPUS="2",
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


@MODES
def test_a_module_imported_by_two_threads_at_once(script: Any, module: Any, environ: dict[str, str]) -> None:
    module("work.py", WORK)
    done = script(
        """
import threading

values = []

def load():
    import work
    values.append(work.VALUE)

threads = [threading.Thread(target=load) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(values)
""",
        **environ,
    )
    assert (done.stdout, done.stderr) == ("[42, 42]\n", "")
