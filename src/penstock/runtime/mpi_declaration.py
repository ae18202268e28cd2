"""What ``@mpi`` says of a task, and the requirements and the world that it becomes."""

from __future__ import annotations

import os
import re

import msgspec
from msgspec.structs import replace

from penstock.errors import ConstraintError
from penstock.model.resources import Requirements
from penstock.model.worlds import World

__all__ = ["MPI", "whole_number", "world_of"]


class MPI(msgspec.Struct, frozen=True):
    """The arguments of ``@mpi``, checked; numbers may be ``"$VARIABLE"``, read when the task is first called."""

    processes: int | str
    runner: str = "mpiexec"
    #: ``processes`` for each computing unit
    scale_by_cpu: bool = False
    #: at most so many ranks on a node; 0 is without limit
    processes_per_node: int | str = 0


def whole_number(written: int | str, name: str, task: str) -> int:
    """The number that an argument of ``@mpi`` means."""
    if isinstance(written, int):
        return written
    value = os.path.expandvars(written)
    if "$" in value:
        variable = value.strip("${}")
        raise ConstraintError(
            f"@mpi of task {task}: {name}={written!r}: the environment has no {variable}; set it before the task is "
            f"first called"
        )
    if not re.fullmatch(r"\s*[1-9]\d*\s*", value):
        raise ConstraintError(
            f"@mpi of task {task}: {name}={written!r} (which is {value!r}) is not a whole number of at least 1"
        )
    return int(value)


def world_of(mpi: MPI, need: Requirements, task: str) -> tuple[Requirements, World]:
    """What an MPI task takes, and its world. ``need`` is what its constraints ask for.

    A task that computes takes the units of all its ranks at once. An I/O task takes bandwidth, room and one I/O
    executor, however many ranks it has.
    """
    if need.countable:
        name, count = need.countable[0]
        raise ConstraintError(
            f"@constraint of task {task}: {name}={count}: what is only counted is for tasks of one process, and this "
            f"is an MPI task; have it hold a property of its nodes, or start the MPI program in an ordinary task"
        )
    processes = whole_number(mpi.processes, "processes", task)
    per_node = whole_number(mpi.processes_per_node, "processes_per_node", task)
    if need.io:
        if mpi.scale_by_cpu:
            raise ConstraintError(
                f"@mpi of task {task}: scale_by_cpu=True multiplies by computing units, and an I/O task takes none; "
                f"give the number of its processes"
            )
        return need, World(processes, mpi.runner)
    if mpi.scale_by_cpu:
        processes *= need.cpus
        return replace(need, cpus=1, processes=processes, processes_per_node=per_node), World(processes, mpi.runner)
    world = World(processes, mpi.runner, need.cpus)
    return replace(need, processes=processes, processes_per_node=per_node), world
