"""The steps of a workflow as processes: started with the environment that streaming needs, relayed, stopped.

``running`` starts all of them at once, ``batch`` one after the other. Each is the head of a session of its own, so that
Ctrl-C reaches only Penstock, which then ends them in order; whatever leaves its session is found as a descendant.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping

from penstock.errors import ConfigError
from penstock.streaming.guard import Guard
from penstock.streaming.language.model import Step, Workflow
from penstock.streaming.processes import (
    Watcher,
    adopt_orphans,
    collect_orphans,
    descendants,
    ended,
    signal_all,
    started_at,
)
from penstock.streaming.programs import examine_command, is_made
from penstock.streaming.rules.coverage import Rules

__all__ = [
    "Relay",
    "StepProcess",
    "Steps",
    "exit_status",
    "from_inside",
    "labels",
    "refuse_programs",
    "step_environment",
    "told_failure",
]

#: lines of output that a failure shows
_TAIL = 12
#: seconds that a step has between SIGTERM and SIGKILL
_GRACE = 3.0
#: seconds that output may still come when a step has ended but something holds its pipe open
_LAST_WORDS = 0.3

#: starts a program, and leaves its environment as it is
_STARTER = "/usr/bin/env"

#: called with the name of a step, the descriptor (1 or 2) and a piece of its output that ends with a whole line
Relay = Callable[[str, int, bytes], None]


class StepProcess:
    """One running instance of a step."""

    def __init__(self, step: Step, label: str, process: subprocess.Popen[bytes]) -> None:
        self.step = step
        #: ``name``, or ``name:2`` where there are several
        self.label = label
        self.process = process
        self.pid = process.pid
        self.started = started_at(process.pid)
        self.tail: deque[bytes] = deque(maxlen=_TAIL)
        #: exit status or minus a signal, once it has ended
        self.status: int | None = None
        #: the guard knows that nothing is left of its process group
        self.forgotten = False

    @property
    def how(self) -> str:
        """How it ended, in words."""
        return "runs" if self.status is None else ended(self.status)

    def last_lines(self) -> str:
        """The end of its output, as text."""
        return "\n".join(line.decode(errors="replace").rstrip("\r") for line in self.tail)


class Steps:
    """Starts steps and hears of their ends."""

    def __init__(self, watcher: Watcher, relay: Relay, on_end: Callable[[StepProcess], None], guard: Guard) -> None:
        adopt_orphans()
        self._guard = guard
        self._watcher = watcher
        self._relay = relay
        self._on_end = on_end
        self._spared = descendants()
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[int, _Pipe] = {}
        self.all: list[StepProcess] = []

    def start(
        self, step: Step, label: str, environment: Mapping[str, str], folder: str, *, streamed: bool = False
    ) -> StepProcess:
        """Start one instance of a step."""
        command = step.command
        if command is None:
            raise ConfigError(f"step {step.name!r} has no command: add `command = ...`, or start it with `exec`")
        arguments = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        if streamed:
            arguments = from_inside(arguments)
        out, err = os.pipe(), os.pipe()
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=out[1],
                stderr=err[1],
                cwd=folder,
                env={**environment, **self._guard.environment},
                start_new_session=True,
            )
        except OSError as error:
            os.close(out[0])
            os.close(err[0])
            what = f"{error.filename or arguments[0]}: {error.strerror}"
            raise ConfigError(f"step {step.name!r} cannot be started: {what}; its command is {command!r}") from None
        finally:
            os.close(out[1])
            os.close(err[1])
        running = StepProcess(step, label, process)
        for number, reading in ((1, out[0]), (2, err[0])):
            self._pipes[reading] = _Pipe(running, number)
            os.set_blocking(reading, False)
            self._loop.add_reader(reading, self._read, reading)
        self.all.append(running)
        self._guard.cover(running.pid)
        self._watcher.watch(running.pid, 0, lambda _: self._ended(running))
        return running

    @property
    def running(self) -> list[StepProcess]:
        """Those that have not ended."""
        return [one for one in self.all if one.status is None]

    def _ended(self, step: StepProcess) -> None:
        step.status = step.process.wait()
        for descriptor, pipe in list(self._pipes.items()):
            if pipe.step is step:
                self._read(descriptor)
                self._loop.call_later(_LAST_WORDS, self._close, descriptor)
        self._forget_gone()
        self._on_end(step)

    def _read(self, descriptor: int) -> None:
        pipe = self._pipes.get(descriptor)
        if pipe is None:
            return
        try:
            # Bounded, so that a step that never stops talking does not keep the loop to itself.
            for _ in range(16):
                data = os.read(descriptor, 1 << 16)
                if not data:
                    self._close(descriptor)
                    return
                self._pass_on(pipe, data)
        except BlockingIOError:
            pass

    def _pass_on(self, pipe: _Pipe, data: bytes) -> None:
        pipe.rest += data
        whole, newline, rest = pipe.rest.rpartition(b"\n")
        if newline:
            pipe.rest = rest
            pipe.step.tail.extend(whole.split(b"\n")[-_TAIL:])
            self._relay(pipe.step.label, pipe.number, whole + newline)
        elif len(pipe.rest) > 1 << 20:
            pipe.rest = b""  # no text: a line of a megabyte helps nobody
            self._relay(pipe.step.label, pipe.number, b"(a line longer than 1 MiB)\n")

    def _close(self, descriptor: int) -> None:
        pipe = self._pipes.pop(descriptor, None)
        if pipe is None:
            return
        if pipe.rest:
            pipe.step.tail.append(pipe.rest)
            self._relay(pipe.step.label, pipe.number, pipe.rest + b"\n")
        self._loop.remove_reader(descriptor)
        os.close(descriptor)

    def _forget_gone(self) -> None:
        """Tell the guard of process groups that are empty: their numbers may come again."""
        for step in self.all:
            if step.status is not None and not step.forgotten:
                try:
                    os.killpg(step.pid, 0)
                except ProcessLookupError:
                    step.forgotten = True
                    self._guard.forget(step.pid)
                except PermissionError:
                    pass  # somebody is left in it, with other rights

    def collect(self) -> None:
        """Collect orphans that ended."""
        self._forget_gone()
        collect_orphans({step.pid for step in self.all} | self._spared)

    async def stop(self) -> None:
        """End everything that is left of the steps: politely first, then for sure."""
        groups = {step.pid for step in self.all}
        for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, 2.0)):
            if not descendants() - self._spared:
                break
            signal_all(number, groups, self._spared)
            # A stopped process gets its signal only when it goes on.
            signal_all(signal.SIGCONT, groups, self._spared)
            deadline = self._loop.time() + patience
            while descendants() - self._spared and self._loop.time() < deadline:
                await asyncio.sleep(0.02)
                self.collect()
        self._forget_gone()
        for descriptor in list(self._pipes):
            self._close(descriptor)


class _Pipe:
    """What a step has written and no newline has ended yet."""

    def __init__(self, step: StepProcess, number: int) -> None:
        self.step = step
        self.number = number
        self.rest = b""


def labels(step: Step) -> list[str]:
    """What the instances of a step are called: ``name``, or ``name:0``, ``name:1``, … where there are several."""
    return [step.name] if step.instances == 1 else [f"{step.name}:{number}" for number in range(step.instances)]


def step_environment(step: Step, label: str, root: str, streaming: Mapping[str, str]) -> dict[str, str]:
    """The environment of a step; ``streaming`` holds what brings the library in, and is empty in batch."""
    environment = {**os.environ, **dict(step.env)}
    environment |= {"CAPIO_DIR": root, "CAPIO_APP_NAME": label, "PENSTOCK_STREAM_APP": label}
    if preload := streaming.get("LD_PRELOAD"):
        mine = environment.get("LD_PRELOAD", "")
        environment["LD_PRELOAD"] = f"{mine}:{preload}" if mine and preload not in mine.split(":") else preload
    environment.update((name, value) for name, value in streaming.items() if name != "LD_PRELOAD")
    return environment


def from_inside(command: list[str]) -> list[str]:
    """The same command, started by a program that has the library: it waits for one that another step makes."""
    unusual = command[0].startswith("-") or "=" in command[0]
    return command if unusual or not os.path.exists(_STARTER) else [_STARTER, *command]


def exit_status(status: int) -> int:
    """The exit status of Penstock for that of a step, which is minus a signal if one killed it."""
    return 128 - status if status < 0 else status


def told_failure(step: StepProcess, waiting: list[str]) -> str:
    """All that a user needs to know of a step that failed."""
    lines = [f"step {step.label!r} {ended(step.status or 0)}"]
    if tail := step.last_lines():
        lines += ["its last lines:", *(f"    {line}" for line in tail.splitlines())]
    if waiting:
        lines += ["who waited for it:", *(f"    {text}" for text in waiting)]
    return "\n".join(lines)


def refuse_programs(workflow: Workflow, root: str) -> None:
    """Raise a ConfigError that names every step whose program cannot be streamed, and why."""
    complaints = []
    found = False
    rules = Rules(workflow)
    for step in workflow.steps:
        if step.command is None:
            continue
        folder = os.path.join(root, step.cwd or ".")
        environment = {**os.environ, **dict(step.env)}
        with contextlib.suppress(OSError):
            for verdict in examine_command(step.command, environment, folder):
                in_shell = isinstance(step.command, str)
                if not verdict.ok and is_made(rules, step.name, verdict.places, root, itself=in_shell):
                    continue
                # A missing word in a shell's line may be a function of that shell: let the shell judge it.
                if not verdict.ok and (verdict.path or not in_shell):
                    found = found or bool(verdict.path)
                    where = verdict.way or verdict.program
                    complaints.append(
                        f"step {step.name!r}: {verdict.program} cannot be streamed: {verdict.reason} ({where})"
                    )
    if complaints:
        advice = ["run the workflow with --batch, or exclude the files of such a step and start it apart"]
        raise ConfigError("\n".join([*complaints, *(advice if found else [])]))
