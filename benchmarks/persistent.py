"""Objects of a store against the raw client that stores the same array: how many times longer a put and a get take.

Both are given a NumPy array and end with one. The raw client is what a program without us would write: a pickle in a
file, or under a key of Redis, cut where a string of Redis may be no longer.
"""

import os
import pickle
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
#: size to its name, how often it is measured, and how many times longer than raw it may take
SIZES = {KIB: ("1 KiB", 400, 4.0), MIB: ("1 MiB", 60, 2.0), GIB: ("1 GiB", 3, 1.5)}
#: the longest string of Redis, and a little less
LONGEST = 500 * MIB
#: the server's copy, ours, one under way, and room for the old state
MEMORY = 7 * GIB


def sizes() -> list[int]:
    """The sizes to measure: the largest takes its time and its memory."""
    small = "--quick" in sys.argv or psutil.virtual_memory().available < MEMORY
    return [size for size in SIZES if size < GIB or not small]


def rows(backend: str, module: str) -> list[Row]:
    return [
        Row(
            f"{backend}: {verb} of {SIZES[size][0]} against the raw client",
            "×",
            Measurement(_figure(backend, verb, size), "less", module, rounds=1, together=True),
            Budget(SIZES[size][2]),
        )
        for size in sizes()
        for verb in ("put", "get")
    ]


def _figure(backend: str, verb: str, size: int) -> str:
    return f"{backend}_{verb}_{SIZES[size][0].replace(' ', '')}".lower()


def measure(backend: str, address: str, raw_put: Callable[[str, Any], None], raw_get: Callable[[str], Any]) -> None:
    """Print the ratios, and seconds as details."""
    import numpy as np

    from penstock.persistent.where import connect

    connect(address)
    figures: dict[str, float] = {}
    for size in sizes():
        array = np.frombuffer(os.urandom(min(size, MIB)) * max(1, size // MIB), dtype=np.uint8).copy()
        ours = _ours(array)
        theirs: tuple[Callable[[], Any], ...] = partial(raw_put, "raw", array), partial(raw_get, "raw")
        repeats = SIZES[size][1] // (5 if "--quick" in sys.argv else 1) or 1
        for number, verb in enumerate(("put", "get")):
            mine, raw = _in_turns(ours[number], theirs[number], repeats)
            figure = _figure(backend, verb, size)
            figures[figure] = mine / raw
            figures[f"{figure}_us"] = mine * 1e6
            figures[f"{figure}_raw_us"] = raw * 1e6
    emit(figures)


def _ours(array: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from benchmarks.held import Held

    held = Held(array).make_persistent(f"held-{array.nbytes}")

    def put() -> None:
        held.update_persistent()

    def get() -> Any:
        from penstock.persistent import links

        links._live.pop(held.get_id(), None)  # as a program that has not got it
        return Held.get_by_id(held.get_id()).array

    return put, get


def _in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median seconds of each; both by turns, as the machine is not equally fast all the time."""
    times: tuple[list[float], list[float]] = ([], [])
    for one in (ours, theirs):
        one()
    for _ in range(repeats):
        for taken, one in zip(times, (ours, theirs), strict=True):
            began = time.perf_counter()
            result = one()
            taken.append(time.perf_counter() - began)
            del result
    return statistics.median(times[0]), statistics.median(times[1])


def cut(array: Any) -> list[Any]:
    """A pickled array in pieces that Redis can hold."""
    data = memoryview(pickle.dumps(array, 5))
    return [data[at : at + LONGEST] for at in range(0, len(data), LONGEST)]
