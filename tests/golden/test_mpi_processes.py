"""The best number of processes of an MPI task, on as many nodes as was published."""

from __future__ import annotations

import pytest
from benchmarks.papers import mpi_processes as paper


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", paper.PROGRAMS)
def test_the_best_numbers_of_processes_are_those_that_were_published(name: str) -> None:
    found = [paper.best(paper.makespans(paper.PROGRAMS[name], nodes)) for nodes in paper.NODES]
    assert tuple(found) == paper.BEST[name]


def test_the_programs_have_as_many_tasks_as_was_published() -> None:
    assert len(paper.matmul(4).jobs) == 1216 and len(paper.web(4).jobs) == 1440


def test_a_task_gains_with_processes_as_was_published() -> None:
    assert paper.WRITING(8) == pytest.approx(3.0, rel=0.01) and paper.WRITING(16) < paper.WRITING(8)
    assert 7.0 < paper.COMPUTING(8) < 8.0
