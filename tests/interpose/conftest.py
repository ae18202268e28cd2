"""Fixtures of the interposer's tests: a stage with the usual rules, and the C programs, compiled once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interpose.stage import Stage, staged

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "root") as one:
        yield one


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Compiles programs/NAME.c when first asked for; the path of the program."""
    folder = tmp_path_factory.mktemp("programs")
    compiler = shutil.which("cc")

    def compiled(name: str, *options: str) -> str:
        if compiler is None:
            pytest.skip("no C compiler (cc) here: the programs of these tests cannot be built")
        source = PROGRAMS / (name if "." in name else f"{name}.c")
        words = [name, *(option.strip("-").replace("/", "_").replace("=", "_") for option in options)]
        target = folder / "-".join(words)
        if not target.exists():
            subprocess.run(
                [compiler, "-O1", "-g", "-D_GNU_SOURCE", str(source), "-o", str(target), "-ldl", "-pthread", *options],
                check=True,
            )
        return str(target)

    return compiled
