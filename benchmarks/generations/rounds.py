"""What the generations share: a round of placements for every slot that is released, told one placement at a time.

    node_changed ─▶ released ─┐
    add ─▶ arrived ───────────┴▶ round (generator) ─▶ propose ─▶ the engine launches ─▶ remove, node_changed ─▶ …

The published schedulers launch within their loop. Here the engine launches, so a round stops at each placement and goes
on once the engine has taken the tokens. Between two rounds no waiting task fits anywhere; so tasks that become ready
while no slot is released are tried by themselves, which the source does not show but must do too.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from benchmarks.generations.ordered_list import Key
from penstock.errors import InternalError
from penstock.model.resources import Requirements
from penstock.scheduling.policy import Policy, SparsePolicy, asks_for_idle_nodes
from penstock.scheduling.view import NodeView, ReadyTask

__all__ = ["Generation", "Placement", "last_key"]

Placement = tuple[ReadyTask, NodeView]


def last_key(task: ReadyTask) -> Key:
    """The place of a task that can never run on the node whose order it is, but may run on others: after all others."""
    return sys.maxsize, 0.0, task.serial


class Generation(ABC):
    """A ready set that decides in rounds, as the generations do."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._idle_first = asks_for_idle_nodes(policy)
        #: every ready task, by serial: also what tells a task that is added twice
        self._known: dict[int, ReadyTask] = {}
        self._nodes: dict[str, NodeView] = {}
        #: computing units in use when a node was last looked at
        self._used: dict[str, int] = {}
        #: tasks that no round has seen yet
        self._arrived: dict[int, ReadyTask] = {}
        #: nodes that have released a slot since their last round, in order
        self._released: dict[str, NodeView] = {}
        self._round: Iterator[Placement] | None = None
        self._proposal: Placement | None = None

    # --- what a generation is made of -------------------------------------------------------------------------------

    @abstractmethod
    def _insert(self, task: ReadyTask) -> None:
        """A task becomes ready."""

    @abstractmethod
    def _withdraw(self, task: ReadyTask) -> None:
        """A task is ready no more; it may be in the middle of a round."""

    @abstractmethod
    def _joined(self, node: NodeView) -> None: ...

    @abstractmethod
    def _left(self, node: NodeView) -> None: ...

    @abstractmethod
    def _grew(self, node: NodeView) -> None:
        """More is free on a node than before."""

    @abstractmethod
    def _release(self, node: NodeView, arrived: dict[int, ReadyTask]) -> Iterator[Placement]:
        """The round of a node that has released a slot."""

    @abstractmethod
    def _arrival(self, arrived: dict[int, ReadyTask]) -> Iterator[Placement]:
        """The round of tasks that have become ready while nothing was released."""

    @abstractmethod
    def _in_order(self, node: NodeView) -> Iterable[ReadyTask]:
        """All ready tasks in the order of this node."""

    # --- the contract of ready sets ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._known)

    def add(self, task: ReadyTask) -> None:
        if task.serial in self._known:
            raise InternalError(f"task {task.task} (serial {task.serial}) became ready twice")
        self._finish_round()
        self._known[task.serial] = self._arrived[task.serial] = task
        self._insert(task)

    def remove(self, task: ReadyTask) -> None:
        if self._known.pop(task.serial, None) is None:
            raise InternalError(f"task {task.task} (serial {task.serial}) is to be removed, but is not ready")
        self._arrived.pop(task.serial, None)
        self._withdraw(task)

    def node_changed(self, node: NodeView) -> None:
        name = node.name
        before = self._used.get(name)
        self._used[name] = used = node.used_cpus
        if before is None:
            self._finish_round()
            self._nodes[name] = node
            self._joined(node)
        elif used > before:  # an attempt has taken its tokens: the round goes on
            if self._proposal is not None and self._proposal[0].serial not in self._known:
                self._advance()
            return
        self._grew(node)
        self._released[name] = node

    def node_gone(self, node: NodeView) -> None:
        self._finish_round()
        self._released.pop(node.name, None)
        del self._used[node.name]
        self._left(self._nodes.pop(node.name))

    def propose(self) -> tuple[ReadyTask, NodeView] | None:
        while True:
            proposal = self._proposal
            if proposal is not None:
                task, node = proposal
                if task.serial in self._known and node.fits(task.requirements):
                    return proposal
                self._advance()
            elif self._round is None and not self._begin():
                return None

    def next_alike(self, node: NodeView, requirements: Requirements) -> ReadyTask | None:
        self._finish_round()
        for task in self._in_order(node):
            if task.requirements == requirements:
                return task
        return None

    def heads(self) -> Iterable[ReadyTask]:
        """The generations do not know groups: all tasks are gone through."""
        first: dict[Requirements, ReadyTask] = {}
        for task in sorted(self._known.values(), key=self._key_anywhere):
            first.setdefault(task.requirements, task)
        return first.values()

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Start the next round that is due; whether there is one."""
        if not self._known:
            self._released.clear()  # nothing waits for what was released
        if self._released:
            name = next(iter(self._released))
            arrived, self._arrived = self._arrived, {}
            self._round = self._release(self._released.pop(name), arrived)
        elif self._arrived and self._nodes:
            arrived, self._arrived = self._arrived, {}
            self._round = self._arrival(arrived)
        else:
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        """Go on to the next placement of the round, or to its end."""
        assert self._round is not None
        self._proposal = next(self._round, None)
        if self._proposal is None:
            self._round = None
            if not self._known:
                self._released.clear()

    def _finish_round(self) -> None:
        """Something else is about to change: end a round whose last proposal was taken up, or was left."""
        while self._proposal is not None:
            task, node = self._proposal
            if task.serial in self._known and node.fits(task.requirements):
                # The engine did not want it now; it is looked at again.
                self._released.setdefault(node.name, node)
            self._advance()

    # --- scores -----------------------------------------------------------------------------------------------------

    def _key(self, task: ReadyTask, node: NodeView) -> Key | None:
        """The place of a task in the order of a node; None if it can never run there."""
        if not node.is_suitable(task.requirements):
            return None
        return -task.priority, -self._policy.score(task, node), task.serial

    def _key_anywhere(self, task: ReadyTask) -> Key:
        score = self._policy.sparse_score(task)[0] if isinstance(self._policy, SparsePolicy) else 0.0
        return -task.priority, -score, task.serial

    def _best(self, task: ReadyTask, nodes: Iterable[NodeView]) -> NodeView | None:
        """The node on which a task scores highest, of those where it fits."""
        need = task.requirements
        found: NodeView | None = None
        best: tuple[float, int, int] | None = None
        for node in nodes:
            if node.fits(need):
                load = node.used_cpus if self._idle_first else 0
                rank = (-self._policy.score(task, node), load, node.index)
                if best is None or rank < best:
                    best, found = rank, node
        return found
