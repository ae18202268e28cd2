"""A workflow one step after the other, on ordinary files and without the library: what streaming has to equal.

Producers run before consumers. The instances of one step run together, as they would anyway.
"""

from __future__ import annotations

import asyncio
import os

from penstock.errors import ConfigError
from penstock.streaming.guard import Guard
from penstock.streaming.language.model import Step, Workflow
from penstock.streaming.processes import Watcher
from penstock.streaming.rules.graph import circle, in_order
from penstock.streaming.steps import Relay, StepProcess, Steps, labels, step_environment

__all__ = ["batch_order", "run_batch"]


def batch_order(workflow: Workflow) -> list[Step]:
    """The steps in an order in which each finds its inputs finished; ConfigError if there is none."""
    if around := circle(workflow.steps):
        raise ConfigError(
            f"{workflow.source or workflow.name}: there is no order for --batch: {' → '.join(around)} "
            f"(each reads what the one before it makes); narrow the patterns of their inputs or outputs"
        )
    return in_order(workflow.steps)


async def run_batch(
    workflow: Workflow, root: str, relay: Relay, stopping: asyncio.Event, guard: Guard
) -> list[StepProcess]:
    """Run the steps; the first that fails is the last. Returns all that were started."""
    watcher = Watcher()
    changed = asyncio.Event()
    steps = Steps(watcher, relay, lambda _: changed.set(), guard)
    try:
        for step in batch_order(workflow):
            folder = os.path.normpath(os.path.join(root, step.cwd or "."))
            for label in labels(step):
                steps.start(step, label, step_environment(step, label, root, {}), folder)
            if not await _all_ended(steps, changed, stopping):
                break
    finally:
        await steps.stop()
        watcher.close()
    return steps.all


async def _all_ended(steps: Steps, changed: asyncio.Event, stopping: asyncio.Event) -> bool:
    """Wait for the steps that run; False if one failed or somebody wants to stop."""
    stop = asyncio.ensure_future(stopping.wait())
    try:
        while steps.running:
            change = asyncio.ensure_future(changed.wait())
            await asyncio.wait({change, stop}, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            changed.clear()
            if stopping.is_set() or any(step.status for step in steps.all):
                return False
    finally:
        stop.cancel()
    return True
