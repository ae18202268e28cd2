"""The functions that every measured system runs, so that all of them run the same work.

They live in an importable module because that is where a program's functions usually live.
"""

import json
from typing import Any

ARRAY_BYTES = 10**9
READERS = 20


def nothing() -> None:
    """An empty task."""


def increment(x: int) -> int:
    return x + 1


def part_sum(array: Any, index: int) -> float:
    """Sum one twentieth of the array: together the readers touch every page of it once."""
    length = len(array) // READERS
    return float(array[index * length : (index + 1) * length].sum())


def check_part_sums(sums: list[float], length: int) -> None:
    """The array is all ones: a reader that saw anything else measured the wrong thing."""
    if sums != [float(length // READERS)] * READERS:
        raise AssertionError(f"readers did not see the array: {sums[:3]}...")


def emit(figures: dict[str, float]) -> None:
    """What a measuring script says: one JSON object, on the last line of its output."""
    print(json.dumps(figures))
