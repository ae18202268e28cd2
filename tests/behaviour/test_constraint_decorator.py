"""``@constraint`` and ``priority``: what a task asks of its machine, and which goes first."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import ConstraintError, DefinitionError, constraint, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


def plain(x: int = 1) -> int:
    return x


@pytest.mark.parametrize(
    "name",
    ["computing_units", "ComputingUnits", "COMPUTING_UNITS", "computingunits", "computingUnits", "Computing_Units"],
)
def test_names_in_any_case_with_or_without_underscores(name: str) -> None:
    assert constraint(**{name: 1})(task(plain))(5).result() == 5
    with pytest.raises(ConstraintError, match="100000|100,000"):
        constraint(**{name: 100_000})(task(plain))()


@pytest.mark.parametrize("written", [2, 2.5, "2", " 2. ", "1e3", True])
def test_memory_without_a_unit_is_refused(written: Any) -> None:
    with pytest.raises(DefinitionError, match=r"memory_size=.*(GB.*MB|cannot read)"):
        constraint(memory_size=written)(task(plain))


def test_memory_without_a_unit_in_a_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_OF_SOLVER", "4")
    with pytest.raises(ConstraintError, match="which is '4'.*\"4GB\""):
        constraint(memory_size="$MEMORY_OF_SOLVER")(task(plain))(1)


def test_no_memory_needs_no_unit() -> None:
    assert constraint(memory_size=0)(task(plain))(1).result() == 1


@pytest.mark.parametrize("name", ["memory_size", "MemorySize", "MEMORY_SIZE", "memorysize"])
def test_memory_in_any_spelling(name: str) -> None:
    assert constraint(**{name: "1MB"})(task(plain))(5).result() == 5
    with pytest.raises(ConstraintError, match="memory"):
        constraint(**{name: "5000TB"})(task(plain))()


@pytest.mark.parametrize("written", ["$UNITS_OF_TEST", "${UNITS_OF_TEST}"])
def test_values_from_the_environment(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITS_OF_TEST", "1")
    assert constraint(computing_units=written)(task(plain))(5).result() == 5
    monkeypatch.setenv("UNITS_OF_TEST", "77777")
    with pytest.raises(ConstraintError, match="77777|77,777"):
        constraint(computing_units=written)(task(plain))()


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConstraintError, match="NO_SUCH_VARIABLE"):
        constraint(computing_units="$NO_SUCH_VARIABLE")(task(plain))()


def test_a_variable_that_holds_nonsense_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITS_OF_TEST", "several")
    with pytest.raises(ConstraintError) as caught:
        constraint(computing_units="$UNITS_OF_TEST")(task(plain))()
    assert "several" in str(caught.value) and "computing_units" in str(caught.value)


def test_a_number_as_text() -> None:
    assert constraint(computing_units="1")(task(plain))(5).result() == 5


def test_constraints_on_methods() -> None:
    class Thing:
        @constraint(computing_units=1)
        @task(returns=1, target_direction=penstock.IN)
        def ordinary(self) -> int:
            return 1

        @constraint(computing_units=1)
        @classmethod
        @task(returns=1)
        def of_class(cls) -> str:
            return cls.__name__

        @constraint(computing_units=1)
        @staticmethod
        @task(returns=1)
        def static() -> int:
            return 3

        @constraint(computing_units=100_000)
        @task(returns=1)
        def too_much(self) -> int:
            return 1

    thing = Thing()
    assert (thing.ordinary().result(), Thing.of_class().result(), Thing.static().result()) == (1, "Thing", 3)
    with pytest.raises(ConstraintError, match="too_much"):
        thing.too_much()


def test_two_constraints_one_above_the_other() -> None:
    limited = constraint(memory_size="1MB")(constraint(computing_units=1)(task(plain)))
    assert limited(3).result() == 3
    with pytest.raises(ConstraintError):
        constraint(memory_size="1MB")(constraint(computing_units=100_000)(task(plain)))()


def test_a_constrained_task_maps() -> None:
    assert constraint(computing_units=1)(task(plain)).map(range(5)).results() == list(range(5))


@only_workers
def test_the_message_names_what_this_run_has(mode: str) -> None:
    with penstock.Runtime(cpus=2, memory="8GB"):
        with pytest.raises(ConstraintError) as caught:
            constraint(computing_units=3)(task(plain))()
        assert "3" in str(caught.value) and "2" in str(caught.value) and "largest" in str(caught.value)
        with pytest.raises(ConstraintError) as caught:
            constraint(memory_size="16GB")(task(plain))()
        assert "16" in str(caught.value) and "8" in str(caught.value)
        assert constraint(computing_units=2, memory_size="8GB")(task(plain))(5).result() == 5


def hold(running: str, gate: Gate | None) -> list[str]:
    """Say that one is running, see who else is, and wait at the gate."""
    mine = os.path.join(running, str(os.getpid()))
    open(mine, "w").close()
    if gate is not None:
        gate.enter()
    others = os.listdir(running)
    os.unlink(mine)
    return others


@only_workers
def test_two_units_leave_no_room_for_another_task(mode: str, tmp_path: Any) -> None:
    """On two units, a task of two is alone; two tasks of one unit may share."""
    both = constraint(computing_units=2)(task(returns=1)(hold))
    one = task(returns=1)(hold)
    calls = [(both if i % 3 == 0 else one)(str(tmp_path), None) for i in range(30)]
    seen = wait_on(calls)
    assert all(len(others) == 1 for others in seen[::3])
    assert all(len(others) <= 2 for others in seen)


@only_workers
def test_memory_limits_how_many_run_at_once(mode: str, tmp_path: Any) -> None:
    with penstock.Runtime(cpus=2, memory="4GB"):
        big = constraint(memory_size="3GB")(task(returns=1)(hold))
        assert all(len(others) == 1 for others in wait_on([big(str(tmp_path), None) for _ in range(20)]))


# --- priority -----------------------------------------------------------------------------------------------------


@only_workers
def test_tasks_of_higher_priority_go_first(mode: str, tmp_path: Any, gate: Gate) -> None:
    journal = str(tmp_path / "journal")

    def note(name: str) -> None:
        with open(journal, "a") as file:
            file.write(name + " ")

    @task
    def wait_at(gate: Gate) -> None:
        gate.enter()

    low, high, higher = task(note), task(priority=True)(note), task(priority=5)(note)
    with penstock.Runtime(cpus=1):
        wait_at(gate)
        for function, name in [(low, "low"), (high, "high"), (low, "low"), (higher, "higher"), (high, "high")]:
            function(name)
        gate.open()
    assert open(journal).read().split() == ["higher", "high", "high", "low", "low"]


@only_workers
def test_tasks_of_equal_priority_go_in_the_order_of_their_calls(mode: str, tmp_path: Any, gate: Gate) -> None:
    journal = str(tmp_path / "journal")

    @task
    def note(name: int) -> None:
        with open(journal, "a") as file:
            file.write(f"{name} ")

    @task
    def wait_at(gate: Gate) -> None:
        gate.enter()

    with penstock.Runtime(cpus=1):
        wait_at(gate)
        for i in range(50):
            note(i)
        gate.open()
    assert open(journal).read().split() == [str(i) for i in range(50)]


def test_priority_changes_no_results() -> None:
    urgent = task(priority=True, returns=1)(plain)
    assert wait_on([urgent(i) for i in range(20)]) == list(range(20))
