"""Sub-domains of an irregular mesh, with finite elements: what a generator makes and a solver solves.

The points of a grid are moved at random and joined to triangles. A sub-domain is a cell of the grid's cut; its
equations are assembled from its triangles one by one, with what is known around it. The solution is linear, which such
elements reproduce on any mesh, so results can be checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["SubDomain", "cells", "exact", "mesh", "solve", "sub_domain"]

Array = np.ndarray[Any, Any]

#: by how much of their distance points are moved, at most
_MOVED = 0.3
#: points that a point is joined to, itself included
_JOINED = 7
#: the two triangles of a square, by what is added to row and column of its first corner
_CORNERS = (((0, 0), (1, 0), (1, 1)), ((0, 0), (1, 1), (0, 1)))


class SubDomain(NamedTuple):
    """The equations of one sub-domain."""

    #: places of its points
    places: Array
    #: for each point those it is joined to, and how strongly; the place after the last point stands for nothing
    joined: Array
    weights: Array
    #: what is known
    right: Array


def exact(places: Array) -> Array:
    """The solution that the equations are made for."""
    return 1 + 2 * places[..., 0] - 3 * places[..., 1]  # type: ignore[no-any-return]


def mesh(side: int) -> Array:
    """Where the points of a square are; those at its edge stay in their rows."""
    places = np.stack(np.indices((side, side)), axis=-1) / (side - 1)
    moved = np.random.default_rng(1).uniform(-_MOVED, _MOVED, (side - 2, side - 2, 2)) / (side - 1)
    places[1:-1, 1:-1] += moved
    return places  # type: ignore[no-any-return]


def cells(owner: Array) -> list[Array]:
    """The inner points of each sub-domain, as rows and columns."""
    inner = owner[1:-1, 1:-1].ravel()
    order = np.argsort(inner, kind="stable")
    points = np.stack(np.divmod(order, len(owner) - 2), axis=-1) + 1
    return np.split(points, np.flatnonzero(np.diff(inner[order])) + 1)


def sub_domain(places: Array, points: Array) -> SubDomain:
    """Assemble the equations of some points from the triangles around them."""
    count = len(points)
    numbers, corners = _triangles(places, points)
    rows: list[dict[int, float]] = [{} for _ in range(count)]
    right = [0.0] * count
    strengths, known = _stiffness(corners).tolist(), exact(corners).tolist()
    for triangle, stiffness, values in zip(numbers.tolist(), strengths, known, strict=True):
        for mine, strength in zip(triangle, stiffness, strict=True):
            if mine == count:
                continue
            row = rows[mine]
            for other, weight, value in zip(triangle, strength, values, strict=True):
                if other == count:
                    right[mine] -= weight * value
                else:
                    row[other] = row.get(other, 0.0) + weight
    joined, weights = np.full((count, _JOINED), count), np.zeros((count, _JOINED))
    for index, row in enumerate(rows):
        joined[index, : len(row)] = list(row)
        weights[index, : len(row)] = list(row.values())
    return SubDomain(places[points[:, 0], points[:, 1]], joined, weights, np.array(right))


def _triangles(places: Array, points: Array) -> tuple[Array, Array]:
    """Those that have one of the points as a corner: its numbers, the number of points for others, and its places."""
    count, first = len(points), points.min(axis=0) - 1
    numbers = np.full(points.max(axis=0) + 2 - first, count)
    numbers[tuple((points - first).T)] = np.arange(count)
    squares = np.stack(np.indices(np.subtract(numbers.shape, 1)), axis=-1).reshape(-1, 1, 2)
    corners = np.concatenate([squares + np.array(corner) for corner in _CORNERS])
    own = numbers[corners[..., 0], corners[..., 1]]
    near = (own < count).any(axis=1)
    at = corners[near] + first
    return own[near], places[at[..., 0], at[..., 1]]


def _stiffness(corners: Array) -> Array:
    """How strongly the corners of triangles are joined: products of the gradients of their three linear functions."""
    edges = np.roll(corners, -1, axis=1) - np.roll(corners, 1, axis=1)
    double = 2 * (edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
    return edges @ edges.swapaxes(1, 2) / double[:, None, None]  # type: ignore[no-any-return]


def solve(domain: SubDomain) -> tuple[Array, Array]:
    """Conjugate gradients; gives the places and the values there."""
    _, joined, weights, right = domain

    def apply(values: Array) -> Array:
        return (weights * np.append(values, 0.0)[joined]).sum(axis=1)  # type: ignore[no-any-return]

    values = np.zeros(len(right))
    rest = right.copy()
    direction, square = rest.copy(), rest @ rest
    enough = 1e-20 * square
    while square > enough:
        applied = apply(direction)
        length = square / (direction @ applied)
        values += length * direction
        rest -= length * applied
        square, before = rest @ rest, square
        direction = rest + square / before * direction
    return domain.places, values
