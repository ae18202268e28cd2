"""The body of a program task: start the program, wait for its end, say how it ended.

It runs where any task's body does, in a worker process or inline, so files, retries, timeouts and cancelling are those
of all tasks. The program has a process group of its own; whatever is left of it when it ends is killed.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal, Protocol

from msgspec import Struct

from penstock.data.limits import behind
from penstock.errors import ProgramFailed
from penstock.executors.command_lines import Template, command_line, shown

__all__ = ["Program", "ProgramBody", "Result", "Streams", "carried_out"]

#: what a call gives
Result = Literal["status", "text", "bytes", "process"]
#: lines of what a program wrote on stderr that its failure shows, and how long they may be
_LAST_LINES = 12
_LONGEST_LINE = 500
_CHUNK = 1 << 16
#: seconds for which output is awaited from processes that have left the program's group
_LAST_WORDS = 0.5


class Streams(Protocol):
    """What a program is to know of the files that its attempt streams."""

    def environment(self, command: str | tuple[str, ...]) -> dict[str, str] | None:
        """The environment it needs; None if it needs none of its own."""
        ...

    def await_birth(self, path: str) -> None:
        """Wait until a file that it reads is there."""
        ...


class _CarriedOut(threading.local):
    """The attempt that this thread carries out."""

    streams: Streams | None = None


carried_out = _CarriedOut()


class Program(Struct, frozen=True):
    """What ``@program`` says of a task."""

    template: Template
    result: Result = "status"
    #: exit statuses that are no failure
    success: tuple[int, ...] = (0,)
    #: parameters that are redirections: stdin, stdout, stderr
    redirected: tuple[str, ...] = ()
    #: it is told the size so far of a file that is still being written
    so_far: bool = False


class ProgramBody:
    """A program in the place of a function; called with the arguments of the task."""

    def __init__(self, program: Program, function: Any, signature: inspect.Signature) -> None:
        self.program = program
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(self, name, getattr(function, name))
        bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        self.__signature__ = inspect.Signature(bare)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        return _Run(self.program, self.__name__, bound.arguments).result()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<program {self.__qualname__}>"  # type: ignore[attr-defined]


class _Run:
    """One run of a program."""

    def __init__(self, program: Program, task: str, values: Mapping[str, Any]) -> None:
        self._program = program
        self._task = task
        self._values = values
        self._arguments = command_line(program.template, values, task)
        self._streams = carried_out.streams
        self._captured = b""
        self._tail: deque[str] = deque(maxlen=_LAST_LINES)

    def result(self) -> Any:
        """Run it; what the task gives, or ProgramFailed."""
        import subprocess

        program = self._program
        environment = self._environment()
        with contextlib.ExitStack() as files:
            redirected = {name: files.enter_context(self._redirection(name)) for name in program.redirected}
            status = self._run(environment, redirected)
        if status not in program.success:
            raise ProgramFailed(self._complaint(status), status, self._command, "\n".join(self._tail))
        if program.result == "status":
            return status
        if program.result == "process":
            errors = "\n".join(self._tail)
            return subprocess.CompletedProcess(self._arguments, status, self._captured.decode(errors="replace"), errors)
        return self._captured if program.result == "bytes" else self._captured.decode()

    def _redirection(self, name: str) -> IO[bytes]:
        path = os.fspath(self._values[name])
        if name == "stdin" and self._streams is not None:
            self._streams.await_birth(path)
        return open(path, "rb" if name == "stdin" else "wb")

    @property
    def _command(self) -> str:
        return shown(self._program.template, self._arguments)

    def _run(self, environment: dict[str, str] | None, redirected: dict[str, IO[bytes]]) -> int:
        import subprocess

        captures = self._program.result != "status"
        try:
            with _usual_signals():
                process = subprocess.Popen(
                    self._arguments,
                    stdin=redirected.get("stdin", subprocess.DEVNULL),
                    stdout=redirected.get("stdout", subprocess.PIPE),
                    stderr=redirected.get("stderr", subprocess.PIPE),
                    env=environment,
                    process_group=0,
                )
        except OSError as error:
            raise ProgramFailed(
                f"{self._arguments[0]!r} cannot be started: {behind(error, starting=True) or error.strerror}; its "
                f"command line: {self._command}",
                127,
                self._command,
                "",
            ) from None
        readers = [
            threading.Thread(target=work, args=(pipe,), daemon=True)
            for work, pipe in (
                (self._capture if captures else self._pass_on, process.stdout),
                (self._relay, process.stderr),
            )
            if pipe is not None
        ]
        try:
            for reader in readers:
                reader.start()
            # Not collected yet, so its number still names its own group and no other.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        for reader in readers:
            reader.join(_LAST_WORDS)
        return status

    def _environment(self) -> dict[str, str] | None:
        """What the program needs besides what it inherits, if it reads or writes streamed files."""
        if self._streams is None:
            return None
        return self._streams.environment(self._command if self._program.template.shell else tuple(self._arguments[:1]))

    def _capture(self, pipe: IO[bytes]) -> None:
        with pipe:
            self._captured = pipe.read()

    def _relay(self, pipe: IO[bytes]) -> None:
        """Pass on what the program writes on stderr, and remember the end of it."""
        with pipe:
            for line in pipe:
                self._tail.append(line.decode(errors="replace").rstrip()[:_LONGEST_LINE])
                _write(2, line if line.endswith(b"\n") else line + b"\n")

    def _pass_on(self, pipe: IO[bytes]) -> None:
        """Pass on what the program writes on stdout; a last line without an end gets one, so nothing follows in it."""
        last = b"\n"
        with pipe:
            while data := pipe.read1(_CHUNK):  # type: ignore[attr-defined]
                last = data[-1:]
                _write(1, data)
        if last != b"\n":
            _write(1, b"\n")

    def _complaint(self, status: int) -> str:
        how = f"exited with status {status}" if status >= 0 else f"was killed by {_signal_name(-status)}"
        lines = [f"program {self._task} {how}; its command line: {self._command}"]
        if -status == signal.SIGXFSZ or status == 128 + signal.SIGXFSZ:
            lines.append("a file that it wrote grew beyond what the system allows here: raise the limit (ulimit -f)")
        if status == 128 + signal.SIGPIPE and self._program.template.shell:
            lines.append("a part of its pipe was still writing when the next part ended (SIGPIPE)")
        if not self._tail and "stderr" in self._values:
            with contextlib.suppress(OSError), open(os.fspath(self._values["stderr"]), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_LINES * _LONGEST_LINE))
                self._tail.extend(line.decode(errors="replace").rstrip() for line in file)
        if self._tail:
            lines += ["its last lines on stderr:", *(f"    {line}" for line in self._tail)]
        return "\n".join(lines)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it; somewhere else is no better place for what cannot be written."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


@contextlib.contextmanager
def _usual_signals() -> Iterator[None]:
    """A worker ignores Ctrl-C; a program would inherit that, and a shell could not even undo it."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
