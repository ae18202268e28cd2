"""Tests of how long something takes, on machines where others work too."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

__all__ = ["in_a_quiet_moment"]

P = ParamSpec("P")

#: measurements that may be disturbed before one must not be
_TURNS = 8


def in_a_quiet_moment(test: Callable[P, None]) -> Callable[P, None]:
    """Measure again what was not as promised: others disturb some measurements, what is wrong is wrong in all."""

    @wraps(test)
    def measured(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(_TURNS - 1):
            try:
                return test(*args, **kwargs)
            except AssertionError:
                pass
        return test(*args, **kwargs)

    return measured
