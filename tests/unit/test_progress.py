"""Counting a run from its events, the live view, the plain lines, and the closing summary."""

from __future__ import annotations

import io
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.observe.progress import ProgressView, plain_line, progress_picture
from penstock.observe.records import (
    Cancelled,
    Draining,
    Failed,
    Finished,
    Launched,
    Recalled,
    Record,
    RunEnded,
    RunStarted,
    Submitted,
    WorkerDied,
)
from penstock.observe.summary import summary_lines
from penstock.observe.tally import Line, Tally

STARTED = RunStarted(0.0, 0.0, "1", ["app.py"], 2, 1 << 30, "here", "fifo")


def submitted(task: int, name: str = "f", *, t: float = 0.0, count: int = 1, cpus: int = 1) -> Record:
    return Submitted(t, task, name, count, [], [], cpus)


def launched(task: int, lane: int = 0, *, attempt: int = 1) -> Record:
    return Launched(0.0, task, attempt, "here", lane)


def finished(task: int, lane: int = 0, *, t: float = 1.0, seconds: float = 1.0) -> Record:
    return Finished(t, task, 1, "here", lane, seconds, 0)


def failed(task: int, *, final: bool, message: str = "ValueError: no", t: float = 1.0) -> Record:
    return Failed(t, task, 1, "here", 0, "exception", message, final)


def counts(line: Line) -> tuple[int, int, int, int, int]:
    return line.waiting, line.running, line.done, line.failed, line.cancelled


@pytest.fixture
def tally() -> Tally:
    tally = Tally()
    tally.add([STARTED])
    return tally


def test_a_task_goes_from_waiting_through_running_to_done(tally: Tally) -> None:
    tally.add([submitted(1)])
    assert counts(tally.snapshot(0.0).total) == (1, 0, 0, 0, 0)
    tally.add([launched(1)])
    assert counts(tally.snapshot(0.1).total) == (0, 1, 0, 0, 0)
    tally.add([finished(1)])
    assert counts(tally.snapshot(1.0).total) == (0, 0, 1, 0, 0)


def test_only_the_head_of_a_lane_runs(tally: Tally) -> None:
    tally.add([submitted(task, "fg"[task % 2]) for task in range(6)])
    tally.add([launched(task, lane=task // 3) for task in range(6)])  # lane 0: 0 1 2, lane 1: 3 4 5
    even, odd = tally.snapshot(0.1).lines
    assert (counts(even), counts(odd)) == ((2, 1, 0, 0, 0), (2, 1, 0, 0, 0))
    tally.add([finished(0), Recalled(1.0, 1)])  # now 2, an even one, is at the head of lane 0
    even, odd = tally.snapshot(1.0).lines
    assert (counts(even), counts(odd)) == ((1, 1, 1, 0, 0), (2, 1, 0, 0, 0))


def test_a_failed_attempt_waits_again_a_failed_task_does_not(tally: Tally) -> None:
    tally.add([submitted(1), launched(1), failed(1, final=False)])
    assert counts(tally.snapshot(1.0).total) == (1, 0, 0, 0, 0)
    tally.add([launched(1, lane=1, attempt=2), failed(1, final=True)])
    assert counts(tally.snapshot(2.0).total) == (0, 0, 0, 1, 0)
    assert tally.retried == 1
    assert [(failure.task, failure.message) for failure in tally.failures] == [(1, "ValueError: no")]


def test_a_task_may_fail_or_be_cancelled_without_running(tally: Tally) -> None:
    tally.add([submitted(1), submitted(2), failed(1, final=True), Cancelled(1.0, 2)])
    assert counts(tally.snapshot(1.0).total) == (0, 0, 0, 1, 1)


def test_a_piece_of_a_map_counts_its_calls_but_runs_one_at_a_time(tally: Tally) -> None:
    tally.add([submitted(1, count=500), launched(1)])
    assert counts(tally.snapshot(0.1).total) == (499, 1, 0, 0, 0)
    tally.add([finished(1)])
    assert counts(tally.snapshot(1.0).total) == (0, 0, 500, 0, 0)


def test_tasks_from_before_the_first_record_are_passed_over(tally: Tally) -> None:
    tally.add(
        [launched(7), finished(7), failed(8, final=True), failed(8, final=False), Cancelled(1.0, 9), Recalled(1.0, 9)]
    )
    assert counts(tally.snapshot(1.0).total) == (0, 0, 0, 0, 0)


def test_the_rate_is_that_of_the_last_seconds(tally: Tally) -> None:
    tally.add(submitted(task) for task in range(200))
    for second in range(1, 11):  # 10 tasks a second, then none
        tally.add(finished(task, t=float(second)) for task in range((second - 1) * 10, second * 10))
        assert tally.snapshot(float(second)).total.rate == pytest.approx(10)
    for second in range(11, 20):
        last = tally.snapshot(float(second)).total.rate
    assert last == 0


def test_the_rate_of_a_late_function_starts_with_it(tally: Tally) -> None:
    tally.add([submitted(task, t=100.0) for task in range(20)])
    tally.add([finished(task, t=101.0) for task in range(10)])
    line = tally.snapshot(101.0).lines[0]
    assert line.rate == pytest.approx(10)
    assert line.elapsed == pytest.approx(1)
    assert line.remaining == pytest.approx(1)


def test_remaining_weighs_functions_by_what_they_cost(tally: Tally) -> None:
    tally.add([submitted(task, "quick") for task in range(100)] + [submitted(100 + task, "slow") for task in range(11)])
    assert tally.snapshot(0.5).total.remaining is None  # nothing to go by
    tally.add([finished(task, seconds=0.01) for task in range(100)] + [finished(100, t=10.0, seconds=10.0)])
    # Ten slow ones are left, of ten seconds each, on two CPUs.
    assert tally.snapshot(10.0).total.remaining == pytest.approx(50)


def test_remaining_of_tiny_tasks_follows_the_rate(tally: Tally) -> None:
    tally.add(submitted(task) for task in range(3000))
    tally.add(finished(task, seconds=0.0) for task in range(1000))
    assert tally.snapshot(1.0).total.remaining == pytest.approx(2)


def test_a_wide_task_keeps_all_its_cpus_busy(tally: Tally) -> None:
    tally.add([submitted(1, cpus=2), finished(1, t=4.0, seconds=3.0)])
    assert tally.busy == pytest.approx(6)
    assert "2 CPUs, 75% busy" in summary_lines(tally)[0]


events = st.sampled_from(["submit", "launch", "finish", "retry", "fail", "cancel", "recall"])


@given(st.lists(st.tuples(events, st.integers(0, 5), st.integers(0, 1))))
def test_no_order_of_events_breaks_the_sums(story: list[tuple[str, int, int]]) -> None:
    tally = Tally()
    known: set[int] = set()
    for event, task, lane in story:
        if event == "submit" and task in known:
            continue
        known.add(task)
        record: dict[str, Record] = {
            "submit": submitted(task),
            "launch": launched(task, lane),
            "finish": finished(task, lane),
            "retry": failed(task, final=False),
            "fail": failed(task, final=True),
            "cancel": Cancelled(1.0, task),
            "recall": Recalled(1.0, task),
        }
        tally.add([record[event]])
        total = tally.snapshot(1.0).total
        assert min(counts(total)) >= 0
        assert sum(counts(total)) == sum(function.submitted for function in tally.functions.values())
        assert total.running <= 2


def test_memory_does_not_grow_with_finished_tasks(tally: Tally) -> None:
    def run(first: int, count: int) -> None:
        for task in range(first, first + count):
            tally.add([submitted(task), launched(task), finished(task)])

    run(0, 2000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run(2000, 20_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 200_000  # ten bytes for each task: other threads of the process are counted too


# --- the views -----------------------------------------------------------------------------------------------------


def test_the_plain_line_says_what_there_is_to_say(tally: Tally) -> None:
    tally.add([submitted(task) for task in range(1500)] + [finished(task) for task in range(100)] + [launched(200)])
    assert plain_line(tally.snapshot(10.0)) == ("penstock 10 s: 100 done, 1 running, 1,399 waiting, 10/s, 11m 40s left")


def test_names_are_shown_as_they_are_and_the_table_fits_the_screen(tally: Tally) -> None:
    tally.add([submitted(task, f"work.<locals>.f[{task}]") for task in range(40)] + [launched(33)])
    console = Console(file=io.StringIO(), width=90, height=20)
    with console.capture() as capture:
        console.print(progress_picture(tally.snapshot(1.0), console))
    text = capture.get()
    assert len(text.splitlines()) < 20
    assert "work.<locals>.f[33]" in text  # it runs, so it is among those shown
    assert "… and 25 more" in text
    assert "total" in text


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Pages(io.StringIO):
    """A stream that lets a test wait for what is written, and pretends to be a terminal if told."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self._terminal

    def flush(self) -> None:
        super().flush()
        if self.getvalue():
            self.written.set()


ViewOf = Callable[[Pages, bool], ProgressView]


@pytest.fixture
def view_of() -> Iterator[ViewOf]:
    views: list[ProgressView] = []

    def make(stream: Pages, live: bool) -> ProgressView:
        views.append(ProgressView(stream, live=live, period=0.005, clock=Clock()))
        return views[-1]

    yield make
    for view in views:
        view.close()
        assert not view._thread.is_alive()


def test_lines_where_there_is_no_terminal(view_of: ViewOf) -> None:
    stream = Pages()
    view = view_of(stream, False)
    view.on_batch([STARTED, submitted(1), launched(1), submitted(2, t=12.0)])
    assert stream.written.wait(60)
    assert stream.getvalue().splitlines()[0] == "penstock 12 s: 0 done, 1 running, 1 waiting"


def test_nothing_is_written_before_there_are_tasks(view_of: ViewOf) -> None:
    stream = Pages()
    view = view_of(stream, False)
    view.on_batch([STARTED])
    view.close()
    assert stream.getvalue() == ""


def test_a_table_on_a_terminal_that_is_taken_away_at_the_end(view_of: ViewOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Pages(terminal=True)
    view = view_of(stream, True)
    view.on_batch([STARTED, submitted(1, "count_words"), launched(1)])
    while "count_words" not in stream.getvalue():
        stream.written.clear()
        assert stream.written.wait(60)
    view.close()
    assert "waiting" in stream.getvalue()
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")  # the cursor is back
    assert "\x1b[31m" not in stream.getvalue()


def test_the_view_ends_with_the_run(view_of: ViewOf) -> None:
    view = view_of(Pages(), False)
    view.on_batch([STARTED, RunEnded(1.0, True, 0, 0, 0)])
    view._thread.join(60)
    assert not view._thread.is_alive()


def test_the_view_leaves_the_terminal_to_files_on_their_way_home(view_of: ViewOf) -> None:
    view = view_of(Pages(), False)
    view.on_batch([STARTED, submitted(1), Draining(1.0, 3, 3000)])
    view._thread.join(60)
    assert not view._thread.is_alive()
    view.on_batch([finished(1)])
    assert view.tally.snapshot(1.0).total.done == 1


def test_a_terminal_that_goes_away_does_not_end_the_run(view_of: ViewOf, caplog: pytest.LogCaptureFixture) -> None:
    stream = Pages()
    stream.close()
    view = view_of(stream, False)
    view.on_batch([STARTED, submitted(1)])
    view._thread.join(60)
    view.on_batch([finished(1)])
    assert view.tally.snapshot(1.0).total.done == 1
    assert "progress view stopped" in caplog.text


# --- the summary ---------------------------------------------------------------------------------------------------


def test_summary(tally: Tally) -> None:
    tally.add([submitted(task, "count") for task in range(4)] + [submitted(4, "merge")])
    tally.add([finished(task, t=2.0, seconds=0.5) for task in range(3)])
    tally.add([failed(3, final=False), failed(3, final=True, message="ValueError:\n  bad   block", t=2.0)])
    tally.add([Cancelled(2.0, 4)])
    tally.add([WorkerDied(2.0, "here", 0, 17, -9), RunEnded(4.0, False, 3, 1, 1)])
    assert summary_lines(tally, "runs/events.jsonl") == [
        "penstock: 3 tasks done, 1 failed, 1 cancelled, 1 tried again, 1 worker lost in 4 s (0.75/s; 2 CPUs, 19% busy)",
        "",
        "  task   done  failed    mean  total   rate",
        "  count     3       1  500 ms  1.5 s  1.5/s",
        "  merge     0       0       –      –      –",
        "",
        "  failed: count (task 3): ValueError: bad block",
        "",
        "  event log: runs/events.jsonl",
    ]


def test_the_summary_names_the_first_failures_and_counts_the_rest(tally: Tally) -> None:
    tally.add(submitted(task) for task in range(25))
    tally.add(failed(task, final=True, message="x" * 500) for task in range(25))
    lines = summary_lines(tally, width=60, colour=True)
    shown = [line for line in lines if "failed: f" in line]
    assert len(shown) == 10
    assert all(len(line) == 60 + len("\x1b[31m\x1b[0m") for line in shown)
    assert any("… and 15 more failed" in line for line in lines)


def test_the_summary_of_a_run_cut_short(tally: Tally) -> None:
    tally.add([submitted(1), submitted(2), finished(1)])
    assert "1 task done, 1 never ended" in summary_lines(tally)[0]
