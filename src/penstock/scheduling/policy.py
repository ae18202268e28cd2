"""What a policy is: a score of (task, node), higher served first. Ready sets do the searching.

The order between all placements that fit is total, and the same in every ready set:
larger priority; larger score; less loaded node, if the policy asks for it; smaller serial; smaller node index.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from penstock.scheduling.view import NodeView, ReadyTask

__all__ = ["Policy", "SparsePolicy", "asks_for_idle_nodes"]


class Policy(Protocol):
    """The whole of what a policy must have. It may also say ``idle_first = True``, see ``asks_for_idle_nodes``."""

    @property
    def name(self) -> str: ...

    def score(self, task: ReadyTask, node: NodeView) -> float:
        """How much this task wants this node. Never NaN."""
        ...


class SparsePolicy(ABC):
    """A policy whose score for a task is one number everywhere, but for a few nodes where it is higher.

    Knowing this, a ready set can order a task once, when it becomes ready, instead of scoring it at each decision.
    The numbers must depend on the task alone, and not change while it is in the ready set.
    """

    name: str
    idle_first: bool = False

    @abstractmethod
    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        """The score everywhere, and the score by node name where it is higher (lower entries do not count)."""

    def score(self, task: ReadyTask, node: NodeView) -> float:
        everywhere, higher = self.sparse_score(task)
        return max(everywhere, higher.get(node.name, everywhere))


def asks_for_idle_nodes(policy: Policy) -> bool:
    """Whether placements of equal score go to the node with fewer computing units in use, before age counts."""
    return bool(getattr(policy, "idle_first", False))
