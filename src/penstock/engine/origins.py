"""How versions that lie in segments came to be, so that they can be computed again should their segments be lost.

An *origin* is a call and those of its inputs that are small; what is large is found again by its own origin. Nothing is
kept alive by it: no segment, no file, no state of a persistent object. Only so many origins are kept, the newest, so a
chain of a million updates costs no more than one of fifty thousand. A task with small outputs only has none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.model.data import FileRef, SegmentId, Slot, TaskId, Value, VersionId
from penstock.model.tasks import Failure, TaskCall

if TYPE_CHECKING:
    from penstock.engine.state import State, TaskRecord

__all__ = ["MOST", "MOST_BYTES", "Origin", "Origins", "in_segments", "note_origin"]

#: origins kept
MOST = 50_000
#: bytes of arguments and small inputs kept for them
MOST_BYTES = 64 << 20


class Origin:
    """A task that has delivered, as it could be run again."""

    __slots__ = ("attempts", "call", "ignored", "inputs", "losses", "nbytes", "obstacle", "serial", "spent")

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

    @property
    def label(self) -> str:
        """How messages call its task."""
        return f"{self.call.spec.name}#{self.call.task}"


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

    def add(self, origin: Origin) -> None:
        """Note an origin, or that one was run again; the oldest are forgotten."""
        task = origin.call.task
        self.by_task[task] = origin
        self.by_task.move_to_end(task)
        for number in origin.call.writes:
            self.makers[number] = task
        self.nbytes += origin.nbytes
        while len(self.by_task) > MOST or self.nbytes > MOST_BYTES:
            _, oldest = self.by_task.popitem(last=False)
            self.nbytes -= oldest.nbytes
            for number in oldest.call.writes:
                self.makers.pop(number, None)


def in_segments(content: Slot | Failure | None) -> bool:
    """Whether a part of a version's content lies in a segment."""
    return type(content) is Value and bool(content.buffers or type(content.data) is not bytes)


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
    origins.add(origin)


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
    if state.early and call.task in state.early:
        return "it handed over outputs before its end"
    known = {one for slot in call.slots for one in _states(state.versions[slot].outcome if type(slot) is int else slot)}
    if any(not known.issuperset(_states(output)) for output in outputs):
        return "it made or changed persistent objects"
    return ""


def _states(content: object) -> list[str]:
    return content.states if type(content) is Value else []
