"""What the tests of storage share: layers in the test's folder, a runtime on them, tasks, and a turnstile.

The turnstile is how a test sees who is running: each task says that it came and waits to be let go. Nothing is learned
from the time that passes; a task that should not have started is found by the count of those inside.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.patience import PATIENCE
from tests.trees import everything_below

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, constraint, io, task, wait_on

__all__ = [
    "LITTLE",
    "Turnstile",
    "append",
    "checkpoint",
    "checkpoint_in_company",
    "checkpoint_or_fail",
    "die_at_once",
    "double",
    "dump",
    "dump_centres",
    "fail_after_passing",
    "fail_at_first",
    "files_below",
    "layer",
    "layer_of",
    "noop",
    "noop_io",
    "pass_and_write",
    "pass_through",
    "read",
    "read_and_wait",
    "run",
    "where_it_wrote",
    "write",
    "write_plain",
]

#: a storage constraint that any layer can meet at any time
LITTLE = {"storage_bw": "1kB/s"}


def run(mode: str = "workers", **settings: Any) -> penstock.Runtime:
    """A runtime that keeps nothing it learned, unless told where."""
    from tests.behaviour.modes import MODES  # here, since workers import this module and need no pytest

    return penstock.Runtime(**(MODES[mode] | {"tuning": "off"} | settings))


def layer(folder: Path, name: str, bandwidth: Any, **more: Any) -> dict[str, Any]:
    """A layer whose mount is a folder of its own name."""
    mount = folder / name
    mount.mkdir(exist_ok=True)
    return {"name": name, "mount": str(mount), "bandwidth": bandwidth, "capacity": "1GB"} | more


def layer_of(path: Any, folder: Path) -> str:
    """The folder of the test in which a file really lies: the name of a layer, or where the program wanted it."""
    return Path(os.path.realpath(path)).relative_to(os.path.realpath(folder)).parts[0]


def files_below(*folders: Path) -> list[str]:
    """Everything that lies in some folders, folders included."""
    return sorted(str(found.relative_to(folder.parent)) for folder in folders for found in everything_below(folder))


class Turnstile:
    """Tasks pass through it; the test sees each come, and lets as many go as it likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder / "turnstile")
        os.mkdir(self.folder)
        for name in ("come", "go"):
            os.mkfifo(self._pipe(name))
        os.mkdir(self._inside())

    def __enter__(self) -> Turnstile:
        self._held = [os.open(self._pipe(name), os.O_RDWR | os.O_NONBLOCK) for name in ("come", "go")]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever became of the test: nobody inside is left waiting, and whoever still comes does not wait."""
        Path(self._pipe("closed")).touch()
        self.let_go(1000)
        for descriptor in self._held:
            os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def passing(self, name: str = "", stay: bool = True) -> int:
        """In a task: come in, wait to be let go, and tell how many were inside."""
        mine = os.path.join(self._inside(), f"{name}-{os.getpid()}-{time.monotonic_ns()}")
        os.close(os.open(mine, os.O_CREAT))
        self._say(name)
        try:
            if stay:
                self._wait()
            return len(os.listdir(self._inside()))
        finally:
            os.unlink(mine)

    def arrivals(self, count: int) -> list[str]:
        """In the test: wait until as many more have come, and return their names, in the order in which they came."""
        names = bytearray()
        while names.count(b"\n") < count:
            ready, _, _ = select.select([self._held[0]], [], [], PATIENCE)
            assert ready, f"only {names.count(10)} of {count} tasks came: {names.decode().split()}"
            names += os.read(self._held[0], 1)
        return names.decode().splitlines()

    def nobody_else(self) -> None:
        """In the test: assert that nobody has come since those who were seen.

        By now the scheduler has answered every call: a task that computes was called after them and is done.
        """
        wait_on(noop())
        ready, _, _ = select.select([self._held[0]], [], [], 0.05)
        assert not ready, f"came too early: {os.read(self._held[0], 1000).decode().split()}"

    def let_go(self, count: int = 1) -> None:
        os.write(self._held[1], b"x" * count)

    def _pipe(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _inside(self) -> str:
        return os.path.join(self.folder, "inside")

    def _say(self, name: str) -> None:
        descriptor = os.open(self._pipe("come"), os.O_RDWR)
        os.write(descriptor, f"{name}\n".encode())
        os.close(descriptor)

    def _wait(self) -> None:
        descriptor = os.open(self._pipe("go"), os.O_RDWR | os.O_NONBLOCK)
        try:
            while not os.path.exists(self._pipe("closed")):
                ready, _, _ = select.select([descriptor], [], [], PATIENCE)
                if not ready:
                    raise TimeoutError("nobody let this task go")
                try:
                    os.read(descriptor, 1)
                    return
                except BlockingIOError:
                    continue  # another one was quicker
        finally:
            os.close(descriptor)


# --- tasks --------------------------------------------------------------------------------------------------------


@task
def noop() -> None:
    pass


@io
@task
def noop_io() -> None:
    pass


def double(x: int = 1) -> int:
    return 2 * x


def pass_through(door: Turnstile, name: str = "") -> int:
    return door.passing(name)


def fail_after_passing(door: Turnstile, name: str = "") -> None:
    door.passing(name)
    raise OSError("the disk is upside down")


def die_at_once(door: Turnstile) -> None:
    os.kill(os.getpid(), 9)


def fail_at_first(door: Turnstile, name: str, marker: str) -> int:
    inside = door.passing(name)
    if not os.path.exists(marker):
        Path(marker).touch()
        raise OSError("once")
    return inside


def pass_and_write(door: Turnstile, path: Any) -> str:
    door.passing()
    Path(path).touch()
    below = Path(os.path.realpath(path)).relative_to(os.path.realpath(Path(door.folder).parent))
    return below.parts[0]


def read_and_wait(path: Any, door: Turnstile) -> tuple[str, str]:
    """The body of a task that reads a file, waits, and reads it again."""
    before = Path(path).read_text()
    door.passing()
    return before, Path(path).read_text()


@constraint(**LITTLE)
@io
@task(path=FILE_OUT)
def write(path: Any, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@task(path=FILE_OUT)
def write_plain(path: Any, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@constraint(**LITTLE)
@io
@task(path=FILE_OUT, returns=1)
def where_it_wrote(path: Any) -> str:
    """Write the file, and tell where it really lies while the task runs."""
    with open(path, "w") as file:
        file.write("here")
    return os.path.realpath(path)


@constraint(**LITTLE)
@io
@task(path=FILE_INOUT)
def append(path: Any, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


@task(path=FILE_IN, returns=1)
def read(path: Any) -> str:
    with open(path) as file:
        return file.read()


def dump(path: Any, size: int) -> str:
    """The body of a task that writes ``size`` bytes; tells where they really went."""
    with open(path, "wb") as file:
        file.write(b"d" * size)
    return os.path.realpath(path)


def checkpoint(path: Any, size: int) -> None:
    with open(path, "wb") as file:
        file.write(bytes(size))


def dump_centres(path: Any, size: int) -> None:
    with open(path, "wb") as file:
        file.write(bytes(size))


def checkpoint_or_fail(path: Any, size: int, fail: bool) -> None:
    if fail:
        raise OSError("the disk is upside down")
    checkpoint(path, size)


def checkpoint_in_company(path: Any, size: int, folder: str) -> int:
    """Write as `checkpoint` does, and tell how many were at it when this one had written."""
    mine = os.path.join(folder, os.path.basename(path))
    os.close(os.open(mine, os.O_CREAT))
    checkpoint(path, size)
    company = len(os.listdir(folder))
    os.unlink(mine)
    return company
