"""Policies by name, as chosen with ``--scheduler``.

The built-in ones are here from the start. Those of other packages are found through the entry points of group
``penstock.policies``; reading these is I/O, so the runtime does it and registers what it finds.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import ConfigError
from penstock.scheduling.compute import Fifo, FifoData, Lifo, LoadBalance, Locality
from penstock.scheduling.policy import Policy

__all__ = ["ENTRY_POINT_GROUP", "policy", "policy_names", "register"]

ENTRY_POINT_GROUP = "penstock.policies"

_factories: dict[str, Callable[[], Policy]] = {
    built_in.name: built_in for built_in in (Fifo, Lifo, Locality, LoadBalance, FifoData)
}


def register(name: str, factory: Callable[[], Policy]) -> None:
    """Make a policy known by ``name``; ``factory`` (its class, as a rule) is called once per run."""
    if _factories.setdefault(name, factory) is not factory:
        raise ConfigError(f"there is already a scheduling policy named {name!r}; choose another name")


def policy_names() -> list[str]:
    return sorted(_factories)


def policy(name: str) -> Policy:
    """A new policy of that name."""
    factory = _factories.get(name)
    if factory is None:
        from difflib import get_close_matches  # only errors need it

        near = get_close_matches(name, _factories, n=2)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise ConfigError(f"unknown scheduling policy {name!r}: {hint}Known are {', '.join(policy_names())}")
    made = factory()
    if not callable(getattr(made, "score", None)):
        raise ConfigError(f"scheduling policy {name!r}: {made!r} has no method score(task, node)")
    return made
