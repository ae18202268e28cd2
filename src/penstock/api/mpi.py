"""``@mpi``: the body of a task is run by several MPI processes; and what such a body may ask.

``mpi`` is the decorator; ``mpi.comm()`` gives a running task its communicator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.api.decorators import task_below, with_fields
from penstock.api.task import Task
from penstock.errors import CallError, DefinitionError, did_you_mean
from penstock.runtime.declaration import Declaration
from penstock.runtime.mpi_declaration import MPI

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from penstock.executors.mpi_world import RankWorld

__all__ = ["mpi"]

P = ParamSpec("P")
R = TypeVar("R")

_ARGUMENTS = ("processes", "runner", "scale_by_cpu", "processes_per_node", "priority")
_SPELLINGS = {name.replace("_", ""): name for name in _ARGUMENTS}


class _MPI:
    """The decorator ``@mpi``."""

    def __call__(self, *args: Any, **written: Any) -> Callable[[Task[P, R]], Task[P, list[R]]]:
        """The task below is run by ``processes`` MPI processes, which have a world of their own.

        Its result is the list of what the ranks return, in their order. ``runner``: name or path of the program that
        starts them. ``scale_by_cpu``: as many processes for each of the constraint's computing units, instead of so
        many units for each process. ``processes_per_node``: at most so many on one machine. ``priority``: goes before
        others that are ready.
        """
        if args:
            raise DefinitionError("@mpi takes arguments by name: @mpi(processes=4)")
        values = _known(written)
        if "processes" not in values:
            raise DefinitionError("@mpi needs the number of processes: @mpi(processes=4)")

        def apply(task: Task[P, R]) -> Task[P, list[R]]:
            declaration = task_below(task, "@mpi").declaration
            fields: dict[str, Any] = {"mpi": _checked(values, declaration)}
            if "priority" in values:
                fields["priority"] = _priority(values["priority"], declaration.name)
            decorated: Task[P, list[R]] = with_fields(task, **fields)
            return decorated

        return apply

    def comm(self) -> Intracomm:
        """The communicator of the MPI task that is running: a fresh duplicate of the world, for this task alone."""
        world = _world()
        if world is None or world.comm is None:
            raise CallError("mpi.comm() is for the body of an MPI task: there is no MPI world here")
        return world.comm

    def discard_world(self) -> None:
        """Have no other task run in these processes: the running task leaves them in a state of its own."""
        world = _world()
        if world is None:
            raise CallError("mpi.discard_world() is for the body of an MPI task: there is no MPI world here")
        world.spoil("the task said so")

    def __repr__(self) -> str:
        return "<decorator penstock.mpi>"


def _world() -> RankWorld | None:
    """The world of this process, if it is a rank of one."""
    from penstock.executors import mpi_world  # brings sockets and more, which programs without MPI tasks do not need

    return mpi_world.current


mpi = _MPI()


def _known(written: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in written.items():
        known = _SPELLINGS.get(name.replace("_", "").casefold())
        if known is None:
            hint = did_you_mean(name.casefold(), _ARGUMENTS)
            if name.casefold() == "binary":
                hint = "; the body of the task is the program, and may start another by subprocess"
            raise DefinitionError(f"@mpi has no {name!r}{hint} (known are {', '.join(_ARGUMENTS)})")
        if known in values:
            raise DefinitionError(f"@mpi gives {known} twice")
        values[known] = value
    return values


def _checked(values: dict[str, Any], declaration: Declaration) -> MPI:
    task = declaration.name
    runner = values.get("runner", "mpiexec")
    if not isinstance(runner, str) or not runner.strip():
        raise DefinitionError(f"@mpi of {task}: runner={runner!r} must be the name or path of a program")
    scale = values.get("scale_by_cpu", False)
    if not isinstance(scale, bool):
        raise DefinitionError(f"@mpi of {task}: scale_by_cpu={scale!r} must be True or False")
    per_node = values.get("processes_per_node")
    for name, direction in declaration.directions.items():
        if direction.stream:
            plain = "FILE_OUT" if direction.writes else "FILE_IN"
            raise DefinitionError(
                f"@mpi of {task}: parameter {name!r} is {direction!r}, which ranks cannot share; use {plain}"
            )
        if direction.writes and not direction.file:
            advice = "target_direction=IN" if name == "self" else f"{name}=IN, and return what was made of it"
            raise DefinitionError(
                f"@mpi of {task}: parameter {name!r} is {direction!r}, but every rank has a copy of its own; "
                f"declare {advice}"
            )
    if declaration.generator:
        raise DefinitionError(
            f"@mpi of {task}: it yields its outputs, but several ranks would yield at once; declare how many outputs "
            f"there are in all, returns=N, and hand each over in one rank by ready_value(obj, index)"
        )
    if declaration.streams:
        raise DefinitionError(
            f"@mpi of {task}: returns=... means outputs one after the other, which ranks do not have; declare how many "
            f"there are in all, returns=N, and hand each over in one rank by ready_value(obj, index)"
        )
    if declaration.implementations:
        raise DefinitionError(f"@mpi of {task}: a task with several implementations cannot be an MPI task")
    return MPI(
        _number(values["processes"], "processes", task),
        runner,
        scale,
        0 if per_node is None else _number(per_node, "processes_per_node", task),
    )


def _number(value: Any, name: str, task: str) -> int | str:
    if isinstance(value, str) and "$" in value:
        return value  # read when the task is first called
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise DefinitionError(f"@mpi of {task}: {name}={value!r} must be a whole number of at least 1")
    return number


def _priority(written: Any, task: str) -> int:
    if isinstance(written, int):
        return int(written)
    raise DefinitionError(f"@mpi of {task}: priority={written!r} must be True, False or a whole number")
