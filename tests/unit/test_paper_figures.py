"""The headline of replayed experiments: what was met, with fitted figures counted apart."""

from __future__ import annotations

from benchmarks.papers.__main__ import headline
from benchmarks.papers.figure import Figure


def test_fitted_figures_are_counted_apart_and_those_that_cannot_be_missed_not_at_all() -> None:
    verdicts = [(False, True), (False, False), (False, None), (True, True), (True, True)]
    figures = [Figure("any", 1.0, 1.0, "", fitted, met) for fitted, met in verdicts]
    assert headline(figures) == "1 of 2 predicted and 2 of 2 fitted figures met"
