"""The files that an attempt writes: where it writes them, and how they become what it was asked for.

A task is given a private path with the name it asked for; the finished file takes its place by a rename, so nobody
ever sees it half-written. It is beside the name it will bear, because only there a rename puts it in place; or on a
storage layer, where it stays. The driver knows these paths too, and removes what a process that died has left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.data.segments import Segments
from penstock.errors import TaskError
from penstock.executors.layer_files import LayerFolder
from penstock.executors.mover import copy_directory, copy_file, directory_size, discard, rename, secure
from penstock.executors.saying import say
from penstock.executors.synced import Syncs
from penstock.executors.wire import Delivering, Run
from penstock.model.data import FileRef, Slot
from penstock.model.resources import StorageLayer
from penstock.model.tasks import Output
from penstock.storage.redirect import is_below

if TYPE_CHECKING:
    from penstock.executors.execution import Function
    from penstock.persistent.context import Outgoing

__all__ = [
    "Layers",
    "WrittenFiles",
    "finished_owner",
    "forget_folder",
    "is_for_want_of_room",
    "private_folder",
    "streaming_owner",
]

#: storage layers by name
Layers = Mapping[str, StorageLayer]

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_for_want_of_room(error: BaseException | None) -> bool:
    """Whether an exception says that a disk is full, or was raised because another one said so."""
    for _ in range(8):
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        error = None if error is None else error.__cause__ or error.__context__
    return False


def is_open_for_writing(path: str) -> bool:
    """Whether this process could still change a file through a descriptor it has."""
    real = os.path.realpath(path)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            if os.readlink(f"/proc/self/fd/{number}") == real:
                flags = fcntl.fcntl(int(number), fcntl.F_GETFL)
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False


def private_folder(segments: Segments, file: str, task: int, owner: str) -> str:
    """Where a process writes a file that is to be beside its name, or where the finished file waits for it."""
    folder, name = os.path.split(file)
    run = os.path.basename(segments.memory_dir)
    return os.path.join(folder, f".{run}-{task}-{owner}-{zlib.crc32(name.encode(errors='surrogateescape')):x}")


def streaming_owner(writer: str, attempt: int) -> str:
    """Who owns the private folder of a streamed file: readers must not take one attempt's file for another's."""
    return f"{writer}.{attempt}"


def finished_owner(attempt: int) -> str:
    """Who owns the private folder of a finished file: what one attempt left must not be taken for another's."""
    return f"done.{attempt}"


def _announce_folder(segments: Segments, private: str) -> None:
    """Have the fork server remove a private folder if all of the run is killed: it removes what these links mean."""
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.symlink(private, os.path.join(segments.memory_dir, os.path.basename(private)))


def forget_folder(segments: Segments, private: str) -> None:
    """A private folder is gone, or is to stay."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(segments.memory_dir, os.path.basename(private)))


#: functions of which it was said that they leave files beside their own
_told: set[str] = set()


class Announces(Protocol):
    """Where an attempt says that it has begun to deliver."""

    def announce(self, message: Delivering) -> None:
        """Say it, before this returns."""
        ...


class WrittenFiles:
    """The files of one attempt. A finished file stays private until all that the attempt makes is: see ``deliver``."""

    def __init__(self, run: Run, function: Function, segments: Segments, layers: Layers) -> None:
        self._run = run
        self._function = function
        self._segments = segments
        self._layers = layers
        self._placed: list[tuple[Output, str, LayerFolder | None]] = []
        #: the folders of streamed files: those who read them may still open them there when the attempt has ended
        self._left: list[str] = []
        #: finished files: where they are, and where they go when the attempt as a whole delivers
        self.finished: list[tuple[str, str]] = []
        #: files that were handed over early, by where the task wrote them
        self._early: dict[str, Output] = {}
        #: what the body has synced, from when it has its paths on
        self._syncs: Syncs | None = None
        #: where files go that it has synced; and the folder of the run there, if that is on a layer
        self._synced: dict[str, str | None] = {}

    def place(self) -> dict[int, str]:
        """Private paths to write to, with the names that the task asked for, by position among its ``outputs``."""
        self._syncs = Syncs()
        return {index: self._place(index, one) for index, one in enumerate(self._run.outputs) if one.file is not None}

    def _place(self, index: int, output: Output) -> str:
        assert output.file is not None
        if index in self._run.redirected:
            path, folder = self._on_layer(output.file)
        else:
            path, folder = self._beside(output.file, streamed=self._is_streamed(index, output)), None
        self._placed.append((output, path, folder))
        if output.update:
            given = self._run.slots[output.slot]
            assert type(given) is FileRef
            (copy_directory if output.directory else copy_file)(given.path, path)
        elif os.path.exists(output.file) and not os.access(output.file, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), output.file)  # a rename would replace it
        elif output.directory:
            os.mkdir(path)
        return path

    def _is_streamed(self, index: int, output: Output) -> bool:
        """Whether a file can be read while it is written: it is not on a layer, and there is a seat for its writer."""
        return output.stream and self._run.stream not in (None, -1) and index not in self._run.redirected

    def streamed(self) -> list[tuple[int, str]]:
        """The files that others may read meanwhile: number among the call's ``outputs``, and path."""
        placed = [(self._run.outputs.index(output), output, path) for output, path, _ in self._placed]
        return [(index, path) for index, output, path in placed if self._is_streamed(index, output)]

    def _beside(self, file: str, *, streamed: bool) -> str:
        folder, name = os.path.split(file)
        writer = str(self._segments.writer)
        owner = streaming_owner(writer, self._run.attempt) if streamed else writer
        private = private_folder(self._segments, file, self._run.task, owner)
        try:
            _announce_folder(self._segments, private)
            os.mkdir(private)
        except OSError as error:
            raise type(error)(error.errno, f"cannot write a file there: {error.strerror}", folder) from None
        return os.path.join(private, name)

    def _on_layer(self, file: str) -> tuple[str, LayerFolder]:
        layer = self._layers[self._run.layer]
        folder = LayerFolder(layer.mount, os.path.basename(self._segments.memory_dir))
        private = folder.private(file, self._run.task, str(self._segments.writer))
        path = os.path.join(private, os.path.basename(file))
        home = os.path.dirname(file)
        if not os.path.isdir(home):
            # The file would have nowhere to go at the end.
            raise FileNotFoundError(errno.ENOENT, "cannot write a file there: No such file or directory", home)
        self._make_room_for(path, folder)
        return path, folder

    def _make_room_for(self, path: str, folder: LayerFolder) -> None:
        try:
            folder.make_room_for(path)
        except OSError as error:
            message = f"cannot write a file on storage layer {self._run.layer}: {error.strerror}"
            raise type(error)(error.errno, message, folder.mount) from None

    def finish(self, output: Output, *, early: bool = False) -> FileRef:
        """A file as the body left it: where it will be once the attempt delivers."""
        run = self._run
        assert output.file is not None
        path, folder = next((path, folder) for placed, path, folder in self._placed if placed is output)
        path, size = self._complete(path, output)
        is_synced = self._syncs is not None and self._syncs.has(path)
        if not output.update:
            _keep_mode(path, output.file)
        if self._is_streamed(run.outputs.index(output), output):
            self._left.append(os.path.dirname(path))
            return FileRef(path, size)
        if folder is not None:
            target = folder.finished(output.file, run.task, run.attempt, temp=output.temp)
            self._make_room_for(target, folder)
        elif run.publish and not output.update and not early:
            target = output.file
        else:
            # It replaces what a further attempt would read, or what others read, or its process may be ended before
            # anybody has heard of it: so it must have counted first.
            waiting = private_folder(self._segments, output.file, run.task, finished_owner(run.attempt))
            _announce_folder(self._segments, waiting)
            os.mkdir(waiting)
            target = os.path.join(waiting, os.path.basename(output.file))
        self.finished.append((path, target))
        if is_synced:
            self._synced[target] = None if folder is None else folder.root
        return FileRef(target, size, synced=is_synced)

    def deliver(
        self, outputs: list[Slot | None], started: float, channel: Announces | None, staged: Outgoing | None = None
    ) -> None:
        """Make new states current and put the finished files in their places; after this, the attempt must not fail.

        A process can be ended at any moment, and a name cannot be taken back. So the driver is told first that the
        attempt counts, and sees to the names itself if this process does not live to: see deliveries.py. Files that
        stay private need none of that, since they go if the attempt is not heard of. States come before names, since
        they may still be refused.
        """
        states = [] if staged is None else staged.states()
        names = {output.file for output, _, _ in self._placed}
        named: list[tuple[str, str]] = []
        for path, target in self.finished:
            if target in names:
                named.append((path, target))
            else:
                self._rename(path, target)
        if (named or states) and channel is not None:
            moves = [(path, os.lstat(path).st_ino, target) for path, target in named]
            seconds = time.perf_counter() - started
            channel.announce(Delivering(self._run.task, self._run.attempt, outputs, seconds, moves, states))
        if staged is not None:
            staged.publish()
        for path, target in named:
            self._rename(path, target)

    def _rename(self, path: str, target: str) -> None:
        """Put a finished file in its place; if the task has synced it, so that it survives a loss of power there."""
        rename(path, target)
        if target in self._synced:
            top = self._synced[target]
            folder = os.path.dirname(target)
            while top is not None and is_below(folder, os.path.dirname(top)):  # folders that were made for it
                _secure(folder)
                folder = os.path.dirname(folder)
            _secure(folder)

    def found(self, path: Any) -> tuple[int, Output]:
        """The output that a path is, as the body knows it, and its number among the call's ``outputs``."""
        given = os.path.abspath(os.fspath(path))
        for output, private, _ in self._placed:
            if given in (private, output.file):
                return self._run.outputs.index(output), output
        written = [self._named(output) for output, _, _ in self._placed]
        raise TaskError(
            f"ready_file({os.fspath(path)!r}): that is none of the files that task {self._function.name} declares as "
            f"FILE_OUT or FILE_INOUT: {', '.join(written) or 'it has none'}"
        )

    def finish_early(self, output: Output) -> FileRef:
        """The finished file of a task that goes on; it stays whatever becomes of the task."""
        path = next(path for placed, path, _ in self._placed if placed is output)
        if is_open_for_writing(path):
            raise TaskError(
                f"ready_file({output.file!r}): task {self._function.name} has that file still open for writing; close "
                f"it first, since others read it from now on"
            )
        finished = self.finish(output, early=True)
        for move in [move for move in self.finished if move[1] == finished.path]:
            self._rename(*move)
            self.finished.remove(move)
        self._early[path] = output
        return finished

    def ensure_left_alone(self) -> None:
        """Refuse what the task wrote to a file after it handed it over: that would be lost without a word."""
        for path, output in self._early.items():
            if os.path.lexists(path):
                raise TaskError(
                    f"task {self._function.name} wrote to {output.file} after ready_file() had handed it over; nobody "
                    f"would see that, so hand a file over when it is complete"
                )

    def _named(self, output: Output) -> str:
        """The argument that a file is, or the element of it."""
        return self._function.parameter(output.path[0]) + "".join(f"[{step!r}]" for step in output.path[1:])

    def _complete(self, path: str, output: Output) -> tuple[str, int]:
        """Where the task wrote its file or directory, and its size; a link to a file beside it counts as that."""
        kind = "directory" if output.directory else "file"
        what = f"task {self._function.name} declares argument {self._named(output)} as a {kind} that it writes"
        try:
            status = os.stat(path)
        except FileNotFoundError:
            gone = "has removed" if output.directory else "did not create"
            raise TaskError(f"{what}, but {gone} {output.file}") from None
        if output.directory:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise TaskError(f"{what}, but made {output.file} something else than a directory")
            return path, directory_size(path)
        if not stat.S_ISREG(status.st_mode):
            raise TaskError(f"{what}, but made {output.file} something else than a plain file")
        folder = os.path.realpath(os.path.dirname(path))
        real = os.path.realpath(path)
        return (real if os.path.dirname(real) == folder else path), status.st_size

    def withdraw(self) -> None:
        """The attempt did not deliver: remove what waits for others, and what others were reading."""
        self._left.clear()
        for _, target in self.finished:
            if all(target != output.file for output, _, _ in self._placed):
                discard(target)
                forget_folder(self._segments, os.path.dirname(target))
        self.finished.clear()

    def clear(self) -> None:
        """Remove what is left of the private folders."""
        if self._syncs is not None:
            self._syncs.end()
        for output, path, _ in self._placed:
            folder = os.path.dirname(path)
            if folder not in self._left:
                try:
                    os.rmdir(folder)
                except OSError:
                    self._tell_of_others(output, folder, os.path.basename(path))
                    shutil.rmtree(folder, ignore_errors=True)
            forget_folder(self._segments, folder)

    def _tell_of_others(self, output: Output, folder: str, name: str) -> None:
        """Say what goes with a private folder although the attempt delivered; once for each function."""
        if not self.finished or self._function.name in _told:
            return
        with contextlib.suppress(OSError):
            others = sorted(other for other in os.listdir(folder) if other != name)
            if others:
                _told.add(self._function.name)
                more = f" and {len(others) - 1} more" if len(others) > 1 else ""
                say(
                    f"penstock: task {self._function.name} left {others[0]!r}{more} beside {output.file}, which it "
                    f"writes as {self._named(output)}: what no argument names is removed. Give the task a path for it "
                    f"too, or a directory for all of them\n"
                )


def _secure(folder: str) -> None:
    with contextlib.suppress(OSError):  # it has its name; what more there could be is up to the file system
        secure(folder)


def _keep_mode(path: str, file: str) -> None:
    """Give a new file the permissions of the one that it replaces, as writing to that would, unless it has its own."""
    with contextlib.suppress(OSError):  # there is none
        before = stat.S_IMODE(os.stat(file).st_mode)
        usual = stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) & (0o777 if os.path.isdir(path) else 0o666)
        if stat.S_IMODE(os.stat(path).st_mode) == usual != before:
            os.chmod(path, before)
