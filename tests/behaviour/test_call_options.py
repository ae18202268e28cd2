"""Options of single calls, ``f.with_options(…)``, and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import (
    CallError,
    ConstraintError,
    DefinitionError,
    DependencyFailed,
    TaskFailed,
    TaskTimeout,
    constraint,
    implement,
    io,
    task,
    wait_on,
)
from penstock.observe import records
from penstock.observe.log import read_log

pytestmark = pytest.mark.usefixtures("runtime")


@task
def fail_until(path: str, times: int) -> int:
    """Fails that many times; counts its attempts in a file."""
    attempts = Path(path)
    made = int(attempts.read_text() or 0) + 1 if attempts.exists() else 1
    attempts.write_text(str(made))
    if made <= times:
        raise ValueError(f"attempt {made}")
    return made


@task
def double(x: int) -> int:
    return 2 * x


@task(label=lambda x, **kwargs: f"item {x}")
def fail(x: Any, *, why: str = "on purpose") -> None:
    raise ValueError(why)


def test_a_call_with_retries_of_its_own(tmp_path: Path) -> None:
    patient = fail_until.with_options(retries=3)
    assert patient(str(tmp_path / "a"), 3).result() == 4
    with pytest.raises(ValueError, match="attempt 1"):
        fail_until(str(tmp_path / "b"), 3).result()
    with pytest.raises(ValueError, match="attempt 2"):
        fail_until.with_options(retries=1)(str(tmp_path / "c"), 3).result()


def test_options_of_options(tmp_path: Path) -> None:
    both = fail_until.with_options(retries=1).with_options(on_failure="ignore")
    assert both(str(tmp_path / "a"), 5).result() is None
    assert both.with_options(on_failure="retry")(str(tmp_path / "b"), 1).result() == 2


def test_what_a_failure_means_stays_if_only_retries_are_given() -> None:
    @task(on_failure="ignore")
    def raises() -> None:
        raise ValueError

    assert raises.with_options(retries=1)().result() is None
    assert raises.with_options(priority=3)().result() is None


def test_every_option_may_be_given() -> None:
    every = double.with_options(
        priority=True,
        retries=2,
        retry_delay="1ms",
        timeout="1min",
        on_failure="fail",
        label="all",
        constraints={"computing_units": 1, "MemorySize": "1MB"},
    )
    assert every(4).result() == 8
    assert every.map([1, 2]).results() == [2, 4]
    assert double.with_options()(1).result() == 2


def test_constraints_of_a_call() -> None:
    with pytest.raises(ConstraintError, match="100000|100,000"):
        double.with_options(constraints={"computing_units": 100_000})(1)
    assert double(1).result() == 2
    large = constraint(computing_units=100_000)(double)
    assert large.with_options(constraints={"computing_units": 1})(3).result() == 6


def test_decorators_above_a_task_with_options() -> None:
    above = io(double.with_options(retries=1, label="a"))
    assert above(2).result() == 4
    with pytest.raises(ConstraintError):
        constraint(computing_units=100_000)(double.with_options(retries=1))(1)


def test_a_task_with_several_implementations_has_options() -> None:
    @task(returns=1)
    def compute(x: int) -> int:
        return x + 1

    @implement(of=compute)
    @task(returns=1)
    def compute_otherwise(x: int) -> int:
        return x + 1

    hurried = compute.with_options(priority=9, retries=1)
    assert wait_on([hurried(i) for i in range(5)]) == [1, 2, 3, 4, 5]


class Account:
    def __init__(self) -> None:
        self.entries: list[int] = []

    @task
    def enter(self, amount: int) -> None:
        self.entries.append(amount)


def test_methods_have_options() -> None:
    account = Account()
    account.enter.with_options(label="first", priority=1)(5)
    account.enter(6)
    assert wait_on(account).entries == [5, 6]


def test_inside_a_task() -> None:
    @task
    def outer() -> int:
        return double.with_options(retries=1, label="inner")(4).result()

    quick = double.with_options(retries=1, label=lambda x: str(x))

    @task
    def given(inner: Any) -> int:
        return int(inner(5).result())

    assert outer().result() == 8
    assert given(quick).result() == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retires": 3}, "retires.*retries"),
        ({"returns": 2}, "returns is settled where the task is defined"),
        ({"x": 2}, "x is settled where the task is defined"),
        ({"computing_units": 2}, "constraints={'computing_units': 2}"),
        ({"retries": -1}, "retries=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"priority": "high"}, "priority='high'"),
        ({"on_failure": "sulk"}, "on_failure='sulk'"),
        ({"label": 3}, "label=3"),
        ({"constraints": 3}, "constraints=3"),
        ({"constraints": {"computing_unit": 3}}, "computing_unit.*computing_units"),
        ({"constraints": {"memory_size": "much"}}, "memory_size='much'"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        double.with_options(**options)


def test_a_timeout_of_a_call(mode: str, tmp_path: Path) -> None:
    if mode != "workers":
        pytest.skip("only a process can be ended")

    @task
    def wait_for_ever() -> None:
        import threading

        threading.Event().wait()

    with pytest.raises(TaskTimeout, match="for ever too long"):
        wait_for_ever.with_options(timeout=0.2, label="for ever too long")().result()


# --- labels -------------------------------------------------------------------------------------------------------


def test_a_label_is_in_what_is_told_of_a_failure() -> None:
    future = fail(7)
    with pytest.raises(ValueError) as caught:
        future.result()
    assert isinstance(caught.value.__cause__, TaskFailed)
    assert f"fail#{future.task_id} [item 7]" in str(caught.value.__cause__)
    named = fail.with_options(label="by\n hand")(8, why="nothing")
    with pytest.raises(DependencyFailed, match=r"fail#\d+ \[by hand\]"):
        double(named).result()
    named.exception()


def test_calls_of_a_map_have_labels() -> None:
    first, second = fail.map([1, 2])
    assert "[item 1]" in str(first.exception().__cause__)  # type: ignore[union-attr]
    assert "[item 2]" in str(second.exception().__cause__)  # type: ignore[union-attr]


def test_a_label_that_cannot_be_made_is_told_at_the_call() -> None:
    with pytest.raises(CallError, match="label raised ZeroDivisionError"):
        double.with_options(label=lambda x: 1 / x)(0)
    assert double(1).result() == 2


def test_a_label_is_in_the_log(mode: str, tmp_path: Path) -> None:
    with penstock.Runtime(
        cpus=1, mode="inline" if mode == "inline" else "parallel", run_dir=tmp_path / "run", log=True
    ):
        double.with_options(label="labelled")(1)
        double(2)
    found = [one for one in read_log(tmp_path / "run" / "events.jsonl") if isinstance(one, records.Submitted)]
    assert [one.label for one in found] == ["labelled", ""]


def test_options_do_not_make_a_function_anew(runtime: penstock.Runtime) -> None:
    spec = runtime.functions.spec(double.declaration)
    for number in range(20):
        labelled = double.with_options(label=f"call {number}").declaration
        assert runtime.functions.spec(labelled).function == spec.function
        urgent = double.with_options(priority=number % 2 + 1).declaration
        assert runtime.functions.spec(urgent) is runtime.functions.spec(urgent)
    assert len([key for key in runtime.functions._variants if key[0] == spec.function]) <= 3 + 8
