"""Looking for data before pickling must never miss one: what it finds is compared with a walk of the whole object."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.data.reach import may_hold


class Holder:
    """What cannot be looked into."""

    def __init__(self, content: Any) -> None:
        self.content = content


LEAVES = st.one_of(st.integers(), st.text(max_size=2), st.none(), st.builds(lambda: [0]))
TREES = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=2), children, max_size=4),
        children.map(Holder),
    ),
    max_leaves=20,
)


def walk(obj: Any) -> list[Any]:
    inner = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, list | tuple) else []
    inner = [obj.content] if isinstance(obj, Holder) else inner
    return [obj, *(found for part in inner for found in walk(part))]


@given(TREES, st.data())
def test_an_object_that_is_inside_is_never_missed(tree: Any, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(walk(tree)))
    if isinstance(chosen, list | dict | tuple | Holder):
        assert may_hold([tree], {id(chosen): None})


@given(TREES)
def test_what_holds_none_of_them_is_seen_where_all_is_plain(tree: Any) -> None:
    other: list[int] = []
    plain = not any(isinstance(part, Holder) for part in walk(tree))
    assert may_hold([tree], {id(other): None}) is not plain


def test_a_cycle_comes_to_an_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert may_hold([loop], {})


@given(st.one_of(TREES, st.lists(LEAVES), st.lists(LEAVES).map(tuple)), st.booleans(), st.none() | st.integers(0, 12))
def test_a_row_alone_is_judged_as_it_is_among_others(row: Any, known: bool, few: int | None) -> None:
    data = {id(row): None} if known else {}
    assert may_hold([row], data, few=few) is may_hold([row, 0], data, few=None if few is None else few + 1)
