"""What the keeper of a world makes of outputs that its ranks hand over: who may, what is passed on, what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.data.segments import Segments
from penstock.data.serializer import NONE
from penstock.executors.execution import Function
from penstock.executors.mpi_early import HandedOver
from penstock.executors.mpi_ranks import RankLost, WorldFailed
from penstock.executors.wire import Define, Early, Run
from penstock.executors.written_files import WrittenFiles
from penstock.model.data import Value
from penstock.model.tasks import FailureKind

ONE, TWO = Value(b"one"), Value(b"two")


class Keeper:
    """What a keeper passes on, and drops."""

    def __init__(self, returns: int, delivered: tuple[int, ...] = ()) -> None:
        run = Run(7, 1, 1, NONE, delivered=delivered)
        files = WrittenFiles(run, Function(print, "f", returns, []), Segments("", "", 1, alone=True), {})
        self.passed: list[int] = []
        self.dropped: list[Any] = []
        self.over = HandedOver(
            run, Define(1, "f", NONE, returns), files, list, lambda early: self.passed.append(early.index)
        )

    def take(self, rank: int, *indices: int) -> None:
        for index in indices:
            self.over.take(rank, Early(7, 1, index, ONE))

    def rest(self, *values: Value) -> list[Any]:
        return self.over.rest(values, self.dropped.append)


def test_outputs_are_passed_on_in_the_order_in_which_they_come() -> None:
    keeper = Keeper(5)
    keeper.take(1, 3, 4)
    keeper.take(0, 1)
    keeper.take(1, 0, 2)
    assert keeper.passed == [3, 4, 1, 0, 2]
    assert keeper.rest(NONE, NONE) == [None] * 5


def test_two_ranks_with_one_output_are_named() -> None:
    keeper = Keeper(5)
    keeper.take(0, 3)
    with pytest.raises(RankLost, match="output 3 of task f, which rank 0 had handed over") as caught:
        keeper.take(2, 3)
    assert (caught.value.rank, caught.value.failure.kind) == (2, FailureKind.RETURNS)
    assert keeper.passed == [3]


def test_what_an_earlier_attempt_handed_over_is_not_passed_on() -> None:
    keeper = Keeper(3, delivered=(0, 2))
    assert keeper.over.any_value()
    keeper.take(1, 0, 1)
    assert keeper.passed == [1]
    with pytest.raises(RankLost, match="output 0 .* which rank 1 had"):
        keeper.take(0, 0)
    assert keeper.rest(NONE, NONE) == [None] * 3, "output 2 came from the earlier attempt"


def test_ranks_that_replace_others_may_share_the_work_in_another_way() -> None:
    keeper = Keeper(3)
    keeper.take(0, 0, 1)
    keeper.over.begin_again()
    keeper.take(1, 0)
    with pytest.raises(RankLost, match="output 0 .* which rank 1 had"):
        keeper.take(0, 0)
    keeper.take(0, 2)
    assert keeper.rest(NONE, NONE) == [None] * 3, "output 1 is that of the ranks before"


def test_values_of_ranks_are_the_outputs_of_their_numbers() -> None:
    keeper = Keeper(3)
    keeper.take(0, 1)
    assert keeper.rest(ONE, TWO, TWO) == [ONE, None, TWO]
    assert keeper.dropped == [TWO]


@pytest.mark.parametrize(
    ("returns", "handed", "values", "complaint"),
    [
        (3, [0], [NONE, ONE, NONE], "returned output 2$"),
        (4, [1, 2], [NONE, NONE], "none of its 2 ranks handed over or returned output 0, 3$"),
        (50, [0], [NONE, NONE], "output 1, 2, 3, .* 20 and 29 more$"),
    ],
)
def test_what_nobody_made_is_an_error(returns: int, handed: list[int], values: list[Value], complaint: str) -> None:
    keeper = Keeper(returns)
    keeper.take(0, *handed)
    with pytest.raises(WorldFailed, match=complaint) as caught:
        keeper.rest(*values)
    assert caught.value.kind is FailureKind.RETURNS


def test_a_value_that_could_be_any_output_names_its_rank() -> None:
    keeper = Keeper(4)
    keeper.take(0, 0, 1, 2)
    with pytest.raises(RankLost, match="it returned a value, but task f declares returns=4") as caught:
        keeper.rest(NONE, ONE)
    assert (caught.value.rank, caught.value.failure.kind) == (1, FailureKind.RETURNS)
