"""Objects that workers keep for the next tasks: the same results, sooner; and never more than was allowed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import INOUT, ArgumentChanged, TaskError, share, task, wait_on
from penstock.data.serializer import dump, load
from penstock.executors.read_cache import ReadCache
from penstock.model.data import Piece, Value

WORDS = 20_000


@pytest.fixture
def cached() -> Iterator[None]:
    penstock.start(cpus=1, read_cache="8MB")
    yield
    penstock.stop()


class Note:
    """A text that can be changed."""

    def __init__(self, text: str) -> None:
        self.text = text


@task
def words(tag: str) -> Any:
    return {"note": Note(tag), "words": [f"{tag} {number}" for number in range(WORDS)]}


@task
def look(table: Any) -> tuple[int, int, str]:
    return os.getpid(), id(table), table["note"].text


@task(table=INOUT)
def change(table: Any, text: str) -> None:
    table["note"].text = text


@task
def misuse(table: Any) -> None:
    table["note"].text = "spoilt"


@task
def fail(table: Any) -> None:
    table["note"].text = "spoilt"
    raise ValueError("as expected")


@pytest.mark.usefixtures("cached")
def test_tasks_that_read_one_object_are_given_one_object() -> None:
    table = words("one")
    seen = wait_on([look(table) for _ in range(10)])
    assert len(set(seen)) == 1


def test_without_the_setting_each_task_has_its_own() -> None:
    penstock.start(cpus=1)
    try:
        table = words("one")
        wait_on(misuse(table))
        assert wait_on(look(table))[2] == "one"
    finally:
        penstock.stop()


@pytest.mark.usefixtures("cached")
def test_new_version_is_read_anew_and_old_readers_have_the_old_one() -> None:
    table = words("one")
    first = [look(table) for _ in range(3)]
    change(table, "two")
    second = [look(table) for _ in range(3)]
    change(table, "three")
    third = [look(table) for _ in range(3)]
    texts = [{text for _, _, text in wait_on(group)} for group in (first, second, third)]
    assert texts == [{"one"}, {"two"}, {"three"}]
    shared = share({"note": Note("shared"), "words": [str(number) for number in range(WORDS)]})
    assert {text for _, _, text in wait_on([look(shared) for _ in range(3)])} == {"shared"}


@pytest.mark.usefixtures("cached")
def test_array_changed_in_place_is_never_taken_for_what_it_was() -> None:
    @task
    def make() -> Any:
        return np.zeros(50_000)

    @task(array=INOUT)
    def add(array: Any) -> None:
        array += 1

    @task
    def total(array: Any) -> float:
        return float(array.sum())

    array, totals = make(), []
    for _ in range(4):
        totals.append(total(array))
        add(array)
    assert wait_on(totals) == [0.0, 50_000.0, 100_000.0, 150_000.0]


@pytest.mark.usefixtures("cached")
def test_failed_task_leaves_nothing_half_changed() -> None:
    table = words("one")
    wait_on(look(table))
    assert isinstance(fail(table).exception(), ValueError)
    assert wait_on(look(table))[2] == "one"


def test_strict_mode_finds_who_changes_what_others_read() -> None:
    penstock.start(cpus=1, read_cache="8MB", strict=True)
    try:
        table = words("one")
        wait_on(look(table))
        error = misuse(table).exception()
        assert isinstance(error, ArgumentChanged | TaskError) and "'table'" in str(error)
        assert wait_on(look(table))[2] == "one"
    finally:
        penstock.stop()


# --- the cache itself -----------------------------------------------------------------------------------------------


def value(segment: int, size: int, *buffers: bytes | Piece) -> Value:
    return Value(Piece(segment, False, 0, size), list(buffers))


def test_least_recently_read_go_first_and_the_capacity_is_kept() -> None:
    cache = ReadCache(100)
    made: list[int] = []

    def get(segment: int, size: int = 40) -> Any:
        return cache.object(value(segment, size), lambda: made.append(segment) or [segment])

    first = get(1)
    get(2)
    assert get(1) is first
    get(3)  # 2 has to go
    assert get(1) is first and made == [1, 2, 3]
    get(2)
    assert made == [1, 2, 3, 2]
    get(4, 101)
    get(4, 101)
    assert made[-2:] == [4, 4]  # larger than everything: not worth a place
    cache.clear()
    assert get(1) is not first


@pytest.mark.parametrize(
    "given",
    [
        Value(b"small"),
        value(1, 10, Piece(1, False, 64, 100_000)),
        Value(Piece(1, False, 0, 10), (), ("id\ntoken",)),
    ],
    ids=["small", "buffers in the store", "persistent objects"],
)
def test_what_may_change_belongs_to_others_or_is_small_is_not_kept(given: Value) -> None:
    cache = ReadCache(1 << 20)
    assert cache.object(given, list) is not cache.object(given, list)


def test_values_stored_side_by_side_are_told_apart(tmp_path: Any) -> None:
    from penstock.data.segments import Segments

    segments = Segments(str(tmp_path), str(tmp_path), 1)
    cache = ReadCache(1 << 30)
    values = [dump([str(number + offset) for number in range(WORDS)], segments, "it") for offset in range(3)]
    for offset, one in enumerate(values * 2):
        assert cache.object(one, lambda one=one: load(one, segments))[0] == str(offset % 3)
    segments.close()
