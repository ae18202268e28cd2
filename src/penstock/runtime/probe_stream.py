"""One stream of ``penstock probe``: a process that writes and reads a file of its own when it is told to.

``runtime.probe`` starts it by its path, without site packages, so that dozens are there in a moment; hence nothing but
the standard library. Orders come as lines of JSON on standard input, answers go as lines to standard output:

    write ──▶ (opens, truncates)           ready ──▶ go ──▶ {"moved": …} now and then ──▶ {"begin", "end", "moved", …}
    read  ──▶ (opens, drops cached pages)  ready ──▶ go ──▶ …

When its input ends, it removes what it wrote: so nothing is left even if the probe itself is killed. If the streams are
killed too, their files are not locked any more, and the next probe removes them (``clean``). All that touches the
measured file system is done in here: a probe must not hang when that does.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

BLOCK = 1 << 20
#: how the private folders of probes begin, in the directory that is measured
FOLDER = ".penstock-probe-"
_TELL_EVERY = 0.1
# Each block is a window of a random buffer, moved by an odd number of bytes: no page of the file equals another, so
# neither compression nor deduplication gets hold of it, and nothing is computed while the clock runs.
_SHIFT = 1031


def main() -> None:
    path = sys.argv[1]
    source = memoryview(os.urandom(2 * BLOCK))
    try:
        try:
            lock = _locked(path)
        except OSError as error:
            _say(_refused(error))
            return
        _say({"ready": True})
        for line in iter(sys.stdin.readline, ""):
            _say(_carry_out(json.loads(line), path, source))
        os.close(lock)
    except BrokenPipeError:
        pass  # nobody listens any more
    finally:
        _remove(path)


def _locked(path: str) -> int:
    """Make the file and hold its lock, by which others know that it is in use."""
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(path), 0o700)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(os.path.dirname(path))):
                continue  # the folder was swept before there was a lock in it
            raise
        with contextlib.suppress(OSError):  # no locks there: then nobody takes it for the remains of a dead probe
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        os.close(descriptor)


def _carry_out(order: dict[str, Any], path: str, source: memoryview) -> dict[str, Any]:
    try:
        return _write(path, order["size"], source) if order["do"] == "write" else _read(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _refused(error)


def _refused(error: OSError) -> dict[str, Any]:
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
    worked = time.process_time()
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
    return {"begin": begin, "end": time.monotonic(), "moved": moved, "cpu": time.process_time() - worked}


def _say(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _remove(path: str) -> None:
    for remove, name in ((os.unlink, path), (os.rmdir, os.path.dirname(path))):
        try:
            remove(name)
        except OSError:
            pass  # never written, or other streams still have theirs in the folder


def clean(directory: str, own: str = "") -> None:
    """Remove what probes of this user that are gone have left in a directory, and a folder of which that is known."""
    if own:
        shutil.rmtree(own, ignore_errors=True)
    for folder in glob.glob(os.path.join(glob.escape(directory), f"{FOLDER}*")):
        with contextlib.suppress(OSError):
            if os.lstat(folder).st_uid == os.getuid() and _is_dead(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_dead(folder: str) -> bool:
    """Whether no stream holds its file there; raises OSError where locks cannot be asked for, or one is held."""
    for name in os.listdir(folder):
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["clean"]:
        clean(*sys.argv[2:])
    else:
        main()
