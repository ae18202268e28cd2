"""Fixtures of the failure tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.programs import Gate, Tally

import penstock


@pytest.fixture
def runtime() -> Iterator[penstock.Runtime]:
    """A runtime of two lanes, ended at once: what a failed test left unfinished must not hold up the next."""
    yield penstock.start(cpus=2)
    penstock.stop(abort=True)


@pytest.fixture(params=["parallel", "inline"])
def either_mode(request: pytest.FixtureRequest) -> Iterator[penstock.Runtime]:
    """A runtime with workers, and then one that runs tasks at their call."""
    yield penstock.start(cpus=2, mode=request.param)
    penstock.stop(abort=True)


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    """Counts attempts, whichever process makes them."""
    return Tally(tmp_path / "tally")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Tells when tasks have started, and holds them."""
    gate = Gate(tmp_path)
    yield gate
    gate.close()
