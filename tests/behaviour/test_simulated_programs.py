"""Programs in simulated mode: their own code runs, their tasks only take time, and nothing on disk changes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import json
import operator
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.behaviour.conftest import Script

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, INOUT, DefinitionError, constraint, io, task, wait_on
from penstock.errors import ConfigError, SimulatedValueError
from penstock.model.profiles import Profile
from penstock.model.resources import Node, StorageLayer
from penstock.model.tasks import FailureKind
from penstock.runtime import session
from penstock.runtime.config import load_config
from penstock.runtime.profiles import profile_cache
from penstock.runtime.simulated import run_simulated, simulated_nodes
from penstock.runtime.simulated_durations import parse_duration, parse_given
from penstock.sim import Lognormal, Network, Normal, Outcome, Simulation, Uniform, Workload

GB = 10**9
MB = 10**6


def nodes(count: int, cpus: int, *storage: StorageLayer) -> list[Node]:
    return [Node(f"n{i}", cpus, 64 * GB, storage=storage, io_executors=16) for i in range(1, count + 1)]


def simulate(program: Callable[[], object], count: int = 1, cpus: int = 2, **options: Any) -> Outcome:
    return run_simulated(program, **({"nodes": nodes(count, cpus)} | options))


@task(duration=1.5)
def fixed(*args: Any) -> Any:
    raise AssertionError("a simulated task must not be executed")


@task(duration="2 s")
def written(*args: Any) -> Any: ...


@task
def undeclared(*args: Any) -> Any: ...


@task(returns=2, duration=1)
def pair(*args: Any) -> Any: ...


@task(duration=1, obj=INOUT)
def update(obj: Any) -> None: ...


# --- durations --------------------------------------------------------------------------------------------------------


def test_tasks_take_their_declared_durations_on_the_nodes_there_are() -> None:
    def program() -> None:
        for _ in range(10):
            fixed()

    outcome = simulate(program, count=2, cpus=2)
    assert (outcome.makespan, outcome.done, outcome.failed) == (4.5, 10, 0)
    assert sum(outcome.busy.values()) == 15.0


def test_dependent_tasks_take_their_time_one_after_the_other() -> None:
    assert simulate(lambda: written(fixed(written()))).makespan == 5.5


def test_a_duration_of_the_arguments() -> None:
    @task(duration=lambda n, scale=1.0: n * scale)
    def grows(n: int, scale: float = 1.0) -> None: ...

    assert simulate(lambda: grows(3)).makespan == 3
    assert simulate(lambda: grows(3, scale=0.5)).makespan == 1.5
    assert simulate(lambda: grows(n=4)).makespan == 4


def test_a_duration_of_arguments_sees_what_tasks_declare_to_return() -> None:
    @task(duration=1, simulated=lambda: 5)
    def size() -> int: ...  # type: ignore[empty-body]

    @task(duration=lambda sizes: sum(sizes))
    def process(sizes: Any) -> None: ...

    assert simulate(lambda: process([size(), size()])).makespan == 11


def test_a_duration_of_arguments_that_needs_an_undeclared_value_says_so() -> None:
    @task(duration=lambda n: 2 * n)
    def process(n: Any) -> None: ...

    with pytest.raises(SimulatedValueError, match="fixed#1") as caught:
        simulate(lambda: process(fixed()))
    assert any("duration" in note and "process" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("duration", [Normal(10, 2), Lognormal(10, 0.3), Uniform(5, 15)])
def test_distributions_are_drawn_from_the_seed(duration: Any) -> None:
    @task(duration=duration)
    def draws() -> None: ...

    def program() -> None:
        for _ in range(400):
            draws()

    once = simulate(program, seed=1)
    assert once.makespan == simulate(program, seed=1).makespan
    assert once.makespan != simulate(program, seed=2).makespan
    assert sum(once.busy.values()) / 400 == pytest.approx(10, rel=0.1)


def test_durations_do_not_depend_on_the_scheduler_or_the_machine() -> None:
    @task(duration=Normal(10, 2))
    def draws() -> None: ...

    def program() -> None:
        for _ in range(20):
            draws()

    totals = {
        round(sum(simulate(program, cpus=cpus, scheduler=scheduler).busy.values()), 6)
        for cpus in (1, 7)
        for scheduler in ("fifo", "lifo")
    }
    assert len(totals) == 1


def test_given_goes_before_declared_declared_before_recorded_recorded_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "profiles.json"
    monkeypatch.setenv("PENSTOCK_PROFILES", str(cache))
    names = [f"{__name__}:{one}" for one in ("fixed", "undeclared")]
    profile_cache(str(cache)).save([Profile(name, "", 3, 7.0, 0.0) for name in names])
    written_before = cache.read_bytes()

    assert simulate(lambda: fixed(), durations={"fixed": 4.0}).makespan == 4
    assert simulate(lambda: fixed(), default_duration=9.0).makespan == 1.5
    assert simulate(lambda: undeclared(), default_duration=9.0).makespan == 7
    assert simulate(lambda: undeclared(), durations={"undeclared": 2.0}, default_duration=9.0).makespan == 2
    monkeypatch.setenv("PENSTOCK_PROFILES", "off")
    assert simulate(lambda: undeclared(), default_duration=9.0).makespan == 9
    assert cache.read_bytes() == written_before


def test_what_was_recorded_has_its_mean_and_its_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "profiles.json"
    monkeypatch.setenv("PENSTOCK_PROFILES", str(cache))
    profile_cache(str(cache)).save([Profile(f"{__name__}:undeclared", "", 50, 3.0, 2.0)])
    seconds: list[float] = []

    def program() -> None:
        for _ in range(2000):
            undeclared()

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

        def event(self, event: Any, now: float) -> None:
            if hasattr(event, "outputs"):
                seconds.append(event.seconds)

    simulate(program, cpus=2000, observer=Watching())
    assert numpy.mean(seconds) == pytest.approx(3.0, rel=0.1)
    assert numpy.std(seconds) == pytest.approx(2.0, rel=0.2)


def test_a_task_without_any_duration_is_an_error_at_its_call_that_names_the_ways() -> None:
    with pytest.raises(ConfigError, match="undeclared has no duration") as caught:
        simulate(lambda: undeclared())
    for way in ("@task(duration=", "--duration undeclared=", "for real", "--default-duration"):
        assert way in str(caught.value)


def test_a_method_is_given_a_duration_by_its_name_or_its_whole_name() -> None:
    class Solver:
        @task
        def step(self) -> None: ...

    whole = Solver.step.declaration.name
    assert simulate(lambda: Solver().step(), durations={"step": 3.0}).makespan == 3
    assert simulate(lambda: Solver().step(), durations={whole: 2.0, "step": 3.0}).makespan == 2


def test_a_duration_given_for_nobody_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(lambda: fixed(), durations={"fixde": 1.0})
    assert "fixde" in capsys.readouterr().err
    simulate(lambda: fixed(), durations={"fixed": 1.0})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("1.5", 1.5),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("0", 0.0),
        ("normal(2, 0.5)", Normal(2, 0.5)),
        ("Normal(1m, 5s)", Normal(60, 5)),
        (" lognormal( 2 , 0.3 ) ", Lognormal(2, 0.3)),
        ("uniform(1, 3)", Uniform(1, 3)),
    ],
)
def test_durations_as_one_writes_them(text: str, duration: Any) -> None:
    assert parse_duration(text) == duration
    assert parse_given(f" checkpoint = {text}") == ("checkpoint", duration)


@pytest.mark.parametrize("text", ["", "fast", "-1", "normal(2)", "gauss(1, 2)", "uniform(3, 1)", "lognormal(2, x)"])
def test_durations_that_mean_nothing(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_duration(text)


@pytest.mark.parametrize("text", ["checkpoint", "=2", "checkpoint="])
def test_given_durations_that_mean_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match="name=duration"):
        parse_given(text)


@pytest.mark.parametrize(
    "options",
    [
        {"duration": -1},
        {"duration": "soon"},
        {"duration": True},
        {"duration": [1]},
        {"duration": float("nan")},
        {"duration": Normal(-1, 1)},
        {"duration": Uniform(3, 1)},
        {"duration": Lognormal(1, -1)},
        {"size": -5},
        {"size": "ten"},
        {"size": {"nobody": "1MB"}},
        {"simulated": 5},
    ],
)
def test_nonsense_is_refused_where_it_is_written(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="@task of"):

        @task(**options)
        def wrong(x: Any) -> None: ...


def test_in_a_real_run_none_of_it_matters() -> None:
    @task(duration=1000, size="1TB", simulated=lambda x: "nothing")
    def double(x: int) -> int:
        return 2 * x

    with penstock.Runtime(mode="inline"):
        assert double(4).result() == 8


# --- values -----------------------------------------------------------------------------------------------------------


def value_of_a_task() -> Any:
    with penstock.Runtime(mode="simulated", cpus=1):
        return fixed().result()


NEEDS: dict[str, Callable[[Any], object]] = {
    "sum": lambda value: value + 1,
    "sum from the right": lambda value: 1 + value,
    "in place": lambda value: operator.iadd(value, 1),
    "power": lambda value: value**2,
    "negation": lambda value: -value,
    "less": lambda value: value < 3,
    "equal": lambda value: value == 3,
    "unequal": lambda value: value != 3,
    "condition": lambda value: 1 if value else 2,
    "not": lambda value: not value,
    "int": int,
    "float": float,
    "index": lambda value: [1, 2][value],
    "round": round,
    "len": len,
    "iteration": list,
    "unpacking": lambda value: max(*value),
    "item": lambda value: value[0],
    "setting": lambda value: operator.setitem(value, 0, 1),
    "contains": lambda value: 1 in value,
    "call": lambda value: value(),
    "attribute": lambda value: value.shape,
    "method": lambda value: value.append(1),
    "set attribute": lambda value: setattr(value, "x", 1),
    "with": lambda value: value.__enter__(),
    "format": lambda value: f"{value:.2f}",
    "percent": lambda value: "%d" % value,  # noqa: UP031
    "pickle": pickle.dumps,
    "path": open,
    "array": numpy.asarray,
    "array sum": lambda value: numpy.ones(3) + value,
    "numpy function": numpy.sum,
    "sort": lambda value: sorted([value, 1]),
    "range": range,
}


@pytest.mark.parametrize("need", NEEDS.values(), ids=NEEDS)
def test_what_needs_a_value_says_which_and_what_to_do(need: Callable[[Any], object]) -> None:
    value = value_of_a_task()
    with pytest.raises(SimulatedValueError) as caught:
        need(value)
    message = str(caught.value)
    assert "fixed#1" in message
    assert "simulated=" in message
    assert Path(__file__).name in message or "line" in message


def test_the_message_names_the_line_of_the_program() -> None:
    value = value_of_a_task()
    with pytest.raises(SimulatedValueError) as caught:
        value + 1
    line = caught.traceback[0].lineno + 1
    assert f"{Path(__file__).name}, line {line}" in str(caught.value)


def test_what_a_value_may_be_used_for() -> None:
    value, other = value_of_a_task(), value_of_a_task()
    assert "simulated" in repr(value)
    assert "fixed" in str(value)
    assert f"{value}" == repr(value)
    assert value is not other
    assert value == value
    assert {value: 1}[value] == 1
    assert value in [value, 3]
    assert copy.deepcopy([value])[0] is value
    assert copy.copy(value) is value
    assert not hasattr(value, "_repr_html_")


def test_a_value_passed_on_is_a_dependency_though_it_is_there() -> None:
    """The program waits for the first, so they cannot overlap; the engine knows the edge all the same."""
    waited: list[float] = []

    def program() -> None:
        first, second = pair()
        value = wait_on(first)
        waited.append(session.current().now)
        update({"inside": [value]})
        fixed(value, wait_on(second))

    assert simulate(program).makespan == 2.5
    assert waited == [1.0]


def test_wait_on_gives_placeholders_in_the_same_shape() -> None:
    def program() -> None:
        values = wait_on([fixed(), (fixed(), 3)])
        assert isinstance(values, list)
        assert values[1][1] == 3
        assert "fixed#2" in repr(values[1][0])

    simulate(program)


def test_a_placeholder_for_a_collection_is_read_but_not_updated() -> None:
    @task(duration=1, parts=penstock.COLLECTION_IN)
    def reads(parts: Any) -> None: ...

    @task(duration=1, parts=penstock.COLLECTION_INOUT)
    def updates(parts: Any) -> None: ...

    assert simulate(lambda: reads(wait_on(fixed()))).makespan == 2.5
    with pytest.raises(SimulatedValueError, match="fixed#1"):
        simulate(lambda: updates(wait_on(fixed())))


def test_declared_values_are_given_and_reach_other_declarations() -> None:
    @task(duration=1, simulated=lambda x: x + 1)
    def increment(x: Any) -> int: ...  # type: ignore[empty-body]

    def program() -> None:
        assert increment(1).result() == 2
        assert increment(increment(increment(0))).result() == 3
        assert wait_on([increment(5)]) == [6]

    assert simulate(program).makespan == 5


def test_a_loop_until_convergence() -> None:
    @task(duration=2, simulated=lambda i: 1.0 / (i + 1))
    def error_of(i: int) -> float: ...  # type: ignore[empty-body]

    rounds = []

    def program() -> None:
        error = 1.0
        while error > 0.2:
            rounds.append(1)
            error = error_of(len(rounds)).result()

    assert simulate(program).makespan == 2 * len(rounds) == 8


def test_several_declared_values() -> None:
    @task(returns=2, duration=1, simulated=lambda: (1, 2))
    def both() -> Any: ...

    @task(returns=2, duration=1, simulated=lambda: (1, 2, 3))
    def three() -> Any: ...

    def program() -> None:
        first, second = both()
        assert (first.result(), second.result()) == (1, 2)
        with pytest.raises(penstock.ReturnsMismatch, match="three"):
            three()[0].result()

    simulate(program)


def test_objects_that_tasks_update_stay_the_programs_own_and_order_the_tasks() -> None:
    def program() -> None:
        state, alone = {"a": 1}, [1]
        for _ in range(3):
            update(state)
        update(alone)
        assert wait_on(state) is state
        assert state == {"a": 1}
        assert session.current().now == 3
        state["a"] = 2
        update(state)
        assert wait_on(state, alone) == [{"a": 2}, [1]]

    assert simulate(program).makespan == 4


def test_numbers_in_a_collection_that_a_task_replaces() -> None:
    @task(duration=1, numbers=penstock.COLLECTION_INOUT)
    def scale(numbers: Any) -> None: ...

    def program() -> None:
        numbers = [1, 2]
        scale(numbers)
        scale(numbers)
        wait_on(numbers)
        with pytest.raises(SimulatedValueError):
            sum(numbers)

    assert simulate(program).makespan == 2


def test_a_shared_object_is_not_stored() -> None:
    def program() -> None:
        table = penstock.share(list(range(10)))
        assert "fixed" in repr(fixed(table).result())
        assert table == list(range(10))

    simulate(program)


def test_what_cannot_be_sent_is_refused_as_in_a_real_run() -> None:
    with pytest.raises(penstock.SerializationError, match="fixed"):
        simulate(lambda: fixed(threading.Lock()))


# --- failures ---------------------------------------------------------------------------------------------------------


@task(duration=2, retries=2, simulated=lambda: 1 / 0)
def breaks() -> None: ...


def test_what_a_declaration_raises_is_how_the_task_fails() -> None:
    def program() -> None:
        with pytest.raises(ZeroDivisionError):
            breaks().result()

    outcome = simulate(program)
    assert outcome.makespan == 6  # three attempts
    assert outcome.failures == {FailureKind.EXCEPTION: 1}


def test_those_who_need_a_failed_task_fail_with_it_and_take_no_time() -> None:
    @task(duration=5, simulated=lambda x: x + 1)
    def needs(x: Any) -> int: ...  # type: ignore[empty-body]

    def program() -> None:
        with pytest.raises(penstock.DependencyFailed, match="breaks"):
            needs(breaks()).result()

    assert simulate(program).makespan == 6


def test_an_ignored_failure_gives_none() -> None:
    @task(duration=1, on_failure="ignore", simulated=lambda: 1 / 0)
    def optional() -> None: ...

    @task(duration=1, simulated=lambda x: x is None)
    def sees_none(x: Any) -> bool: ...  # type: ignore[empty-body]

    def program() -> None:
        found = optional()
        assert sees_none(found).result() is True
        assert found.result() is None

    assert simulate(program).makespan == 2


def test_a_timeout_is_virtual() -> None:
    @task(duration=100, timeout=5)
    def long() -> None: ...

    def program() -> None:
        with pytest.raises(penstock.TaskTimeout):
            long().result()

    assert simulate(program).makespan == pytest.approx(5)


def test_failures_nobody_looked_at_are_in_the_outcome_or_raised_by_a_barrier() -> None:
    assert simulate(lambda: breaks()).failed == 1
    with pytest.raises(ZeroDivisionError):
        simulate(lambda: (breaks(), penstock.barrier()))


def test_a_constraint_that_no_node_meets_is_an_error_at_the_call() -> None:
    @constraint(computing_units=8)
    @task(duration=1)
    def wide() -> None: ...

    with pytest.raises(penstock.ConstraintError, match="wide"):
        simulate(lambda: wide(), cpus=4)
    assert simulate(lambda: (wide(), wide()), cpus=8).makespan == 2


def test_a_lost_node() -> None:
    def program() -> None:
        for _ in range(4):
            written()

    assert simulate(program, count=2, cpus=1, lost=[(1.0, "n2")]).makespan == pytest.approx(8.0)


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_time_passes_only_while_the_program_waits() -> None:
    def program() -> None:
        driver = session.current().driver
        first, second = fixed(), fixed(fixed())
        assert driver.now == 0
        first.result()
        assert driver.now == 1.5
        assert not second.done()
        second.result()
        assert driver.now == 3

    simulate(program)


def test_timeouts_are_virtual() -> None:
    def program() -> None:
        future = fixed()
        with pytest.raises(TimeoutError, match="virtual"):
            future.result(timeout=1)
        done, pending = penstock.wait([future], timeout=0.25)
        assert (done, pending) == (set(), {future})
        done, pending = penstock.wait([future, fixed(future)], timeout=0.25)
        assert done == {future}
        assert len(pending) == 1

    assert simulate(program).makespan == 3


def test_as_completed_gives_the_order_of_virtual_time() -> None:
    @task(duration=lambda n: n)
    def takes(n: float) -> None: ...

    def program() -> None:
        futures = [takes(n) for n in (3, 1, 2)]
        assert list(penstock.as_completed(futures)) == [futures[1], futures[2], futures[0]]
        slow = [takes(1), takes(10)]
        seen = []
        with pytest.raises(TimeoutError, match=r"1 \(of 2\)"):
            for future in penstock.as_completed(slow, timeout=5):
                seen.append(future)
        assert seen == slow[:1]
        assert list(penstock.as_completed([])) == []

    simulate(program, cpus=4)


def test_the_standard_librarys_wait_and_as_completed() -> None:
    def program() -> None:
        driver = session.current().driver
        futures = [fixed(), fixed(fixed())]
        done, _ = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED)
        assert done == {futures[0]}
        assert driver.now == 1.5
        assert list(concurrent.futures.as_completed(futures)) == futures

    simulate(program)


def test_a_program_that_asks_until_it_is_done() -> None:
    def program() -> None:
        future, asked = fixed(fixed()), 0
        while not future.done():
            asked += 1
        assert 1 <= asked < 10

    assert simulate(program).makespan == 3


def test_callbacks_may_call_tasks() -> None:
    def program() -> None:
        called: list[Any] = []
        future = fixed()
        future.add_done_callback(lambda done: called.append(written(done)))
        penstock.barrier()
        assert [one.done() for one in called] == [True]

    assert simulate(program).makespan == 3.5


def test_a_callback_may_wait_while_others_are_to_be_called() -> None:
    def program() -> None:
        seen: list[Any] = []
        futures = [fixed(), fixed()]
        for future in futures:
            future.add_done_callback(lambda done: seen.append((done, written(done).result())))
        penstock.barrier()
        assert [future for future, _ in seen] == futures

    assert simulate(program).makespan == 5.5


def test_a_program_that_sleeps_until_a_callback_wakes_it() -> None:
    def program() -> None:
        woken = threading.Event()
        fixed().add_done_callback(lambda _: woken.set())
        assert woken.wait(30)

    simulate(program)


def test_futures_can_be_awaited() -> None:
    order: list[str] = []

    async def branch(name: str, *calls: Any) -> None:
        for call in calls:
            await call()
            order.append(name)

    async def main() -> None:
        await asyncio.gather(branch("a", written, written), branch("b", fixed, fixed, fixed))

    assert simulate(lambda: asyncio.run(main())).makespan == 4.5
    assert order == ["b", "a", "b", "a", "b"]


def test_an_executor() -> None:
    def program() -> None:
        with penstock.Executor() as executor:
            futures = [executor.submit(len, [1]) for _ in range(4)]
            assert len(list(executor.map(len, [[1], [2]]))) == 2
        assert all(future.done() for future in futures)

    assert simulate(program, default_duration=1.0).makespan == 3


def test_an_executor_with_settings_of_its_own_is_simulated_too() -> None:
    def program() -> None:
        with penstock.Executor(max_workers=2) as executor:
            executor.submit(abs, 3)

    assert simulate(program, default_duration=1.0).makespan == 1


def test_maps() -> None:
    def program() -> None:
        results = fixed.map(range(4))
        assert len(results.results()) == 4
        assert "fixed#4" in repr(results[3].result())

    assert simulate(program).makespan == 3


def test_cancelling() -> None:
    def program() -> None:
        running, waiting = fixed(), fixed(fixed())
        assert waiting.cancel()
        assert waiting.cancelled()
        assert penstock.cancel(running)
        with pytest.raises(penstock.TaskCancelled):
            running.result()

    assert simulate(program).makespan == 1.5


def test_priorities() -> None:
    ended: list[str] = []

    @task(duration=1, priority=True)
    def urgent() -> None: ...

    def program() -> None:
        later = [fixed() for _ in range(3)]
        soon = urgent()
        for name, future in [*((f"later{i}", one) for i, one in enumerate(later)), ("soon", soon)]:
            future.add_done_callback(lambda _, name=name: ended.append(name))  # type: ignore[misc]
        penstock.barrier()

    simulate(program, cpus=1)
    assert ended == ["later0", "soon", "later1", "later2"]


def test_threads_of_the_program() -> None:
    def program() -> None:
        ended: list[float] = []
        lock = threading.Lock()

        def work() -> None:
            for _ in range(20):
                fixed(fixed()).result()
            with lock:
                ended.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(ended) == 4

    assert simulate(program, cpus=4).done == 160


def test_waiting_for_what_can_never_happen_is_told() -> None:
    def program() -> None:
        runtime = session.current()
        fixed().result()
        runtime.driver.wait_until(lambda: False)

    with pytest.raises(penstock.PenstockError, match="can never happen"):
        simulate(program)


def test_the_window_makes_the_program_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_WINDOW", "10")
    pending: list[int] = []

    def program() -> None:
        for _ in range(50):
            fixed()
            pending.append(session.current().driver.engine.unfinished)

    assert simulate(program).done == 50
    assert max(pending) <= 10


def test_the_programs_own_time_counts_if_asked_for() -> None:
    def program() -> None:
        fixed()
        sum(range(2_000_000))
        fixed()

    assert simulate(program, cpus=1).makespan == 3
    with_main = simulate(program, cpus=2, main_time=True).makespan
    assert 1.5 < with_main < 1.5 + 5


def test_what_scheduling_costs_shows() -> None:
    def program() -> None:
        for _ in range(10):
            fixed()

    assert simulate(program, cpus=10, decision_seconds=0.1).makespan > 1.5 + 9 * 0.1


# --- files ------------------------------------------------------------------------------------------------------------


@task(duration=1, path=FILE_OUT)
def writes(path: Any) -> None: ...


@task(duration=1, path=FILE_IN)
def reads(path: Any) -> None: ...


@task(duration=1, path=FILE_INOUT)
def appends(path: Any) -> None: ...


def test_files_order_tasks_and_nothing_is_written(in_folder: Path) -> None:
    def program() -> None:
        writes("a")
        appends("a")
        reads("a")
        penstock.barrier()
        reads(Path("a"))  # it is still there when no task knows of it any more

    assert simulate(program).makespan == 4
    assert list(in_folder.iterdir()) == []


def test_reading_what_was_never_written_is_an_error_that_names_the_file(in_folder: Path) -> None:
    def program() -> None:
        writes("a")
        with pytest.raises(SimulatedValueError, match=f"{Path(__file__).name}, line .*{in_folder / 'a'}"):
            penstock.open_file("a")
        assert session.current().now == 1

    simulate(program)


def test_files_on_disk_are_read_and_left_alone(in_folder: Path) -> None:
    (in_folder / "input").write_text("text")

    def program() -> None:
        reads("input")
        with penstock.open_file("input") as file:
            assert file.read() == "text"
        with penstock.open_file("input", "w") as file:
            file.write("other")
        with pytest.raises(SimulatedValueError):
            penstock.open_file("input")
        with pytest.raises(SimulatedValueError):
            penstock.open_file("input", "r+")
        reads("input")
        penstock.delete_file("input")
        with pytest.raises(penstock.CallError, match="does not exist"):
            reads("input")
        with pytest.raises(FileNotFoundError):
            penstock.open_file("input")
        with pytest.raises(FileNotFoundError):
            penstock.delete_file("input")
        writes("input")
        reads("input")
        appends("input")

    simulate(program)
    assert {path.name: path.read_text() for path in in_folder.iterdir()} == {"input": "text"}


def test_files_on_disk_are_left_alone_before_the_first_task_and_after_the_last(in_folder: Path) -> None:
    for name in ("kept", "input"):
        (in_folder / name).write_text("text")

    def program() -> None:
        with penstock.open_file("kept", "w") as file:
            file.write("other")
        with penstock.open_file("new", "w") as file:
            file.write("other")
        penstock.delete_file("input")
        with penstock.Runtime():
            reads("new")
            with pytest.raises(penstock.CallError, match="does not exist"):
                reads("input")
        penstock.delete_file("kept")
        with pytest.raises(FileNotFoundError):
            penstock.delete_file("kept")

    assert simulate(program).done == 1
    assert {path.name: path.read_text() for path in in_folder.iterdir()} == {"kept": "text", "input": "text"}


def test_files_are_left_alone_without_a_runtime_in_simulated_mode(script: Script) -> None:
    (script.folder / "kept").write_text("text")
    program = "import penstock\nwith penstock.open_file('kept', 'w') as file:\n    file.write('other')\n"
    script(program + "penstock.delete_file('kept')\n", PENSTOCK_MODE="simulated")
    assert (script.folder / "kept").read_text() == "text"
    script(program)
    assert (script.folder / "kept").read_text() == "other"


def test_deleting_a_file_that_tasks_write_waits_for_them(in_folder: Path) -> None:
    def program() -> None:
        writes("a")
        reads("a")
        penstock.delete_file("a")
        assert session.current().now == 2
        with pytest.raises(penstock.CallError, match="does not exist"):
            reads("a")

    simulate(program)


def test_an_input_that_is_not_there_is_refused_unless_its_size_is_declared(in_folder: Path) -> None:
    @task(duration=1, path=FILE_IN, size={"path": "100MB"})
    def reads_large(path: str) -> None: ...

    with pytest.raises(penstock.CallError, match=r'size=\{"path"'):
        simulate(lambda: reads("nowhere"))
    ssd = StorageLayer("ssd", str(in_folder), 50 * MB)
    assert simulate(lambda: reads_large("nowhere"), nodes=nodes(1, 1, ssd)).makespan == 3


def test_reading_a_file_of_this_machine_takes_the_time_of_its_size(in_folder: Path) -> None:
    (in_folder / "input").write_bytes(bytes(10 * MB))
    ssd = StorageLayer("ssd", str(in_folder), 5 * MB)
    assert simulate(lambda: reads("input"), nodes=nodes(1, 1, ssd)).makespan == pytest.approx(3)


# --- storage and the network ------------------------------------------------------------------------------------------

SSD = StorageLayer("ssd", "/nowhere/ssd", 100 * MB)


@io
@task(size="200MB", path=FILE_OUT)
def checkpoint(path: str) -> None: ...


def test_io_tasks_take_the_time_of_what_they_write() -> None:
    outcome = simulate(lambda: checkpoint("/nowhere/ssd/a"), nodes=nodes(1, 1, SSD))
    assert outcome.makespan == 2
    assert outcome.devices["n1:ssd"].transferred == 200 * MB


def test_io_tasks_share_a_device_and_overlap_with_computing() -> None:
    def program() -> None:
        for i in range(2):
            checkpoint(f"/nowhere/ssd/{i}")
        written()

    assert simulate(program, nodes=nodes(1, 1, SSD)).makespan == 4


def test_the_duration_of_an_io_task_is_its_own_time() -> None:
    @io
    @task(duration=1, size=lambda path, megabytes: megabytes, path=FILE_OUT)
    def compress(path: str, megabytes: int) -> None: ...

    assert simulate(lambda: compress("/nowhere/ssd/a", 300), nodes=nodes(1, 1, SSD)).makespan == 4


def test_an_io_task_that_only_reads_takes_the_time_of_what_it_reads() -> None:
    @io
    @task(path=FILE_IN)
    def load(path: str) -> None: ...

    def program() -> None:
        checkpoint("/nowhere/ssd/a")
        load("/nowhere/ssd/a")

    assert simulate(program, nodes=nodes(1, 1, SSD)).makespan == 4


def test_an_io_task_of_which_nothing_is_known_needs_a_duration() -> None:
    @io
    @task(path=FILE_OUT)
    def vague(path: str) -> None: ...

    with pytest.raises(ConfigError, match=r"vague transfers.*@task\(size="):
        simulate(lambda: vague("/nowhere/ssd/a"), nodes=nodes(1, 1, SSD))


def test_sizes_by_parameter() -> None:
    @task(duration=1, large=FILE_OUT, small=FILE_OUT, size={"large": "300MB", "small": "100MB", "returns": 0})
    def both(large: str, small: str) -> None: ...

    outcome = simulate(lambda: both(small="/nowhere/ssd/s", large="/nowhere/ssd/l"), nodes=nodes(1, 1, SSD))
    assert outcome.makespan == 5
    assert outcome.devices["n1:ssd"].transferred == 400 * MB


def test_storage_size_stands_for_what_is_written_if_nothing_else_does() -> None:
    @constraint(storage_bw=50, storage_size=100)
    @io
    @task(first=FILE_OUT, second=FILE_OUT)
    def two(first: str, second: str) -> None: ...

    @constraint(storage_bw=50, storage_size=100)
    @io
    @task
    def by_itself(path: str) -> None: ...

    with_files = simulate(lambda: two("/home/a", "/home/b"), nodes=nodes(1, 1, SSD))
    assert with_files.makespan == 1
    assert simulate(lambda: by_itself("/home/a"), nodes=nodes(1, 1, SSD)).makespan == 1


def test_bandwidth_constraints_hold_in_simulated_programs() -> None:
    @constraint(storage_bw="50MB/s")
    @io
    @task(size="100MB", path=FILE_OUT)
    def slow(path: str) -> None: ...

    def program() -> None:
        for i in range(6):
            slow(f"/home/{i}")

    assert simulate(program, nodes=nodes(1, 1, SSD)).makespan == pytest.approx(6)


def test_results_travel_to_other_nodes() -> None:
    @task(duration=1, size="100MB")
    def makes() -> None: ...

    def program() -> None:
        block = makes()
        block.result()
        for _ in range(2):
            written(block)

    fast = simulate(program, count=2, cpus=1).makespan
    slow = simulate(program, count=2, cpus=1, network=Network(50 * MB)).makespan
    assert (fast, slow) == (3, 5)


# --- the run ----------------------------------------------------------------------------------------------------------


def test_the_same_program_takes_the_same_course() -> None:
    @task(duration=Normal(1, 0.3))
    def draws(*args: Any) -> None: ...

    def program() -> None:
        layer: list[Any] = [draws() for _ in range(20)]
        for _ in range(3):
            layer = [draws(*layer[i : i + 3]) for i in range(len(layer))]
        for future in penstock.as_completed(layer):
            draws(future)

    assert simulate(program, count=3, cpus=2, seed=5) == simulate(program, count=3, cpus=2, seed=5)


@settings(max_examples=60, deadline=None)
@given(
    graph=st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 30), max_size=3)), min_size=1, max_size=30),
    cpus=st.integers(1, 3),
    scheduler=st.sampled_from(["fifo", "lifo", "locality", "load_balance", "fifo_data"]),
)
def test_a_program_takes_as_long_as_the_workload_of_its_graph(
    graph: list[tuple[int, set[int]]], cpus: int, scheduler: str
) -> None:
    @task(duration=lambda seconds, *needed: seconds)
    def work(seconds: int, *needed: Any) -> None: ...

    def program() -> None:
        futures: list[Any] = []
        for seconds, needed in graph:
            futures.append(work(seconds, *(futures[i % len(futures)] for i in sorted(needed) if futures)))
        penstock.barrier()

    workload = Workload()
    jobs: list[Any] = []
    for seconds, needed in graph:
        after = [jobs[i % len(jobs)] for i in sorted(needed) if jobs]
        jobs.append(workload.task("work", seconds=float(seconds), after=after))
    expected = Simulation(nodes(2, cpus), workload, scheduler=scheduler).run()
    outcome = simulate(program, count=2, cpus=cpus, scheduler=scheduler)
    assert (outcome.makespan, outcome.busy) == (expected.makespan, expected.busy)


def test_an_implementation_that_no_node_can_host_needs_no_duration() -> None:
    @task(duration=2)
    def small() -> None: ...

    @penstock.implement(of=small)
    @constraint(computing_units=64)
    @task
    def huge() -> None: ...

    def program() -> None:
        for _ in range(4):
            small()

    assert simulate(program, cpus=2).makespan == 4
    with pytest.raises(ConfigError, match="huge has no duration"):
        simulate(program, cpus=64)


def test_a_wrong_simulated_is_named_where_it_fails() -> None:
    @task(duration=1, simulated=lambda: 3)
    def takes_one(step: int) -> int: ...

    def program() -> None:
        takes_one(1).result()

    with pytest.raises(TypeError, match="takes 0 positional arguments") as raised:
        simulate(program)
    assert "in simulated=… of task" in "".join(raised.value.__notes__)
    assert "simulated_runtime.py" not in str(raised.value.__cause__)


def test_constraints_for_a_misspelt_task_are_pointed_out(script: Script) -> None:
    (script.folder / "penstock.toml").write_text("[constraints.narow]\ncomputing_units = 2\n")
    said = script(
        "from penstock import task\n@task(duration=1)\ndef narrow(): ...\nnarrow()\n", PENSTOCK_MODE="simulated"
    ).stderr
    assert "[constraints.narow]" in said and "did you mean narrow?" in said


def test_implementations_have_durations_of_their_own() -> None:
    @constraint(computing_units=2)
    @task(duration=10)
    def exact(x: int) -> None: ...

    @penstock.implement(of=exact)
    @task(duration=1)
    def quick(x: int) -> None: ...

    def program() -> None:
        for i in range(100):
            exact(i)

    assert simulate(program, cpus=4).makespan < 60  # each is tried, then the quick one is taken
    assert simulate(program, cpus=1).makespan == 100  # only the quick one fits
    assert simulate(program, cpus=1, durations={"quick": 2.0}).makespan == 200


def test_durations_are_given_as_they_are_declared() -> None:
    def program() -> None:
        undeclared()
        written()

    assert simulate(program, cpus=1, durations={"written": "3s"}, default_duration="500 ms").makespan == 3.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": []}, "at least one"),
        ({"network": 5}, "expected Network"),
        ({"durations": {"fixed": "soon"}}, "'soon'"),
        ({"default_duration": -1}, "-1"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        simulate(fixed, **options)


def test_what_an_executor_is_given_needs_a_duration() -> None:
    def program() -> None:
        with penstock.Executor() as executor:
            executor.submit(print)

    with pytest.raises(ConfigError, match=r"Executor.submit\(\).*--duration _apply=1.5"):
        simulate(program)
    assert simulate(program, durations={"_apply": 2.0}).makespan == 2


def test_a_file_that_went_with_its_node_is_named_by_the_task_that_reads_it(in_folder: Path) -> None:
    ssd = StorageLayer("ssd", str(in_folder), bandwidth=100.0 * MB)

    def program() -> None:
        writes("a")
        fixed().result()
        fixed().result()
        reads("a").result()

    with pytest.raises(penstock.TaskFailed, match="a was on node n1, which was lost"):
        simulate(program, nodes=nodes(2, 1, ssd), lost=[(2.0, "n1")])


def test_time_passes_when_all_threads_of_a_program_wait() -> None:
    def chain() -> None:
        for _ in range(3):
            written().result()

    def program() -> None:
        threads = [threading.Thread(target=chain) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # One after the other they would take 18 s; what a busy machine lets a thread miss is a step or two.
    assert 6 <= simulate(program, cpus=4).makespan <= 10


def test_a_thread_that_computes_for_itself_holds_up_nobody_for_ever() -> None:
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            pass

    def program() -> None:
        thread = threading.Thread(target=spin)
        thread.start()
        try:
            written().result()
        finally:
            over.set()
            thread.join()

    assert simulate(program).makespan == 2


def test_the_log_goes_to_the_run_directory_which_is_made(script: Script) -> None:
    program = "from penstock import task\n@task(duration=1)\ndef f(): ...\nf()\n"
    said = script(program, PENSTOCK_MODE="simulated", PENSTOCK_RUN_DIR="kept/run").stderr
    assert not said and (script.folder / "kept/run/events.jsonl").read_text().count('"finished"') == 1


def test_sizes_of_parameters_that_there_are_not() -> None:
    @task(duration=1, path=FILE_OUT, size=lambda path: {"pat": "1GB"})
    def sized(path: str) -> None: ...

    with pytest.raises(ConfigError, match="no parameter 'pat'; there are path, returns"):
        simulate(lambda: sized("a"))


def test_a_node_that_joins_later() -> None:
    def program() -> None:
        for _ in range(4):
            written()

    assert simulate(program, cpus=1, joins=[(3.0, Node("late", 1, GB))]).makespan == 6


def test_the_program_is_simulated_whatever_runtime_it_makes() -> None:
    def program() -> None:
        with penstock.Runtime(cpus=1, mode="inline") as runtime:
            assert runtime.simulated
            assert len({fixed().result(), fixed().result()}) == 2

    assert simulate(program, cpus=2).makespan == 3


def test_what_the_program_raises_passes_and_leaves_no_runtime_behind() -> None:
    def program() -> None:
        fixed()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        simulate(program)
    assert session.running() is None
    assert not penstock.Runtime(mode="inline").simulated


def test_a_program_without_tasks() -> None:
    outcome = simulate(lambda: None)
    assert (outcome.makespan, outcome.done) == (0, 0)


def test_an_event_log_as_of_a_real_run(tmp_path: Path) -> None:
    with penstock.Runtime(mode="simulated", cpus=2, run_dir=tmp_path):
        wait_on([written(fixed()) for _ in range(4)])
    records = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    kinds = [record["event"] for record in records]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_ended"
    assert kinds.count("launched") == kinds.count("finished") == 8
    assert records[-1]["t"] == 7.0
    assert sum(record["seconds"] for record in records if record["event"] == "waited") == 7.0


def test_the_environment_makes_a_program_simulated(script: Script, tmp_path: Path) -> None:
    text = """
import penstock
@penstock.task(duration="1h", path=penstock.FILE_OUT)
def work(path):
    open(path, "w").close()
print(work("out").result())
penstock.barrier()
print(penstock.runtime.session.current().now)
"""
    done = script(text, PENSTOCK_MODE="simulated", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.stdout.splitlines() == ["<simulated value of task work#1>", "3600.0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.py"]


def test_a_program_that_needs_a_value_ends_with_its_line(script: Script) -> None:
    text = """
import penstock
@penstock.task(duration=1)
def square(x):
    return x * x
total = 0
for i in range(3):
    total += square(i).result()
"""
    done = script(text, status=1, PENSTOCK_MODE="simulated")
    assert "app.py, line 8" in done.stderr
    assert "square#1" in done.stderr
    assert "@task(simulated=" in done.stderr


def test_nothing_heavy_is_imported_for_a_declaration(script: Script) -> None:
    text = """
import sys, penstock
@penstock.task(duration="1.5 s", size={"x": "1MB"}, simulated=lambda x: x)
def f(x): ...
@penstock.task(duration=lambda x: x)
def g(x): ...
print("penstock.sim" in sys.modules)
"""
    assert script(text).stdout == "False\n"


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_of_settings() -> None:
    config = load_config({"cpus": 4, "memory": "8GB"}).config
    found = simulated_nodes(config)
    assert [(node.name, node.cpus, node.memory) for node in found] == [("node", 4, 8 * GB)]
    many = simulated_nodes(config, 100, 48)
    assert len(many) == 100
    assert {node.cpus for node in many} == {48}
    assert (many[0].name, many[-1].name) == ("node001", "node100")


def test_nodes_that_are_described(tmp_path: Path) -> None:
    kinds = [
        {"name": "thin", "count": 2, "cpus": 48, "memory": "96GB"},
        {
            "name": "fat",
            "cpus": 128,
            "memory": "1TB",
            "storage": [{"name": "nvme", "mount": "/nvme", "bandwidth": "3GB/s"}],
        },
    ]
    config = load_config({"node": kinds}, {}, str(tmp_path)).config
    found = simulated_nodes(config)
    assert [(node.name, node.cpus) for node in found] == [("thin1", 48), ("thin2", 48), ("fat", 128)]
    assert [layer.name for layer in found[2].storage] == ["nvme"]
    with pytest.raises(ConfigError, match="kinds of node"):
        simulated_nodes(config, 5)
    one = load_config({"node": kinds[:1]}, {}, str(tmp_path)).config
    assert len(simulated_nodes(one, 5)) == 5


@pytest.mark.parametrize("wrong", [{"count": 0}, {"cores": -1}])
def test_no_nodes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        simulated_nodes(load_config({"cpus": 1}).config, **wrong)


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer makes it slow")
def test_many_calls_are_quick() -> None:
    """A bound far below what it takes, against work that grows with the number of tasks."""
    import time

    def program() -> None:
        for i in range(20_000):
            fixed(i)

    began = time.process_time()
    assert simulate(program, count=100, cpus=48).done == 20_000
    assert time.process_time() - began < 8


# --- objects whose writer failed --------------------------------------------------------------------------------------


def _fail(*args: Any) -> None:
    raise ValueError("as declared")


def test_objects_recover_from_simulated_failures_too() -> None:
    @penstock.task(xs=penstock.INOUT, duration=1, simulated=_fail)
    def spoil(xs: list[int]) -> None: ...

    @penstock.task(xs=penstock.INOUT, duration=1)
    def add(xs: list[int]) -> None: ...

    @penstock.task(duration=1, simulated=len)
    def count(xs: list[int]) -> int:
        return len(xs)

    with penstock.Runtime(mode="simulated"):
        xs = [1, 2]
        add(xs)
        failed = spoil(xs)
        with pytest.raises(penstock.DependencyFailed):
            count(xs).result()
        assert isinstance(failed.exception(), ValueError)
        assert count(xs).result() == 2
        given_up = add(xs)
        assert penstock.cancel(given_up)
        assert count(xs).result() == 2
