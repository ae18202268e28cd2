"""What a worker says: whole messages, in order, whoever speaks up in the middle of one."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.executors.outbox import Outbox
from penstock.executors.wire import Logged, Ready, frames_up

#: more than a socket takes before somebody reads
LARGE = 10_000_000


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def read(socket: socket.socket, count: int) -> list[object]:
    """So many messages."""
    frames, messages = frames_up(), list[object]()
    while len(messages) < count:
        messages += frames.feed(socket.recv(1 << 16))
    return messages


@pytest.mark.parametrize("way", ["say", "hand_over"])
def test_a_signals_handler_may_log_while_a_message_is_being_written(
    ends: tuple[socket.socket, socket.socket], way: str
) -> None:
    ours, theirs = ends
    outbox = Outbox(ours)
    messages: list[object] = []
    reader = threading.Thread(target=lambda: messages.extend(read(theirs, 3)))

    def handler(*_: object) -> None:
        outbox.hand_over(Logged(b"in between", []))
        reader.start()

    main = threading.main_thread().ident
    assert main == threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    try:
        timer.start()
        large = Logged(bytes(LARGE), [])
        (outbox.say if way == "say" else outbox.hand_over)(large)  # type: ignore[arg-type,operator]
        outbox.say(Ready())
        timer.join()
        reader.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert messages == [large, Logged(b"in between", []), Ready()]


def test_what_waits_for_company_leaves_soon(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    outbox = Outbox(ours)
    records = [Logged(b"%d" % number, []) for number in range(5)]
    for record in records:
        outbox.hand_over(record)
    assert read(theirs, 5) == records


def test_a_message_that_is_said_leaves_behind_what_waits(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    outbox = Outbox(ours)
    outbox.hand_over(Logged(b"first", []))
    outbox.hand_over(Logged(b"second", []))
    outbox.say(Ready())
    assert read(theirs, 3) == [Logged(b"first", []), Logged(b"second", []), Ready()]
