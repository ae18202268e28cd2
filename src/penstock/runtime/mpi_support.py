"""Whether this machine can run MPI tasks: asked at the first call of one, so that the answer comes at that line."""

from __future__ import annotations

import importlib.util

from penstock.errors import ConstraintError
from penstock.executors.mpi_runner import find_runner
from penstock.model.worlds import World

__all__ = ["ensure_mpi"]


def ensure_mpi(task: str, world: World, *, inline: bool) -> None:
    """Refuse an MPI task that cannot be started here, saying what is missing."""
    if inline:
        raise ConstraintError(
            f"task {task} is an MPI task of {world.processes} processes, and mode 'inline' runs everything in the "
            f"program's own process; use mode 'parallel'"
        )
    if importlib.util.find_spec("mpi4py") is None:
        raise ConstraintError(
            f"task {task} is an MPI task, and its ranks need the package mpi4py, which is not installed: "
            f"pip install 'penstock[mpi]'"
        )
    if find_runner(world.runner) is None:
        raise ConstraintError(
            f"task {task} is an MPI task, and its runner {world.runner!r} was found neither beside this Python nor on "
            f"the PATH. Install an MPI (pip install 'penstock[mpi]' brings one), or name a runner that exists in "
            f"@mpi(runner=...)."
        )
