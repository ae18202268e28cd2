"""V1: one ordered list per node that lasts, and the set of nodes that can still run something; a single thread.

A round reads the list of the node that released a slot, places each task on any node with room, and stops when no node
has room. Launched tasks are taken out of all lists when the round is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from benchmarks.generations.ordered_list import Key, OrderedList
from benchmarks.generations.rounds import Generation, Placement, last_key
from penstock.model.resources import Requirements
from penstock.scheduling.policy import Policy
from penstock.scheduling.view import NodeView, ReadyTask

__all__ = ["Edit", "PersistentLists", "Standing"]


class Standing:
    """A ready task, and under which key it stands in each list: scores are not trusted to stay the same."""

    __slots__ = ("keys", "task")

    def __init__(self, task: ReadyTask) -> None:
        self.task = task
        #: by slot of the list; None where the task can never run
        self.keys: list[Key | None] = []


#: what is done to one list, given by its slot, for a task
Edit = Callable[[int, Standing], None]


class PersistentLists(Generation):
    """The new scheduler, with maintenance of its lists on the critical path."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._standing: dict[int, Standing] = {}
        #: by slot; None where the node is gone
        self._lists: list[OrderedList | None] = []
        self._hosts: list[NodeView] = []
        self._slots: dict[str, int] = {}
        #: every kind of requirements seen so far
        self._kinds: set[Requirements] = set()
        #: nodes that can still run something: a task of some kind
        self._available: dict[str, NodeView] = {}
        #: tasks to be taken out of the lists when the round is over
        self._erase: list[Standing] = []
        self._scanning = False

    # --- the lists --------------------------------------------------------------------------------------------------

    def _insert(self, task: ReadyTask) -> None:
        if task.requirements not in self._kinds:
            self._kinds.add(task.requirements)
            for node in self._nodes.values():
                self._grew(node)
        standing = self._standing[task.serial] = Standing(task)
        standing.keys = [None] * len(self._lists)
        self._edit_all(self._enter, standing)

    def _withdraw(self, task: ReadyTask) -> None:
        standing = self._standing.pop(task.serial)
        if self._scanning:
            self._erase.append(standing)
        else:
            self._edit_all(self._erase_from, standing)

    def _edit_all(self, edit: Edit, standing: Standing) -> None:
        """Edit the lists of all nodes."""
        for slot in self._slots.values():
            edit(slot, standing)

    def _enter(self, slot: int, standing: Standing) -> None:
        """Put a task into one list, if it can ever run there."""
        key = standing.keys[slot] = self._key(standing.task, self._hosts[slot])
        entries = self._lists[slot]
        if key is not None and entries is not None:
            entries.add(key)

    def _erase_from(self, slot: int, standing: Standing) -> None:
        key = standing.keys[slot]
        entries = self._lists[slot]
        if key is not None and entries is not None:
            entries.remove(key)

    def _entries(self, slot: int) -> Iterable[Key]:
        """One list with all modifications up to now."""
        entries = self._lists[slot]
        return () if entries is None else entries

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _joined(self, node: NodeView) -> None:
        slot = self._slots[node.name] = len(self._lists)
        self._lists.append(OrderedList())
        self._hosts.append(node)
        for standing in self._standing.values():
            standing.keys.append(None)
            self._enter(slot, standing)
        # What was blocked for want of any node is tried in the round of this one.

    def _left(self, node: NodeView) -> None:
        self._lists[self._slots.pop(node.name)] = None
        self._available.pop(node.name, None)

    def _grew(self, node: NodeView) -> None:
        if any(node.fits(kind) for kind in self._kinds):
            self._available[node.name] = node
        else:
            self._available.pop(node.name, None)

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _release(self, node: NodeView, arrived: dict[int, ReadyTask]) -> Iterator[Placement]:
        known, slot = self._known, self._slots[node.name]
        listed = (known[key[2]] for key in self._entries(slot) if key[2] in known)
        # What has just arrived and can never run here is in no list that is read now, but may find room elsewhere.
        others = sorted(serial for serial in arrived if self._standing[serial].keys[slot] is None)
        return self._scan(chain(listed, (known[serial] for serial in others if serial in known)))

    def _arrival(self, arrived: dict[int, ReadyTask]) -> Iterator[Placement]:
        node = next(iter(self._nodes.values()))
        return self._scan(sorted(arrived.values(), key=lambda task: self._key(task, node) or last_key(task)))

    def _scan(self, tasks: Iterable[ReadyTask]) -> Iterator[Placement]:
        """Try tasks in order while any node has room. The lists are not edited meanwhile."""
        available = self._available
        self._scanning = True
        if available:
            for task in tasks:
                node = self._best(task, available.values())
                if node is None:
                    continue  # it fits on no node that has room: it stays in all lists
                yield task, node
                self._grew(node)
                if not available:
                    break
        self._scanning = False
        for standing in self._erase:
            self._edit_all(self._erase_from, standing)
        self._erase.clear()

    def _in_order(self, node: NodeView) -> Iterable[ReadyTask]:
        return [self._known[key[2]] for key in self._entries(self._slots[node.name])]
