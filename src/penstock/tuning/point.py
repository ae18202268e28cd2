"""What a limit delivered, with its error: measurements of it, put together."""

from __future__ import annotations

import math

from msgspec import Struct

__all__ = ["CHANGED", "LEAST_ERROR", "Point"]

#: measurements that differ by this, and by more than noise explains, cannot both be true
CHANGED = 0.12
LEAST_ERROR = 0.004
#: what earlier measurements together are taken to be better than the newest at most
_NEWEST = 0.5


class Point(Struct):
    """What a limit delivered."""

    #: bytes per second
    rate: float
    #: standard error, as a part of the rate
    error: float

    def add(self, rate: float, error: float) -> None:
        """It was measured again: the better measurement counts more, and the newest always counts.

        Where both cannot be true, things have changed since, and it counts alone.
        """
        if abs(rate / self.rate - 1) > CHANGED + 3 * math.hypot(self.error, error):
            self.rate, self.error = rate, error
            return
        old = max(self.error, _NEWEST * error)
        weight = old * old / (old * old + error * error)
        self.rate += weight * (rate - self.rate)
        self.error = max(LEAST_ERROR, old * error / math.hypot(old, error))
