"""Objects in a Redis cluster: blocks of one object lie on several nodes and are read from all of them at once.

A key's slot is its checksum modulo 16384, and the client knows which node has which slots, replicas included. So where
an object is costs a look into a table. A node cannot be asked to take a key: keys are drawn until one has a slot of
that node. Such ids are in braces, by which Redis puts all keys that contain them into one slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

from penstock.errors import ConfigError, StorageError
from penstock.persistent.manifest import Entry
from penstock.persistent.redis_store import PENDING, RedisStore, block_keys, manifest_key
from penstock.persistent.stores import Change
from penstock.persistent.where import shown

__all__ = ["RedisClusterStore"]

_PORT = 6379
#: bytes of blocks that are under way to the nodes at a time
_AHEAD = 64 * 1024 * 1024


class RedisClusterStore(RedisStore):
    """A Redis cluster, found through any of its nodes."""

    block_size = 8 * 1024 * 1024

    def _connected(self, address: str) -> Any:
        from redis.cluster import ClusterNode, RedisCluster

        parts, make_node = urlsplit(address), cast(Any, ClusterNode)
        try:
            nodes = [make_node(*_host_and_port(one)) for one in parts.netloc.rpartition("@")[2].split(",") if one]
        except ValueError as error:
            raise ConfigError(f"store = {shown(self.url)!r} is no list of nodes: {error}") from error
        if not nodes:
            raise ConfigError(f"store = {shown(self.url)!r} names no node: redis-cluster://host:port,host:port")
        return RedisCluster(startup_nodes=nodes, password=parts.password, **self.limits())

    def _pipeline(self) -> Any:
        return self._client.pipeline()

    def _manifests(self, identifiers: Sequence[str]) -> list[bytes | None]:
        if len(identifiers) == 1:
            return super()._manifests(identifiers)
        with self._explained():
            pipeline = self._pipeline()
            for identifier in identifiers:
                pipeline.get(manifest_key(identifier))
            return list(pipeline.execute())

    def _swap(self, changes: Sequence[Change]) -> list[bool]:
        spread = [change for change in changes if change.entry is not None and self._is_spread(change)]
        named = [key for change in spread for key in block_keys(change.identifier, cast(Entry, change.entry))]
        if named:
            # First they are to stay, then they are named: never the other way round, or what is named might go.
            with self._explained():
                pipeline = self._pipeline()
                for key in named:
                    pipeline.persist(key)
                    pipeline.exists(key)
                if not all(pipeline.execute()[1::2]):
                    raise StorageError(f"blocks of object {changes[0].identifier!r} are gone from {self} already")
        return super()._swap([change._replace(entry=None) if change in spread else change for change in changes])

    def _is_spread(self, change: Change) -> bool:
        """Whether blocks lie elsewhere than the manifest, so that no script can deal with both."""
        slot = self._client.keyslot(manifest_key(change.identifier))
        keys = block_keys(change.identifier, cast(Entry, change.entry))
        return any(self._client.keyslot(key) != slot for key in keys)

    def _write(self, identifier: str, entry: Entry, blocks: Sequence[Sequence[memoryview]]) -> None:
        with self._explained():
            pipeline, ahead = self._pipeline(), 0
            for key, block in zip(block_keys(identifier, entry), blocks, strict=True):
                pipeline.set(key, block[0] if len(block) == 1 else b"".join(block), ex=PENDING)
                ahead += sum(map(len, block))
                if ahead >= _AHEAD:
                    pipeline.execute()
                    pipeline, ahead = self._pipeline(), 0
            if ahead:
                pipeline.execute()

    def _pool(self, key: str) -> Any:
        node = self._client.get_node_from_key(key)
        return self._client.get_redis_connection(node).connection_pool

    # --- where things are ---------------------------------------------------------------------------------------

    def locations(self, identifier: str, entry: Entry | None = None) -> list[str]:
        """The hosts that hold an object, the one with most of it first."""
        held: Counter[str] = Counter()
        for host in self._hosts(manifest_key(identifier)):
            held[host] += 1
        if entry is not None:
            for key, size in zip(block_keys(identifier, entry), entry.blocks, strict=True):
                for host in self._hosts(key):
                    held[host] += size
        return [host for host, _ in sorted(held.items(), key=lambda item: (-item[1], item[0]))]

    def nodes(self, identifier: str, entry: Entry) -> list[str]:
        """``host:port`` of the primary nodes of an object's keys: of the manifest, then of each block."""
        keys = [manifest_key(identifier), *block_keys(identifier, entry)]
        return [self._primary(key) for key in keys]

    def _hosts(self, key: str) -> set[str]:
        nodes = self._client.nodes_manager.slots_cache.get(self._client.keyslot(key), [])
        return {node.host for node in nodes}

    def _primary(self, key: str) -> str:
        nodes = self._client.nodes_manager.slots_cache.get(self._client.keyslot(key), [])
        return str(nodes[0].name) if nodes else ""

    def place(self, host: str) -> str:
        """A new id on a host, or on one node of it if the port is given too."""
        known = {name for nodes in self._client.nodes_manager.slots_cache.values() for name in _names(nodes[:1])}
        if host not in known:
            raise StorageError(f"{self} has no primary node {host!r}; it has {', '.join(sorted(known))}")
        while True:
            identifier = f"{{{uuid4().hex}}}"
            nodes = self._client.nodes_manager.slots_cache.get(self._client.keyslot(manifest_key(identifier)), [])
            if host in _names(nodes[:1]):
                return identifier


def _names(nodes: Sequence[Any]) -> set[str]:
    return {name for node in nodes for name in (node.host, node.name)}


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, _PORT
    if not port.isdigit():
        raise ValueError(f"{port!r} is no port")
    return host.strip("[]"), int(port)
