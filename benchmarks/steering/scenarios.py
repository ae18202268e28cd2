"""Devices and programs on which a learned constraint is compared with the best static one.

Every curve has its peak at 40 MB/s, files have 2 MB unless said otherwise, and 16 I/O executors wait for them.
"""

import random
from collections.abc import Callable, Iterator

from msgspec import Struct

MB = 1_000_000
PEAK = 40 * MB
EXECUTORS = 16
CORES = 4

#: streams to MB/s
CURVES = {
    "flat": ((1, 40), (16, 40)),
    "linear to 4": ((1, 10), (4, 40), (16, 40)),
    "peak at 8": ((1, 5), (8, 40), (16, 10)),
    "best at 1": ((1, 40), (2, 34), (4, 24), (8, 14), (16, 8)),
    "best at 3": ((1, 18), (3, 40), (6, 24), (16, 8)),
    "cliff after 6": ((1, 7), (6, 40), (7, 12), (16, 10)),
    "scales to 16": ((1, 2.5), (16, 40)),
    "saturates": ((1, 12), (2, 22), (4, 34), (8, 39), (12, 40), (16, 40)),
}

#: seconds between two values of the noise
NOISE_EVERY = 0.1


class File(Struct, frozen=True):
    """What one task does."""

    #: bytes
    size: int
    #: seconds before it writes, or reads
    seconds: float = 0.0
    reads: bool = False
    #: its function
    name: str = "write"


class Scenario(Struct, frozen=True):
    """A device and what is done there."""

    name: str
    curve: tuple[tuple[int, float], ...]
    #: each task, given chance
    file: Callable[[random.Random], File] = lambda chance: File(2 * MB)
    #: how fast the device is and how many streams of others it has, as a function of the part of the work that an
    #: undisturbed device would have done by then
    course: Callable[[float], tuple[float, int]] = lambda part: (1.0, 0)
    #: times where the course changes
    turns: tuple[float, ...] = ()
    #: part by which its speed deviates from one moment to the next
    noise: float = 0.0

    def files(self, tasks: int, seed: int) -> list[File]:
        chance = random.Random(seed)
        return [self.file(chance) for _ in range(tasks)]

    def conditions(self, files: list[File], seed: int) -> Iterator[tuple[float, float, int]]:
        """Times from which on the device is so fast, with so many streams of others."""
        ideal = sum(file.size for file in files) / PEAK
        chance = random.Random(seed + 1)
        times = {turn * ideal for turn in self.turns}
        if self.noise:
            times |= {number * NOISE_EVERY for number in range(int(8 * ideal / NOISE_EVERY))}
        for time in sorted(times):
            speed, strangers = self.course(time / ideal)
            yield time, speed * chance.uniform(1 - self.noise, 1 + self.noise), strangers


def _curve(name: str) -> tuple[tuple[int, float], ...]:
    return tuple((streams, rate * MB) for streams, rate in CURVES[name])


def _sizes(chance: random.Random) -> File:
    return File(int(chance.uniform(1, 50) * MB))


def _mixed(chance: random.Random) -> File:
    return File(2 * MB, reads=chance.random() < 0.5, name="both")


def _two(chance: random.Random) -> File:
    return File(2 * MB) if chance.random() < 0.5 else File(4 * MB, name="other")


def _computes(chance: random.Random) -> File:
    return File(2 * MB, seconds=chance.uniform(0.05, 0.15))


def scenarios() -> list[Scenario]:
    """All of them."""
    found = []
    for name in CURVES:
        found += [Scenario(name, _curve(name)), Scenario(f"{name}, noisy", _curve(name), noise=0.3)]
    peak, three = _curve("peak at 8"), _curve("best at 3")
    return [
        *found,
        Scenario("half speed in mid-run", peak, course=lambda part: (1.0 if part < 0.5 else 0.5, 0), turns=(0.5,)),
        Scenario("six strangers come", peak, course=lambda part: (1.0, 6 * (part >= 0.5)), turns=(0.5,)),
        Scenario("six strangers leave", peak, course=lambda part: (1.0, 6 * (part < 0.5)), turns=(0.0, 0.5)),
        Scenario("strangers leave, best at 3", three, course=lambda part: (1.0, 6 * (part < 0.5)), turns=(0.0, 0.5)),
        Scenario("1 to 50 MB, peak at 8", peak, file=_sizes),
        Scenario("1 to 50 MB, best at 3", three, file=_sizes),
        Scenario("reads and writes", peak, file=_mixed),
        Scenario("two functions", peak, file=_two),
        Scenario("computes before", peak, file=_computes),
    ]
