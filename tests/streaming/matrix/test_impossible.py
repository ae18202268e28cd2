"""What cannot be streamed is refused before anything runs, by name and with the reason; a static program can be."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.streaming.native import why_not_supervised

HELLO = '#include <stdio.h>\nint main(void) { FILE *f = fopen("data", "w"); fputs("x", f); return fclose(f); }\n'

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="PROGRAMS ARE NOT TESTED: there is no gcc")


def penstock(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """All that was printed, on one line: boxes and line ends depend on the width of the terminal."""
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


def static_program(folder: Path) -> Path:
    (folder / "hello.c").write_text(HELLO)
    made = subprocess.run(["gcc", "-static", "hello.c", "-o", "hello"], cwd=folder, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("STATIC PROGRAMS ARE NOT TESTED: gcc cannot link them here")
    return folder / "hello"


WORKFLOW = """
name = "static"
[[step]]
name = "write"
command = "./hello"
output = ["data"]
[[step]]
name = "read"
command = "cat data > copy"
input = ["data"]
output = ["copy"]
"""


def test_a_program_of_another_machine_is_refused_before_it_runs(tmp_path: Path) -> None:
    program = tmp_path / "hello"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 8, 1) + bytes(40))
    program.chmod(0o755)
    (tmp_path / "workflow.toml").write_text(WORKFLOW)
    done = penstock(tmp_path, "stream", "run", "workflow.toml")
    assert done.returncode != 0
    assert "hello" in said(done) and "it is built for mips" in said(done)
    assert not (tmp_path / "data").exists()
    done = penstock(tmp_path, "doctor", str(program))
    assert done.returncode != 0
    assert "it is built for mips" in said(done)


@needs_gcc
@pytest.mark.parametrize("words", [(), ("--strict",)])
def test_a_static_program_is_supervised_where_that_is_possible(tmp_path: Path, words: tuple[str, ...]) -> None:
    static_program(tmp_path)
    (tmp_path / "workflow.toml").write_text(WORKFLOW)
    done = penstock(tmp_path, "stream", "run", *words, "workflow.toml")
    if why_not_supervised():
        assert done.returncode != 0
        assert "hello" in said(done) and "static" in said(done) and "cannot be supervised" in said(done)
        assert not (tmp_path / "data").exists()
    else:
        assert done.returncode == 0, said(done)
        assert (tmp_path / "copy").read_text() == "x"


@needs_gcc
def test_one_after_the_other_a_static_program_is_no_problem(tmp_path: Path) -> None:
    static_program(tmp_path)
    (tmp_path / "workflow.toml").write_text('name = "static"\n[[step]]\nname = "write"\ncommand = "./hello"\n')
    assert penstock(tmp_path, "stream", "run", "--batch", "workflow.toml").returncode == 0
    assert (tmp_path / "data").read_text() == "x"


@needs_gcc
def test_doctor_says_why(tmp_path: Path) -> None:
    program = static_program(tmp_path)
    done = penstock(tmp_path, "doctor", str(program))
    assert done.returncode == bool(why_not_supervised())
    assert "statically" in said(done) and "supervised" in said(done)


def test_doctor_finds_nothing_against_a_shell(tmp_path: Path) -> None:
    done = penstock(tmp_path, "doctor", "bash")
    assert done.returncode == 0
    assert "bash" in said(done)
