"""The process that keeps store servers: starts them, and outlives the program just long enough to leave nothing behind.

Run by path, without site packages, so that it starts at once. Its first line of input says what to do; the end of its
input, or of the program, is the end of the servers and of their folder. Should this process itself be killed, the
kernel kills the servers.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
#: seconds that a server has to end by itself
_PATIENCE = 3.0


def _die_with_keeper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    """Start servers, wait for the end, clear up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    order = json.loads(sys.stdin.buffer.readline())
    servers: list[subprocess.Popen[bytes]] = []
    try:
        for command in order["commands"]:
            servers.append(
                subprocess.Popen(
                    command,
                    cwd=order["folder"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    preexec_fn=_die_with_keeper,  # noqa: PLW1509  # this process has one thread
                )
            )
        sys.stdout.write(json.dumps([server.pid for server in servers]) + "\n")
        sys.stdout.flush()
        _wait_for_end(order["program"])
    finally:
        for server in servers:
            with contextlib.suppress(OSError):
                server.kill()  # it has nothing to save
        for server in servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(_PATIENCE)
        shutil.rmtree(order["folder"], ignore_errors=True)


def _wait_for_end(program: int) -> None:
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    with contextlib.suppress(OSError):
        # A process that the program forked may hold our input open beyond its death.
        poll.register(os.pidfd_open(program), select.POLLIN)
    if os.getppid() == program:
        poll.poll()


if __name__ == "__main__":
    main()
