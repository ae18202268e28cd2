"""Programs as users start them: ``python app.py`` with no guard, a notebook, settings from the environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

MODES = pytest.mark.parametrize(
    "environ", [{"PENSTOCK_CPUS": "2"}, {"PENSTOCK_MODE": "inline"}], ids=["workers", "inline"]
)


@MODES
def test_functions_classes_and_constants_of_the_script_itself(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from dataclasses import dataclass
from enum import Enum
from penstock import task, wait_on, INOUT

FACTOR = 3

class Colour(Enum):
    RED = 1

@dataclass
class Point:
    x: int
    colour: Colour = Colour.RED

class Sub(Point):
    pass

class Mistake(Exception):
    pass

def helper(x):
    return x * FACTOR

@task(returns=1)
def move(point, by):
    assert isinstance(point, Point) and point.colour is Colour.RED
    return type(point)(helper(point.x) + by)

@task(point=INOUT)
def shift(point):
    point.x += 1

@task(returns=1)
def fail():
    raise Mistake("mine")

@task(returns=1)
def recurse(n):
    return 1 if n == 0 else n * recurse(n - 1).result()

point = Sub(2)
shift(point)
moved = move(point, 10)
again = move(moved, 0)
value = wait_on(again)
assert type(value) is Sub and isinstance(value, Point) and value.colour is Colour.RED, value
assert wait_on(point) is point
print(point.x, wait_on(moved).x, value.x, recurse(5).result())
double = task(lambda x: 2 * x)
print([future.result() for future in double.map(range(4))])
try:
    fail().result()
except Mistake as error:
    print("caught", error)
""",
        **environ,
    )
    assert done.stdout == "3 19 57 120\n[0, 2, 4, 6]\ncaught mine\n"
    assert done.stderr == ""


@MODES
def test_a_function_sees_what_the_script_has_defined_at_the_call(script: Any, environ: dict[str, str]) -> None:
    """Names are looked up when the task runs, so a helper may be defined after the task that uses it."""
    done = script(
        """
from penstock import task

@task(returns=1)
def outer(x):
    return later(x) + 1

def later(x):
    return 10 * x

print(outer(2).result())
""",
        **environ,
    )
    assert done.stdout == "21\n"


@MODES
def test_a_global_that_is_bound_after_the_first_call(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import task, wait_on

@task
def outer(x):
    return later(x) + 1

@task
def size(items):
    return len(items)

@task
def level():
    class Reader:
        level = LEVEL if "LEVEL" in globals() else None
    return Reader.level

print(type(outer(2).exception()).__name__)
sizes, levels = [size("ab")], [level()]

def later(x):
    return 10 * x

def len(items):
    return -1

LEVEL = 3
print(outer(2).result())
sizes.append(size("ab"))
levels.append(level())
del len, LEVEL
sizes.append(size("ab"))
levels.append(level())
print(wait_on(sizes, levels))
""",
        **environ,
    )
    assert done.stdout == "NameError\n21\n[[2, -1, 2], [None, 3, None]]\n"


@MODES
def test_a_global_changed_between_calls(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import task

FACTOR = 2

def helper(x):
    return FACTOR * x

@task(returns=1)
def scaled(x):
    return helper(x) + len(TABLE)

TABLE = [0]
print(scaled(1).result())
FACTOR = 10
print(scaled(1).result())
TABLE = [0, 0]
print(scaled(1).result())
def helper(x):
    return -x
print(scaled(1).result(), scaled.map([1, 2]).results())
""",
        **environ,
    )
    assert done.stdout == "3\n11\n12\n1 [1, 0]\n"


@MODES
def test_a_class_changed_while_tasks_update_its_instances(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import task, wait_on

class Rates:
    table = {"a": 1}

class Model:
    rate = 1

    def __init__(self):
        self.seen = []

    @task
    def step(self):
        self.seen.append((self.rate, Model.rate, Rates.table["a"]))

@task
def look(model):
    return Rates.table["a"]

@task
def level(cls):
    return cls.level

def of_a_local_class():
    class Plain:
        level = 0

    seen = [level(Plain)]
    Plain.level = 1
    return wait_on([*seen, level(Plain)])

model, looked = Model(), []
for number in range(3):
    Model.rate = Rates.table["a"] = number
    model.step()
    looked.append(look(model))  # which was made by a worker that knew the classes as they were
print(wait_on(looked), wait_on(model).seen, of_a_local_class())
""",
        **environ,
    )
    assert done.stdout == "[0, 1, 2] [(0, 0, 0), (1, 1, 1), (2, 2, 2)] [0, 1]\n"


@MODES
def test_a_global_changed_in_place_between_calls(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import task

TABLE, SIZES, WIDE = {"a": 1}, [1], list(range(10000))

class Settings:
    level = 1
    names = []

def outer():
    kept = []

    @task
    def inner():
        return len(kept)

    first = inner().result()
    kept.append(1)
    return first, inner().result()

@task
def look():
    return TABLE["a"], len(SIZES), len(WIDE), Settings.level, len(Settings.names)

print(look().result())
TABLE["a"] = 2
print(look().result())
SIZES.append(2)
WIDE.append(2)
print(look().result())
Settings.level = 5
Settings.names.append("x")
print(look().result(), look.map([()] * 0).results())
print(outer())
""",
        **environ,
    )
    assert done.stdout.splitlines() == [
        "(1, 1, 10000, 1, 0)",
        "(2, 1, 10000, 1, 0)",
        "(2, 2, 10001, 1, 0)",
        "(2, 2, 10001, 5, 1) []",
        "(0, 1)",
    ]


@MODES
def test_what_a_task_changes_in_a_global_is_not_seen_by_the_program_and_strict_says_so(
    script: Any, environ: dict[str, str], tmp_path: Path
) -> None:
    text = """
from penstock import task, ArgumentChanged

count, seen = 0, []

class Totals:
    value = 0

@task
def rebind():
    global count
    count += 1

@task
def extend():
    seen.append(1)

@task
def add():
    Totals.value += 1

@task
def innocent():
    return count, len(seen), Totals.value

for one in (rebind, extend, add, innocent):
    error = one().exception()
    print(None if error is None else str(error).splitlines()[0].partition("attempt 1: ")[2].partition(",")[0])
print(count, seen)
"""
    assert script(text, **environ).stdout == "None\n" * 4 + "0 []\n"
    assert script(text, PENSTOCK_STRICT="1", **environ).stdout.splitlines() == [
        "task rebind changed the global 'count'",
        "task extend changed the global 'seen'",
        "task add changed the class 'Totals'",
        "None",
        "0 []",
    ]


@MODES
def test_strict_reports_what_the_program_changes_and_no_task_would_see(
    script: Any, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "levels.py").write_text("from penstock import task\nLEVEL = 1\n@task\ndef level(): return LEVEL\n")
    text = """
import levels
from penstock import task, ArgumentChanged

WIDE = list(range(10000))

@task
def first():
    return WIDE[0]

print(first().result(), levels.level().result())
WIDE[0] = levels.LEVEL = 7
for one in (first, levels.level):
    try:
        one()
    except ArgumentChanged as error:
        print(str(error).partition(",")[0])
"""
    assert script(text, PENSTOCK_STRICT="1", **environ).stdout.splitlines() == [
        "0 1",
        "the program changed 'WIDE' (list)",
        "the program changed 'LEVEL' of module levels",
    ]


EARLY_NAMES = """
from os import chdir, umask
from penstock import task, Runtime
import os

@task
def where():
    return os.getcwd(), os.umask(0)

@task
def wander():
    chdir("/usr")

with Runtime():
    chdir("/")
    umask(0o077)
    print(where().result())
    wander().result()
    print(where().result(), os.getcwd())
"""


@MODES
def test_functions_that_the_program_imported_by_name_before(script: Any, environ: dict[str, str]) -> None:
    done = script(EARLY_NAMES, **environ)
    assert done.stdout == "('/', 63)\n('/', 63) /\n"


@MODES
def test_a_module_next_to_the_script_can_be_imported_by_tasks(
    script: Any, tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "mylib.py").write_text(
        "from penstock import task\n"
        "class Thing:\n    def __init__(self, v): self.v = v\n"
        "@task(returns=1)\ndef make(v): return Thing(v)\n"
    )
    done = script(
        """
from mylib import Thing, make
value = make(5).result()
assert isinstance(value, Thing)
print(value.v, make(Thing(make(1))).result().v.v.v)
""",
        **environ,
    )
    assert done.stdout == "5 1\n"


def test_the_script_runs_once(script: Any) -> None:
    """Workers do not import the script again: no guard is needed."""
    done = script(
        """
import os
from penstock import task
print("the script runs")
@task(returns=1)
def where():
    return os.getpid()
assert where().result() != os.getpid()
""",
        PENSTOCK_CPUS="2",
    )
    assert done.stdout == "the script runs\n"


@MODES
def test_a_program_that_ends_waits_for_its_tasks(script: Any, tmp_path: Path, environ: dict[str, str]) -> None:
    script(
        """
import time
from penstock import task, FILE_OUT
@task(path=FILE_OUT)
def slow(path):
    time.sleep(0.2)
    with open(path, "w") as file:
        file.write("done")
for i in range(4):
    slow(f"{i}.txt")
""",
        **environ,
    )
    assert [(tmp_path / f"{i}.txt").read_text() for i in range(4)] == ["done"] * 4


FROM_AN_EXIT_HANDLER = """
import atexit, sys, threading
from pathlib import Path

def last():
    from penstock import FILE_OUT, task

    @task(path=FILE_OUT)
    def write(path):
        Path(path).write_text("written")

    write("out.txt")

if sys.argv[1] == "before":
    atexit.register(last)
if sys.argv[1] != "without":
    import penstock.runtime.session
if sys.argv[1] != "before":
    atexit.register(last)
"""


@pytest.mark.one_in(2)
@MODES
@pytest.mark.parametrize("imported", ["after", "before", "without"])
def test_the_first_call_in_an_exit_handler_is_done_or_told_of(
    script: Any, environ: dict[str, str], imported: str
) -> None:
    done = script(FROM_AN_EXIT_HANDLER, imported, **environ)
    written = (script.folder / "out.txt").exists()
    assert written != ("Error" in done.stderr or "RuntimeStopped" in done.stderr)
    if imported != "after":
        assert "the program is at its end" in done.stderr


@MODES
def test_a_failure_nobody_looked_at_is_told_at_the_end(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import task
@task
def fail(x):
    raise ValueError("nobody looked")
fail(1)
print("end of program")
""",
        status=1,
        **environ,
    )
    assert "end of program" in done.stdout
    assert "nobody looked" in done.stderr and "fail" in done.stderr


@MODES
def test_what_tasks_print_is_shown(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
import sys
from penstock import task, barrier
@task
def speak(word):
    print(word)
    print(word.upper(), file=sys.stderr)
speak("hello")
barrier()
""",
        **environ,
    )
    assert "hello" in done.stdout
    assert "HELLO" in done.stderr


@MODES
def test_arguments_and_exit_status_of_the_script(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
import sys
from penstock import task
@task(returns=1)
def f(x): return x
print(f(sys.argv[1:]).result())
sys.exit(3)
""",
        "a",
        "b",
        status=3,
        **environ,
    )
    assert done.stdout == "['a', 'b']\n"


@MODES
def test_an_exception_of_the_program_is_shown_as_ever(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import task
@task(returns=1)
def f(x): return x
f(1).result()
raise RuntimeError("of the program itself")
""",
        status=1,
        **environ,
    )
    assert done.stderr.rstrip().endswith("RuntimeError: of the program itself")


# --- settings of the environment ----------------------------------------------------------------------------------

INLINE = """
import os
from penstock import task

@task(returns=1)
def where():
    return os.getpid()

print(where().result() == os.getpid())
"""


def test_mode_inline_runs_tasks_in_the_program_itself(script: Any) -> None:
    assert script(INLINE, PENSTOCK_MODE="inline").stdout == "True\n"
    assert script(INLINE, PENSTOCK_CPUS="1").stdout == "False\n"


def test_mode_inline_runs_each_task_at_its_call(script: Any) -> None:
    done = script(
        """
from penstock import task
@task
def speak(word):
    print(word)
speak("first")
print("second")
speak("third")
""",
        PENSTOCK_MODE="inline",
    )
    assert done.stdout == "first\nsecond\nthird\n"


def test_a_debugger_works_inline(script: Any) -> None:
    """The frames of the program are below those of the task."""
    done = script(
        """
import sys
from penstock import task
@task
def look():
    frame, names = sys._getframe(), []
    while frame:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    print("caller" in names)
def caller():
    look()
caller()
""",
        PENSTOCK_MODE="inline",
    )
    assert done.stdout == "True\n"


ERRORS = """
from penstock import task, wait_on, INOUT
import penstock

@task(returns=1)
def fail(x):
    raise KeyError(x)

@task(returns=2)
def mismatch():
    return 1, 2, 3

@task(returns=1)
def consume(x):
    return x

@task(bag=INOUT)
def spoil(bag):
    bag.append(1)
    raise OSError("half way")

def show(function):
    try:
        print("value", function())
    except Exception as error:
        print(type(error).__name__, [c.__name__ for c in type(error).__mro__][:3], str(error).splitlines()[0][:60])

show(lambda: fail("a").result())
show(lambda: mismatch()[0].result())
show(lambda: consume(fail("b")).result())
show(lambda: consume())
show(lambda: consume(1, nope=2))
bag = []
spoil(bag)
show(lambda: wait_on(bag))
show(lambda: type(consume([fail("c"), 1]).exception()))
print(bag)
show(lambda: fail.map([1]).results())
import threading
show(lambda: consume(threading.Lock()))
"""


def test_errors_are_the_same_inline_and_with_workers(script: Any) -> None:
    inline = script(ERRORS, PENSTOCK_MODE="inline")
    workers = script(ERRORS, PENSTOCK_CPUS="2")
    assert inline.stdout == workers.stdout
    assert inline.stdout.count("\n") == 10 and "KeyError" in inline.stdout


@MODES
def test_strict_names_the_task_and_the_argument_it_changed(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import task, ArgumentChanged, INOUT, wait_on
import penstock

@task(returns=1)
def sneaky(first, numbers):
    numbers.append(1)
    return len(numbers)

@task(returns=1)
def honest(numbers):
    return sorted(numbers)

@task(numbers=INOUT)
def declared(numbers):
    numbers.append(5)

class Box:
    def __init__(self): self.values = {}
    @task(target_direction=penstock.IN, returns=1)
    def poke(self, key):
        self.values[key] = 1
        return 1

print(honest([3, 1]).result())
mine = [1]
declared(mine)
print(wait_on(mine))
for call in (lambda: sneaky(0, [1]), lambda: sneaky(0, numbers=[1]), lambda: Box().poke("k")):
    try:
        call().result()
    except ArgumentChanged as error:
        print("ArgumentChanged", "sneaky" in str(error) or "poke" in str(error),
              "numbers" in str(error) or "self" in str(error))
""",
        PENSTOCK_STRICT="1",
        **environ,
    )
    assert done.stdout == "[1, 3]\n[1, 5]\n" + "ArgumentChanged True True\n" * 3


@MODES
def test_strict_sees_a_change_deep_inside_an_array_and_in_a_future(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
import numpy
from penstock import task, ArgumentChanged

@task(returns=1)
def make(n):
    return {"deep": [numpy.zeros(n)]}

@task(returns=1)
def sneaky(data):
    data["deep"][0][-1] = 1
    return 0

@task(returns=1)
def honest(data):
    return float(data["deep"][0].sum())

for n in (10, 300_000):
    for argument in (make(n), make(n).result()):
        assert honest(argument).result() == 0.0
        try:
            print(sneaky(argument).result())
        except ArgumentChanged as error:
            print("data" in str(error) and "sneaky" in str(error))
        except ValueError as error:
            print("read-only" in str(error))
""",
        PENSTOCK_STRICT="1",
        **environ,
    )
    assert done.stdout == "True\n" * 4


def test_without_strict_a_changed_argument_is_not_reported(script: Any) -> None:
    done = script(
        """
from penstock import task
@task(returns=1)
def sneaky(numbers):
    numbers.append(1)
    return len(numbers)
numbers = [1]
print(sneaky(numbers).result(), numbers)
""",
        PENSTOCK_CPUS="1",
    )
    assert done.stdout == "2 [1]\n"


# --- implicit start, stop -----------------------------------------------------------------------------------------


def test_the_first_call_starts_and_a_call_after_stop_is_an_error_at_its_line(script: Any) -> None:
    done = script(
        """
import penstock
from penstock import task, RuntimeStopped
@task(returns=1)
def f(x): return x
print(f(1).result())
penstock.stop()
penstock.stop()
import traceback
for call in (lambda: f(2), lambda: f.map([1])):
    try:
        call()
        print("no error")
    except RuntimeStopped as error:
        print("start" in str(error))
with penstock.Executor() as pool:  # which has workers of its own
    print(pool.submit(abs, -2).result())
penstock.start(cpus=1)
print(f(3).result())
""",
        PENSTOCK_CPUS="1",
    )
    assert done.stdout == "1\nTrue\nTrue\n2\n3\n"


def test_values_made_before_stop_can_be_had_after_it(script: Any) -> None:
    done = script(
        """
import numpy, penstock
from penstock import task, wait_on, INOUT
@task(returns=1)
def small(x): return [x]
@task(returns=1)
def large(n): return numpy.ones(n)
@task(bag=INOUT)
def push(bag, x): bag.append(x)
a, b = small(1), large(300_000)
bag = []
push(bag, 5)
penstock.stop()
print(a.done(), a.result(), float(b.result().sum()))
print(wait_on(a), wait_on([a, a]))
""",
        PENSTOCK_CPUS="2",
    )
    assert done.stdout == "True [1] 300000.0\n[1] [[1], [1]]\n"


def test_importing_costs_no_process_and_no_thread(script: Any) -> None:
    done = script(
        """
import threading, penstock, psutil
print(threading.active_count(), len(psutil.Process().children()))
@penstock.task
def f(): ...
print(threading.active_count(), len(psutil.Process().children()))
"""
    )
    assert done.stdout == "1 0\n1 0\n"


def test_a_forked_child_of_the_program_may_use_its_own_runtime(script: Any) -> None:
    done = script(
        """
import os, sys
from penstock import task
@task(returns=1)
def f(x): return x + 1
print(f(1).result(), flush=True)
pid = os.fork()
if pid == 0:
    print(f(2).result(), flush=True)
    import penstock
    penstock.stop()
    os._exit(0)
os.waitpid(pid, 0)
print(f(3).result())
""",
        PENSTOCK_CPUS="1",
    )
    assert done.stdout == "2\n3\n4\n"


def test_a_forked_child_does_not_wait_for_ever_for_tasks_of_the_program(script: Any) -> None:
    done = script(
        """
import os
import signal
import penstock
from penstock import task

@task(returns=1)
def same(x):
    return x

path = "pipe"
os.mkfifo(path)

@task(returns=1)
def pending():
    return open(path).read()

future = pending()
child = os.fork()
if not child:
    signal.alarm(20)
    for ask in (future.result, future.exception, lambda: penstock.wait([future]), lambda: same(future)):
        try:
            ask()
        except penstock.PenstockError as error:
            print("forked before this task was over" in str(error), flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
open(path, "w").write("here")
print(status, future.result())
"""
    )
    assert done.stdout.split() == ["True"] * 4 + ["0", "here"]


# --- notebook and pytest ------------------------------------------------------------------------------------------

CELLS = [
    """
from penstock import task, wait_on, INOUT
OFFSET = 10
class Point:
    def __init__(self, x):
        self.x = x
@task(returns=1)
def shifted(point):
    return Point(point.x + OFFSET)
@task(bag=INOUT)
def push(bag, value):
    bag.append(value)
""",
    "point = wait_on(shifted(shifted(Point(1))))\nprint(type(point) is Point, point.x)",
    "OFFSET = 100\nprint(wait_on(shifted(Point(1))).x)",
    "@task(returns=1)\ndef shifted(point):\n    return Point(-point.x)\nprint(shifted(Point(1)).result().x)",
    "bag = []\nfor i in range(5): push(bag, i)\nprint(wait_on(bag))",
    "print(sum(shifted.map([Point(i) for i in range(5)]).results()[i].x for i in range(5)))",
    "print(await task(lambda: 'awaited')())",
]


NOTEBOOK = """
import json, sys
import nbclient, nbformat
cells = [nbformat.v4.new_code_cell(cell) for cell in json.load(open("cells.json"))]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=60, kernel_name="under-test").execute()
printed = ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]
print(json.dumps(printed))
"""


def test_a_notebook(script: Any, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    kernel = tmp_path / "kernels" / "under-test" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "under test", "language": "python"}))
    (tmp_path / "cells.json").write_text(json.dumps(CELLS))
    folders = {"JUPYTER_PATH": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    done = script(NOTEBOOK, PENSTOCK_CPUS="2", **folders)
    assert json.loads(done.stdout)[1:] == ["True 21\n", "101\n", "-1\n", "[0, 1, 2, 3, 4]\n", "-10\n", "awaited\n"]


def test_under_pytest(script: Any, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        """
from penstock import task, wait_on

class Local:
    def __init__(self, x): self.x = x

@task(returns=1)
def double(local):
    return Local(2 * local.x)

def test_values():
    value = wait_on(double(Local(4)))
    assert isinstance(value, Local) and value.x == 8

def test_again():
    assert [local.x for local in double.map([Local(1), Local(2)]).results()] == [2, 4]
"""
    )
    done = script(
        "import sys, pytest\nsys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_mine.py']))", PENSTOCK_CPUS="2"
    )
    assert "2 passed" in done.stdout


@MODES
def test_what_a_task_leaves_beside_its_file_is_told_of_once(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
import os
from pathlib import Path
from penstock import FILE_INOUT, FILE_OUT, barrier, task

os.environ["PENSTOCK_CPUS"] = "1"

@task(path=FILE_OUT)
def index(path, count):
    Path(path).write_text("text")
    for number in range(count):
        Path(f"{path}.{number}").write_text("index")

@task(path=FILE_INOUT, on_failure="ignore")
def fail(path):
    Path(f"{path}.half").write_text("half")
    raise ValueError("not now")

folder = Path("made")
folder.mkdir()
index(folder / "a", 0)
fail(folder / "a")
index(folder / "b", 2)
index(folder / "c", 1)
barrier()
print(sorted(os.listdir(folder)))
""",
        **environ,
    )
    assert done.stdout == "['a', 'b', 'c']\n"
    assert done.stderr.count("penstock:") == 1
    assert "task index left 'b.0' and 1 more beside " in done.stderr
    assert "writes as 'path': what no argument names is removed" in done.stderr
