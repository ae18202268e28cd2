"""Files that an MPI library and its runner leave behind when their processes are killed, and how they are found.

Whoever kills such processes looks first: the process that keeps a world (mpi_runner.py), and the guardian, which ends
that one together with its world (forkserver_main.py).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

__all__ = ["family", "remove_files", "shared_files_of"]

#: in a list of what a process has mapped
_SHARED = re.compile(r"(/dev/shm/(?:mpich|vader|sm_segment|psm|ucx|ofi)\S*)$", re.MULTILINE)
#: what MPICH's runner calls its description of the machine
_TOPOLOGY = "hydra_hwloc_xmlfile_"


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError), open(f"/proc/{one}/task/{one}/children", "rb") as listing:
            found += [int(child) for child in listing.read().split()]
    return found


def shared_files_of(pids: Iterable[int]) -> set[str]:
    """Files by which an MPI library shares memory among processes; it removes them only if these end by themselves.

    And that by which MPICH's runner has told them of the machine: the process that started them has it open.
    """
    found: set[str] = set()
    parents = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps:
            found.update(_SHARED.findall(maps.read()))
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
            parents.add(int(stat.read().rpartition(b")")[2].split()[1]))
    for parent in parents:
        found.update(path for path in _open_files(parent) if os.path.basename(path).startswith(_TOPOLOGY))
    return found


def _open_files(pid: int) -> list[str]:
    paths = []
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                paths.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return paths


def remove_files(paths: Iterable[str]) -> None:
    """Remove files, if they are still there."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
