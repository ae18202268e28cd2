"""What tasks of the measured programs do: compute for a given time, or write a file of a given size."""

import os
import time


def compute(seconds: float) -> None:
    """Keep a core busy for so much of its time, however often others use it meanwhile."""
    until = time.process_time() + seconds
    value = 1
    while time.process_time() < until:
        for _ in range(200):
            value = value * 48271 % 2147483647


def write(path: str, size: int) -> None:
    """A checkpoint: written and forced to the device, as writers do that must not lose it."""
    with open(path, "wb") as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())
