"""What a run keeps on file systems: how full the store is, files that wait for their name, remains of dead attempts.

The driver calls these under its lock; the work itself is done by the mover's thread, in order.
"""

from __future__ import annotations

import functools
import pickle
import shutil
import threading
import time

from penstock.data.segments import Segments
from penstock.engine.state import TaskRecord
from penstock.executors.execution import private_folder
from penstock.executors.mover import Mover, discard, publish
from penstock.model.commands import Discard, Free, Publish
from penstock.model.data import SegmentId, Slot, Value, VersionId
from penstock.model.tasks import Failure, FailureKind
from penstock.runtime.recorder import Recorder

__all__ = ["Housekeeping"]


class Housekeeping:
    """Everything the driver has done on file systems."""

    def __init__(self, segments: Segments, recorder: Recorder, changed: threading.Condition) -> None:
        self._segments = segments
        self._recorder = recorder
        #: the driver's condition: notified when a file got its name
        self._changed = changed
        self._mover = Mover()
        self._sizes: dict[SegmentId, int] = {}
        self._stored = 0
        #: bytes that may be in shared memory
        self.capacity = 1 << 62
        #: versions of files that are being given their name
        self._unpublished: set[VersionId] = set()
        #: private copies that are all there is of a file
        self._kept: set[str] = set()
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
        self._unpublished.add(command.version)
        self._mover.do(lambda: self._publish(command))

    def discard(self, command: Discard) -> None:
        """Remove a private copy, unless it is all there is."""
        self._mover.do(lambda: None if command.path in self._kept else discard(command.path))

    def is_publishing(self, version: VersionId | None = None) -> bool:
        """Whether a version, or any, is about to be given its name."""
        return bool(self._unpublished) if version is None else version in self._unpublished

    def _publish(self, command: Publish) -> None:
        try:
            publish(command.source, command.target)
            failure = None
        except OSError as error:
            failure = _unnamed(error, command)
        self._recorder.published(command.version, command.target, time.monotonic())
        with self._changed:
            if failure is not None:
                self._kept.add(command.source)
                self.unnamed[command.target] = failure
            self._unpublished.discard(command.version)
            self._changed.notify_all()

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
