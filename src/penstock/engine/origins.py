"""How versions that lie in segments came to be, so that they can be computed again should their segments be lost.

An *origin* is a call and those of its inputs that are small; what is large is found again by its own origin. Nothing is
kept alive by it: no segment, no file, no state of a persistent object. It is kept as long as there is a version that it
tells of, or another origin that needs it. Only so many are kept, the newest, so a chain of a million updates costs no
more than one of fifty thousand. A task with small outputs only has none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from penstock.model.data import FileRef, SegmentId, Slot, TaskId, Value, VersionId, in_segments
from penstock.model.tasks import TaskCall

if TYPE_CHECKING:
    from penstock.engine.state import State, TaskRecord

__all__ = ["MOST", "MOST_BYTES", "Origin", "Origins", "note_origin"]

#: origins kept
MOST = 50_000
#: bytes of arguments and small inputs kept for them
MOST_BYTES = 64 << 20


class Origin:
    """A task that has delivered, as it could be run again."""

    __slots__ = (
        "attempts",
        "call",
        "dependents",
        "ignored",
        "inputs",
        "live",
        "losses",
        "nbytes",
        "obstacle",
        "serial",
        "sources",
        "spent",
    )

    def __init__(self, call: TaskCall) -> None:
        self.call = call
        #: attempts it took so far, and its place in the order
        self.attempts = 0
        self.serial = 0
        #: small inputs and files, by version; large ones have an origin of their own
        self.inputs: dict[VersionId, Slot] = {}
        #: segments of its arguments that it has changed in place
        self.spent: frozenset[SegmentId] = frozenset()
        #: it failed, and that was ignored
        self.ignored = False
        #: why it must not be run again
        self.obstacle = ""
        #: how often the content of each of its outputs was lost
        self.losses: dict[VersionId, int] = {}
        self.nbytes = 0
        #: of its outputs, how many there are
        self.live = 0
        #: tasks that made its large inputs, as far as that was known, and how many origins it is such a source of
        self.sources: frozenset[TaskId] = frozenset()
        self.dependents = 0

    @property
    def label(self) -> str:
        """How messages call its task."""
        return self.call.shown


class Origins:
    """The newest origins of a run."""

    def __init__(self) -> None:
        self.by_task: OrderedDict[TaskId, Origin] = OrderedDict()
        #: the task that made each version of which there is an origin
        self.makers: dict[VersionId, TaskId] = {}
        self.nbytes = 0

    def of(self, version: VersionId) -> Origin | None:
        """How a version came to be, if that is still known."""
        maker = self.makers.get(version)
        return None if maker is None else self.by_task[maker]

    def add(self, origin: Origin, versions: Container[VersionId]) -> None:
        """Note an origin, or that one was run again; what is of no use, and the oldest, are forgotten."""
        task = origin.call.task
        self.by_task[task] = origin
        self.by_task.move_to_end(task)
        origin.live = 0
        for number in origin.call.writes:
            self.makers[number] = task
            origin.live += number in versions
        self.nbytes += origin.nbytes
        earlier = origin.sources
        large = (slot for slot in origin.call.slots if type(slot) is int and slot not in origin.inputs)
        origin.sources = frozenset(self.makers[slot] for slot in large if slot in self.makers)
        for source in origin.sources:
            self.by_task[source].dependents += 1
        for useless in self._of_no_use(earlier):
            self._forget(useless)
        if not (origin.live or origin.dependents):
            self._forget(origin)
        while len(self.by_task) > MOST or self.nbytes > MOST_BYTES:
            self._forget(next(iter(self.by_task.values())))

    def version_gone(self, version: VersionId) -> None:
        """Nobody can read a version any more."""
        origin = self.of(version)
        if origin is not None:
            origin.live -= 1
            if not (origin.live or origin.dependents):
                self._forget(origin)

    def version_back(self, version: VersionId) -> None:
        """A version that was gone is to be made once more."""
        origin = self.of(version)
        if origin is not None:
            origin.live += 1

    def _forget(self, origin: Origin) -> None:
        """Forget an origin, and those that only it needed."""
        rest = [origin]
        while rest:
            origin = rest.pop()
            del self.by_task[origin.call.task]
            self.nbytes -= origin.nbytes
            for number in origin.call.writes:
                self.makers.pop(number, None)
            rest += self._of_no_use(origin.sources)

    def _of_no_use(self, sources: Iterable[TaskId]) -> list[Origin]:
        """One origin less needs these; gives those that are of no use any more."""
        useless = []
        for task in sources:
            origin = self.by_task.get(task)
            if origin is not None and origin.dependents:  # else it was forgotten, being old, or noted anew since
                origin.dependents -= 1
                if not (origin.live or origin.dependents):
                    useless.append(origin)
        return useless


def note_origin(state: State, task: TaskRecord, outputs: Iterable[Slot | None], *, ignored: bool = False) -> None:
    """A task delivers, and some of it lies in segments; called while what it read is still there.

    ``ignored``: in truth it failed, and what it updates stays as it was.
    """
    call = task.open_call or task.call
    origins = state.origins
    origin = origins.by_task.get(call.task)
    if origin is None:
        origin = Origin(call)
    else:
        origins.nbytes -= origin.nbytes
    origin.attempts = task.attempt
    origin.serial = task.serial
    origin.ignored = ignored
    if task.in_place and call.writable_buffers:
        origin.spent = frozenset(call.segments)
    _keep_small_inputs(state, origin)
    origin.obstacle = _obstacle(state, origin, outputs)
    origins.add(origin, state.versions)


def _keep_small_inputs(state: State, origin: Origin) -> None:
    size = _inline(origin.call.args)
    for slot in origin.call.slots:
        if type(slot) is Value:
            size += _inline(slot)
        elif type(slot) is int:
            content = state.versions[slot].outcome
            if type(content) is FileRef or (type(content) is Value and not in_segments(content)):
                origin.inputs[slot] = content
                size += _inline(content)
    origin.nbytes = size


def _inline(content: Slot) -> int:
    if type(content) is not Value:
        return 0
    return sum(len(part) for part in (content.data, *content.buffers) if type(part) is bytes)


def _obstacle(state: State, origin: Origin, outputs: Iterable[Slot | None]) -> str:
    call = origin.call
    if any(output.file is not None for output in call.outputs):
        return "it wrote files too, which others may have read or replaced since"
    if any(output.use is not None for output in call.outputs):
        return "it used parts of memory that other tasks may have changed since"
    if state.early and call.task in state.early:
        return "it handed over outputs before its end"
    known = {one for slot in call.slots for one in _states(state.versions[slot].outcome if type(slot) is int else slot)}
    if any(not known.issuperset(_states(output)) for output in outputs):
        return "it made or changed persistent objects"
    return ""


def _states(content: object) -> tuple[str, ...]:
    return content.states if type(content) is Value else ()
