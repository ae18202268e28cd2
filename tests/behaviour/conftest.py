"""Every behaviour is tested with worker processes and inline; both must give the same results and errors.

Where neither objects nor files are updated it is also tested on the simulator, where the values of calls are declared:
each task says in advance what its function would return (``simulation.py``).

One runtime serves a module in each mode. Each test ends at a barrier, so that a failure nobody looked at is blamed on
the test that caused it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import MODES, NOT_SIMULATED, SIMULATED, Gate
from tests.own_place import user_environment

import penstock
from penstock.errors import SimulatedValueError

SOURCE = Path(penstock.__file__).parents[1]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test in each mode, unless it says in which."""
    said = [mark for mark in metafunc.definition.iter_markers("parametrize") if "mode" in str(mark.args[0]).split(",")]
    if "mode" in metafunc.fixturenames and not said:
        modes = [mode for mode in MODES if mode != "simulated" or _is_for_the_simulator(metafunc)]
        metafunc.parametrize("mode", modes, indirect=True, scope="module")


def _is_for_the_simulator(metafunc: pytest.Metafunc) -> bool:
    return metafunc.module.__name__.split(".")[-1] in SIMULATED and metafunc.function.__name__ not in NOT_SIMULATED


@pytest.fixture(scope="module")
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """How the tasks of a test run: ``workers``, ``inline`` or ``simulated``."""
    if request.param == "simulated":
        from tests.behaviour.simulation import simulation_of_bodies  # here: workers that import this need no simulator

        with simulation_of_bodies():
            yield "simulated"
    else:
        yield str(request.param)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """A test of each mode that needs a value which no task declares is no test for the simulator."""
    try:
        return (yield)
    except SimulatedValueError as error:
        if getattr(pyfuncitem, "callspec", None) is None or pyfuncitem.callspec.params.get("mode") != "simulated":
            raise
        pytest.skip(str(error))


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
        self.environ = user_environment()
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
