"""Limits of the system are named, with where to change them, wherever one of them ends what Penstock was doing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.own_place import user_environment

import penstock

SOURCE = str(Path(penstock.__file__).parents[1])

PROGRAM = """
import resource, sys
import numpy as np
from penstock import INOUT, Runtime, program, task

def limit(kind, number):
    resource.setrlimit(kind, (number, number))

@task
def make():
    return np.ones(1_000_000)

@task
def take(array):
    return array.size

@task(array=INOUT)
def change(array):
    array += 1

@task
def hold():
    return [open("/dev/null") for _ in range(200)] and None

@program("head -c 1000000 /dev/zero > {out}")
def write(out): ...
"""

CASES = {
    "descriptors at the start": (
        "limit(resource.RLIMIT_NOFILE, 20)\nwith Runtime(cpus=2): pass\n",
        ["Too many open files", "ulimit -n", "20"],
    ),
    "descriptors in a task": (
        "limit(resource.RLIMIT_NOFILE, 100)\nwith Runtime(cpus=1): hold().result()\n",
        ["Too many open files", "ulimit -n", "100"],
    ),
    "file sizes in a task": (
        "limit(resource.RLIMIT_FSIZE, 100_000)\nwith Runtime(cpus=1): make().result()\n",
        ["File too large", "ulimit -f", "100000"],
    ),
    "file sizes in the program": (
        "with Runtime(cpus=1):\n    limit(resource.RLIMIT_FSIZE, 100_000)\n    take(np.ones(1_000_000)).result()\n",
        ["File too large", "ulimit -f", "100000"],
    ),
    "file sizes of memory that tasks share": (
        "with Runtime(cpus=1):\n    limit(resource.RLIMIT_FSIZE, 100_000)\n    change(np.ones(1_000_000)[1:])\n",
        ["cannot share 8000000 bytes", "ulimit -f", "100000"],
    ),
    "file sizes of programs": (
        "limit(resource.RLIMIT_FSIZE, 100_000)\nwith Runtime(cpus=1): write(sys.argv[1]).result()\n",
        ["ulimit -f"],
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", CASES)
def test_a_limit_is_named(case: str, tmp_path: Path) -> None:
    text, expected = CASES[case]
    app = tmp_path / "app.py"
    app.write_text(PROGRAM + text)
    done = subprocess.run(
        [sys.executable, str(app), str(tmp_path / "out")],
        cwd=tmp_path,
        env=user_environment() | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    for words in expected:
        assert words in done.stderr, done.stderr
