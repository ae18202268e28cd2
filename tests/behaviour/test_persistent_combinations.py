"""Persistent objects with everything else: early outputs, streams, MPI, maps, nested calls, classes defined anew."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.behaviour.conftest import Script
from tests.behaviour.modes import MODES, Gate, only_workers
from tests.mpi_here import needs_mpi

import penstock
from penstock import INOUT, SCATTER, PersistentObject, mpi, ready_value, task, wait_on
from penstock.data.gathered import gathered
from penstock.errors import StorageError
from penstock.model.data import Value
from penstock.runtime.bundles import bundle

LARGE = 20_000


@pytest.fixture(scope="module")
def _runtime_of_the_module(mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Runtime]:
    with penstock.Runtime(store=f"local:{tmp_path_factory.mktemp('store')}", **MODES[mode]) as runtime:
        yield runtime


class Fragment(PersistentObject):
    def __init__(self, start: float, size: int = LARGE) -> None:
        self.matrix = np.full(size, float(start))


@task()
def first(fragment: Fragment) -> float:
    assert isinstance(fragment, Fragment)
    return float(fragment.matrix[0])


@task(fragment=INOUT)
def add(fragment: Fragment, amount: float) -> None:
    fragment.matrix[:] += amount


@task()
def firsts(fragments: Any) -> list[float]:
    return [float(fragment.matrix[0]) for fragment in fragments]


# --- early outputs and streams ----------------------------------------------------------------------------------------


@task(returns=2)
def hand_over_new(gate: Gate | None) -> Any:
    fragment = Fragment(7).make_persistent()
    fragment.note = "changed before it was handed over"  # type: ignore[attr-defined]
    ready_value(fragment, 0)
    if gate is not None:
        gate.enter()
    return None, Fragment(8).make_persistent()


@task(returns=2)
def hand_over_given(fragment: Fragment) -> Any:
    ready_value(fragment, 0)
    return None, [fragment]


@task(fragment=INOUT, returns=2)
def hand_over_updated(fragment: Fragment, amount: float) -> Any:
    fragment.matrix[:] += amount
    ready_value(fragment, 0)
    return None, fragment


@task(returns=2)
def hand_over_changed(fragment: Fragment) -> Any:
    fragment.note = "changed"  # type: ignore[attr-defined]
    ready_value(fragment, 0)
    return None, None


@task(fragment=INOUT, returns=2)
def hand_over_copy(fragment: Fragment) -> Any:
    fragment.matrix[:] += 1
    ready_value(copy.copy(fragment).make_persistent(), 0)
    fragment.matrix[:] += 1
    return None, fragment


@task(returns=...)
def stream_of_new(count: int) -> Any:
    for number in range(count):
        yield Fragment(number).make_persistent()


@task(returns=...)
def stream_of_one(fragment: Fragment, count: int) -> Any:
    for _ in range(count):
        yield fragment


@task(fragment=INOUT, returns=...)
def stream_of_updated(fragment: Fragment) -> Any:
    fragment.matrix[:] += 1
    yield fragment


@pytest.mark.usefixtures("runtime")
class TestHandedOverEarly:
    @only_workers
    def test_a_new_object_is_there_before_its_task_ends(self, gate: Gate) -> None:
        early, late = hand_over_new(gate)
        assert first(early).result(timeout=60) == 7 and not late.done()
        gate.open()
        assert first(late).result() == 8 and early.result().note == "changed before it was handed over"

    def test_an_object_that_was_given_is_the_same_object(self) -> None:
        fragment = Fragment(1).make_persistent()
        early, late = hand_over_given(fragment)
        assert early.result() is fragment is late.result()[0]

    @pytest.mark.parametrize("call", [lambda f: hand_over_updated(f, 1), hand_over_changed, stream_of_updated])
    def test_an_object_that_its_task_changes_is_refused_and_stays(self, call: Any) -> None:
        fragment = Fragment(1).make_persistent()
        outputs = call(fragment)
        with pytest.raises(StorageError, match=r"handed over by a task that changes it.*make_persistent"):
            [output.result() for output in outputs]
        penstock.delete_object(fragment)
        found = Fragment.get_by_id(str(fragment.get_id()))
        assert found.matrix[0] == 1 and not hasattr(found, "note")

    def test_a_copy_of_it_may_be_handed_over(self) -> None:
        fragment = Fragment(1).make_persistent()
        early, late = hand_over_copy(fragment)
        assert (first(early).result(), first(late).result(), wait_on(fragment).matrix[0]) == (2, 3, 3)

    def test_objects_of_a_stream(self) -> None:
        assert [first(part).result() for part in stream_of_new(3)] == [0, 1, 2]
        assert firsts(stream_of_new(3)).result() == [0, 1, 2]

    def test_whoever_reads_a_whole_stream_reads_the_states_of_its_call(self) -> None:
        fragment = Fragment(1).make_persistent()
        seen = firsts(stream_of_one(fragment, 3))
        add(fragment, 100)
        assert seen.result() == [1, 1, 1] and wait_on(fragment).matrix[0] == 101


@pytest.mark.parametrize("together", [gathered, bundle])
def test_several_values_as_one_keep_the_states_of_all(together: Any) -> None:
    values = [
        Value(b"\x80\x05N.", states=("a\n1",)),
        Value(b"\x80\x05N."),
        Value(b"\x80\x05N.", states=("b\n2", "a\n1")),
    ]
    assert together(values).states == ("a\n1", "b\n2") and together(values[1:2]).states == ()


# --- MPI --------------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list)
def read_in_ranks(fragment: Fragment) -> Any:
    return float(fragment.matrix[0]), isinstance(fragment, Fragment), fragment.matrix.flags.writeable


@mpi(processes=2)
@task(returns=list)
def pass_through_ranks(fragment: Fragment) -> Fragment:
    return fragment


@mpi(processes=2)
@task(returns=list)
def make_in_ranks(start: float) -> Fragment:
    return Fragment(start).make_persistent()


@mpi(processes=2)
@task(parts=SCATTER, returns=list)
def firsts_in_ranks(parts: Any) -> list[float]:
    return [float(fragment.matrix[0]) for fragment in parts]


@needs_mpi
@only_workers
@pytest.mark.usefixtures("runtime")
class TestRanks:
    def test_ranks_read_and_make_objects(self) -> None:
        fragment = Fragment(3).make_persistent()
        assert read_in_ranks(fragment).result() == [(3.0, True, False)] * 2
        made = make_in_ranks(4).result()
        assert [part.matrix[0] for part in made] == [4, 4] and made[0].get_id() != made[1].get_id()
        fragments = [Fragment(number).make_persistent() for number in range(4)]
        assert firsts_in_ranks(fragments).result() == [[0, 1], [2, 3]]

    def test_what_ranks_return_is_read_as_it_was(self) -> None:
        fragment = Fragment(1).make_persistent()
        parts = pass_through_ranks(fragment)
        add(fragment, 10)
        assert firsts(parts).result() == [1, 1]
        add(fragment, 10)
        assert firsts(parts).result() == [1, 1] and wait_on(fragment).matrix[0] == 21


# --- nested calls, changes that nobody declared, read-only arrays -----------------------------------------------------


@task()
def look_inside(fragment: Fragment) -> float:
    return float(first(fragment).result())


@task(fragment=INOUT)
def add_inside(fragment: Fragment) -> None:
    add(fragment, 1)
    wait_on(fragment).matrix[:] += 10


@task()
def make_and_add_inside() -> Any:
    fragment = Fragment(3).make_persistent()
    add(fragment, 2)
    return float(wait_on(fragment).matrix[0]), fragment


@task()
def note(fragment: Fragment, text: str) -> None:
    fragment.note = text  # type: ignore[attr-defined]


@task()
def wrapped(array: Any) -> Fragment:
    fragment = Fragment(0)
    fragment.matrix = array
    return fragment.make_persistent()


@pytest.mark.usefixtures("runtime")
class TestOtherCalls:
    def test_calls_inside_tasks(self) -> None:
        fragment = Fragment(1).make_persistent()
        assert look_inside(fragment).result() == 1
        add_inside(fragment)
        assert wait_on(fragment).matrix[0] == 12 and first(fragment).result() == 12
        value, made = make_and_add_inside().result()
        assert value == 5 == made.matrix[0] == first(made).result()

    def test_maps(self) -> None:
        fragments = [Fragment(number).make_persistent() for number in range(4)]
        assert [part.result() for part in first.map(fragments)] == [0, 1, 2, 3]
        [part.result() for part in add.map([fragments[0]] * 3, [1, 2, 3])]
        assert wait_on(fragments[0]).matrix[0] == 6

    def test_the_next_call_begins_with_what_the_program_has_seen(self) -> None:
        """A change that a task did not declare is in the store; once the program has it, nothing takes it back."""
        fragment = Fragment(1).make_persistent()
        note(fragment, "undeclared").result()
        assert Fragment.get_by_id(str(fragment.get_id())).note == "undeclared"
        add(fragment, 1)
        assert wait_on(fragment).matrix[0] == 2 and fragment.note == "undeclared"  # type: ignore[attr-defined]

    @pytest.mark.parametrize("size", [10, LARGE])
    def test_an_array_that_a_task_only_read_can_be_changed_where_it_is_stored(self, size: int) -> None:
        fragment = wrapped(np.zeros(size)).result()
        add(fragment, 1)
        assert wait_on(fragment).matrix[0] == 1


# --- classes of scripts -----------------------------------------------------------------------------------------------

CLASSES = """
import penstock
from penstock import INOUT, PersistentObject, task, wait_on

class Stored(PersistentObject):
    {body}

class Plain:
    pass

def known(obj):
    return isinstance(obj, Stored)

@task()
def by_helper(obj): return known(obj)
@task()
def by_name(obj): return isinstance(obj, Stored), getattr(obj, "defined", 0)
@task(obj=INOUT)
def updated(obj): assert type(obj) is Stored; obj.updates = getattr(obj, "updates", 0) + 1
@task()
def made(): return Plain(), Stored().make_persistent()
@task()
def both(pair): return isinstance(pair[0], Plain), isinstance(pair[1], Stored)

with penstock.Runtime(cpus=1):
    objects = [Stored().make_persistent() for _ in range(3)]
    for obj in objects:
        print(by_helper(obj).result(), by_name(obj).result(), by_helper(obj).result())
        updated(obj), updated(obj)
        print(wait_on(obj).updates, type(obj) is Stored)
    print(both(made()).result(), both((Plain(), objects[0])).result())

    class Stored(PersistentObject):
        {again}
    for obj in objects:
        print(by_helper(obj).result(), by_name(obj).result(), by_helper(obj).result())
    print(type(Stored.get_by_id(objects[0].get_id())) is Stored)
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("body", "again", "defined"),
    [("defined = 1", "defined = 2", (1, 2)), ("pass", "pass", (0, 0)), ("defined = 1", "pass", (1, 0))],
)
def test_functions_of_a_script_agree_on_its_classes(
    script: Script, body: str, again: str, defined: tuple[int, int]
) -> None:
    """Also after a notebook, or a script, has defined the class anew; also if there is nothing in the class."""
    lines = script(CLASSES.format(body=body, again=again)).stdout.splitlines()
    assert lines[:6] == [f"True (True, {defined[0]}) True", "2 True"] * 3
    assert lines[6] == "(True, True) (True, True)"
    assert lines[7:] == [f"True (True, {defined[1]}) True"] * 3 + ["True"]
