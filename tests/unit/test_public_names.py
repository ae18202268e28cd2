"""The public names, pinned: adding or removing one is a decision, made here."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import types
from pathlib import Path

import pytest

import penstock

NAMES = [
    "ArgumentChanged",
    "COLLECTION_FILE_IN",
    "COLLECTION_FILE_INOUT",
    "COLLECTION_FILE_OUT",
    "COLLECTION_IN",
    "COLLECTION_INOUT",
    "COLLECTION_OUT",
    "CallError",
    "ConfigError",
    "ConstraintError",
    "DIRECTORY_IN",
    "DIRECTORY_INOUT",
    "DIRECTORY_OUT",
    "DataLost",
    "DefinitionError",
    "DependencyFailed",
    "Depth",
    "Executor",
    "FILE_IN",
    "FILE_INOUT",
    "FILE_OUT",
    "Future",
    "IN",
    "INOUT",
    "IO",
    "MissingObject",
    "NotAValue",
    "OUT",
    "PenstockError",
    "Permanent",
    "PersistentObject",
    "ProgramFailed",
    "ReturnsMismatch",
    "Runtime",
    "RuntimeStopped",
    "SCATTER",
    "STREAM_IN",
    "STREAM_OUT",
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


def test_the_public_names_are_these() -> None:
    assert sorted(penstock.__all__) == NAMES


def test_readers_that_do_not_run_it_find_each_name_at_its_home() -> None:
    tree = ast.parse(Path(penstock.__file__).read_text())
    (static,) = [node for node in tree.body if isinstance(node, ast.If)]
    read = {
        alias.asname: node.module for node in static.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert read == {name: f"penstock.{home}" for name, home in penstock._HOME_OF.items()}


def test_a_name_that_is_not_there_is_a_missing_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'taks'"):
        penstock.taks
    assert not hasattr(penstock, "_taks")


def test_every_name_can_be_imported() -> None:
    found: dict[str, object] = {}
    exec("from penstock import *", found)
    assert sorted(name for name in found if name != "__builtins__") == NAMES


def test_nothing_else_looks_public() -> None:
    """Besides the listed names only modules and dunders are visible, so that completion shows what is meant."""
    others = {
        name
        for name, value in ((name, getattr(penstock, name)) for name in dir(penstock))
        if not name.startswith("_") and name not in penstock.__all__ and not isinstance(value, types.ModuleType)
    }
    assert others <= {"annotations", "Any", "TYPE_CHECKING"}


def test_every_function_and_class_has_a_docstring() -> None:
    for name in NAMES:
        thing = getattr(penstock, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert thing.__doc__, f"penstock.{name} has no docstring"


def test_every_error_is_a_penstock_error() -> None:
    for name in NAMES:
        thing = getattr(penstock, name)
        if inspect.isclass(thing) and issubclass(thing, BaseException):
            assert issubclass(thing, penstock.PenstockError), name


def test_the_version_is_that_of_the_project() -> None:
    import tomllib
    from pathlib import Path

    project = Path(__file__).parents[2] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == penstock.__version__


def test_the_import_brings_nothing_that_only_a_run_needs() -> None:
    """Importing takes a tenth of a second at most; the engine, and modules that take long, come with the first run."""
    program = "import sys; before = set(sys.modules); import penstock; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    late = {
        "asyncio",
        "cloudpickle",
        "multiprocessing",
        "numpy",
        "psutil",
        "random",
        "rich",
        "tempfile",
        "typer",
    }
    late |= {
        f"penstock.{name}" for name in ("engine.engine", "engine.state", "scheduling", "tuning.tuner", "executors.node")
    }
    assert not late & set(done.stdout.split())
