"""The random programs of test_sequential_equivalence.py, by the thousand and from several threads at once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.properties.test_sequential_equivalence import STEPS, outcome

import penstock

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

MODES = {"workers": {"cpus": 2}, "inline": {"mode": "inline"}}


def program(seed: int, names: list[str]) -> list[tuple[str, int, int, int]]:
    chance = random.Random(seed)
    steps = chance.randrange(1, 50)
    return [(chance.choice(names), *(chance.randrange(8) for _ in range(3))) for _ in range(steps)]  # type: ignore[misc]


def differences(seeds: range, names: list[str]) -> list[int]:
    return [
        seed
        for seed in seeds
        if outcome(program(seed, names), plain=False) != outcome(program(seed, names), plain=True)
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_thousand_programs(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]):
        assert differences(range(10_000, 11_000), sorted(STEPS)) == []


@pytest.mark.parametrize("mode", MODES)
def test_programs_of_several_threads(mode: str) -> None:
    names = [name for name in sorted(STEPS) if name != "barrier"]  # it waits for the tasks of all threads
    with penstock.Runtime(**MODES[mode]), ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda t: differences(range(t * 1000, t * 1000 + 60), names), range(4))
        assert [seed for seeds in found for seed in seeds] == []
