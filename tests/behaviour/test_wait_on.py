"""``wait_on``, ``barrier`` and ``delete_object``: values of tasks come back to the main program."""

from __future__ import annotations

import array
import copy
import random
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import INOUT, OUT, barrier, delete_object, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")

Point = namedtuple("Point", "x y")


class Pair(NamedTuple):
    left: Any
    right: Any


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass
class Record:
    name: str
    values: list[int] = field(default_factory=list)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: int) -> None:
        self.a = a


@dataclass(slots=True)
class SlottedRecord:
    a: int
    b: list[int]


class Stack(list[int]):
    def __init__(self, values: Any, label: str = "") -> None:
        super().__init__(values)
        self.label = label


class SlottedWithDict(Slotted):
    def __init__(self, a: int) -> None:
        super().__init__(a)
        self.extra = "old"


@task(returns=1)
def make(value: Any) -> Any:
    return value


@task(obj=INOUT)
def update(obj: Any, change: Any, *args: Any) -> None:
    change(obj, *args)


@task(returns=1)
def fail(message: str) -> Any:
    raise ValueError(message)


# --- futures and containers ---------------------------------------------------------------------------------------


def test_one_object_gives_one_value_and_several_give_a_list() -> None:
    assert wait_on(make(1)) == 1
    assert wait_on(make(1), make(2), 3) == [1, 2, 3]


def test_what_no_task_touched_comes_back_itself() -> None:
    for obj in ([1, [2]], {"a": 1}, (1, 2), {1}, "text", 5, None, Plain(1), np.arange(3)):
        assert wait_on(obj) is obj


def test_containers_of_futures_recursively() -> None:
    nested = {"a": [make(1), (make(2), make(3))], "b": {"c": make(4)}, "d": 5}
    assert wait_on(nested) == {"a": [1, (2, 3)], "b": {"c": 4}, "d": 5}


def test_types_of_containers_are_kept() -> None:
    assert wait_on((make(1), 2)) == (1, 2)
    point = wait_on(Point(make(1), make(2)))
    assert type(point) is Point and point == Point(1, 2)
    pair = wait_on(Pair([make(1)], {"k": make(2)}))
    assert type(pair) is Pair and pair == Pair([1], {"k": 2})
    assert wait_on({make(1), make(2)}) == {1, 2}
    assert wait_on(frozenset([make(1), 5])) == frozenset([1, 5])
    assert wait_on(deque([make(1), make(2)])) == deque([1, 2])


def test_subclasses_of_containers_are_looked_into() -> None:
    ordered = wait_on(OrderedDict(a=make(1), b=[make(2)]))
    assert type(ordered) is OrderedDict and ordered == OrderedDict(a=1, b=[2])
    grouped: defaultdict[str, list[Any]] = defaultdict(list)
    grouped["x"].append(make(3))
    found = wait_on(grouped)
    assert type(found) is defaultdict and found == {"x": [3]}


def test_an_object_array_of_futures() -> None:
    grid = np.empty((2, 2), dtype=object)
    for index in np.ndindex(2, 2):
        grid[index] = make(sum(index))
    assert wait_on(grid).tolist() == [[0, 1], [1, 2]]


def test_futures_as_keys_stay_keys_values_are_waited_for() -> None:
    assert wait_on({1: make("one"), "two": [make(2)]}) == {1: "one", "two": [2]}


def test_many_futures() -> None:
    assert wait_on([make(i) for i in range(500)]) == list(range(500))


def test_a_failure_inside_a_container_is_raised() -> None:
    with pytest.raises(ValueError, match="inside"):
        wait_on([make(1), {"a": fail("inside")}])


def test_the_same_future_twice_is_the_same_value() -> None:
    future = make([1])
    first, second = wait_on([future, future])
    assert first is second == [1]


def test_waiting_twice() -> None:
    bag = [1]
    update(bag, list.append, 2)
    assert wait_on(bag) is bag
    assert wait_on(bag) is bag
    assert bag == [1, 2]


# --- objects that tasks update are brought up to date in place ----------------------------------------------------


def _set_value(obj: Any, value: Any) -> None:
    obj.value = value


def _fill_array(obj: Any, value: Any) -> None:
    obj[...] = value


def _change_record(obj: Record) -> None:
    obj.name = "new"
    obj.values.append(5)


def _change_slots(obj: Any) -> None:
    obj.a, obj.b = 10, [20]


def _change_both(obj: Any) -> None:
    _change_slots(obj)
    obj.extra = "new"


def _change_stack(obj: Stack) -> None:
    obj.append(3)
    obj.label = "changed"


def _set_item(obj: Any, key: Any, value: Any) -> None:
    obj[key] = value


def _delete_attribute(obj: Any) -> None:
    del obj.value


UPDATES: list[tuple[str, Any, Any, tuple[Any, ...], Any]] = [
    ("list", lambda: [1, 2], list.append, (3,), lambda o: o == [1, 2, 3]),
    ("list shrinks", lambda: [1, 2], list.clear, (), lambda o: o == []),
    ("dict", lambda: {"a": 1}, dict.update, ({"b": 2},), lambda o: o == {"a": 1, "b": 2}),
    ("set", lambda: {1}, set.add, (2,), lambda o: o == {1, 2}),
    ("bytearray", lambda: bytearray(b"ab"), bytearray.extend, (b"c",), lambda o: o == b"abc"),
    ("deque", lambda: deque([1], maxlen=2), deque.extend, ([2, 3],), lambda o: list(o) == [2, 3] and o.maxlen == 2),
    ("array.array", lambda: array.array("i", [1]), array.array.append, (2,), lambda o: o.tolist() == [1, 2]),
    ("Counter", lambda: Counter("aab"), Counter.update, ("bb",), lambda o: o == Counter(a=2, b=3)),
    ("defaultdict", lambda: defaultdict(list), _set_item, ("k", [1]), lambda o: o == {"k": [1]} and o["new"] == []),
    ("OrderedDict", lambda: OrderedDict(a=1, b=2), OrderedDict.move_to_end, ("a",), lambda o: list(o) == ["b", "a"]),
    ("ndarray", lambda: np.zeros(4), _fill_array, (7,), lambda o: o.tolist() == [7.0] * 4),
    ("ndarray 2d", lambda: np.zeros((2, 2), dtype=int, order="F"), _fill_array, (1,), lambda o: o.sum() == 4),
    ("large ndarray", lambda: np.zeros(300_000), _fill_array, (2,), lambda o: (o == 2).all()),
    ("instance", lambda: Plain(1), _set_value, ([1, 2],), lambda o: o.value == [1, 2]),
    ("instance loses", lambda: Plain(1), _delete_attribute, (), lambda o: not hasattr(o, "value")),
    ("dataclass", lambda: Record("old"), _change_record, (), lambda o: o == Record("new", [5])),
    ("slots", lambda: Slotted(1), _change_slots, (), lambda o: (o.a, o.b) == (10, [20])),
    ("slots dataclass", lambda: SlottedRecord(1, []), _change_slots, (), lambda o: o == SlottedRecord(10, [20])),
    (
        "slots and dict",
        lambda: SlottedWithDict(1),
        _change_both,
        (),
        lambda o: (o.a, o.b, o.extra) == (10, [20], "new"),
    ),
    ("list subclass", lambda: Stack([1, 2], "s"), _change_stack, (), lambda o: o == [1, 2, 3] and o.label == "changed"),
]


@pytest.mark.parametrize(
    ("new", "change", "args", "good"), [row[1:] for row in UPDATES], ids=[row[0] for row in UPDATES]
)
def test_an_updated_object_is_refreshed_in_place(new: Any, change: Any, args: tuple[Any, ...], good: Any) -> None:
    obj = new()
    kind = type(obj)
    update(obj, change, *args)
    assert wait_on(obj) is obj
    assert type(obj) is kind
    assert good(obj)


@pytest.mark.parametrize("name", ["list", "dict", "ndarray", "large ndarray", "instance"])
def test_the_program_can_go_on_with_a_refreshed_object(name: str) -> None:
    """After wait_on the object is the program's again: its own changes reach the next task."""
    _, new, change, args, _ = next(row for row in UPDATES if row[0] == name)
    expected, obj = new(), new()
    change(expected, *args)
    update(obj, change, *args)
    wait_on(obj)
    for each in (expected, obj):
        if isinstance(each, list):
            each.insert(0, "mine")
        elif isinstance(each, dict):
            each["mine"] = 1
        elif isinstance(each, np.ndarray):
            each[0] = -1
        else:
            each.mine = 1
    seen = make(obj).result()
    assert shown(seen) == shown(expected)
    if name != "instance":
        change(expected, *args)
        update(obj, change, *args)
        assert wait_on(obj) is obj and shown(obj) == shown(expected)


def shown(obj: Any) -> str:
    return str(vars(obj) if isinstance(obj, Plain) else obj)


def test_two_names_of_one_object_are_both_up_to_date() -> None:
    inner = [1]
    holder = {"inner": inner}
    update(inner, list.append, 2)
    wait_on(inner)
    assert holder == {"inner": [1, 2]} and holder["inner"] is inner


def test_a_container_of_updated_objects() -> None:
    bags = [[0], [1], [2]]
    originals = list(bags)
    for bag in bags:
        update(bag, list.append, 9)
    assert wait_on(bags) == [[0, 9], [1, 9], [2, 9]]
    assert all(a is b for a, b in zip(bags, originals, strict=True))


@task(source=INOUT)
def use(source: Any, action: str, *args: Any) -> Any:
    return getattr(source, action)(*args)


class Dice(random.Random):
    pass


@pytest.mark.parametrize(
    ("make", "action", "args", "look"),
    [
        (lambda: random.Random(3), "random", (), random.Random.random),
        (lambda: Dice(3), "random", (), Dice.random),
        (lambda: np.random.default_rng(3), "random", (), lambda source: float(source.random())),
        (lambda: np.random.default_rng(3), "spawn", (1,), lambda source: float(source.spawn(1)[0].random())),
        (lambda: np.random.RandomState(3), "randn", (), lambda source: float(source.randn())),
        (lambda: np.random.PCG64(3), "random_raw", (), lambda source: int(source.random_raw())),
        (lambda: StringIO("abcde"), "write", ("xy",), lambda source: (source.tell(), source.getvalue())),
        (lambda: BytesIO(b"abcde"), "read", (2,), BytesIO.read),
        (lambda: ValueError("x"), "__init__", ("y", 2), lambda error: error.args),
    ],
    ids=["Random", "its subclass", "Generator", "spawn", "RandomState", "PCG64", "StringIO", "BytesIO", "exception"],
)
def test_what_is_kept_beside_attributes_is_brought_up_to_date(make: Any, action: str, args: Any, look: Any) -> None:
    good, here = make(), make()
    for _ in range(2):
        getattr(good, action)(*args)
        use(here, action, *args)
    assert wait_on(here) is here
    assert look(here) == look(good)


def test_what_cannot_be_brought_up_to_date_comes_back_anew() -> None:
    items = iter([1, 2, 3])
    use(items, "__next__")
    newest = wait_on(items)
    assert (list(newest), list(items)) == ([2, 3], [1, 2, 3])
    error = FileNotFoundError(2, "not there", "a")
    use(error, "__setattr__", "filename", "b")
    assert wait_on(error).filename == "b"


class Text(str):
    """A string with attributes."""


class Number(int):
    """A number with attributes."""


class Several(tuple[Any, ...]):
    """A tuple with attributes."""


class After(Plain):
    """What a task makes of an instance of another class."""


def _append_first(obj: Any) -> None:
    obj[0].append(3)


def _append_deep(obj: Any) -> None:
    obj[1][0].append(3)
    obj[1][1]["k"] = obj[0]
    obj[2].value = obj


def _be_after(obj: Any) -> None:
    obj.__class__ = After
    obj.value = 5


@pytest.mark.parametrize(
    ("obj", "change", "good"),
    [
        (([1], "a"), _append_first, lambda o: o == ([1, 3], "a")),
        (Point([1], 2), _append_first, lambda o: o == Point([1, 3], 2)),
        (
            ([1], ([2], {}), Plain(4)),
            _append_deep,
            lambda o: o[0] == [1] and o[1][0] == [2, 3] and o[1][1]["k"] is o[0] and o[2].value is o,
        ),
        ((bag := [1], bag), _append_first, lambda o: o == ([1, 3], [1, 3]) and o[0] is o[1]),
        ((np.zeros(2), [np.zeros(1)]), lambda o: o[0].fill(1), lambda o: o[0].tolist() == [1, 1]),
        (Several(([1],)), lambda o: (_append_first(o), _set_value(o, 7)), lambda o: (*o, o.value) == ([1, 3], 7)),
        (Text("a"), lambda o: _set_value(o, 7), lambda o: (o, o.value) == ("a", 7)),
        (Number(4), lambda o: _set_value(o, 7), lambda o: (o, o.value) == (4, 7)),
        (Plain(1), _be_after, lambda o: type(o) is After and o.value == 5),
    ],
    ids=["tuple", "named", "deep", "one twice", "array", "Several", "Text", "Number", "class"],
)
def test_what_an_object_holds_that_cannot_become_another(obj: Any, change: Any, good: Any) -> None:
    obj = copy.deepcopy(obj)
    update(obj, change)
    assert wait_on(obj) is obj
    assert good(obj)


def test_what_a_tuple_holds_is_brought_up_to_date_as_a_whole_or_not_at_all() -> None:
    def change(obj: Any) -> None:
        obj[0].append(1)
        next(obj[1])

    obj: tuple[Any, ...] = ([], iter([1, 2]))
    update(obj, change)
    newest = wait_on(obj)
    assert (newest[0], list(newest[1])) == ([1], [2])
    assert (obj[0], list(obj[1])) == ([], [1, 2])


@only_workers
def test_the_end_tells_of_what_is_old_though_wait_on_gave_the_new(capfd: pytest.CaptureFixture[str]) -> None:
    barrier()
    items, pair = iter([1, 2, 3]), ([1],)
    with penstock.Runtime(mode="inline"):
        update(items, next)
        update(pair, _append_first)
        assert list(wait_on(items)) == [2, 3]
        wait_on(pair)
    told = capfd.readouterr().err
    assert "tasks have replaced 1 list_iterator as a whole; the program has the old, wait_on() gives the new" in told
    assert "tuple" not in told and pair == ([1, 3],)


def test_what_tasks_update_by_itself_is_theirs_in_a_tuple_too() -> None:
    inner = [0]
    obj = (inner,)
    update(obj, _append_first)
    update(inner, list.append, 1)
    assert wait_on(obj) == ([0, 3],)
    assert wait_on(inner) == [0, 1]


def test_an_array_of_another_shape_comes_back_as_the_value() -> None:
    def stand_up(obj: Any) -> None:
        obj.shape = (3, 1)

    numbers = np.arange(3)
    update(numbers, stand_up)
    assert wait_on(numbers).tolist() == [[0], [1], [2]]
    assert wait_on(numbers).shape == (3, 1)


def test_out_object_is_refreshed_in_place() -> None:
    @task(target=OUT)
    def produce(target: list[int], count: int) -> None:
        target.clear()
        target.extend(range(count))

    target = ["old"]
    produce(target, 3)
    assert wait_on(target) is target
    assert target == [0, 1, 2]


def test_waiting_for_an_object_whose_last_writer_failed_raises() -> None:
    def explode(obj: Any) -> None:
        raise KeyError("exploded")

    bag = [1]
    update(bag, explode)
    with pytest.raises((KeyError, penstock.DependencyFailed), match="exploded"):
        wait_on(bag)


def test_a_failed_update_can_be_forgotten_and_the_old_value_used_again() -> None:
    def half_done(obj: Any) -> None:
        obj.append("half")
        raise KeyError("exploded")

    bag = [1]
    update(bag, half_done)
    with pytest.raises(KeyError):
        barrier()
    delete_object(bag)
    assert make(bag).result() == [1]
    update(bag, list.append, 2)
    assert wait_on(bag) == [1, 2]


def test_a_future_as_inout_stands_for_the_newest_version() -> None:
    future = make([1])
    update(future, list.append, 2)
    update(future, list.append, 3)
    assert wait_on(future) == [1, 2, 3]


def test_a_reader_submitted_before_a_writer_of_the_future_sees_the_old_version() -> None:
    future = make([1])
    before = make(future)
    update(future, list.append, 2)
    after = make(future)
    assert wait_on(before, after, future) == [[1], [1, 2], [1, 2]]


# --- barrier ------------------------------------------------------------------------------------------------------


def test_barrier_waits_for_everything() -> None:
    futures = [make(i) for i in range(50)]
    bag: list[int] = []
    update(bag, list.append, 1)
    barrier()
    assert all(future.done() for future in futures)
    assert wait_on(bag) == [1]


def test_barrier_raises_a_failure_nobody_looked_at_once() -> None:
    future = fail("unseen")
    with pytest.raises(ValueError, match="unseen"):
        barrier()
    barrier()
    assert isinstance(future.exception(), ValueError)


def test_barrier_is_silent_about_a_failure_that_was_looked_at() -> None:
    with pytest.raises(ValueError):
        fail("seen").result()
    barrier()


def test_barrier_brings_no_values() -> None:
    """As the specification says: only wait_on brings the program's own object up to date."""
    bag = [1]
    update(bag, list.append, 2)
    barrier()
    assert wait_on(bag) == [1, 2]


@only_workers
def test_barrier_holds_while_a_task_runs(gate: Gate) -> None:
    import threading

    @task
    def pass_gate(gate: Gate) -> None:
        gate.enter()

    future = pass_gate(gate)
    over = threading.Event()
    waiter = threading.Thread(target=lambda: (barrier(), over.set()))
    waiter.start()
    assert not over.wait(0.05)
    gate.open()
    assert over.wait(60)
    waiter.join()
    assert future.done()


# --- delete_object ------------------------------------------------------------------------------------------------


def test_a_deleted_object_is_the_programs_own_value_again() -> None:
    bag = [1]
    update(bag, list.append, 2)
    delete_object(bag)
    assert bag == [1]
    assert make(bag).result() == [1]
    barrier()


def test_deleting_does_not_disturb_tasks_that_read() -> None:
    bag = [1]
    update(bag, list.append, 2)
    reader = make(bag)
    delete_object(bag)
    assert reader.result() == [1, 2]


def test_deleting_what_no_task_knows_does_nothing() -> None:
    delete_object([1], "x", None)
    delete_object()


def test_deleting_several() -> None:
    a, b = [1], [2]
    update(a, list.append, 0)
    update(b, list.append, 0)
    delete_object(a, b)
    assert wait_on(a, b) == [[1], [2]]
    barrier()


def test_an_address_used_again_is_another_object() -> None:
    """Identity is by address; an object that is gone must not lend its value to the next at the same place."""
    for value in range(200):
        temporary = [value]
        update(temporary, list.append, -1)
        assert wait_on(temporary) == [value, -1]
        del temporary
        assert make([value]).result() == [value]


# --- several threads --------------------------------------------------------------------------------------------------


@task(target=INOUT)
def push_behind(target: list[int], value: int, gate: Gate) -> None:
    gate.enter()
    target.append(value)


@task(target=INOUT)
def push(target: list[int], value: int) -> None:
    target.append(value)


@only_workers
def test_several_threads_wait_for_one_object(runtime: penstock.Runtime, gate: Gate) -> None:
    values: list[int] = []
    push_behind(values, 1, gate)
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(wait_on, values) for _ in range(4)]
        while runtime.driver._waiting < 4:
            time.sleep(0.001)
        gate.open()
        assert [one.result(timeout=60) for one in found] == [[1]] * 4
    assert all(one.result() is values for one in found)


@only_workers
def test_a_call_of_another_thread_is_not_lost_to_who_waits(
    runtime: penstock.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value has come, and is to become the object's; just then the object is given to one more task."""
    values: list[int] = []
    push(values, 1)
    value_of, calls = runtime.value_of, [2, 3]

    def then_one_more_call(datum: Any) -> Any:
        value = value_of(datum)
        if calls:
            thread = threading.Thread(target=push, args=(values, calls.pop(0)))
            thread.start()
            thread.join()
        return value

    monkeypatch.setattr(runtime, "value_of", then_one_more_call)
    assert wait_on(values) is values
    assert values == [1, 2, 3]
