"""The first program of the documentation: it reads as if it ran in order, and ends as if it had."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import only_workers

from penstock import FILE_OUT, INOUT, constraint, open_file, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")

TEXT = "a penstock is a gated pipe that feeds a turbine it decides how much flows and when " * 20


@task(returns=1)
def count(block: list[str]) -> Counter[str]:
    return Counter(block)


@constraint(computing_units=2)
@task(total=INOUT)
def merge(total: Counter[str], part: Counter[str]) -> None:
    total.update(part)


@task(path=FILE_OUT)
def save(total: Counter[str], path: str) -> None:
    Path(path).write_text(json.dumps(total))


def blocks(size: int = 16) -> list[list[str]]:
    words = TEXT.split()
    return [words[i : i + size] for i in range(0, len(words), size)]


# Two computing units are more than a machine with one core has: inline, the machine is whatever the tests run on.
@only_workers
@pytest.mark.usefixtures("in_folder")
def test_the_first_program() -> None:
    total: Counter[str] = Counter()
    for block in blocks():
        merge(total, count(block))
    save(total, "result.json")
    assert wait_on(total) == Counter(TEXT.split())
    assert total == Counter(TEXT.split())
    with open_file("result.json") as file:
        assert json.load(file) == Counter(TEXT.split())


PROGRAM = """
import json, sys
from collections import Counter
from penstock import task, constraint, wait_on, INOUT, FILE_OUT

@task(returns=1)
def count(block):
    return Counter(block)

@constraint(computing_units=UNITS)
@task(total=INOUT)
def merge(total, part):
    total.update(part)

@task(path=FILE_OUT)
def save(total, path):
    with open(path, "w") as file:
        json.dump(total, file, sort_keys=True)

words = "to be or not to be that is the question".split()
total = Counter()
for start in range(0, len(words), 3):
    merge(total, count(words[start:start + 3]))
save(total, "result.json")
print(json.dumps(wait_on(total), sort_keys=True))
"""


@pytest.mark.parametrize("mode", ["inline"], indirect=True)  # it has a runtime of its own
@pytest.mark.parametrize(
    "environ", [{"PENSTOCK_CPUS": "2"}, {"PENSTOCK_MODE": "inline"}, {}], ids=["2", "inline", "none"]
)
def test_the_first_program_as_a_script_without_a_guard(script: Any, tmp_path: Path, environ: dict[str, str]) -> None:
    import os

    units = "2" if environ.get("PENSTOCK_CPUS") or (os.cpu_count() or 1) > 1 else "1"
    done = script(PROGRAM.replace("UNITS", units), **environ)
    expected = dict(Counter(["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"]))
    assert json.loads(done.stdout) == expected
    assert done.stderr == ""
    assert json.loads((tmp_path / "result.json").read_text()) == expected
    assert sorted(os.listdir(tmp_path)) == ["app.py", "result.json"]
