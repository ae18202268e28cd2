"""What a run keeps on file systems: how full the store is, files that wait for their name, remains of dead attempts.

The driver calls these under its lock; the work itself is done by the mover's thread, in order.
"""

from __future__ import annotations

import functools
import pickle
import shutil
import time
from collections.abc import Callable

from penstock.data.segments import Segments
from penstock.engine.state import TaskRecord
from penstock.executors.execution import private_folder
from penstock.executors.mover import Mover, discard, publish
from penstock.model.commands import Discard, Free, Publish
from penstock.model.data import SegmentId, Slot, Value
from penstock.model.events import Published
from penstock.model.tasks import Failure, FailureKind
from penstock.runtime.recorder import Recorder

__all__ = ["Housekeeping"]


class Housekeeping:
    """Everything the driver has done on file systems."""

    def __init__(
        self, segments: Segments, recorder: Recorder, tell: Callable[[Published], None], *, inline: bool
    ) -> None:
        self._segments = segments
        self._recorder = recorder
        self._tell = tell
        self._mover = Mover(inline=inline)
        #: does what waits, in the calling thread, where the mover has none of its own
        self.catch_up = self._mover.catch_up
        self._sizes: dict[SegmentId, int] = {}
        self._stored = 0
        #: bytes that may be in shared memory
        self.capacity = 1 << 62
        #: files whose newest version could not be given its name, until somebody is told
        self.unnamed: dict[str, Failure] = {}

    # --- the store ----------------------------------------------------------------------------------------------

    def count(self, outputs: list[Slot | None]) -> None:
        """Count what outputs occupy in shared memory."""
        for output in outputs:
            if type(output) is Value and (output.buffers or type(output.data) is not bytes):
                for piece in output.pieces():
                    self.segment_made(piece.segment, 0 if piece.spilled else piece.offset + piece.size)

    def segment_made(self, segment: SegmentId, size: int) -> None:
        """Count a segment; one that several pieces lie in has the size of the furthest."""
        known = self._sizes.get(segment, 0)
        if size > known:
            self._sizes[segment] = size
            self._stored += size - known
            self._mind_the_store()

    def free(self, command: Free, now: float) -> None:
        """Nobody can read a segment any more."""
        size = self._sizes.pop(command.segment, 0)
        self._stored -= size
        self._mind_the_store()
        self._recorder.freed(command.segment, size, now)
        self._mover.do(lambda: self._segments.remove(command.segment))

    def _mind_the_store(self) -> None:
        full = self._stored > self.capacity
        if full is not self._segments.full:
            self._segments.full = full

    # --- files --------------------------------------------------------------------------------------------------

    def publish(self, command: Publish) -> None:
        """Give a finished file its name."""
        self._mover.do(lambda: self._publish(command))

    def discard(self, command: Discard) -> None:
        """Remove a private copy."""
        self._mover.do(lambda: discard(command.path))

    def _publish(self, command: Publish) -> None:
        path = command.target
        try:
            publish(command.source, command.target)
        except OSError as error:
            path = command.source
            self.unnamed[command.target] = _unnamed(error, command)
        self._recorder.published(command.version, path, time.monotonic())
        self._tell(Published(command.version, path))

    # --- remains ------------------------------------------------------------------------------------------------

    def clear_after(self, worker: int, heads: list[TaskRecord], known: set[SegmentId]) -> None:
        """Remove what a dead process has left: unfinished files of its attempt, and segments that nobody knows."""
        for head in heads:
            self.remove_unfinished_files(head, worker)

        def remove_unknown() -> None:
            for segment in self._segments.made_by(worker):
                if segment not in known:
                    self._segments.remove(segment)

        self._mover.do(remove_unknown)

    def remove_unfinished_files(self, task: TaskRecord, worker: int) -> None:
        """Remove the private folders of an attempt that will not finish."""
        folders = [
            private_folder(self._segments, output.file, task.task, str(worker))
            for output in task.call.outputs
            if output.file is not None
        ]
        for folder in folders:
            self._mover.do(functools.partial(shutil.rmtree, folder, ignore_errors=True))

    def finish(self) -> None:
        """Return when what was asked for so far is done; no private copy lies about then."""
        self._mover.finish()

    def close(self) -> None:
        """Return when everything is done."""
        self._mover.close()


def _unnamed(error: OSError, command: Publish) -> Failure:
    message = (
        f"the finished file cannot be given its name {command.target}, and is kept as {command.source}: "
        f"{error.strerror}"
    )
    told = pickle.dumps(type(error)(error.errno, message))
    return Failure(FailureKind.EXCEPTION, message, told, path=(f"that wrote {command.target}",))
