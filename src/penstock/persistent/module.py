"""The storage interface of COMPSs, as its applications and backends write it: thin aliases of what is here anyway.

    from penstock.persistent import module as storage
    storage.init(config_file_path="storage.cfg")

A configuration file lists hosts, one per line: one is a Redis server, several are nodes of a cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from penstock.errors import ConfigError, StorageError
from penstock.persistent import context
from penstock.persistent.objects import PersistentObject
from penstock.persistent.where import connect, current_store, is_stored

__all__ = [
    "StorageException",
    "StorageObject",
    "TaskContext",
    "consolidateVersion",
    "deletePersistent",
    "delete_persistent",
    "executeTask",
    "finish",
    "finishWorker",
    "finish_worker",
    "getByID",
    "getLocations",
    "getResult",
    "get_by_ID",
    "init",
    "initWorker",
    "init_worker",
    "makePersistent",
    "make_persistent",
    "newReplica",
    "newVersion",
    "removeById",
    "task_context",
]

StorageException = StorageError
StorageObject = PersistentObject

_PORT = 6379


def init(config_file_path: str | None = None, **kwargs: Any) -> None:
    """Use the store that a file names; without one, that of the settings. Fails if it does not answer."""
    if config_file_path is not None:
        connect(_address(config_file_path))
    current_store().exists("penstock:probe")


def _address(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            hosts = [line.strip() for line in file if line.strip() and not line.lstrip().startswith("#")]
    except OSError as error:
        raise ConfigError(f"the configuration of the store cannot be read: {error}") from error
    hosts = [host if ":" in host else f"{host}:{_PORT}" for host in hosts or ["localhost"]]
    return f"redis://{hosts[0]}" if len(hosts) == 1 else f"redis-cluster://{','.join(hosts)}"


def finish(**kwargs: Any) -> None:
    """Nothing to do: a store that the runtime started ends with it."""


def init_worker(config_file_path: str | None = None, **kwargs: Any) -> None:
    """The same in a worker, which knows the store of its run already."""
    init(config_file_path)


def finish_worker(**kwargs: Any) -> None:
    """Nothing to do."""


def get_by_ID(*identifiers: str) -> Any:
    """One id gives an object, several give a list."""
    return PersistentObject.get_by_id(*identifiers)


def make_persistent(obj: PersistentObject, identifier: str | None = None) -> None:
    """Store an object; nothing happens if it is already."""
    obj.make_persistent(identifier)


def delete_persistent(obj: PersistentObject) -> None:
    """Remove an object from the store; nothing happens if it is not there."""
    obj.delete_persistent()


@contextlib.contextmanager
def task_context(logger: Any, values: Iterable[Any], config_file_path: str | None = None) -> Iterator[None]:
    """Around a task: what it modified is stored when it ends well, all of it at once; what it raised is raised."""
    logger.info("Storage API: task begins")
    yield
    modified = [value for value in values if is_stored(value) and value.is_modified()]
    if modified:
        context.save(modified)
    logger.info("Storage API: task ended, %d objects stored", len(modified))


def getLocations(identifier: str) -> list[str]:
    """The hosts that hold an object."""
    return current_store().locations(identifier)


def newVersion(identifier: str, preserveSource: bool = True, host: str | None = None) -> str:
    """Copy an object under a new id, on a host."""
    return current_store().new_version(identifier, preserve=preserveSource, host=host)


def consolidateVersion(finalId: str) -> None:
    """Delete the versions that led to this one."""
    current_store().consolidate_version(finalId)


def removeById(identifier: str) -> None:
    """Remove an object from the store."""
    current_store().delete(identifier)


def newReplica(identifier: str, host: str) -> NoReturn:
    """Not offered by any of our stores."""
    raise StorageException(f"newReplica({identifier!r}, {host!r}): replicas are up to the store itself")


def executeTask(*args: Any) -> NoReturn:
    """Not offered by any of our stores: tasks run in workers."""
    raise StorageException("executeTask: our stores keep objects and run nothing; call a task with the object instead")


def getResult(*args: Any) -> NoReturn:
    """Not offered by any of our stores: tasks run in workers."""
    raise StorageException("getResult: our stores keep objects and run nothing; a task's future has its result")


initWorker = init_worker
finishWorker = finish_worker
getByID = get_by_ID
makePersistent = make_persistent
deletePersistent = delete_persistent
TaskContext = task_context
