"""The functions of a simulated run: what the engine knows of each, and how long its calls take. No code is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.data.segments import Segments
from penstock.engine.engine import Engine
from penstock.model.tasks import TaskSpec
from penstock.runtime.declaration import Declaration
from penstock.runtime.functions import Functions
from penstock.runtime.profiles import Profiles
from penstock.runtime.simulated_durations import Durations, Timing
from penstock.runtime.tuning import Tuning

__all__ = ["SimulatedFunctions"]


class SimulatedFunctions(Functions):
    """Numbers functions as they are first called."""

    def __init__(
        self,
        engine: Engine,
        segments: Segments,
        tuning: Tuning,
        profiles: Profiles,
        constraints: Mapping[str, Mapping[str, Any]],
        retry_delay: float | None,
        durations: Durations,
    ) -> None:
        # There is no executor that wants code.
        super().__init__(
            engine,
            None,  # type: ignore[arg-type]
            segments,
            tuning,
            profiles,
            constraints,
            retry_delay,
            bring_up_to_date=lambda taken_along, task: None,
        )
        self._durations = durations
        #: by the number of the function
        self.timings: dict[int, Timing] = {}

    def _make_ready(self, declaration: Declaration, spec: TaskSpec) -> None:
        # One that no node can host is never chosen where there are others, and refused where there are none.
        runs = not self._engine.state.is_hopeless(spec.requirements)
        self.timings[spec.function] = self._durations.timing(declaration, spec, runs=runs)
