"""Every behaviour is tested twice: with worker processes and inline; both must give the same results and errors.

One runtime serves a module in each mode. Each test ends at a barrier, so that a failure nobody looked at is blamed on
the test that caused it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.behaviour.modes import MODES, Gate

import penstock

SOURCE = Path(penstock.__file__).parents[1]


@pytest.fixture(scope="module", params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    """How the tasks of a test run: ``workers`` or ``inline``."""
    return str(request.param)


@pytest.fixture(scope="module")
def _runtime_of_the_module(mode: str) -> Iterator[penstock.Runtime]:
    with penstock.Runtime(**MODES[mode]) as runtime:
        yield runtime


@pytest.fixture
def runtime(_runtime_of_the_module: penstock.Runtime) -> Iterator[penstock.Runtime]:
    """The current runtime of a test."""
    yield _runtime_of_the_module
    penstock.barrier()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.release_everybody()


@pytest.fixture
def second_gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "second_gate")
    yield gate
    gate.release_everybody()


class Script:
    """Runs a program in a process of its own, as a user does, with no settings but those given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self.environ["PYTHONPATH"] = str(SOURCE)
        self.environ["TERM"] = "dumb"

    def __call__(self, text: str, *arguments: str, status: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        program = self.folder / "app.py"
        program.write_text(text)
        done = subprocess.run(
            [sys.executable, str(program), *arguments],
            cwd=self.folder,
            env=self.environ | environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder, made the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
