"""One stream of ``penstock probe``: a process that writes and reads a file of its own when it is told to.

``runtime.probe`` starts it by its path, without site packages, so that dozens are there in a moment; hence nothing but
the standard library. Orders come as lines of JSON on standard input, answers go as lines to standard output:

    write ──▶ (opens, truncates)           ready ──▶ go ──▶ {"moved": …} now and then ──▶ {"begin", "end", "moved"}
    read  ──▶ (opens, drops cached pages)  ready ──▶ go ──▶ …

When its input ends, it removes what it wrote: so nothing is left even if the probe itself is killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

BLOCK = 1 << 20
_TELL_EVERY = 0.1
# Each block is a window of a random buffer, moved by an odd number of bytes: no page of the file equals another, so
# neither compression nor deduplication gets hold of it, and nothing is computed while the clock runs.
_SHIFT = 1031


def main() -> None:
    path = sys.argv[1]
    source = memoryview(os.urandom(2 * BLOCK))
    try:
        _say({"ready": True})
        for line in iter(sys.stdin.readline, ""):
            _say(_carry_out(json.loads(line), path, source))
    except BrokenPipeError:
        pass  # nobody listens any more
    finally:
        _remove(path)


def _carry_out(order: dict[str, Any], path: str, source: memoryview) -> dict[str, Any]:
    try:
        return _write(path, order["size"], source) if order["do"] == "write" else _read(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        return {"errno": error.errno, "error": error.strerror}


def _write(path: str, size: int, source: memoryview) -> dict[str, Any]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    number = 0

    def next_block(moved: int) -> int:
        nonlocal number
        number += 1
        offset = number * _SHIFT % BLOCK
        return os.write(descriptor, source[offset : offset + min(BLOCK, size - moved)])

    try:
        return _timed(next_block, lambda: os.fsync(descriptor))
    finally:
        os.close(descriptor)


def _read(path: str) -> dict[str, Any]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    buffer = bytearray(BLOCK)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return _timed(lambda moved: os.readv(descriptor, [buffer]), lambda: None)
    finally:
        os.close(descriptor)


def _timed(move: Callable[[int], int], finish: Callable[[], None]) -> dict[str, Any]:
    """Wait for the word, move block after block until there are no more or the deadline is past, and report."""
    _say({"ready": True})
    deadline = json.loads(sys.stdin.readline() or '{"deadline": 0}')["deadline"]
    begin = told = time.monotonic()
    moved = 0
    while step := move(moved):
        moved += step
        now = time.monotonic()
        if now >= deadline:
            break
        if now - told >= _TELL_EVERY:
            told = now
            _say({"moved": moved})
    finish()
    return {"begin": begin, "end": time.monotonic(), "moved": moved}


def _say(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _remove(path: str) -> None:
    for remove, name in ((os.unlink, path), (os.rmdir, os.path.dirname(path))):
        try:
            remove(name)
        except OSError:
            pass  # never written, or other streams still have theirs in the folder


if __name__ == "__main__":
    main()
