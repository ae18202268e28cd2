"""A worker imports the test module of its tasks without pytest, which would take longer than they do: in_workers."""

from __future__ import annotations

import sys

import pytest
from tests.behaviour.modes import only_workers
from tests.own_place import IN_WORKERS

import penstock
from penstock import task


@pytest.fixture
def a_fixture() -> str:
    return "as it was"


@task(returns=1)
def has_imported(module: str) -> bool:
    return module in sys.modules


@task(returns=1)
def where_pytest_is() -> str:
    return pytest.__file__


@task(returns=1)
def is_about_a_third(number: float) -> bool:
    return number == pytest.approx(0.333, abs=0.001)


@only_workers
def test_pytest_is_imported_by_workers_that_use_it(mode: str, runtime: penstock.Runtime, a_fixture: str) -> None:
    assert a_fixture == "as it was" and "_pytest" in sys.modules and not pytest.__file__.startswith(IN_WORKERS)
    assert where_pytest_is().result().startswith(IN_WORKERS)
    assert not has_imported("_pytest").result()
    assert is_about_a_third(1 / 3).result() and not is_about_a_third(0.3).result()
