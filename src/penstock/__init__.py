"""Penstock: sequential-looking Python as parallel tasks, with storage as a resource it schedules.

What users write is in ``penstock.api``. To read the code, follow a call: ``api`` makes it, ``model`` names things,
``graph`` finds what it depends on, ``scheduling`` and ``engine`` decide where it goes, ``executors`` run it, ``data``
carries its values, ``runtime`` drives all that, ``observe`` shows it, ``cli`` starts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.version import __version__ as __version__

if TYPE_CHECKING:
    from penstock.api.arrays import empty as empty
    from penstock.api.decorators import IO as IO
    from penstock.api.decorators import constraint as constraint
    from penstock.api.decorators import implement as implement
    from penstock.api.decorators import implements as implements
    from penstock.api.decorators import io as io
    from penstock.api.directions import COLLECTION_FILE_IN as COLLECTION_FILE_IN
    from penstock.api.directions import COLLECTION_FILE_INOUT as COLLECTION_FILE_INOUT
    from penstock.api.directions import COLLECTION_FILE_OUT as COLLECTION_FILE_OUT
    from penstock.api.directions import COLLECTION_IN as COLLECTION_IN
    from penstock.api.directions import COLLECTION_INOUT as COLLECTION_INOUT
    from penstock.api.directions import COLLECTION_OUT as COLLECTION_OUT
    from penstock.api.directions import DIRECTORY_IN as DIRECTORY_IN
    from penstock.api.directions import DIRECTORY_INOUT as DIRECTORY_INOUT
    from penstock.api.directions import DIRECTORY_OUT as DIRECTORY_OUT
    from penstock.api.directions import FILE_IN as FILE_IN
    from penstock.api.directions import FILE_INOUT as FILE_INOUT
    from penstock.api.directions import FILE_OUT as FILE_OUT
    from penstock.api.directions import IN as IN
    from penstock.api.directions import INOUT as INOUT
    from penstock.api.directions import OUT as OUT
    from penstock.api.directions import SCATTER as SCATTER
    from penstock.api.directions import STREAM_IN as STREAM_IN
    from penstock.api.directions import STREAM_OUT as STREAM_OUT
    from penstock.api.directions import Depth as Depth
    from penstock.api.directions import Permanent as Permanent
    from penstock.api.directions import Temp as Temp
    from penstock.api.directions import Type as Type
    from penstock.api.eager import compss_ready_value as compss_ready_value
    from penstock.api.eager import ready_file as ready_file
    from penstock.api.eager import ready_value as ready_value
    from penstock.api.executor import Executor as Executor
    from penstock.api.mpi import mpi as mpi
    from penstock.api.program import program as program
    from penstock.api.sync import barrier as barrier
    from penstock.api.sync import cancel as cancel
    from penstock.api.sync import delete_file as delete_file
    from penstock.api.sync import delete_object as delete_object
    from penstock.api.sync import open_file as open_file
    from penstock.api.sync import share as share
    from penstock.api.sync import wait_on as wait_on
    from penstock.api.task import task as task
    from penstock.errors import ArgumentChanged as ArgumentChanged
    from penstock.errors import CallError as CallError
    from penstock.errors import ConfigError as ConfigError
    from penstock.errors import ConstraintError as ConstraintError
    from penstock.errors import DataLost as DataLost
    from penstock.errors import DefinitionError as DefinitionError
    from penstock.errors import DependencyFailed as DependencyFailed
    from penstock.errors import MissingObject as MissingObject
    from penstock.errors import NotAValue as NotAValue
    from penstock.errors import PenstockError as PenstockError
    from penstock.errors import ProgramFailed as ProgramFailed
    from penstock.errors import ReturnsMismatch as ReturnsMismatch
    from penstock.errors import RuntimeStopped as RuntimeStopped
    from penstock.errors import SerializationError as SerializationError
    from penstock.errors import SetupFailed as SetupFailed
    from penstock.errors import SimulatedValueError as SimulatedValueError
    from penstock.errors import StorageError as StorageError
    from penstock.errors import StorageFull as StorageFull
    from penstock.errors import StoreFull as StoreFull
    from penstock.errors import StoreUnreachable as StoreUnreachable
    from penstock.errors import TaskCancelled as TaskCancelled
    from penstock.errors import TaskError as TaskError
    from penstock.errors import TaskFailed as TaskFailed
    from penstock.errors import TaskTimeout as TaskTimeout
    from penstock.errors import WorkerDied as WorkerDied
    from penstock.errors import WrongClass as WrongClass
    from penstock.persistent.objects import PersistentObject as PersistentObject
    from penstock.runtime.futures import Future as Future
    from penstock.runtime.futures import as_completed as as_completed
    from penstock.runtime.futures import wait as wait
    from penstock.runtime.runtime import Runtime as Runtime
    from penstock.runtime.session import start as start
    from penstock.runtime.session import stop as stop
    from penstock.runtime.streams import Stream as Stream

#: Where each name is at home. A module is imported when somebody asks for a name of it: every program waits for its
#: imports, its fork server too, and few have a use for all of this. Who reads without running finds the same above.
_HOMES = {
    "api.arrays": ("empty",),
    "api.decorators": (
        "IO",
        "constraint",
        "implement",
        "implements",
        "io",
    ),
    "api.directions": (
        "COLLECTION_FILE_IN",
        "COLLECTION_FILE_INOUT",
        "COLLECTION_FILE_OUT",
        "COLLECTION_IN",
        "COLLECTION_INOUT",
        "COLLECTION_OUT",
        "DIRECTORY_IN",
        "DIRECTORY_INOUT",
        "DIRECTORY_OUT",
        "Depth",
        "FILE_IN",
        "FILE_INOUT",
        "FILE_OUT",
        "IN",
        "INOUT",
        "OUT",
        "Permanent",
        "SCATTER",
        "STREAM_IN",
        "STREAM_OUT",
        "Temp",
        "Type",
    ),
    "api.eager": (
        "compss_ready_value",
        "ready_file",
        "ready_value",
    ),
    "api.executor": ("Executor",),
    "api.mpi": ("mpi",),
    "api.program": ("program",),
    "api.sync": (
        "barrier",
        "cancel",
        "delete_file",
        "delete_object",
        "open_file",
        "share",
        "wait_on",
    ),
    "api.task": ("task",),
    "errors": (
        "ArgumentChanged",
        "CallError",
        "ConfigError",
        "ConstraintError",
        "DataLost",
        "DefinitionError",
        "DependencyFailed",
        "MissingObject",
        "NotAValue",
        "PenstockError",
        "ProgramFailed",
        "ReturnsMismatch",
        "RuntimeStopped",
        "SerializationError",
        "SetupFailed",
        "SimulatedValueError",
        "StorageError",
        "StorageFull",
        "StoreFull",
        "StoreUnreachable",
        "TaskCancelled",
        "TaskError",
        "TaskFailed",
        "TaskTimeout",
        "WorkerDied",
        "WrongClass",
    ),
    "persistent.objects": ("PersistentObject",),
    "runtime.futures": (
        "Future",
        "as_completed",
        "wait",
    ),
    "runtime.runtime": ("Runtime",),
    "runtime.session": (
        "start",
        "stop",
    ),
    "runtime.streams": ("Stream",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":  # programs write `except penstock.errors.TaskFailed`
        return import_module("penstock.errors")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"penstock.{_HOME_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
