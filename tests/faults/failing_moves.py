"""A disk on which one call of those who move files fails, and a scenario that makes them do everything they can.

Only calls made on behalf of housekeeping are counted: giving names, moving, deleting. What a task does itself is not.
The scenario runs in the caller's own thread, so that the same calls come in the same order every time.
"""

from __future__ import annotations

import builtins
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.faults import storage_tasks as tasks
from tests.faults.layers import assert_sums, layer, start
from tests.faults.storage_tasks import content

import penstock
from penstock.runtime.housekeeping import Housekeeping

#: calls of which a signal handler can make nothing, and which Python does not repeat by itself
INTERRUPTIBLE = ("link", "symlink", "replace", "unlink", "rmdir", "mkdir")
CALLS = [
    *((os, name) for name in (*INTERRUPTIBLE, "open", "fsync", "copy_file_range", "sendfile")),
    (builtins, "open"),
    (shutil, "copystat"),
]
#: the others leave nothing on the disk, so that to be killed before them is to be killed before the next of these
CHANGING = (*INTERRUPTIBLE, "open", "copy_file_range", "sendfile")
JOBS = ("_publish", "_move", "_discard")


class Disk:
    """Counts calls, and lets something happen instead of the n-th."""

    def __init__(
        self, number: int, happen: Callable[[str], None], *, for_good: bool = False, only: tuple[str, ...] = ()
    ) -> None:
        self.number = number
        self.calls = 0
        self.failed_call = ""
        self._happen = happen
        self._for_good = for_good
        self._only = only
        self._inside = 0

    @property
    def happened(self) -> bool:
        return self.calls >= self.number

    def call(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._inside and (not self._only or name in self._only):
            self.calls += 1
            if self.calls == self.number or (self._for_good and self.calls > self.number):
                self.failed_call = self.failed_call or f"{name}{args}"
                self._happen(name)
        # Power is never lost here, and to wait for the real disk hundreds of times would take long.
        return None if name == "fsync" else real(*args, **kwargs)

    def job(self, real: Callable[..., Any], *args: Any) -> Any:
        self._inside += 1
        try:
            return real(*args)
        finally:
            self._inside -= 1

    @contextmanager
    def at_work(self) -> Iterator[Disk]:
        """Stand between housekeeping and the file system."""

        def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: self.call(name, real, *args, **kwargs)

        def watched(real: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args: self.job(real, *args)

        with ExitStack() as stack:
            for name in JOBS:
                stack.enter_context(mock.patch.object(Housekeeping, name, watched(getattr(Housekeeping, name))))
            for module, name in CALLS:
                stack.enter_context(mock.patch.object(module, name, counted(name, getattr(module, name))))
            yield self


def failing(number: int) -> Callable[[str], None]:
    """Something that happens instead of a call: it fails with this error."""

    def fail(name: str) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def be_killed(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Story:
    """The scenario, what each name may hold after every step, and what the program was told."""

    def __init__(self, folder: Path, memory: Path, *, journal: Path | None = None, data_movement: bool = True) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.layers = {name: place / name for name, place in (("fast", memory), ("middle", folder), ("low", folder))}
        for mount in self.layers.values():
            mount.mkdir()
        #: per name, what it may hold: nothing is None
        self.allowed: dict[Path, set[bytes | None]] = {}
        self.told: list[str] = []
        self._journal = journal
        self._data_movement = data_movement

    def run(self) -> None:
        """Everything that housekeeping does: to a home off all layers, on a layer, on a crowded one; temp; deletion."""
        runtime = start(
            layer("fast", self.layers["fast"], bandwidth="300MB/s"),
            layer("middle", self.layers["middle"], bandwidth="200MB/s"),
            layer("low", self.layers["low"], capacity="2500B"),
            mode="inline",
            data_movement=self._data_movement,
        )
        home, low = self.home, self.layers["low"]
        try:
            self._write(runtime, home / "plain", 1)
            self._write(runtime, home / "temp", 2, temp=True)
            self._write(runtime, low / "inside", 3)
            self._write(runtime, low / "crowded", 4, 2000)
            self._write(runtime, home / "plain", 5)
            self._write(runtime, home / "deleted", 6)
            self._delete(runtime, home / "deleted")
            self._write(runtime, home / "last", 7)
        finally:
            self._stop(home / "temp")

    def _write(
        self, runtime: penstock.Runtime, path: Path, number: int, size: int = 1000, *, temp: bool = False
    ) -> None:
        text = content(number, size)
        before = self.allowed.setdefault(path, {None})
        before.add(text)
        self._note(f"begun {path} {number} {size}")
        try:
            (tasks.write_temp if temp else tasks.write)(path, number, size).result()
            penstock.barrier()
        except OSError as error:
            self.told.append(str(error))
        else:
            self.allowed[path] = {text}
            self._note(f"done {path} {number} {size}")
        self._look(runtime)

    def _delete(self, runtime: penstock.Runtime, path: Path) -> None:
        self._note(f"begun {path} 0 0")
        try:
            penstock.delete_file(path)
            penstock.barrier()
        except OSError as error:
            self.told.append(str(error))
            self.allowed[path].add(None)
        else:
            self.allowed[path] = {None}
        self._look(runtime)

    def _stop(self, temp: Path) -> None:
        self.allowed[temp] = {None}
        self._note(f"begun {temp} 0 0")
        try:
            penstock.stop()
        except Exception as error:
            self.told += [str(error), *getattr(error, "__notes__", ())]
        if not temp.exists():
            temp.unlink(missing_ok=True)  # where it could not be deleted, its name outlives it
        self.verify()

    def _look(self, runtime: penstock.Runtime) -> None:
        self.verify()
        assert_sums(runtime)

    def verify(self) -> None:
        """Every name means a complete file, or nothing if that is what it should mean."""
        for path, texts in self.allowed.items():
            assert held_by(path) in texts, f"{path}: {self.told}"

    def _note(self, line: str) -> None:
        if self._journal is not None:
            with open(self._journal, "a") as file:
                file.write(line + "\n")


def held_by(path: Path) -> bytes | None:
    """What a name means; that it is a link to nothing is an error."""
    return path.read_bytes() if os.path.lexists(path) else None
