"""The decomposition that the benchmark of early outputs solves: its equations are right, and no point is left out."""

from __future__ import annotations

import benchmarks.eager
import numpy as np
from benchmarks.eager import elements

assert benchmarks.eager.EXAMPLES  # which makes the examples importable
from domain_decomposition import cut  # noqa: E402

SIDE, PARTS = 24, 9


def domains() -> list[elements.SubDomain]:
    places = elements.mesh(SIDE)
    return [elements.sub_domain(places, points) for points in elements.cells(cut(SIDE, PARTS))]


def test_each_inner_point_belongs_to_one_sub_domain() -> None:
    cells = elements.cells(cut(SIDE, PARTS))
    points = [tuple(point) for cell in cells for point in cell.tolist()]
    assert len(cells) == PARTS
    assert sorted(points) == [(row, column) for row in range(1, SIDE - 1) for column in range(1, SIDE - 1)]


def test_the_solution_is_the_known_one() -> None:
    for domain in domains():
        places, values = elements.solve(domain)
        assert np.abs(values - elements.exact(places)).max() < 1e-8


def test_equations_are_symmetric_and_of_an_irregular_mesh() -> None:
    for domain in domains():
        count = len(domain.right)
        matrix = np.zeros((count, count + 1))
        np.add.at(matrix, (np.arange(count)[:, None], domain.joined), domain.weights)
        matrix = matrix[:, :count]
        assert np.allclose(matrix, matrix.T)
        assert (np.linalg.eigvalsh(matrix) > 0).all()
        assert len(set(np.diag(matrix).round(6))) > count / 2, "on a regular grid, all would be alike"


def test_a_wrong_equation_would_be_seen() -> None:
    domain = domains()[0]
    places, values = elements.solve(domain._replace(right=domain.right * 1.001))
    assert np.abs(values - elements.exact(places)).max() > 1e-6
