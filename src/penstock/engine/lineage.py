"""Segments that are lost: the versions in them lose their content, and the tasks that made them run again.

    SegmentsLost, or an attempt that could not read its inputs
        ─▶ versions without content: whoever reads them waits again
        ─▶ their tasks are entered anew, and those that made what these read, as far back as needed
        ─▶ what cannot be computed again fails, and with it whoever needs it

Attempts under way that were given the old content go on: they have it, or will say that they have not. A content that
is lost again and again is given up after a few times, so a disk that spoils everything cannot keep a run for ever.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.engine.failures import NONE, fail_consumers_of, finish_without_outputs
from penstock.engine.lifetimes import hold_segments, hold_states, release_content
from penstock.engine.origins import Origin
from penstock.engine.placement import make_ready
from penstock.engine.segment_store import forget_needs
from penstock.engine.state import Recovery, State, TaskRecord, VersionRecord
from penstock.engine.submission import new_record
from penstock.model.data import FileRef, SegmentId, Value, VersionId, in_segments, segments_of
from penstock.model.events import Lost, RunAgain, SegmentsLost
from penstock.model.tasks import PROGRAM, UNKNOWN, Failure, FailureKind, TaskState

__all__ = ["OFTEN", "lose_segments", "note_lost_inputs", "segments_lost"]

#: times that one version is computed again
OFTEN = 3


def segments_lost(state: State, event: SegmentsLost) -> None:
    """Somebody found that segments are gone, or spoilt."""
    lose_segments(state, event.segments, event.why)


def lose_segments(state: State, segments: Collection[SegmentId], why: str) -> None:
    """Do without segments: have what lay in them computed again, or fail it."""
    gone = set(segments)
    lost = [
        version
        for version in state.versions.values()
        if in_segments(version.outcome) and not gone.isdisjoint(segments_of(version.outcome))
    ]
    if lost:
        _lose(state, lost, gone, why)


def note_lost_inputs(state: State, task: TaskRecord, failure: Failure) -> Failure | None:
    """An attempt could not read what it was given; gives why its task must end, or None if it may begin again."""
    own = set(task.call.segments).intersection(failure.lost)
    lose_segments(state, failure.lost, failure.message)
    if own:
        return Failure(FailureKind.LOST, _own_arguments(failure.message), attempt=failure.attempt, node=failure.node)
    recovery = state.recoveries.setdefault(task.task, Recovery())
    recovery.forgiven += 1
    recovery.lost += 1
    if recovery.lost > OFTEN * (len(task.call.reads) + 1):
        message = f"what it reads is lost again and again: {failure.message}"
        return Failure(FailureKind.LOST, message, attempt=failure.attempt, node=failure.node)
    return None


def _own_arguments(why: str) -> str:
    return (
        f"an argument that came with its call is lost: {why}. It cannot be computed again: the program itself made it. "
        f"Call the task again"
    )


def _lose(state: State, lost: list[VersionRecord], gone: set[SegmentId], why: str) -> None:
    plan = _Plan(state, gone, {version.version for version in lost})
    for version in lost:
        _drop_content(state, version, plan.changing)
    _make_readers_wait(state, {version.version: version for version in lost})
    verdicts = {version.version: plan.verdict(version.version) for version in lost}
    for version in lost:
        obstacle = verdicts[version.version]
        origin = state.origins.of(version.version)
        task = 0 if origin is None else origin.call.task
        state.reports.append(Lost(version.version, task, why, again=not obstacle))
        if obstacle:
            fail_consumers_of(state, version, _beyond_recovery(version, origin, why, obstacle))
    # What only those needed that have failed just now is needed no more.
    wanted = [version for version in lost if not verdicts[version.version] and _is_wanted(state, version)]
    _enter(state, plan, [version.version for version in wanted])


def _is_wanted(state: State, version: VersionRecord) -> bool:
    if version.uses or version.held or version.version in state.kept:
        return True
    if state.versions.pop(version.version, None) is not None:
        state.origins.version_gone(version.version)
    return False


def _drop_content(state: State, version: VersionRecord, changing: dict[VersionId, TaskRecord]) -> None:
    """A version has no content any more; what an attempt is changing in place stays for that attempt."""
    content, version.outcome = version.outcome, None
    assert type(content) is Value
    changer = changing.get(version.version)
    if changer is not None:
        segments = segments_of(content)
        hold_segments(state, segments)
        state.recoveries.setdefault(changer.task, Recovery()).spent.extend(segments)
    release_content(state, content)


def _make_readers_wait(state: State, lost: dict[VersionId, VersionRecord]) -> None:
    if not any(version.uses for version in lost.values()):
        return
    for task in state.tasks.values():
        if task.lane is not None or task.state is TaskState.RUNNING:
            continue  # it has the old content, or will say so; or it is just being put back
        for number in task.call.reads:
            if number in lost:
                forget_needs(state, task)
                if task.state is TaskState.READY:
                    state.withdraw(task)
                    state.io_changed = True
                    state.move(task, TaskState.WAITING)
                lost[number].release_later(task)
                task.missing += 1


def _beyond_recovery(version: VersionRecord, origin: Origin | None, why: str, obstacle: str) -> Failure:
    if origin is not None:
        root = origin.label
    else:
        root = UNKNOWN if _is_made_by_task(version) else PROGRAM
    what = "what it made is lost" if root == PROGRAM else "its output is lost"
    return Failure(FailureKind.LOST, f"{what}: {why}. It cannot be computed again: {obstacle}", path=(root,))


def _is_made_by_task(version: VersionRecord) -> bool:
    return bool(version.node)  # what the program provides is noted nowhere


class _Plan:
    """What must be computed again for versions to exist, and what stands against it."""

    def __init__(self, state: State, gone: set[SegmentId], lost: set[VersionId]) -> None:
        self._state = state
        self._gone = gone
        self._lost = lost
        #: why versions cannot be made again; empty if they can
        self._verdicts: dict[VersionId, str] = {}
        #: versions whose content attempts are changing in place
        self.changing = {
            slot: task
            for node in state.ledger.nodes.values()
            for lane in node.lanes
            for task in lane.queue
            if task.in_place
            for slot in (task.call.slots[index] for index in task.call.writable)
            if type(slot) is int
        }
        for number in lost:
            origin = state.origins.of(number)
            if origin is not None:
                origin.losses[number] = origin.losses.get(number, 0) + 1

    def verdict(self, wanted: VersionId) -> str:
        """Why a version cannot be made again; empty if it can."""
        verdicts = self._verdicts
        stack = [wanted]
        while stack:
            number = stack[-1]
            if number in verdicts:
                stack.pop()
                continue
            verdict = self._own_verdict(number)
            if verdict is None:
                needs = self.needs(number)
                unknown = [need for need in needs if need not in verdicts]
                if unknown:
                    stack += unknown
                    continue
                verdict = next((self._as_need(need) for need in needs if verdicts[need]), "")
            verdicts[number] = verdict
            stack.pop()
        return verdicts[wanted]

    def _as_need(self, number: VersionId) -> str:
        verdict = self._verdicts[number]
        if verdict.startswith("that needs"):
            return verdict  # the root is what matters
        origin = self._state.origins.of(number)
        made = "data" if origin is None else f"an output of task {origin.label}"
        return f"that needs {made} which is gone too; {verdict}"

    def _own_verdict(self, number: VersionId) -> str | None:
        """What stands against a version itself: empty if nothing can, None if that depends on what it needs."""
        state = self._state
        origin = state.origins.of(number)
        if origin is None:
            version = state.versions.get(number)
            if version is not None and not _is_made_by_task(version):
                return "only the program knows it"
            return "it was handed over before its task ended, or so long ago that it is not known how it was made"
        if origin.call.task in state.tasks:
            return ""  # it is on its way
        if origin.obstacle:
            return origin.obstacle
        if origin.losses.get(number, 0) > OFTEN:
            return f"that was done {OFTEN} times, and each time it was lost again"
        if any(segment not in state.segments or segment in self._gone for segment in origin.call.segments):
            return "arguments that came with the call are gone"
        if origin.spent:
            return "it has changed arguments that came with the call"
        return self._unavailable(origin)

    def _unavailable(self, origin: Origin) -> str | None:
        state = self._state
        for number in origin.call.slots:
            if type(number) is not int:
                continue
            version = state.versions.get(number)
            if version is not None and type(version.outcome) is Failure:
                return f"what it needs has failed since: {version.outcome.message}"
            kept = origin.inputs.get(number)
            if version is None and type(kept) is FileRef:
                return f"it read {kept.path}, which may be another file by now"
            if version is None and type(kept) is Value and any(one not in state.object_states for one in kept.states):
                return "it read a persistent object, of which that state is gone"
        return None

    def needs(self, number: VersionId) -> list[VersionId]:
        """The inputs that must be made again before a version can be."""
        state = self._state
        origin = state.origins.of(number)
        if origin is None or origin.call.task in state.tasks:
            return []
        return [slot for slot in origin.call.slots if type(slot) is int and self._is_missing(slot, origin)]

    def _is_missing(self, number: VersionId, origin: Origin) -> bool:
        version = self._state.versions.get(number)
        if version is None:
            return number not in origin.inputs
        return number in self._lost or (number in self.changing and in_segments(version.outcome))


def _enter(state: State, plan: _Plan, wanted: list[VersionId]) -> None:
    """Enter the tasks again that make these versions, and those that make what they need."""
    entered: list[TaskRecord] = []
    stack = list(wanted)
    while stack:
        origin = state.origins.of(stack.pop())
        assert origin is not None
        number = origin.call.task
        if number in state.tasks:
            continue
        needs = plan.needs(origin.call.writes[0])
        for need in needs:
            _want(state, plan, need)
        stack += needs
        entered.append(_enter_task(state, origin))
    for task in sorted(entered, key=lambda task: task.serial):
        if task.missing or state.tasks.get(task.task) is not task:
            continue
        if state.ledger.shrunk and state.is_hopeless(task.requirements):
            finish_without_outputs(state, task, Failure(FailureKind.UNPLACEABLE, "no node is left that could run it"))
        else:
            make_ready(state, task)


def _want(state: State, plan: _Plan, number: VersionId) -> None:
    """A version is needed once more."""
    version = state.versions.get(number)
    if version is None:
        version = _made_anew(state, number)
    elif version.outcome is not None:
        _drop_content(state, version, plan.changing)
        _make_readers_wait(state, {number: version})


def _made_anew(state: State, number: VersionId) -> VersionRecord:
    version = state.versions[number] = VersionRecord(number)
    version.held = False
    state.origins.version_back(number)
    return version


def _enter_task(state: State, origin: Origin) -> TaskRecord:
    call = origin.call
    task = state.tasks[call.task] = new_record(state, call)
    task.attempt, task.serial = origin.attempts, origin.serial
    state.recoveries.setdefault(call.task, Recovery()).forgiven = origin.attempts
    if origin.ignored:
        state.failed -= call.count
    else:
        state.done -= call.count
    for number in call.reads:
        version = state.versions.get(number)
        if version is None:
            version = _restored(state, number, origin)
        version.uses += 1
        if version.outcome is None:
            version.release_later(task)
            task.missing += 1
    hold_segments(state, call.segments)
    state.reports.append(RunAgain(call))
    return task


def _restored(state: State, number: VersionId, origin: Origin) -> VersionRecord:
    """A small input that nobody but its origin knew any more; one that was only waited for has no content."""
    version = _made_anew(state, number)
    content = origin.inputs.get(number, NONE)
    version.outcome = content
    if type(content) is Value:
        hold_states(state, content.states)
    return version
