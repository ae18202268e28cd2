"""Files that take time: `open` of this process, slowed for what lies on certain devices.

    open("/mount/x", "wb") ─► BufferedWriter ─► _PacedFile (a FileIO on the real file) ─► Stream: sleeps

A worker calls `install` once; from then on `open`, `io.open` and `pathlib.Path.open` pace what lies on a device, and
leave everything else as it was. The real file does the work; a device's streams say how long it is to take.

What goes past the file object is charged when the file is next used or closed, as far as it shows: by the offset of
the descriptor (`ndarray.tofile`, `numpy.fromfile`, `os.write` to `fileno()`, a child process's output), and
by the size of a file opened with "w" or "x" (positioned writes, maps). Not covered: `os.open` and what is done to its
descriptors, unless `os.fdopen` makes a file of them; writes into an existing file and reads that move no offset (maps,
`pread`, the source of `shutil.copyfile`); modules that took `open` for themselves before `install`;
programs that are not Python. Moving a descriptor's offset with `os.lseek` is taken for a transfer.
"""

from __future__ import annotations

import builtins
import io
import os
import stat
import warnings
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from _typeshed import FileDescriptorOrPath, ReadableBuffer, WriteableBuffer

__all__ = ["Device", "Stream", "install", "uninstall"]


class Stream(Protocol):
    """One flow of bytes to or from a device."""

    def begin(self) -> None:
        """A transfer begins whose number of bytes will be known only at the `transfer` to come."""

    def transfer(self, nbytes: int, *, reads: bool = False) -> None:
        """Return when these bytes have taken their time."""

    def close(self) -> None:
        """No more comes."""


class Device(Protocol):
    """A directory whose files take time."""

    @property
    def mount(self) -> str:
        """Its real path."""

    @property
    def part(self) -> int | None:
        """Bytes that are written at once at most; None for as many as there are."""

    def stream(self) -> Stream:
        """A new flow of bytes."""


def install(devices: Sequence[Device]) -> None:
    """Pace what this process opens on ``devices`` from now on, and on no others."""
    uninstall()
    builtins.open = io.open = _PacedOpen(devices, builtins.open)  # type: ignore[assignment]
    os.dup = _noting_dup


def uninstall() -> None:
    """Give this process its own `open` back; files that are open stay paced."""
    paced = builtins.open
    if isinstance(paced, _PacedOpen):
        builtins.open = io.open = paced.plain
        os.dup = _plain_dup


_OPTIONS = {"file", "mode", "buffering", "encoding", "errors", "newline", "closefd", "opener"}


class _PacedOpen:
    """What takes the place of `open`. An object, because a function would turn into a method in a class's body."""

    __module__, __name__, __qualname__ = "io", "open", "open"

    def __init__(self, devices: Sequence[Device], plain: Callable[..., IO[Any]]) -> None:
        self.plain: Any = plain
        self.__doc__ = plain.__doc__
        self.__wrapped__ = plain
        # The deepest first: a mount may lie within another.
        self._devices = sorted(devices, key=lambda device: -len(device.mount))

    def __reduce__(self) -> str:
        return "open"  # pickled by name, as the plain one is

    def __call__(self, *args: Any, **options: Any) -> IO[Any]:
        file = args[0] if args else options.get("file")
        path = _resolved(file)
        if path is not None and options.keys() <= _OPTIONS:
            for device in self._devices:
                if _is_below(path, device.mount):
                    return self._open(device, *args, **options)
        return self.plain(*args, **options)  # type: ignore[no-any-return]

    def _open(
        self,
        device: Device,
        file: FileDescriptorOrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> IO[Any]:
        if not _acceptable(mode, buffering, encoding, errors, newline):
            # The plain one knows best what is wrong.
            return self.plain(  # type: ignore[no-any-return]
                file, mode, buffering, encoding, errors, newline, closefd, opener
            )
        binary = "b" in mode
        if binary and buffering == 1:
            warnings.warn(
                "line buffering (buffering=1) isn't supported in binary mode, the default buffer size will be used",
                RuntimeWarning,
                stacklevel=3,
            )
        name = file if isinstance(file, int) else os.fspath(file)
        raw = _PacedFile(device, name, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        try:
            buffered = _buffered(raw, mode, buffering)
            if binary:
                return buffered
            encoding = io.text_encoding(encoding, 3)
            text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
            text.mode = mode  # type: ignore[misc]
            return text
        except BaseException:
            raw.close()
            raise


def _resolved(file: object) -> str | None:
    """Where ``file`` lies once links are followed, or would lie if made; ``None`` if that cannot be told."""
    try:
        if isinstance(file, int):
            return os.readlink(f"/proc/self/fd/{file}")
        path = os.fspath(file)  # type: ignore[call-overload]
        try:
            return _followed(path)
        except FileNotFoundError:
            return _followed(os.path.dirname(path) or os.curdir) + "/"
    except (OSError, TypeError, ValueError):
        return None


def _followed(path: str | bytes) -> str:
    # The kernel follows links several times faster than os.path.realpath; every file the process opens pays for it.
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _is_below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def _acceptable(mode: object, buffering: object, encoding: object, errors: object, newline: object) -> bool:
    """Whether the arguments of an `open` go together."""
    if not isinstance(mode, str) or not isinstance(buffering, int):
        return False
    letters = set(mode)
    if len(letters) != len(mode) or letters - set("rwxabt+") or len(letters & set("rwxa")) != 1:
        return False
    if "b" in letters:
        return "t" not in letters and encoding is None and errors is None and newline is None
    texts = all(value is None or isinstance(value, str) for value in (encoding, errors))
    return texts and buffering != 0 and newline in (None, "", "\n", "\r", "\r\n")


def _buffered(raw: _PacedFile, mode: str, buffering: int) -> io.BufferedReader | io.BufferedWriter | io.BufferedRandom:
    size = buffering
    if buffering < 0 or buffering == 1:
        block = os.fstat(raw.fileno()).st_blksize
        size = block if block > 1 else io.DEFAULT_BUFFER_SIZE
    if "+" in mode:
        return io.BufferedRandom(raw, size)
    if "r" in mode:
        return io.BufferedReader(raw, size)
    return io.BufferedWriter(raw, size)


_plain_dup = os.dup
# Descriptors of which a duplicate was made since they were last used by their paced file.
_duplicated: set[int] = set()


def _noting_dup(fd: int, /) -> int:
    """`os.dup` while devices are installed. NumPy calls it before it reads or writes a file without our help."""
    _duplicated.add(fd)
    return _plain_dup(fd)


class _PacedFile(io.FileIO):
    """A real file whose transfers take the time that the device would need.

    Transfers that go past it are found by what they leave behind: the offset, which all duplicates of a descriptor
    share, and the size. NumPy puts the offset back and then seeks to where it got, so a seek after a duplication
    tells of a transfer too.
    """

    # What is not a regular file, is not open yet or is closed has none.
    _stream: Stream | None = None
    #: where we left the descriptor
    _offset = 0

    def __init__(
        self,
        device: Device,
        file: FileDescriptorOrPath,
        mode: str,
        closefd: bool,
        opener: Callable[[str, int], int] | None,
    ) -> None:
        super().__init__(file, mode, closefd, opener)
        self._device = device
        status = os.fstat(self.fileno())
        if stat.S_ISREG(status.st_mode):
            self._offset = self._current_offset()
            #: ``None`` unless all that the file grows by is ours to pay; else others may be writing to it as well
            self._size_when_made = status.st_size if mode[0] in "wx" else None
            self._charged = 0
            self._stream = device.stream()
            _duplicated.discard(self.fileno())

    def write(self, data: ReadableBuffer, /) -> int:
        part = self._device.part
        if part is not None and (view := memoryview(data)).nbytes > part and view.c_contiguous:
            return self._write_parts(view.cast("B"), part)
        count: int = self._paced(super().write, data)
        return count

    def _write_parts(self, data: memoryview, part: int) -> int:
        """Write a large buffer by and by; an error after the first part is that of the next write, as the kernel's."""
        written = 0
        while written < len(data):
            try:
                count: int = self._paced(super().write, data[written : written + part])
            except OSError:
                if not written:
                    raise
                break
            if not count:
                break
            written += count
        return written

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count: int = self._paced(super().readinto, buffer, reads=True)
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        data: bytes = self._paced(super().read, size, reads=True)
        return data

    def readall(self) -> bytes:
        data: bytes = self._paced(super().readall, reads=True)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._charge_by_offset()
        before = self._offset
        position = self._offset = super().seek(offset, whence)
        if self._stream is not None and self.fileno() in _duplicated:
            _duplicated.discard(self.fileno())
            if position > before:
                self._charge(position - before)
        return position

    def close(self) -> None:
        stream = self._stream
        try:
            if stream is not None:
                self._charge_by_offset()
                self._charge_by_size()
                stream.close()
        finally:
            self._stream = None
            super().close()

    def _paced(self, operation: Callable[..., Any], *args: Any, reads: bool = False) -> Any:
        if self._stream is None:
            return operation(*args)
        self._charge_by_offset()
        _duplicated.discard(self.fileno())
        # Active before the real transfer, so that the time it takes is part of the time the device would need.
        self._stream.begin()
        moved = 0
        try:
            result = operation(*args)
            moved = result if isinstance(result, int) else len(result or b"")
            return result
        finally:
            self._offset = self._current_offset()
            self._charge(moved, reads=reads)

    def _charge(self, nbytes: int, *, reads: bool = False) -> None:
        if self._stream is not None:
            self._charged += nbytes
            self._stream.transfer(nbytes, reads=reads or not self.writable())

    def _charge_by_offset(self) -> None:
        if self._stream is not None:
            before, self._offset = self._offset, self._current_offset()
            if self._offset > before:
                self._charge(self._offset - before)

    def _charge_by_size(self) -> None:
        if self._size_when_made is not None:
            missing = os.fstat(self.fileno()).st_size - self._size_when_made - self._charged
            if missing > 0:
                self._charge(missing)

    def _current_offset(self) -> int:
        return os.lseek(self.fileno(), 0, os.SEEK_CUR)
