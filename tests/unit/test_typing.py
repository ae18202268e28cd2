"""Decorated functions keep their types: what mypy says about programs that use tasks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

pytest.importorskip("mypy")

# Each line that ends in `# E: text` must be reported with that text, and no other line may be.
PROGRAM = """
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock
from penstock import COLLECTION_IN, FILE_OUT, IN, INOUT, Depth, Executor, Future, Runtime, Type
from penstock import as_completed, barrier, cancel, constraint, open_file, share, task, wait, wait_on


@task
def bare(a: int, b: str = "") -> float:
    return float(a)


@task(returns=1)
def one(a: int, *, key: str) -> list[int]:
    return [a]


@constraint(computing_units=2)
@task(total=INOUT)
def merge(total: dict[str, int], part: dict[str, int]) -> None:
    total.update(part)


@task(path=FILE_OUT, parts={Type: COLLECTION_IN, Depth: 2}, priority=True, retries=2, timeout=5.0, on_failure="retry")
def save(parts: list[list[int]], path: str | Path) -> None: ...


reveal_type(bare(1))  # N: Future[float]
reveal_type(bare(1).result())  # N: "float"
reveal_type(one(1, key="k").result())  # N: "list[int]"
value: float = bare(1, "b").result(timeout=5)
future: Future[float] = bare(1)
nothing: Future[None] = merge({}, {})

bare("text")  # E: incompatible type "str"; expected "int"
bare()  # E: Missing positional argument "a"
bare(1, "b", 3)  # E: Too many arguments
one(1)  # E: Missing named argument "key"
one(1, key=5)  # E: incompatible type "int"; expected "str"
merge({"a": "b"}, {})  # E: Dict entry 0 has incompatible type
save([[1]], 5)  # E: incompatible type "int"
wrong: Future[str] = bare(1)  # E: Incompatible types in assignment
text: str = bare(1).result()  # E: Incompatible types in assignment
save([[1]], Path("x"))


async def main() -> float:
    return await bare(1)


async def mistaken() -> str:
    return await bare(1)  # E: Incompatible return value type


reveal_type([done.result() for done in as_completed([bare(1), bare(2)])])  # N: "list[float]"
results: list[float] = bare.map([1, 2]).results()
mistake: list[str] = bare.map([1, 2]).results()  # E: Incompatible types in assignment
element: float = bare.map([1, 2])[0].result()

with Runtime(cpus=2) as runtime:
    reveal_type(runtime)  # N: penstock.runtime.runtime.Runtime
with Executor(max_workers=2) as executor:
    number: int = executor.submit(abs, -1).result()

barrier()
cancel(future)
task(5)  # E: No overload variant
task(returns="two")  # E: No overload variant
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """What mypy says, by line."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "program.py").write_text(PROGRAM)
    source = str(Path(penstock.__file__).parents[1])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-color-output",
            "--cache-dir",
            str(folder / "cache"),
            "program.py",
        ],
        cwd=folder,
        env={**os.environ, "MYPYPATH": source},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        match = re.match(r"program\.py:(\d+): (?:error|note): (.*)", line)
        if match:
            # older versions of mypy spell a built-in type in full
            found.setdefault(int(match[1]), []).append(match[2].replace("builtins.", ""))
    return found


LINES = list(enumerate(PROGRAM.splitlines(), start=1))
MARKED = [(number, *line.split("  # ", 1)) for number, line in LINES if "  # E: " in line or "  # N: " in line]


@pytest.mark.parametrize(("number", "text", "expected"), MARKED, ids=[row[1].strip() for row in MARKED])
def test_mypy_says(report: dict[int, list[str]], number: int, text: str, expected: str) -> None:
    said = " | ".join(report.get(number, []))
    assert expected[3:] in said, f"{text}\nmypy said: {said or 'nothing'}"


def test_mypy_says_nothing_else(report: dict[int, list[str]]) -> None:
    marked = {number for number, *_ in MARKED}
    others = {number: said for number, said in report.items() if number not in marked}
    assert not others


def test_the_package_declares_its_types() -> None:
    assert (Path(penstock.__file__).parent / "py.typed").exists()
