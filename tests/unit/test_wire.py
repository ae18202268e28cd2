"""Messages between a node executor and its workers, as bytes and back."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.executors.wire import Error, Logged, by_columns, by_items, frame, frames_up
from penstock.model.tasks import Failure, FailureKind

NUMBERS = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers()


def test_such_messages_stand_among_others() -> None:
    odd, plain = Error(3, 1, Failure(FailureKind.DIED, "caf\udce9"), 0.5), Logged(b"record", ["root"])
    stream = frame(plain) + frame(odd) + frame(plain)
    frames = frames_up()
    cut = len(stream) // 2
    assert [*frames.feed(stream[:cut]), *frames.feed(stream[cut:])] == [plain, odd, plain]


def test_garbage_is_known_as_such() -> None:
    for garbage in (b"\xff\xff\xff\xff", b"\x03\x00\x00\x80abc"):
        with pytest.raises(msgspec.DecodeError):
            list(frames_up().feed(garbage))


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[NUMBERS] * width), min_size=1)))
def test_items_of_a_map_that_travel_by_columns_are_the_same_items(items: list[tuple[Any, ...]]) -> None:
    columns = pickle.loads(pickle.dumps(by_columns(items), 5))
    assert [*map(repr, by_items(columns))] == [*map(repr, items)]


@given(st.lists(st.tuples(st.text(), st.lists(NUMBERS)), min_size=1))
def test_pickled_items_of_a_map_are_the_same_items(items: list[tuple[Any, ...]]) -> None:
    sent = by_columns([pickle.dumps(item, 5) for item in items])
    assert [*map(repr, by_items(sent))] == [*map(repr, items)]
