"""The files and directories among a call's arguments: paths become versions that the task reads and outputs it makes.

An argument is one path, or paths in lists, tuples and dicts, however nested: each is a datum of its own. A directory is
one datum with all that is in it. What lies in a directory that is with the tasks is read as part of it; whoever else
mixes a directory with what is in it waits at the call until the tasks are done with the other.
"""

from __future__ import annotations

import copy
import errno
import os
import stat
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.data.slots import InsideRef, PathRef, SlotRef, StreamRef, WrittenRef
from penstock.errors import CallError
from penstock.model.data import FileRef, VersionId
from penstock.model.directions import Direction
from penstock.model.events import Provided
from penstock.model.tasks import Output, Steps
from penstock.runtime.declaration import Declaration, Place
from penstock.runtime.file_access import bring_home, claim, newest_version, wait_for_file
from penstock.runtime.files import as_path
from penstock.runtime.futures import Future
from penstock.storage.redirect import is_below

if TYPE_CHECKING:
    from penstock.graph.wiring import Wiring
    from penstock.runtime.runtime import Runtime

__all__ = ["FileArguments"]


class FileArguments:
    """The files of one call; ``Arguments`` adds all else."""

    _runtime: Runtime
    _declaration: Declaration
    wiring: Wiring
    effects: list[Any]
    before: list[Provided]
    released: list[VersionId]
    #: versions of files that are with the tasks, unless they leave them before the submission
    file_reads: list[tuple[VersionId, str]]
    #: the files of this call so far, by path: how messages call the arguments, and what is done with them
    _met: dict[str, list[tuple[str, Direction]]] | None = None
    _has_directory = False

    def _files(self, place: Place, value: Any, direction: Direction, where: str) -> Any:
        """What stands in the pickled arguments for a path, or for what holds paths."""
        if not isinstance(value, list | tuple | dict):
            if direction.collection:
                raise CallError(
                    f"{where} is declared {direction!r}, but is a {type(value).__name__}; give a list, a tuple or a "
                    f"dict of paths, or declare it {direction.name.removeprefix('COLLECTION_')}"
                )
            return self._file((place,), value, direction, where)
        if direction.stream:
            raise CallError(f"{where} is declared {direction!r}, which is one path, but is a {type(value).__name__}")
        if self._declaration.is_program:
            self._ensure_fits_command(place, value, where)
        return self._each((place,), value, direction, where, "", frozenset())

    def _ensure_fits_command(self, place: Place, value: Any, where: str) -> None:
        """Refuse what a command line has no words for."""
        names = self._declaration.positional
        name = place if isinstance(place, str) else names[place] if place < len(names) else ""
        if name in self._declaration.body.program.redirected:  # type: ignore[attr-defined]
            raise CallError(f"{where} is redirected, so it is one path, but is a {type(value).__name__}")
        if _holds_dict(value, frozenset()):
            raise CallError(
                f"{where} has a dict, whose keys have no place in a command; give a list of the paths, list(d.values())"
            )

    def _each(self, steps: Steps, value: Any, direction: Direction, where: str, at: str, above: frozenset[int]) -> Any:
        """A container with what stands for the paths in it."""
        if not isinstance(value, list | tuple | dict):
            return self._file(steps, value, direction, f"element {at} of {where}" if at else where)
        if id(value) in above:
            raise CallError(f"{where} contains itself, at {at}; a collection cannot have a cycle")
        above |= {id(value)}
        if len(self._runtime.identity):
            self._take_back(value, where)
        keys: Any = list(value) if isinstance(value, dict) else range(len(value))
        parts = [
            self._each((*steps, step), value[key], direction, where, f"{at}[{key!r}]", above)
            for step, key in enumerate(keys)
        ]
        if isinstance(value, tuple):
            return value._make(parts) if hasattr(value, "_make") else tuple(parts)
        stands = copy.copy(value)
        for key, part in zip(keys, parts, strict=True):
            stands[key] = part
        return stands

    def _take_back(self, container: Any, where: str) -> None:
        raise NotImplementedError

    def _file(self, steps: Steps, value: Any, direction: Direction, where: str) -> Any:
        """A file: it reads the newest version and, if it writes, makes the next one."""
        runtime = self._runtime
        if isinstance(value, Future):
            raise CallError(f"{where} is a future; a file's path must be known at the call: give its result()")
        from pathlib import Path  # most programs have no use for it

        path = as_path(value, where)
        if path in runtime.driver.house.unnamed:
            raise runtime.observe(runtime.driver.house.unnamed.pop(path))
        self._ensure_compatible(path, direction, where)
        if direction.directory or runtime.files.directories:
            inside = self._in_directory(path, direction)
            if inside is not None:
                return InsideRef(*inside, as_path=isinstance(value, Path))
        newest = newest_version(runtime, path)
        self._ensure_kind(path, direction, newest, where)
        stands: Any = None
        index = -1
        if direction.reads:
            if newest is None:
                newest = runtime.new_version()
                self.before.append(
                    Provided(newest, self._found(steps[0], path, "directory" if direction.directory else "file", where))
                )
                self.released.append(newest)
                self.effects.append(lambda: runtime.files.newest.__setitem__(path, newest))
            else:
                self.file_reads.append((newest, path))
            index = self.wiring.read(newest, stream=direction.stream)
            opens = direction.stream and not self._declaration.is_program
            stands = StreamRef(index) if opens else PathRef(index) if isinstance(value, Path) else SlotRef(index)
        if direction.directory:
            self.effects.append(lambda: runtime.files.directories.add(path))
        if direction.writes:
            stands = WrittenRef(len(self.wiring.outputs), as_path=isinstance(value, Path))
            self._write_file(
                Output(steps, index, path, direction.reads, direction.temp, direction.stream), direction, newest
            )
        return stands

    def _write_file(self, output: Output, direction: Direction, replaced: VersionId | None) -> None:
        files, path = self._runtime.files, output.file
        assert path is not None
        version = self.wiring.write(replace(output, directory=True) if direction.directory else output)

        def succeed() -> None:
            files.newest[path] = version
            if replaced is not None:
                self.released.append(replaced)

        self.effects.append(succeed)

    def _claim_files(self, met: dict[str, list[tuple[str, Direction]]]) -> None:
        """Hold the files that the call writes; all of them or none, so last."""
        uses = [(path, where, direction) for path, found in met.items() for where, direction in found]
        written = {path: (where, direction.directory) for path, where, direction in uses if direction.writes}
        if written:
            claim(self._runtime, written)

    def _found(self, place: object, path: str, kind: str, where: str) -> FileRef:
        """A file that no task of this run is making."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            raise CallError(
                f"{where} names the {kind} {path}, which does not exist and which no task produces"
            ) from None
        return FileRef(path, found.st_size if stat.S_ISREG(found.st_mode) else 0)

    # --- what cannot be -----------------------------------------------------------------------------------------

    def _ensure_compatible(self, path: str, direction: Direction, where: str) -> None:
        """Refuse what one call cannot do with one file, or with a directory and what is in it."""
        if self._met is None:  # most calls have no files
            self._met = {}
        for other, known in self._met.get(path, ()):
            if direction.writes and known.writes:
                raise CallError(f"{where} names {path}, which the call writes already, as {other}; give it once")
            if (direction.writes and direction.reads) or (known.writes and known.reads):
                raise CallError(
                    f"{where} names {path}, which is {other} too: a task does not see in the one what it writes to the "
                    f"other; give it once, as {(known if known.writes else direction)!r}"
                )
        if direction.directory or self._has_directory:
            for other_path, uses in self._met.items():
                for other, known in uses:
                    nested = (is_below(path, other_path) and known.directory) or (
                        is_below(other_path, path) and direction.directory
                    )
                    if nested and (direction.writes or known.writes):
                        raise CallError(
                            f"{where} names {path} and {other} names {other_path}, one inside the other, and the call "
                            f"writes there; give the directory alone"
                        )
        if direction.directory and direction.writes and is_below(os.path.join(os.getcwd(), ""), path):
            raise CallError(f"{where} names {path}, in which the program runs: it cannot be replaced")
        self._has_directory = self._has_directory or direction.directory
        self._met.setdefault(path, []).append((where, direction))

    def _ensure_kind(self, path: str, direction: Direction, newest: VersionId | None, where: str) -> None:
        """Refuse a directory that is declared a file, the other way round, and a file in the place of a device."""
        mode = _mode(path, where) if newest is None else 0
        is_directory = stat.S_ISDIR(mode) if newest is None else path in self._runtime.files.directories
        if direction.writes and mode and not is_directory and not stat.S_ISREG(mode):
            raise CallError(
                f"{where} is declared {direction!r} and names {path}, which is no ordinary file but a {_kind(mode)}; a "
                f"file would take its place. Give it as a plain parameter, and open it in the task"
            )
        if is_directory and not direction.directory:
            wanted = (
                direction.name.replace("COLLECTION_", "").replace("FILE", "DIRECTORY").replace("STREAM", "DIRECTORY")
            )
            raise CallError(
                f"{where} is declared {direction!r} and names {path}, which is a directory; declare it {wanted}"
            )
        if not direction.directory:
            return
        if not is_directory and (newest is not None or os.path.lexists(path)):
            wanted = direction.name.replace("DIRECTORY", "FILE")
            raise CallError(f"{where} is declared {direction!r} and names {path}, which is a file; declare it {wanted}")

    # --- directories --------------------------------------------------------------------------------------------

    def _in_directory(self, path: str, direction: Direction) -> tuple[int, str] | None:
        """For what is only read and lies in a directory that is with the tasks: that one's slot, and the way in it.

        Otherwise the tasks have done with what this file or directory is part of, and with what is in it.
        """
        runtime = self._runtime
        for above in runtime.files.around(path):
            version = newest_version(runtime, above)
            if version is None:
                continue
            if not direction.writes:
                self.file_reads.append((version, above))
                return self.wiring.read(version), os.path.relpath(path, above)
            wait_for_file(runtime, above, alone=True)
        if direction.directory:
            for inside in [known for known in runtime.files.newest if is_below(known, path)]:
                wait_for_file(runtime, inside, alone=True)
                if direction.writes:
                    bring_home(runtime, inside)
            runtime.driver.house.finish()  # no private copy of theirs is to be seen, or taken along
        return None


def _mode(path: str, where: str) -> int:
    """What lies under a path; 0 if that is nothing."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CallError(f"{where} names {path}, which is a link that leads back to itself") from None
        return 0


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def _holds_dict(value: Any, above: frozenset[int]) -> bool:
    if not isinstance(value, list | tuple) or id(value) in above:
        return isinstance(value, dict)
    return any(_holds_dict(part, above | {id(value)}) for part in value)
