"""What policies may see of tasks and nodes: read-only, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from penstock.model.resources import Requirements

__all__ = ["NodeView", "NodeWatcher", "ReadySet", "ReadyTask"]


class ReadyTask(Protocol):
    """A task whose data exist and that wants a place."""

    @property
    def task(self) -> int: ...

    #: order in which tasks became ready; unique, kept when a task is taken back and tried again
    @property
    def serial(self) -> int: ...

    @property
    def priority(self) -> int: ...

    @property
    def requirements(self) -> Requirements: ...

    #: bytes of its inputs on each node that holds any
    @property
    def locality(self) -> Mapping[str, int]: ...

    #: it was the oldest successor freed by a completion (for policies that follow the data)
    @property
    def freed(self) -> bool: ...

    #: it reads something that takes much memory, which is free when its readers are over
    @property
    def relieves(self) -> bool: ...


class NodeView(Protocol):
    """A node as a policy sees it."""

    @property
    def name(self) -> str: ...

    #: order in which nodes joined; unique
    @property
    def index(self) -> int: ...

    #: computing units in use: the node's load
    @property
    def used_cpus(self) -> int: ...

    def fits(self, requirements: Requirements) -> bool:
        """Whether an attempt with these requirements could start here now."""
        ...

    def is_suitable(self, requirements: Requirements) -> bool:
        """Whether it could start here if nothing else ran."""
        ...


class NodeWatcher(Protocol):
    """Is told of nodes, by whoever keeps account of them."""

    def node_changed(self, node: NodeView) -> None:
        """What is free on a node changed, or it joined. It is the same object until the node is gone."""
        ...

    def node_gone(self, node: NodeView) -> None:
        """A node takes nothing any more. One of the same name that joins later is another, with another index."""
        ...


class ReadySet(NodeWatcher, Protocol):
    """Holds the ready tasks and answers which should go where next. Two implementations, one behaviour."""

    def add(self, task: ReadyTask) -> None: ...

    def remove(self, task: ReadyTask) -> None: ...

    def __len__(self) -> int: ...

    def propose(self) -> tuple[ReadyTask, NodeView] | None:
        """The best placement that fits now on any node told of, or None. The task stays until it is removed."""
        ...

    def heads(self) -> Iterable[ReadyTask]:
        """The first task of each requirements there are, by priority, score off all data, and serial; in any order."""
        ...

    def next_alike(self, node: NodeView, requirements: Requirements) -> ReadyTask | None:
        """The best task for ``node`` among those with exactly these requirements, whether or not it fits now."""
        ...
