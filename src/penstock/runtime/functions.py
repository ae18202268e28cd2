"""The functions of a run: what the engine knows of each, and its code made ready for workers."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.data.segments import Segments
from penstock.engine.engine import Engine
from penstock.errors import ConstraintError, DefinitionError
from penstock.executors.node import NodeExecutor
from penstock.executors.saying import say
from penstock.model.tasks import TaskSpec
from penstock.runtime.constraints import requirements
from penstock.runtime.declaration import Declaration
from penstock.runtime.mpi_declaration import world_of
from penstock.runtime.profiles import Profiles
from penstock.runtime.shipping import ImportedSurroundings, Surroundings, ship, travels_by_name
from penstock.runtime.tuning import Tuning

if TYPE_CHECKING:
    from penstock.executors.inline import InlineExecutor

__all__ = ["Functions"]


class Functions:
    """Numbers functions as they are first called, and anew when what they refer to has changed."""

    def __init__(
        self,
        engine: Engine,
        executor: NodeExecutor | InlineExecutor,
        segments: Segments,
        tuning: Tuning,
        profiles: Profiles,
        constraints: Mapping[str, Mapping[str, Any]],
        retry_delay: float | None,
        *,
        bring_up_to_date: Callable[[Surroundings, str], None],
        strict: bool = False,
    ) -> None:
        #: what a function takes along is to be what tasks have made of it so far
        self._bring_up_to_date = bring_up_to_date
        #: of tasks that do not say
        self._retry_delay = retry_delay
        self._strict = strict
        self._tuning = tuning
        self._profiles = profiles
        #: given in settings, by the name of a task or ``module:name``
        self._constraints = constraints
        self._engine = engine
        self._executor = executor
        self._segments = segments
        self._numbers = itertools.count(1)
        self._specs: dict[Declaration, TaskSpec] = {}
        #: those of calls with options of their own, by their function and what is of their own
        self._variants: dict[tuple[Any, ...], TaskSpec] = {}
        #: those that also take something else
        self._alike: dict[tuple[Any, ...], Declaration] = {}
        #: what functions that travel by value refer to
        self._surroundings: dict[Declaration, Surroundings] = {}
        #: in strict mode: what others do
        self._imported: dict[Declaration, ImportedSurroundings] = {}

    def spec(self, declaration: Declaration) -> TaskSpec:
        """What the engine knows of a function."""
        spec = self._specs.get(declaration)
        if self._imported and declaration in self._imported:
            self._imported[declaration].refuse_changes()
        if spec is None or self._has_changed(declaration):
            return self._new(declaration)
        if declaration.implementations and any(map(self._has_changed, declaration.implementations)):
            return self._new(declaration)
        return spec

    def duration(self, spec: TaskSpec) -> float | None:
        """Mean seconds of a function's body, if it has run."""
        return self._engine.state.expected(spec)

    def _has_changed(self, declaration: Declaration) -> bool:
        surroundings = self._surroundings.get(declaration)
        if surroundings is None:
            return False
        if surroundings.objects:
            self._bring_up_to_date(surroundings, declaration.name)
        return surroundings.changed()

    def _new(self, declaration: Declaration) -> TaskSpec:
        if declaration.variant_of is not None:
            return self._variant(declaration, declaration.variant_of)
        spec = self._specs[declaration] = self._whole(declaration)
        return spec

    def _whole(self, declaration: Declaration) -> TaskSpec:
        spec = self._plain(declaration)
        if declaration.implementations:
            spec = self._open(declaration, spec)
        self._engine.ensure_possible(declaration.name, spec.requirements)
        return spec

    def _variant(self, declaration: Declaration, usual: Declaration) -> TaskSpec:
        """The spec of calls with options of their own: the function is the same, unless it takes something else."""
        changes = {
            "priority": declaration.priority,
            "retries": declaration.retries,
            "retry_delay": self._retry_delay if declaration.retry_delay is None else declaration.retry_delay,
            "timeout": declaration.timeout,
            "on_failure": declaration.on_failure,
        }
        if declaration.constraints != usual.constraints:
            # All that are alike are the first of them.
            first = self._alike.setdefault((usual, *changes.values(), repr(declaration.constraints)), declaration)
            if first is not declaration:
                return self.spec(first)
            whole = self._specs[declaration] = self._whole(declaration)
            return whole
        spec = self.spec(usual)
        key = (spec.function, *changes.values())
        if key not in self._variants:
            others = tuple(replace(one, **changes) for one in spec.implementations)
            self._variants[key] = replace(spec, **changes, implementations=others)
        return self._variants[key]

    def _open(self, declaration: Declaration, plain: TaskSpec) -> TaskSpec:
        """A task that any of several functions does: what becomes of a failure is said by the first of them."""
        others = tuple(
            replace(
                self._plain(one),
                priority=plain.priority,
                retries=plain.retries,
                retry_delay=plain.retry_delay,
                on_failure=plain.on_failure,
            )
            for one in declaration.implementations
        )
        need = replace(plain.requirements, or_else=tuple(other.requirements for other in others))
        return replace(plain, requirements=need, implementations=(plain, *others))

    def _plain(self, declaration: Declaration) -> TaskSpec:
        given = self._given(declaration)
        need = requirements({**declaration.constraints, **given}, declaration.name, io=declaration.io)
        if need.layered:
            need = replace(need, temporary=declaration.is_temporary)
        if need.layered and not need.io:
            raise ConstraintError(
                f"@constraint of task {declaration.name}: storage_bw and storage_size are for I/O tasks; "
                f"move what reads and writes into a function of its own and decorate it with @io"
            )
        if need.auto is not None:
            self._tuning.load()
        world = None
        if declaration.mpi is not None:
            need, world = world_of(declaration.mpi, need, declaration.name)
        elif scattered := declaration.scattered:
            raise DefinitionError(
                f"task {declaration.name} declares {scattered[0]}=SCATTER, but has no ranks to give parts to; put @mpi "
                f"above its @task"
            )
        number, identity = next(self._numbers), _identity(declaration)
        spec = TaskSpec(
            number,
            declaration.name,
            need,
            declaration.priority,
            declaration.retries,
            declaration.timeout,
            declaration.on_failure,
            identity,
            self._profiles.of(number, identity),
            world=world,
            retry_delay=self._retry_delay if declaration.retry_delay is None else declaration.retry_delay,
            yields=world is None and (declaration.generator or declaration.streams),
        )
        self._make_ready(declaration, spec)
        return spec

    def _make_ready(self, declaration: Declaration, spec: TaskSpec) -> None:
        """Prepare the function's code for the workers."""
        if spec.world is not None:
            from penstock.runtime.mpi_support import ensure_mpi

            ensure_mpi(spec.name, spec.world, inline=not isinstance(self._executor, NodeExecutor))
        surroundings = None
        if not travels_by_name(declaration.body):
            surroundings = Surroundings(declaration.name, declaration.body, strict=self._strict)
            self._bring_up_to_date(surroundings, declaration.name)
        self._executor.functions[spec.function] = ship(spec.function, declaration, self._segments)
        if surroundings is not None:
            surroundings.take_pictures()
            self._surroundings[declaration] = surroundings
        elif self._strict:
            self._imported[declaration] = ImportedSurroundings(declaration.name, declaration.body)

    def _given(self, declaration: Declaration) -> Mapping[str, Any]:
        """What settings say of a task, in the place of its decorators."""
        if not self._constraints:
            return {}
        full = f"{getattr(declaration.body, '__module__', '')}:{declaration.name}"
        return self._constraints.get(full) or self._constraints.get(declaration.name) or {}

    def point_out_misspelt(self, origin: str) -> None:
        """Name constraints in settings that are of no task that was called, but look as if they were meant for one."""
        if not self._constraints:
            return
        from difflib import get_close_matches

        called = {declaration.name.lower(): declaration.name for declaration in self._specs}
        unused = [name for name in self._constraints if name.rpartition(":")[2] not in called.values()]
        near = [(name, get_close_matches(name.rpartition(":")[2].lower(), called, n=1, cutoff=0.8)) for name in unused]
        for name, found in near:
            if found:
                message = f"[constraints.{name}] in {origin} is of no task; did you mean {called[found[0]]}?"
                say(f"penstock: {message}\n")


def _identity(declaration: Declaration) -> str:
    """What a function is called across runs; one of the main program is known by the program's file."""
    module = getattr(declaration.body, "__module__", None) or ""
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = os.path.abspath(file) if file else "__main__"
    return f"{module}:{declaration.name}".encode(errors="backslashreplace").decode()  # it is kept in files of UTF-8
