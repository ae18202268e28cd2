"""``@implement``: several functions for one task; each is tried, then the fastest that fits runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

import penstock
from penstock import INOUT, DefinitionError, constraint, implement, implements, io, task


@task
def add(a: int, b: int) -> tuple[str, int]:
    time.sleep(0.05)
    return "slow", a + b


@implement(of=add)
@task
def add_fast(a: int, b: int) -> tuple[str, int]:
    return "fast", a + b


@task
def where(wanted: int) -> str:
    return "narrow"


@implement(of=where)
@constraint(computing_units=64)
@task
def where_wide(wanted: int) -> str:
    return "wide"


@task
def which() -> str:
    time.sleep(0.02)
    return "one"


@implements(source_class=__name__, method="which")
@constraint(ComputingUnits=2)
@task
def which_with_two() -> str:
    return "two"


def test_each_is_tried_and_then_the_fastest_runs() -> None:
    with penstock.Runtime(cpus=1):
        kinds = []
        for number in range(12):
            kind, total = add(number, 1).result()
            assert total == number + 1
            kinds.append(kind)
    assert kinds[:2] == ["slow", "fast"]
    assert set(kinds[2:]) == {"fast"}


def test_an_implementation_called_by_its_own_name_is_itself() -> None:
    with penstock.Runtime(cpus=1):
        assert [add_fast(1, 2).result()[0] for _ in range(3)] == ["fast"] * 3


def test_what_fits_no_node_is_left_out() -> None:
    with penstock.Runtime(cpus=1):
        assert [where(1).result() for _ in range(3)] == ["narrow"] * 3


def test_it_is_an_error_if_none_fits() -> None:
    @constraint(computing_units=100)
    @task
    def huge() -> None: ...

    @implement(of=huge)
    @constraint(computing_units=200)
    @task
    def huger() -> None: ...

    with penstock.Runtime(cpus=1), pytest.raises(penstock.ConstraintError, match="huge"):
        huge()


def test_the_spelling_of_pycompss() -> None:
    with penstock.Runtime(cpus=2):
        assert {which().result() for _ in range(6)} == {"one", "two"}
        assert which().result() == "two"


def test_one_that_does_not_fit_now_gives_way_to_one_that_does() -> None:
    with penstock.Runtime(cpus=2):
        for _ in range(3):
            which().result()  # both are known, and the one that wants both units is faster
        names = penstock.wait_on([which() for _ in range(20)])
    assert names[0] == "two"
    assert len(names) == 20


def test_the_next_run_need_not_try_again(tmp_path: Path) -> None:
    file = str(tmp_path / "profiles.json")
    with penstock.Runtime(cpus=1, profiles=file):
        for _ in range(3):
            add(1, 1).result()
    with penstock.Runtime(cpus=1, profiles=file):
        assert add(1, 1).result()[0] == "fast"


def test_a_second_attempt_may_be_of_another_implementation() -> None:
    @task(retries=1)
    def value() -> str:
        raise ValueError("this one never works")

    @implement(of=value)
    @task
    def other_value() -> str:
        return "other"

    with penstock.Runtime(cpus=1):
        assert [value().result() for _ in range(4)] == ["other"] * 4


def test_a_failure_names_the_function_that_ran() -> None:
    @task
    def job(fail: bool) -> None:
        time.sleep(0.01)

    @implement(of=job)
    @task
    def quick_job(fail: bool) -> None:
        if fail:
            raise ValueError("no")

    with penstock.Runtime(cpus=1):
        job(False).result()
        job(False).result()
        with pytest.raises(ValueError, match="no") as caught:
            job(True).result()
        assert "quick_job" in repr(caught.value.__cause__)


def test_updated_objects_and_maps_go_through_any_implementation() -> None:
    @task(items=INOUT)
    def append(items: list[str]) -> None:
        items.append("a")

    @implement(of=append)
    @task(items=INOUT)
    def append_too(items: list[str]) -> None:
        items.append("b")

    @task
    def double(x: int) -> int:
        return 2 * x

    @implement(of=double)
    @task
    def doubled(x: int) -> int:
        return x + x

    with penstock.Runtime(cpus=1):
        items: list[str] = []
        for _ in range(4):
            append(items)
        assert len(penstock.wait_on(items)) == 4
        assert set(items) == {"a", "b"}
        assert penstock.wait_on(double.map(range(1000))) == list(range(0, 2000, 2))


def test_implementations_defined_after_a_call_count_from_the_next_one() -> None:
    @task
    def late() -> str:
        time.sleep(0.01)
        return "first"

    with penstock.Runtime(cpus=1):
        assert late().result() == "first"

        @implement(of=late)
        @task
        def later() -> str:
            return "second"

        assert "second" in {late().result() for _ in range(3)}


def test_inline_runs_have_implementations_too() -> None:
    with penstock.Runtime(mode="inline"):
        assert [add(1, 2).result()[0] for _ in range(4)] == ["slow", "fast", "fast", "fast"]


# --- mistakes ---------------------------------------------------------------------------------------------------------


def other(c: int, d: int) -> int:
    return c


def fewer(a: int) -> int:
    return a


@pytest.mark.parametrize("function", [other, fewer])
def test_it_must_take_the_same(function: object) -> None:
    with pytest.raises(DefinitionError, match="must take what add takes"):
        implement(of=add)(task(function))  # type: ignore[arg-type]


def test_it_must_do_the_same_with_its_parameters() -> None:
    @task(a=INOUT)
    def change(a: list[int], b: int) -> None: ...

    def also(a: list[int], b: int) -> None: ...

    with pytest.raises(DefinitionError, match="directions"):
        implement(of=change)(task(also))


def test_it_must_return_as_much() -> None:
    @task(returns=2)
    def pair(a: int) -> tuple[int, int]:
        return a, a

    with pytest.raises(DefinitionError, match="returns"):
        implement(of=pair)(task(fewer))


def test_of_must_be_a_task() -> None:
    with pytest.raises(DefinitionError, match="not a task"):
        implement(of=fewer)(task(fewer))


def test_a_task_does_not_implement_itself() -> None:
    made = task(fewer)
    with pytest.raises(DefinitionError, match="its own"):
        implement(of=made)(made)


def test_it_stands_above_task() -> None:
    with pytest.raises(DefinitionError, match="stands above @task"):
        implement(of=add)(fewer)  # type: ignore[arg-type]


def test_something_must_be_named() -> None:
    for wrong in ({}, {"source_class": "x"}, {"method": "x"}, {"of": add, "source_class": "x", "method": "y"}):
        with pytest.raises(DefinitionError, match="needs either"):
            implement(**wrong)


def test_the_module_and_the_function_must_exist() -> None:
    with pytest.raises(DefinitionError, match="cannot be imported"):
        implement(source_class="no.such.module", method="f")(task(fewer))
    with pytest.raises(DefinitionError, match="there is no nothing"):
        implement(source_class=__name__, method="nothing")(task(fewer))


def test_io_tasks_have_one_implementation() -> None:
    @io
    @task
    def write(a: int) -> int:
        return a

    with pytest.raises(DefinitionError, match="I/O task"):
        implement(of=write)(task(fewer))


def test_a_program_names_itself_by_its_file(tmp_path: Path) -> None:
    import subprocess

    script = tmp_path / "mine.py"
    script.write_text(
        "from penstock import task, implement\n"
        "@task\ndef f(): return 1\n"
        "@implement(source_class='mine', method='f')\n@task\ndef g(): return 2\n"
        "print(sorted({f().result() for _ in range(4)}))\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")
