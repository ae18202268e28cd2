"""Inside a task: hand an output over before the task ends, so that whoever needs it can start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import ReturnsMismatch
from penstock.executors.inside import inside_task

if TYPE_CHECKING:
    from penstock.executors.early import Releasing

__all__ = ["compss_ready_value", "ready_file", "ready_value"]


def ready_value(obj: Any, index: int | None = None) -> None:
    """Hand over output ``index`` of the task that is running, which goes on.

    The object is pickled now: what the task does to it afterwards changes nothing. Without an index it is the first
    output that was not handed over yet. The task must declare how many values it returns.

    In an MPI task every rank may call it; the index counts the outputs of all ranks, and must be given.
    """
    _release("ready_value").value(obj, index)


def ready_file(path: Any) -> None:
    """Hand over a file that the task that is running has written and closed: it gets its name, and can be read.

    A function that is called plainly, outside of any task, writes its files under their own names: nothing is to do.
    """
    from penstock.executors.early import is_left_behind, release_of  # of workers: the program itself has no need of it

    if inside_task() or is_left_behind() or release_of() is not None:
        _release("ready_file").file(path)


#: the name that PyCOMPSs programs use
compss_ready_value = ready_value


def _release(call: str) -> Releasing:
    from penstock.executors.early import Mismatch, is_left_behind, release_of

    release = release_of()
    if release is not None:
        return release
    what = "returns=N, or returns=... for any number" if call == "ready_value" else "FILE_OUT or FILE_INOUT"
    whose = f"is for the body of a task that declares {what}"
    if is_left_behind():
        raise Mismatch(
            f"{call}() was called in a thread for which no task is running: it {whose}, and for threads that this body "
            f"starts, until it returns"
        )
    if inside_task():
        raise Mismatch(f"{call}() {whose}; this one does not")
    raise ReturnsMismatch(
        f"{call}() was called outside of a task: it {whose}; to run tasks in this very process, use "
        f"Runtime(mode='inline')"
    )
