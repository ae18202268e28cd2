"""Penstock: sequential-looking Python as parallel tasks, with storage as a resource it schedules.

What users write is in ``penstock.api``. To read the code, follow a call: ``api`` makes it, ``model`` names things,
``graph`` finds what it depends on, ``scheduling`` and ``engine`` decide where it goes, ``executors`` run it, ``data``
carries its values, ``runtime`` drives all that, ``observe`` shows it, ``cli`` starts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.arrays import empty
from penstock.api.decorators import IO, constraint, implement, implements, io
from penstock.api.directions import (
    COLLECTION_FILE_IN,
    COLLECTION_FILE_INOUT,
    COLLECTION_FILE_OUT,
    COLLECTION_IN,
    COLLECTION_INOUT,
    COLLECTION_OUT,
    DIRECTORY_IN,
    DIRECTORY_INOUT,
    DIRECTORY_OUT,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    IN,
    INOUT,
    OUT,
    SCATTER,
    STREAM_IN,
    STREAM_OUT,
    Depth,
    Permanent,
    Temp,
    Type,
)
from penstock.api.eager import compss_ready_value, ready_file, ready_value
from penstock.api.mpi import mpi
from penstock.api.sync import barrier, cancel, delete_file, delete_object, open_file, share, wait_on
from penstock.api.task import task
from penstock.errors import (
    ArgumentChanged,
    CallError,
    ConfigError,
    ConstraintError,
    DataLost,
    DefinitionError,
    DependencyFailed,
    MissingObject,
    NotAValue,
    PenstockError,
    ProgramFailed,
    ReturnsMismatch,
    RuntimeStopped,
    SerializationError,
    SetupFailed,
    SimulatedValueError,
    StorageError,
    StorageFull,
    StoreFull,
    StoreUnreachable,
    TaskCancelled,
    TaskError,
    TaskFailed,
    TaskTimeout,
    WorkerDied,
    WrongClass,
)
from penstock.runtime.futures import Future, as_completed, wait
from penstock.runtime.session import start, stop
from penstock.runtime.streams import Stream
from penstock.version import __version__ as __version__

if TYPE_CHECKING:
    from penstock.api.executor import Executor
    from penstock.api.program import program
    from penstock.persistent.objects import PersistentObject
    from penstock.runtime.runtime import Runtime

__all__ = [
    "COLLECTION_FILE_IN",
    "COLLECTION_FILE_INOUT",
    "COLLECTION_FILE_OUT",
    "COLLECTION_IN",
    "COLLECTION_INOUT",
    "COLLECTION_OUT",
    "DIRECTORY_IN",
    "DIRECTORY_INOUT",
    "DIRECTORY_OUT",
    "FILE_IN",
    "FILE_INOUT",
    "FILE_OUT",
    "IN",
    "INOUT",
    "IO",
    "OUT",
    "SCATTER",
    "STREAM_IN",
    "STREAM_OUT",
    "ArgumentChanged",
    "CallError",
    "ConfigError",
    "ConstraintError",
    "DataLost",
    "DefinitionError",
    "DependencyFailed",
    "Depth",
    "Executor",
    "Future",
    "MissingObject",
    "NotAValue",
    "PenstockError",
    "Permanent",
    "PersistentObject",
    "ProgramFailed",
    "ReturnsMismatch",
    "Runtime",
    "RuntimeStopped",
    "SerializationError",
    "SetupFailed",
    "SimulatedValueError",
    "StorageError",
    "StorageFull",
    "StoreFull",
    "StoreUnreachable",
    "Stream",
    "TaskCancelled",
    "TaskError",
    "TaskFailed",
    "TaskTimeout",
    "Temp",
    "Type",
    "WorkerDied",
    "WrongClass",
    "as_completed",
    "barrier",
    "cancel",
    "compss_ready_value",
    "constraint",
    "delete_file",
    "delete_object",
    "empty",
    "implement",
    "implements",
    "io",
    "mpi",
    "open_file",
    "program",
    "ready_file",
    "ready_value",
    "share",
    "start",
    "stop",
    "task",
    "wait",
    "wait_on",
]


#: names that many programs have no use for, and their modules, which are imported when somebody asks for them: every
#: program waits for `import penstock`, twice (the fork server imports it too)
_LATER = {
    "Executor": "penstock.api.executor",
    "PersistentObject": "penstock.persistent.objects",
    "Runtime": "penstock.runtime.runtime",
    "program": "penstock.api.program",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
