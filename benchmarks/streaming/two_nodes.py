"""1 GB from one node to a reader that waits on another, and what `sendfile` does on the same link.

Both nodes are servers on this machine, joined by its loopback: what is measured is what a byte costs, since four
programs share the cores with the link. `sendfile` has a process on each side; the receiver keeps a copy, as nodes do.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from penstock.streaming.native import interposer_path

__all__ = ["by_nodes", "by_sendfile"]

TIMEOUT = 120.0
_PIECE = 1 << 20
_WORKFLOW = """
name = "two-nodes"
[[step]]
name = "write"
command = "true"
output = ["data00000"]
[[step.stream]]
files = ["data00000"]
commit = "on_close"
fire = "no_update"
[[step]]
name = "read"
command = "true"
input = ["data00000"]
output = ["sum"]
"""


class _Node:
    """A server and its folder."""

    def __init__(self, name: str, folder: Path, nodes: str) -> None:
        self.work, self.runtime = folder / name, folder / f"{name}-runtime"
        self.work.mkdir()
        self.runtime.mkdir(mode=0o700)
        self._environment = os.environ | {"XDG_RUNTIME_DIR": str(self.runtime)}
        words = ["stream", "serve", str(folder / "workflow.toml"), "--dir", str(self.work), "--nodes", nodes]
        words += ["--node", name, "--token-file", str(folder / "token"), "--lost-after", "60s"]
        self._server = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *words], env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        if "is served" not in self._server.stdout.readline():
            raise RuntimeError(f"node {name} did not start")

    def start(self, app: str, command: list[str], times: Path) -> subprocess.Popen[bytes]:
        (state,) = self.runtime.glob("*/stream-*/server.json")
        table = os.path.join(json.loads(state.read_text())["memory"], "table")
        ours = {"PENSTOCK_STREAM_TABLE": table, "PENSTOCK_STREAM_APP": app, "LD_PRELOAD": interposer_path()}
        return subprocess.Popen(command, cwd=self.work, env=self._environment | ours | {"BENCH_TIMES": str(times)})

    def waits(self) -> bool:
        """Whether a program waits here."""
        words = [sys.executable, "-m", "penstock.cli", "stream", "status", "--json"]
        told = subprocess.run(
            words, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        return told.returncode == 0 and bool(json.loads(told.stdout)["waits"])

    def end(self) -> None:
        self._server.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        self._server.communicate(timeout=TIMEOUT)


def by_nodes(folder: Path, programs: Path, size: int) -> float:
    """Seconds from the writer's first instruction to the end of a reader who was there before."""
    (folder / "workflow.toml").write_text(_WORKFLOW)
    (folder / "token").touch(0o600)
    (folder / "token").write_text(secrets.token_hex(16))
    written, read = folder / "written", folder / "read"
    listed = ",".join(f"{name}=127.0.0.1:{port}" for name, port in zip("ab", _free_ports(2), strict=True))
    nodes = [_Node(name, folder, listed) for name in "ab"]
    try:
        for path in (written, read):
            path.mkdir()
        reader = nodes[1].start("read", [f"{programs}/consume", "data", "0", "1", str(_PIECE), "0", "sum"], read)
        _await_wait(nodes[1])
        writer = nodes[0].start(
            "write", [f"{programs}/produce", "data", "0", "1", str(size), str(_PIECE), "0"], written
        )
        if writer.wait(TIMEOUT) or reader.wait(TIMEOUT):
            raise RuntimeError("writer or reader failed")
        if (nodes[1].work / "sum").read_text().split()[0] != str(size):
            raise AssertionError("the reader did not get all")
        return _noted(read, "ended") - _noted(written, "began")
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            node.wait()


def _noted(folder: Path, what: str) -> float:
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]
    return float(next(when for name, when in lines if name == what))


def _await_wait(node: _Node) -> None:
    """Until the server says that somebody waits."""
    until = time.monotonic() + TIMEOUT
    while not node.waits():
        if time.monotonic() > until:
            raise RuntimeError("the reader does not wait")


def by_sendfile(folder: Path, size: int) -> float:
    """Seconds that a file in the page cache takes to become a file at the other end of a connection."""
    source, target = folder / "source", folder / "target"
    with source.open("wb") as file:
        for _ in range(size // _PIECE):
            file.write(b"x" * _PIECE)
    listening = socket.create_server(("127.0.0.1", 0))
    began = time.monotonic()
    sender = os.fork()
    if not sender:
        try:
            _send(source, listening.getsockname()[1], size)
        finally:
            os._exit(0)
    connection, _ = listening.accept()
    received, buffer = 0, memoryview(bytearray(_PIECE))
    with target.open("wb", buffering=0) as file:
        while got := connection.recv_into(buffer):
            file.write(buffer[:got])
            received += got
    took = time.monotonic() - began
    os.waitpid(sender, 0)
    connection.close()
    listening.close()
    if received != size:
        raise AssertionError(f"{received} of {size} bytes came")
    return took


def _send(source: Path, port: int, size: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, source.open("rb") as file:
        at = 0
        while at < size:
            at += os.sendfile(connection.fileno(), file.fileno(), at, size - at)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
