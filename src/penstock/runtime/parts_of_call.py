"""The parts of shared memory that one call uses: found while its arguments are looked at and pickled.

A part that the call writes makes the memory of its owner shared. One that it only reads is found there if tasks have
written it; else it travels as any argument does. Whoever uses the same bytes waits for this call, through a version
that says only that the call is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.data.owners import Located, Unknown, hold, is_buffer, is_more, let_go, locate
from penstock.data.parts import Part, PartOfSlot, PartOfWhole
from penstock.errors import CallError
from penstock.graph.regions import Region
from penstock.graph.wiring import Wiring
from penstock.model.data import VersionId
from penstock.model.tasks import Output, Steps, Use
from penstock.runtime.memories import Memory
from penstock.runtime.reverting import datum_of

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["PartsOfCall"]


class _Uses:
    """How a call uses one memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.read: list[Region] = []
        self.changed: list[Region] = []
        #: where in the arguments what it changes is
        self.paths: list[Steps] = []


def _has_parts(owner: Any) -> bool:
    """Whether a part can be found again in another version of an owner: an array in one row, of plain bytes."""
    return type(owner).__name__ == "ndarray" and owner.flags.forc and not owner.dtype.hasobject


def _is_bytes(obj: Any) -> bool:
    """Whether an object has memory of its own always: in a task there is none of its type on memory that is shared."""
    return isinstance(obj, bytearray) or type(obj).__name__ in ("array", "mmap")


def _two_things(obj: Any) -> CallError:
    name = type(obj).__name__
    return CallError(
        f"a task is given a part of a {name} to update, and the {name} itself; in a task these would be two things. "
        f"Pass one of them."
    )


class PartsOfCall:
    """The parts that one call uses."""

    def __init__(self, runtime: Runtime, wiring: Wiring, carried: Mapping[int, Any], *, local: bool) -> None:
        """``carried``: objects that travel with the call; ``local``: the task runs where memory can be shared."""
        self._runtime = runtime
        self._memories = runtime.memories
        self._wiring = wiring
        self._carried = carried
        self._local = local
        #: owners of which the call writes parts, by address
        self._owners: set[int] = set()
        self._tokens: list[tuple[_Uses, VersionId, VersionId]] = []
        self._uses: dict[int, _Uses] = {}
        #: those that it writes, by the address of the object, which is kept
        self._written: dict[int, tuple[Any, Part]] = {}

    def __bool__(self) -> bool:
        return bool(self._uses)

    # --- written ------------------------------------------------------------------------------------------------

    def expect(self, values: Iterable[Any]) -> None:
        """Note whose parts the call is going to write: the owners themselves are then used in shared memory too."""
        for value in values:
            if is_buffer(type(value)) and (type(value) is memoryview or getattr(value, "base", None) is not None):
                located = locate(value)
                if isinstance(located, Located) and located.owner is not value and located.region.run:
                    self._owners.add(id(located.owner))

    def write(self, path: Steps, obj: Any, where: str, *, kept: bool) -> Part | None:
        """What stands for a buffer that the call writes; None if it is no part of anything.

        ``kept``: it is to be what it was, should the task fail.
        """
        known = self._written.get(id(obj))
        if known is not None:
            self._uses[known[1].segment].paths.append(path)
            return known[1]._replace(kept=kept)
        located = locate(obj)
        if isinstance(located, Unknown):
            raise CallError(f"{where} is a {type(obj).__name__} that no task can update: {located.why}. Pass a copy.")
        memory = self._memories.of(located.owner)
        whole = located.owner is obj
        if located.holder is not located.owner:
            self._take_over(located.holder, where)
            let_go(located.owner)
        if not located.region.run or (whole and not self._is_shared(memory, obj) and id(obj) not in self._owners):
            if whole and is_more(obj):
                self._hold(obj, where)
            return None
        if whole and _is_bytes(obj):
            raise _two_things(obj)
        memory = self._memories.of(located.owner)
        if id(located.owner) in self._carried:
            raise CallError(
                f"{where} is a part of an array that the task updates as a whole too; give it to the task once, as the "
                f"whole"
            )
        if not self._local or located.obstacle is not None:
            why = located.obstacle or "tasks of several processes have memory of their own"
            raise CallError(
                f"{where} is a part of the memory of another object, where no task can update it: {why}. Pass a copy."
            )
        if memory is None or not memory.owned:
            self._take_over(located.owner, where)
            memory = self._memories.of(located.owner)
        if memory is None:
            memory = self._memories.share(located)
        self._memories.ensure_unchanged(memory, where)
        part = self._use(memory, located, writable=True)._replace(kept=kept)
        self._uses[memory.segment].paths.append(path)
        self._written[id(obj)] = obj, part
        return part

    def _hold(self, obj: Any, where: str) -> None:
        """An array that is more than its memory, which nobody else has, goes to a task as any object does."""
        if getattr(obj, "hardmask", False):
            raise CallError(
                f"{where} has a hard mask, which does not get to the task; call soften_mask() before, and "
                f"harden_mask() in the task"
            )
        hold(obj)

    def _is_shared(self, memory: Memory | None, owner: Any) -> bool:
        """Whether an owner is used in shared memory; what cannot be had there is the program's again."""
        if memory is None:
            return False
        if memory.segment in self._uses:
            return True
        if type(owner).__name__ != "ndarray" or not self._local or not memory.owned:
            self._memories.take_back(memory)
            return False
        return True

    def _take_over(self, owner: Any, where: str) -> None:
        """The owner of a part that is to be written is with tasks as a whole: the program gets it first."""
        runtime = self._runtime
        datum = datum_of(runtime, owner, where)
        if datum is None:
            return
        if datum.shared:
            raise CallError(f"{where} is a part of what was given to share(), which promises that it will not change")
        self._wiring.lose(datum.version)
        runtime.take_back(owner, where)

    def _use(self, memory: Memory, located: Located, *, writable: bool) -> Part:
        self._memories.bring(memory, located.region)
        uses = self._uses.setdefault(memory.segment, _Uses(memory))
        (uses.changed if writable else uses.read).append(located.region)
        return Part(memory.segment, located.offset, located.shape, located.strides, located.kind, writable)

    # --- read ---------------------------------------------------------------------------------------------------

    def read(self, obj: Any) -> Part | PartOfSlot | PartOfWhole | None:
        """What stands for a buffer that is met while pickling; None if the program's own bytes are the newest."""
        known = self._written.get(id(obj))
        if known is not None:
            return known[1]
        located = locate(obj)
        if not isinstance(located, Located) or not located.region.run:
            return None
        memory = self._memories.of(located.owner)
        # One that tasks have done with may still be read, and its owner be with tasks as a whole meanwhile.
        if memory is not None and (memory.owned.meeting(located.region) or memory.segment in self._uses):
            if not self._can_share(obj) or is_more(obj):
                if memory.segment in self._uses:
                    raise _two_things(obj)
                self._memories.take_back(memory, located.region)
                return None
            return self._use(memory, located, writable=False)
        return self._part_of_datum(obj, located)

    def _can_share(self, obj: Any) -> bool:
        return self._local and not _is_bytes(obj)

    def _part_of_datum(self, obj: Any, located: Located) -> PartOfSlot | PartOfWhole | None:
        owner = located.holder
        datum = None if owner is obj else datum_of(self._runtime, owner, "the owner of an argument")
        travels = owner is not obj and id(owner) in self._carried
        if (datum is None or datum.shared) and not travels:
            return None
        if travels:
            if isinstance(located.kind, str) or is_more(obj) or not _has_parts(owner):
                raise CallError(
                    f"a task is given a {type(owner).__name__} to update and a {type(obj).__name__} of its memory; in "
                    f"a task these would be two things. Pass one of them."
                )
            layout = owner.shape, owner.strides, owner.dtype
            return PartOfWhole(owner, layout, located.offset, located.shape, located.strides, located.kind)
        assert datum is not None
        if isinstance(located.kind, str) or is_more(obj) or not _has_parts(owner):
            self._wiring.lose(datum.version)
            self._runtime.take_back(owner, "an argument")
            return None
        index = self._wiring.read(datum.version)
        layout = owner.shape, owner.strides, owner.dtype
        return PartOfSlot(index, layout, located.offset, located.shape, located.strides, located.kind)

    # --- the call is complete -----------------------------------------------------------------------------------

    def wire(self) -> None:
        """Let the call wait for others that use the same bytes."""
        for uses in self._uses.values():
            accesses = uses.memory.accesses
            for regions, writes in ((uses.read, False), (uses.changed, True)):
                for region in regions:
                    for token in accesses.before(region, writes=writes):
                        if not self._memories.is_over(token):
                            self._wiring.follow(token)

    def begin(self, released: list[VersionId]) -> None:
        """The call is accepted: others wait for it from now on."""
        strict = self._runtime.config.strict
        for uses, read, changed in self._tokens:
            memory = uses.memory
            gone = memory.accesses.sweep(self._memories.is_over)
            for region in uses.read:
                gone += memory.accesses.add(region, read, writes=False)
            for region in uses.changed:
                if strict:
                    self._memories.watch(memory, region)
                gone += memory.accesses.add(region, changed, writes=True)
                memory.owned.add(region)
            released += gone

    def sign(self) -> None:
        """Add the versions that say that the call is over: one for what it reads, one for what it changes."""
        write = self._wiring.write
        self._tokens = [
            (
                uses,
                write(Output((), use=Use.READ)) if uses.read else 0,
                write(Output((), also=tuple(uses.paths), use=Use.CHANGE)) if uses.changed else 0,
            )
            for uses in self._uses.values()
        ]
