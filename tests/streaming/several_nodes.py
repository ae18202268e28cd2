"""Several servers on this machine, as if each was a node: own directory, own table, own address.

On loopback they differ by their ports. In network namespaces each has an address of its own behind a switch, as on a
cluster; that needs root. For the tests of several nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.own_place import memory_dir
from tests.patience import PATIENCE, eventually
from tests.streaming.flows import Ended

from penstock.streaming.native import interposer_path

#: what `penstock stream serve` does, without its command line: that takes most of the start
_SERVE = """
import sys
from penstock.cli.stream_launch import NodesRequest, Request, launch_serve
config, folder, memory, nodes, node, token, prefetch, limit, listen, lost_after = sys.argv[1:]
among = NodesRequest(nodes, node, listen or None, token, prefetch or None, lost_after or None)
raise SystemExit(launch_serve(Request(config, folder, memory == "memory", False, limit or None, "30s", False, among)))
"""

#: how long a server may be silent where the test is not about that: it may be stopped, or its machine busy
_PATIENT = "60s"


#: a program that sees the directory as the server does
_JOIN = """
import os, sys
from penstock.streaming.mounts import join_mounts
join_mounts(int(sys.argv[1]))
os.execvp("env", ["env", *sys.argv[2:]])
"""


class Node:
    """One server and the programs that run beside it."""

    def __init__(self, name: str, folder: Path, address: str, inside: list[str]) -> None:
        self.name = name
        self.work = folder / name / "work"
        self.work.mkdir(parents=True)
        self.runtime = folder / name / "r"
        self.runtime.mkdir(mode=0o700)
        self.address = address
        #: words before a command that runs on this node
        self.inside = inside
        self.server: subprocess.Popen[str] | None = None
        self.in_memory = False
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime), "PYTHONUNBUFFERED": "1"}
        for variable in ("CAPIO_DIR", "CAPIO_PREFETCH_DATA_SIZE"):
            self.environment.pop(variable, None)

    def start(self, command: list[str], **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.inside, *command],
            cwd=self.work,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def table(self) -> str:
        """The shared table, once the server is there."""
        assert self.server is not None
        found: list[str] = []

        def is_there() -> bool:
            assert self.server is not None and self.server.poll() is None, ended(self.server).err
            for state in self.runtime.glob("*/stream-*/server.json"):
                memory = json.loads(state.read_text())["memory"]
                if os.path.exists(os.path.join(memory, "control.sock")):
                    found.append(os.path.join(memory, "table"))
            return bool(found)

        eventually(is_there, PATIENCE)
        return found[0]

    def program(self, app: str, script: str) -> subprocess.Popen[str]:
        """A shell script as a program of the workflow, with the library alone."""
        assert self.server is not None
        variables = {"PENSTOCK_STREAM_TABLE": self.table, "PENSTOCK_STREAM_APP": app}
        variables["LD_PRELOAD"] = str(interposer_path())
        command = ["bash", "-c", textwrap.dedent(script)]
        if not self.in_memory:
            return self.start(command, **variables)
        words = [f"{name}={value}" for name, value in variables.items()]
        return self.start([sys.executable, "-c", _JOIN, str(self.server.pid), *words, *command])

    def run(self, app: str, script: str) -> Ended:
        return ended(self.program(app, script))

    def bytes_of(self, name: str) -> bytes:
        return (self.work / name).read_bytes()

    def holds(self, name: str) -> bool:
        return (self.work / name).exists()


def ended(process: subprocess.Popen[str], patience: float = PATIENCE) -> Ended:
    """How a process ended; one that hangs is killed and fails the test."""
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate(timeout=60)
        raise AssertionError(f"it hung:\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)


class Cluster:
    """Servers that know each other."""

    def __init__(self, folder: Path, nodes: dict[str, Node]) -> None:
        self.folder = folder
        self.nodes = nodes
        self.token = folder / "token"
        self.token.touch(0o600)
        self.token.write_text(secrets.token_hex(16))

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    @property
    def listed(self) -> str:
        return ",".join(f"{node.name}={node.address}" for node in self.nodes.values())

    def serve(
        self,
        text: str,
        *,
        prefetch: str = "",
        limit: str = "",
        memory: bool = False,
        form: str = "toml",
        listen: Mapping[str, str] = MappingProxyType({}),
        lost_after: str = _PATIENT,
    ) -> Cluster:
        """Start a server on each node, all at once; ``listen`` says where, if not at the address that is listed."""
        config = self.folder / f"flow.{form}"
        config.write_text(textwrap.dedent(text))
        for node in self.nodes.values():
            options = [prefetch, limit, listen.get(node.name, ""), lost_after]
            node.server = self.server_of(node, config, *options, memory=memory)
        return self

    def server_of(
        self,
        node: Node,
        config: Path,
        prefetch: str = "",
        limit: str = "",
        listen: str = "",
        lost_after: str = _PATIENT,
        *,
        memory: bool = False,
    ) -> subprocess.Popen[str]:
        """The server of one node."""
        node.in_memory = memory
        words = [str(config), str(node.work), "memory" if memory else "", self.listed, node.name, str(self.token)]
        return node.start([sys.executable, "-c", _SERVE, *words, prefetch, limit, listen, lost_after])

    def finish(self) -> dict[str, Ended]:
        """End all servers in order."""
        for node in self.nodes.values():
            if node.server is not None and node.server.poll() is None:
                assert node.table
                node.server.send_signal(signal.SIGTERM)
        servers = {name: node.server for name, node in self.nodes.items() if node.server is not None}
        return {name: ended(server) for name, server in servers.items() if not (server.stdout and server.stdout.closed)}

    def close(self) -> None:
        """Leave nothing, whatever the test did."""
        for node in self.nodes.values():
            if node.server is not None and node.server.poll() is None:
                node.server.kill()
                node.server.communicate()
            if node.server is not None:
                # A killed server leaves its folder to the next one.
                for remains in memory_dir().glob(f"penstock-*-{node.server.pid}-*"):
                    shutil.rmtree(remains, ignore_errors=True)


def fetched(told: Ended) -> tuple[int, int]:
    """Bytes and requests that a server says it fetched."""
    match = re.search(r"fetched (\d+) bytes in (\d+) requests", told.out)
    assert match, told.out + told.err
    return int(match[1]), int(match[2])


# --- where they are -------------------------------------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def relay(
    listed: int, real: int, holds_back: Callable[[str, bytes], bool] = lambda node, line: False
) -> Iterator[None]:
    """Passes connections on from one port of this machine to another, for as long as it is open.

    News of the server behind it come one by one to each node that listens, each once ``holds_back`` does not hold it
    back any more.
    """

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def pump_news(node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An answer in chunks; its head first."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            writer.write(await reader.readuntil(b"\r\n\r\n"))
            while size := await reader.readline():
                for line in (await reader.readexactly(int(size, 16) + 2))[:-2].splitlines(keepends=True):
                    while holds_back(node, line):
                        await asyncio.sleep(0.005)
                    writer.write(b"%x\r\n%s\r\n" % (len(line), line))
                    await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", real)
        except OSError:
            writer.close()
            return
        asked = await reader.readline()
        there[1].write(asked)
        listens = re.match(rb"GET /feed.*&node=(\w+)", asked)
        answers = pump_news(listens[1].decode(), there[0], writer) if listens else pump(there[0], writer)
        await asyncio.gather(pump(reader, there[1]), answers)

    async def listen(is_open: threading.Event, over: asyncio.Event) -> None:
        async with await asyncio.start_server(connect, "127.0.0.1", listed):
            is_open.set()
            await over.wait()

    loop, is_open, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(listen(is_open, over),), daemon=True)
    thread.start()
    assert is_open.wait(PATIENCE)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE)
        loop.close()


@contextmanager
def news_through(
    cluster: Cluster, text: str, holds_back: Callable[[str, bytes], bool], *, of: str = "a", prefetch: str = ""
) -> Iterator[None]:
    """Servers of which the others hear of one, the first if not told otherwise, only what is not held back."""
    listed, real = int(cluster[of].address.rpartition(":")[2]), free_ports(1)[0]
    with relay(listed, real, holds_back):
        cluster.serve(text, prefetch=prefetch, listen={of: f"127.0.0.1:{real}"})
        yield


@contextmanager
def on_loopback(folder: Path, count: int) -> Iterator[Cluster]:
    """Nodes a, b, c… that differ by their ports."""
    names = "abcdef"[:count]
    ports = free_ports(count)
    nodes = {name: Node(name, folder, f"127.0.0.1:{port}", []) for name, port in zip(names, ports, strict=True)}
    yield from _closing(Cluster(folder, nodes))


def namespaces_work() -> str:
    """Why network namespaces cannot be used here; empty if they can."""
    if os.geteuid() != 0:
        return "NETWORK NAMESPACES NOT TESTED: that needs root"
    try:
        name = f"pst-{os.getpid()}-try"
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"NETWORK NAMESPACES NOT TESTED: `ip netns add` does not work here: {error}"
    return ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


@contextmanager
def in_namespaces(folder: Path, count: int) -> Iterator[Cluster]:
    """Nodes a, b, c… each in a network namespace, behind a switch in one more."""
    prefix = f"pst-{os.getpid()}"
    switch = f"{prefix}-switch"
    names = "abcdef"[:count]
    made = []
    try:
        for name in (switch, *(f"{prefix}-{name}" for name in names)):
            _ip("netns", "add", name)
            made.append(name)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        nodes = {}
        for number, name in enumerate(names, 1):
            space = f"{prefix}-{name}"
            _ip("-n", switch, "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", switch, "link", "set", f"to-{name}", "master", "br0", "up")
            _ip("-n", space, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            nodes[name] = Node(name, folder, f"10.77.0.{number}:7077", ["ip", "netns", "exec", space])
        yield from _closing(Cluster(folder, nodes))
    finally:
        for name in made:
            _ip("netns", "del", name)


def _closing(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        cluster.close()
