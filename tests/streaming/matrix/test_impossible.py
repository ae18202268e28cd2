"""What cannot be streamed is refused before anything runs, by name and with the reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@needs_gcc
def test_a_static_program_is_refused_before_it_runs(tmp_path: Path) -> None:
    static_program(tmp_path)
    (tmp_path / "workflow.toml").write_text("""
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
""")
    done = penstock(tmp_path, "stream", "run", "workflow.toml")
    assert done.returncode != 0
    assert "hello" in said(done) and "static" in said(done)
    assert not (tmp_path / "data").exists()


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
    assert done.returncode != 0
    assert "statically" in said(done)


def test_doctor_finds_nothing_against_a_shell(tmp_path: Path) -> None:
    done = penstock(tmp_path, "doctor", "bash")
    assert done.returncode == 0
    assert "bash" in said(done)
