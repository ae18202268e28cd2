"""The behaviour of programs on the simulator: each call declares the value that its function would return.

Functions that update objects or files are beyond that, and skip the test that calls them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.resources import Node
from penstock.runtime import session, simulated_runtime
from penstock.runtime.declaration import Declaration
from penstock.runtime.simulated_runtime import Plan, SimulatedRuntime

__all__ = ["simulation_of_bodies"]


@contextlib.contextmanager
def simulation_of_bodies() -> Iterator[None]:
    """Runtimes made meanwhile are simulated, on two computing units, with a second for each call."""
    patch = pytest.MonkeyPatch()
    patch.setattr(session, "simulation", Plan([Node("simulated", 2, 10**10)], default_duration=1.0))
    patch.setattr(SimulatedRuntime, "call", _call)
    try:
        yield
    finally:
        patch.undo()


_plain_call = simulated_runtime.SimulatedRuntime.call
_declared: dict[Declaration, Declaration] = {}


def _call(runtime: SimulatedRuntime, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if any(direction.writes for direction in declaration.directions.values()):
        pytest.skip("it updates objects or files, which the simulator leaves as they are")
    known = _declared.get(declaration)
    if known is None:
        known = _declared[declaration] = dataclasses.replace(declaration, simulated=_on_copies(declaration))
    return _plain_call(runtime, known, args, kwargs)


def _on_copies(declaration: Declaration) -> Any:
    def body(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            args, kwargs = copy.deepcopy((args, kwargs))  # as a task gets its arguments
        return declaration.body(*args, **kwargs)

    return body
