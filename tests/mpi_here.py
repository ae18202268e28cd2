"""Whether MPI tasks can run on this machine; what needs them is skipped where they cannot, saying why."""

from __future__ import annotations

import importlib.util

import pytest

from penstock.executors.mpi_runner import find_runner

__all__ = ["needs_mpi", "skip_without_mpi"]

_MISSING = [
    *(["the package mpi4py"] if importlib.util.find_spec("mpi4py") is None else []),
    *(["a program mpiexec"] if find_runner("mpiexec") is None else []),
]

_REASON = f"MPI TASKS ARE NOT TESTED HERE: there is no {' and no '.join(_MISSING)}; install .[mpi]"

needs_mpi = pytest.mark.skipif(bool(_MISSING), reason=_REASON)


def skip_without_mpi(program: str) -> None:
    """Skip a test that runs a program with MPI tasks, where these cannot run."""
    if _MISSING and "@mpi(" in program:
        pytest.skip(_REASON)
