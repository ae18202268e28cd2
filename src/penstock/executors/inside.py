"""Whether code runs inside a task: in a thread that carries one out, or in a process that does nothing else."""

from __future__ import annotations

import sys
import threading
from typing import Any

__all__ = ["become_worker", "depth", "folders_of_run", "importing_in_worker", "inside_task", "threads_of_bodies"]


class Depth(threading.local):
    """How many tasks this thread is inside of."""

    tasks = 0


depth = Depth()

#: threads of the program that were started by bodies which go on, and how these see themselves; see body_threads.py
threads_of_bodies: dict[threading.Thread, Any] = {}


def inside_task() -> bool:
    """Whether the calling thread is carrying out a task, or was started by one, or its process does nothing else."""
    return depth.tasks > 0 or (bool(threads_of_bodies) and threading.current_thread() in threads_of_bodies)


class _Folders:
    """Directories of the run that this process works for; none in the program itself."""

    memory = ""
    spill = ""


folders_of_run = _Folders()


def become_worker(memory_dir: str, spill_dir: str) -> None:
    """From now on this process only carries out tasks of the run that has these directories.

    Whatever calls a task here is inside of one: threads that bodies start, and modules that are imported because a
    function lives in them. Were it otherwise, a module that calls a task when it is imported would start a runtime in
    each worker, whose workers import it too.
    """
    Depth.tasks = 1
    folders_of_run.memory, folders_of_run.spill = memory_dir, spill_dir


def importing_in_worker() -> bool:
    """Whether the caller is a module that a worker is importing."""
    frame = sys._getframe() if Depth.tasks else None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_load_unlocked" and code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
