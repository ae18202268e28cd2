"""Functions behind decorators, in a module that workers import."""

from __future__ import annotations

import functools
from collections.abc import Callable


def _twice(function: Callable[[int], int]) -> Callable[[int], int]:
    @functools.wraps(function)
    def wrapper(value: int) -> int:
        return 2 * function(value)

    return wrapper


@_twice
def doubled(value: int) -> int:
    return value


def plain(value: int) -> int:
    return value


#: the function that the module's name now stands around
plain_of_wrapped = plain
plain = _twice(plain)


@functools.lru_cache
def counted(value: int) -> int:
    return value
