"""Inside a task: arrays that are built where results are kept, so that returning them copies nothing."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError

__all__ = ["empty"]


def empty(shape: Any, dtype: Any = float) -> Any:
    """A new NumPy array to be filled and returned, whatever is in it: ``numpy.empty``, but in the store.

    In a task that a worker process carries out, an array of 2 MiB or more is made where results are kept. Returned,
    alone or inside of something, it stays where it is. Everywhere else, and when the store is full, it is an ordinary
    array.
    """
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise PenstockError("penstock.empty needs NumPy, which is not installed: pip install numpy") from error
    from penstock.data.built import empty_array

    return empty_array(shape, dtype)
