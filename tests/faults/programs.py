"""Main programs of the failure tests: each runs as its own process, in its own group, and is watched from outside."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import psutil
from tests.own_place import IN_WORKERS, memory_dir, user_environment
from tests.patience import PATIENCE, becomes

#: what most programs begin with; a task calls `arrive()` to say "I run", the test reads it from the program's output
PROLOGUE = """
import os, signal, sys, threading, time
import penstock
from penstock import FILE_OUT, INOUT, barrier, task, wait_on

def arrive(*what):
    with open({arrivals!r}, "wb", buffering=0) as pipe:
        pipe.write((" ".join(map(str, what)) + "\\n").encode())
"""


class Program:
    """A main program at work, the lines its tasks send, and everything it must not leave behind."""

    def __init__(
        self,
        folder: Path,
        source: str,
        environ: Mapping[str, str] | None = None,
        *,
        prefix: tuple[str, ...] = (),
        interpreter: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.script = folder / "app.py"
        # A named pipe, not a descriptor: workers are forked from the fork server and inherit none of ours.
        arrivals = folder / "arrivals"
        os.mkfifo(arrivals)
        self._arrivals = os.open(arrivals, os.O_RDWR)  # both ends, so that it is never at its end
        self._unread = b""
        self.script.write_text(PROLOGUE.format(arrivals=str(arrivals)) + source)
        self.process = subprocess.Popen(
            [*prefix, sys.executable, *interpreter, str(self.script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=surroundings(TMPDIR=str(self.temporary), **(environ or {})),
            start_new_session=True,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        os.close(self._arrivals)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        for leftover in self.leftovers():
            shutil.rmtree(leftover, ignore_errors=True)  # or the next test would be blamed for it too

    def arrival(self) -> str:
        """The next line that a task sent."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._arrivals], [], [], 0.05)
            if ready:
                self._unread += os.read(self._arrivals, 4096)
            elif time.monotonic() > deadline or self.process.poll() is not None:
                self.process.kill()
                raise AssertionError(f"no task came to its line; the program said:\n{self.process.communicate()}")
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def family(self) -> list[psutil.Process]:
        """Every process that descends from the program."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number: int) -> None:
        """Send a signal to the main program and to nobody else."""
        self.process.send_signal(number)

    def interrupt_group(self) -> None:
        """What a terminal does on Ctrl-C: SIGINT to the foreground process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ends(self, within: float = PATIENCE) -> tuple[int, str, str]:
        """Wait for the end: exit status, output, errors."""
        try:
            output, errors = self.process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the program did not end:\n{self.process.communicate()}") from None
        return self.process.returncode, output, errors

    def leftovers(self) -> list[str]:
        """Directories of the run that still exist."""
        mine = f"-{self.process.pid}-"
        shared = [str(path) for path in memory_dir().iterdir() if mine in path.name]
        return shared + [str(path) for path in self.temporary.iterdir()]


def surroundings(**changes: str) -> dict[str, str]:
    """Our environment with the package importable, no setting inherited, and output not held back."""
    path = os.pathsep.join(path for path in sys.path if path and path != IN_WORKERS)
    return {**user_environment(PYTHONPATH=path, PYTHONUNBUFFERED="1"), **changes}


def run(folder: Path, source: str, within: float = 60.0) -> tuple[int, str, str]:
    """Run a program to its end; it must leave no directory behind."""
    with Program(folder, source) as program:
        status, output, errors = program.ends(within)
        gone([], program)
    return status, output, errors


def gone(family: list[psutil.Process], program: Program, within: float = 60.0) -> None:
    """Assert that processes and directories of a run vanish in time."""
    left: list[object] = []

    def nothing_is_left() -> bool:
        left[:] = [*filter(alive, family), *program.leftovers()]
        return not left

    assert becomes(nothing_is_left, within), left


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def segments_in(*folders: str) -> list[str]:
    """Segments of the object store that lie in folders."""
    return [name for folder in folders for name in os.listdir(folder) if name.startswith("s")]


def empties(*folders: str, within: float = 60.0) -> bool:
    """Whether the segments in folders are deleted, which happens in the background."""
    return becomes(lambda: not segments_in(*folders), within)


@contextlib.contextmanager
def takes_less_than(seconds: float) -> Iterator[None]:
    """Assert that a block is quick."""
    begin = time.monotonic()
    yield
    took = time.monotonic() - begin
    assert took < seconds, f"took {took:.2f} s"


class Tally:
    """Counts across processes: one byte appended per mark, atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Count one; gives the number it got."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, b".")
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)

    def count(self) -> int:
        """How many were counted."""
        return self.path.stat().st_size if self.path.exists() else 0


class TaskSide:
    """A gate as a task sees it."""

    def __init__(self, started: Path, opened: Path) -> None:
        self._started = started
        self._open = opened

    def reach(self) -> None:
        """Say that this task runs."""
        with open(self._started, "wb", buffering=0) as pipe:
            pipe.write(b"x")

    def hold(self) -> None:
        """Say that this task runs, and wait until it may go on."""
        self.reach()
        while not self._open.exists():
            time.sleep(0.005)


class Gate(TaskSide):
    """Tells when tasks have started, and holds them until they may go on; given to a task, it is its `TaskSide`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "gate-started", folder / "gate-open")
        os.mkfifo(self._started)
        # Both ends, so that it is never at its end.
        self._descriptor = os.open(self._started, os.O_RDWR)

    def __reduce__(self) -> tuple[type[TaskSide], tuple[Path, Path]]:
        return TaskSide, (self._started, self._open)

    def wait_reached(self, times: int = 1) -> None:
        """Return when so many tasks have said that they run."""
        for number in range(times):
            ready, _, _ = select.select([self._descriptor], [], [], PATIENCE)
            assert ready, f"only {number} of {times} tasks started"
            os.read(self._descriptor, 1)

    def nobody_reaches(self) -> bool:
        """Whether nobody else has said that it runs."""
        return not select.select([self._descriptor], [], [], 0)[0]

    def release(self) -> None:
        """Let held tasks go on."""
        self._open.touch()

    def close(self) -> None:
        """Let everybody go: a test that failed must not hold its own end up."""
        self.release()
        os.close(self._descriptor)
