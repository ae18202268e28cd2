"""Which programs can be streamed, and what is said of those that cannot."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.streaming import programs
from penstock.streaming.programs import examine, examine_command, programs_of


def test_an_ordinary_program_can_be_streamed() -> None:
    assert examine("cat").ok
    assert examine(sys.executable).ok


def test_a_script_is_judged_by_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "inner"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    outer = tmp_path / "outer"
    outer.write_text(f"#!{script} -x\n")
    outer.chmod(0o755)
    verdict = examine(str(outer))
    assert verdict.ok and verdict.path == "/bin/sh"
    assert verdict.way == f"{outer} → {script} → /bin/sh"


def test_env_in_a_script_finds_the_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env -S LANG=C sh -e\n")
    script.chmod(0o755)
    assert os.path.basename(examine(str(script)).path) == "sh"


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert "#!/no/such/interpreter" in examine(str(script)).reason


def test_a_missing_program(tmp_path: Path) -> None:
    assert "there is no program" in examine("penstock-no-such-program").reason


@pytest.fixture(scope="module")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    built = subprocess.run(["gcc", "-static", "-o", "main", "main.c"], cwd=folder, capture_output=True, check=False)
    if built.returncode:
        pytest.skip("no static libc")
    return folder / "main"


def test_a_static_program_is_refused_with_the_reason_unless_it_is_supervised(
    static_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for why in ("the kernel is too old", ""):
        monkeypatch.setattr(programs, "why_not_supervised", lambda why=why: why)
        verdict = examine(str(static_program))
        assert verdict.ok == (not why)
        assert "linked statically" in (verdict.reason if why else verdict.supervised)
        assert verdict.reason.endswith(why)


def elf(machine: int, *, interpreter: str = "", note: bytes = b"", bits: int = 2) -> bytes:
    """The head of a program as a linker would write it: header, segments, and what they point to."""
    content = interpreter.encode() + b"\0" if interpreter else b""
    segments = []
    start = 64 + 56 * (bool(interpreter) + bool(note))
    if interpreter:
        segments.append(struct.pack("<IIQQQQQQ", 3, 4, start, 0, 0, len(content), len(content), 1))
    if note:
        segments.append(struct.pack("<IIQQQQQQ", 4, 4, start + len(content), 0, 0, len(note), len(note), 4))
    head = b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    return head + b"".join(segments) + content + note


GO_NOTE = struct.pack("<III", 4, 4, 4) + b"Go\0\0" + b"id\0\0"
GNU_NOTE = struct.pack("<III", 4, 16, 1) + b"GNU\0" + bytes(16)
HERE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (elf(HERE, interpreter="/lib64/ld-linux.so.2"), ""),
        (elf(HERE, interpreter="/lib64/ld-linux.so.2", note=GNU_NOTE), ""),
        (elf(HERE), "statically"),
        (elf(40 if HERE != 40 else 62, interpreter="/lib/ld.so"), "built for arm"),
        (elf(HERE, interpreter="/lib/ld.so", bits=1), "32-bit"),
        (elf(HERE, note=GO_NOTE), "Go program"),
        (elf(HERE, interpreter="/lib64/ld-linux.so.2", note=GNU_NOTE + GO_NOTE), "Go program"),
        (elf(HERE, interpreter="/lib/ld-musl-x86_64.so.1"), "musl"),
        (b"\x7fELF\x02\x01", "cut off"),
        (b"MZ\0\0", "neither a script nor"),
        (b"echo a script without a first line\n", ""),
    ],
)
def test_what_the_file_of_a_program_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    monkeypatch.setattr(programs, "why_not_supervised", lambda: "it is a test")
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    reason = examine(str(program)).reason
    assert (words in reason) if words else reason == ""


def test_a_setuid_program_of_somebody_else_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(shutil.which("cat") or "", program)
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(program, 12345, -1)
    program.chmod(0o4755)
    assert "setuid" in examine(str(program)).reason


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("python plot.py out/", ["python"]),
        ("./a < in | b > out && c 2>&1; d", ["./a", "b", "c", "d"]),
        ("X=1 Y=2 prog arg=3", ["prog"]),
        ("for i in 1 2; do work $i; done", ["work"]),
        ("if test -f x; then (inner; other); fi", ["inner", "other"]),
        ("cd sub && ./run 'a;b' \"c|d\"", ["./run"]),
        ("$PROGRAM x; `which y`", []),
        ("one\ntwo # three\n", ["one", "two"]),
        ("echo 'never closed", []),
        (["./prog", "a;b"], ["./prog"]),
    ],
)
def test_the_programs_that_a_command_names(command: str | list[str], programs: list[str]) -> None:
    assert programs_of(command) == programs


def test_a_command_is_judged_in_its_own_folder_with_its_own_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "tool"
    program.write_bytes(elf(HERE))
    program.chmod(0o755)
    for name, path in (("tool", "bin"), ("./bin/tool", "/nowhere")):
        (verdict,) = examine_command(name, {"PATH": path}, str(tmp_path))
        assert "statically" in verdict.reason + verdict.supervised


@pytest.mark.parametrize(
    ("name", "reason"), [("data.csv", "may not be executed"), (".", "directory"), ("no", "there is no program")]
)
def test_what_is_no_program_is_told_so(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "data.csv").write_text("a,b\n")
    verdict = examine(f"./{name}", "", str(tmp_path))
    assert not verdict.ok and reason in verdict.reason
