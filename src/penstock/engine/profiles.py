"""How long functions take in this run: measured as attempts end, and until then as earlier runs say.

The recent mean is what decisions follow, so that they keep up with a function whose inputs change; count, mean and
spread are what is kept when the run is over.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, TypeVar

from penstock.model.profiles import Profile

if TYPE_CHECKING:
    from penstock.engine.state import IOTaskRecord, State

__all__ = ["Times", "learn_duration", "recall"]

K = TypeVar("K")

#: weight of the newest duration in the recent mean
_NEWEST = 0.2


class Times:
    """Seconds of one function's body, per call."""

    __slots__ = ("_squares", "count", "mean", "recent")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.recent = 0.0
        #: sum of squared differences from the mean
        self._squares = 0.0

    def add(self, seconds: float) -> None:
        """A body ran this long."""
        self.count = count = self.count + 1
        difference = seconds - self.mean
        self.mean = mean = self.mean + difference / count
        self._squares += difference * (seconds - mean)
        self.recent = seconds if count == 1 else self.recent + _NEWEST * (seconds - self.recent)

    def profile(self, function: str, layer: str) -> Profile:
        """What is worth keeping; there must have been a measurement."""
        return Profile(function, layer, self.count, self.mean, sqrt(max(0.0, self._squares) / self.count))


def learn_duration(times: dict[K, Times], key: K, seconds: float) -> None:
    """One more body ran this long, of whatever the key stands for."""
    known = times.get(key)
    if known is None:
        known = times[key] = Times()
    known.add(seconds)


def recall(state: State, task: IOTaskRecord) -> None:
    """Tell the devices how long an I/O function took on their layers in earlier runs, once."""
    function = task.function
    if function in state.recalled:
        return
    state.recalled.add(function)
    means = {profile.layer: profile.mean for profile in task.call.spec.profiles}
    for device in state.ledger.devices():
        if device.name in means and device.seconds(function) is None:
            device.learn(function, means[device.name])
