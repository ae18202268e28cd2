"""Whether a pickle stream refers to the main program: never missed, and long strings are not taken for references."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.picklers import names_main, pickled


class OfMain:
    """Stands for a class of the main program."""


OfMain.__module__ = "__main__"


@pytest.fixture(autouse=True, scope="module")
def in_main() -> Iterator[None]:
    main: Any = sys.modules["__main__"]
    main.OfMain = OfMain
    yield
    del main.OfMain


LENGTHS = st.sampled_from([0, 3, 1000, 40_000, 65_535, 65_536, 65_537, 130_000, 300_000])
LEAVES = st.one_of(
    LENGTHS.map(bytes),
    LENGTHS.map(lambda length: b"\x95" * length),
    LENGTHS.map(bytearray),
    LENGTHS.map(lambda length: "é" * length),
    LENGTHS.map(lambda length: 1 << (8 * length)),
    LENGTHS.map(lambda length: list(range(length // 10))),
)


@given(before=st.lists(LEAVES, max_size=5), after=st.lists(LEAVES, max_size=5), deep=st.booleans())
def test_a_reference_is_never_missed(before: list[Any], after: list[Any], deep: bool) -> None:
    one = OfMain()
    parts, _, _ = pickled([*before, {"deep": [one]} if deep else one, *after])
    assert names_main(parts)


@given(leaves=st.lists(LEAVES, max_size=8))
def test_there_is_none_where_nothing_is_of_the_main_program(leaves: list[Any]) -> None:
    parts, _, _ = pickled(leaves)
    assert not names_main(parts)


@pytest.mark.parametrize("text", [b"__main__" * 100_000, "__main__" * 100_000, bytearray(b"__main__" * 100_000)])
def test_long_strings_are_no_references(text: Any) -> None:
    parts, _, _ = pickled([text])
    assert not names_main(parts)
