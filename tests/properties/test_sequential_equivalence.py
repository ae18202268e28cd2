"""The first promise: a program's results equal those of running it sequentially.

Hypothesis writes programs: sequences of task calls on a handful of objects and files, with waits and changes by the
main program in between. Each is run twice, once with the plain functions and once with tasks, and every object, file
and returned value must agree at the end.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import (
    COLLECTION_IN,
    COLLECTION_INOUT,
    COLLECTION_OUT,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    IN,
    INOUT,
    OUT,
    Depth,
    Type,
    ready_file,
    ready_value,
    task,
    wait_on,
)

LISTS, ARRAYS, FILES = 3, 2, 2
# One array rides inside messages, the other lives in shared memory.
SIZES = (4, 20_000)


# --- the tasks ----------------------------------------------------------------------------------------------------


@task(target=INOUT)
def push(target: list[Any], value: Any) -> None:
    target.append(value)


@task(target=INOUT)
def extend(target: list[Any], source: list[Any]) -> None:
    target.extend(list(source)[-3:])


@task(target=OUT)
def renew(target: list[Any], count: int) -> None:
    target[:] = range(count)


@task(a=INOUT, b=INOUT, returns=1)
def exchange(a: list[Any], b: list[Any]) -> int:
    a[:], b[:] = list(b), list(a)
    return len(a)


@task(target=OUT, returns=1)
def renew_beside(target: list[Any], count: int, *others: Any, **named: Any) -> list[Any]:
    """Sees what it is given before and after it writes one of it, which may be among it, however deep."""
    before = [look_into(other) for other in (*others, *named.values())]
    target[:] = range(count)
    return [before, *(look_into(other) for other in (*others, *named.values()))]


@task(target=OUT, also=INOUT)
def renew_and_push(target: list[Any], also: list[Any], value: Any) -> None:
    also.append(value)
    if target is not also:
        target[:] = also[-2:]


@task(targets=COLLECTION_OUT, returns=1)
def renew_each(targets: list[list[Any]], count: int, source: Any) -> Any:
    seen = look_into(source)
    for target in targets:
        target[:] = range(count)
    return [seen, look_into(source)]


def look_into(value: Any) -> Any:
    """A number for anything, that says what lists in it hold now."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [len(value), *(look_into(part) for part in value[:4])]
    return number(value)


@task(returns=1)
def total(values: Any) -> int:
    return sum(map(number, values))


@task(returns=1)
def copied(values: list[Any]) -> list[Any]:
    return list(values)


@task(returns=2)
def ends(values: list[Any]) -> tuple[Any, Any]:
    return (values[0], values[-1]) if values else (0, 0)


@task(table=INOUT)
def put(table: dict[str, Any], key: str, value: Any) -> None:
    table[key] = value


@task(items=COLLECTION_INOUT)
def push_to_each(items: list[list[Any]], value: Any) -> None:
    for item in items:
        item.append(value)


@task(items=COLLECTION_IN, returns=1)
def sizes(items: list[Any]) -> list[int]:
    return [len(item) for item in items]


@task(items={Type: COLLECTION_INOUT, Depth: 2})
def push_deep(items: list[list[list[Any]]], value: Any) -> None:
    for row in items:
        for item in row:
            item.append(value)


@task(numbers=COLLECTION_INOUT)
def increase(numbers: list[int], by: int) -> None:
    for i in range(len(numbers)):
        numbers[i] += by


@task(array=INOUT)
def scale(array: Any, by: int) -> None:
    array *= by
    array += 1


@task(array=OUT, returns=1)
def refill(array: Any, source: Any) -> float:
    before = float(np.sum(source))
    array[...] = before % 5
    return before + float(np.sum(source))


@task(first=INOUT, second=INOUT)
def mix(first: Any, second: Any) -> None:
    first += 1
    second *= 2


@task(parts=COLLECTION_INOUT, returns=1)
def scale_each(parts: list[Any], other: Any) -> float:
    for place, part in enumerate(parts):
        part += place
    return float(np.sum(other))


@task(returns=1)
def array_sum(array: Any) -> float:
    return float(array.sum())


@task(returns=1)
def look(holder: dict[str, Any]) -> list[int]:
    return [sum(map(number, holder["list"])), len(holder["inner"][0]), int(holder["array"][0])]


@task(path=FILE_OUT)
def write(path: Any, text: str) -> None:
    Path(path).write_text(text)


@task(path=FILE_INOUT)
def append_text(path: Any, value: Any) -> None:
    with open(path, "a") as file:
        file.write(f"{value},")


@task(path=FILE_IN, returns=1)
def read(path: Any) -> str:
    return Path(path).read_text()


def pieces(values: list[Any]) -> list[list[Any]]:
    """What ``scatter`` and ``flow`` make of a list."""
    return [list(values)[start::3] for start in range(3)]


def misfortune(place: int, marker: str, program: int) -> None:
    """The first attempt ends here: by SIGKILL if it has a process of its own, else by raising."""
    if place and not os.path.exists(marker):
        Path(marker).touch()
        if os.getpid() != program:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("once")


@task(returns=3, retries=1)
def scatter(values: list[Any], order: tuple[int, ...], marker: str, program: int, fails: int) -> Any:
    """Hands over some of its outputs in any order, changes them afterwards, and returns the others."""
    parts = pieces(values)
    for place, index in enumerate(order):
        ready_value(parts[index], index)
        parts[index].append("changed too late")
        misfortune(fails == place, marker, program)
    return [None if index in order else part for index, part in enumerate(parts)] if len(order) < 3 else None


@task(retries=1)
def flow(values: list[Any], marker: str, program: int, fails: int) -> Iterator[list[Any]]:
    """The same as a stream."""
    for place, part in enumerate(pieces(values)):
        yield part
        part.append("changed too late")
        misfortune(fails == place, marker, program)


@task(first=FILE_OUT, second=FILE_OUT)
def write_both(first: Any, second: Any, text: str) -> None:
    Path(first).write_text(text)
    if text:
        ready_file(first)
    Path(second).write_text(text * 2)


class Counter:
    def __init__(self) -> None:
        self.count = 0
        self.seen: list[Any] = []

    @task(returns=1)
    def add(self, value: Any) -> int:
        self.count += 1
        self.seen.append(value)
        return self.count

    @task(returns=1)
    def meet(self, other: Any, value: Any) -> Any:
        self.seen.append(value)
        return [len(other.seen), other is self]

    @task(target_direction=IN, returns=1)
    def peek(self) -> tuple[int, list[Any]]:
        return self.count, list(self.seen)


def number(value: Any) -> int:
    """Something to add up, whatever a program has put into a list."""
    if isinstance(value, int | float):
        return int(value) % 1_000_003
    return len(value) if isinstance(value, str | list | tuple) else 1


# --- a program ----------------------------------------------------------------------------------------------------


class Program:
    """The objects of a program, and its steps. Plain, the functions themselves are called."""

    def __init__(self, folder: Path, *, plain: bool) -> None:
        self.plain = plain
        self.lists: list[list[Any]] = [[i] for i in range(LISTS)]
        self.table: dict[str, Any] = {}
        self.counter = Counter()
        self.numbers: list[Any] = [1, 2, 3]
        self.arrays = [np.ones(size) for size in SIZES]
        self.tables = [np.ones((6, 4)), np.ones((6, 2_000))]
        self.files = [folder / f"{i}.txt" for i in range(FILES)]
        for path in self.files:
            path.write_text("start,")
        #: what tasks returned: numbers and the like, and lists that later steps may update
        self.values: list[Any] = [0]
        self.made: list[Any] = []
        self._attempts = tempfile.TemporaryDirectory()
        self._scattered = 0

    def attempt(self, fails: int) -> tuple[str, int, int]:
        """Where a task notes that it was tried, who calls it, and where its first attempt fails."""
        self._scattered += 1
        return f"{self._attempts.name}/{self._scattered}", os.getpid(), fails

    def scatter(self, values: list[Any], order: tuple[int, ...], fails: int) -> None:
        """Three lists from one, handed over early."""
        if self.plain:
            self.made.extend(pieces(values))
        else:
            self.made.extend(scatter(values, order, *self.attempt(fails)))

    def flow(self, values: list[Any], fails: int) -> None:
        """The same from a stream, also given as a whole to a task."""
        if self.plain:
            self.made.extend(pieces(values))
            self.values.append(sizes.__wrapped__(pieces(values)))
        else:
            stream = flow(values, *self.attempt(fails))
            self.values.append(sizes(stream))
            self.made.extend(stream)

    def call(self, function: Any, *args: Any) -> Any:
        return function.__wrapped__(*args) if self.plain else function(*args)

    def renew_each(self, targets: list[Any], count: int) -> None:
        """The list of what is written is also read."""
        self.values.append(self.call(renew_each, targets, count, targets))

    def method(self, name: str, *args: Any) -> Any:
        function = vars(Counter)[name]
        return self.call(function, self.counter, *args)

    def value(self, index: int) -> Any:
        return self.values[index % len(self.values)]

    def anything(self, index: int) -> list[Any]:
        """A list of the program or one that a task made."""
        everything = self.lists + self.made
        return everything[index % len(everything)]  # type: ignore[no-any-return]

    def part(self, i: int, j: int) -> Any:
        """A table, or a part of one, or a part of an array."""
        table = self.tables[i % 2]
        return PARTS[(i * 8 + j) % len(PARTS)](table)

    def bring(self, obj: Any) -> Any:
        return obj if self.plain else wait_on(obj)

    def finish(self) -> dict[str, Any]:
        """All that a user could look at in the end."""
        self.bring([self.lists, self.table, self.counter, self.arrays])
        state = {
            "lists": [self.bring(each) for each in self.lists],
            "table": self.bring(self.table),
            "counter": (self.counter.count, self.counter.seen),
            "numbers": list(self.bring(self.numbers)),
            "arrays": [array.tolist() for array in self.arrays],
            "tables": [self.bring(table).tobytes() for table in self.tables],
            "values": [self.bring(value) for value in self.values],
            "made": [self.bring(made) for made in self.made],
        }
        if not self.plain:
            penstock.barrier()
        return self.bring(state) | {"files": [path.read_text() for path in self.files]}


Step = tuple[str, int, int, int]
#: views of a table
PARTS: list[Callable[[Any], Any]] = [
    lambda table: table,
    lambda table: table[2],
    lambda table: table[1:4],
    lambda table: table[::2],
    lambda table: table[:, 1],
    lambda table: table[3:, 2:],
    lambda table: table.T[:2],
    lambda table: table.reshape(-1)[3:9],
    lambda table: table[::-1, :3],
    lambda table: table[4:, :1],
    lambda table: table[0],
]
#: of outputs that are handed over early
ORDERS = ((), (0,), (2,), (1, 0), (0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2))
STEPS: dict[str, Callable[[Program, int, int, int], Any]] = {
    "push": lambda p, i, j, k: p.call(push, p.anything(i), k),
    "push a value": lambda p, i, j, k: p.call(push, p.anything(i), p.value(j)),
    "extend": lambda p, i, j, k: p.call(extend, p.anything(i), p.anything(j)),
    "renew": lambda p, i, j, k: p.call(renew, p.lists[i % LISTS], k % 4),
    "renew beside": lambda p, i, j, k: p.values.append(p.call(renew_beside, p.lists[i % LISTS], k % 4, p.anything(j))),
    "renew beside, deep": lambda p, i, j, k: p.values.append(
        p.call(renew_beside, p.lists[i % LISTS], k % 4, {"one": [p.anything(j)]}, 7, (p.anything(k), [p.lists[0]]))
    ),
    "renew and push": lambda p, i, j, k: p.call(renew_and_push, p.lists[i % LISTS], p.lists[j % LISTS], k),
    "renew each": lambda p, i, j, k: p.values.append(
        p.call(renew_each, [p.lists[i % LISTS], p.lists[j % LISTS]], k, p.anything(k))
    ),
    "renew each of what is read": lambda p, i, j, k: p.renew_each([p.lists[i % LISTS], p.lists[j % LISTS]], k),
    "meet": lambda p, i, j, k: p.values.append(p.method("meet", p.counter, k)),
    "exchange": lambda p, i, j, k: p.values.append(
        p.call(exchange, p.lists[i % LISTS], p.lists[(i + 1 + j % (LISTS - 1)) % LISTS])
    ),
    "total": lambda p, i, j, k: p.values.append(p.call(total, p.anything(i))),
    "total of values": lambda p, i, j, k: p.values.append(p.call(total, [p.value(i), p.value(j), k])),
    "copied": lambda p, i, j, k: p.made.append(p.call(copied, p.anything(i))),
    "ends": lambda p, i, j, k: p.values.extend(p.call(ends, p.anything(i))),
    "put": lambda p, i, j, k: p.call(put, p.table, "abc"[i % 3], p.value(j)),
    "push to each": lambda p, i, j, k: p.call(push_to_each, [p.anything(i), p.anything(j)], k),
    "push deep": lambda p, i, j, k: p.call(push_deep, [[p.anything(i)], [p.anything(j), p.anything(k)]], p.value(i)),
    "sizes": lambda p, i, j, k: p.values.append(p.call(sizes, [p.anything(i), p.anything(j)])),
    "increase": lambda p, i, j, k: p.call(increase, p.numbers, k),
    "total of numbers": lambda p, i, j, k: p.values.append(p.call(total, p.numbers)),
    "scale": lambda p, i, j, k: p.call(scale, p.arrays[i % ARRAYS], k % 3),
    "scale a part": lambda p, i, j, k: p.call(scale, p.part(i, j), k % 3),
    "refill a part": lambda p, i, j, k: p.values.append(p.call(refill, p.part(i, j), p.part(i, k))),
    "mix parts": lambda p, i, j, k: p.call(mix, p.part(i, j), p.part(i + k, k)),
    "scale parts in a list": lambda p, i, j, k: p.values.append(
        p.call(scale_each, [p.part(i, j)[:], p.part(k, j)[:]], p.part(i, k))
    ),
    "sum of a part": lambda p, i, j, k: p.values.append(p.call(array_sum, p.part(i, j))),
    "look at a part": lambda p, i, j, k: p.values.append(
        p.call(look, {"list": [], "inner": (p.part(i, j),), "array": p.tables[i % 2].reshape(-1)[k : k + 4]})
    ),
    "wait and change a part": lambda p, i, j, k: p.bring(p.part(i, j)).__setitem__(..., k),
    "array sum": lambda p, i, j, k: p.values.append(p.call(array_sum, p.arrays[i % ARRAYS])),
    "look": lambda p, i, j, k: p.values.append(
        p.call(look, {"list": p.anything(i), "inner": (p.anything(j),), "array": p.arrays[k % ARRAYS]})
    ),
    "count": lambda p, i, j, k: p.values.append(p.method("add", p.value(i))),
    "peek": lambda p, i, j, k: p.values.append(p.method("peek")),
    "scatter": lambda p, i, j, k: p.scatter(p.anything(i), ORDERS[j], k),
    "flow": lambda p, i, j, k: p.flow(p.anything(i), k),
    "write both": lambda p, i, j, k: p.call(write_both, p.files[i % 2], p.files[1 - i % 2], f"{k}," * (j % 3)),
    "write": lambda p, i, j, k: p.call(write, p.files[i % FILES], f"{k},"),
    "append text": lambda p, i, j, k: p.call(append_text, p.files[i % FILES], p.value(j)),
    "read": lambda p, i, j, k: p.values.append(p.call(read, p.files[i % FILES])),
    "map": lambda p, i, j, k: p.values.extend(
        [p.call(total, each) for each in (p.anything(i), p.anything(j))]
        if p.plain
        else total.map([p.anything(i), p.anything(j)])
    ),
    "wait and change": lambda p, i, j, k: p.bring(p.lists[i % LISTS]).append(-k),
    "wait and change the array": lambda p, i, j, k: p.bring(p.arrays[i % ARRAYS]).__setitem__(0, k),
    "wait for a value": lambda p, i, j, k: p.bring(p.value(i)),
    "barrier": lambda p, i, j, k: None if p.plain else penstock.barrier(),
}

SMALL = st.integers(0, 7)
PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), SMALL, SMALL, SMALL), min_size=1, max_size=30)


def outcome(steps: list[Step], *, plain: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder), plain=plain)
        for name, i, j, k in steps:
            STEPS[name](program, i, j, k)
        state = program.finish()
        assert sorted(path.name for path in Path(folder).iterdir()) == ["0.txt", "1.txt"]
        return state


@pytest.fixture(scope="module", params=[{"cpus": 2}, {"mode": "inline"}], ids=["workers", "inline"])
def runtime(request: pytest.FixtureRequest) -> Iterator[penstock.Runtime]:
    with penstock.Runtime(**request.param) as runtime:
        yield runtime


# A thousand more are tried in test_sequential_equivalence_long.py.
@pytest.mark.one_in(2)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=PROGRAMS)
def test_a_program_of_tasks_ends_as_the_plain_program(runtime: penstock.Runtime, steps: list[Step]) -> None:
    assert outcome(steps, plain=False) == outcome(steps, plain=True)


def test_every_step_is_tried() -> None:
    """Each step alone, so that a step which fails is seen under its own name."""
    with penstock.Runtime(mode="inline"):
        for name in STEPS:
            steps = [(name, 1, 2, 3), ("copied", 0, 0, 0), (name, 0, 1, 2)]
            assert outcome(steps, plain=False) == outcome(steps, plain=True), name
