"""Every exception Penstock raises, in one place.

    PenstockError
    ├── DefinitionError (TypeError)       a decorator was given something it cannot use
    ├── CallError (TypeError)             a task was called with something it cannot take
    ├── NotAValue (TypeError)             a future was used as if it were the value that it stands for
    ├── ConstraintError                   a requirement no machine of this run can ever meet
    ├── ConfigError (ValueError)          a setting that cannot be understood
    ├── RuntimeStopped (RuntimeError)     a call after stop()
    ├── TaskError                         a task did not deliver; says which, where and why
    │   ├── TaskFailed                    its body raised (the user's exception is re-raised; this is its cause)
    │   ├── WorkerDied                    its process ended under it
    │   ├── ProgramFailed                 the program that it is ended badly
    │   ├── StorageFull (OSError)         no storage layer had room for what it writes
    │   ├── TaskTimeout (TimeoutError)    it ran longer than its timeout
    │   ├── ReturnsMismatch               it returned another number of values than declared
    │   ├── DependencyFailed              a task it depends on failed; names the root and the path
    │   ├── SetupFailed                   the program's setup of its worker process raised
    │   ├── DataLost                      what it made was lost, and cannot be computed again
    │   └── ArgumentChanged               strict mode: it changed an argument declared IN
    ├── TaskCancelled (CancelledError)    it was cancelled, or needed the output of one that was
    ├── SerializationError (TypeError)    an argument, result or function cannot be pickled
    ├── StorageError                      a store of persistent objects could not do what it was asked
    │   ├── MissingObject (KeyError)      it holds no object of this id
    │   ├── WrongClass (TypeError)        the object of this id is of another class
    │   ├── StoreUnreachable (ConnectionError)  it does not answer, or has been lost
    │   └── StoreFull (OSError)           it has no room left
    ├── SimulatedValueError               a simulated run: the program needs a value that no task has computed
    └── InternalError                     an invariant of Penstock itself broke: our bug, please report it

A message says what happened, to which object, with which value, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import CancelledError

__all__ = [
    "ArgumentChanged",
    "CallError",
    "ConfigError",
    "ConstraintError",
    "DataLost",
    "DefinitionError",
    "DependencyFailed",
    "InternalError",
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
    "did_you_mean",
]


class PenstockError(Exception):
    """Base of everything Penstock raises on its own account."""


class DefinitionError(PenstockError, TypeError):
    """A decorator was given something it cannot use."""


class CallError(PenstockError, TypeError):
    """A task was called with something it cannot take."""


class NotAValue(PenstockError, TypeError):
    """A future was used as if it were the value that it stands for."""


class ConstraintError(PenstockError):
    """A requirement that no machine of this run can ever meet."""


class ConfigError(PenstockError, ValueError):
    """A setting that cannot be understood."""


class RuntimeStopped(PenstockError, RuntimeError):
    """The runtime was stopped; start another one before calling tasks."""


class TaskError(PenstockError):
    """A task did not deliver its outputs."""


class TaskFailed(TaskError):
    """The body of a task raised; the text holds the worker's traceback."""


class WorkerDied(TaskError):
    """The process running a task ended under it."""


class ProgramFailed(TaskError):
    """A program that a task is ended badly; the text holds its command line and the last it wrote on stderr."""

    def __init__(self, message: str, returncode: int, command: str, stderr: str) -> None:
        super().__init__(message, returncode, command, stderr)
        #: its exit status, or minus the signal that killed it
        self.returncode = returncode
        self.command = command
        #: its last lines
        self.stderr = stderr

    def __str__(self) -> str:
        return str(self.args[0])


class StorageFull(TaskError, OSError):
    """No storage layer had room for what a task writes, and nothing of the run could make some."""


class TaskTimeout(TaskError, TimeoutError):
    """A task ran longer than its ``timeout``."""


class ReturnsMismatch(TaskError):
    """A task returned another number of values than it declared."""


class DependencyFailed(TaskError):
    """A task that this one needs has failed; the message names the root cause and the path to it."""


class SetupFailed(TaskError):
    """A task could not run: the ``setup`` of its worker process raised."""


class DataLost(TaskError):
    """What a task made, or was given, is gone from where it was stored, and cannot be computed again."""


class ArgumentChanged(TaskError):
    """Strict mode: a task changed an argument that it declares ``IN``."""


class TaskCancelled(PenstockError, CancelledError):
    """The task was cancelled, or it needed the output of one that was."""


class SerializationError(PenstockError, TypeError):
    """An argument, a result or a function cannot be pickled."""


class StorageError(PenstockError):
    """A store of persistent objects could not do what it was asked; nothing in it is half-written."""


class MissingObject(StorageError, KeyError):
    """The store holds no object of this id."""

    __str__ = Exception.__str__  # a KeyError would show the message in quotes


class WrongClass(StorageError, TypeError):
    """The object of this id is of another class than was asked for, or its class cannot be found."""


class StoreUnreachable(StorageError, ConnectionError):
    """The store does not answer, or the connection to it was lost."""


class StoreFull(StorageError, OSError):
    """The store has no room left."""


class SimulatedValueError(PenstockError):
    """In a simulated run the program needs a value that no task has computed; the message says which, and where."""


class InternalError(PenstockError):
    """An invariant of Penstock broke. This is our bug: please report it with the text below."""


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """``; did you mean 'x'?`` for the known name nearest to a wrong one, or nothing."""
    from difflib import SequenceMatcher, get_close_matches

    near = get_close_matches(name, list(known), n=3, cutoff=cutoff)
    if not near:
        return ""

    def likeness(one: str) -> tuple[float, int]:
        alike = next((i for i, (a, b) in enumerate(zip(name, one, strict=False)) if a != b), len(name))
        return SequenceMatcher(None, name, one).ratio(), alike

    best = max(near, key=likeness)
    return f"; did you mean {best!r}?"
