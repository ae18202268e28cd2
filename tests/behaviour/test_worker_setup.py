"""The program's own setup of worker processes, and how long these live."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import MODES, only_workers

import penstock
from penstock import ConfigError, SetupFailed, task

told: list[str] = []


def tell(word: str) -> None:
    told.append(word)
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{os.getpid()}\n")


def fail() -> None:
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{os.getpid()}\n")
    raise LookupError("no such database")


@task(returns=1)
def heard() -> list[str]:
    return told


@task(returns=1)
def process() -> int:
    return os.getpid()


@pytest.fixture
def told_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "told"
    path.touch()
    monkeypatch.setenv("TOLD", str(path))
    told.clear()
    return path


def test_it_precedes_the_first_task_of_each_process(mode: str, told_file: Path) -> None:
    with penstock.Runtime(**MODES[mode], setup=functools.partial(tell, "ready")):
        assert [heard().result() for _ in range(20)] == [["ready"]] * 20
        processes = {process().result() for _ in range(20)}
    calls = told_file.read_text().split()
    assert len(calls) == len(set(calls)), "once in each"
    assert processes <= set(map(int, calls))


def test_a_function_of_the_program_that_has_no_name(mode: str, told_file: Path) -> None:
    with penstock.Runtime(**MODES[mode], setup=lambda: tell("lambda")):
        assert heard().result() == ["lambda"]


def test_it_can_be_named(mode: str, told_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SETUP", "tests.behaviour.test_worker_setup:fail")
    with penstock.Runtime(**MODES[mode]), pytest.raises(SetupFailed):
        process().result()


def test_one_that_raises_is_told_by_every_task(mode: str, told_file: Path) -> None:
    with penstock.Runtime(**MODES[mode], setup=fail):
        for _ in range(10):
            with pytest.raises(SetupFailed, match="LookupError: no such database") as caught:
                process().result()
            assert isinstance(caught.value.__cause__, LookupError)
            assert "in fail" in str(caught.value)
    assert len(told_file.read_text().split()) <= 2, "no process is started again"


@pytest.mark.parametrize(
    ("setup", "match"),
    [
        (3, "a function, or where it is found"),
        ("nowhere", "a function, or where it is found"),
        ("no_such_module:name", "ModuleNotFoundError"),
        ("os:no_such_name", "no_such_name"),
        ("os:sep", "cannot be called"),
    ],
)
def test_one_that_is_none_is_refused_at_the_start(mode: str, setup: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        penstock.Runtime(**MODES[mode], setup=setup)


@only_workers
def test_one_that_cannot_be_sent_is_refused_at_the_start(mode: str) -> None:
    lock = multiprocessing.Lock()
    before = set(os.listdir("/dev/shm"))
    with pytest.raises(penstock.SerializationError, match=r"multiprocessing\.Manager"):
        penstock.Runtime(cpus=1, setup=functools.partial(tell, lock))
    assert not {one for one in set(os.listdir("/dev/shm")) - before if f"-{os.getpid()}-" in one}


@only_workers
def test_workers_that_are_replaced_after_some_tasks(mode: str) -> None:
    with penstock.Runtime(cpus=1, tasks_per_worker=3):
        processes = [future.result() for future in [process() for _ in range(10)]]
    counts = {number: processes.count(number) for number in processes}
    assert list(counts.values()) == [3, 3, 3, 1]


@only_workers
def test_each_new_worker_is_set_up(mode: str, told_file: Path) -> None:
    with penstock.Runtime(cpus=1, tasks_per_worker=1, setup=functools.partial(tell, "ready")):
        assert [heard().result() for _ in range(4)] == [["ready"]] * 4
    assert len(set(told_file.read_text().split())) >= 4


@task(returns=1)
def note(numbers: Any) -> None:
    numbers.append(1)


def test_proxies_of_a_manager(mode: str) -> None:
    with multiprocessing.Manager() as manager, penstock.Runtime(**MODES[mode]):
        numbers = manager.list()
        penstock.wait_on([note(numbers) for _ in range(3)])
        assert len(numbers) == 3


def test_queues_of_a_manager_that_starts_after_the_runtime(mode: str) -> None:
    put: Callable[..., Any] = task(lambda queue, item: queue.put(item))
    with penstock.Runtime(**MODES[mode]), multiprocessing.Manager() as manager:
        queue = manager.Queue()
        penstock.wait_on(put(queue, "told"))
        assert queue.get(timeout=60) == "told"


#: what it binds and changes in the main program, whose functions travel by value
PROGRAM = """
import functools, os, sys, threading
import penstock
from penstock import task

table, absent = {"there": 1}, None

class Place:
    name = "nowhere"

def prepare(word):
    global lock, absent
    lock, absent = threading.Lock(), [word]
    table["word"] = Place.name = look.word = word
    globals()["indirect"] = word
    os.chdir("/")
    sys.setrecursionlimit(4321)

def look():
    with lock:
        return table["word"], table["there"], absent, Place.name, look.word, globals()["indirect"]

class Holder:
    def look(self):
        self.seen = look()
        return self

def where():
    return os.getcwd(), sys.getrecursionlimit()

def found(word):
    return word, 1, [word], word, word, word

home, limit = os.getcwd(), sys.getrecursionlimit()
with penstock.Runtime(**{settings}, setup=functools.partial(prepare, "ready")):
    looked, held, told = task(look)(), task(lambda: Holder().look())(), task(where)()
    assert looked.result() == found("ready"), looked.result()
    assert held.result().seen == found("ready") and told.result() == ("/", 4321)
    task(lambda: (os.chdir("/tmp"), sys.setrecursionlimit(999)))().result()
    assert task(where)().result() == ("/", 4321)
    os.chdir("/dev")
    sys.setrecursionlimit(2345)
    assert task(where)().result() == ("/dev", 2345)
    os.chdir(home)
    sys.setrecursionlimit(limit)
with penstock.Executor(**{settings}, initializer=prepare, initargs=("again",)) as executor:
    assert executor.submit(look).result() == found("again")
    assert executor.submit(Holder().look).result().seen == found("again")
    os.chdir(home)
    sys.setrecursionlimit(limit)
if "cpus" in {settings}:
    assert table == {"there": 1} and absent is None and "lock" not in globals() and Place.name == "nowhere"
with penstock.Runtime(cpus=1):
    assert task(lambda: absent)().result() == absent
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("settings", [{"cpus": 1}, {"mode": "inline"}, {"cpus": 1, "strict": True}], ids=str)
def test_what_it_binds_and_changes_is_what_tasks_find(script: Any, settings: dict[str, Any]) -> None:
    script(PROGRAM.replace("{settings}", str(settings)))
