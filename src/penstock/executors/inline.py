"""The caller's own thread as an executor, for debugging: a task runs at its call, where a debugger can follow it.

Everything else is as with worker processes: the same engine, the same copies of arguments, the same errors.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.data.segments import Segments
from penstock.executors.execution import Function, carry_out, define
from penstock.executors.wire import Define, Done, Early, Error, run_of
from penstock.model.commands import Launch
from penstock.model.events import Event, Failed, Finished, OutputReady, Recalled, Warmed
from penstock.model.resources import StorageLayer
from penstock.persistent.where import settings

if TYPE_CHECKING:
    from penstock.executors.emulation import EmulatedDevice

__all__ = ["InlineExecutor"]


class _Kept:
    """Early outputs of an attempt, kept until its end: nobody could use them before, as all run in one thread."""

    def __init__(self) -> None:
        self.outputs: list[Event] = []

    def hand_over(self, message: Early) -> None:
        """Keep an output."""
        self.outputs.append(OutputReady(message.task, message.attempt, message.index, message.value))

    def await_grant(self, task: int, above: int) -> int:
        """Holding back would help nobody."""
        return above + 1


class InlineExecutor:
    """Runs attempts one after the other when asked to."""

    def __init__(self, name: str, *, segments: Segments, layers: Sequence[StorageLayer], strict: bool) -> None:
        self.name = name
        self._layers = {layer.name: layer for layer in layers}
        self._segments = segments
        self._strict = strict
        self._devices: list[EmulatedDevice] | None = None
        self.functions: dict[int, Define] = {}
        self._defined: dict[int, Function] = {}
        self._launched: deque[Launch] = deque()
        self._interrupted = False
        #: held by the thread that runs attempts, so that they end in the order in which they were launched
        self.turn = threading.RLock()

    def launch(self, command: Launch) -> None:
        """Keep an attempt until ``run_next``."""
        self._launched.append(command)

    def recall(self, lane: int) -> Recalled:
        """Take back what has not started."""
        tasks = tuple(command.task for command in self._launched)
        self._launched.clear()
        return Recalled(self.name, lane, tasks)

    def warm(self, executors: int) -> Warmed:
        """Nothing to start."""
        return Warmed(self.name)

    def kill(self, lane: int) -> None:
        """Nothing to end: a task runs in the thread that could ask for it."""

    def run_next(self) -> list[Event]:
        """Carry out the next attempt in this thread; gives what it handed over early, and how it ended."""
        try:
            command = self._launched.popleft()
        except IndexError:
            return []
        number = command.call.spec.function
        function = self._defined.get(number)
        if function is None:
            function = self._defined[number] = define(self.functions[number], self._segments)
        with self._emulation():
            early = _Kept()
            run = run_of(command)
            outside, settings.attempt = settings.attempt, (self._segments.memory_dir, run.task)
            message = carry_out(run, function, self._segments, self._layers, strict=self._strict, channel=early)
            settings.attempt = outside
        if isinstance(message, Error) and message.failure.message.startswith("KeyboardInterrupt"):
            self._interrupted = True
        if isinstance(message, Done):
            return [*early.outputs, Finished(message.task, message.attempt, message.outputs, message.seconds)]
        return [*early.outputs, Failed(message.task, message.attempt, message.failure, message.seconds)]

    @contextlib.contextmanager
    def _emulation(self) -> Iterator[None]:
        """Slow files on emulated devices down while a task runs."""
        if not any(layer.curve for layer in self._layers.values()):
            yield
            return
        from penstock.executors.emulation import from_layers, install, uninstall

        if self._devices is None:
            os.makedirs(self._segments.memory_dir, mode=0o700, exist_ok=True)
            self._devices = from_layers(list(self._layers.values()), self._segments.memory_dir)
        install(self._devices)
        try:
            yield
        finally:
            uninstall()

    def pass_on_interrupt(self) -> None:
        """Ctrl-C reached the program inside a task: it is the program's to deal with."""
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def worker_of(self, lane: int) -> int:
        """The number by which this process is known as a writer."""
        return self._segments.writer

    def close(self) -> None:
        """Forget what was not run."""
        self._launched.clear()
        for device in self._devices or ():
            device.close()
