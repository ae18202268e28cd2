"""What ``penstock stream exec`` does: find the server, start the program as streaming needs it, say how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from penstock.errors import ConfigError, PenstockError
from penstock.streaming.control import Began, Begin, Connection, End, connect
from penstock.streaming.folders import Identity, living_servers
from penstock.streaming.language.model import Step
from penstock.streaming.mounts import join_mounts
from penstock.streaming.placement import true_root
from penstock.streaming.processes import die_with_parent
from penstock.streaming.programs import examine
from penstock.streaming.steps import exit_status, from_inside, step_environment
from penstock.units import parse_duration

__all__ = ["launch_exec"]

_USAGE = 2
#: seconds after which a wait for the server is mentioned
_SILENCE = 2.0


def launch_exec(command: list[str], app: str | None, workflow: str | None, wait: str) -> int:
    """Run one program of a served workflow and return its exit status."""
    try:
        label = app or os.environ.get("PENSTOCK_STREAM_APP") or os.environ.get("CAPIO_APP_NAME")
        if not label:
            raise ConfigError("which app is this? give --app NAME, or set CAPIO_APP_NAME")
        return _run(_find(workflow, parse_duration(wait)), label, command)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return _USAGE


def _find(workflow: str | None, patience: float) -> Identity:
    """The server that was meant: by name, by CAPIO_DIR, or the only one."""
    root = os.environ.get("CAPIO_DIR")
    where = f" in {root}" if root else ""
    began, told = time.monotonic(), False
    while True:
        found = [one for one in living_servers() if workflow in (None, one.name)]
        if root is not None:
            meant = true_root(root)
            found = [one for one in found if one.root == meant]
        ready = [one for one in found if os.path.exists(one.control)]
        if len(ready) == 1:
            return ready[0]
        if len(ready) > 1:
            names = ", ".join(f"{one.name} in {one.root}" for one in ready)
            raise ConfigError(f"several workflows are served: {names}; say which with --workflow or CAPIO_DIR")
        waited = time.monotonic() - began
        if waited > patience:
            raise ConfigError(f"no server{where}; start one with `penstock stream serve CONFIG`")
        if waited > _SILENCE and not told:
            told = True
            print(f"penstock: waits for a server{where} (penstock stream serve CONFIG)", file=sys.stderr, flush=True)
        time.sleep(0.05)


def _run(identity: Identity, label: str, command: list[str]) -> int:
    connection: Connection = connect(identity)
    try:
        folder = _folder(identity)
        began = connection.ask(_begin(label, command[0], folder or os.getcwd()))
        assert isinstance(began, Began)
        if began.own_mounts:
            _join(identity)
        step = Step(label.partition(":")[0])
        environment = step_environment(step, label, began.root, began.environment)
        try:
            child = subprocess.Popen(from_inside(command), env=environment, cwd=folder, preexec_fn=die_with_parent)  # noqa: PLW1509 (one system call)
        except OSError as error:
            connection.ask(End(127))
            raise ConfigError(f"{command[0]} cannot be started: {error.strerror}") from None
        status = _wait(child)
        connection.ask(End(status))
        return exit_status(status)
    finally:
        connection.close()


def _join(identity: Identity) -> None:
    """See the directory as the other programs do; this process and the program it starts."""
    try:
        join_mounts(identity.pid)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"cannot see the files of {identity.name} that are in memory: {why}") from None


def _begin(label: str, program: str, folder: str) -> Begin:
    """The request, with what speaks against the program: the server knows whether a step makes it."""
    verdict = examine(program, folder=folder)
    if verdict.ok:
        return Begin(label)
    objection = f"{program} cannot be streamed: {verdict.reason} ({verdict.way or verdict.program})"
    return Begin(label, list(verdict.places), objection)


def _folder(identity: Identity) -> str | None:
    """Where the program starts: a shell that stood in the directory before it was put aside means the one in memory."""
    here = os.getcwd()
    if identity.aside and (here == identity.aside or here.startswith(identity.aside + "/")):
        return identity.root + here[len(identity.aside) :]
    return None


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for it; signals go to it, and it decides."""

    def pass_on(number: int, frame: object) -> None:
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, pass_on)
    # Ctrl-C reaches the whole group by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return child.wait()
