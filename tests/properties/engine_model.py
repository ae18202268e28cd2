"""A naive model of what tasks and versions come to: plain recursion over the whole graph, nothing counted.

It knows nothing of lanes, tokens or lifetimes. It is told what happened to attempts and says what each task and each
version must then be.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.tasks import FailureKind, OnFailure, TaskCall

NOTHING = "nothing"

_NEVER_AGAIN = {
    FailureKind.RETURNS,
    FailureKind.SERIALIZATION,
    FailureKind.CHANGED_INPUT,
    FailureKind.STORAGE_FULL,
}
_FROM_ELSEWHERE = {FailureKind.DEPENDENCY, FailureKind.CANCELLED}


@dataclass
class ModelTask:
    call: TaskCall
    attempts: int = 0
    #: why its worker is being killed, or why it is to end once it is taken back
    doom: FailureKind | None = None
    kill_if_started: bool = False


@dataclass
class ModelVersion:
    #: what it holds, once it exists
    content: str | None = None
    #: why it never will, to the program and to consumers
    failure: FailureKind | None = None
    for_consumers: FailureKind | None = None

    @property
    def settled(self) -> bool:
        return self.content is not None or self.failure is not None


class Model:
    def __init__(self) -> None:
        self.tasks: dict[int, ModelTask] = {}
        self.versions: dict[int, ModelVersion] = {}

    def submit(self, call: TaskCall, *, possible: bool) -> None:
        task = self.tasks[call.task] = ModelTask(call)
        for number in call.writes:
            self.versions[number] = ModelVersion()
        # The engine looks at all reads and keeps the last that failed; each has the same right to be the cause.
        for number in reversed(call.reads):
            cause = self.versions[number].for_consumers
            if cause is not None:
                self.end(task, cause)
                return
        if not possible:
            self.end(task, FailureKind.UNPLACEABLE)

    def provide(self, number: int, outcome: str | FailureKind) -> None:
        version = self.versions[number] = ModelVersion()
        if isinstance(outcome, str):
            version.content = outcome
        else:
            version.failure, version.for_consumers = outcome, FailureKind.DEPENDENCY

    def delivered(self, task: ModelTask, index: int, content: str) -> None:
        version = self.versions[task.call.writes[index]]
        if not version.settled:  # else a former attempt delivered it
            version.content = content

    def done(self, task: ModelTask) -> None:
        del self.tasks[task.call.task]

    def attempt_failed(self, task: ModelTask, kind: FailureKind, *, in_place: bool) -> None:
        task.attempts += 1
        doom, task.doom = task.doom, None
        if self._tries_again(task, kind):
            if doom is FailureKind.CANCELLED:
                kind = FailureKind.CANCELLED
            elif not in_place:
                return
        self.end(task, kind, ran=True)

    def _tries_again(self, task: ModelTask, kind: FailureKind) -> bool:
        spec = task.call.spec
        if kind in _NEVER_AGAIN or kind in _FROM_ELSEWHERE:
            return False
        if kind is not FailureKind.DIED and spec.on_failure is not OnFailure.RETRY:
            return False
        return task.attempts <= (2 if spec.retries is None else spec.retries)

    def end(self, task: ModelTask, kind: FailureKind, *, ran: bool = False) -> None:
        """A task will not deliver; nor will, in turn, those that need what it does not deliver."""
        if self.tasks.pop(task.call.task, None) is None:
            return
        on_failure = task.call.spec.on_failure
        own = kind not in _FROM_ELSEWHERE
        if own and ran and on_failure is OnFailure.IGNORE:
            for index in range(len(task.call.writes)):
                self.delivered(task, index, self.old_content(task.call, index))
            return
        if not own:
            passed_on = kind
        elif on_failure is OnFailure.CANCEL_SUCCESSORS:
            passed_on = FailureKind.CANCELLED
        else:
            passed_on = FailureKind.DEPENDENCY
        lost = {number for number in task.call.writes if not self.versions[number].settled}
        for number in lost:
            self.versions[number].failure = kind
            self.versions[number].for_consumers = passed_on
        for other in list(self.tasks.values()):
            if lost.intersection(other.call.reads):
                self.end(other, passed_on)

    def old_content(self, call: TaskCall, index: int) -> str:
        """What an output holds that was not changed."""
        if index < call.returns:
            return NOTHING
        slot = call.outputs[index - call.returns].slot
        content = call.slots[slot] if slot >= 0 else NOTHING
        if type(content) is int:
            held = self.versions[content].content
            assert held is not None
            return held
        return content if isinstance(content, str) else content.data.decode()  # type: ignore[union-attr]

    def could_run(self, task: ModelTask) -> bool:
        return all(self.versions[number].content is not None for number in task.call.reads)
