"""Which outputs were handed over: the next one is found without looking through those before it."""

from __future__ import annotations

import pytest

from penstock.errors import ReturnsMismatch
from penstock.executors.early import HandedIndices, checked_index

MANY = 200_000


@pytest.mark.timeout(60)  # a second is enough; looking through all of them each time takes hours
def test_the_next_of_many_outputs() -> None:
    over = HandedIndices()
    for number in range(MANY):
        index = checked_index("f", MANY, over, None)
        assert index == number
        over.add(index)
    with pytest.raises(ReturnsMismatch, match="one output more"):
        checked_index("f", MANY, over, None)


def test_the_next_is_the_first_that_was_not_handed_over_by_its_index() -> None:
    over = HandedIndices()
    for index in (1, 3, 0):
        over.add(checked_index("f", 5, over, index))
    found = []
    for _ in range(2):
        found.append(checked_index("f", 5, over, None))
        over.add(found[-1])
    assert found == [2, 4]
