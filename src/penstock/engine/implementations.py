"""Tasks with several implementations: which of them an attempt is of is settled when it gets its place.

Until then the task is *open*: it fits a node if any of its implementations does. Each implementation is tried once;
from then on the fastest, by measured time, of those that fit the node is taken. What earlier runs measured counts, so
that a second run need not try the slow ones again.
"""

from __future__ import annotations

from math import inf

from msgspec.structs import replace

from penstock.engine.ledger import NodeRecord
from penstock.engine.state import State, TaskRecord
from penstock.model.tasks import TaskSpec

__all__ = ["reopen", "settle"]


def settle(state: State, task: TaskRecord, node: NodeRecord) -> None:
    """Choose the implementation for an attempt on this node."""
    call = task.call
    fitting = [one for one in call.spec.implementations if node.fits(one.requirements)]
    chosen = min(fitting, key=lambda one: _rank(state, one))
    state.tried[chosen.function] = state.tried.get(chosen.function, 0) + 1
    task.open_call = call
    task.call = replace(call, spec=chosen)
    task.requirements = chosen.requirements


def reopen(task: TaskRecord) -> None:
    """The attempt came to nothing: the next may be of another implementation."""
    assert task.open_call is not None
    task.call, task.open_call = task.open_call, None
    task.requirements = task.call.spec.requirements


def _rank(state: State, spec: TaskSpec) -> tuple[float, int]:
    """Untried first, then by time; last what was tried and has not come back, the less often tried the better."""
    seconds = state.expected(spec)
    tried = state.tried.get(spec.function, 0)
    if seconds is None:
        return (inf if tried else -inf), tried
    return seconds, 0
