"""The guardian as a process: started at once where it is wanted, or before, while the program still imports the engine.

    session.start ── start_early ──▶ process: imports …     … waits for its first message
         imports                                                ▲
    ForkServer ───── guardian_process ── the one that waits ── Start

Half of what a first task waits for is this process's imports, the other half our own; early, they happen side by side.
A guardian that was started early is taken only by who would start the very same. One that nobody begins to use ends
when its socket is closed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from penstock.executors.descriptor_limit import allow_many_files
from penstock.own_threads import as_the_program

__all__ = ["MARK", "WORKER", "GuardianProcess", "discard_early", "guardian_process", "import_path", "start_early"]

#: the function that a worker runs
WORKER = "penstock.executors.worker:serve"
#: inherited by all that the guardian and its workers start, so that it can be found when the guardian is gone
MARK = "_PENSTOCK_GUARDIAN"
#: room for some hundred requests while the guardian starts; the kernel grants what its own limit allows
_SOCKET_BUFFER = 1 << 20

# The guardian imports from where the main program does, however that program arranged its path, and tasks see the
# arguments of the main program. Both may be longer than a message, so they come as arguments.
_BOOTSTRAP = (
    "import sys; descriptor, entry, used, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]); "
    "sys.path[:] = sys.argv[5 : count + 5]; del sys.argv[: count + 5]; "
    "from penstock.executors.forkserver_main import main; main(descriptor, entry, used.split())"
)


class GuardianProcess(NamedTuple):
    """A guardian that has not heard its first message, and our end of its socket."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    mark: str
    #: what it was started with: interpreter flags and entry, import path, arguments of the program, environment
    given: tuple[list[str], list[str], list[str], dict[str, str]]


_early: GuardianProcess | None = None


def start_early(environ: Mapping[str, str]) -> None:
    """Start a guardian that will be wanted soon."""
    global _early
    discard_early()
    _early = _start(_given(environ, WORKER))


def discard_early() -> None:
    """End the one that was started early, if nobody has taken it."""
    global _early
    unused, _early = _early, None
    if unused is not None:
        unused.connection.close()
        unused.process.kill()
        unused.process.wait()


def guardian_process(environ: Mapping[str, str], entry: str) -> GuardianProcess:
    """A guardian to begin with."""
    global _early
    given = _given(environ, entry)
    if _early is not None and _early.given == given and _early.process.poll() is None:
        taken, _early = _early, None
        return taken
    return _start(given)


def _given(environ: Mapping[str, str], entry: str) -> tuple[list[str], list[str], list[str], dict[str, str]]:
    # Options of this interpreter (-O, -W, -X and relatives) under which the tasks should run too.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [*flags, entry], import_path(), list(sys.argv), dict(environ)


def _start(given: tuple[list[str], list[str], list[str], dict[str, str]]) -> GuardianProcess:
    (*flags, entry), path, arguments, environ = given
    allow_many_files()
    mark = os.urandom(8).hex()
    connection, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    connection.setblocking(False)
    with far_end:
        own = [str(far_end.fileno()), entry, _used_by_the_program(), str(len(path))]
        process = as_the_program(
            subprocess.Popen,
            [sys.executable, *flags, "-c", _BOOTSTRAP, *own, *path, *arguments],
            env={**environ, MARK: mark},
            pass_fds=[far_end.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return GuardianProcess(process, connection, mark, given)


def _used_by_the_program() -> str:
    """What of the public modules the program has imported: the modules of its tasks do too, in every worker."""
    return " ".join(name for name in list(sys.modules) if name.startswith("penstock.api."))


def import_path() -> list[str]:
    """Where the program imports from; programs put Path objects there too."""
    return [str(entry) for entry in sys.path]
