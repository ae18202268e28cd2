"""The control socket of a server: how ``status``, ``exec`` and ``serve`` in other processes reach it.

One JSON object per line, one answer per line. A connection that began a command and breaks off means that whoever
started the command is gone: the command is taken for killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import msgspec

from penstock.errors import ConfigError, PenstockError
from penstock.streaming.folders import Identity
from penstock.streaming.programs import is_made
from penstock.streaming.server import Server
from penstock.streaming.status import Status

__all__ = ["Answer", "Began", "Begin", "Control", "End", "GetStatus", "Stop", "ask", "connect"]


class GetStatus(msgspec.Struct, tag="status"):
    """How does the workflow stand?"""


class Begin(msgspec.Struct, tag="begin"):
    """A command of a step is about to be started; the connection stays open until it has ended."""

    #: ``name``, or ``name:2``
    label: str
    #: where its program, or the interpreter of that, is looked for
    places: list[str] = []
    #: what speaks against that program, unless a step of the workflow makes it
    objection: str = ""


class End(msgspec.Struct, tag="end"):
    """It ended, with an exit status or minus a signal."""

    status: int


class Stop(msgspec.Struct, tag="stop"):
    """End the workflow, in order."""


class Began(msgspec.Struct, tag="began"):
    """What the command needs in its environment."""

    root: str
    environment: dict[str, str]
    #: it has to see what the server has mounted
    own_mounts: bool = False


class Done(msgspec.Struct, tag="done"):
    """It is done."""


class Refused(msgspec.Struct, tag="refused"):
    """It cannot be done."""

    message: str


Request = GetStatus | Begin | End | Stop
#: what a server says
Answer = Began | Done | Refused | Status


class _Report(msgspec.Struct, tag="report"):
    status: Status


_requests = msgspec.json.Decoder(Request)
_answers: msgspec.json.Decoder[Began | Done | Refused | _Report] = msgspec.json.Decoder(
    Began | Done | Refused | _Report
)
_encode = msgspec.json.Encoder().encode


class Control:
    """Answers on the control socket."""

    def __init__(
        self,
        server: Server,
        status: Callable[[], Status],
        stop: Callable[[], None],
        began: Began,
    ) -> None:
        self._server = server
        self._status = status
        self._stop = stop
        self._began = began
        self._listening: asyncio.Server | None = None
        self._closed = False
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self, path: str) -> None:
        """Listen. Sockets have short addresses: a folder that is too deep is an error with its length."""
        try:
            self._listening = await asyncio.start_unix_server(self._serve, path)
        except OSError as error:
            raise ConfigError(f"cannot listen on {path}: {error}; set memory_dir to a shorter path") from None

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._listening is not None:
            self._listening.close()
            for connection in list(self._connections):
                connection.close()
            await self._listening.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = _Commands(self._server)
        self._connections.add(writer)
        try:
            while line := await reader.readline():
                try:
                    answer = self._answer(_requests.decode(line), commands)
                except (PenstockError, msgspec.DecodeError, UnicodeDecodeError) as error:
                    answer = Refused(str(error))
                writer.write(_encode(answer) + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            commands.broke_off()
            self._connections.discard(writer)
            writer.close()

    def _answer(self, request: Request, commands: _Commands) -> Began | Done | Refused | _Report:
        if self._closed:
            return Refused("the workflow is over")
        match request:
            case GetStatus():
                return _Report(self._status())
            case Begin(label, places, objection):
                if objection and not is_made(self._server.rules, label.partition(":")[0], places, self._began.root):
                    return Refused(objection)
                commands.begin(label)
                return self._began
            case End(status):
                commands.end(status)
            case Stop():
                self._stop()
        return Done()


class _Commands:
    """The command that one connection stands for."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._step = ""

    def begin(self, label: str) -> None:
        name = label.partition(":")[0]
        app = self._server.apps.get(name)
        if app is None:
            known = ", ".join(self._server.apps)
            raise ConfigError(f"the workflow {self._server.workflow.name} has no app {name!r}; it has {known}")
        if app.ended:
            raise ConfigError(
                f"{name} is over: as many programs of it as were announced have run ({app.step.instances})"
            )
        self._server.command_began(name, self)
        self._step = name

    def end(self, status: int) -> None:
        if self._step:
            self._server.command_ended(self._step, self, status)
            self._step = ""

    def broke_off(self) -> None:
        self.end(-9)


class Connection:
    """The other end, for a process without an event loop."""

    def __init__(self, identity: Identity) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(identity.control)
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"the server of {identity.name} does not answer: {error.strerror}") from None
        self._file = self._socket.makefile("rwb")

    def ask(self, request: Request) -> Began | Done | _Report:
        """Send a request and wait for its answer; a refusal is a ConfigError."""
        try:
            self._file.write(_encode(request) + b"\n")
            self._file.flush()
            line = self._file.readline()
        except OSError as error:
            raise ConfigError(f"the server is gone: {error.strerror}") from None
        if not line:
            raise ConfigError("the server is gone")
        answer = _answers.decode(line)
        if isinstance(answer, Refused):
            raise ConfigError(answer.message)
        return answer

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()


def connect(identity: Identity) -> Connection:
    """Reach a server."""
    return Connection(identity)


def ask(identity: Identity) -> Status:
    """How does it stand?"""
    connection = connect(identity)
    try:
        answer = connection.ask(GetStatus())
    finally:
        connection.close()
    assert isinstance(answer, _Report)
    return answer.status
