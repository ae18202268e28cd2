"""A program run in simulated mode: its own code runs, its tasks do not; they take their time on virtual nodes.

run_simulated(program, nodes=…) ─▶ every Runtime that the program makes is a SimulatedRuntime ─▶ Outcome
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from penstock.errors import ConfigError
from penstock.runtime import session
from penstock.runtime.simulated_nodes import simulated_nodes
from penstock.runtime.simulated_runtime import Plan, ProgramObserver
from penstock.sim.network import Network
from penstock.sim.outcomes import Outcome

__all__ = ["ProgramObserver", "run_simulated", "simulated_nodes"]

#: how often the collector looks for cycles: tasks and futures live long, are many, and form none
_SELDOM = (50_000, 20, 100)


def run_simulated(program: Callable[[], object], **options: Any) -> Outcome:
    """Call a program whose tasks are simulated, and tell how its run went; what it raises passes through.

    ``nodes``: the machines. ``scheduler``, ``rules``: as in settings unless given. ``durations``: by name of a task,
    and ``default_duration`` for those without any. ``seed``, ``network``, ``decision_seconds``, ``lost``, ``joins``:
    as for a ``Simulation``. ``observer``: told of everything. ``main_time``: the real time that the program takes for
    itself counts as virtual time. Of a program with several runs, the outcome is that of the last.
    """
    plan = Plan(**options)
    if plan.nodes is not None and not plan.nodes:
        raise ConfigError("nodes=[]: a simulated run needs at least one")
    if plan.network is not None and not isinstance(plan.network, Network):
        raise ConfigError(f"network={plan.network!r}: expected Network(bandwidth, latency)")
    thresholds = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        with session.simulating(plan):
            _run_to_end(program, plan)
    finally:
        gc.set_threshold(*thresholds)
    return plan.outcomes[-1]


def _run_to_end(program: Callable[[], object], plan: Plan) -> None:
    try:
        program()
        runtime = session.running()
        if runtime is None and not plan.outcomes:
            runtime = session.start()  # it called no task
        if runtime is not None:
            runtime.stop()
    except BaseException:
        session.stop(abort=True)
        raise
