"""Heat on a plate: one array, whose blocks of rows are computed at the same time, where they lie.

A block is a slice. To write it changes the plate itself; to read it with one row more on either side waits for the
neighbours that write there, and for nobody else. So the steps overlap: nothing waits for a whole step to be over.
"""

import sys
from itertools import pairwise

import numpy as np

from penstock import OUT, task, wait_on


@task(new=OUT)
def step(new, old):
    """The inner rows of ``old``, one step later; the edges stay as they are."""
    inner = new[:, 1:-1]
    np.add(old[:-2, 1:-1], old[2:, 1:-1], out=inner)
    inner += old[1:-1, :-2]
    inner += old[1:-1, 2:]
    inner *= 0.25


def plate(size):
    """A cold plate with one hot edge."""
    grid = np.zeros((size, size))
    grid[0] = 100.0
    return grid


def heat(size, steps, blocks, step=step):
    """The plate after some steps."""
    old, new = plate(size), plate(size)
    bounds = np.linspace(1, size - 1, blocks + 1).astype(int)
    for _ in range(steps):
        for first, last in pairwise(bounds):
            step(new[first:last], old[first - 1 : last + 1])
        old, new = new, old
    return wait_on(old)


def main(size=600, steps=40, blocks=4):
    result = heat(size, steps, blocks)
    plain = heat(size, steps, 1, step.__wrapped__)
    print(f"{steps} steps of {blocks} blocks of rows, equal to one block computed by itself: {(result == plain).all()}")
    print(f"below the hot edge: {', '.join(f'{value:.2f}' for value in result[1:6, size // 2])}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
