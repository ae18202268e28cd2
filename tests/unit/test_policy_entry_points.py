"""Schedulers of other packages, found by entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

import penstock
from penstock import ConfigError
from penstock.runtime import policies
from penstock.scheduling import registry
from penstock.scheduling.view import NodeView, ReadyTask


class Smallest:
    """Of another package: smaller task numbers last, just to be different."""

    name = "smallest"

    def score(self, task: ReadyTask, node: NodeView) -> float:
        return float(task.task)


@pytest.fixture
def other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EntryPoints(
        [
            EntryPoint("smallest", f"{__name__}:Smallest", registry.ENTRY_POINT_GROUP),
            EntryPoint("broken", "no_such_module:Policy", registry.ENTRY_POINT_GROUP),
        ]
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.select(group=group))
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    monkeypatch.setattr(
        EntryPoint, "load", lambda entry: Smallest if entry.name == "smallest" else __import__("no_such")
    )


def test_a_scheduler_of_another_package_runs_a_program(other_package: None, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register("smallest", Smallest)
    with penstock.Runtime(cpus=2, scheduler="smallest"):
        double = penstock.task(_double)
        assert penstock.wait_on([double(i) for i in range(50)]) == [2 * i for i in range(50)]


def test_entry_points_are_looked_at_for_a_name_that_is_not_built_in(other_package: None) -> None:
    with pytest.raises(ConfigError, match="broken"):
        policies.ready_set("unheard-of")
    assert "smallest" in registry.policy_names()


def test_built_in_names_need_no_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: str) -> None:
        raise AssertionError("looked for entry points")

    monkeypatch.setattr("importlib.metadata.entry_points", fail)
    policies.ready_set("locality")


def _double(x: int) -> int:
    return 2 * x
