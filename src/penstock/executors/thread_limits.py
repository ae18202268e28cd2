"""How many threads the numerical libraries of a process may use: as many as its tasks have computing units."""

from __future__ import annotations

__all__ = ["thread_limits"]

_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)


def thread_limits(units: int) -> dict[str, str]:
    """Environment that holds numerical libraries to a task's computing units."""
    return dict.fromkeys(_VARIABLES, str(units))
