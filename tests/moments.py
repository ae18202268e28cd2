"""Which moments of a scenario a fault loop tries: every one in the long tests, every few in the others.

A loop over some of them is shifted by what else its test is given, so that all of them together leave few moments out.
"""

from __future__ import annotations

import pytest

SOME = 4

#: gives a test ``every``: the distance between two moments that it tries
SOME_MOMENTS = pytest.mark.parametrize(
    "every", [pytest.param(SOME, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]
)


def moments(most: int, every: int, shift: int = 0, *, first: int = 1) -> range:
    """Numbers of moments, ``every`` so many, beginning a little later for each ``shift``."""
    return range(first + shift % every, most, every)
