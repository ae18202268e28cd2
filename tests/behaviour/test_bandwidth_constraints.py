"""``@constraint(storage_bw=…)``: how much of a device's bandwidth each task takes, and what becomes of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import only_workers
from tests.behaviour.storage_programs import (
    Turnstile,
    die_at_once,
    double,
    fail_after_passing,
    fail_at_first,
    layer,
    noop,
    pass_and_write,
    pass_through,
    run,
)

import penstock
from penstock import (
    FILE_OUT,
    ConfigError,
    ConstraintError,
    DefinitionError,
    PenstockError,
    TaskCancelled,
    barrier,
    constraint,
    io,
    task,
    wait_on,
)


def limited(bandwidth: Any, body: Any = pass_through, **options: Any) -> Any:
    """A new I/O task that asks for so much."""
    return constraint(storage_bw=bandwidth)(io(task(returns=1, **options)(body)))


# --- what may be written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["storage_bw", "storageBW", "StorageBW", "STORAGE_BW", "storagebw"])
@pytest.mark.parametrize("value", [8, 8.5, "8", "8MB/s", "8 MB/s", "0.008GB/s", "$BANDWIDTH_OF_TEST"])
def test_bandwidth_in_every_spelling(name: str, value: Any) -> None:
    assert constraint(**{name: value})(io(task(returns=1)(double)))  # when called: below


@pytest.mark.parametrize("mode", ["inline"], indirect=True)
@pytest.mark.parametrize("value", [10, "10", "10MB/s", "0.01GB/s", "$BANDWIDTH_OF_TEST"])
def test_numbers_are_megabytes_a_second_unless_they_carry_a_unit(
    mode: str, tmp_path: Path, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANDWIDTH_OF_TEST", "10MB/s")
    with run(mode, storage=[layer(tmp_path, "ssd", "10MB/s")]):
        assert limited(value, double)(4).result() == 8
    with run(mode, storage=[layer(tmp_path, "ssd", "9.9MB/s")]), pytest.raises(ConstraintError):
        limited(value, double)(4)


@pytest.mark.parametrize("mode", ["inline"], indirect=True)
@pytest.mark.parametrize("name", ["storage_size", "storageSize", "StorageSize", "STORAGE_SIZE"])
@pytest.mark.parametrize("value", [10, "10MB", "0.01GB", "10000kB"])
def test_sizes_in_every_spelling(mode: str, tmp_path: Path, name: str, value: Any) -> None:
    needs = constraint(**{name: value})(io(task(returns=1)(double)))
    with run(mode, storage=[layer(tmp_path, "ssd", 10, capacity=10)]):
        assert needs(4).result() == 8
    with run(mode, storage=[layer(tmp_path, "ssd", 10, capacity=9)]), pytest.raises(ConstraintError):
        needs(4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "value",
    ["auto", "AUTO", " auto ", "auto(2,256,2)", "auto( 2 , 256 , 2 )", "auto(2MB/s, 0.2GB/s, 1.5)", "auto(4,4,2)"],
)
def test_bandwidth_to_be_learned(mode: str, tmp_path: Path, value: str) -> None:
    with run(mode, storage=[layer(tmp_path, "ssd", 450)]):
        assert limited(value, double)(4).result(60) == 8


# --- what may not be written: refused when decorating -------------------------------------------------------------

MALFORMED = [
    "auto(",
    "auto()",
    "auto(2)",
    "auto(2,256)",
    "auto(2,256,2,2)",
    "auto(2,256,2",
    "auto 2,256,2",
    "auto(a,b,c)",
    "auto(2,,2)",
    "automatic",
    "auto(2,256,1)",
    "auto(2,256,0.5)",
    "auto(2,256,0)",
    "auto(2,256,-2)",
    "auto(256,2,2)",
    "auto(0,256,2)",
    "auto(-2,256,2)",
    "auto(2,inf,2)",
    "auto(2,256,nan)",
    "auto(2s,256s,2)",
    -1,
    0,
    "-8MB/s",
    "0",
    float("nan"),
    float("inf"),
    "8MB",
    "8s",
    "fast",
    "",
    None,
    [8],
    True,
]


@pytest.mark.parametrize("value", MALFORMED, ids=str)
def test_nonsense_is_refused_when_decorating_and_named(value: Any) -> None:
    decorated = io(task(double))
    with pytest.raises(DefinitionError, match="storage_bw") as caught:
        constraint(storage_bw=value)(decorated)
    assert str(value) in str(caught.value)


@pytest.mark.parametrize("value", [-1, "-8MB", "8MB/s", "big", None, [8], float("nan"), "auto", True], ids=str)
def test_a_size_that_makes_no_sense_is_refused_when_decorating(value: Any) -> None:
    decorated = io(task(double))
    with pytest.raises(DefinitionError, match="storage_size"):
        constraint(storage_size=value)(decorated)


@pytest.mark.parametrize(
    ("value", "hint"),
    [("auto(2,256,1)", "1"), ("auto(256,2,2)", "256"), ("auto(0,256,2)", "0"), ("auto(2,256)", "min")],
)
def test_the_message_says_what_is_wrong_and_how_it_is_written(value: str, hint: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        limited(value, double)
    message = str(caught.value)
    assert value in message and hint in message.replace(value, "", 1), message


@pytest.mark.parametrize("name", ["storage_bandwith", "storageBV", "storge_bw", "bandwidth"])
def test_an_unknown_name_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(DefinitionError, match=name) as caught:
        constraint(**{name: 8})(io(task(double)))
    assert "storage_bw" in str(caught.value)


@pytest.mark.parametrize("need", [{"storage_bw": 8}, {"storage_size": 8}, {"storage_bw": "auto"}])
def test_storage_is_for_tasks_of_io(mode: str, tmp_path: Path, need: dict[str, Any]) -> None:
    """Whenever it is noticed, when decorating or at the call: the message tells the name and the way out."""
    with run(mode, storage=[layer(tmp_path, "ssd", 450)]), pytest.raises(PenstockError) as caught:
        constraint(**need)(task(double))(1)
    message = str(caught.value)
    assert "@io" in message and next(iter(need)) in message and "double" in message


@pytest.mark.parametrize("mode", ["inline"], indirect=True)
def test_the_order_of_constraint_and_io_does_not_matter(mode: str, tmp_path: Path) -> None:
    other_way_round = io(constraint(storage_bw=451)(task(returns=1)(double)))
    with run(mode, storage=[layer(tmp_path, "ssd", 450)]), pytest.raises(ConstraintError, match="ssd"):
        other_way_round(1)


# --- what can never be met ----------------------------------------------------------------------------------------


def three_layers(folder: Path) -> list[dict[str, Any]]:
    return [
        layer(folder, "disk", 100, capacity="30GB"),
        layer(folder, "nvram", 6000, capacity="1GB"),
        layer(folder, "ssd", 2700, capacity="2GB"),
    ]


def test_more_bandwidth_than_any_layer_has_is_an_error_at_the_call(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=three_layers(tmp_path)):
        greedy = limited(6001, double)
        with pytest.raises(ConstraintError) as caught:
            greedy(1)
        message = str(caught.value)
        assert "nvram" in message and "double" in message
        assert "6 GB/s" in message and "6.001 GB/s" in message, message
        assert limited(6000, double)(1).result() == 2


def test_more_room_than_any_layer_has_is_an_error_at_the_call(mode: str, tmp_path: Path) -> None:
    layers = [layer(tmp_path, "disk", 100, capacity=30), layer(tmp_path, "nvram", 6000, capacity=10)]
    with run(mode, storage=layers):
        greedy = constraint(storage_size=31)(io(task(returns=1)(double)))
        with pytest.raises(ConstraintError) as caught:
            greedy(1)
        assert "disk" in str(caught.value) and "30 MB" in str(caught.value) and "31 MB" in str(caught.value)


def test_bandwidth_of_one_layer_and_room_of_another_do_not_add_up(mode: str, tmp_path: Path) -> None:
    layers = [layer(tmp_path, "disk", 100, capacity=30), layer(tmp_path, "nvram", 6000, capacity=10)]
    with run(mode, storage=layers):
        greedy = constraint(storage_bw=101, storage_size=11)(io(task(returns=1)(double)))
        with pytest.raises(ConstraintError):
            greedy(1)


def test_a_least_value_to_learn_that_no_layer_has_is_an_error_at_the_call(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=[layer(tmp_path, "ssd", 450)]):
        with pytest.raises(ConstraintError, match="ssd"):
            limited("auto(500,1000,2)", double)(1)
        assert limited("auto(100,1000,2)", double)(1).result(60) == 2


def test_the_run_goes_on_after_a_refusal(mode: str, tmp_path: Path) -> None:
    with run(mode, storage=[layer(tmp_path, "ssd", 450)]):
        for _ in range(3):
            with pytest.raises(ConstraintError):
                limited(451, double)(1)
        assert limited(450, double)(1).result(60) == 2
        barrier()


# --- admission ----------------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@only_workers
@pytest.mark.parametrize(
    ("bandwidth", "asked", "expected"),
    [(100, 100, 1), (100, 51, 1), (100, 35, 2), (100, 25, 4), ("0.3MB/s", "0.1MB/s", 3), (450, "150MB/s", 3)],
)
def test_as_many_run_as_the_bandwidth_bears(
    mode: str, tmp_path: Path, bandwidth: Any, asked: Any, expected: int
) -> None:
    function = limited(asked)
    shared = expected == 4  # which changes nothing where there is one node
    with run(storage=[layer(tmp_path, "ssd", bandwidth, shared=shared)]), Turnstile(tmp_path) as door:
        calls = [function(door) for _ in range(expected + 3)]
        door.arrivals(expected)
        door.nobody_else()
        for _ in range(3):
            door.let_go()
            door.arrivals(1)  # one comes for each that goes
        door.let_go(expected)
        assert max(wait_on(calls)) == expected


@only_workers
def test_the_executors_are_a_limit_too(mode: str, tmp_path: Path) -> None:
    function = limited(1)
    with run(io_executors=2, storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        calls = [function(door) for _ in range(5)]
        door.arrivals(2)
        door.let_go(5)
        assert max(wait_on(calls)) == 2


@only_workers
def test_two_functions_share_the_budget_of_a_device(mode: str, tmp_path: Path) -> None:
    red, blue = limited(60), limited(20)
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        red(door, "red")
        for _ in range(3):
            blue(door, "blue")
        assert sorted(door.arrivals(3)) == ["blue", "blue", "red"]
        door.nobody_else()
        door.let_go()  # whoever it was: the third blue one fits now
        assert door.arrivals(1) == ["blue"]
        door.let_go(3)


@only_workers
def test_a_task_that_does_not_fit_does_not_hold_back_those_behind_it(mode: str, tmp_path: Path) -> None:
    red, blue = limited(60), limited(20)
    with run(io_scheduler="fcfs", storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        for function, name in [(red, "red"), (red, "second red"), (blue, "blue"), (blue, "blue")]:
            function(door, name)
        assert sorted(door.arrivals(3)) == ["blue", "blue", "red"]
        door.nobody_else()
        door.let_go(3)
        assert door.arrivals(1) == ["second red"]
        door.let_go()


@only_workers
def test_a_busy_device_holds_back_neither_computing_nor_io_without_constraints(mode: str, tmp_path: Path) -> None:
    function = limited(100)
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        calls = [function(door) for _ in range(2)]
        door.arrivals(1)
        assert wait_on([task(returns=1)(double)(2), io(task(returns=1)(double))(3)]) == [4, 6]
        assert not any(call.done() for call in calls)
        door.let_go(2)


@only_workers
def test_waiting_tasks_go_to_the_next_layer_if_that_bears_them(mode: str, tmp_path: Path) -> None:
    function = limited(50, pass_and_write, path=FILE_OUT)
    layers = [layer(tmp_path, "fast", 100), layer(tmp_path, "slow", 50), layer(tmp_path, "slowest", 49)]
    with run(storage=layers), Turnstile(tmp_path) as door:
        calls = [function(door, tmp_path / f"{i}") for i in range(5)]
        door.arrivals(3)
        door.nobody_else()
        door.let_go(5)
        assert sorted(wait_on(calls)[:3]) == ["fast", "fast", "slow"]


@only_workers
def test_a_constraint_admits_and_does_not_slow_down(mode: str, tmp_path: Path) -> None:
    """A task that takes one byte a second may write as fast as it can."""

    @constraint(storage_bw="1B/s")
    @io
    @task(path=FILE_OUT)
    def dump(path: Any) -> None:
        Path(path).write_bytes(bytes(1_000_000))

    with run(storage=[layer(tmp_path, "ssd", 100)]):
        dump(tmp_path / "a").result(60)


def test_many_constrained_tasks_all_get_done(mode: str, tmp_path: Path) -> None:
    functions = [limited(bandwidth, double) for bandwidth in (7, 13, 30, 99)]
    with run(mode, io_executors=3, storage=[layer(tmp_path, "ssd", 100), layer(tmp_path, "disk", 20)]):
        calls = [functions[i % 4](i) for i in range(200)]
        assert wait_on(calls) == [2 * i for i in range(200)]


# --- tokens come back, however the attempt ends -------------------------------------------------------------------


def expect_the_whole_device(door: Turnstile) -> None:
    """A task that needs all of the device starts: nothing is missing from its budget."""
    limited(100)(door, "whole")
    assert door.arrivals(1) == ["whole"]
    door.let_go()


@only_workers
@pytest.mark.parametrize("attempts", [1, 5])
def test_bandwidth_returns_after_failures(mode: str, tmp_path: Path, attempts: int) -> None:
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        failing = limited(100, fail_after_passing)
        for _ in range(attempts):
            future = failing(door)
            door.arrivals(1)
            door.let_go()
            with pytest.raises(OSError, match="upside down"):
                future.result(60)
        expect_the_whole_device(door)


@only_workers
def test_a_task_that_waits_is_told_of_bandwidth_returned_by_a_failure(mode: str, tmp_path: Path) -> None:
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        failed = limited(100, fail_after_passing)(door, "failing")
        limited(100)(door, "waiting")
        assert door.arrivals(1) == ["failing"]
        door.let_go()
        assert door.arrivals(1) == ["waiting"]
        door.let_go()
        with pytest.raises(OSError):
            failed.result(60)


@only_workers
def test_bandwidth_returns_after_a_retry(mode: str, tmp_path: Path) -> None:
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        future = limited(100, fail_at_first, retries=1)(door, "again", str(tmp_path / "marker"))
        door.let_go(2)
        assert door.arrivals(2) == ["again", "again"]
        assert future.result(60) == 1
        expect_the_whole_device(door)


@only_workers
def test_bandwidth_returns_when_a_worker_dies(mode: str, tmp_path: Path) -> None:
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        future = limited(100, die_at_once)(door)
        waiting = limited(100)(door, "waiting")
        with pytest.raises(penstock.WorkerDied):
            future.result(60)
        assert door.arrivals(1) == ["waiting"]
        door.let_go()
        assert waiting.result(60) == 1


@only_workers
def test_bandwidth_returns_after_a_timeout(mode: str, tmp_path: Path) -> None:
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        with pytest.raises(penstock.TaskTimeout):
            limited(100, timeout=0.3)(door, "whole").result(60)
        assert limited(100, double)(4).result(60) == 8


@only_workers
def test_a_waiting_task_that_is_cancelled_takes_nothing(mode: str, tmp_path: Path) -> None:
    function = limited(100)
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        function(door, "first")
        door.arrivals(1)
        waiting = function(door, "second")
        assert waiting.cancel()
        with pytest.raises(TaskCancelled):
            waiting.result(60)
        door.let_go()
        expect_the_whole_device(door)


@only_workers
def test_bandwidth_returns_after_a_running_task_is_cancelled(mode: str, tmp_path: Path) -> None:
    """Whether a running task can be cancelled or not: its bandwidth is free once it has ended."""
    with run(storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        running = limited(100)(door)
        door.arrivals(1)
        penstock.cancel(running)
        if not running.done():
            door.let_go()
        expect_the_whole_device(door)


# --- the three schedulers -----------------------------------------------------------------------------------------

SCHEDULERS = ["fcfs", "priority", "backfilling", "FcfsScheduler", "IOPriorityScheduler", "IOBackfillingScheduler"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_by_name(mode: str, tmp_path: Path, name: str) -> None:
    functions = [limited(35, double), limited(25, double)]
    with run(mode, io_executors=4, io_scheduler=name, storage=[layer(tmp_path, "ssd", 100)]):
        assert wait_on([functions[i % 2](i) for i in range(40)]) == [2 * i for i in range(40)]


def test_an_unknown_scheduler_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="backfiling") as caught:
        run(io_scheduler="backfiling")
    assert "backfilling" in str(caught.value) and "fcfs" in str(caught.value)


def order_of_starts(tmp_path: Path, scheduler: str, names: list[str], **settings: Any) -> list[str]:
    """Who starts after whom where one task runs at a time: those named wait until the first is let go."""
    bandwidth = {"red": 35, "blue": 25, "green": 30}
    functions = {name: limited(asked) for name, asked in bandwidth.items()}
    settings = {"io_executors": 1, "io_scheduler": scheduler} | settings
    with run(storage=[layer(tmp_path, "ssd", 100)], **settings), Turnstile(tmp_path) as door:
        limited(1)(door, "first")
        assert door.arrivals(1) == ["first"]
        for name in names:
            functions[name](door, name)
        door.let_go(1 + len(names))
        return door.arrivals(len(names))


@only_workers
@pytest.mark.parametrize("scheduler", ["priority", "backfilling"])
def test_those_that_ask_for_more_go_first(mode: str, tmp_path: Path, scheduler: str) -> None:
    names = ["blue", "green", "red", "blue", "red"]
    assert order_of_starts(tmp_path, scheduler, names) == ["red", "red", "green", "blue", "blue"]


@only_workers
def test_first_come_first_served(mode: str, tmp_path: Path) -> None:
    names = ["blue", "green", "red", "blue", "red"]
    assert order_of_starts(tmp_path, "fcfs", names) == names


@only_workers
@pytest.mark.parametrize(("scheduler", "expected"), [("priority", 2), ("fcfs", 3)])
def test_with_priority_nobody_passes_a_task_that_does_not_fit(
    mode: str, tmp_path: Path, scheduler: str, expected: int
) -> None:
    """Bandwidth 100, red 35, blue 25: two red ones run, and a blue one would fit beside them; a third red one waits."""
    red, blue = limited(35), limited(25)
    settings = {"io_scheduler": scheduler, "io_ageing": "off"}
    with run(storage=[layer(tmp_path, "ssd", 100)], **settings), Turnstile(tmp_path) as door:
        for function, name in [(red, "red")] * 3 + [(blue, "blue")]:
            function(door, name)
        came = door.arrivals(expected)
        assert sorted(came) == ["blue", "red", "red"][3 - expected :]
        door.nobody_else()
        door.let_go(4)
        barrier()


@only_workers
@pytest.mark.parametrize(("ageing", "starves"), [(0.05, False), ("off", True)])
def test_a_task_that_was_passed_over_for_long_goes_first(mode: str, tmp_path: Path, ageing: Any, starves: bool) -> None:
    """With ageing, a task that asks for little does not starve behind a stream of those that ask for much."""
    red, blue = limited(100), limited(25)
    settings = {"io_scheduler": "priority", "io_ageing": ageing}
    with run(storage=[layer(tmp_path, "ssd", 100)], **settings), Turnstile(tmp_path) as door:
        red(door, "red")
        blue(door, "blue")
        names = door.arrivals(1)
        begun = time.monotonic()
        while "blue" not in names and time.monotonic() < begun + (0.5 if starves else 60.0):
            red(door, "red")  # there is always another one
            noop().result(60)
            door.let_go()
            names += door.arrivals(1)
        assert ("blue" not in names) is starves


@pytest.mark.parametrize("wrong", [-1, "soon", "-5s"])
def test_an_age_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="io_ageing"):
        run(io_ageing=wrong)
