"""From the name of a scheduler to a ready set; names of other packages come from entry points."""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.scheduling import ready_queues, registry
from penstock.scheduling.compute import Fifo, Lifo
from penstock.scheduling.view import ReadySet

__all__ = ["ready_set"]


def ready_set(name: str) -> tuple[ReadySet, bool]:
    """The ready set for a policy, and whether the policy looks at where data are."""
    if name not in registry.policy_names():
        _load_entry_points()
    chosen = registry.policy(name)
    return ready_queues.ready_set(chosen), not isinstance(chosen, Fifo | Lifo)


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for entry in entry_points(group=registry.ENTRY_POINT_GROUP):
        if entry.name not in registry.policy_names():
            try:
                registry.register(entry.name, entry.load())
            except Exception as error:
                raise ConfigError(f"the scheduler {entry.name!r} of {entry.value} cannot be loaded: {error}") from error
