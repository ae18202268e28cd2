"""What a run keeps on file systems: segments that go, files that wait for their name, remains of dead attempts.

The driver calls these under its lock; the work itself is done by the mover's thread, in order.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.data.segments import Access, Segments
from penstock.engine.state import Early, IOTaskRecord, TaskRecord
from penstock.executors.disposable import hold, let_go
from penstock.executors.layer_files import LayerFolder, names_of
from penstock.executors.mover import Mover, NameChanged, discard, link, publish, relocate, secure, share_name
from penstock.executors.written_files import finished_owner, forget_folder, private_folder, streaming_owner
from penstock.model.commands import Discard, Divert, Free, Move, Publish
from penstock.model.data import SegmentId, TaskId
from penstock.model.events import Discarded, Moved, Published, Reported
from penstock.model.resources import StorageLayer
from penstock.model.tasks import Failure, FailureKind
from penstock.runtime.left_behind import LeftWatch
from penstock.runtime.recorder import Recorder
from penstock.runtime.spills import Spills
from penstock.runtime.traces import Trace
from penstock.storage.redirect import is_below

if TYPE_CHECKING:
    from penstock.executors.emulation import EmulatedDevice, EmulatedStream

__all__ = ["Housekeeping", "not_home"]


class Housekeeping:
    """Everything the driver has done on file systems."""

    def __init__(
        self,
        segments: Segments,
        layers: Sequence[StorageLayer],
        recorder: Recorder,
        tell: Callable[[Reported], None],
        *,
        inline: bool,
    ) -> None:
        self._segments = segments
        run = os.path.basename(segments.memory_dir)
        self._folders = {layer.name: LayerFolder(layer.mount, run) for layer in layers}
        for folder in self._folders.values():
            folder.look()
        self._traces = Trace(run)
        #: layers on which this run is known to live
        self._reserved: set[str] = set()
        self._recorder = recorder
        self._tell = tell
        self._mover = Mover(inline=inline)
        self.left = LeftWatch(layers, self._mover.do, tell)
        #: moves files between layers: a long copy must not keep names waiting
        self._flusher = Mover("flusher", inline=inline)
        #: bytes moved so far
        self.flushed = 0
        emulated = [layer for layer in layers if layer.curve]
        self._emulated = self._emulated_devices(emulated)
        devices = dict(zip((layer.name for layer in emulated), self._emulated, strict=True))
        #: moves segments between memory and disk
        self.spills = Spills(segments, devices, recorder, tell, self.reserve, inline=inline)
        #: files whose newest version could not be given its name, until somebody is told
        self.unnamed: dict[str, Failure] = {}
        #: files that are being deleted by our own means: their names go before the engine hears of it
        self.deleting: set[str] = set()

    def reserve(self, layer: str) -> None:
        """A task is about to write on a layer."""
        if layer not in self._reserved:
            with contextlib.suppress(OSError):  # the task meets it too, and says so
                self._reserve(layer)

    def _reserve(self, layer: str) -> None:
        folder = self._folders[layer]
        self._traces.note(folder.mount)
        folder.reserve()
        self._reserved.add(layer)

    def catch_up(self) -> None:
        """Do what waits, in the calling thread, where the movers have none of their own."""
        self._mover.catch_up()
        self._flusher.catch_up()
        self.spills.catch_up()
        self._mover.catch_up()

    # --- the store ----------------------------------------------------------------------------------------------

    def divert(self, command: Divert) -> None:
        """New segments go to disk, or to memory again."""
        self._segments.diversion.set(command.to_disk)

    def free(self, command: Free, now: float) -> None:
        """Nobody can read a segment any more."""
        self._recorder.freed(command.segment, command.size, now)
        self._mover.do(lambda: self._free(command))

    def _free(self, command: Free) -> None:
        try:
            self._segments.remove(command.segment)
        finally:  # the engine waits for an answer; what could not be removed goes with the run's folder
            if command.tell:
                self._tell(Discarded(f"s{command.segment}"))

    # --- files --------------------------------------------------------------------------------------------------

    def publish(self, command: Publish) -> None:
        """Give a finished file its name."""
        self._mover.do(lambda: self._publish(command))

    def discard(self, command: Discard) -> None:
        """Remove a private copy."""
        self._mover.do(lambda: self._discard(command))

    def _discard(self, command: Discard) -> None:
        discard(command.path)
        forget_folder(self._segments, os.path.dirname(command.path))
        if command.tell:
            self._tell(Discarded(command.path))

    def move(self, command: Move) -> None:
        """Copy a file to another layer, or home."""
        self._flusher.do(lambda: self._move(command))

    def _move(self, command: Move) -> None:
        began, before = time.monotonic(), self.flushed
        target = command.name
        streams: list[EmulatedStream] = []
        error = ""
        astray = False
        try:
            if command.layer:
                folder = self._folders[command.layer]
                target = folder.finished(command.name, -command.version, 0, temp=command.temp)
                self.reserve(command.layer)
                try:
                    folder.make_room_for(target)
                except OSError as problem:
                    message = f"cannot write on storage layer {command.layer} ({folder.mount}): {problem.strerror}"
                    raise type(problem)(problem.errno, message) from None
                folder.note_home(command.name)
            streams += self._emulated_streams(command.source, target)
            for stream in streams:
                stream.begin()  # both at once: a copy reads ahead of what it writes

            def note_progress(copied: int) -> None:
                self.flushed += copied
                for stream in streams:
                    stream.transfer(copied)

            astray = not self._relocate(command, target, note_progress, share=not streams)
        except Exception as problem:  # whatever it was, the engine waits for an answer
            error = getattr(problem, "strerror", None) or f"{type(problem).__name__}: {problem}"
            if not os.path.exists(command.source):
                error = f"{command.source} is gone, and with it the file"
            if target != command.name:
                discard(target)
            target = command.source
            self.flushed = before
        finally:
            for stream in streams:
                stream.close()
        if astray:
            self.flushed = before
            if command.layer:
                discard(target)  # the folder that was made for it
        now = time.monotonic()
        why = "the program has removed its name, or uses it for another file" if astray else error
        self._recorder.moved(command, self.flushed - before, now - began, why, now)
        self._tell(Moved(command.version, command.name if astray else target, error, astray))

    def _relocate(self, command: Move, target: str, progress: Callable[[int], None], *, share: bool) -> bool:
        """Move a file, with the names by which the program knows it; False if none is left.

        The program may remove, rename, replace or link a name as if it were the file. Nothing is put over what it has
        there, and nothing that it removed comes back.
        """
        while True:
            names = names_of(command.name, command.source) if command.linked else [command.name]
            if not names:
                os.stat(command.source)  # that it is gone is worse
                if os.path.isdir(command.name):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), command.name)
                if command.name in self.deleting:
                    raise FileNotFoundError(errno.ENOENT, "it is being deleted", command.name)
                return False
            first, *others = names
            if others and command.layer:  # they could not all be changed at once; at home they can be one file
                raise OSError(errno.EMLINK, "the program has given it further names", command.name)
            place = target if command.layer else first
            try:
                relocate(command.source, place, first, progress, share=share, linked=command.linked)
            except NameChanged:
                continue
            for other in others:
                share_name(first, other)
            return True

    def _emulated_devices(self, layers: list[StorageLayer]) -> list[EmulatedDevice]:
        """Opened at the start: at the end, when files come home, the directory with their state is gone."""
        if not layers:
            return []
        from penstock.executors.emulation import from_layers

        hold(self._segments.memory_dir)
        return from_layers(layers, self._segments.memory_dir)

    def _emulated_streams(self, *paths: str) -> list[EmulatedStream]:
        """A move on an emulated device takes its share of it, as a task would."""
        return [
            device.stream()
            for device in self._emulated
            if any(is_below(os.path.realpath(path), device.mount) for path in paths)
        ]

    def secure(self, paths: Iterable[str]) -> None:
        """See that files survive a loss of power."""
        for path in paths:
            self._flusher.do(functools.partial(_secure_if_there, path))

    def _remove_layer_folders(self, needed: set[str]) -> None:
        """The run is over: leave nothing on layers but files that could not be brought home."""
        for folder in self._folders.values():
            shutil.rmtree(folder.work, ignore_errors=True)
            let_go([folder.work])
            with contextlib.suppress(OSError):
                for entry in os.scandir(folder.kept):
                    if not any(is_below(path, entry.path) for path in needed):
                        shutil.rmtree(entry.path, ignore_errors=True)
        gone = {layer for layer, folder in self._folders.items() if folder.remove_if_empty()}
        if self._reserved <= gone:
            self._traces.forget()

    def _publish(self, command: Publish) -> None:
        path = command.target
        try:
            if command.link:
                self._note_home(command)
            (link if command.link else publish)(command.source, command.target)
            if command.synced:
                _secure_if_there(os.path.dirname(command.target))
        except Exception as error:  # whatever it was, the engine waits for an answer
            path = command.source
            self.unnamed[command.target] = _unnamed(error, command)
            forget_folder(self._segments, os.path.dirname(path))  # it is all there is of the file, and stays
        self._recorder.published(command.version, path, time.monotonic())
        self._tell(Published(command.version, path))

    def _note_home(self, command: Publish) -> None:
        for folder in self._folders.values():
            if is_below(command.source, folder.root):
                folder.note_home(command.target)

    # --- remains ------------------------------------------------------------------------------------------------

    def put_back(self, worker: int, tasks: list[TaskId]) -> None:
        """Undo what a dead process was changing in place, before anybody goes on with it."""
        path = self._segments.undo_path(worker)
        if path is not None and os.path.exists(path):
            from penstock.data.undo import put_back_of

            segments = self._segments
            put_back_of(path, tasks, lambda one: segments.map(one, spilled=False, access=Access.IN_PLACE).view)

    def clear_after(
        self,
        writers: range,
        heads: list[TaskRecord],
        known: set[SegmentId],
        early: Mapping[TaskId, Early],
        left: Iterable[str] = (),
    ) -> None:
        """Remove what a dead process has left: unfinished files of its attempt, and segments that nobody knows.

        ``writers`` are its number, and those of the processes that it had started for an MPI task. ``left`` are folders
        that it has delivered all from.
        """
        for head in heads:
            self.remove_unfinished_files(head, writers[0], early)
        for folder in left:
            self._mover.do(functools.partial(self._remove_folder, folder))

        def remove_unknown() -> None:
            for writer in writers:
                for segment in self._segments.made_by(writer):
                    if segment not in known:
                        self._segments.remove(segment)

        self._mover.do(remove_unknown)

    def remove_unfinished_files(self, task: TaskRecord, worker: int, early: Mapping[TaskId, Early]) -> None:
        """Remove the private folders of an attempt that will not finish, but no file that it handed over early."""
        delivered = early[task.task].indices if task.task in early else ()
        outputs = enumerate(task.call.outputs, start=task.call.returns)
        files = [(one.file, one.temp, index in delivered) for index, one in outputs if one.file is not None]
        folders = [private_folder(self._segments, file, task.task, str(worker)) for file, _, _ in files]
        finished = finished_owner(task.attempt)
        folders += [
            private_folder(self._segments, file, task.task, finished) for file, _, is_over in files if not is_over
        ]
        owner = streaming_owner(str(worker), task.attempt)
        streamed = [one.file for one in task.call.outputs if one.file is not None and one.stream]
        folders += [private_folder(self._segments, file, task.task, owner) for file in streamed]
        if isinstance(task, IOTaskRecord) and task.device is not None:
            layer = self._folders[task.device.name]
            for file, temp, is_delivered in files:
                folders.append(layer.private(file, task.task, str(worker)))
                if is_delivered:
                    continue
                # Put in its place by an attempt that did not live to say so.
                folders.append(os.path.dirname(layer.finished(file, task.task, task.attempt, temp=temp)))
        for folder in folders:
            self._mover.do(functools.partial(self._remove_folder, folder))

    def _remove_folder(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        forget_folder(self._segments, folder)

    def finish(self) -> None:
        """Return when what was asked for so far is done; no private copy lies about then."""
        self._mover.finish()

    def close(self, needed: set[str]) -> None:
        """Return when everything is done; of what is on layers, only the ``needed`` files stay."""
        self.spills.close()
        self._flusher.close()
        self._mover.close()
        for device in self._emulated:
            device.close()
        self._remove_layer_folders(needed)


def _secure_if_there(path: str) -> None:
    with contextlib.suppress(OSError):
        secure(path)


def not_home(file: str, kept: str, why: str) -> Failure:
    """A file that the end of the run found on a layer and could not bring home."""
    if os.path.exists(kept):
        linked = ", to which its name is a link" if os.path.realpath(file) == os.path.realpath(kept) else ""
        message = f"the file {file} could not be moved home and is kept as {kept}{linked}: {why}"
    else:
        message = f"the file {file} is lost: its copy on a storage layer is gone: {kept}"
    told = pickle.dumps(OSError(errno.EIO, message))
    return Failure(FailureKind.EXCEPTION, message, told, path=(f"that wrote {file}",))


def _unnamed(error: Exception, command: Publish) -> Failure:
    known = error if isinstance(error, OSError) else OSError(errno.EIO, f"{type(error).__name__}: {error}")
    message = (
        f"the finished file cannot be given its name {command.target}, and is kept as {command.source}: "
        f"{known.strerror}"
    )
    told = pickle.dumps(type(known)(known.errno, message))
    return Failure(FailureKind.EXCEPTION, message, told, path=(f"that wrote {command.target}",))
