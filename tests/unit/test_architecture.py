"""The rules of the house, checked on the syntax trees of src/penstock.

Imports go one way, what decides is pure, every module says what it is for and stays readable. The checkers are plain
functions from source text to complaints; the second half of this file shows each of them bad source, so that a
checker which has gone blind is noticed.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"

# What each part may import, besides itself. `<root>` is penstock/__init__.py, the public names.
_GROUND = {"errors", "units"}
_DECIDING = _GROUND | {"model", "graph", "tuning", "storage", "scheduling", "engine"}
_ACTING = _DECIDING | {"data", "persistent", "executors", "sim", "observe", "own_threads", "alert_waits"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "own_threads": set(),
    "alert_waits": set(),
    "units": {"errors"},
    "model": _GROUND,
    "graph": _GROUND | {"model"},
    "tuning": _GROUND | {"model", "graph"},
    "storage": _GROUND | {"model", "graph"},
    "scheduling": _GROUND | {"model", "graph", "tuning", "storage"},
    "engine": _DECIDING - {"engine"},
    "data": _DECIDING,
    "persistent": _GROUND | {"model", "data", "own_threads"},
    "executors": _DECIDING | {"data", "persistent", "streaming", "own_threads", "alert_waits"},
    "sim": _DECIDING,
    "observe": _GROUND | {"model", "own_threads", "alert_waits"},
    "streaming": _GROUND | {"model.resources"},
    "runtime": _ACTING | {"version"},
    "api": _ACTING | {"runtime"},
    "cli": _ACTING | {"runtime", "api", "streaming", "<root>"},
    "<root>": {"api", "errors", "persistent", "runtime", "version"},
    "__main__": {"cli"},
    "mpi": {"api"},
}

PURE_PARTS = _DECIDING
PURE_MODULES = {"streaming.filestate", "streaming.written"}
# What a pure module may import from outside. None of these can see a clock, thread, socket, file, environment or
# source of chance; before adding one, make sure that it cannot either.
PURE_LIBRARIES = {
    "__future__",
    "abc",
    "array",
    "bisect",
    "collections",
    "collections.abc",
    "concurrent.futures.CancelledError",
    "contextlib",
    "copy",
    "dataclasses",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "keyword",
    "math",
    "msgspec",
    "operator",
    "re",
    "reprlib",
    "statistics",
    "string",
    "sys",
    "textwrap",
    "types",
    "typing",
    "weakref",
}
IMPURE_CALLS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
# The doors of `sys` to the outside.
IMPURE_ATTRIBUTES = {f"sys.{name}" for name in ("argv", "exit", "modules", "path", "stderr", "stdin", "stdout")}

FORBIDDEN_NAMES = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
LONG, TOO_LONG = 400, 600


# --- the checkers -----------------------------------------------------------------------------------------------------


@functools.cache
def tree_of(source: str) -> ast.Module:
    return ast.parse(source)


def imports(source: str, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of all that ``module`` imports, at any depth and also for type checking only."""
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = ["penstock", *module.split(".")] if module != "<root>" else ["penstock"]
                up = node.level - (1 if is_package or module == "<root>" else 0)
                kept = package[: len(package) - up]
                base = ".".join([*kept, *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def part_of(module: str) -> str:
    """The first step of a dotted name; for ours, the package or lone module directly under penstock."""
    return module.partition(".")[0]


def complaints_about_direction(source: str, module: str, is_package: bool = False) -> list[str]:
    part = part_of(module)
    if part not in MAY_IMPORT:
        return [f"{module}: `{part}` has no place in the import order; give it one in {Path(__file__).name}"]
    complaints = []
    for line, name in imports(source, module, is_package):
        if part_of(name) != "penstock":
            continue
        target = name.removeprefix("penstock").lstrip(".") or "<root>"
        if part_of(target) not in MAY_IMPORT:
            target = "<root>"  # a name defined or re-exported by penstock/__init__.py
        if part_of(target) != part and not _allows(MAY_IMPORT[part], target):
            complaints.append(f"{module}:{line}: {part} may not import {name}")
    return complaints


def complaints_about_purity(source: str, module: str) -> list[str]:
    if part_of(module) not in PURE_PARTS and module not in PURE_MODULES:
        return []
    complaints = [
        f"{module}:{line}: a pure module may not import {name}"
        for line, name in imports(source, module)
        if part_of(name) != "penstock" and (name in IMPURE_ATTRIBUTES or not _allows(PURE_LIBRARIES, name))
    ]
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            complaints.append(f"{module}:{node.lineno}: a pure module may not call {node.func.id}()")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in IMPURE_ATTRIBUTES:
            complaints.append(f"{module}:{node.lineno}: a pure module may not use {ast.unparse(node)}")
    return complaints


def complaints_about_shape(source: str, module: str) -> list[str]:
    complaints = []
    lines = len(source.splitlines())
    docstring = ast.get_docstring(tree_of(source)) or ""
    if not docstring.strip():
        complaints.append(f"{module}: no docstring; say in two to six lines where the module stands in the flow")
    if lines > TOO_LONG:
        complaints.append(f"{module}: {lines} lines; over {TOO_LONG} it must be split")
    elif lines > LONG and not re.search(r"\blong\s+because\b", docstring.split("\n\n")[0]):
        complaints.append(f"{module}: {lines} lines; split it, or say `long because …` in its first paragraph")
    for name in module.split("."):
        if FORBIDDEN_NAMES & set(name.split("_")):
            complaints.append(f"{module}: the name `{name}` does not say what is inside")
    return complaints


def _allows(allowed: set[str], name: str) -> bool:
    """Whether ``name``, or something that contains it, is allowed."""
    steps = name.split(".")
    return any(".".join(steps[:count]) in allowed for count in range(1, len(steps) + 1))


# --- the house --------------------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    steps = list(path.relative_to(SOURCE).with_suffix("").parts)
    if steps[-1] == "__init__":
        steps.pop()
    return ".".join(steps) or "<root>"


MODULES = sorted(SOURCE.rglob("*.py"))


def test_the_house_was_found() -> None:
    assert SOURCE / "errors.py" in MODULES


def test_imports_go_one_way() -> None:
    each = (
        complaints_about_direction(path.read_text(), module_name(path), path.name == "__init__.py") for path in MODULES
    )
    assert not (found := list(chain.from_iterable(each))), "\n".join(found)


def test_what_decides_is_pure() -> None:
    each = (complaints_about_purity(path.read_text(), module_name(path)) for path in MODULES)
    assert not (found := list(chain.from_iterable(each))), "\n".join(found)


def test_modules_say_what_they_are_and_stay_short() -> None:
    each = (complaints_about_shape(path.read_text(), module_name(path)) for path in MODULES)
    assert not (found := list(chain.from_iterable(each))), "\n".join(found)


# --- the checkers, on bad source --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("errors", "from penstock.units import parse_size"),
        ("model.tasks", "from penstock.graph.versions import Versions"),
        ("model.tasks", "def f():\n    import penstock.engine"),
        ("graph.versions", "if TYPE_CHECKING:\n    from penstock.scheduling import policy"),
        ("tuning.epochs", "from penstock.storage import layers"),
        ("scheduling.policy", "from penstock.engine.ledger import Ledger"),
        ("engine.ledger", "from penstock.data import stores"),
        ("engine.ledger", "from ..runtime import driver"),
        ("engine.ledger", "from .. import runtime"),
        ("engine.ledger", "from penstock import api"),
        ("engine.ledger", "from penstock import task"),
        ("engine.ledger", "import penstock"),
        ("data.stores", "from penstock.executors import pools"),
        ("sim.driver", "from penstock.executors import pools"),
        ("observe.log", "from penstock.engine import engine"),
        ("streaming.server", "from penstock.model.tasks import TaskSpec"),
        ("streaming.server", "from penstock.model import resources_file"),
        ("runtime.driver", "from penstock.api import task"),
        ("api.task", "from penstock.cli import main"),
        ("<root>", "from penstock.engine import engine"),
        ("<root>", "from .cli import main"),
        ("novelty.thing", ""),
    ],
)
def test_an_import_against_the_order_is_reported(module: str, line: str) -> None:
    assert complaints_about_direction(line, module)


def test_a_relative_import_is_resolved_from_a_package_too() -> None:
    assert complaints_about_direction("from ..runtime import driver", "engine", is_package=True)
    assert not complaints_about_direction("from .runtime import driver", "engine", is_package=True)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("units", "from penstock.errors import ConfigError"),
        ("engine.ledger", "from penstock.scheduling.policy import Policy"),
        ("engine.ledger", "from .story import Story"),
        ("engine.ledger", "from penstock import units"),
        ("executors.pools", "from penstock.data import stores"),
        ("observe.log", "from penstock.model import events"),
        ("streaming.server", "from penstock.model.resources import Node"),
        ("streaming.server", "from penstock.model import resources"),
        ("cli.run", "from penstock import __version__"),
        ("<root>", "from penstock.runtime.driver import Runtime"),
    ],
)
def test_an_import_along_the_order_is_accepted(module: str, line: str) -> None:
    assert not complaints_about_direction(line, module)


IMPURE = [
    "import time",
    "import threading",
    "import socket",
    "import os",
    "import os.path",
    "import io",
    "import random",
    "import pathlib",
    "import subprocess",
    "import asyncio",
    "import logging",
    "import datetime",
    "import tempfile",
    "import queue",
    "import concurrent.futures",
    "import importlib",
    "import multiprocessing",
    "import psutil",
    "import uuid",
    "import secrets",
    "import rich",
    "from time import monotonic",
    "from concurrent.futures import ThreadPoolExecutor",
    "def f():\n    from os import environ",
    "open('x')",
    "print('x')",
    "input()",
    "import sys\nsys.stdout.write('x')",
    "from sys import stdin",
]


@pytest.mark.parametrize("source", IMPURE)
def test_what_is_impure_is_reported_in_the_core_and_free_outside(source: str) -> None:
    for module in ("units", "engine.ledger", "scheduling.policy", "streaming.filestate"):
        assert complaints_about_purity(source, module)
    for module in ("runtime.driver", "streaming.server", "<root>"):
        assert not complaints_about_purity(source, module)


@pytest.mark.parametrize(
    "source",
    [
        "import heapq",
        "from collections.abc import Mapping",
        "from concurrent.futures import CancelledError",
        "from .story import Story",
        "self.open()\nfile.print()",
        "import sys\nsys.intern('x')",
    ],
)
def test_what_is_pure_is_accepted(source: str) -> None:
    assert not complaints_about_purity(source, "engine.ledger")


def module_of(lines: int, docstring: str = '"""Short."""') -> str:
    return "\n".join([docstring, *["x = 1"] * (lines - len(docstring.splitlines()))])


def test_shapes_that_are_reported() -> None:
    reason = '"""The table. It is long because every case is one line.\n\nMore."""'
    misplaced = '"""The table.\n\nIt is long because every case is one line."""'
    assert complaints_about_shape("x = 1", "engine.ledger")
    assert complaints_about_shape('""" """', "engine.ledger")
    assert complaints_about_shape(module_of(401), "engine.ledger")
    assert complaints_about_shape(module_of(401, misplaced), "engine.ledger")
    assert complaints_about_shape(module_of(601, reason), "engine.ledger")
    for name in ("engine.utils", "common.ledger", "data.helpers", "engine.task_manager", "misc"):
        assert complaints_about_shape(module_of(3), name)
    assert not complaints_about_shape(module_of(400), "engine.ledger")
    assert not complaints_about_shape(module_of(600, reason), "engine.ledger")
