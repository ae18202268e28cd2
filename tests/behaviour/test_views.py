"""Memory that belongs to another object is a part of it: what tasks do to a part is seen through the whole."""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import COLLECTION_INOUT, COLLECTION_OUT, IN, INOUT, OUT, CallError, barrier, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task(part=INOUT)
def add(part: Any, value: float = 1) -> None:
    part += value


@task(part=OUT)
def fill(part: Any, value: float) -> None:
    part[...] = value


@task(part=INOUT)
def set_first(part: Any, value: Any) -> None:
    part[0] = value


@task(returns=1)
def copied(part: Any) -> Any:
    return part.copy()


@task(returns=1)
def total(part: Any) -> float:
    return float(np.sum(part))


@task(returns=1)
def as_bytes(data: bytearray) -> bytes:
    return bytes(data)


SIZES = pytest.mark.parametrize("columns", [3, 40_000])


@SIZES
def test_temporary_rows_are_updated_in_the_matrix(columns: int) -> None:
    matrix = np.zeros((4, columns))
    for row in matrix:
        add(row)
    del row
    barrier()
    assert (matrix == 1).all()


@SIZES
def test_waiting_for_the_whole_brings_its_parts(columns: int) -> None:
    matrix = np.zeros((4, columns))
    for i in range(4):
        add(matrix[i], i)
        add(matrix[i : i + 1, ::2], 10)
    assert wait_on(matrix) is matrix
    expected = np.repeat(np.arange(4.0)[:, None], columns, axis=1)
    expected[:, ::2] += 10
    assert (matrix == expected).all()


VIEWS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda a: a[2:4],
    "columns": lambda a: a[:, 1:3],
    "block": lambda a: a[1:3, 2:4],
    "element": lambda a: a[3, 3:4],
    "transposed": lambda a: a.T,
    "reshaped": lambda a: a.reshape(3, 12),
    "raveled": lambda a: a.ravel(),
    "every other": lambda a: a[::2, ::3],
    "backwards": lambda a: a[::-1, ::-2],
    "diagonal": lambda a: np.lib.stride_tricks.as_strided(a, (6,), (a.strides[0] + a.strides[1],)),
    "view of a view": lambda a: a[1:5][1:3].T[0],
    "added axis": lambda a: a[None, :, :, None],
    "as bytes": lambda a: a.view(np.uint8)[:, 3:9],
    "matrix": lambda a: a.view(np.matrix)[1],
    "whole": lambda a: a,
    "all of it": lambda a: a[:],
    "nothing": lambda a: a[2:2],
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("first", VIEWS)
def test_parts_that_overlap_see_each_other_in_program_order(first: str) -> None:
    def program(call: Callable[..., Any]) -> tuple[Any, list[Any]]:
        table = np.arange(36.0).reshape(6, 6).copy()
        seen = []
        for second in VIEWS.values():
            call(add, VIEWS[first](table), 1)
            seen.append(call(copied, second(table)))
            call(add, second(table), 2)
            seen.append(call(copied, table))
        return table, seen

    table, seen = program(lambda function, *args: function(*args))
    seen = wait_on(seen)
    barrier()
    plain, expected = program(lambda function, *args: function.__wrapped__(*args))
    assert (table == plain).all()
    for one, other in zip(seen, expected, strict=True):
        assert one.shape == other.shape and (np.asarray(one) == np.asarray(other)).all()


def test_fields_of_records() -> None:
    records = np.zeros(5, dtype=[("x", "f8"), ("n", "i4")])
    add(records["x"], 1.5)
    add(records["n"], 2)
    add(records[2:]["n"], 1)
    barrier()
    assert records["x"].tolist() == [1.5] * 5 and records["n"].tolist() == [2, 2, 3, 3, 3]


@task(record=INOUT)
def set_field(record: Any, name: str, value: float) -> None:
    record[name] = value


@task(returns=1)
def items(value: Any) -> Any:
    return value.tolist()


def test_single_records() -> None:
    for records in (np.zeros(3, dtype=[("x", "f8"), ("n", "i4")]), np.zeros(3, "f8,i4").view(np.recarray)):
        x, n = records.dtype.names
        for value, record in enumerate(records):
            set_field(record, x, value)
        seen = [items(records[2])]
        set_field(records[1:][0], n, 7)
        seen.append(items(records))
        assert wait_on(records[1]).tolist() == (1, 7)
        assert wait_on(seen) == [(2, 0), [(0, 0), (1, 7), (2, 0)]]
        barrier()
        assert records.tolist() == [(0, 0), (1, 7), (2, 0)]


def test_parts_of_arrays_that_hold_objects() -> None:
    objects = np.array([1, [2], None], dtype=object)
    set_first(objects, 5)
    assert wait_on(items(objects[:2])) == [5, [2]]
    records = np.zeros(2, dtype=[("x", "f8"), ("any", object)])
    for part in (records["x"], records[1]):
        with pytest.raises(CallError, match="objects"):
            add(part)


def test_reading_what_numpy_is_about_to_make_read_only_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    row = np.zeros(3)
    wide, _ = np.broadcast_arrays(row, np.zeros((2, 1)))
    add(row[1:])
    assert wait_on(copied(wide)).tolist() == [[0, 1, 1]] * 2
    assert not [warning for warning in recwarn if warning.category is FutureWarning]


def test_dates() -> None:
    days = np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")
    add(days[1:], np.timedelta64(1, "D"))
    barrier()
    assert str(days[1]) == "2020-01-03"


@task(part=INOUT, returns=1)
def unit(part: Any) -> Any:
    part += 1
    return (part.dtype.metadata or {}).get("unit")


def test_types_that_are_equal_and_say_different_things() -> None:
    types = [np.dtype("f8"), np.dtype("f8", metadata={"unit": "m"}), np.dtype("f8", metadata={"unit": "s"})]
    tables = [np.zeros((2, 3), one) for one in types]
    assert wait_on([unit(table[0]) for table in tables]) == [None, "m", "s"]


def test_memory_views_of_a_bytearray() -> None:
    data = bytearray(8)
    view = memoryview(data)
    set_first(view[2:], 7)
    set_first(view[3::2], 8)
    assert wait_on(as_bytes(data)) == bytes([0, 0, 7, 8, 0, 0, 0, 0])
    assert wait_on(view) is view
    assert bytes(data) == bytes([0, 0, 7, 8, 0, 0, 0, 0])


def test_numpy_on_other_memory(tmp_path: Path) -> None:
    memory = bytearray(16), array.array("d", [0, 0]), (ctypes.c_double * 2)(), mmap.mmap(-1, 16)
    for owner in memory:
        add(np.frombuffer(owner)[1:], 3)
    barrier()
    assert [np.frombuffer(owner).tolist() for owner in memory] == [[0, 3]] * 4
    (tmp_path / "file").write_bytes(bytes(16))
    mapped = np.memmap(tmp_path / "file", "f8")
    add(mapped[:1], 2)
    barrier()
    mapped.flush()
    assert np.fromfile(tmp_path / "file").tolist() == [2, 0]


class Foreign:
    """Has memory and does not say which."""

    def __init__(self) -> None:
        self.memory = np.zeros(3)
        self.__array_interface__ = self.memory.__array_interface__


def test_memory_of_unknown_owners_is_refused() -> None:
    with pytest.raises(CallError, match="belongs to a Foreign"):
        add(np.asarray(Foreign()))
    with pytest.raises(CallError, match="belongs to a Foreign"):
        add(np.asarray(Foreign())[1:])


def test_what_cannot_be_updated_in_place_is_refused() -> None:
    with pytest.raises(CallError, match="read-only"):
        add(np.frombuffer(bytes(8), "u1")[1:])
    with pytest.raises(CallError, match="collection"):
        add(np.array([[1], [2]], dtype=object)[0])
    masked = np.ma.zeros((2, 2))
    with pytest.raises(CallError, match="MaskedArray"):
        add(masked[0])


def test_the_program_may_change_what_no_task_has() -> None:
    matrix = np.zeros((4, 3))
    seen = []
    for step in range(3):
        add(matrix[1])
        matrix[0] = step
        seen.append(copied(matrix[:2]))
    matrix[2] = 5
    seen = [each.tolist() for each in wait_on(seen)]
    assert seen == [[[step] * 3, [step + 1.0] * 3] for step in range(3)]
    barrier()
    assert matrix[:, 0].tolist() == [2, 3, 5, 0]


def test_the_program_may_change_a_part_that_it_waited_for() -> None:
    matrix = np.zeros((4, 3))
    for row in matrix:
        add(row)
    wait_on(matrix[1])[:] = 7
    assert wait_on(copied(matrix)).tolist() == [[1] * 3, [7] * 3, [1] * 3, [1] * 3]
    add(matrix[1])
    wait_on(matrix)
    assert matrix[1, 0] == 8
    matrix[2] = 9
    assert wait_on(total(matrix[2])) == 27


@SIZES
def test_the_whole_and_its_parts_take_turns(columns: int) -> None:
    matrix = np.zeros((3, columns))
    add(matrix)
    seen = [copied(matrix[1])]
    add(matrix[1])
    seen.append(copied(matrix))
    add(matrix)
    add(matrix[:, :1])
    seen += [copied(matrix[1]), copied(matrix[:, 0])]
    one, two, three, four = wait_on(seen)
    assert (one == 1).all() and (two[1] == 2).all() and (two[0] == 1).all()
    assert three[0] == 4 and (three[1:] == 3).all() and four.tolist() == [3, 4, 3]
    barrier()
    assert matrix[0, 0] == 3 and matrix[2, -1] == 2


def test_a_view_of_a_result() -> None:
    result = copied(np.zeros((3, 30_000))).result()
    add(result[1])
    add(result)
    barrier()
    assert result[:, 0].tolist() == [1, 2, 1]


@SIZES
def test_the_future_of_a_result_of_which_tasks_update_parts(columns: int) -> None:
    future = copied(np.zeros((3, columns)))
    result = future.result()
    add(result[1])
    seen = [copied(future)]
    add(future)
    seen.append(copied(result))
    assert wait_on(future) is result
    add(result)
    assert wait_on(result)[:, 0].tolist() == [2, 3, 2]
    seen.append(copied(future))
    assert [each[:, 0].tolist() for each in wait_on(seen)] == [[0, 1, 0], [1, 2, 1], [2, 3, 2]]


def test_a_view_whose_whole_is_dropped() -> None:
    row = np.zeros((3, 3))[1]
    add(row)
    add(row[1:])
    assert wait_on(row).tolist() == [1, 2, 2]


def test_what_readers_were_given_stays() -> None:
    matrix = np.zeros((2, 40_000))
    sums = []
    for _ in range(5):
        add(matrix[0])
        sums.append(total(matrix))
    assert wait_on(sums) == [40_000.0 * (i + 1) for i in range(5)]


def test_what_a_task_returns_of_a_part_is_its_own() -> None:
    matrix = np.zeros((2, 40_000))
    add(matrix[0])
    kept = task(lambda part: part)(matrix)
    add(matrix[0])
    assert wait_on(kept)[0, 0] == 1
    barrier()
    assert kept.result()[0, 0] == 1 and matrix[0, 0] == 2


@task(first=INOUT, second=IN, returns=1)
def shift(first: Any, second: Any) -> float:
    first += 1
    return float(np.sum(second))


@task(first=INOUT, second=INOUT)
def both(first: Any, second: Any) -> None:
    first += 1
    second *= 3


@task(first=OUT, others=INOUT)
def several(first: Any, *others: Any) -> None:
    first[...] = 1
    for other in others:
        other += first[0]


def test_parts_of_one_whole_in_one_call() -> None:
    matrix = np.zeros((3, 3))
    assert wait_on(shift(matrix, matrix[1])) == 3
    assert wait_on(shift(matrix[0], matrix)) == 12
    assert wait_on(shift(matrix, matrix[0])) == 9
    both(matrix, matrix[:, 1])
    both(matrix[1:], matrix[:2])
    row = matrix[0]
    both(row, row)
    several(matrix[1], matrix[0], matrix[1], row)
    plain = np.zeros((3, 3))
    for function, args in (
        (shift, (plain, plain[1])),
        (shift, (plain[0], plain)),
        (shift, (plain, plain[0])),
        (both, (plain, plain[:, 1])),
        (both, (plain[1:], plain[:2])),
        (both, (plain[0], plain[0])),
        (several, (plain[1], plain[0], plain[1], plain[0])),
    ):
        function.__wrapped__(*args)
    barrier()
    assert matrix.tolist() == plain.tolist()


@task(parts=COLLECTION_INOUT)
def add_each(parts: list[Any]) -> None:
    for i, part in enumerate(parts):
        part += i


@task(parts=COLLECTION_OUT)
def fill_each(parts: dict[str, Any]) -> None:
    for key, part in parts.items():
        part[...] = len(key)


def test_parts_in_collections() -> None:
    matrix = np.zeros((3, 3))
    add_each(list(matrix))
    fill_each({"ab": matrix[:, 0], "abc": matrix[2, 1:]})
    seen = task(lambda holder: holder["deep"][0].tolist())({"deep": [matrix[1]]})
    assert wait_on(seen) == [2, 1, 1]
    wait_on([list(matrix)])
    assert matrix.tolist() == [[2, 0, 0], [2, 1, 1], [2, 3, 3]]


@pytest.mark.parametrize("calls", [0, 1])
def test_an_array_and_its_parts_in_one_collection(calls: int) -> None:
    matrix, plain = np.zeros((3, 3)), np.zeros((3, 3))
    for _ in range(calls):
        add(matrix)
        plain += 1
    for pick in (
        lambda a: [a, a[1]],
        lambda a: [a[:2], a, a.T[2]],
        lambda a: [a, a],
        lambda a: [a[1:1], a],
    ):
        add_each(pick(matrix))
        add_each.__wrapped__(pick(plain))
        add(matrix)
        plain += 1
    assert wait_on(matrix).tolist() == plain.tolist()


@task(parts=INOUT)
def set_firsts(*parts: Any) -> None:
    for part in parts:
        part[0] = 7


@pytest.mark.parametrize("calls", [0, 1])
@pytest.mark.parametrize("owner", [bytearray(4), array.array("B", bytes(4))])
def test_bytes_and_a_view_of_them_that_one_task_updates_are_refused(owner: Any, calls: int) -> None:
    for _ in range(calls):
        set_first(owner, 1)
    for arguments in ((owner, memoryview(owner)[1:]), (memoryview(owner)[1:], owner)):
        with pytest.raises(CallError, match="two things"):
            set_firsts(*arguments)
    set_firsts(memoryview(owner)[2:])
    set_firsts(owner)
    assert bytes(wait_on(owner)) == b"\7\0\7\0"


@task(returns=1)
def all_bytes(*data: Any) -> list[bytes]:
    return [bytes(one) for one in data]


class Numbers(np.ndarray):
    """An array that is more than its memory."""


@pytest.mark.parametrize(
    ("owner", "part"),
    [
        (bytearray(4), lambda owner: memoryview(owner)[:2]),
        (array.array("B", bytes(4)), lambda owner: np.frombuffer(owner, "u1")[:2]),
        (np.zeros(4, "u1"), lambda owner: memoryview(owner)[:2]),
        (np.zeros(4, "u1").view(Numbers).copy(), lambda owner: owner[:2]),
    ],
)
def test_what_tasks_have_and_a_part_that_only_the_program_can_give(owner: Any, part: Callable[[Any], Any]) -> None:
    set_first(owner, 1)
    assert wait_on(all_bytes(owner, part(owner))) == [b"\1\0\0\0", b"\1\0"]
    set_first(owner, 2)
    assert wait_on(all_bytes(part(owner), owner)) == [b"\2\0", b"\2\0\0\0"]


@only_workers
@pytest.mark.parametrize("owner", [bytearray(4), np.zeros(4, "u1")])
def test_the_whole_is_updated_while_a_part_is_still_read(gate: Gate, owner: Any) -> None:
    @task(returns=1)
    def late(part: Any) -> bytes:
        gate.enter()
        return bytes(part)

    set_first(memoryview(owner)[1:3], 1)
    old = late(memoryview(owner)[1:3])
    wait_on(memoryview(owner)[1:3])
    set_first(owner, 2)
    threading.Timer(0.2, gate.open).start()  # with one worker, a call that waits for the whole waits for the reader too
    new = all_bytes(memoryview(owner)[:2])
    set_first(memoryview(owner)[2:], 3)
    newest = all_bytes(memoryview(owner)[:3])
    assert wait_on(old, new, newest) == [b"\1\0", [b"\2\1"], [b"\2\1\3"]]
    assert bytes(wait_on(owner)) == b"\2\1\3\0"


def test_map_over_rows() -> None:
    matrix = np.zeros((3, 3))
    for row in matrix:
        add(row)
    assert list(wait_on(total.map(list(matrix)))) == [3, 3, 3]


@task(part=INOUT)
def fail(part: Any) -> None:
    part += 100
    raise ValueError("no")


@task(part=INOUT, on_failure="ignore")
def fail_ignored(part: Any) -> None:
    part += 100
    raise ValueError("no")


@task(part=INOUT, retries=1)
def fail_once(part: Any, marker: str) -> None:
    part += 1
    if not os.path.exists(marker):
        Path(marker).touch()
        raise ValueError("once")


@task(part=INOUT, retries=1)
def die_once(part: Any, marker: str) -> None:
    part += 1
    if not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@task(part=INOUT, retries=0, on_failure="ignore")
def die(part: Any) -> None:
    part += 100
    os.kill(os.getpid(), signal.SIGKILL)


@task(part=OUT, on_failure="ignore")
def fill_in_vain(part: Any) -> None:
    part[...] = 100
    raise ValueError("no")


@task(part=OUT, retries=1)
def fill_later(part: Any, marker: str) -> None:
    part[:1] = 100
    if not os.path.exists(marker):
        Path(marker).touch()
        raise ValueError("once")
    part[...] = 5


@task(returns=1)
def fail_reading(part: Any) -> None:
    raise ValueError("no")


def test_a_failed_writer_leaves_what_was_there() -> None:
    matrix = np.zeros((3, 3))
    add(matrix)
    add(matrix[1])
    fail(matrix[:2])
    add(matrix[2])
    with pytest.raises(ValueError, match="no"):
        wait_on(matrix)
    add(matrix[0])
    wait_on(matrix)
    assert matrix[:, 0].tolist() == [2, 2, 2]


def test_an_ignored_failure_leaves_what_was_there(tmp_path: Path) -> None:
    matrix = np.zeros((3, 3))
    add(matrix[1])
    fail_ignored(matrix[:, 1])
    fail_once(matrix[:, 2], str(tmp_path / "once"))
    add(matrix[1])
    fill_in_vain(matrix[0])
    fill_later(matrix[2], str(tmp_path / "later"))
    barrier()
    assert matrix.tolist() == [[0, 0, 1], [2, 2, 3], [5, 5, 5]]


@only_workers
def test_what_a_killed_worker_was_changing_is_put_back(tmp_path: Path) -> None:
    matrix = np.zeros((3, 40_000))
    add(matrix[1])
    die_once(matrix[:, 1:], str(tmp_path / "once"))
    die(matrix[:2])
    add(matrix[2])
    barrier()
    assert matrix[:, 0].tolist() == [0, 1, 1] and matrix[:, 1].tolist() == [1, 2, 2]


def test_a_reader_that_fails_holds_nobody_up() -> None:
    matrix = np.zeros((3, 3))
    add(matrix[0])
    failed = fail_reading(matrix)
    add(matrix[0])
    assert isinstance(failed.exception(), ValueError)
    assert wait_on(matrix)[0, 0] == 2


@task(part=INOUT)
def meet(part: Any, mine: Gate, other: Gate) -> None:
    mine.enter()
    part += 1
    other.enter()


@only_workers
def test_disjoint_parts_are_updated_at_the_same_time(tmp_path: Path) -> None:
    gates = [Gate(tmp_path / str(i)) for i in range(4)]
    matrix = np.zeros((4, 3))
    meet(matrix[:2], gates[0], gates[1])
    meet(matrix[2:], gates[2], gates[3])
    for i in (0, 2, 1, 3):  # both are inside before either leaves
        gates[i].open()
    assert (wait_on(matrix) == 1).all()


@task(part=INOUT)
def add_behind(part: Any, gate: Gate) -> None:
    gate.enter()
    part += 1


def in_another_thread(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


@only_workers
def test_a_barrier_leaves_alone_what_another_thread_has_called_since(
    runtime: penstock.Runtime, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = np.zeros((4, 3))
    add(matrix[:2])
    wait_until = runtime.driver.wait_until

    def until_nothing_is_under_way(reached: Any, timeout: float | None = None) -> bool:
        done = wait_until(reached, timeout)
        in_another_thread(lambda: add_behind(matrix[1:], gate)).join()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(runtime.driver, "wait_until", until_nothing_is_under_way)
        barrier()
    gate.open()
    assert wait_on(matrix)[:, 0].tolist() == [1, 2, 1, 1]


@only_workers
def test_who_waits_for_a_part_has_what_another_thread_calls_meanwhile(
    runtime: penstock.Runtime, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = np.zeros((4, 3))
    add(matrix[:2])
    wait = runtime.memories._wait
    openers: list[Any] = []

    def wait_twice(tokens: Any) -> None:
        if openers:
            openers[0] = in_another_thread(gate.open)
        wait(tokens)
        if not openers:
            in_another_thread(lambda: add_behind(matrix[1:], gate)).join()
            openers.append(None)

    monkeypatch.setattr(runtime.memories, "_wait", wait_twice)
    assert wait_on(matrix)[:, 0].tolist() == [1, 2, 1, 1]
    openers[0].join()


def test_the_end_of_a_run_brings_parts_back() -> None:
    matrix = np.zeros((2, 2))
    with penstock.Runtime(mode="inline"):
        add(matrix[0])
    assert matrix.tolist() == [[1, 1], [0, 0]]


def test_shared_memory_goes_when_nobody_needs_it(runtime: penstock.Runtime) -> None:
    for waits in (True, False):
        for _ in range(5):
            matrix = np.zeros((2, 2))
            add(matrix[0])
            if waits:
                wait_on(matrix)
                assert not len(runtime.memories)
    barrier()
    assert not len(runtime.memories)


@task(array=OUT, returns=1)
def refill(array: Any, source: Any) -> float:
    before = float(np.sum(source))
    array[...] = before % 5
    return before + float(np.sum(source))


@pytest.mark.parametrize("part", [lambda a: a, lambda a: a.T[:2], lambda a: [a[1:]], lambda a: a.reshape(-1)[::3]])
def test_a_part_that_is_read_of_a_whole_that_is_only_written_is_of_the_newest(part: Any) -> None:
    outcomes = []
    for put, change in ((refill, add), (refill.__wrapped__, add.__wrapped__)):
        table = np.ones((6, 4))
        change(table)
        result = put(table, part(table))
        outcomes.append((wait_on(result), wait_on(table).tolist()))
    assert outcomes[0] == outcomes[1]
