"""What a task finds outside of its arguments: working directory, environment and so on, of the program at the call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import Gate, only_workers
from tests.mpi_here import needs_mpi

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, io, mpi, program, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test in a folder of its own, which has two others."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path)
    mask, limit = os.umask(0o022), sys.getrecursionlimit()
    yield
    os.umask(mask)
    sys.setrecursionlimit(limit)


def state() -> tuple[Any, ...]:
    mask = os.umask(0o022)
    os.umask(mask)
    return os.getcwd(), os.environ.get("OUTSIDE"), mask, sys.getrecursionlimit()


@task
def seen() -> tuple[Any, ...]:
    return state()


@task
def wander(folder: str) -> None:
    os.chdir(folder)
    os.environ["OUTSIDE"] = "of a task"
    os.environ.pop("PATH")
    os.umask(0o077)
    sys.setrecursionlimit(12345)


def change(folder: Path, value: str) -> None:
    os.chdir(folder)
    os.environ["OUTSIDE"] = value
    os.umask(0o007)
    sys.setrecursionlimit(2345)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTSIDE", raising=False)


def test_a_task_sees_what_the_program_has_changed(tmp_path: Path) -> None:
    assert seen().result() == state()
    change(tmp_path / "one", "first")
    assert seen().result() == state() == (str(tmp_path / "one"), "first", 0o007, 2345)
    del os.environ["OUTSIDE"]
    os.chdir("..")
    assert seen().result() == state()


def test_a_task_sees_the_state_of_its_call_however_late_it_runs(tmp_path: Path, gate: Gate, mode: str) -> None:
    @task
    def blocked(_: Any) -> tuple[Any, ...]:
        return state()

    @task
    def hold() -> None:
        if mode != "inline":
            gate.enter()

    change(tmp_path / "one", "at the call")
    expected = state()
    waiting = blocked(hold())
    change(tmp_path / "two", "after it")
    sys.setrecursionlimit(3456)
    if mode != "inline":
        gate.open()
    assert waiting.result() == expected
    assert seen().result() == state()


def test_what_a_task_changes_does_not_stay(tmp_path: Path) -> None:
    before = state()
    for _ in range(3):
        wander(str(tmp_path / "one")).result()
        assert [future.result() for future in [seen() for _ in range(4)]] == [before] * 4
    assert state() == before
    assert "PATH" in os.environ


def test_what_a_task_that_fails_changes_does_not_stay(tmp_path: Path) -> None:
    @task
    def fail() -> None:
        os.chdir(tmp_path / "one")
        os.environ["OUTSIDE"] = "failed"
        raise ValueError("on purpose")

    before = state()
    assert fail().exception() is not None
    assert seen().result() == before == state()


def test_items_of_a_map_do_not_see_each_other_s_changes(tmp_path: Path) -> None:
    def wandering(i: int) -> tuple[Any, ...]:
        found = state()
        os.chdir(tmp_path / "one")
        os.environ["OUTSIDE"] = str(i)
        if i % 7 == 3:
            raise ValueError(i)
        return found

    before = state()
    mapped = task(wandering).map(range(200))
    found = {future.result() for i, future in enumerate(mapped) if i % 7 != 3}
    assert found == {before}
    assert all(future.exception() is not None for i, future in enumerate(mapped) if i % 7 == 3)


def test_all_items_of_a_map_see_the_state_of_its_call(tmp_path: Path) -> None:
    @task
    def slow(i: int) -> tuple[Any, ...]:
        time.sleep(0.002)
        return state()

    before = state()
    mapped = slow.map(range(100))
    change(tmp_path / "one", "later")
    assert set(mapped.results()) == {before}


def test_a_task_inside_a_task_leaves_the_outer_one_where_it_was(tmp_path: Path) -> None:
    @task
    def outer() -> bool:
        os.chdir(tmp_path / "two")
        os.environ["OUTSIDE"] = "outer"
        before = state()
        wander(str(tmp_path / "one")).result()
        return state() == before and seen().result() == before

    assert outer().result()


def test_other_ways_to_change_the_working_directory(tmp_path: Path) -> None:
    import contextlib

    folder = os.open(tmp_path / "one", os.O_RDONLY)
    try:
        os.fchdir(folder)
    finally:
        os.close(folder)
    assert seen().result() == state()
    with contextlib.chdir(tmp_path / "two"):
        assert seen().result()[0] == str(tmp_path / "two")
    assert seen().result() == state()


def test_other_ways_to_change_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    @task
    def variables() -> tuple[Any, ...]:
        shell = subprocess.run(["/bin/sh", "-c", 'printf "$OUTSIDE"'], capture_output=True, check=True).stdout
        return os.environ.get("OUTSIDE"), os.getenv("OUTSIDE_TOO"), os.environb.get(b"RAW"), shell

    os.environ.update(OUTSIDE="a", OUTSIDE_TOO="ü")
    os.environb[b"RAW"] = b"\xff"
    assert variables().result() == ("a", "ü", b"\xff", b"a")
    assert os.environ.pop("OUTSIDE_TOO") == "ü"
    os.environ |= {"OUTSIDE": "b"}
    assert variables().result() == ("b", None, b"\xff", b"b")
    with monkeypatch.context() as within:
        within.setenv("OUTSIDE", "c")
        assert variables().result()[0] == "c"
    del os.environ["OUTSIDE"], os.environ["RAW"]
    assert variables().result() == (None, None, None, b"")


def test_the_time_zone_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    @task
    def hour() -> int:
        return time.localtime(0).tm_hour

    monkeypatch.setenv("TZ", "UTC-5")
    time.tzset()
    assert hour().result() == time.localtime(0).tm_hour == 5
    monkeypatch.delenv("TZ")
    time.tzset()
    assert hour().result() == time.localtime(0).tm_hour


def test_relative_paths_of_files_are_those_of_the_call(tmp_path: Path) -> None:
    @task(path=FILE_OUT)
    def write(path: str, text: str) -> None:
        Path(path).write_text(text)

    @task(path=FILE_INOUT)
    def extend(path: str) -> None:
        Path(path).write_text(Path(path).read_text() + "+")

    @task(path=FILE_IN)
    def read(path: str) -> str:
        return Path(path).read_text() + Path("beside").read_text()

    for name in ("one", "two"):
        Path(tmp_path, name, "beside").write_text(f" beside {name}")
    found = []
    for name in ("one", "two"):
        os.chdir(tmp_path / name)
        write("file", name)
        extend("file")
        found.append(read("file"))
    os.chdir(tmp_path)
    assert [one.result() for one in found] == ["one+ beside one", "two+ beside two"]
    penstock.barrier()
    assert Path("one/file").read_text() == "one+"
    assert not Path("file").exists()


def test_programs_and_i_o_tasks_stand_where_the_program_did(tmp_path: Path) -> None:
    @program('printf "$OUTSIDE %s" {word} > {out}', out=FILE_OUT)
    def say(word: str, out: str) -> None: ...

    @program("cat beside", returns=str)
    def beside() -> None: ...

    @io
    @task
    def where() -> str:
        return os.getcwd()

    Path("one/beside").write_text("here")
    change(tmp_path / "one", "hello")
    said, found, place = say("world", "out"), beside(), where()
    change(tmp_path / "two", "bye")
    assert (wait_on(said), found.result(), place.result()) == (0, "here", str(tmp_path / "one"))
    penstock.barrier()
    assert Path(tmp_path, "one/out").read_text() == "hello world"


def test_a_working_directory_that_is_gone_is_gone_for_the_task_too(tmp_path: Path, gate: Gate, mode: str) -> None:
    @task
    def write_relative(_: Any) -> str:
        try:
            Path("left-behind").write_text("x")
        except FileNotFoundError:
            return "gone"
        return os.getcwd()

    @task
    def hold() -> None:
        if mode != "inline":
            gate.enter()

    os.chdir(tmp_path / "one")
    if mode == "inline":
        os.rmdir(tmp_path / "one")
        waiting = write_relative(hold())
    else:
        waiting = write_relative(hold())
        os.rmdir(tmp_path / "one")
    os.chdir(tmp_path)
    if mode != "inline":
        gate.open()
    assert waiting.result() == "gone"
    assert seen().result() == state()


def test_a_module_that_a_task_imports_is_found_where_the_program_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("one/found_later.py").write_text("import os\nVALUE = 42\nos.environ['OUTSIDE'] = 'imported'\n")

    @task
    def use() -> int:
        import found_later  # type: ignore[import-not-found]

        return int(found_later.VALUE)

    assert seen().result() == state()
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    assert use().result() == 42
    sys.modules.pop("found_later", None)


@only_workers
def test_what_the_import_of_a_task_s_module_sets_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: penstock.Runtime
) -> None:
    Path("one/sets_variables.py").write_text(
        "import os\nfrom penstock import task\nos.environ.setdefault('SET_BY_IMPORT', str(os.getpid()))\n"
        "@task\ndef get(): return os.environ.get('SET_BY_IMPORT'), os.getpid()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    import sets_variables  # type: ignore[import-not-found]

    monkeypatch.delenv("SET_BY_IMPORT")
    for _ in range(3):
        value, pid = sets_variables.get().result()
        assert value == str(pid)


@needs_mpi
@only_workers
@pytest.mark.timeout(120)
def test_ranks_stand_where_the_program_did(tmp_path: Path) -> None:
    @mpi(processes=2)
    @task(returns=list)
    def ranks() -> tuple[Any, ...]:
        return state()

    change(tmp_path / "one", "rank")
    assert ranks().result() == [state()] * 2
    os.chdir(tmp_path / "two")
    os.environ["OUTSIDE"] = "again"
    assert ranks().result() == [state()] * 2


def test_what_is_wrapped_can_be_pickled_and_asked_for() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(os.chdir)) is os.chdir
    assert os.chdir in os.supports_fd
    assert seen().result() == state()


@task
def redirect() -> None:
    sys.stdout = sys.stderr = StringIO()


def test_streams_that_a_task_puts_in_place_are_gone_with_it() -> None:
    streams = sys.stdout, sys.stderr
    redirect().result()
    after = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    assert after == streams
