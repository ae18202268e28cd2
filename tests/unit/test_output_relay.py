"""The output relay, fed through real pipes: whole lines, tails, bounded memory, and streams of the user that fail."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.patience import PATIENCE

from penstock.executors.output import CHUNK, OutputRelay
from penstock.executors.task_streams import END_OF_TASK

pytestmark = pytest.mark.leaks


class Screen(io.StringIO):
    """A stream that tells when a text has come to stand on it."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def write(self, text: str) -> int:
        with self._changed:
            count = super().write(text)
            self._changed.notify_all()
        return count

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.getvalue(), PATIENCE), self.getvalue()


def new_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Stand in for sys.stdout; in the test itself, since pytest puts its own stream back between set-up and test."""
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    return screen


class Outlets:
    """The write ends of one worker's pipes."""

    def __init__(self, relay: OutputRelay, worker_id: int) -> None:
        self.stdout, self.stderr = relay.pipes(worker_id)

    def say(self, text: str) -> None:
        os.write(self.stdout, text.encode())

    def complain(self, text: str) -> None:
        os.write(self.stderr, text.encode())

    def close(self) -> None:
        os.close(self.stdout)
        os.close(self.stderr)


def written_now(descriptor: int, text: bytes) -> int:
    """How much a pipe takes at once; 0 when it is full."""
    try:
        return os.write(descriptor, text)
    except BlockingIOError:
        return 0


@pytest.fixture
def relay() -> Iterator[OutputRelay]:
    relay = OutputRelay()
    yield relay
    relay.close()


@pytest.fixture
def worker(relay: OutputRelay) -> Iterator[Outlets]:
    outlets = Outlets(relay, 1)
    yield outlets
    outlets.close()


@pytest.fixture
def other(relay: OutputRelay) -> Iterator[Outlets]:
    outlets = Outlets(relay, 2)
    yield outlets
    outlets.close()


def test_output_goes_to_the_streams_of_the_moment(
    relay: OutputRelay, worker: Outlets, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.say("to out\n")
    worker.complain("to err\n")
    assert relay.flush(PATIENCE)
    assert capsys.readouterr() == ("to out\n", "to err\n")


def test_lines_of_two_workers_are_not_mixed(
    relay: OutputRelay, worker: Outlets, other: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = new_screen(monkeypatch)
    monkeypatch.setattr("penstock.executors.output.PARTIAL_LINE_SECONDS", 3600.0)  # however long this test stands still
    worker.say("begun ")
    other.say("whole\n")
    screen.wait_for("whole\n")
    worker.say("and done\n")
    screen.wait_for("begun and done\n")
    assert screen.getvalue() == "whole\nbegun and done\n"


def test_unfinished_line_is_shown_after_a_moment_and_other_workers_do_not_continue_it(
    relay: OutputRelay, worker: Outlets, other: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = new_screen(monkeypatch)
    begin = time.monotonic()
    worker.say("50 %")
    screen.wait_for("50 %")
    assert time.monotonic() - begin >= 0.19
    other.say("line\n")
    screen.wait_for("line\n")
    assert screen.getvalue() == "50 %\nline\n"


@pytest.mark.parametrize("end", ["\n", END_OF_TASK.decode()], ids=["its end", "the end of its task"])
def test_unfinished_line_that_another_worker_has_ended_is_not_ended_again(
    relay: OutputRelay, worker: Outlets, other: Outlets, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    screen = new_screen(monkeypatch)
    worker.say("50 %")
    assert relay.flush(PATIENCE)
    other.say("line\n")
    assert relay.flush(PATIENCE)
    worker.say(end)
    assert relay.flush(PATIENCE)
    worker.say("next\n\n")
    assert relay.flush(PATIENCE)
    assert screen.getvalue() == "50 %\nline\nnext\n\n"


def test_unfinished_line_is_continued_by_its_own_worker(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = new_screen(monkeypatch)
    worker.say("50 %")
    assert relay.flush(PATIENCE)
    worker.say(" 100 %\n")
    assert relay.flush(PATIENCE)
    assert screen.getvalue() == "50 % 100 %\n"


def test_unfinished_line_is_shown_at_the_end_of_the_worker(relay: OutputRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = new_screen(monkeypatch)
    outlets = Outlets(relay, 1)
    outlets.say("last words")
    outlets.close()
    assert relay.flush(PATIENCE)
    assert screen.getvalue() == "last words"
    assert relay.tail(1) == "last words"


def test_character_cut_in_two_and_bytes_that_are_no_text(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = new_screen(monkeypatch)
    encoded = "grüße\n".encode()
    os.write(worker.stdout, encoded[:3])
    assert relay.flush(PATIENCE)
    os.write(worker.stdout, encoded[3:] + b"\xff\n")
    assert relay.flush(PATIENCE)
    assert screen.getvalue() == "grüße\n�\n"


def test_tail_is_the_last_twenty_lines_of_both_streams(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_screen(monkeypatch)
    worker.say("".join(f"line {number}\n" for number in range(100)))
    assert relay.flush(PATIENCE)
    worker.complain("Traceback\nunfinished")
    lines = relay.tail(1).split("\n")
    assert lines == [*(f"line {number}" for number in range(82, 100)), "Traceback", "unfinished"]
    assert relay.tail(99) == ""


def test_tail_does_not_wait_for_a_user_stream_that_hangs(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, released = threading.Event(), threading.Event()

    class Stuck(Screen):
        def write(self, text: str) -> int:
            writing.set()
            assert released.wait(PATIENCE)
            return super().write(text)

    stuck = Stuck()
    monkeypatch.setattr(sys, "stdout", stuck)
    worker.say("first\n")
    assert writing.wait(PATIENCE)
    worker.say("second\n")
    assert relay.tail(1) == "first\nsecond"
    assert relay.flush(0.01) is False
    released.set()
    assert relay.flush(PATIENCE)
    assert stuck.getvalue() == "first\nsecond\n"


def test_tail_is_kept_for_ended_workers_but_not_for_all_that_ever_were(
    relay: OutputRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_screen(monkeypatch)
    for worker_id in range(200):
        outlets = Outlets(relay, worker_id)
        outlets.say(f"worker {worker_id}\n")
        outlets.close()
        assert relay.flush(PATIENCE)
    assert relay.tail(199) == "worker 199"
    assert relay.tail(0) == ""


def test_flood_holds_the_worker_and_not_our_memory(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, released = threading.Event(), threading.Event()
    largest = 0

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            nonlocal largest
            largest = max(largest, len(text))
            writing.set()
            assert released.wait(PATIENCE)
            return len(text)

    monkeypatch.setattr(sys, "stdout", Slow())
    os.set_blocking(worker.stdout, False)
    accepted = 0
    # One chunk is with the relay, and the pipe holds another; then no more is taken.
    while (count := written_now(worker.stdout, b"x" * 80 + b"\n")) and accepted < 100 * CHUNK:
        accepted += count
    assert writing.wait(PATIENCE)
    accepted += written_now(worker.stdout, b"y" * CHUNK)
    assert accepted <= 3 * CHUNK
    released.set()
    assert relay.flush(PATIENCE)
    assert largest <= 2 * CHUNK


def test_line_without_end_is_passed_on_in_pieces(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = new_screen(monkeypatch)
    total = 20 * CHUNK
    for _ in range(20):
        worker.say("z" * CHUNK)
    assert relay.flush(PATIENCE)
    assert len(screen.getvalue()) == total
    assert len(relay.tail(1)) <= 2000


@pytest.mark.parametrize("fault", ["closed", "broken", "missing", "odd"])
def test_user_stream_that_fails_does_not_stop_the_relay(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError if fault == "broken" else ZeroDivisionError

    stream = None if fault == "missing" else Broken()
    if stream is not None and fault == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    worker.say("lost\n")
    assert relay.flush(PATIENCE)
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    worker.say("found\n")
    assert relay.flush(PATIENCE)
    assert screen.getvalue() == "found\n"
    assert relay.tail(1) == "lost\nfound"


def test_text_that_the_user_stream_cannot_encode_is_escaped(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    worker.say("5 µs\n")
    assert relay.flush(PATIENCE)
    assert written.getvalue() == b"5 \\xb5s\n"


def test_close_shows_what_is_left_and_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = new_screen(monkeypatch)
    relay = OutputRelay()
    outlets = Outlets(relay, 1)
    outlets.say("at the very end")
    relay.close()
    relay.close()
    outlets.close()
    assert screen.getvalue() == "at the very end"
    assert relay.tail(1) == "at the very end"
    assert relay.flush()


def test_relay_sleeps_while_nothing_is_written(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_screen(monkeypatch)
    worker.say("line\n")
    worker.say("unfinished")
    assert relay.flush(PATIENCE)
    assert relay._seconds_to_next_partial() is None


@pytest.mark.parametrize("cut", range(1, len(END_OF_TASK)))
def test_a_mark_ends_an_unfinished_line_however_it_arrives(
    relay: OutputRelay, worker: Outlets, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    screen = new_screen(monkeypatch)
    mark = END_OF_TASK.decode()
    worker.say("unfinished" + mark[:cut])
    assert relay.flush(PATIENCE)
    worker.say(mark[cut:] + "whole\n" + mark + "\x1b[0m\x1b_")
    assert relay.flush(PATIENCE)
    worker.say("next\n")
    assert relay.flush(PATIENCE)
    assert screen.getvalue() == "unfinished\nwhole\n\x1b[0m\x1b_next\n"
