"""Objects in a Redis server: manifests and blocks are strings of their own.

Blocks are written with a time to live, and lose it in the same step that names them in a manifest. So what a writer
that was killed had written goes away by itself, and what is named stays. One server runs that step as a script; a
cluster (redis_cluster.py) has it in two, as blocks and manifest are not on one node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

from penstock.errors import ConfigError, StorageError, StoreFull, StoreUnreachable
from penstock.persistent.manifest import Entry, spans
from penstock.persistent.redis_blocks import LARGE, Unreadable, receive
from penstock.persistent.stores import Buffer, Change, Store
from penstock.persistent.where import shown
from penstock.units import parse_size

__all__ = [
    "CONNECTION",
    "PENDING",
    "RedisStore",
    "block_key",
    "block_keys",
    "explained",
    "manifest_key",
    "with_block_size",
]

#: seconds after which blocks that no manifest names are gone
PENDING = 24 * 3600
#: blocks up to this number are not spread: the small parts of an object, and a large one
_TOGETHER = 2
#: how long to wait for a server; a large block may take it a while
CONNECTION: dict[str, Any] = {"socket_connect_timeout": 5.0, "socket_timeout": 120.0}

_SWAP = """
if redis.call('GETRANGE', KEYS[1], 0, 15) ~= ARGV[1] then return 0 end
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return redis.error_reply('GONE ' .. KEYS[i]) end
end
for i = 2, #KEYS do redis.call('PERSIST', KEYS[i]) end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
return 1
"""


def manifest_key(identifier: str) -> str:
    """The key of an object's manifest."""
    return f"penstock:object:{_tagged(identifier)}"


def block_key(identifier: str, entry: Entry, number: int) -> str:
    """The key of a block.

    Many blocks have a slot each, so that they spread over a cluster. Few are in the slot of the manifest, and so are
    all if there are braces in the id: by these Redis knows what of a key its slot depends on.
    """
    name = _tagged(identifier) if len(entry.blocks) <= _TOGETHER else identifier
    return f"penstock:block:{name}:{entry.token}:{number}"


def _tagged(identifier: str) -> str:
    return identifier if "{" in identifier or "}" in identifier else f"{{{identifier}}}"


def block_keys(identifier: str, entry: Entry) -> list[str]:
    """The keys of all blocks of a state."""
    return [block_key(identifier, entry, number) for number in range(len(entry.blocks))]


class RedisStore(Store):
    """A Redis server that is not part of a cluster."""

    block_size = 64 * 1024 * 1024

    def __init__(self, url: str) -> None:
        super().__init__(url)
        address, self.block_size = with_block_size(url, self.block_size)
        with self._explained():
            self._client: Any = self._connected(address)

    def _connected(self, address: str) -> Any:
        import redis

        try:
            client = redis.Redis.from_url(address, **CONNECTION)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"store = {shown(self.url)!r} is no address of a Redis server: {error}") from error
        client.ping()  # making a client connects to nobody
        return client

    def _pipeline(self) -> Any:
        return self._client.pipeline(transaction=False)

    def _manifests(self, identifiers: Sequence[str]) -> list[bytes | None]:
        with self._explained():
            if len(identifiers) == 1:
                return [self._client.get(manifest_key(identifiers[0]))]
            return list(self._client.mget([manifest_key(identifier) for identifier in identifiers]))

    def _swap(self, changes: Sequence[Change]) -> list[bool]:
        with self._explained():
            commands = []
            for change in changes:
                blocks = [] if change.entry is None else block_keys(change.identifier, change.entry)
                keys = [manifest_key(change.identifier), *blocks]
                commands.append((_SWAP, len(keys), *keys, change.stamp, change.manifest or b""))
            return [bool(answer) for answer in self._evaluate(commands)]

    def _evaluate(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        if len(commands) == 1:
            return [self._client.eval(*commands[0])]
        pipeline = self._pipeline()
        for command in commands:
            pipeline.execute_command("EVAL", *command)
        return list(pipeline.execute())

    def _write(self, identifier: str, entry: Entry, blocks: Sequence[Sequence[memoryview]]) -> None:
        with self._explained():
            # One after the other is as fast as a pipeline for what is large, and stops at the first that does not fit.
            for number, block in enumerate(blocks):
                data = block[0] if len(block) == 1 else b"".join(block)
                self._client.set(block_key(identifier, entry, number), data, ex=PENDING)

    def _read(self, wanted: Sequence[tuple[str, Entry, bool]]) -> list[list[Buffer] | None]:
        with self._explained():
            large = self._read_large([(name, entry) for name, entry, _ in wanted if max(entry.blocks) >= LARGE])
            pipeline = self._pipeline()
            for identifier, entry, _ in wanted:
                if entry.token not in large:
                    for key in block_keys(identifier, entry):
                        pipeline.get(key)
            answers = iter(pipeline.execute())
            blocks = [large.get(entry.token) or [next(answers) for _ in entry.blocks] for _, entry, _ in wanted]
            return [None if any(block is None for block in one) else one for one in blocks]

    def _read_large(self, wanted: Sequence[tuple[str, Entry]]) -> dict[str, list[Buffer]]:
        """The blocks of large objects, by token; those of one part are in one piece of memory."""
        read: dict[str, list[Buffer]] = {}
        requests: list[tuple[Any, str, memoryview]] = []
        for identifier, entry in wanted:
            keys = iter(zip(block_keys(identifier, entry), entry.blocks, strict=True))
            read[entry.token] = []
            for length in spans(entry):
                whole, at = memoryview(bytearray(length)), 0
                read[entry.token].append(whole)
                while at < length:
                    key, size = next(keys)
                    requests.append((self._pool(key), key, whole[at : at + size]))
                    at += size
        try:
            receive(requests)
        except Unreadable:
            return {}  # the ordinary way will tell what is wrong, or do better
        return read

    def _pool(self, key: str) -> Any:
        """The connections to the server that has a key."""
        return self._client.connection_pool

    def _erase(self, states: Sequence[tuple[str, Entry]]) -> None:
        with self._explained():
            pipeline = self._pipeline()
            for identifier, entry in states:
                for key in block_keys(identifier, entry):
                    pipeline.unlink(key)
            pipeline.execute()

    def locations(self, identifier: str, entry: Entry | None = None) -> list[str]:
        return [urlsplit(self.url).hostname or "localhost"]

    def place(self, host: str) -> str:
        if host not in self.locations(""):
            raise StorageError(f"{self} has no host {host!r}; it has {', '.join(self.locations(''))}")
        return uuid4().hex

    def close(self) -> None:
        self._client.close()

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained(self)


def with_block_size(url: str, default: int) -> tuple[str, int]:
    """An address without our own option in it, and the option: ``?block_size=8MiB``."""
    address, _, query = url.partition("?")
    options = dict(parse_qsl(query))
    given = options.pop("block_size", None)
    if given is None:
        return url, default
    size = parse_size(given)
    if not 1024 <= size <= 512 * 1024 * 1024:
        raise ConfigError(f"store: block_size={given} must be between 1KiB and 512MiB, the longest string of Redis")
    return f"{address}?{urlencode(options)}" if options else address, size


@contextlib.contextmanager
def explained(store: Store) -> Iterator[None]:
    """Errors of the client as ours."""
    from redis import exceptions as theirs

    try:
        yield
    except (theirs.RedisError, theirs.RedisClusterException) as error:
        raise _ours(store, error, theirs) from error
    except (ConnectionError, TimeoutError) as error:
        if isinstance(error, StorageError):
            raise
        raise StoreUnreachable(f"{store} does not answer: {error}. Is it running?") from error


def _ours(store: Store, error: Exception, theirs: Any) -> StorageError:
    text = str(error)
    if isinstance(error, theirs.OutOfMemoryError) or "OOM" in text:
        return StoreFull(f"{store} is full: {text}. Delete objects, or give it more memory (maxmemory).")
    # The client of a cluster wraps what its nodes say.
    locked = any(
        word in text for word in ("NOAUTH", "WRONGPASS", "username-password", "must be called with the client")
    )
    if locked or isinstance(error, theirs.AuthenticationError | theirs.AuthorizationError):
        scheme = store.url.partition(":")[0]
        return StoreUnreachable(
            f"{store} lets nobody in without its password ({text[:80]}): {scheme}://:PASSWORD@host:port"
        )
    lost = (theirs.ClusterDownError, theirs.MasterDownError, theirs.ClusterError, theirs.SlotNotCoveredError)
    if isinstance(error, (theirs.ConnectionError, theirs.TimeoutError, *lost)):
        return StoreUnreachable(f"{store} does not answer: {text or type(error).__name__}. Is it running?")
    if isinstance(error, theirs.MovedError) or "MOVED" in text:
        return StorageError(f"{store} is one node of a cluster: write redis-cluster:// instead of redis://")
    if "Cluster mode is not enabled" in text or "cluster support disabled" in text:
        return StorageError(f"{store} is no cluster: write redis:// instead of redis-cluster://")
    if isinstance(error, theirs.RedisClusterException):
        return StoreUnreachable(f"{store} does not answer: {text}")
    return StorageError(f"{store} refused: {text}")
