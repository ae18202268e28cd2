"""The functions of a run: what the engine knows of each, and its code made ready for workers."""

from __future__ import annotations

import itertools
import os
import sys

from penstock.data.segments import Segments
from penstock.engine.engine import Engine
from penstock.errors import ConstraintError
from penstock.executors.inline import InlineExecutor
from penstock.executors.node import NodeExecutor
from penstock.model.tasks import TaskSpec
from penstock.runtime.constraints import requirements
from penstock.runtime.declaration import Declaration
from penstock.runtime.shipping import Surroundings, ship, travels_by_name
from penstock.runtime.tuning import Tuning

__all__ = ["Functions"]


class Functions:
    """Numbers functions as they are first called, and anew when what they refer to has changed."""

    def __init__(
        self, engine: Engine, executor: NodeExecutor | InlineExecutor, segments: Segments, tuning: Tuning
    ) -> None:
        self._tuning = tuning
        self._engine = engine
        self._executor = executor
        self._segments = segments
        self._numbers = itertools.count(1)
        self._specs: dict[Declaration, TaskSpec] = {}
        #: what functions that travel by value refer to
        self._surroundings: dict[Declaration, Surroundings] = {}

    def spec(self, declaration: Declaration) -> TaskSpec:
        """What the engine knows of a function."""
        spec = self._specs.get(declaration)
        if spec is not None and not (self._surroundings and self._has_changed(declaration)):
            return spec
        return self._new(declaration)

    def duration(self, declaration: Declaration) -> float | None:
        """Mean seconds of a function's body, if it has run."""
        return self._engine.state.durations.get(self.spec(declaration).function)

    def _has_changed(self, declaration: Declaration) -> bool:
        surroundings = self._surroundings.get(declaration)
        return surroundings is not None and surroundings.changed()

    def _new(self, declaration: Declaration) -> TaskSpec:
        need = requirements(declaration.constraints, declaration.name, io=declaration.io)
        if need.layered and not need.io:
            raise ConstraintError(
                f"@constraint of task {declaration.name}: storage_bw and storage_size are for I/O tasks; "
                f"move what reads and writes into a function of its own and decorate it with @io"
            )
        self._engine.ensure_possible(declaration.name, need)
        if need.auto is not None:
            self._tuning.load()
        spec = TaskSpec(
            next(self._numbers),
            declaration.name,
            need,
            declaration.priority,
            declaration.retries,
            declaration.timeout,
            declaration.on_failure,
            _identity(declaration),
        )
        self._executor.functions[spec.function] = ship(spec.function, declaration, self._segments)
        if not travels_by_name(declaration.body):
            self._surroundings[declaration] = Surroundings(declaration.body)
        self._specs[declaration] = spec
        return spec


def _identity(declaration: Declaration) -> str:
    """What a function is called across runs; one of the main program is known by the program's file."""
    module = getattr(declaration.body, "__module__", None) or ""
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = os.path.abspath(file) if file else "__main__"
    return f"{module}:{declaration.name}"
