"""What attempts of different functions are worth beside each other, so that what a device delivers can be compared.

A task that computes before it writes gets fewer bytes per second from any device than one that only writes. When both
run, the bytes that are delivered tell which of them happened to run, not how many at a time are best. So bytes of one
function are weighed: by how much longer they take than those of the others, among as many attempts. Then a change of
what runs changes nothing, and a change of how many run still does. One function alone has the weight 1. Pure.
"""

from __future__ import annotations

__all__ = ["Mixture"]

#: functions differ if their bytes are worth more, or less, than those of others by this
_ALIKE = 1.25
#: attempts of a function among as many others, after which older ones count half
_REMEMBERED = 64
#: attempts after which a function is weighed at each, and then only now and then
_NEW, _NOW_AND_THEN = 16, 8


class _Sum:
    """Of attempts of one function among as many others."""

    __slots__ = ("attempts", "nbytes", "seconds")

    def __init__(self) -> None:
        self.nbytes = self.seconds = 0.0
        self.attempts = 0

    def add(self, nbytes: float, seconds: float) -> None:
        self.nbytes += nbytes
        self.seconds += seconds
        self.attempts += 1
        if self.attempts >= _REMEMBERED:
            self.nbytes /= 2
            self.seconds /= 2
            self.attempts //= 2


class Mixture:
    """The functions that use one device."""

    def __init__(self) -> None:
        #: of each function, by how many ran
        self._sums: dict[str, dict[int, _Sum]] = {}
        self._ends: dict[str, int] = {}
        #: attempts under way
        self.running: dict[str, int] = {}
        #: of the newest attempts of each function: how many, their bytes and their seconds
        self._usual: dict[str, _Sum] = {}
        self._weights: dict[str, float] = {}
        self._bytes = self._worth = 0.0

    @property
    def is_mixed(self) -> bool:
        """Whether more than one function runs here, or has."""
        return len(self._sums) > 1 or not self.running.keys() <= self._sums.keys()

    @property
    def is_uneven(self) -> bool:
        """Whether bytes of one function are worth more than those of another."""
        weights = self._weights.values()
        return len(weights) > 1 and max(weights) > _ALIKE * min(weights)

    @property
    def bytes_of_worth(self) -> float:
        """Bytes per worth of all that ended."""
        return self._bytes / self._worth if self._worth else 1.0

    def began(self, function: str) -> None:
        """An attempt runs."""
        self.running[function] = self.running.get(function, 0) + 1

    def left(self, function: str) -> None:
        """An attempt does not run any more, however it ended."""
        self.running[function] -= 1
        if not self.running[function]:
            del self.running[function]

    def knows(self, function: str) -> bool:
        """Whether an attempt of it has ended here."""
        return function in self._sums

    def usual(self, function: str) -> tuple[float, float, float] | None:
        """How many of its attempts have ended, what one is worth on the average and how long it takes."""
        mine = self._usual.get(function)
        return None if mine is None else (mine.attempts, mine.nbytes / mine.attempts, mine.seconds / mine.attempts)

    def ended(self, function: str, nbytes: float, seconds: float, concurrency: float) -> None:
        """An attempt transferred its bytes among so many."""
        sums = self._sums.setdefault(function, {})
        running = max(1, round(concurrency))
        if running not in sums:
            sums[running] = _Sum()
        sums[running].add(nbytes, seconds)
        if len(self._sums) == 1:
            self._weights[function] = 1.0
        else:
            ends = self._ends[function] = self._ends.get(function, 0) + 1
            if ends <= _NEW or not ends % _NOW_AND_THEN:
                self._weigh(function)
        self._bytes += nbytes
        self._worth += nbytes * self._weights[function]
        if function not in self._usual:
            self._usual[function] = _Sum()
        self._usual[function].add(nbytes, seconds)

    def weight(self, function: str) -> float:
        """What a byte of it is worth, in bytes of the first function."""
        return self._weights[function]

    def _weigh(self, function: str) -> None:
        """By what others would have taken where it ran; the first function keeps its weight."""
        if function == next(iter(self._sums)):
            return
        took = expected = 0.0
        for running, mine in self._sums[function].items():
            slowness = self._slowness(function, running)
            if slowness is not None:
                took += mine.seconds
                expected += mine.nbytes * slowness
        if not expected:
            took, expected = self._anywhere(function)
        if took > 0 and expected > 0:
            self._weights[function] = took / expected
        else:
            self._weights.setdefault(function, 1.0)

    def _slowness(self, function: str, running: int) -> float | None:
        """Seconds that others take for what is worth a byte, among as many."""
        seconds = worth = 0.0
        for other, sums in self._sums.items():
            there = sums.get(running)
            if other != function and there is not None and other in self._weights:
                seconds += there.seconds
                worth += there.nbytes * self._weights[other]
        return seconds / worth if seconds > 0 and worth > 0 else None

    def _anywhere(self, function: str) -> tuple[float, float]:
        """The same where no others ran among as many: as if that made no difference."""
        seconds = worth = 0.0
        for other, sums in self._sums.items():
            if other != function and other in self._weights:
                seconds += sum(one.seconds for one in sums.values())
                worth += sum(one.nbytes for one in sums.values()) * self._weights[other]
        mine = self._sums[function].values()
        took, nbytes = sum(one.seconds for one in mine), sum(one.nbytes for one in mine)
        return (took, nbytes * seconds / worth) if worth > 0 else (0.0, 0.0)
