"""What a rank gets of a scattered argument, and one value made of those of many processes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.gathered import gathered
from penstock.data.segments import Access, Segments
from penstock.data.serializer import dump, load
from penstock.errors import CallError
from penstock.executors.execution import Function
from penstock.executors.mpi_parts import part_of, with_parts
from penstock.executors.wire import Define
from penstock.model.data import Value


@given(length=st.integers(0, 50), size=st.integers(1, 12))
def test_parts_are_those_of_array_split(length: int, size: int) -> None:
    whole = list(range(length))
    parts = [part_of(whole, rank, size, "it") for rank in range(size)]
    assert parts == [part.tolist() for part in np.array_split(np.array(whole, dtype=int), size)]


def test_a_part_of_an_array_is_a_view() -> None:
    whole = np.zeros((7, 3))
    assert all(np.shares_memory(whole, part_of(whole, rank, 3, "it")) for rank in range(3))
    assert part_of("abcd", 1, 2, "it") == "cd"


@pytest.mark.parametrize("whole", [5, None, {"a": 1}, {1}, frozenset(), iter([1])])
def test_what_has_no_order_has_no_parts(whole: Any) -> None:
    with pytest.raises(CallError, match=f"it is declared SCATTER, but a {type(whole).__name__} has no parts"):
        part_of(whole, 0, 2, "it")


def test_arguments_are_replaced_wherever_they_stand() -> None:
    def body(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    declared = Define(1, "f", Value(b""), 1, ["numbers", "path", "other"], ["numbers", "other"])
    called = with_parts(Function(body, "f", 1, declared.parameters), declared, 1, 2)
    assert called([1, 2], "whole", other="xyz") == (([2], "whole"), {"other": "z"})
    assert called([1, 2], "whole") == (([2], "whole"), {})


def test_a_body_without_parts_is_called_as_it_is() -> None:
    declared = Define(1, "f", Value(b""), 1, ["numbers"])
    assert with_parts(Function(print, "f", 1, []), declared, 0, 2) is print


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    for folder in ("memory", "spill"):
        (tmp_path / folder).mkdir()
    return Segments(str(tmp_path / "memory"), str(tmp_path / "spill"), writer=1)


def test_values_of_many_are_one_list(segments: Segments) -> None:
    objects = [1, "two", None, np.arange(100_000.0), {"small": np.arange(3)}, [np.ones(20_000), b"x" * 100_000]]
    whole = gathered([dump(one, segments, "it") for one in objects])
    for found in (load(whole, segments), load(whole, segments, Access.COPY), load(whole, segments, slots=True)):
        assert found[:3] == [1, "two", None]
        assert np.array_equal(found[3], objects[3])  # type: ignore[arg-type]
        assert found[4]["small"].tolist() == [0, 1, 2] and found[5][0].sum() == 20_000 and len(found[5][1]) == 100_000


def test_a_list_of_values_copies_nothing(segments: Segments) -> None:
    value = dump(np.arange(100_000.0), segments, "it")
    whole = gathered([value, value])
    assert [*whole.pieces()] == [*value.pieces()] * 2
    array = load(whole, segments)[1]
    assert not array.flags.owndata and not array.flags.writeable


def test_a_list_of_nobody_is_empty(segments: Segments) -> None:
    assert load(gathered([]), segments) == []
    assert isinstance(gathered([Value(pickle.dumps(1, 5))]), Value)
