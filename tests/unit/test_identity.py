"""Which datum an object is: by identity, at a constant cost, and no longer than the program has the object."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.graph.identity import Identity


class Thing:
    pass


class Slotted:
    __slots__ = ("value",)


MAKERS: dict[str, Callable[[], Any]] = {
    "list": list,
    "dict": dict,
    "bytearray": lambda: bytearray(3),
    "object": object,
    "slotted": Slotted,
    "set": lambda: {1},
    "array": lambda: np.zeros(2),
    "instance": Thing,
}
each_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@pytest.fixture
def gone() -> list[int]:
    return []


@pytest.fixture
def identity(gone: list[int]) -> Identity:
    return Identity(gone.append)


@each_kind
def test_an_object_is_found_by_identity_alone(identity: Identity, make: Callable[[], Any]) -> None:
    one, other = make(), make()
    datum = identity.track(one, 1)
    assert identity.find(one) is datum and identity.find(other) is None
    identity.forget(one)
    assert identity.find(one) is None
    assert identity.track(one, 2).version == 2


@each_kind
def test_temporaries_are_let_go(identity: Identity, gone: list[int], make: Callable[[], Any]) -> None:
    """As many as one likes: an address used again is another object, and what nobody has is forgotten."""
    kept = [make() for _ in range(5)]
    versions = itertools.count(1)
    for obj in kept:
        identity.track(obj, next(versions))
    for _ in range(3000):
        temporary = make()
        assert identity.find(temporary) is None
        identity.track(temporary, next(versions))
    del temporary
    assert len(identity) <= 20
    identity.look_around()
    gc.collect()
    assert len(identity) == 5 and len(gone) == len(set(gone)) == 3000
    assert [identity.find(obj).version for obj in kept] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]


def test_dropped_together_they_go_when_the_program_waits(identity: Identity, gone: list[int]) -> None:
    lists: list[Any] = [[i] for i in range(2000)]
    for number, each in enumerate(lists):
        identity.track(each, number)
    identity.look_around()
    assert len(identity) == 2000 and not gone
    del lists[1:], each
    identity.look_around()
    assert len(identity) == 1 and sorted(gone) == list(range(1, 2000))


def test_no_call_looks_at_all_of_them(identity: Identity) -> None:
    """The work of one call does not depend on how many objects there are: nobody waits for a sweep."""
    lists: list[Any] = [[i] for i in range(5000)]
    looks: list[int] = []
    look = identity._look

    def counted(count: int) -> None:
        looks.append(min(count, len(identity._kept)))
        look(count)

    identity._look = counted  # type: ignore[method-assign]
    for number, each in enumerate(lists):
        identity.track(each, number)
    assert max(looks) <= 2


def test_waiting_again_and_again_does_not_look_again_and_again(identity: Identity) -> None:
    lists: list[Any] = [[i] for i in range(1000)]
    for number, each in enumerate(lists):
        identity.track(each, number)
    spent = []
    for _ in range(10):
        before = identity._saved
        identity.look_around()
        spent.append(before - identity._saved)
    assert sum(spent) <= 2 * len(lists)


def test_an_object_taken_back_and_given_again_many_times(identity: Identity, gone: list[int]) -> None:
    one: list[int] = []
    for version in range(5000):
        identity.track(one, version)
        identity.forget(one)
    assert len(identity) == 0 and len(identity._kept) < 10 and not gone
