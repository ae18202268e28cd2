"""Objects in a Redis server: manifests and blocks are strings of their own.

Blocks are written with a time to live, and lose it in the same step that names them in a manifest. So what a writer
that was killed had written goes away by itself, if nobody comes who removes it (upkeep.py), and what is named stays.
One server runs that step as a script; a cluster (redis_cluster.py) has it in two, as its blocks lie on several nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

from penstock.errors import ConfigError, StorageError, StoreFull, StoreUnreachable
from penstock.persistent.manifest import Entry, spans
from penstock.persistent.redis_blocks import LARGE, Unreadable, receive
from penstock.persistent.redis_runs import RedisRuns
from penstock.persistent.stores import Buffer, Change, Found, Store
from penstock.persistent.where import shown
from penstock.units import format_duration, parse_duration, parse_size

__all__ = [
    "PENDING",
    "RedisStore",
    "block_key",
    "block_keys",
    "explained",
    "manifest_key",
]

#: seconds after which blocks that no manifest names are gone
PENDING = 24 * 3600
#: blocks up to this number are not spread: the small parts of an object, and a large one
_TOGETHER = 2
_NO_TLS = "Does it speak TLS on this port? If not, write redis:// instead of rediss://."
#: seconds to wait for a connection, and for an answer if the address does not say
_CONNECT, _ANSWER = 5.0, 30.0

#: how keys of manifests begin: with the id in braces; or, where the id has braces of its own, a mark and the id
_MANIFEST, _AS_IT_IS = "penstock:object:", "="

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
    """The key of an object's manifest; no other id has the same."""
    return f"{_MANIFEST}{_tagged(identifier)}" if _is_plain(identifier) else f"{_MANIFEST}{_AS_IT_IS}{identifier}"


def _identifier(key: str) -> str:
    name = key.removeprefix(_MANIFEST)
    return name.removeprefix(_AS_IT_IS) if name.startswith(_AS_IT_IS) else name[1:-1]


def block_key(identifier: str, entry: Entry, number: int) -> str:
    """The key of a block.

    Many blocks have a slot each, so that they spread over a cluster. Few are in the slot of the manifest, and so are
    all if there are braces in the id: by these Redis knows what of a key its slot depends on.
    """
    name = _tagged(identifier) if len(entry.blocks) <= _TOGETHER else identifier
    return f"penstock:block:{name}:{entry.token}:{number}"


def _tagged(identifier: str) -> str:
    return f"{{{identifier}}}" if _is_plain(identifier) else identifier


def _is_plain(identifier: str) -> bool:
    return "{" not in identifier and "}" not in identifier


def block_keys(identifier: str, entry: Entry) -> list[str]:
    """The keys of all blocks of a state."""
    return [block_key(identifier, entry, number) for number in range(len(entry.blocks))]


class RedisStore(Store):
    """A Redis server that is not part of a cluster."""

    block_size = 64 * 1024 * 1024

    def __init__(self, url: str) -> None:
        super().__init__(url, RedisRuns(self._pipeline, self._explained))
        address, self.block_size, self.timeout = _options(url, self.block_size)
        with self._explained():
            self._client: Any = self._connected(address)

    def limits(self) -> dict[str, Any]:
        """How long clients wait for a server, and how often they try."""
        import redis
        from redis.backoff import ExponentialBackoff
        from redis.retry import Retry

        # A connection that was lost is made anew; who has not answered in time is not asked once more.
        lost: Any = (redis.ConnectionError,)
        retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), 3, supported_errors=lost)
        connect = min(_CONNECT, self.timeout)
        return {"socket_connect_timeout": connect, "socket_timeout": self.timeout, "retry": retry}

    def _connected(self, address: str) -> Any:
        import redis

        parts = urlsplit(address)
        database = parts.path.strip("/") if parts.scheme != "unix" else ""
        if database and not database.isdigit():
            raise ConfigError(f"store = {shown(self.url)!r}: {database!r} is no number of a database")
        try:
            client = redis.Redis.from_url(address, **self.limits())
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

    def inventory(self) -> Iterator[tuple[str, bytes]]:
        for key in self._keys(f"{_MANIFEST}*"):
            with self._explained():
                data = self._client.get(key)
            if data is not None:
                yield _identifier(key), data

    def blocks(self) -> Iterator[Found]:
        for key in self._keys("penstock:block:*"):
            with self._explained():
                yield Found(key.rsplit(":", 2)[1], key, self._client.strlen(key))

    def _keys(self, pattern: str) -> Iterator[str]:
        with self._explained():
            for key in self._client.scan_iter(pattern, count=1000):
                yield key.decode()

    def discard(self, found: Iterable[Found]) -> None:
        with self._explained():
            pipeline = self._pipeline()
            for one in found:
                pipeline.unlink(one.place)
            pipeline.execute()

    def close(self) -> None:
        with contextlib.suppress(StorageError):
            super().close()
        self._client.close()

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained(self)


def _options(url: str, block_size: int) -> tuple[str, int, float]:
    """An address without our own options in it, and those: ``?block_size=8MiB&timeout=60s``."""
    address, _, query = url.partition("?")
    options = dict(parse_qsl(query))
    size, timeout = options.pop("block_size", None), options.pop("timeout", None)
    block_size = block_size if size is None else parse_size(size)
    if not 1024 <= block_size <= 512 * 1024 * 1024:
        raise ConfigError(f"store: block_size={size} must be between 1KiB and 512MiB, the longest string of Redis")
    seconds = _ANSWER if timeout is None else parse_duration(timeout)
    if seconds <= 0:
        raise ConfigError(f"store: timeout={timeout} must be longer than nothing")
    return f"{address}?{urlencode(options)}" if options else address, block_size, seconds


@contextlib.contextmanager
def explained(store: RedisStore) -> Iterator[None]:
    """Errors of the client as ours."""
    from redis import exceptions as theirs

    try:
        yield
    except (theirs.RedisError, theirs.RedisClusterException) as error:
        raise _ours(store, error, theirs) from error
    except (ConnectionError, TimeoutError) as error:
        if isinstance(error, StorageError):
            raise
        raise _unreachable(store, str(error)) from error


def _unreachable(store: RedisStore, text: str) -> StoreUnreachable:
    secured = store.url.startswith("rediss:")
    if "imeout" in text or "timed out" in text:
        limit = f"{store} has not answered within {format_duration(store.timeout)}: {text}."
        longer = "Put ?timeout=5min at the end of its address to wait longer."
        return StoreUnreachable(f"{limit} {_NO_TLS if secured else 'Is it stopped, or very busy?'} {longer}")
    tls = _NO_TLS if secured else "If it speaks TLS, write rediss:// instead of redis://." if "closed" in text else ""
    return StoreUnreachable(f"{store} does not answer: {text}. Is it running? {tls}".rstrip())


def _ours(store: RedisStore, error: Exception, theirs: Any) -> StorageError:
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
    if isinstance(error, theirs.BusyLoadingError):
        return StoreUnreachable(f"{store} is still loading its data: try again in a while")
    if isinstance(error, theirs.ReadOnlyError) or "READONLY" in text:
        return StorageError(f"{store} is a replica, which takes no writes: give the address of its primary")
    if "DB index is out of range" in text or "invalid DB index" in text:
        return StorageError(f"{store} has no database of this number (the path of the address): {text}")
    lost = (theirs.ClusterDownError, theirs.MasterDownError, theirs.ClusterError, theirs.SlotNotCoveredError)
    if isinstance(error, (theirs.ConnectionError, theirs.TimeoutError, *lost)):
        return _unreachable(store, text or type(error).__name__)
    if isinstance(error, theirs.MovedError) or "MOVED" in text:
        return StorageError(f"{store} is one node of a cluster: write redis-cluster:// instead of redis://")
    if "Cluster mode is not enabled" in text or "cluster support disabled" in text:
        return StorageError(f"{store} is no cluster: write redis:// instead of redis-cluster://")
    if isinstance(error, theirs.RedisClusterException):
        return _unreachable(store, text)
    return StorageError(f"{store} refused: {text}")
