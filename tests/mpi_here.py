"""Whether MPI tasks can run on this machine; what needs them is skipped where they cannot, saying why."""

from __future__ import annotations

import importlib.util

import pytest

from penstock.executors.mpi_runner import find_runner

__all__ = ["needs_mpi"]

_MISSING = [
    *(["the package mpi4py"] if importlib.util.find_spec("mpi4py") is None else []),
    *(["a program mpiexec"] if find_runner("mpiexec") is None else []),
]

needs_mpi = pytest.mark.skipif(
    bool(_MISSING), reason=f"MPI TASKS ARE NOT TESTED HERE: there is no {' and no '.join(_MISSING)}; install .[mpi]"
)
