"""``data_movement``: files that nobody will read move down when no I/O runs, and are found wherever they are."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.conftest import Script
from tests.behaviour.modes import only_workers
from tests.behaviour.storage_programs import (
    LITTLE,
    Turnstile,
    append,
    dump,
    files_below,
    layer,
    layer_of,
    noop,
    pass_through,
    read,
    read_and_wait,
    run,
    write,
)
from tests.patience import becomes

from penstock import FILE_IN, FILE_OUT, barrier, constraint, delete_file, io, open_file, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

MB = 1_000_000

temporary = constraint(**LITTLE)(io(task(path=FILE_OUT(temp=True), returns=1)(dump)))
permanent = constraint(**LITTLE)(io(task(path=FILE_OUT, returns=1)(dump)))
holding = constraint(**LITTLE)(io(task(returns=1)(pass_through)))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the program wants its files: on no layer."""
    home = tmp_path / "home"
    home.mkdir()
    return home


def three(tmp_path: Path, **slow: Any) -> list[dict[str, Any]]:
    return [layer(tmp_path, "fast", 100), layer(tmp_path, "middle", 50), layer(tmp_path, "slow", 10, **slow)]


def moving(tmp_path: Path, mode: str = "workers", **settings: Any) -> Runtime:
    return run(mode, data_movement=True, **({"storage": three(tmp_path)} | settings))


def is_home(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and not path.is_symlink()


def expect_nothing_on_layers(tmp_path: Path) -> None:
    names = [path for name in ("fast", "middle", "slow") if (path := tmp_path / name).exists()]
    assert files_below(*names) == []


# --- what moves, and where to -------------------------------------------------------------------------------------


def test_a_file_that_nobody_reads_goes_home_while_the_run_goes_on(mode: str, home: Path, tmp_path: Path) -> None:
    with moving(tmp_path, mode):
        write(home / "a", "text")
        assert becomes(is_home(home / "a"))
        assert (home / "a").read_text() == "text"
        assert becomes(lambda: not any(name.endswith("/a") for name in files_below(tmp_path / "fast")))
    assert os.listdir(home) == ["a"]
    expect_nothing_on_layers(tmp_path)


def test_nothing_moves_unless_told(mode: str, home: Path, tmp_path: Path) -> None:
    with run(mode, storage=three(tmp_path)):
        for i in range(5):
            write(home / f"{i}", "text")
            noop().result()
            barrier()
        assert [layer_of(home / f"{i}", tmp_path) for i in range(5)] == ["fast"] * 5
    expect_nothing_on_layers(tmp_path)


def test_a_temporary_file_goes_to_the_lowest_layer(mode: str, home: Path, tmp_path: Path) -> None:
    with moving(tmp_path, mode):
        temporary(home / "a", 5).result()
        assert becomes(lambda: layer_of(home / "a", tmp_path) == "slow")
        assert read(home / "a").result() == "ddddd"
        with open_file(home / "a") as file:
            assert file.read() == "ddddd"
    assert os.listdir(home) == []
    expect_nothing_on_layers(tmp_path)


def test_a_layer_without_room_is_passed_over(mode: str, home: Path, tmp_path: Path) -> None:
    with moving(tmp_path, mode, storage=three(tmp_path, capacity="10kB")):
        temporary(home / "large", 10_001).result()
        assert becomes(lambda: layer_of(home / "large", tmp_path) == "middle")
        temporary(home / "small", 9_999).result()
        assert becomes(lambda: layer_of(home / "small", tmp_path) == "slow")
        temporary(home / "more", 9_999).result()
        assert becomes(lambda: layer_of(home / "more", tmp_path) == "middle")


def test_a_file_goes_no_deeper_than_its_home(mode: str, tmp_path: Path) -> None:
    layers = three(tmp_path)
    with moving(tmp_path, mode, storage=layers):
        write(tmp_path / "middle" / "a", "text")
        assert becomes(is_home(tmp_path / "middle" / "a"))
        write(tmp_path / "fast" / "b", "text")
        barrier()
    assert files_below(*(tmp_path / name for name in ("fast", "middle", "slow"))) == ["fast/b", "middle/a"]
    assert (tmp_path / "middle" / "a").read_text() == "text"


def test_a_moved_file_keeps_its_mode(mode: str, home: Path, tmp_path: Path) -> None:
    @constraint(**LITTLE)
    @io
    @task(path=FILE_OUT)
    def program(path: Any) -> None:
        Path(path).write_text("#!/bin/sh\n")
        os.chmod(path, 0o750)

    with moving(tmp_path, mode):
        program(home / "a")
        assert becomes(is_home(home / "a"))
    assert (home / "a").stat().st_mode & 0o777 == 0o750


# --- when ---------------------------------------------------------------------------------------------------------


@only_workers
def test_a_file_that_will_be_read_stays(mode: str, home: Path, tmp_path: Path) -> None:
    @task(returns=1)
    def wait(door: Turnstile) -> int:
        return door.passing()

    @task(path=FILE_IN, returns=1)
    def read_after(path: Any, signal: int) -> str:
        return os.path.realpath(path)

    with moving(tmp_path), Turnstile(tmp_path) as door:
        signal = wait(door)
        door.arrivals(1)
        write(home / "wanted", "text")
        reader = read_after(home / "wanted", signal)
        write(home / "unwanted", "text")
        assert becomes(is_home(home / "unwanted"))
        assert layer_of(home / "wanted", tmp_path) == "fast"
        door.let_go()
        assert layer_of(reader.result(60), tmp_path) == "fast"
        assert becomes(is_home(home / "wanted"))


@only_workers
def test_nothing_moves_while_io_runs(mode: str, home: Path, tmp_path: Path) -> None:
    with moving(tmp_path), Turnstile(tmp_path) as door:
        held = holding(door)
        door.arrivals(1)
        write(home / "a", "text")
        assert read(home / "a").result(60) == "text"
        barrier_of_computing()
        assert layer_of(home / "a", tmp_path) == "fast"
        door.let_go()
        held.result(60)
        assert becomes(is_home(home / "a"))


def barrier_of_computing() -> None:
    wait_on([noop() for _ in range(50)])


# --- readers and writers that come meanwhile ----------------------------------------------------------------------


@contextmanager
def hearing_failures() -> Iterator[list[str]]:
    failures: list[str] = []
    yield failures
    assert failures == []


def test_whoever_looks_at_the_name_at_any_time_finds_the_whole_file(mode: str, home: Path, tmp_path: Path) -> None:
    """The program itself, which asks nobody, reads the names over and over while the files move."""
    paths = [home / f"{i}" for i in range(6)]
    with moving(tmp_path, mode), hearing_failures() as failures:
        wait_on([permanent(path, 2 * MB) for path in paths])
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                for path in paths:
                    try:
                        if len(path.read_bytes()) != 2 * MB:
                            failures.append(f"{path} is not whole")
                    except OSError as error:
                        failures.append(repr(error))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            assert all(becomes(is_home(path)) for path in paths)
        finally:
            over.set()
            looking.join()


def test_tasks_read_files_that_move(mode: str, home: Path, tmp_path: Path) -> None:
    @task(path=FILE_IN, returns=1)
    def size(path: Any) -> int:
        return len(Path(path).read_bytes())

    with moving(tmp_path, mode):
        for round_ in range(8):
            path = home / f"{round_}"
            permanent(path, MB)
            barrier()  # from now on it may move
            assert wait_on([size(path) for _ in range(4)]) == [MB] * 4
            with open_file(path, "rb") as file:
                assert len(file.read()) == MB


@only_workers
def test_a_reader_at_work_keeps_what_it_reads(mode: str, home: Path, tmp_path: Path) -> None:
    with moving(tmp_path), Turnstile(tmp_path) as door:
        write(home / "a", "text")
        slow = task(path=FILE_IN, returns=1)(read_and_wait)(home / "a", door)
        door.arrivals(1)
        write(home / "other", "text")
        assert becomes(is_home(home / "other"))
        door.let_go()
        assert slow.result(60) == ("text", "text")
        assert becomes(is_home(home / "a"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_files_updated_while_they_move(mode: str, home: Path, tmp_path: Path, delay: int) -> None:
    with moving(tmp_path, mode):
        for i in range(6):
            path = home / f"{i}"
            write(path, "x" * MB)
            pause(path, delay)
            append(path, "y")
            pause(path, delay)
            append(path, "z")
            with open_file(path) as file:
                assert file.read()[-3:] == "xyz"
    assert all((home / f"{i}").read_text() == "x" * MB + "yz" for i in range(6))
    expect_nothing_on_layers(tmp_path)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("temp", [False, True])
def test_files_deleted_while_they_move(mode: str, home: Path, tmp_path: Path, delay: int, temp: bool) -> None:
    with moving(tmp_path, mode):
        for i in range(6):
            path = home / f"{i}"
            (temporary if temp else permanent)(path, MB).result()
            pause(path, delay)
            delete_file(path)
            assert not os.path.lexists(path)
        wait_on(noop())
        assert os.listdir(home) == []
    assert os.listdir(home) == []
    expect_nothing_on_layers(tmp_path)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_files_opened_to_write_while_they_move(mode: str, home: Path, tmp_path: Path, delay: int) -> None:
    with moving(tmp_path, mode):
        for i in range(6):
            path = home / f"{i}"
            temporary(path, MB).result() if i % 2 else permanent(path, MB).result()
            pause(path, delay)
            with open_file(path, "ab") as file:
                file.write(b"end")
            assert path.read_bytes()[-4:] == b"dend"
            assert read(path).result()[-4:] == "dend"
    expect_nothing_on_layers(tmp_path)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_files_written_anew_while_they_move(mode: str, home: Path, tmp_path: Path, delay: int) -> None:
    with moving(tmp_path, mode):
        path = home / "a"
        for i in range(8):
            permanent(path, MB)
            pause(path, delay)
            write(path, f"{i}")
            assert read(path).result() == f"{i}"
    assert (home / "a").read_text() == "7"
    expect_nothing_on_layers(tmp_path)


def pause(path: Path, delay: int) -> None:
    """Not at all; until the tasks are done; until the file, most likely, is on its way."""
    if delay:
        barrier()
    if delay == 2:
        for _ in range(3):
            noop().result()


# --- room ---------------------------------------------------------------------------------------------------------


def test_room_is_free_again_once_a_file_has_moved(mode: str, home: Path, tmp_path: Path) -> None:
    sized = constraint(storage_size="10kB")(io(task(path=FILE_OUT, returns=1)(dump)))
    layers = [layer(tmp_path, "fast", 100, capacity="20kB"), layer(tmp_path, "slow", 10)]
    with moving(tmp_path, mode, storage=layers):
        for round_ in range(3):
            paths = [home / f"{round_}-{i}" for i in range(2)]
            places = wait_on([sized(path, 10_000) for path in paths])
            assert {layer_of(place, tmp_path) for place in places} <= {"fast", "slow"}
            assert all(becomes(is_home(path)) for path in paths)
            # Nothing is left on the layer, so there is room for both.
            assert becomes(lambda: not any("/kept/" in name for name in files_below(tmp_path / "fast")))
        assert layer_of(sized(home / "last", 10_000).result(), tmp_path) == "fast"


@pytest.mark.parametrize("scheduler", ["fcfs", "priority", "backfilling"])
def test_more_data_than_all_layers_hold(mode: str, home: Path, tmp_path: Path, scheduler: str) -> None:
    small = constraint(storage_size="10kB", storage_bw=5)(io(task(path=FILE_OUT, returns=1)(dump)))
    large = constraint(storage_size="20kB", storage_bw=10)(io(task(path=FILE_OUT, returns=1)(dump)))
    layers = [layer(tmp_path, "fast", 20, capacity="30kB"), layer(tmp_path, "slow", 10, capacity="20kB")]
    with moving(tmp_path, mode, storage=layers, io_scheduler=scheduler):
        for i in range(12):
            (large if i % 3 else small)(home / f"{i}", 20_000 if i % 3 else 10_000)
    assert [(home / f"{i}").stat().st_size for i in range(12)] == [20_000 if i % 3 else 10_000 for i in range(12)]
    assert not any(path.is_symlink() for path in home.iterdir())
    expect_nothing_on_layers(tmp_path)


# --- the end of the run -------------------------------------------------------------------------------------------


def test_all_permanent_data_is_home_when_the_run_is_over(mode: str, home: Path, tmp_path: Path) -> None:
    with run(mode, storage=three(tmp_path)) as runtime:
        for i in range(8):
            permanent(home / f"{i}", 100_000 + i)
        temporary(home / "temp", 100_000)
        runtime.stop()
        assert sorted(os.listdir(home)) == sorted(f"{i}" for i in range(8))
        assert all(is_home(home / f"{i}")() for i in range(8))
        assert [(home / f"{i}").stat().st_size for i in range(8)] == [100_000 + i for i in range(8)]
        expect_nothing_on_layers(tmp_path)


def test_stop_while_files_move(mode: str, home: Path, tmp_path: Path) -> None:
    for round_ in range(2):
        with moving(tmp_path, mode):
            for i in range(3):
                permanent(home / f"{round_}-{i}", 300_000)
                temporary(home / f"{round_}-{i}-temp", 300_000)
            barrier()
        assert sorted(os.listdir(home)) == sorted(f"{r}-{i}" for r in range(round_ + 1) for i in range(3))
        assert all(path.stat().st_size == 300_000 and not path.is_symlink() for path in home.iterdir())
        expect_nothing_on_layers(tmp_path)


# --- settings of a program ----------------------------------------------------------------------------------------

PROGRAM = """
import os, time
from pathlib import Path
from penstock import FILE_OUT, barrier, constraint, io, task

@constraint(storage_bw=1)
@io
@task(path=FILE_OUT)
def save(path):
    Path(path).write_text("1")

save("a")
barrier()
deadline = time.monotonic() + float(os.environ["PATIENCE"])
while os.path.islink("a") and time.monotonic() < deadline:
    time.sleep(0.005)
print("a link" if os.path.islink("a") else "home")
"""
TOML = '[[resources.storage]]\nname = "fast"\nmount = "fast"\nbandwidth = 50\n'


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("variable", "toml", "expected"),
    [("", "", "a link"), ("true", "", "home"), ("", "[runtime]\ndata_movement = true\n", "home")],
)
def test_data_movement_from_outside(script: Script, variable: str, toml: str, expected: str) -> None:
    (script.folder / "fast").mkdir()
    (script.folder / "penstock.toml").write_text(TOML + toml)
    patience = "0.3" if expected == "a link" else "60"
    done = script(PROGRAM, PENSTOCK_DATA_MOVEMENT=variable, PATIENCE=patience)
    assert done.stdout.strip() == expected
    assert (script.folder / "a").read_text() == "1" and not (script.folder / "a").is_symlink()
    assert files_below(script.folder / "fast") == []


def test_what_is_shown_at_the_end_counts_the_files_that_come_home(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.runtime import drain_view, housekeeping  # here: workers import this module, and need no engine

    relocate = housekeeping.relocate

    def relocate_slowly(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.25)
        relocate(*args, **kwargs)

    monkeypatch.setattr(housekeeping, "relocate", relocate_slowly)
    monkeypatch.setattr(drain_view, "_PATIENCE", 0.0)
    monkeypatch.setattr(drain_view, "_PERIOD", 0.0)
    with run("workers", storage=three(tmp_path)):
        wait_on([temporary(str(home / f"temp{number}"), MB) for number in range(4)])
        wait_on([permanent(str(home / f"file{number}"), MB) for number in range(3)])
        permanent(str(home / "file0"), 2 * MB)  # may still be under way when the end begins
    shown = re.findall(r"bringing files home: (\d+) of (\d+), (.+) of (.+)", capsys.readouterr().err)
    assert {(total, size) for _, total, _, size in shown} == {("3", "4 MB")}
    counts = [int(count) for count, *_ in shown]
    assert counts == sorted(counts) and 0 < counts[-1] <= 3


def test_nothing_is_shown_at_the_end_if_nothing_comes_home(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.runtime import drain_view, housekeeping

    discard = housekeeping.discard
    monkeypatch.setattr(housekeeping, "discard", lambda path: (time.sleep(0.05), discard(path)))
    monkeypatch.setattr(drain_view, "_PATIENCE", 0.0)
    monkeypatch.setattr(drain_view, "_PERIOD", 0.0)
    with run("workers", storage=three(tmp_path)):
        wait_on([temporary(str(home / f"temp{number}"), MB) for number in range(4)])
    assert capsys.readouterr().err == ""
