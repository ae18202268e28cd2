"""Names of files and texts that are not UTF-8: Python has surrogates in them, which most formats refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import DIRECTORY_OUT, FILE_IN, FILE_INOUT, FILE_OUT, barrier, constraint, io, task

pytestmark = pytest.mark.usefixtures("runtime")

ODD = os.fsdecode(b"caf\xe9")


@task(path=FILE_OUT)
def write(path: str, text: str) -> None:
    Path(path).write_text(text)


@task(path=FILE_INOUT)
def append(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


@task(path=FILE_IN)
def read(path: str) -> str:
    return Path(path).read_text()


@constraint(storage_bw=1, storage_size="1kB")
@io
@task(path=FILE_OUT)
def place(path: str, text: str) -> None:
    Path(path).write_text(text)


@task(folder=DIRECTORY_OUT)
def fill(folder: str, name: str) -> None:
    Path(folder, name).write_text("inside")


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task
def leave(text: str) -> None:
    sys.exit(text)


@task
def refuse(argument: Any) -> None:
    raise ValueError("not this")


class Odd:
    def __repr__(self) -> str:
        return f"<{ODD}>"


def test_files_of_tasks(tmp_path: Path) -> None:
    path = str(tmp_path / ODD)
    write(path, "one")
    first = read(path)
    append(path, " two")
    assert (first.result(), read(path).result()) == ("one", "one two")
    place(path + "-io", "three")
    fill(path + "-folder", ODD)
    barrier()
    assert sorted(os.listdir(os.fsencode(tmp_path))) == [b"caf\xe9", b"caf\xe9-folder", b"caf\xe9-io"]
    assert read(os.path.join(path + "-folder", ODD)).result() == "inside"


def test_failures_keep_their_text() -> None:
    with pytest.raises(ValueError, match=ODD) as raised:
        fail(ODD).result()
    assert ODD in str(raised.value.__cause__)
    with pytest.raises(penstock.TaskFailed, match="udce9"):
        leave(ODD).result()
    failure = refuse(Odd()).exception()
    assert failure is not None and f"<{ODD}>" in str(failure.__cause__)


def test_programs_in_such_a_place(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    (folder / "tmp").mkdir(parents=True)
    (folder / f"{ODD}.py").write_text(
        "from penstock import FILE_OUT, task\n"
        "@task(path=FILE_OUT)\n"
        "def write(path):\n"
        "    open(path, 'w').close()\n"
        "write('out').result()\n"
    )
    environ = {**os.environ, "TMPDIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder)}
    command = [sys.executable, f"{ODD}.py"]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (folder / "out").exists()
    assert os.listdir(folder / "tmp") == []
