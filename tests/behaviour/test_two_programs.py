"""Two programs that write the same file: the second is told, as long as the first lives, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.own_place import user_environment

import penstock

PROGRAM = """
import sys
from pathlib import Path
from penstock import DIRECTORY_OUT, FILE_OUT, CallError, barrier, delete_file, open_file, start, stop, task

@task(paths=FILE_OUT)
def write_all(paths):
    for path in paths:
        Path(path).write_text("x")

def write(names):
    write_all(names.split(","))

@task(path=DIRECTORY_OUT)
def fill(path):
    Path(path, "x").write_text("x")

def by_itself(path):
    with open_file(path, "a") as file:
        file.write("x")

ways = {"/": fill, "+": by_itself, "-": delete_file}

start(**eval(sys.argv[1]))
for name in sys.stdin:
    name = name.strip()
    if name == "stop":
        stop()
        print("stopped", flush=True)
        continue
    try:
        ways.get(name[-1], write)(name.rstrip("/+-"))
        barrier()
        print("written", flush=True)
    except CallError as error:
        print(error, flush=True)
"""

MODES = pytest.mark.parametrize("settings", ["dict(cpus=1)", "dict(mode='inline')"])


class Program:
    """A program that writes the files that it is told, one by one.

    ``a,b`` are several in one call, and ``a/`` is a directory; ``a+`` the program writes itself, and ``a-`` it deletes.
    """

    def __init__(self, folder: Path, settings: str) -> None:
        script = folder / "program.py"
        script.write_text(PROGRAM)
        environment = {**user_environment(), "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
        self.process = subprocess.Popen(
            [sys.executable, str(script), settings],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def write(self, name: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.process.communicate(timeout=60)  # it ends when there is nothing more to read
        finally:
            self.process.kill()


@MODES
def test_the_second_program_is_told_while_the_first_lives(tmp_path: Path, settings: str) -> None:
    with Program(tmp_path, settings) as first, Program(tmp_path, settings) as second:
        assert first.write("a") == "written"
        assert second.write("b") == "written"
        told = second.write("a")
        assert (
            f"element [0] of argument 'paths' of task write_all names {tmp_path}/a, which another program, process"
            in told
        )
        assert f"process {first.process.pid}, is writing too" in told
        assert "PENSTOCK_FILE_LOCKS=false" in told
        assert first.write("a") == "written"
        assert "another program" in first.write("b")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        assert second.write("a") == "written"


@MODES
def test_a_directory_is_written_with_all_that_is_in_it(tmp_path: Path, settings: str) -> None:
    (tmp_path / "b/c").mkdir(parents=True)
    with Program(tmp_path, settings) as first, Program(tmp_path, settings) as second:
        assert first.write("a/") == "written"
        assert "another program" in second.write("a/")
        assert "another program" in second.write("a/x")
        assert first.write("a/x") == "written"
        assert first.write("b/c/x") == "written"
        assert "another program" in second.write("b/")
        assert "another program" in second.write("b/c/")
        assert second.write("b/c/y") == "written"
        assert first.write("stop") == "stopped"
        assert second.write("a/") == "written"
        assert second.write("b/") == "written"


def test_the_program_itself_writes_and_deletes_like_a_task(tmp_path: Path) -> None:
    settings = "dict(mode='inline')"
    with Program(tmp_path, settings) as first, Program(tmp_path, settings) as second:
        assert first.write("a+") == "written"
        assert "another program" in second.write("a")
        assert "open_file() names" in second.write("a+")
        assert "delete_file() names" in second.write("a-")
        assert first.write("a-") == "written"


def test_a_refused_program_does_not_hold_the_file(tmp_path: Path) -> None:
    settings = "dict(mode='inline')"
    with Program(tmp_path, settings) as first, Program(tmp_path, settings) as second:
        assert first.write("a") == "written"
        assert "another program" in second.write("a")
        assert first.write("stop") == "stopped"
        with Program(tmp_path, settings) as third:
            assert third.write("a") == "written"


def test_a_refused_call_holds_none_of_its_files(tmp_path: Path) -> None:
    settings = "dict(mode='inline')"
    with Program(tmp_path, settings) as first, Program(tmp_path, settings) as second:
        assert first.write("b") == "written"
        assert f"element [1] of argument 'paths' of task write_all names {tmp_path}/b" in second.write("a,b,c")
        assert first.write("a,b,c") == "written"


def test_it_can_be_allowed(tmp_path: Path) -> None:
    with Program(tmp_path, "dict(mode='inline')") as first:
        assert first.write("a") == "written"
        with Program(tmp_path, "dict(mode='inline', file_locks=False)") as second:
            assert second.write("a") == "written"


def test_several_runs_of_one_program_may_write_one_file(tmp_path: Path) -> None:
    @penstock.task(path=penstock.FILE_OUT)
    def write(path: Path) -> None:
        path.write_text("x")

    with penstock.Runtime(mode="inline"):
        write(tmp_path / "a")
        with penstock.Runtime(mode="inline"):
            write(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]
