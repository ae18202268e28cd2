"""``penstock stream run``: all steps at once, watched until the last has ended or one has failed.

The steps are started by ``steps``; ``hosting`` has everything that they stream through. What becomes of the workflow is
an ``Outcome``: its exit status and, if it failed, words that name the step, how it ended, its last lines, and who
waited for it.
"""

from __future__ import annotations

import os
import time

from msgspec import Struct

from penstock.streaming.guard import Guard
from penstock.streaming.happenings import StepEnded, StepStarted, Tell
from penstock.streaming.hosting import Hosting
from penstock.streaming.language.model import Workflow
from penstock.streaming.steps import (
    Relay,
    StepProcess,
    Steps,
    exit_status,
    labels,
    step_environment,
    told_failure,
)
from penstock.streaming.watchdog import waits_for

__all__ = ["Outcome", "run_steps"]


class Outcome(Struct, frozen=True):
    """What became of a workflow."""

    status: int
    #: why it failed; empty if it did not
    message: str = ""


class _Run:
    """The steps of one run."""

    def __init__(self, hosting: Hosting, relay: Relay, tell: Tell, guard: Guard) -> None:
        self.hosting = hosting
        self.server = hosting.server
        self.tell = tell
        self.began: dict[int, float] = {}
        self.failure: Outcome | None = None
        self.steps = Steps(self.server.watcher, relay, self._ended, guard)

    def start(self, workflow: Workflow) -> None:
        for step in workflow.steps:
            folder = os.path.normpath(os.path.join(self.hosting.root, step.cwd or "."))
            for label in labels(step):
                environment = step_environment(step, label, self.hosting.root, self.hosting.environment)
                environment["PWD"] = folder
                # Announced before it runs: its first process must not find its step over.
                self.server.command_began(step.name, label)
                running = self.steps.start(step, label, environment, folder, streamed=True)
                self.began[running.pid] = time.monotonic()
                self.tell(StepStarted(label, running.pid))

    def _ended(self, step: StepProcess) -> None:
        status = step.status or 0
        self.tell(StepEnded(step.label, step.pid, status, time.monotonic() - self.began[step.pid]))
        if status and self.failure is None and not self.hosting.stopping.is_set():
            # Before the table learns of it: then those who wait get their error and are gone.
            self.failure = Outcome(exit_status(status), told_failure(step, waits_for(self.server, step.step.name)))
            self.hosting.stop(f"step {step.label!r} failed")
        self.server.command_ended(step.step.name, step.label, status)

    @property
    def over(self) -> bool:
        """Whether all steps are, with whatever they left running in the background."""
        return all(app.ended for app in self.server.apps.values())


async def run_steps(hosting: Hosting, relay: Relay, tell: Tell, guard: Guard) -> Outcome:
    """Start all steps and wait for their ends, or for a reason to stop."""
    run = _Run(hosting, relay, tell, guard)
    hosting.on_tick = run.steps.collect
    try:
        if not hosting.stopping.is_set():
            run.start(hosting.workflow)
        while not run.over and not hosting.stopping.is_set():
            await hosting.changed.wait()
            hosting.changed.clear()
    finally:
        if hosting.stopping.is_set():
            hosting.server.table.abort(f"the workflow {hosting.workflow.name} was stopped: {hosting.stop_reason}")
        await run.steps.stop()
        hosting.on_tick = lambda: None
    await hosting.finish()
    if run.failure is not None:
        return run.failure
    return Outcome(1, hosting.stop_reason or "") if hosting.stopping.is_set() else Outcome(0)
