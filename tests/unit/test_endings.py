"""Workers that were asked to end a task, and when they are killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.executors import endings
from penstock.executors.endings import Endings
from penstock.executors.pools import Seat, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(1, Seat(0, io=False), 1)
    yield made
    made.close()
    made._far_end.close()


def test_a_body_that_does_not_hear_it_is_killed_after_the_grace(worker: Worker) -> None:
    asked = Endings()
    assert asked.next_look() is None
    asked.ask(worker, 7, 100.0)
    due = asked.next_look()
    assert due == 100.0 + endings._GRACE
    assert asked.overdue(due - 0.1) == []
    assert asked.overdue(due) == [worker]
    assert asked.overdue(due) == []
    assert asked.next_look() is None


def test_one_that_clears_up_has_more_time(worker: Worker) -> None:
    asked = Endings()
    asked.ask(worker, 7, 100.0)
    asked.clearing(worker, 101.0)
    assert asked.overdue(100.0 + endings._GRACE) == []
    assert asked.overdue(101.0 + endings._CLEARING) == [worker]


def test_only_the_end_of_that_very_task_counts(worker: Worker) -> None:
    asked = Endings()
    assert not asked.is_over(worker, 7)
    asked.ask(worker, 7, 100.0)
    assert not asked.is_over(worker, 6)
    assert asked.is_over(worker, 7)
    asked.forget(worker)
    asked.clearing(worker, 101.0)
    assert not asked.is_over(worker, 7) and asked.next_look() is None
