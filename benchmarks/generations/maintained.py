"""V2: as V1, with the lists edited by other threads, so that maintenance is off the critical path.

The edits of one list form a chain that one thread at a time works off, in the order in which they were asked for; a
list is read only when its chain is at its end. The source makes a job per edit that waits for the one before it (a
*token*). A future per edit costs more in CPython than the edit; here a chain is a queue of edits, and the token its
end. The first list is edited at once, as in the source.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from queue import SimpleQueue

from benchmarks.generations.ordered_list import Key
from benchmarks.generations.persistent import Edit, PersistentLists, Standing
from penstock.errors import InternalError
from penstock.scheduling.policy import Policy
from penstock.scheduling.view import NodeView

__all__ = ["MaintainedLists"]


class _Chain:
    """The edits of one list that are still to be done."""

    __slots__ = ("_active", "_edits", "_ended", "_queue", "_slot")

    def __init__(self, slot: int, queue: SimpleQueue[_Chain | None]) -> None:
        self._slot = slot
        self._queue = queue
        self._edits: deque[tuple[Edit, Standing]] = deque()
        self._ended = threading.Condition()
        #: some thread has it, or will take it
        self._active = False

    def ask(self, edit: Edit, standing: Standing) -> None:
        with self._ended:
            self._edits.append((edit, standing))
            if self._active:
                return
            self._active = True
        self._queue.put(self)

    def work_off(self) -> None:
        slot = self._slot
        while True:
            with self._ended:
                if not self._edits:
                    self._active = False
                    self._ended.notify()
                    return
                edit, standing = self._edits.popleft()
            edit(slot, standing)

    def wait(self, broken: list[BaseException]) -> None:
        with self._ended:
            while self._active and not broken:
                self._ended.wait(1.0)
        if broken:
            raise InternalError(f"a list of ready tasks could not be edited: {broken[0]!r}") from broken[0]


class MaintainedLists(PersistentLists):
    """The new scheduler with a pool of threads; ``close`` ends them."""

    def __init__(self, policy: Policy, *, threads: int = 2) -> None:
        super().__init__(policy)
        self._chains: list[_Chain] = []
        self._queue: SimpleQueue[_Chain | None] = SimpleQueue()
        self._broken: list[BaseException] = []
        self._threads = [threading.Thread(target=self._maintain, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _maintain(self) -> None:
        while (chain := self._queue.get()) is not None:
            try:
                chain.work_off()
            except BaseException as error:
                self._broken.append(error)
                return

    def _joined(self, node: NodeView) -> None:
        self._chains.append(_Chain(len(self._lists), self._queue))
        super()._joined(node)

    def _edit_all(self, edit: Edit, standing: Standing) -> None:
        """The first list now, the others when a thread comes to it."""
        chains = self._chains
        slots = iter(self._slots.values())
        for first in slots:
            chains[first].wait(self._broken)  # it may have become the first just now
            edit(first, standing)
            break
        for slot in slots:
            chains[slot].ask(edit, standing)

    def _entries(self, slot: int) -> Iterable[Key]:
        self._chains[slot].wait(self._broken)
        return super()._entries(slot)
