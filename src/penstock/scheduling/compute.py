"""The built-in policies for tasks that compute. Each says what it is bad at."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from penstock.scheduling.policy import SparsePolicy
from penstock.scheduling.view import ReadyTask

__all__ = ["Fifo", "FifoData", "Lifo", "LoadBalance", "Locality"]

#: for tasks that no node attracts more than another
_NOWHERE: Mapping[str, float] = {}
_INDIFFERENT: tuple[float, Mapping[str, float]] = (0, _NOWHERE)
_FIRST: tuple[float, Mapping[str, float]] = (1, _NOWHERE)


class Fifo(SparsePolicy):
    """Oldest ready task first, but before all others those that read what takes memory only for its readers.

    So intermediate results that are large are used up before more of them are made.

    Weakness: blind to where data are, and it goes through a graph in breadth: what is small, or what the program
    holds, is all alive at once.
    """

    name = "fifo"

    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        return _FIRST if task.relieves else _INDIFFERENT


class Lifo(SparsePolicy):
    """Newest ready task first: goes through a graph in depth, so few intermediate results are alive at once.

    Weakness: an old task starves for as long as newer ones keep coming; blind to where data are.
    """

    name = "lifo"

    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        return task.serial, _NOWHERE


class Locality(SparsePolicy):
    """The task with the most bytes of input on the node first.

    Weakness: a task with small inputs, or with none, waits behind every task with larger ones; and it looks only
    at what is free now, so a task goes to a node without its data rather than wait for the one that has them.
    """

    name = "locality"

    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        return 0, task.locality


class LoadBalance(SparsePolicy):
    """As ``locality``; on equal bytes, the node with fewer computing units in use.

    Weakness: load is units in use, not work left nor share of the node: a large node counts as loaded before a
    small one that is nearly full. The weaknesses of ``locality`` stay.
    """

    name = "load_balance"
    idle_first = True

    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        return 0, task.locality


class FifoData(SparsePolicy):
    """The successors that completions have freed, oldest first, on any node; then as ``locality``.

    Weakness: a freed successor takes the first node that fits, even one without its data; and a long chain keeps
    its place in front, so that tasks with no predecessor start late.
    """

    name = "fifo_data"

    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        if task.freed:
            return inf, _NOWHERE
        return 0, task.locality
