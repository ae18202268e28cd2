"""The MPI world that this process is a rank of: the communicator of each task, and what a task leaves behind.

Between tasks a rank waits on its channel, never in MPI, whose waiting keeps a CPU busy. A task gets a fresh duplicate
of the world, so that what others have sent and nobody received cannot reach it.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.executors.forkserver_main import children_of_this_process
from penstock.executors.mpi_lookalike import put_in_place
from penstock.executors.mpi_progress import Progress, counting

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["RankWorld", "current"]

#: how often to look for messages before there are none
_LOOKS = 8
_LEFT = "the task before left a message that nobody received"

#: the world of this process, if it is a rank of one
current: RankWorld | None = None


class RankWorld:
    """A world as one of its ranks sees it."""

    def __init__(self, progress: Callable[[int], Progress], leave: Callable[[str], None]) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        #: the class of the task's communicators
        self._kind = counting(MPI.Intracomm, progress(MPI.COMM_WORLD.Get_rank()), leave)
        put_in_place(MPI, self._kind)
        self.rank = MPI.COMM_WORLD.Get_rank()
        self.size = MPI.COMM_WORLD.Get_size()
        #: the communicator of the task that runs, or that was the last to
        self.comm: Intracomm | None = None
        self._spoilt = ""
        self._before = _surroundings()
        _allow_second_init(MPI)

    @property
    def library(self) -> str:
        """The MPI library, in a word or two."""
        return " ".join([self._mpi.get_vendor()[0], ".".join(map(str, self._mpi.get_vendor()[1]))])

    def spoil(self, reason: str) -> None:
        """Have no other task run here."""
        self._spoilt = self._spoilt or reason

    def begin(self) -> str:
        """Make the communicator of a task, together with all other ranks; says why it cannot be, if so.

        Every rank looks for messages that nobody received before it joins the others, and none goes on before all
        have joined: so what is found is of the task before.
        """
        old, world = self.comm, self._mpi.COMM_WORLD
        if old is not None and self._finds_message(world):
            return _LEFT
        for comm in (world, self._mpi.COMM_SELF):
            comm.Set_errhandler(self._mpi.ERRORS_RETURN)  # for mpi4py this means to raise
        fresh = world.Dup()
        if old is not None:
            # Its place may be given to another one, with what waits there.
            if self._finds_message(old):
                return _LEFT
            old.Free()
        self.comm = self._kind(fresh)
        self._before = _surroundings()
        return ""

    def _finds_message(self, comm: Intracomm) -> bool:
        # One look also has the library take in what has arrived, so that another one finds it.
        return any(comm.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG) for _ in range(_LOOKS))

    def end(self) -> str:
        """The body is over: why this process should not run another task, if there is a reason."""
        if self._mpi.Is_finalized():
            return "the task called MPI.Finalize"
        assert self.comm is not None
        if self.comm == self._mpi.COMM_NULL:
            self.comm = None  # freed by the task itself
        after = _surroundings()
        changed = [what for what in after if after[what] != self._before[what]]
        return self._spoilt or (f"the task changed {changed[0]}" if changed else "")


def _surroundings() -> dict[str, Any]:
    """What a task may change about its process, by what it is called."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    return {
        "the working directory": folder,
        "the environment": dict(os.environ),
        "the running threads": {thread.ident for thread in threading.enumerate()},
        "the running subprocesses": set(children_of_this_process()),
        "the umask": _umask(),
    }


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _allow_second_init(mpi: Any) -> None:
    """Programs written for MPI may initialise it themselves; here that has been done."""

    @functools.wraps(mpi.Init)
    def init() -> None:
        pass

    @functools.wraps(mpi.Init_thread)
    def init_thread(required: int = mpi.THREAD_MULTIPLE) -> Any:
        return mpi.Query_thread()

    mpi.Init, mpi.Init_thread = init, init_thread
