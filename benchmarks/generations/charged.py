"""Our decisions at the price of any generation: a ready set that decides as ours does and says what that would cost.

With one order of tasks for all nodes, all generations place the same tasks on the same nodes; they differ in what it
costs to find that out. A simulation that is given `Charged.seconds` charges its master with the measured cost of the
chosen generation, at the number of tasks that are ready at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.generations.cost import Cost
from penstock.engine.engine import Engine
from penstock.model.resources import Requirements
from penstock.scheduling.compute import Fifo
from penstock.scheduling.ready_queues import ready_set
from penstock.scheduling.view import NodeView, ReadyTask

__all__ = ["Charged"]


class Charged:
    """A ready set for one simulation."""

    def __init__(self, cost: Cost, *, besides: float = 0.0) -> None:
        """``besides``: seconds that the master spends on every task that ends, beside deciding."""
        self._inner = ready_set(Fifo())
        self._cost = cost
        self._besides = besides
        self._used: dict[str, int] = {}
        #: since the last event
        self._added = 0
        self._placed = 0
        self._released = 0

    def seconds(self, engine: Engine) -> float:
        """What the last event would have cost."""
        added, placed, released = self._added, self._placed, self._released
        if not (added or released):
            return 0.0
        self._added = self._placed = self._released = 0
        ready = len(self._inner)
        # Whatever was placed on more than was given back found room that was there before.
        at_once = min(added, max(0, placed - released))
        seconds = at_once * self._cost.start
        if added > at_once:
            seconds += (added - at_once) * self._cost.add(ready)
        return seconds + released * (self._cost.release(ready) + self._besides) if released else seconds

    def __len__(self) -> int:
        return len(self._inner)

    def add(self, task: ReadyTask) -> None:
        self._added += 1
        self._inner.add(task)

    def remove(self, task: ReadyTask) -> None:
        self._placed += 1
        self._inner.remove(task)

    def node_changed(self, node: NodeView) -> None:
        used, before = node.used_cpus, self._used.get(node.name, 0)
        self._used[node.name] = used
        self._released += used < before
        self._inner.node_changed(node)

    def node_gone(self, node: NodeView) -> None:
        self._used.pop(node.name, None)
        self._inner.node_gone(node)

    def propose(self) -> tuple[ReadyTask, NodeView] | None:
        return self._inner.propose()

    def heads(self) -> Iterable[ReadyTask]:
        return self._inner.heads()

    def next_alike(self, node: NodeView, requirements: Requirements) -> ReadyTask | None:
        return self._inner.next_alike(node, requirements)
