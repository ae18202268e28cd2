"""Constraints that a settings file gives to tasks, in the place of those in the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.own_place import user_environment

from penstock.errors import ConfigError
from penstock.runtime.config import load_config

PROGRAM = """
import os
from penstock import constraint, task

@constraint(computing_units=1, memory_size="1MB")
@task
def solve():
    return os.environ["OMP_NUM_THREADS"]

print(solve().result())
"""


def run(folder: Path, settings: str, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "penstock.toml").write_text("[resources]\ncpus = 2\n" + settings)
    (folder / "app.py").write_text(PROGRAM)
    clean = user_environment()
    return subprocess.run(
        [sys.executable, "app.py"],
        cwd=folder,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_file_gives_a_task_its_constraints(tmp_path: Path) -> None:
    assert run(tmp_path, "").stdout == "1\n"
    assert run(tmp_path, "[constraints.solve]\ncomputing_units = 2\n").stdout == "2\n"
    assert run(tmp_path, '[constraints."__main__:solve"]\nComputingUnits = "2"\n').stdout == "2\n"


def test_values_may_come_from_the_environment(tmp_path: Path) -> None:
    settings = '[constraints.solve]\ncomputing_units = "$CORES"\n'
    assert run(tmp_path, settings, CORES="2").stdout == "2\n"
    assert "the environment has no CORES" in run(tmp_path, settings).stderr


def test_what_cannot_be_met_is_refused_at_the_call(tmp_path: Path) -> None:
    errors = run(tmp_path, "[constraints.solve]\ncomputing_units = 64\n").stderr
    assert "task solve requires computing_units=64" in errors


def test_a_name_that_looks_like_a_task_is_pointed_out(tmp_path: Path) -> None:
    done = run(tmp_path, "[constraints.slove]\ncomputing_units = 2\n")
    assert done.stdout == "1\n"
    assert "[constraints.slove]" in done.stderr
    assert "did you mean solve?" in done.stderr
    assert run(tmp_path, "[constraints.quite_another]\ncomputing_units = 2\n").stderr == ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[constraints.f]\ncomputing_unit = 2\n", "computing_units"),
        ("[constraints.f]\ncomputing_units = 0\n", "whole number"),
        ('[constraints.f]\nmemory_size = "much"\n', "[constraints.f] memory_size = 'much'"),
        ("[constraints]\nf = 3\n", "expected a table"),
        ("constraints = 3\n", "must be a table"),
    ],
)
def test_mistakes_are_found_when_the_file_is_read(tmp_path: Path, settings: str, message: str) -> None:
    (tmp_path / "penstock.toml").write_text(settings)
    with pytest.raises(ConfigError) as caught:
        load_config({}, {}, str(tmp_path))
    assert message in str(caught.value)
    assert str(tmp_path / "penstock.toml") in str(caught.value)
