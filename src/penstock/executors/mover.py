"""The thread that touches file systems so that the control thread need not: deletes, renames, private copies."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
from collections.abc import Callable

__all__ = ["Mover", "copy_file", "discard", "publish"]


class Mover:
    """Does file-system work in the order it was asked for: in a thread of its own, or inline, when told to catch up."""

    def __init__(self, *, inline: bool = False) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._inline = inline
        self._thread: threading.Thread | None = None

    def do(self, job: Callable[[], None]) -> None:
        """Have something done soon, after what was asked for before."""
        if self._thread is None and not self._inline:
            self._thread = threading.Thread(target=self._run, name="penstock-mover", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def catch_up(self) -> None:
        """Inline: do what was asked for, in this thread."""
        while self._inline:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is not None:
                job()

    def finish(self) -> None:
        """Return when everything asked for so far is done."""
        self.catch_up()
        if self._thread is not None and threading.current_thread() is not self._thread:
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait()

    def close(self) -> None:
        """Return when everything asked for is done."""
        self.catch_up()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def copy_file(source: str, target: str) -> None:
    """Copy a file with its attributes; where the file system can share the blocks, nothing is copied."""
    with open(source, "rb") as old, open(target, "wb") as new:
        left = os.fstat(old.fileno()).st_size
        try:
            while left > 0 and (copied := os.copy_file_range(old.fileno(), new.fileno(), left)):
                left -= copied
        except OSError:
            old.seek(0)
            new.seek(0)
            shutil.copyfileobj(old, new)
    shutil.copystat(source, target)


def publish(source: str, target: str) -> None:
    """Let a finished file appear under its final name; whoever has opened the private one keeps it."""
    beside = f"{source}.publish"
    try:
        os.link(source, beside)
    except OSError:
        copy_file(source, beside)  # a file system without hard links
    os.replace(beside, target)


def discard(path: str) -> None:
    """Remove a private copy and the folder made for it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))
