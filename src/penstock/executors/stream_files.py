"""What an attempt does with streamed files, in the process that carries it out.

    it writes one: its private path is named in the table, and handed over at once    ──▶ the engine: OutputReady
    it reads one:  a function is given an open file whose reads wait for the writer; a program is given the path, and
                   the library that waits in its place

An attempt that reads a stream ends after the end of the stream: only then is what it read known to be all.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.data.segments import Segments
from penstock.data.slots import current
from penstock.data.slots import slot as in_slot
from penstock.executors.early import Channel
from penstock.executors.programs import ProgramBody, carried_out
from penstock.executors.stream_table import NO_SEAT, READER, app_name, app_number, table_path
from penstock.executors.wire import Early, Run
from penstock.executors.written_files import WrittenFiles
from penstock.model.data import FileRef
from penstock.streaming.programs import examine_command
from penstock.streaming.table import OTHER, Born, Flag, Table, interposer_path

if TYPE_CHECKING:
    from penstock.executors.execution import Function

__all__ = ["AttemptStreams", "StreamReader"]

#: bytes that are read at once
_BUFFER = 1 << 18
#: seconds between two looks at a file that is written without the library: soon after it grew, and at most
_SOON, _LATE = 0.002, 0.02


#: the tables this process is attached to: one at most
_attached: list[Table] = []


def _table(memory_dir: str) -> Table:
    if not _attached:
        _attached.append(Table.attach(table_path(memory_dir)))
    return _attached[0]


class AttemptStreams:
    """The streamed files of one attempt; made when it begins, left when it ends."""

    def __init__(
        self, run: Run, function: Function, segments: Segments, files: WrittenFiles, channel: Channel | None
    ) -> None:
        self._run = run
        self._function = function
        self._memory_dir = segments.memory_dir
        self._written_files = files
        self._channel = channel
        seat = NO_SEAT if run.stream is None else run.stream
        so_far = isinstance(function.body, ProgramBody) and function.body.program.so_far
        self._app = app_number(READER if seat == NO_SEAT else seat, so_far=so_far)
        self._slots: dict[int, str] = {}
        self._witness: _Witness | None = None
        self._files: dict[int, IO[bytes]] = {}
        self._before = carried_out.streams, current.opened
        carried_out.streams, current.opened = self, self.file

    def leave(self) -> None:
        """The attempt is over: close what its function was given."""
        carried_out.streams, current.opened = self._before
        if self._witness is not None:
            self._witness.stop()
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()

    def begin_writing(self) -> None:
        """Hand over what others may read while it is written."""
        first = max(1, self._function.returns)
        for index, path in self._written_files.streamed():
            if self._channel is not None and self._begin(path):
                ref = FileRef(path, open=True)
                self._channel.hand_over(Early(self._run.task, self._run.attempt, first + index, ref))
        if self._slots and not isinstance(self._function.body, ProgramBody):
            self._watch()

    def _watch(self) -> None:
        """Who writes is not in touch with the table: tell it in their place."""
        self._witness = _Witness(_table(self._memory_dir), self._slots)
        self._witness.start()

    def _begin(self, path: str) -> bool:
        """Name a file in the table; False if that is full."""
        table = _table(self._memory_dir)
        slot = table.obtain(path[1:])
        if slot is None:
            return False
        # Made known as a file of this app that is not there yet: readers wait until it is.
        table.code.ps_born(slot, self._app, Born.FILE)
        table.code.ps_removed(slot, self._app)
        table.set_flags(slot, Flag.STREAMED)
        self._slots[slot] = path
        return True

    def judge(self, file: FileRef) -> FileRef:
        """A file that was written: have its readers known whether they could believe what they saw of it."""
        if self._witness is not None:
            self._witness.stop()
        slot = next((slot for slot, path in self._slots.items() if path == file.path), None)
        if slot is None:
            return file
        info = _table(self._memory_dir).info(slot)
        believed = info is not None and not info.flags & Flag.WARNED and info.solid == file.size
        return file if believed else replace(file, rewritten=True)

    # --- reading ------------------------------------------------------------------------------------------------------

    def file(self, index: int) -> IO[bytes]:
        """The open file for a function that reads what is in a slot of the call."""
        file = self._files.get(index)
        if file is None:
            content = self._run.slots[index]
            if type(content) is FileRef and content.open:
                file = io.BufferedReader(StreamReader(*self._found(content), content.path), _BUFFER)
            else:
                file = open(in_slot(index), "rb")  # noqa: SIM115 (closed by `leave`)
            self._files[index] = file
        return file

    def _found(self, ref: FileRef) -> tuple[Table, int]:
        table = _table(self._memory_dir)
        slot = table.lookup(ref.path[1:])
        assert slot is not None, ref
        return table, slot

    def await_ends(self) -> None:
        """Wait until all that is read has been written to its end."""
        for content in self._run.slots:
            if type(content) is FileRef and content.open:
                table, slot = self._found(content)
                _wait(table.code.psx_wait_committed, slot, OTHER)

    def await_birth(self, path: str) -> None:
        """Wait until a file that is read is there."""
        for content in self._run.slots:
            if type(content) is FileRef and content.open and content.path == path:
                table, slot = self._found(content)
                _wait(table.code.ps_wait_born, slot, OTHER)

    # --- programs -----------------------------------------------------------------------------------------------------

    def environment(self, command: str | tuple[str, ...]) -> dict[str, str] | None:
        """The environment of a program of this attempt; None if it needs nothing.

        A program that the library cannot get into could not wait: it starts when what it reads is complete.
        """
        reads = any(type(content) is FileRef and content.open for content in self._run.slots)
        if not reads and not self._slots:
            return None
        library = interposer_path()  # which is there, since the table is
        if not _can_be_reached(command, os.environ.get("PATH", os.defpath), os.getcwd()):
            self.await_ends()
            self._watch()
        mine = os.environ.get("LD_PRELOAD", "")
        return {
            **os.environ,
            "PENSTOCK_STREAM_TABLE": table_path(self._memory_dir),
            "PENSTOCK_STREAM_APP": app_name(self._app),
            "LD_PRELOAD": f"{mine}:{library}" if mine else library,
        }


@lru_cache(maxsize=256)
def _can_be_reached(command: str | tuple[str, ...], search: str, folder: str) -> bool:
    verdicts = examine_command(command, {"PATH": search}, folder)
    return all((verdict.ok and not verdict.supervised) or not verdict.path for verdict in verdicts)


def _wait(call: Any, *arguments: int) -> None:
    """Wait in the table; a signal that interrupts is handled on the way."""
    while (error := call(*arguments)) == errno.EINTR:
        pass
    if error:
        raise OSError(error, f"{os.strerror(error)}: the file will never be complete")


class _Witness(threading.Thread):
    """Looks how far files have grown that are written without the library, and tells the table."""

    def __init__(self, table: Table, slots: dict[int, str]) -> None:
        super().__init__(name="penstock-witness", daemon=True)
        self._table = table
        self._slots = slots
        self._over = threading.Event()

    def run(self) -> None:
        pause = _SOON
        while not self._over.wait(pause):
            grown = [self._look(slot, path) for slot, path in self._slots.items()]
            pause = _SOON if any(grown) else min(2 * pause, _LATE)

    def _look(self, slot: int, path: str) -> bool:
        info = self._table.info(slot)
        if info is None or info.writers > 0 or info.flags & (Flag.MAPPED | Flag.MOVED):
            return False  # whoever has it open tells the table
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            written = os.lseek(descriptor, info.solid, os.SEEK_HOLE)
        except OSError:
            return False  # nothing beyond what is known
        finally:
            os.close(descriptor)
        self._table.code.ps_born(slot, OTHER, Born.FILE | Born.NOT_COUNTED)
        if written <= info.solid:
            return False
        # A reader that asked the kernel too may have told the table since: that is no second writing.
        self._table.code.psx_seen(slot, info.solid, written)
        return True

    def stop(self) -> None:
        """The writer has ended."""
        if not self._over.is_set():
            self._over.set()
            self.join()
            for slot, path in self._slots.items():
                self._look(slot, path)


class StreamReader(io.RawIOBase):
    """A file that is being written: a read waits for the next bytes, and finds the end when the writer has ended."""

    def __init__(self, table: Table, slot: int, path: str) -> None:
        self._table = table
        self._slot = slot
        self._path = path
        self._descriptor = -1
        self._position = 0

    @property
    def name(self) -> str:
        """Where it is being written."""
        return self._path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self._descriptor < 0:
            _wait(self._table.code.ps_wait_born, self._slot, OTHER)
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptor

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        descriptor, position = self.fileno(), self._position
        while view:
            _wait(self._table.code.psx_wait_range, self._slot, OTHER, position, position + 1, descriptor)
            ended, there = self._written()
            count = os.preadv(descriptor, [view if ended else view[: there - position]], position)
            if count or ended:
                self._position += count
                return count
        return 0

    def _written(self) -> tuple[bool, int]:
        """Whether the file has ended, and up to where it is written."""
        info = self._table.info(self._slot)
        assert info is not None
        if info.flags & Flag.COMMITTED:
            return True, 0
        return False, info.solid

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            _wait(self._table.code.psx_wait_committed, self._slot, OTHER)
            offset += os.fstat(self.fileno()).st_size
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self.closed and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()
