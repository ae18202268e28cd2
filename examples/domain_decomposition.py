"""Domain decomposition: sub-domains of a mesh are solved while the generator still makes the next ones.

The generator cuts a square into irregular sub-domains and hands over the equations of each with ready_value(). A
solver takes each of them as soon as it is there: Poisson's equation, by conjugate gradients. The true solution is
known, so the result is checked.
"""

import itertools
import math

import numpy as np

from penstock import ready_value, task, wait_on

PARTS = 64


def exact(x, y):
    """The solution that the equation is made for: its Laplacian is 2."""
    return 2 * x * x - y * y + x * y


def cut(side, parts, seed=0):
    """Which sub-domain each point of a grid belongs to: that of the nearest of some points, one at random in each cell
    of a coarser grid. Only the cells around a point are looked at."""
    cells = math.isqrt(parts)
    size = side / cells
    centres = (np.indices((cells, cells)) + np.random.default_rng(seed).random((2, cells, cells))) * size
    points = np.indices((side, side))
    home = (points / size).astype(int)
    nearest, owner = np.full((side, side), np.inf), np.zeros((side, side), dtype=int)
    for step in itertools.product((-1, 0, 1), repeat=2):
        row, column = np.clip(home + np.reshape(step, (2, 1, 1)), 0, cells - 1)
        distance = ((centres[:, row, column] - points) ** 2).sum(axis=0)
        closer = distance < nearest
        nearest[closer], owner[closer] = distance[closer], (row * cells + column)[closer]
    return owner


def equations(owner, part):
    """The five-point equations of a sub-domain: its points, who is next to whom, and what is known around it."""
    side = len(owner)
    step = 1.0 / (side - 1)
    inner = owner.copy()
    inner[[0, -1], :] = inner[:, [0, -1]] = -1  # the edge of the square is known
    points = [(int(i), int(j)) for i, j in np.argwhere(inner == part)]
    number = {point: index for index, point in enumerate(points)}
    neighbours = np.full((len(points), 4), len(points))  # the last place stands for what is known
    right = np.full(len(points), -2.0 * step * step)
    for (i, j), index in number.items():
        for direction, near in enumerate(((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1))):
            if near in number:
                neighbours[index, direction] = number[near]
            else:
                right[index] += exact(near[0] * step, near[1] * step)
    return np.array(points).reshape(-1, 2), neighbours, right


@task(returns=PARTS)
def generate(side):
    owner = cut(side, PARTS)
    for part in range(PARTS):
        ready_value(equations(owner, part), part)


@task(returns=1)
def solve(domain):
    """Conjugate gradients; gives the points and the values there."""
    points, neighbours, right = domain

    def apply(values):
        return 4 * values - np.append(values, 0.0)[neighbours].sum(axis=1)

    values = np.zeros(len(right))
    rest = right - apply(values)
    direction, square = rest.copy(), rest @ rest
    enough = 1e-24 * square
    while square > enough:
        applied = apply(direction)
        length = square / (direction @ applied)
        values += length * direction
        rest -= length * applied
        square, before = rest @ rest, square
        direction = rest + square / before * direction
    return points, values


def worst_error(side, solved):
    """The largest difference from the true solution, and how many points were solved for."""
    step = 1.0 / (side - 1)
    errors = [np.abs(values - exact(points[:, 0] * step, points[:, 1] * step)).max() for points, values in solved]
    return max(errors), sum(len(values) for _, values in solved)


if __name__ == "__main__":
    SIDE = 48
    solved = wait_on([solve(domain) for domain in generate(SIDE)])
    error, points = worst_error(SIDE, solved)
    print(f"{len(solved)} sub-domains of {min(len(v) for _, v in solved)} to {max(len(v) for _, v in solved)} points")
    print(f"{points} of {(SIDE - 2) ** 2} points solved, largest error below 1e-9: {error < 1e-9}")
