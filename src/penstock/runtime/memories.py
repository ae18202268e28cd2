"""Memory of the program's of which tasks update parts: which bytes of it are with the tasks, and how they come back.

The first task that writes a part of an array makes its memory shared: a segment as large as all of it, into which bytes
are copied as tasks are given them. From then on tasks work there, in place. What they have written is theirs until the
program waits for it; the rest is the program's, which may change it at any time.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.data.owners import Located, is_buffer, locate
from penstock.data.undo import gather, scatter
from penstock.errors import ArgumentChanged
from penstock.graph.regions import Accesses, Owned, Region, size_of
from penstock.model.data import SegmentId, VersionId
from penstock.model.events import Released
from penstock.model.tasks import Failure

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["Memories", "Memory", "Token"]

#: references to an owner that only we hold: its record's, a variable's, and getrefcount's
_OURS = 3


class Memory:
    """The memory of one owner, while parts of it are with tasks."""

    def __init__(self, located: Located, segment: SegmentId, shared: memoryview) -> None:
        self.owner = located.owner
        self.segment = segment
        #: as tasks see it
        self.shared = shared
        self.accesses = Accesses()
        #: what tasks have written and the program does not have
        self.owned = Owned()
        #: strict mode: what the program's bytes were when tasks took them over
        self.pictures: dict[Region, bytes] = {}

    def own(self) -> memoryview:
        """As the program sees it."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(self.owner, numpy.ndarray):
            return memoryview(self.owner.view(numpy.ndarray).ravel("K").view(numpy.uint8))
        try:
            return memoryview(self.owner).cast("B")
        except TypeError:  # it has a format of its own
            assert numpy is not None
            return memoryview(numpy.frombuffer(self.owner, numpy.uint8))

    def take(self, regions: Iterable[Region]) -> None:
        """Give the program what tasks have made."""
        own = self.own()
        for one in regions:
            scatter(_bytes(self.shared, one), one, own)


class Token(NamedTuple):
    """Something that exists when a task is over."""

    version: VersionId


def _bytes(memory: memoryview, one: Region) -> memoryview:
    if not one.dims:
        return memory[one.lo : one.hi]
    gathered = memoryview(bytearray(size_of(one)))
    gather(memory, one, gathered)
    return gathered


class Memories:
    """All memory of a run of which parts are with tasks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_owner: dict[int, Memory] = {}
        #: whether there was ever a task that updates a buffer, as a whole or in parts, of which there may be views
        self.used = False
        #: owners of which tasks have changed parts, by address, as far as they take weak references
        self._changed = weakref.WeakValueDictionary[int, Any]()

    def __len__(self) -> int:
        return len(self._by_owner)

    def of(self, owner: Any) -> Memory | None:
        """The memory of an owner, if parts of it are with tasks."""
        return self._by_owner.get(id(owner))

    def all(self) -> list[Memory]:
        """All memory of which parts are, or were, with tasks."""
        return list(self._by_owner.values())

    def share(self, located: Located) -> Memory:
        """The memory of which something is a part."""
        memory = self._by_owner.get(id(located.owner))
        if memory is None:
            self._look_around()
            segment, view = self._runtime.segments.share(located.size)
            memory = self._by_owner[id(located.owner)] = Memory(located, segment, view)
            if type(located.owner).__weakrefoffset__:
                self._changed[id(located.owner)] = located.owner
        return memory

    def may_have_changed(self, obj: Any) -> bool:
        """Whether tasks may have changed a result that is a buffer, as a part of its owner, in whatever call."""
        if not self.used or not is_buffer(type(obj)):
            return False
        located = locate(obj)
        return isinstance(located, Located) and id(located.owner) in self._changed

    def is_over(self, token: VersionId) -> bool:
        """Whether nobody has to wait for a task: it has delivered, or the program knows that it did not."""
        record = self._runtime.driver.engine.state.versions.get(token)
        if record is None:
            return True
        outcome = record.outcome
        if isinstance(outcome, Failure):
            return outcome.path[0] not in self._runtime.driver.unobserved
        return outcome is not None

    # --- to the tasks -------------------------------------------------------------------------------------------

    def bring(self, memory: Memory, one: Region) -> None:
        """Copy to shared memory what of a region is the program's; a task is about to be given all of it."""
        lacking = memory.owned.lacking(one)
        if not lacking:
            return
        own = memory.own()
        for region in lacking:
            content = _bytes(own, region)
            earlier = [token for token in memory.accesses.before(region, writes=True) if not self.is_over(token)]
            if earlier:
                if content == _bytes(memory.shared, region):
                    continue
                self._wait(earlier)  # who reads it has the bytes of the time of its call
            scatter(content, region, memory.shared)

    def watch(self, memory: Memory, one: Region) -> None:
        """Strict mode: remember what the program has of a region that a task writes."""
        for region in memory.owned.lacking(one):
            memory.pictures[region] = bytes(_bytes(memory.own(), region))

    def ensure_unchanged(self, memory: Memory, where: str) -> None:
        """Strict mode: refuse changes of the program that would be lost."""
        own = memory.own() if memory.pictures else None
        for region, before in memory.pictures.items():
            if own is not None and _bytes(own, region) != before:
                raise ArgumentChanged(
                    f"{where}: the program changed a part of this {type(memory.owner).__name__} while tasks were "
                    f"updating it, and the change would be lost; call wait_on() on it first"
                )

    # --- back to the program ------------------------------------------------------------------------------------

    def await_buffer(self, obj: Any) -> None:
        """Bring a buffer up to date, or all parts of one."""
        if not is_buffer(type(obj)):
            return
        located = locate(obj)
        if not isinstance(located, Located):
            return
        whole = obj is located.owner
        memory = self.of(located.owner)
        if memory is not None:
            self.take_back(memory, None if whole else located.region)
        elif located.holder is not obj:
            datum = self._runtime.identity.find(located.holder)
            if datum is not None and not datum.shared:
                self._runtime.take_back(located.holder, "wait_on")

    def take_back(self, memory: Memory, one: Region | None = None) -> None:
        """Wait until the program can have a region, or all, and give it that."""
        while writers := self._take_unless_written(memory, one):
            self._wait(writers)

    def _take_unless_written(self, memory: Memory, one: Region | None) -> list[VersionId]:
        """Give the program a region, or all; if tasks write there, called by other threads just now even, say which."""
        with self._runtime.calling:
            if self._by_owner.get(id(memory.owner)) is not memory:
                return []  # another thread has waited for all of it
            regions = memory.owned.all() if one is None else memory.owned.meeting(one)
            tokens = [token for region in regions for token in memory.accesses.before(region, writes=False)]
            writers = [token for token in tokens if not self.is_over(token)]
            if writers:
                return writers
            self.ensure_unchanged(memory, "wait_on")
            memory.take(regions)
            memory.owned.remove(regions)
            memory.pictures.clear()
            if not memory.owned:
                self._release(memory.accesses.forget(self.is_over))
                if not len(memory.accesses):
                    self._drop(memory)
            return []

    def finish(self) -> None:
        """No task is under way: the program has everything again, but for what another thread has called since."""
        if not self._by_owner:
            return  # and need not wait for a thread that is in the middle of a call
        with self._runtime.calling:
            for memory in list(self._by_owner.values()):
                if not any(self._is_under_way(token) for token in memory.accesses.tokens()):
                    self.ensure_unchanged(memory, "barrier")
                    memory.take(memory.owned.all())
                    self._drop(memory)

    def _is_under_way(self, token: VersionId) -> bool:
        """Whether a task has yet to end, one way or the other."""
        record = self._runtime.driver.engine.state.versions.get(token)
        return record is not None and record.outcome is None

    def _wait(self, tokens: Iterable[VersionId]) -> None:
        for token in list(dict.fromkeys(tokens)):
            if not self.is_over(token):
                self._runtime.value_of(Token(token))

    def _look_around(self) -> None:
        """Forget memory that only this table keeps alive."""
        for memory in list(self._by_owner.values()):
            if sys.getrefcount(memory.owner) <= _OURS - 1:
                self._release(memory.accesses.forget(self.is_over))
                if not len(memory.accesses):
                    self._drop(memory)

    def _drop(self, memory: Memory) -> None:
        del self._by_owner[id(memory.owner)]
        self._release(memory.accesses.forget(lambda token: True))
        self._runtime.segments.unshare(memory.segment)

    def _release(self, tokens: Iterable[VersionId]) -> None:
        for token in tokens:
            self._runtime.driver.post(Released((token,)))
