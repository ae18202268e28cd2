"""The caller's own thread as an executor, for debugging: a task runs at its call, where a debugger can follow it.

Everything else is as with worker processes: the same engine, the same copies of arguments, the same errors.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from penstock.data.segments import Segments
from penstock.executors.body_threads import forget_threads, note_threads, stop_noting_threads
from penstock.executors.disposable import hold
from penstock.executors.execution import Function, carry_out, define
from penstock.executors.outside import Here, Stance
from penstock.executors.pools import VISIBLE
from penstock.executors.preparing import prepare_inline
from penstock.executors.saying import say
from penstock.executors.setup_globals import setup_globals
from penstock.executors.wire import Define, Delivering, Done, Early, Error, run_of
from penstock.model.commands import Launch
from penstock.model.events import Event, Failed, Finished, OutputReady, Recalled, Sampled, Warmed
from penstock.model.resources import StorageLayer
from penstock.persistent.where import settings
from penstock.units import format_duration

if TYPE_CHECKING:
    from penstock.executors.emulation import EmulatedDevice
    from penstock.executors.enforcement import Enforcement

__all__ = ["InlineExecutor"]

LetThrough = Callable[[], AbstractContextManager[None]]


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

    def is_to_end(self, task: int) -> bool:
        """Nobody has the stream of a call that has not returned."""
        return False

    def announce(self, message: Delivering) -> None:
        """Nobody ends this process and goes on without it."""


def _interruptible(body: Callable[..., Any], let_through: LetThrough) -> Callable[..., Any]:
    """A body that can be interrupted where it is called by what cannot."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with let_through():
            return body(*args, **kwargs)

    def iterated(*args: Any, **kwargs: Any) -> Generator[Any, None, Any]:
        with let_through():
            return (yield from body(*args, **kwargs))

    return iterated if inspect.isgeneratorfunction(body) else called


class InlineExecutor:
    """Runs attempts one after the other when asked to."""

    def __init__(
        self,
        name: str,
        *,
        segments: Segments,
        layers: Sequence[StorageLayer],
        strict: bool,
        here: Here,
        setup: Callable[[], object] | None,
        gpus: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._layers = {layer.name: layer for layer in layers}
        self._segments = segments
        self._strict = strict
        self._here = here
        self._gpus = gpus
        self._stance = Stance(here.base)
        #: why no task can run
        self._unprepared = None if setup is None else prepare_inline(setup)
        self._devices: list[EmulatedDevice] | None = None
        self._enforcement: Enforcement | None = None
        self.functions: dict[int, Define] = {}
        self._defined: dict[int, Function] = {}
        self._launched: deque[Launch] = deque()
        #: the task in which Ctrl-C reached the program, until the program is told
        self._interrupted: str | None = None
        #: held by the thread that runs attempts, so that they end in the order in which they were launched
        self.turn = threading.RLock()
        #: the task that runs, and in which thread
        self._running: tuple[str, threading.Thread] | None = None
        note_threads()

    def launch(self, command: Launch) -> None:
        """Keep an attempt until ``run_next``."""
        self._launched.append(command)

    def recall(self, lane: int) -> Recalled:
        """Take back what has not started."""
        tasks = tuple(command.task for command in self._launched)
        self._launched.clear()
        return Recalled(self.name, lane, tasks)

    def sample(self, layer: str) -> Sampled:
        """One task runs at a time, to its end: there is nothing to watch."""
        return Sampled(self.name, layer, None)

    def warm(self, executors: int) -> Warmed:
        """Nothing to start."""
        return Warmed(self.name)

    def kill(self, lane: int, ask: int) -> None:
        """Nothing to end: a task runs in the thread that could ask for it."""

    def await_turn(self, patience: float | None) -> None:
        """Wait while another thread runs attempts; say so if it takes long, since that may be waiting for this one."""
        while patience is not None and (running := self._running) is not None:
            task, thread = running
            if thread is threading.current_thread():
                return
            if self.turn.acquire(timeout=patience):
                self.turn.release()
                return
            say(
                f"penstock: a call in thread {threading.current_thread().name} has waited {format_duration(patience)} "
                f"for task {task}, which runs in thread {thread.name}: inline, one task runs at a time. If that task "
                f"waits for this thread, neither goes on; have its body start the thread, or use workers\n"
            )
            patience *= 2

    def run_next(self, let_through: LetThrough) -> list[Event]:
        """Carry out the next attempt in this thread; gives what it handed over early, and how it ended.

        The caller holds interrupts back, so that none comes between the two. ``let_through``: except in the body.
        """
        try:
            command = self._launched.popleft()
        except IndexError:
            return []
        if self._unprepared is not None:
            return [Failed(command.task, command.attempt, self._unprepared, 0.0)]
        home = self._here.now()
        with self._stance.visit(command.call.outside or home, home), self._paced_files(), self._seeing(command.gpus):
            function = self._function(command.call.spec.function, let_through)
            early = _Kept()
            run = run_of(command)
            outside, settings.attempt = settings.attempt, (self._segments.memory_dir, run.task)
            self._running = command.call.shown, threading.current_thread()
            if self._enforcement is not None:
                self._enforcement.begin(run)
            message = carry_out(
                run, function, self._segments, self._layers, strict=self._strict, channel=early, stance=self._stance
            )
            settings.attempt = outside
            if self._enforcement is not None:
                self._enforcement.end(message)
            self._running = None
            forget_threads()
        if isinstance(message, Error) and message.failure.message.startswith("KeyboardInterrupt"):
            self._interrupted = command.call.shown
        if isinstance(message, Done):
            return [*early.outputs, Finished(message.task, message.attempt, message.outputs, message.seconds)]
        return [*early.outputs, Failed(message.task, message.attempt, message.failure, message.seconds)]

    def _function(self, number: int, let_through: LetThrough) -> Function:
        function = self._defined.get(number)
        if function is None:
            function = self._defined[number] = define(self.functions[number], self._segments)
            function.called = _interruptible(function.body, let_through)
        return function

    @contextlib.contextmanager
    def _seeing(self, gpus: tuple[int, ...]) -> Iterator[None]:
        """Name the GPUs that a task holds, as its worker would; a library that has looked already is not told."""
        before = os.environ.get(VISIBLE)
        if gpus:
            os.environ[VISIBLE] = ",".join(self._gpus[number] for number in gpus)
        try:
            yield
        finally:
            if gpus and before is None:
                os.environ.pop(VISIBLE, None)
            elif gpus and before is not None:
                os.environ[VISIBLE] = before

    @contextlib.contextmanager
    def _paced_files(self) -> Iterator[None]:
        """Have files on emulated devices and enforced layers take their time while a task runs."""
        layers = list(self._layers.values())
        if not any(layer.curve or layer.enforced for layer in layers):
            yield
            return
        from penstock.executors.emulation import from_layers
        from penstock.executors.enforcement import Enforcement
        from penstock.executors.paced_files import install, uninstall

        if self._enforcement is None or self._devices is None:
            hold(self._segments.memory_dir)
            self._devices = from_layers(layers, self._segments.memory_dir)
            self._enforcement = Enforcement(layers)
        install(self._enforcement.over(self._devices))
        try:
            yield
        finally:
            uninstall()

    def take_interrupted(self) -> str | None:
        """The task in which Ctrl-C reached the program, if it did since this was last asked."""
        task, self._interrupted = self._interrupted, None
        return task

    def only_starts(self) -> bool:
        """Whether all tasks wait for processes to start: there are none."""
        return False

    def unheard(self) -> tuple[frozenset[int], int]:
        """Lanes whose process has ended without anybody saying so: there are none."""
        return frozenset(), 0

    def worker_of(self, lane: int) -> int:
        """The number by which this process is known as a writer."""
        return self._segments.writer

    def close(self) -> None:
        """Forget what was not run."""
        self._launched.clear()
        stop_noting_threads()
        setup_globals.forget()
        for device in self._devices or ():
            device.close()
