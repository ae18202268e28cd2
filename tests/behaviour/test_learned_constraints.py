"""``storage_bw="auto"``: a constraint that is learned while the program runs, on a device that congests.

In the epochs of the published algorithm, unless a test says that it holds for both ways of learning.

The device is emulated. Four streams get the most of it, so a quarter of its bandwidth is the best constraint; sixteen
get a fifth of what it can do. What is measured lasts tens of milliseconds, and the best differs from the next but one
by a factor of two or more, so that a busy machine does not change the answer.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.conftest import Script
from tests.behaviour.modes import only_workers
from tests.behaviour.storage_programs import (
    Turnstile,
    checkpoint,
    checkpoint_in_company,
    checkpoint_or_fail,
    double,
    dump_centres,
    layer,
    pass_through,
    read,
    run,
)
from tests.patience import becomes

import penstock
from penstock import FILE_OUT, ConfigError, barrier, constraint, io, task, wait_on

MB = 1e6
SIZE = 100_000
CURVE = [[1, "2.5MB/s"], [4, "10MB/s"], [16, "2MB/s"]]
AUTOS = pytest.mark.parametrize("written", ["auto(0.625,10,2)", "auto"], ids=["bounded", "unbounded"])
BOUNDED = "auto(1.25,10,2)"

capture = pytest.CaptureFixture


def learning(written: str, body: Any = checkpoint, **options: Any) -> Any:
    return constraint(storage_bw=written)(io(task(path=FILE_OUT(temp=True), **options)(body)))


def congesting(tmp_path: Path, curve: Any = CURVE) -> list[dict[str, Any]]:
    return [layer(tmp_path, "disk", "10MB/s", curve=curve)]


def quick(tmp_path: Path) -> list[dict[str, Any]]:
    """A device that is not slowed down, for tests of who waits for whom."""
    return [layer(tmp_path, "disk", 80)]


def call(function: Any, folder: Path, count: int, size: int = SIZE, **more: Any) -> list[Any]:
    return [function(folder / f"{function.__name__}-{i}", size, **more) for i in range(count)]


def tuning(file: Path, *arguments: str) -> Any:
    """What ``penstock tuning`` says of a registry."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "tuning", *(arguments or ["--json"])],
        env=os.environ | {"PENSTOCK_TUNING": str(file), "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if not arguments else done.stdout


def chosen(stderr: str, function: str = "checkpoint") -> list[tuple[float, str]]:
    """The choices printed for a function: MB/s, and where they come from."""
    lines = re.findall(rf"penstock: (?:\S*\.)?{function} on disk: storage_bw = ([\d.]+) MB/s \(([^)]*)\)", stderr)
    return [(float(value), why) for value, why in lines]


@pytest.fixture(autouse=True)
def tuner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How constraints are learned."""
    name: str = getattr(request, "param", "published")
    monkeypatch.setenv("PENSTOCK_TUNER", name)
    return name


both_ways = pytest.mark.parametrize("tuner", ["published", "adaptive"], indirect=True)


@pytest.fixture
def steady_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that a busy machine holds up are no proof that the device has changed: else all is learned anew."""
    monkeypatch.setattr("penstock.tuning.drift._SLOWER", math.inf)
    monkeypatch.setattr("penstock.tuning.drift._FASTER", 0.0)


on_a_steady_device = pytest.mark.usefixtures("steady_device")


# --- the choice ---------------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@only_workers
@on_a_steady_device
@AUTOS
def test_the_best_constraint_or_its_neighbour_is_chosen_and_told_once(
    mode: str, tmp_path: Path, written: str, capfd: capture[str]
) -> None:
    file = tmp_path / "registry" / "tuning.json"
    with run(io_executors=16, storage=congesting(tmp_path), tuning=str(file)):
        function = learning(written)
        call(function, tmp_path, 90)
        barrier()
    [(value, why)] = chosen(capfd.readouterr().err)
    assert 1.2 < value < 5.1 and why == "learned"
    [entry] = tuning(file)
    assert entry["function"].endswith("checkpoint") and entry["layer"] == "disk"
    tried = [(measure["constraint"] / MB, measure["tasks"]) for measure in entry["measures"]]
    if written == "auto":
        # From what lets all executors write, doubled while that pays; the last attempt, which did not, is left out.
        assert [constraint for constraint, _ in tried] == [tried[0][0] * 2**i for i in range(len(tried))]
        assert tried[0][0] <= 10 / 16 and 2 <= len(tried) <= 4
    else:
        assert tried == [(0.625, 16), (1.25, 8), (2.5, 4), (5, 2), (10, 1)]
    assert 1.2 < entry["chosen"] / MB < 5.1 and entry["why"]
    text = tuning(file, "--tasks", "100")
    assert "checkpoint" in text and "disk" in text


@only_workers
def test_an_epoch_is_as_many_tasks_as_the_constraint_admits_at_once(mode: str, tmp_path: Path) -> None:
    """Bandwidth 80: at 20 four tasks run, then, at 40, two, then one; nobody starts before its epoch."""
    function = constraint(storage_bw="auto(20,80,2)")(io(task(returns=1)(pass_through)))
    with run(io_executors=16, storage=quick(tmp_path)), Turnstile(tmp_path) as door:
        calls = [function(door) for _ in range(7)]
        for size, done in [(4, 3), (2, 5), (1, 6)]:
            door.arrivals(size)
            door.let_go(size - 1)
            assert becomes(lambda done=done: sum(call.done() for call in calls) == done)
            door.nobody_else()  # the epoch lasts until its last task is done
            door.let_go()
        assert max(wait_on(calls)) == 4


@only_workers
def test_the_executors_limit_an_epoch_too(mode: str, tmp_path: Path) -> None:
    function = constraint(storage_bw="auto(1,80,80)")(io(task(returns=1)(pass_through)))
    with run(io_executors=3, storage=quick(tmp_path)), Turnstile(tmp_path) as door:
        for _ in range(5):
            function(door)
        door.arrivals(3)
        door.let_go(3)
        door.arrivals(1)  # the epoch of one task
        door.let_go(2)


@only_workers
@on_a_steady_device
def test_no_value_above_the_ceiling_is_tried_or_chosen(mode: str, tmp_path: Path, capfd: capture[str]) -> None:
    file = tmp_path / "tuning.json"
    settings = {"io_executors": 8, "tuning": str(file), "tuning_ceiling": "3MB/s"}
    with run(storage=congesting(tmp_path), **settings):
        call(learning(BOUNDED), tmp_path, 40)
    [(value, _)] = chosen(capfd.readouterr().err)
    assert value <= 3
    [entry] = tuning(file)
    assert entry["chosen"] <= 3 * MB
    assert all(measure["constraint"] <= 3 * MB for measure in entry["measures"])


@pytest.mark.parametrize("wrong", [0, -1, "much", "3MB"])
def test_a_ceiling_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="tuning_ceiling"):
        run(tuning_ceiling=wrong)


@only_workers
@on_a_steady_device
def test_two_functions_learn_on_one_device_and_both_settle(mode: str, tmp_path: Path, capfd: capture[str]) -> None:
    file = tmp_path / "tuning.json"
    one, other = learning(BOUNDED), learning("auto", dump_centres)
    with run(io_executors=8, storage=congesting(tmp_path), tuning=str(file)):
        for i in range(40):
            one(tmp_path / f"one-{i}", SIZE // 2)
            other(tmp_path / f"other-{i}", SIZE // 2)
    told = capfd.readouterr().err
    assert len(chosen(told)) == 1 and len(chosen(told, "dump_centres")) == 1, told
    assert sorted(entry["function"].split(".")[-1].split(":")[-1] for entry in tuning(file)) == [
        "checkpoint",
        "dump_centres",
    ]


@both_ways
@only_workers
def test_the_whole_device_is_free_after_learning(mode: str, tmp_path: Path) -> None:
    whole = constraint(storage_bw="10MB/s")(io(task(returns=1)(double)))
    with run(io_executors=8, storage=congesting(tmp_path)):
        call(learning(BOUNDED), tmp_path, 30, 20_000)
        barrier()
        assert whole(4).result(60) == 8


# --- few instances ------------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.one_in(2)
@AUTOS
@pytest.mark.parametrize("count", [1, 10])
def test_fewer_instances_than_an_epoch_are_done_when_the_program_waits(
    mode: str, tmp_path: Path, written: str, count: int
) -> None:
    with run(mode, io_executors=16, storage=congesting(tmp_path)):
        calls = call(learning(written), tmp_path, count, 1000)
        barrier()
        assert all(future.done() for future in calls)


@both_ways
@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["wait_on", "result", "open_file", "reader", "end"])
def test_nothing_hangs_whatever_the_program_waits_for(mode: str, tmp_path: Path, how: str) -> None:
    with run(mode, io_executors=16, storage=congesting(tmp_path)):
        function = learning("auto")
        first, second = tmp_path / "first", tmp_path / "second"
        futures = [function(first, 1000), function(second, 1000)]
        if how == "wait_on":
            wait_on(futures)
        elif how == "result":
            futures[1].result(60)
        elif how == "open_file":
            with penstock.open_file(second, "rb") as file:
                assert len(file.read()) == 1000
        elif how == "reader":
            assert len(read(second).result(60)) == 1000


@both_ways
def test_instances_that_come_one_by_one(mode: str, tmp_path: Path) -> None:
    """Each is waited for before the next is called: no epoch is ever full at once."""
    with run(mode, io_executors=16, storage=congesting(tmp_path)):
        function = learning("auto")
        for i in range(20):
            function(tmp_path / f"{i}", 1000).result(60)


@both_ways
def test_instances_that_depend_on_each_other(mode: str, tmp_path: Path) -> None:
    """A chain: never more than one of them is ready, and the program waits only at the end."""

    @constraint(storage_bw="auto")
    @io
    @task(returns=1)
    def next_link(x: int) -> int:
        return x + 1

    with run(mode, io_executors=16, storage=quick(tmp_path)):
        x: Any = 0
        for _ in range(20):
            x = next_link(x)
        assert x.result(60) == 20


def test_a_few_are_registered_as_what_they_were(mode: str, tmp_path: Path) -> None:
    """If anything is kept of an epoch that closed early, it says so, and how many there were."""
    file = tmp_path / "tuning.json"
    with run(mode, io_executors=16, storage=congesting(tmp_path), tuning=str(file)):
        call(learning("auto(0.625,10,2)"), tmp_path, 3, 1000)
        barrier()
    for entry in tuning(file) if file.exists() else []:
        for measure in entry["measures"]:
            assert measure["tasks"] <= 3 and measure["concurrency"] <= 3
            assert measure["partial"] is (measure["concurrency"] < 10 * MB // measure["constraint"])


# --- others meanwhile ---------------------------------------------------------------------------------------------


@only_workers
def test_computing_goes_on_while_a_function_learns(mode: str, tmp_path: Path) -> None:
    function = constraint(storage_bw="auto(20,80,2)")(io(task(returns=1)(pass_through)))
    with run(io_executors=16, storage=quick(tmp_path)), Turnstile(tmp_path) as door:
        learners = [function(door) for _ in range(7)]
        door.arrivals(4)
        assert wait_on([task(returns=1)(double)(i) for i in range(20)]) == [2 * i for i in range(20)]
        assert not any(future.done() for future in learners)
        door.let_go(7)


@only_workers
def test_io_without_constraints_gets_its_turn_between_the_epochs(mode: str, tmp_path: Path) -> None:
    """There is one node: the epoch goes first, then the others, long before the function has learned."""
    function = constraint(storage_bw="auto(20,80,2)")(io(task(returns=1)(pass_through)))
    with run(io_executors=16, storage=quick(tmp_path)), Turnstile(tmp_path) as door:
        learners = [function(door) for _ in range(7)]
        door.arrivals(4)
        others = [io(task(returns=1)(double))(i) for i in range(5)]
        door.let_go(4)
        assert wait_on(others) == [2 * i for i in range(5)]
        assert not all(future.done() for future in learners)
        door.let_go(3)


@both_ways
@AUTOS
def test_instances_whose_input_other_io_has_yet_to_read(mode: str, tmp_path: Path, written: str) -> None:
    """Read, compute, write: the epoch cannot fill before other I/O has run."""

    @io
    @task(returns=1)
    def load(x: int) -> int:
        return x

    @task(returns=1)
    def compute(x: int) -> int:
        return x + 1

    @constraint(storage_bw=written)
    @io
    @task(returns=1)
    def save(x: int) -> int:
        return x + 1

    with run(mode, io_executors=16, storage=quick(tmp_path)):
        assert wait_on([save(compute(load(i))) for i in range(20)]) == [i + 2 for i in range(20)]


@both_ways
@only_workers
def test_io_with_a_fixed_constraint_gets_its_turn_on_the_only_device(mode: str, tmp_path: Path) -> None:
    fixed = constraint(storage_bw=40)(io(task(returns=1)(double)))
    function = constraint(storage_bw="auto(20,80,2)")(io(task(returns=1)(pass_through)))
    with run(io_executors=16, storage=quick(tmp_path)), Turnstile(tmp_path) as door:
        learners = [function(door) for _ in range(7)]
        others = [fixed(i) for i in range(10)]
        door.let_go(7)
        assert wait_on(others) == [2 * i for i in range(10)]
        assert len(wait_on(learners)) == 7


@only_workers
def test_a_function_may_learn_while_a_fixed_one_is_at_work(mode: str, tmp_path: Path) -> None:
    fixed = constraint(storage_bw=79)(io(task(returns=1)(pass_through)))
    function = constraint(storage_bw="auto(20,80,2)")(io(task(returns=1)(double)))
    with run(io_executors=16, storage=quick(tmp_path)), Turnstile(tmp_path) as door:
        fixed(door, "fixed")
        door.arrivals(1)
        calls = [function(i) for i in range(10)]
        door.nobody_else()
        door.let_go()
        assert wait_on(calls) == [2 * i for i in range(10)]


# --- failures while learning --------------------------------------------------------------------------------------


@only_workers
@on_a_steady_device
def test_failures_do_not_count(mode: str, tmp_path: Path, capfd: capture[str]) -> None:
    file = tmp_path / "tuning.json"
    function = learning(BOUNDED, checkpoint_or_fail, on_failure="ignore")
    with run(io_executors=8, storage=congesting(tmp_path), tuning=str(file)):
        for i in range(60):
            function(tmp_path / f"{i}", SIZE // 2, i % 3 == 0)
        barrier()
    assert len(chosen(capfd.readouterr().err, "checkpoint_or_fail")) == 1
    [entry] = tuning(file)
    # A failure takes no time; a mean that held one would be well below what the device allows.
    for measure in entry["measures"]:
        assert measure["seconds"] > 0.9 * SIZE / 2 / (2.5 * MB), measure


@both_ways
def test_a_function_that_always_fails_does_not_hang(mode: str, tmp_path: Path) -> None:
    function = learning("auto", checkpoint_or_fail)
    with run(mode, io_executors=4, storage=congesting(tmp_path)):
        futures = [function(tmp_path / f"{i}", SIZE, True) for i in range(20)]
        for future in futures:
            with pytest.raises(OSError, match="upside down"):
                future.result(60)


@only_workers
def test_learners_that_are_cancelled_do_not_hold_up_the_others(mode: str, tmp_path: Path) -> None:
    function = constraint(storage_bw="auto(20,80,2)")(io(task(returns=1)(pass_through)))
    with run(io_executors=16, storage=quick(tmp_path)), Turnstile(tmp_path) as door:
        calls = [function(door) for _ in range(12)]
        door.arrivals(4)
        for future in calls[6:]:
            assert future.cancel()
        door.let_go(12)
        assert len(wait_on(calls[:6])) == 6
        assert wait_on([function(door) for _ in range(3)])


# --- across runs --------------------------------------------------------------------------------------------------


def company(tmp_path: Path, written: str, count: int) -> int:
    """The most that were writing at once."""
    folder = tmp_path / "company"
    folder.mkdir(exist_ok=True)
    function = learning(written, checkpoint_in_company, returns=1)
    calls = [function(tmp_path / f"{i}", SIZE, str(folder)) for i in range(count)]
    return max(wait_on(calls))


@only_workers
@on_a_steady_device
def test_a_second_run_does_not_learn_again(mode: str, tmp_path: Path, capfd: capture[str]) -> None:
    file = tmp_path / "tuning.json"
    settings: dict[str, Any] = {"io_executors": 16, "storage": congesting(tmp_path), "tuning": str(file)}
    with run(**settings):
        company(tmp_path, "auto(0.625,10,2)", 80)
    [first] = tuning(file)
    assert [why for _, why in chosen(capfd.readouterr().err, "checkpoint_in_company")] == ["learned"], first
    with run(**settings):
        most = company(tmp_path, "auto(0.625,10,2)", 16)
    [second] = tuning(file)
    assert most <= 8, (first, second)
    assert (second["measures"], second["learned"]) == (first["measures"], first["learned"])
    told = chosen(capfd.readouterr().err, "checkpoint_in_company")
    assert [why for _, why in told] == ["as earlier runs learned"]


@only_workers
def test_what_was_learned_serves_only_the_same_request(mode: str, tmp_path: Path, capfd: capture[str]) -> None:
    """Another range is another question; so is another function."""
    file = tmp_path / "tuning.json"
    settings: dict[str, Any] = {"io_executors": 4, "storage": congesting(tmp_path), "tuning": str(file)}
    with run(**settings):
        call(learning("auto(2.5,5,2)"), tmp_path, 10, SIZE // 4)
    with run(**settings):
        call(learning("auto(5,10,2)"), tmp_path, 10, SIZE // 4)
    told = chosen(capfd.readouterr().err)
    assert [why for _, why in told] == ["learned", "learned"] and told[1][0] >= 5


@only_workers
def test_off_keeps_nothing(mode: str, tmp_path: Path, capfd: capture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        with run(io_executors=4, storage=congesting(tmp_path), tuning="off"):
            call(learning("auto(2.5,10,2)"), tmp_path, 12, SIZE // 4)
    assert [why for _, why in chosen(capfd.readouterr().err)] == ["learned", "learned"]
    assert not [found for found in (tmp_path / "cache").rglob("*") if found.is_file()]


@only_workers
def test_times_that_drift_are_learned_anew(mode: str, tmp_path: Path) -> None:
    """The device becomes five times slower under the same name."""
    file = tmp_path / "tuning.json"
    settings: dict[str, Any] = {"io_executors": 4, "tuning": str(file)}
    with run(storage=congesting(tmp_path), **settings):
        call(learning("auto(2.5,10,2)"), tmp_path, 20, SIZE // 4)
    [before] = tuning(file)
    slower = [[1, "0.5MB/s"], [4, "2MB/s"], [16, "0.4MB/s"]]
    with run(storage=congesting(tmp_path, slower), **settings):
        call(learning("auto(2.5,10,2)"), tmp_path, 40, SIZE // 4)
    [after] = tuning(file)
    assert after["learned"] > before["learned"]
    assert all(measure["seconds"] > 0.9 * SIZE / 4 / (0.5 * MB) for measure in after["measures"])


PROGRAM = """
import os
from penstock import FILE_OUT, constraint, io, task

@constraint(storage_bw="auto(20,80,2)")
@io
@task(path=FILE_OUT)
def checkpoint(path):
    with open(path, "wb") as file:
        file.write(b"1000")

for i in range(8):  # seven are learned from, and the eighth is too late for a drift
    checkpoint(f"out-{i}")
"""


def test_a_program_keeps_what_it_learned_in_the_users_cache(script: Script) -> None:
    (script.folder / "disk").mkdir()
    (script.folder / "penstock.toml").write_text(
        '[[resources.storage]]\nname = "disk"\nmount = "disk"\nbandwidth = 80\n'
    )
    cache = {"XDG_CACHE_HOME": str(script.folder / "cache"), "PENSTOCK_TUNER": "published"}
    first = script(PROGRAM, **cache)
    assert [why for _, why in chosen(first.stderr)] == ["learned"], first.stderr
    second = script(PROGRAM, **cache)
    assert [why for _, why in chosen(second.stderr)] == ["as earlier runs learned"], second.stderr
    subprocess.run(
        [sys.executable, "-m", "penstock.cli", "tuning", "--clear"],
        env=os.environ | cache | {"TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    third = script(PROGRAM, **cache)
    assert [why for _, why in chosen(third.stderr)] == ["learned"], third.stderr
