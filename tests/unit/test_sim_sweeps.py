"""A grid of settings: which combinations, in which order, and what happens when one of them fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock.sim
from penstock.errors import ConfigError
from penstock.sim import Node, Point, Simulation, Workload, sweep
from penstock.sim.sweeps import combinations


def simulate(cores: int, scheduler: str) -> float:
    workload = Workload()
    for _ in range(12):
        workload.task("f", seconds=1.0)
    return Simulation([Node("a", cores, 0)], workload, scheduler=scheduler).run().makespan


def test_all_combinations_the_last_setting_changing_fastest() -> None:
    assert combinations({"a": [1, 2], "b": ["xy", "z"]}) == [
        {"a": 1, "b": "xy"},
        {"a": 1, "b": "z"},
        {"a": 2, "b": "xy"},
        {"a": 2, "b": "z"},
    ]


@pytest.mark.parametrize("threads", [0, 3])
def test_each_combination_is_simulated_and_told_of(threads: int) -> None:
    told: list[tuple[int, float]] = []
    grid = {"cores": [1, 3, 4], "scheduler": ["fifo", "lifo"]}

    def done(settings: dict[str, object], makespan: float) -> None:
        told.append((settings["cores"], makespan))  # type: ignore[arg-type]

    if threads:
        with ThreadPoolExecutor(threads) as executor:
            points = sweep(simulate, grid, executor=executor, done=done)
    else:
        points = sweep(simulate, grid, done=done)
    assert points[0] == Point({"cores": 1, "scheduler": "fifo"}, 12.0)
    assert [point.outcome for point in points] == [12.0, 12.0, 4.0, 4.0, 3.0, 3.0]
    assert sorted(told) == sorted((point.settings["cores"], point.outcome) for point in points)


@pytest.mark.parametrize("threads", [0, 2])
def test_what_a_simulation_raises_reaches_the_caller(threads: int) -> None:
    grid = {"cores": [1], "scheduler": ["fifo", "nonsense"]}
    if not threads:
        with pytest.raises(ConfigError, match="nonsense"):
            sweep(simulate, grid)
        return
    with ThreadPoolExecutor(threads) as executor, pytest.raises(ConfigError, match="nonsense"):
        sweep(simulate, grid, executor=executor)


@pytest.mark.parametrize("values", ["abc", []])
def test_a_setting_needs_a_list_of_values(values: object) -> None:
    with pytest.raises(ConfigError, match="sweep over cores"):
        sweep(simulate, {"cores": values})  # type: ignore[dict-item]


def test_every_public_name_is_there() -> None:
    for name in penstock.sim.__all__:
        assert getattr(penstock.sim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        penstock.sim.nonsense
