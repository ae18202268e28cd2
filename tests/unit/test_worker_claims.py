"""Which attempt a worker begins with, of those that it was sent and those that were taken back from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.engine_rig import value

from penstock.data.segments import Segments
from penstock.executors.pools import Seat, Worker
from penstock.executors.wire import Run
from penstock.executors.worker import _Claims, _Inbox


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker(1, Seat(0, io=False), 1)
    yield one
    one._far_end.close()
    one.close()


class Process:
    """What the process behind a worker does with what it finds in its sockets."""

    def __init__(self, worker: Worker, folder: Path) -> None:
        (folder / "memory").mkdir()
        (folder / "disk").mkdir()
        segments = Segments(str(folder / "memory"), str(folder / "disk"), 1)
        self._claims = _Claims(worker._unclaimed)
        self._inbox = _Inbox(worker._far_end, segments)

    def begin(self) -> Run | None:
        return self._inbox.run(self._claims.next())


def run(task: int, content: str, attempt: int = 1) -> Run:
    return Run(task, attempt, 0, value(content))


def test_attempts_begin_in_the_order_in_which_they_were_sent(worker: Worker, tmp_path: Path) -> None:
    process = Process(worker, tmp_path)
    assert [worker.put(run(5, "a")), worker.put(run(3, "b"))] == [1, 2]
    worker.flush()
    begun = [process.begin(), process.begin()]
    assert [one.task for one in begun if one is not None] == [5, 3]
    assert worker.take_back() == ()


def test_what_was_taken_back_is_never_begun_even_if_it_is_sent_again(worker: Worker, tmp_path: Path) -> None:
    """The second sending has the number of the first, which never began, but may have other data."""
    process = Process(worker, tmp_path)
    worker.put(run(1, "head"))
    worker.put(run(2, "old"))
    worker.flush()
    begun = process.begin()
    assert begun is not None and begun.task == 1
    worker.put(run(3, "waits"))
    assert worker.take_back() == (2, 3)
    for content in ("new", "newer"):
        worker.put(run(2, content))
        worker.flush()
        if content == "new":
            assert worker.take_back() == (2,)
    begun = process.begin()
    assert begun is not None and begun.args == value("newer")
