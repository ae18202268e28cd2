"""Which store is meant: the one of the run, in the program and in each of its processes.

Cheap to import. The store itself is opened by the first object that needs it, once in each process. What a runtime has
to say about objects (which version is the newest, who still reads it) it says through ``desk``.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.persistent.stores import Store

__all__ = [
    "Desk",
    "close_store",
    "connect",
    "current_store",
    "is_saved",
    "is_stored",
    "open_store",
    "opened_store",
    "save_unsaved",
    "settings",
    "shown",
    "unsavable",
    "unsaved",
    "work_for",
]


class Desk(Protocol):
    """What a run knows of persistent objects that its tasks use."""

    def settle(self, identifier: str, *, alone: bool) -> None:
        """Wait for tasks that write an object; with ``alone``, also for those that read it."""

    def bring_up_to_date(self, obj: Any) -> None:
        """Wait for tasks that write an object, stored or not, and give it the state that they made."""

    def seen(self, identifier: str, token: str | None) -> None:
        """The program has this state of the object, the newest."""

    def is_with_tasks(self, identifier: str) -> bool:
        """Whether tasks update the object, and the program has not looked at what they made of it."""

    def is_read(self, identifier: str, token: str | None) -> bool:
        """Whether a task may still read a state of the object."""

    def replaced(self, identifier: str) -> None:
        """The program itself has stored a new state of the object, or removed it."""


class _Settings:
    """Set by the runtime, or by a worker that was told by it."""

    #: finds out the address of the store in a program that has none yet
    find: Callable[[], str] | None = None
    #: the address of the store of this process
    url: str | None = None
    #: the folder of the run that this process works for; None: it works for none
    folder: str | None = None
    #: the folder of the run, which no other has, and the number of the task that this process carries out
    attempt: tuple[str, int] | None = None
    #: the run that this process is the program of; None in workers
    desk: Callable[[], Desk | None] = staticmethod(lambda: None)

    @property
    def run(self) -> str | None:
        """The run that this process works for, by a name that no run on another machine has either."""
        if self.folder is None:
            return None
        # Asked for where there are stores. Every worker is told its run, and hashlib brings OpenSSL: 3 ms in each.
        import hashlib
        import socket

        return hashlib.blake2b(f"{socket.gethostname()} {self.folder}".encode(), digest_size=16).hexdigest()


settings = _Settings()
#: objects that the program changed and nobody has written, by address: kept, or the change would go with them
unsaved: dict[int, Any] = {}
#: those of which it is known that they cannot be written as they are
unsavable: dict[int, Any] = {}
_opened: dict[str, Store] = {}
_opening = threading.RLock()


def connect(url: str | None) -> None:
    """From now on, this process uses the store at an address; None: ask again."""
    settings.url = url


def work_for(folder: str | None) -> None:
    """From now on, this process works for the run whose folder this is, on this machine; None: for none."""
    settings.folder = folder


def is_stored(obj: Any) -> bool:
    """Whether something is a persistent object that is in a store; does not import what nobody has used yet."""
    module = sys.modules.get("penstock.persistent.objects")
    return module is not None and isinstance(obj, module.PersistentObject) and obj._link.identifier is not None


def save_unsaved(*, every: bool = True) -> None:
    """Write what the program has changed; without ``every``, what cannot be written is left to who uses it."""
    if not unsaved and not (every and unsavable):
        return
    from penstock.persistent.context import flush

    flush(every=every)


def is_saved(obj: Any) -> None:
    """Nothing of an object waits to be written any more."""
    unsaved.pop(id(obj), None)
    unsavable.pop(id(obj), None)


def current_store() -> Store:
    """The store of this process, opened when first needed."""
    url = settings.url
    if url is None:
        # Not remembered: the next run may have another.
        url = settings.find() if settings.find is not None else "local:penstock-store"
    store = _opened.get(url)
    if store is None:
        with _opening:
            store = _opened.get(url)
            if store is None:
                store = open_store(url)
                if settings.folder is None or settings.desk() is not None:
                    from penstock.persistent.upkeep import collect

                    collect(store)  # in programs; their workers come too often
                if not _opened:
                    atexit.register(_close_all)
                _opened[url] = store
    return store


def shown(url: str) -> str:
    """An address without its password."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def open_store(url: str) -> Store:
    """A store by its address."""
    scheme, _, rest = url.partition(":")
    if scheme == "local":
        from penstock.persistent.local import LocalStore

        return LocalStore(rest)
    if scheme in ("redis", "rediss", "unix"):
        _need_redis(url)
        from penstock.persistent.redis_store import RedisStore

        return RedisStore(url)
    if scheme == "redis-cluster":
        _need_redis(url)
        from penstock.persistent.redis_cluster import RedisClusterStore

        return RedisClusterStore(url)
    if scheme == "memory":
        from penstock.persistent.memory import MemoryStore

        return MemoryStore(url)
    raise ConfigError(
        f"store = {url!r}: expected local:FOLDER, redis://HOST:PORT, unix://SOCKET, redis-cluster://HOST:PORT,… "
        f"or redis-start:"
    )


def _need_redis(url: str) -> None:
    try:
        import redis  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"store = {url!r} needs the Python package redis: pip install 'penstock[redis]'") from error


def opened_store(url: str) -> Store | None:
    """A store, if this process has opened it."""
    return _opened.get(url)


def close_store(url: str) -> None:
    """Let go of a store that this process had opened."""
    store = _opened.pop(url, None)
    if store is not None:
        store.close()


def _close_all() -> None:
    """At the end of the program; a run that is not over yet sees to it itself."""
    for url in list(_opened) if settings.folder is None else ():
        close_store(url)


def _leave_to_parent() -> None:
    """A fork must not speak on its parent's connections, and holds nothing for it."""
    for store in _opened.values():
        store.runs.abandon()
    _opened.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
