"""Messages between a node executor and its workers, as bytes and back."""

from __future__ import annotations

import msgspec
import pytest

from penstock.executors.wire import Error, Logged, frame, frames_up
from penstock.model.tasks import Failure, FailureKind


def test_such_messages_stand_among_others() -> None:
    odd, plain = Error(3, 1, Failure(FailureKind.DIED, "caf\udce9"), 0.5), Logged(b"record", ["root"])
    stream = frame(plain) + frame(odd) + frame(plain)
    frames = frames_up()
    cut = len(stream) // 2
    assert [*frames.feed(stream[:cut]), *frames.feed(stream[cut:])] == [plain, odd, plain]


def test_garbage_is_known_as_such() -> None:
    for garbage in (b"\xff\xff\xff\xff", b"\x03\x00\x00\x80abc"):
        with pytest.raises(msgspec.DecodeError):
            list(frames_up().feed(garbage))
