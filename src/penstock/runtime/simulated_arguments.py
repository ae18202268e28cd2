"""A simulated call's arguments: what it depends on is found as in a real run, but nothing is stored or sent.

Here is also what is known of the sizes of files and results, which decide how long transfers take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import CallError
from penstock.model.data import FileRef, Value, VersionId
from penstock.model.directions import Direction
from penstock.model.tasks import TaskCall
from penstock.runtime.arguments import Arguments, TakenBack
from penstock.runtime.declaration import Declaration, Place, Sizes
from penstock.runtime.futures import Future
from penstock.runtime.simple_arguments import EMPTY, is_immutable
from penstock.runtime.simulated_durations import Timing
from penstock.runtime.simulated_values import PlacedSimulatedFuture, Placeholder
from penstock.sim.work import Work

if TYPE_CHECKING:
    from penstock.runtime.simulated_runtime import SimulatedRuntime

__all__ = ["SimulatedArguments", "work_of"]

_OLD = Value(b"")


class SimulatedArguments(Arguments):
    """Finds the futures, data and files in the arguments of one call."""

    _runtime: SimulatedRuntime

    def __init__(self, runtime: SimulatedRuntime, declaration: Declaration, task: int, sizes: Sizes) -> None:
        super().__init__(runtime, declaration, task)
        self._sizes = sizes

    def _pickle(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        """Look into what may hold futures or data; what a real run could not send is refused here too."""
        looked_into = []
        for value in (*args, *kwargs.values()):
            if isinstance(value, Future):
                self._outgoing(value)
            elif isinstance(value, Placeholder):
                self._outgoing(value._future)
            elif not is_immutable(value):
                looked_into.append(value)
        if looked_into:
            self._dump(looked_into, f"an argument of task {self._declaration.name}")
        if self.wiring.stale:
            raise TakenBack
        return EMPTY

    def _outgoing(self, future: Any) -> tuple[Any, ...]:
        if future.runtime is self._runtime:
            return super()._outgoing(future)
        return type(None), ()  # of another run, where it is done or never will be

    def _access(self, place: Place, value: Any, direction: Direction, where: str) -> Any:
        if isinstance(value, Placeholder) and direction.collection and not direction.file:
            if direction.writes:
                len(value)  # which tells what is wrong with it
            return value
        return super()._access(place, value, direction, where)

    def _take_back(self, container: Any, where: str) -> None:
        """Nothing is ever made of it: its elements are those that the program knows."""

    def _placed(self, version: VersionId) -> Future[Any]:
        return PlacedSimulatedFuture(self._runtime, self._task, version, self._declaration.name)

    def _as_it_is(self, value: Any, where: str) -> Value:
        return _OLD

    def _found(self, place: object, path: str, kind: str, where: str) -> FileRef:
        """A file of the program's, of this machine, or one that is only described."""
        files = self._runtime.files
        size = 0 if files.lost(path) else files.size(path)  # the attempt will find that it is gone, and say with whom
        if size is None:
            size = _by_name(self._sizes, self._declaration, place)
        if size is None:
            raise CallError(
                f"{where} names the {kind} {path}, which does not exist and which no task produces; a simulated run "
                f'takes it as there if its size is declared: @task(size={{"{_name(self._declaration, place)}": "1GB"}})'
            )
        return FileRef(path, size)


def work_of(call: TaskCall, declaration: Declaration, timing: Timing, seconds: float, sizes: Sizes) -> Work:
    """What an attempt of a call does: computes so long, and writes and returns so much."""
    if not call.outputs and sizes is None and not timing.room(0):
        return Work(seconds)
    files = sum(output.file is not None for output in call.outputs)
    io = declaration.io
    each = sizes if isinstance(sizes, int) else None
    made = []
    for output in call.outputs:
        size = _by_name(sizes, declaration, output.path[0])
        if output.file is not None and size is None:
            size = timing.room(files) if each is None else each
        elif size is None:
            size = each if each is not None and not files and not io else 0
        made.append(size)
    if isinstance(sizes, Mapping):
        # A file that a parameter of that name is for is not what the function returns.
        returned, traffic = 0 if "returns" in declaration.directions else sizes.get("returns", 0), 0
    else:
        returned = each * call.returns if each is not None and not files and not io else 0
        traffic = (timing.room(0) if each is None else each) if io and not files else 0
    return Work(seconds, tuple(made), returned, traffic)


def _name(declaration: Declaration, place: object) -> str:
    """The parameter that an argument is for."""
    if isinstance(place, int):
        return declaration.positional[place] if place < len(declaration.positional) else f"*{place}"
    return str(place)


def _by_name(sizes: Sizes, declaration: Declaration, place: object) -> int | None:
    return sizes.get(_name(declaration, place)) if isinstance(sizes, Mapping) else None
