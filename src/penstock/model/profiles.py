"""How long a function takes: what runs measure and later ones start from. Plain values, also the form on disk.

A value that no run can have seen raises a ValueError: the file was damaged, or edited.
"""

from __future__ import annotations

from math import sqrt

from msgspec import Struct

__all__ = ["Profile"]

#: measurements that a profile remembers at most, so that what a run finds out weighs something in it
_REMEMBERED = 1000
#: more than any count or time there is, and so little that it can be squared
_BEYOND = 1e30


class Profile(Struct, frozen=True):
    """Seconds of a function's body, on a storage layer or on none (an empty name)."""

    #: what the function is called across runs; each implementation of a task has its own
    function: str
    layer: str
    count: int
    mean: float
    #: standard deviation
    deviation: float

    def __post_init__(self) -> None:
        if not (0 < self.count < _BEYOND and 0 <= self.mean < _BEYOND and 0 <= self.deviation < _BEYOND):
            raise ValueError(f"{self!r} cannot have been measured")

    def with_newer(self, newer: Profile) -> Profile:
        """Both together; of the older one no more counts than can be remembered."""
        older = min(self.count, _REMEMBERED)
        count = older + newer.count
        share = newer.count / count
        difference = newer.mean - self.mean
        variance = (1 - share) * self.deviation**2 + share * newer.deviation**2 + share * (1 - share) * difference**2
        return Profile(self.function, self.layer, count, self.mean + share * difference, sqrt(variance))
