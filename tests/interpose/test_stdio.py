"""stdio: streams over managed files wait and publish; a line that is there is delivered; redirections are seen."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"


def test_a_line_that_is_there_is_not_held_back_by_the_buffer(stage: Stage, program: Callable[..., str]) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    reader = stage.start("taker", [program("lines"), "out"], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    for turn in range(5):
        maker(f"os.write({out}, b'line {turn}\\n')")
        assert reader.stdout.readline() == b"line %d\n" % turn  # 7 bytes, long before the buffer of stdio is full
    maker(f"os.close({out})")
    assert reader.stdout.readline() == b"end of file\n"
    assert reader.wait(60) == 0


def test_lines_from_redirected_stdin(stage: Stage, program: Callable[..., str]) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    reader = stage.start("taker", f"{program('lines')} < out", stdout=subprocess.PIPE)
    assert reader.stdout is not None
    maker(f"os.write({out}, b'first\\n')")
    assert reader.stdout.readline() == b"first\n"
    maker(f"os.write({out}, b'second\\n')")
    assert reader.stdout.readline() == b"second\n"
    maker(f"os.close({out})")
    assert reader.stdout.readline() == b"end of file\n"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_program_redirected_by_a_shell_publishes_and_commits(
    stage: Stage, program: Callable[..., str], shell: str
) -> None:
    stage.run("maker", [shell, "-c", f"{program('prints')} > out"])
    assert stage.has("out", Flag.COMMITTED)
    assert stage.info("out").solid == len("line 0\n") * 10
    assert (stage.root / "out").read_text() == "".join(f"line {i}\n" for i in range(10))


def test_a_redirected_program_streams_while_it_runs(stage: Stage, program: Callable[..., str]) -> None:
    taker = stage.puppet("taker")
    process = stage.start("maker", f"{program('prints')} slowly > out", stdin=subprocess.PIPE)
    assert process.stdin is not None
    fd = taker("os.open('out', os.O_RDONLY)")
    for turn in range(10):
        taker.blocks(f"os.read({fd}, 7)", WaitKind.RANGE)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert taker.answer() == b"line %d\n" % turn
    taker.blocks(f"os.read({fd}, 7)", WaitKind.RANGE)
    process.stdin.close()
    assert taker.answer() == b""
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    "command",
    [
        "echo by a builtin > out; echo more >> out",
        "{ echo by a builtin; echo more; } > out",
        "( echo by a builtin; cat ) > out <<< more",
        "exec > out; echo by a builtin; echo more",
        "printf '%s\\n' 'by a builtin' more | cat > out",
        "printf '%s\\n' 'by a builtin' more | tee out > /dev/null",
        "exec 7> out; echo by a builtin >&7; echo more >&7; exec 7>&-",
        "echo by a builtin > tmp; echo more >> tmp; mv tmp out",
        "echo by a builtin > out; ( echo more ) >> out 2>&1",
    ],
)
def test_shell_redirections(stage: Stage, command: str) -> None:
    stage.run("maker", ["bash", "-c", command])
    stage.over("maker")
    assert (stage.root / "out").read_text() == "by a builtin\nmore\n"
    assert stage.has("out", Flag.COMMITTED)
    assert stage.run("taker", "cat out") == "by a builtin\nmore\n"


def test_fopen_publishes_at_each_flush(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker("!f = ctypes.c_void_p(libc.fopen(b'out', b'w'))")
    maker("libc.fputs(b'buffered', f)")
    assert stage.info("out").solid == 0
    maker("libc.fflush(f)")
    assert stage.info("out").solid == 8
    assert maker("libc.fileno(f) > 2 and libc.fileno_unlocked(f) == libc.fileno(f)")
    maker("libc.fclose(f)")
    assert stage.has("out", Flag.COMMITTED)


def test_streams_left_open_are_flushed_and_closed_at_exit(stage: Stage, program: Callable[..., str]) -> None:
    stage.run("maker", [program("leaves_open"), "out"])
    assert (stage.root / "out").read_text() == "flushed at exit\n"
    assert stage.has("out", Flag.COMMITTED)
    assert stage.info("out").solid == 16


def test_the_end_of_the_file_waits_for_the_commit(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    taker("!f = ctypes.c_void_p(libc.fopen(b'out', b'r'))")
    taker.blocks("libc.fgetc(f)", WaitKind.RANGE)
    maker(f"os.close({out})")
    assert taker.answer() == -1
    assert taker("libc.feof(f) != 0 and libc.ferror(f) == 0")


def test_freopen_of_stdout(stage: Stage, program: Callable[..., str]) -> None:
    stage.run("maker", [program("stdio")])
    assert (stage.root / "out.std").read_text() == "to stdout, a file now\nand again\n"
    assert stage.has("out.std", Flag.COMMITTED)
    assert stage.info("out.std").solid == len("to stdout, a file now\nand again\n")


def test_freopen_for_reading_waits(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker("!f = ctypes.c_void_p(libc.fopen(b'/dev/null', b'r'))")
    taker.blocks("libc.freopen(b'out', b'r', f) == f.value", WaitKind.BORN)
    out = maker(f"os.open('out', {MAKE})")
    maker(f"os.write({out}, b'A') and os.close({out})")
    assert taker.answer() is True
    assert taker("libc.fgetc(f)") == ord("A")


def test_errors_of_a_redirected_stderr(stage: Stage) -> None:
    stage.run("maker", "ls /no/such/place 2> out.err || true")
    assert "No such file" in (stage.root / "out.err").read_text()
    assert stage.has("out.err", Flag.COMMITTED)


def test_cxx_streams(stage: Stage, program: Callable[..., str]) -> None:
    cxx = program("streams.cc", "-lstdc++")
    stage.run("maker", f"{cxx} write out > out.cout")
    assert (stage.root / "out").read_text() == "by fstream\n"
    assert (stage.root / "out.cout").read_text() == "by cout\n"
    assert stage.has("out", Flag.COMMITTED) and stage.has("out.cout", Flag.COMMITTED)
    assert stage.run("taker", [cxx, "read", "out"]) == "by fstream\n"
    assert stage.run("taker", f"{cxx} read < out.cout") == "by cout\n"


def test_shell_builtins_after_a_redirection_stream(stage: Stage) -> None:
    taker = stage.puppet("taker")
    shell = stage.start(
        "maker", ["bash", "-c", "exec > out; echo first; read; echo second; read"], stdin=subprocess.PIPE
    )
    assert shell.stdin is not None
    fd = taker("os.open('out', os.O_RDONLY)")
    assert taker(f"os.read({fd}, 6)") == b"first\n"
    taker.blocks(f"os.read({fd}, 7)", WaitKind.RANGE)
    shell.stdin.write(b"\n")
    shell.stdin.flush()
    assert taker.answer() == b"second\n"
    assert not stage.has("out", Flag.COMMITTED)
    shell.stdin.close()
    stage.await_flag("out", Flag.COMMITTED)
