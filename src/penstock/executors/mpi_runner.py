"""Starting and ending the processes of an MPI world, on behalf of the process that keeps it.

The keeper is the reaper of all that its runner starts: whatever a process of the world leaves becomes its child. So
to end a world is to kill children until there are none; and when the keeper itself dies, the guardian does the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from penstock.executors.forkserver_main import children_of_this_process
from penstock.executors.mpi_files import family, shared_files_of
from penstock.model.worlds import World

__all__ = ["SOCKET", "Runner", "find_runner", "short"]

#: environment variable that carries the address at which a rank reports
SOCKET = "PENSTOCK_INTERNAL_WORLD"

#: bytes of what the runner itself printed that are kept
_KEPT = 4000
#: seconds in which the processes of a world must be gone after SIGKILL
_PATIENCE = 2.0
#: Open MPI counts the cores; whether there are enough of them is the scheduler's business here
_OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def find_runner(name: str) -> str | None:
    """The program that a runner's name means: one beside this Python goes before one on the PATH."""
    if os.path.dirname(name):
        return shutil.which(os.path.abspath(os.path.expanduser(name)))
    return shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)


@contextlib.contextmanager
def short(address: str) -> Iterator[str]:
    """The path of a socket in a form that is never too long for one."""
    folder = os.open(os.path.dirname(address), os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(address)}"
    finally:
        os.close(folder)


class Runner:
    """The program that has started the ranks of one world."""

    def __init__(self, world: World, address: str) -> None:
        path = find_runner(world.runner)
        if path is None:
            raise FileNotFoundError(f"its runner {world.runner!r} is gone")
        self.name = world.runner
        command = [path, "-n", str(world.processes), sys.executable, "-P", "-m", "penstock.executors.mpi_worker"]
        #: what it prints itself: the ranks write elsewhere once they have reported. Readable when there is some
        self.output, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(write_end, True)
        try:
            self._process = subprocess.Popen(
                command, env=_environment(address), stdin=subprocess.DEVNULL, stdout=write_end, stderr=write_end
            )
        finally:
            os.close(write_end)
        self._printed = b""
        #: readable when it has ended
        self.process = os.pidfd_open(self._process.pid)

    def printed(self) -> str:
        """The last that it printed."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.output, 1 << 16):
                self._printed = (self._printed + chunk)[-_KEPT:]
        return self._printed.decode(errors="replace").strip()

    def status(self, patience: float = 0.0) -> int | None:
        """How it ended; None if it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(patience)
        return None

    def words_of_death(self, pid: int) -> str:
        """What it says of a rank that ended: a signal, or a status. It may speak of one that it killed itself."""
        status = self.status(1.0)
        printed = self.printed()
        signals = re.findall(r"signal\D{0,3}(\d+)", printed)
        of = re.search(r"PID (\d+) RUNNING", printed)
        if signals and (of is None or int(of[1]) == pid):
            return f"it was killed by {_signal_name(int(signals[-1]))}"
        if signals:
            return f"{self.name} tells of {_signal_name(int(signals[-1]))}, by which it may have ended the other ranks"
        if status:
            return f"{self.name} gives its exit status as {status}"
        return "it left without a word"

    def end(self) -> set[str]:
        """Kill all of it, and wait until it is gone; gives files that it shared memory by, which stay behind.

        Also those of ranks that have not reported yet: the library shares memory before they do.
        """
        shared = shared_files_of(family(self._process.pid))
        deadline = time.monotonic() + _PATIENCE
        while (children := children_of_this_process()) and time.monotonic() < deadline:
            shared |= shared_files_of(children)
            for child in children:
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.001)
            self._process.poll()  # it wants its own child to itself
            for child in children:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)
        os.close(self.output)
        os.close(self.process)
        return shared


def _environment(address: str) -> dict[str, str]:
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    # Where Open MPI keeps what it does not remove when it is killed: in a folder that goes with the run.
    folder = os.path.dirname(address)
    session = {"PRTE_MCA_prte_tmpdir_base": folder, "OMPI_MCA_orte_tmpdir_base": folder}
    return {**_OPEN_MPI, **session, **os.environ, SOCKET: address, "PYTHONPATH": path}


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
