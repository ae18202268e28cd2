"""What a task receives: values of futures wherever they are, one object for one object, the state at the call."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import INOUT, CallError, SerializationError, share, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")

LARGE = 300_000


@task(returns=1)
def make(value: Any) -> Any:
    return value


@task(returns=1)
def total(values: Any) -> Any:
    return sum(values)


@task(bag=INOUT)
def push(bag: list[Any], value: Any) -> None:
    bag.append(value)


class Holder:
    def __init__(self, content: Any) -> None:
        self.content = content


@dataclass
class Job:
    name: str
    inputs: Any


@dataclass(frozen=True, slots=True)
class FrozenJob:
    inputs: Any


class Node:
    def __init__(self) -> None:
        self.next: Any = None
        self.value: Any = None


@task(returns=1)
def look(argument: Any, path: Any) -> Any:
    """Follow a path of attributes and keys inside an argument."""
    for step in path:
        argument = getattr(argument, step) if isinstance(step, str) and hasattr(argument, step) else argument[step]
    return argument


# --- futures anywhere ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda f: f, []),
        (lambda f: [0, f], [1]),
        (lambda f: (f, 0), [0]),
        (lambda f: {"k": f}, ["k"]),
        (lambda f: [[{"k": (0, f)}]], [0, 0, "k", 1]),
        (lambda f: deque([f]), [0]),
        (lambda f: OrderedDict(a=f), ["a"]),
        (Holder, ["content"]),
        (lambda f: Job("x", [f]), ["inputs", 0]),
        (FrozenJob, ["inputs"]),
        (lambda f: [Holder({"deep": Job("j", Holder(f))})], [0, "content", "deep", "inputs", "content"]),
    ],
    ids=[
        "plain",
        "list",
        "tuple",
        "dict",
        "nested",
        "deque",
        "OrderedDict",
        "attribute",
        "dataclass",
        "frozen-slots",
        "deep",
    ],
)
def test_a_future_anywhere_inside_an_argument_arrives_as_its_value(wrap: Any, path: Any) -> None:
    assert look(wrap(make("value")), path).result() == "value"


def test_a_future_in_an_object_array() -> None:
    cells = np.empty(2, dtype=object)
    cells[0], cells[1] = make(3), 4
    assert total(cells).result() == 7


def test_a_set_of_futures() -> None:
    assert total({make(1), make(2)}).result() == 3


def test_a_future_of_none_and_of_falsehoods() -> None:
    assert make([make(None), make(False), make(0), make([])]).result() == [None, False, 0, []]


def test_a_future_in_a_closure_of_the_argument() -> None:
    future = make(5)

    @task(returns=1)
    def call(function: Any) -> Any:
        return function()

    assert call(lambda: [future]).result() == [5]


def test_a_hundred_futures_in_one_argument() -> None:
    assert total([make(i) for i in range(100)]).result() == 4950


def test_futures_of_several_returns() -> None:
    @task(returns=2)
    def split(a: int) -> tuple[int, int]:
        return a, -a

    first, second = split(5)
    assert total([first, second, first]).result() == 5


def test_a_long_chain() -> None:
    @task(returns=1)
    def step(a: int) -> int:
        return a + 1

    value: Any = 0
    for _ in range(300):
        value = step(value)
    assert value.result() == 300


# --- one object is one object -------------------------------------------------------------------------------------


@task(returns=1)
def same(first: Any, second: Any) -> bool:
    return first is second[0]


@task(returns=1)
def same_by_name(first: Any, **others: Any) -> list[bool]:
    return [first is other for other in others.values()]


@pytest.mark.parametrize("new", [lambda: [1], lambda: Holder(1), lambda: np.zeros(5), lambda: np.zeros(LARGE)])
def test_the_same_object_twice_is_one_object_inside_the_task(new: Any) -> None:
    obj = new()
    assert same(obj, [obj]).result() is True
    assert same(obj, [new()]).result() is False
    assert same_by_name(obj, a=obj, b=new()).result() == [True, False]


def test_the_same_future_twice_is_one_object_inside_the_task() -> None:
    future = make([1])
    assert same(future, [future]).result() is True


def test_an_object_that_tasks_updated_twice_is_one_object_inside_the_task() -> None:
    bag = [1]
    push(bag, 2)
    assert same(bag, [bag]).result() is True
    wait_on(bag)


def test_an_inout_object_that_is_also_inside_another_argument_is_one_object() -> None:
    @task(bag=INOUT, returns=1)
    def push_and_look(bag: list[int], others: list[Any]) -> Any:
        bag.append(9)
        return bag is others[0], list(others[0])

    bag = [1]
    assert push_and_look(bag, [bag]).result() == (True, [1, 9])
    assert wait_on(bag) == [1, 9]
    # and again, now that the newest version is a task's
    assert push_and_look(bag, [bag]).result() == (True, [1, 9, 9])
    assert wait_on(bag) == [1, 9, 9]


def test_an_object_given_for_two_inout_parameters_is_one_object() -> None:
    @task(a=INOUT, b=INOUT)
    def push_both(a: list[str], b: list[str]) -> None:
        a.append("a")
        b.append("b")

    bag: list[str] = []
    push_both(bag, bag)
    push_both(bag, bag)
    assert wait_on(bag) == ["a", "b", "a", "b"]


def test_aliases_inside_one_argument_are_kept() -> None:
    inner = [1]
    found = make([inner, {"again": inner}]).result()
    assert found[0] is found[1]["again"]


def test_a_cycle_in_an_ordinary_argument_is_kept() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    found = make(loop).result()
    assert found[1] is found and found[0] == 1
    node = Node()
    node.next, node.value = node, make("v")
    seen = make(node).result()
    assert seen.next is seen and seen.value == "v"


@task(node=INOUT)
def count_up(node: Any) -> None:
    node.value = (node.value or 0) + 1


def test_an_inout_object_that_refers_to_itself() -> None:
    node = Node()
    node.next = node
    count_up(node)
    count_up(node)
    seen = make(node).result()
    assert seen.next is seen and seen.value == 2
    assert wait_on(node) is node and node.value == 2 and node.next is node
    loop: list[Any] = [1]
    loop.append(loop)
    push(loop, 2)
    wait_on(loop)
    assert loop[0] == 1 and loop[1] is loop and loop[2] == 2


def test_an_inout_object_to_which_what_it_holds_refers() -> None:
    class Tree:
        def __init__(self) -> None:
            self.branches: list[tuple[Tree, Any]] = []
            self.above: Any = None
            self.seen = memoryview(b"seen")

        def height(self) -> int:
            return 1 + max((branch.height() for branch, _ in self.branches), default=0)

    @task(tree=INOUT)
    def grow(tree: Tree) -> None:
        branch = Tree()
        branch.above = {"tree": tree}
        tree.branches.append((branch, tree.height))

    tree = Tree()
    grow(tree)
    grow(tree)
    assert wait_on(tree) is tree and len(tree.branches) == 2
    for branch, height in tree.branches:
        assert type(branch) is Tree and branch.above["tree"] is tree
        assert height.__self__ is tree
    branch.branches.append((Tree(), None))
    assert height() == 3


def test_inout_objects_of_one_call_that_refer_to_each_other() -> None:
    @task(first=INOUT, second=INOUT)
    def count_both(first: Node, second: Node) -> bool:
        first.value, second.value = 1, 2
        return first.next is second and second.next is first

    parent, child = Node(), Node()
    parent.next, child.next = child, parent
    assert count_both(parent, child).result()
    wait_on(parent, child)
    assert (parent.value, child.value) == (1, 2)


# --- the state at the call ----------------------------------------------------------------------------------------


@task(returns=1)
def snapshot(value: Any, gate: Any = None) -> Any:
    return repr(value) if not isinstance(value, np.ndarray) else (value.shape, float(value.sum()))


def test_a_small_list_changed_after_the_call() -> None:
    numbers = [1, 2]
    first = total(numbers)
    numbers.append(10)
    second = total(numbers)
    numbers.clear()
    third = total(numbers)
    assert wait_on(first, second, third) == [3, 13, 0]


def test_a_large_array_changed_after_the_call() -> None:
    numbers = np.ones(LARGE)
    seen = []
    for value in (1, 2, 3):
        numbers[:] = value
        seen.append(total(numbers))
    numbers[:] = -1
    assert [float(x) for x in wait_on(seen)] == [LARGE, 2 * LARGE, 3 * LARGE]


def test_one_byte_of_a_large_array_changed_after_the_call() -> None:
    for index in (0, LARGE // 2, LARGE - 1):
        data = np.zeros(LARGE, dtype=np.uint8)
        before = total(data)
        data[index] = 1
        after = total(data)
        assert [int(x) for x in wait_on(before, after)] == [0, 1]


def test_a_view_of_a_large_array_changed_through_its_base() -> None:
    base = np.zeros((1000, 1000))
    view = base[10:500, ::2]
    before = total(view.ravel()), snapshot(view)
    base[10:500] = 1.0
    after = total(view.ravel()), snapshot(view)
    assert wait_on(before[1]) == ((490, 500), 0.0)
    assert wait_on(after[1]) == ((490, 500), 490 * 500.0)
    assert float(wait_on(before[0])) == 0 and float(wait_on(after[0])) == 245_000


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_bytearray_changed_after_the_call(size: int) -> None:
    data = bytearray(size)
    before = total(data)
    data[size // 2] = 7
    after = total(data)
    data[:] = b""
    assert wait_on(before, after) == [0, 7]


def test_a_nested_part_changed_after_the_call() -> None:
    deep = {"a": [{"b": [1, 2]}], "c": Holder([1])}
    before = look(deep, ["a", 0, "b"]), look(deep, ["c", "content"])
    deep["a"][0]["b"].append(3)  # type: ignore[index]
    deep["c"].content = "new"  # type: ignore[attr-defined]
    after = look(deep, ["a", 0, "b"]), look(deep, ["c", "content"])
    assert wait_on(before) == ([1, 2], [1])
    assert wait_on(after) == ([1, 2, 3], "new")


def test_a_large_array_inside_an_object_changed_after_the_call() -> None:
    holder = Holder([np.zeros(LARGE)])
    path = ["content", 0, slice(0, 3)]
    before = look(holder, path)
    holder.content[0][1] = 5
    after = look(holder, path)
    assert wait_on(before).tolist() == [0, 0, 0]
    assert wait_on(after).tolist() == [0, 5, 0]


def test_what_a_task_does_to_an_in_argument_stays_in_the_task() -> None:
    @task(returns=1)
    def spoil(values: list[int]) -> int:
        values.append(100)
        return len(values)

    numbers = [1, 2]
    assert spoil(numbers).result() == 3
    assert spoil(numbers).result() == 3
    assert numbers == [1, 2] and wait_on(numbers) == [1, 2]


def test_a_result_the_program_changes_does_not_reach_other_tasks() -> None:
    future = make([1, 2])
    mine = future.result()
    mine.append(3)
    assert total(future).result() == 3


def test_two_tasks_that_get_one_future_do_not_see_each_other() -> None:
    @task(returns=1)
    def spoil(values: list[int]) -> int:
        values.append(100)
        return len(values)

    future = make([1, 2])
    assert wait_on([spoil(future) for _ in range(6)]) == [3] * 6
    assert wait_on(future) == [1, 2]


def test_large_results_of_the_program_can_be_changed() -> None:
    @task(returns=1)
    def zeros() -> Any:
        return np.zeros(LARGE)

    future = zeros()
    mine = future.result()
    mine[0] = 5
    assert float(total(future).result()) == 0.0
    assert float(total(mine).result()) == 5.0


def test_inout_of_a_large_array_in_a_chain() -> None:
    @task(a=INOUT)
    def bump(a: Any) -> None:
        a += 1

    numbers = np.zeros(LARGE)
    readers = []
    for _ in range(5):
        bump(numbers)
        readers.append(total(numbers))
    assert [float(x) for x in wait_on(readers)] == [LARGE * i for i in range(1, 6)]
    assert wait_on(numbers) is numbers and (numbers == 5).all()


def test_inout_of_an_object_that_holds_a_large_array() -> None:
    @task(holder=INOUT)
    def bump(holder: Holder) -> None:
        holder.content["x"] += 1

    holder = Holder({"x": np.zeros(LARGE)})
    bump(holder)
    reader = look(holder, ["content", "x", slice(0, 2)])
    bump(holder)
    assert wait_on(reader).tolist() == [1, 1]
    assert wait_on(holder) is holder and (holder.content["x"] == 2).all()


def test_arrays_of_every_layout_arrive_equal() -> None:
    big = np.arange(LARGE, dtype=np.int32)
    arrays = [
        big.reshape(3, -1),
        np.asfortranarray(big.reshape(3, -1)),
        big[::7],
        big[::-1],
        np.array(5.0),
        np.zeros((0, 3)),
        np.array(["a", "bc"]),
        np.rec.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
        np.ma.masked_array([1, 2], mask=[True, False]),
        big.astype(">i4"),
    ]
    for sent in arrays:
        got = make(sent).result()
        assert type(got) is type(sent) and got.dtype == sent.dtype and got.shape == sent.shape
        assert np.array_equal(got, sent)


@pytest.mark.one_in(2)
def test_temporary_large_arrays_one_after_another() -> None:
    """What is stored for one call is freed while the next comes, of an array at the same place or of equal bytes."""
    for turn in range(100):
        numbers = np.arange(LARGE, dtype=np.int32)
        for array in (numbers.reshape(3, -1), np.asfortranarray(numbers.reshape(3, -1)), numbers[::7] + turn % 2):
            assert np.array_equal(make(array).result(), array)


def test_a_read_only_array_arrives() -> None:
    numbers = np.ones(LARGE)
    numbers.flags.writeable = False
    assert float(total(numbers).result()) == LARGE


# --- share --------------------------------------------------------------------------------------------------------


def test_a_shared_object_reaches_every_task() -> None:
    table = share(np.arange(LARGE))
    expected = int(table.sum())
    assert [int(x) for x in wait_on([total(table) for _ in range(5)])] == [expected] * 5
    assert int(look({"deep": [table]}, ["deep", 0, 7]).result()) == 7


def test_share_gives_back_the_object_itself() -> None:
    words = {"a": 1}
    assert share(words) is words
    assert share(words) is words
    assert look(words, ["a"]).result() == 1
    assert wait_on(words) is words


def test_a_shared_object_cannot_be_inout() -> None:
    bag = share([1])
    with pytest.raises(CallError, match="share"):
        push(bag, 2)


def test_a_shared_object_that_is_forgotten_is_ordinary_again() -> None:
    bag = share([1])
    assert total(bag).result() == 1
    penstock.delete_object(bag)
    bag.append(2)
    assert total(bag).result() == 3
    push(bag, 3)
    assert wait_on(bag) == [1, 2, 3]


def test_a_shared_object_twice_is_one_object_inside_the_task() -> None:
    table = share(np.zeros(LARGE))
    assert same(table, [table]).result() is True


def test_sharing_an_object_that_tasks_update_shares_the_newest_version() -> None:
    bag = [1]
    push(bag, 2)
    wait_on(bag)
    share(bag)
    assert total(bag).result() == 3


# --- what cannot be sent ------------------------------------------------------------------------------------------


def test_an_argument_that_cannot_be_pickled_names_the_task_at_the_call() -> None:
    import threading

    with pytest.raises(SerializationError, match="make") as caught:
        make({"inside": threading.Lock()})
    assert "lock" in str(caught.value)
    assert make(1).result() == 1


def test_a_result_that_cannot_be_pickled_names_the_task() -> None:
    @task(returns=1)
    def bad_result() -> Any:
        import threading

        return threading.Lock()

    with pytest.raises(SerializationError, match="bad_result"):
        bad_result().result()


def test_open_text_files_are_refused_wherever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")

    @task(returns=1)
    def opened(name: str) -> Any:
        return open(name)

    with open(path) as file:

        @task(returns=1)
        def line() -> str:
            return file.readline()

        for call in (line, lambda: make(file), lambda: make([file]), lambda: opened(str(path)).result()):
            with pytest.raises(SerializationError, match=r"open file .*lines.*path"):
                call()
        assert file.readline() == "a\n"


# --- defaults that a body changes ---------------------------------------------------------------------------------


@task(returns=1)
def seen(value: int, before: list[int] = [], *, times: dict[int, int] = {}) -> Any:  # noqa: B006
    before.append(value)
    times[value] = times.get(value, 0) + 1
    return before, times


@task(returns=1)
def seen_twice(value: int) -> Any:
    return [seen(value).result(), seen(value).result()]


def test_a_default_that_a_body_changes_is_that_of_the_program_for_every_call() -> None:
    alone = [([value], {value: 1}) for value in range(6)]
    assert wait_on([seen(value) for value in range(6)]) == alone
    assert wait_on(list(seen.map(range(6)))) == alone
    assert wait_on(seen_twice(3)) == [alone[3], alone[3]]
    assert wait_on(seen_twice(3)) == [alone[3], alone[3]]
    assert seen(1, [5]).result() == ([5, 1], {1: 1})
    assert seen(1, times={1: 1}).result() == ([1], {1: 2})


def test_a_default_that_the_program_changes_is_so_for_calls_to_come() -> None:
    @task(returns=1)
    def first(values: list[int] = [1]) -> int:  # noqa: B006
        return values[0]

    assert first().result() == 1
    first.__wrapped__.__defaults__[0][0] = 2
    assert first().result() == 2
    first.__wrapped__.__defaults__ = ([3],)
    assert first().result() == 3


def test_a_failed_call_leaves_the_objects_as_they_were() -> None:
    import threading

    @task(bag=INOUT)
    def push_lock(bag: list[Any], lock: Any) -> None:
        bag.append(lock)

    bag = [1]
    with pytest.raises(SerializationError):
        push_lock(bag, threading.Lock())
    push(bag, 2)
    assert wait_on(bag) == [1, 2]


def test_functions_classes_and_modules_as_arguments() -> None:
    import math

    offset = 3
    assert look([math], [0, "pi"]).result() == math.pi

    @task(returns=1)
    def call(function: Any, *args: Any) -> Any:
        return function(*args)

    assert call(lambda x: x + offset, 1).result() == 4
    assert call(Holder, 5).result().content == 5
    assert isinstance(call(Holder, 5).result(), Holder)


def test_generators_cannot_be_arguments() -> None:
    with pytest.raises(SerializationError, match="total"):
        total(i for i in range(3))
