"""Programs that neither take the library nor can be supervised: named once, held until their turn, refused if so."""

from __future__ import annotations

import glob
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interpose.stage import Puppet, Stage, aged, staged

from penstock.streaming.native import interposer_path
from penstock.streaming.table_records import AppState, Flag, Note, Unseen, UnseenAre, Violation, WaitKind

COPIES = """
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char text[64];
    int in = open(argv[1], O_RDONLY);
    long got = in < 0 ? 0 : read(in, text, sizeof text);
    return write(open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0644), text, got) != got;
}
"""
HERE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """With a library that has no supervisor beside it."""
    library = shutil.copy(interposer_path(), tmp_path)
    with staged(tmp_path / "root", library=library) as one:
        yield one


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static program that copies a file."""
    folder = tmp_path_factory.mktemp("static")
    (folder / "copies.c").write_text(COPIES)
    compiler = shutil.which("cc")
    built = compiler and subprocess.run(
        [compiler, "-static", "copies.c", "-o", "copies"], cwd=folder, capture_output=True, check=False
    )
    if not built or built.returncode:
        pytest.skip("no static libc here: static programs that steps start are NOT tested")
    return folder / "copies"


def unseen(stage: Stage) -> list[tuple[str, int]]:
    """Which programs were noted, and why."""
    records = [record for record in stage.table.drain() if record.kind is Note.VIOLATION]
    assert all(record.a == Violation.UNSEEN_PROGRAM for record in records)
    found = [(stage.table.info(record.slot), record.b) for record in records]
    return [(info.name, reason) for info, reason in found if info]


def starter(stage: Stage, app: str) -> Puppet:
    puppet = stage.puppet(app)
    puppet("!import subprocess")
    return puppet


@pytest.mark.parametrize("way", ["first_run", "second_run"])
def test_a_static_reader_begins_when_the_steps_before_it_are_over(stage: Stage, copies: Path, way: str) -> None:
    if way == "second_run":
        (stage.root / "out").write_text("old")
        aged(stage.root / "out")
    maker, taker = stage.puppet("maker"), starter(stage, "taker")
    taker.send(f"subprocess.call(['sh', '-c', '{copies} out copy; exit $?'])")
    stage.await_wait_for(str(copies), WaitKind.TURN)
    assert not (stage.root / "copy").exists()
    maker("!with open('out', 'w') as file: file.write('new')")
    maker.end()
    stage.over("maker")
    assert taker.answer() == 0
    assert (stage.root / "copy").read_text() == "new"


@pytest.mark.parametrize(
    "start",
    [
        "os.waitpid(os.posix_spawn(copies, ['c', '/dev/null', 'x'], {}), 0) and None",
        "os.waitpid(os.posix_spawnp('copies', ['c', '/dev/null', 'x'], {}), 0) and None",
        "os.waitpid(os.fork() or os.execv(copies, ['c', '/dev/null', 'x']), 0) and None",
        "os.waitpid(os.fork() or os.execve(os.open(copies, 0), ['c', '/dev/null', 'x'], {}), 0) and None",
        "subprocess.call([copies, '/dev/null', 'x'])",
        "subprocess.call(['copies', '/dev/null', 'x'])",
        "subprocess.call('copies /dev/null x; copies /dev/null x', shell=True)",
        "os.system(copies + ' /dev/null x')",
        "subprocess.call(['env', 'copies', '/dev/null', 'x'])",
        "subprocess.call(['./script', '/dev/null', 'x'])",
    ],
)
def test_whoever_starts_it_it_is_named_once(
    stage: Stage, copies: Path, start: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (stage.root / "script").write_text(f"#!{copies}\n")
    (stage.root / "script").chmod(0o755)
    maker = starter(stage, "maker")
    maker(f"!copies = {str(copies)!r}\nos.environ['PATH'] = {str(copies.parent)!r} + ':' + os.environ['PATH']")
    stage.table.drain()
    maker(start)
    maker(start)
    assert unseen(stage) == [(str(copies), Unseen.STATIC)]
    told = capfd.readouterr().err
    assert told.count(f"penstock: {copies}, started by maker, is linked statically") == 1


def test_where_a_server_tells_the_library_says_nothing(
    stage: Stage, copies: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.table.set_unseen(UnseenAre.TOLD)
    maker = starter(stage, "maker")
    stage.table.drain()
    assert maker(f"subprocess.call([{str(copies)!r}, '/dev/null', 'x'])") == 0
    assert unseen(stage) == [(str(copies), Unseen.STATIC)]
    assert capfd.readouterr().err == ""


def test_refused_it_is_noted_and_not_started(stage: Stage, copies: Path) -> None:
    stage.table.set_unseen(UnseenAre.REFUSED)
    maker = starter(stage, "maker")
    stage.table.drain()
    for start in (
        f"subprocess.call([{str(copies)!r}, '/dev/null', 'x'])",
        f"os.posix_spawn({str(copies)!r}, ['c'], {{}})",
    ):
        with pytest.raises(PermissionError):
            maker(start)
    assert maker(f"subprocess.call('{copies} /dev/null x', shell=True, stderr=-3)") == 126
    assert not (stage.root / "x").exists()
    assert unseen(stage) == [(str(copies), Unseen.STATIC)]


def test_it_is_not_started_when_a_step_before_it_failed(stage: Stage, copies: Path) -> None:
    taker = starter(stage, "taker")
    taker.send(f"subprocess.call([{str(copies)!r}, '/dev/null', 'x'])")
    stage.await_wait_for(str(copies), WaitKind.TURN)
    stage.over("maker", AppState.FAILED, "ended with status 1")
    with pytest.raises(OSError, match="Input/output error"):
        taker.answer()


def test_what_it_makes_is_there_for_others(stage: Stage, copies: Path) -> None:
    (stage.root / "source").write_text("bytes")
    maker, taker = starter(stage, "maker"), stage.puppet("taker")
    taker.blocks("open('out.static').read()", WaitKind.BORN)
    assert maker(f"subprocess.call([{str(copies)!r}, 'source', 'out.static'])") == 0
    stage.await_flag("out.static", Flag.BORN)
    maker.end()
    stage.over("maker")
    assert taker.answer() == "bytes"


def elf(machine: int = HERE, *, bits: int = 2, segments: tuple[tuple[int, bytes], ...] = ()) -> bytes:
    """The head of a program: enough to be judged by."""
    at, table, content = 64 + 56 * len(segments), b"", b""
    for kind, data in segments:
        table += struct.pack("<IIQQQQQQ", kind, 4, at + len(content), 0, 0, len(data), len(data), 4)
        content += data
    head = b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    return head + table + content


LOADER = (3, b"/lib64/ld-linux-x86-64.so.2\0")
NOTE = struct.pack("<III", 4, 4, 3) + b"GNU\0" + bytes(4)
GO = struct.pack("<III", 4, 4, 4) + b"Go\0\0" + b"id\0\0"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (elf(), Unseen.STATIC),
        (elf(segments=((4, NOTE + GO), LOADER)), Unseen.GO),
        (elf(segments=((4, GO),)), Unseen.GO),
        (elf(segments=((3, b"/lib/ld-musl-x86_64.so.1\0"),)), Unseen.MUSL),
        (elf(40, segments=(LOADER,)), Unseen.OTHER_MACHINE),
        (elf(bits=1, segments=(LOADER,)), Unseen.OTHER_MACHINE),
        (elf(segments=((4, NOTE), LOADER)), None),
        (b"\x7fELF\x02\x01", None),
        (b"no program at all", None),
    ],
)
def test_why_the_library_cannot_get_in(stage: Stage, content: bytes, reason: Unseen | None) -> None:
    program = stage.root / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    maker = starter(stage, "maker")
    stage.table.drain()
    maker("subprocess.call(['sh', '-c', './program'], stderr=-3) and None")
    assert unseen(stage) == ([(str(program), reason)] if reason else [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away: setuid programs are NOT tested")
@pytest.mark.parametrize(("mode", "reason"), [(0o4755, Unseen.PRIVILEGED), (0o755, None)])
def test_a_program_with_more_rights(stage: Stage, mode: int, reason: Unseen | None) -> None:
    program = stage.root / "program"
    shutil.copy(shutil.which("true") or "", program)
    os.chown(program, 12345, -1)
    program.chmod(mode)
    maker = starter(stage, "maker")
    stage.table.drain()
    assert maker("subprocess.call(['./program'])") == 0
    assert unseen(stage) == ([(str(program), reason)] if reason else [])


def test_programs_that_only_look_static(stage: Stage) -> None:
    """The loader takes the library along; ldconfig, which Python asks for libraries, reads nothing of a workflow."""
    maker = starter(stage, "maker")
    stage.table.drain()
    loaders = glob.glob("/lib64/ld-linux-*.so.*") + glob.glob("/lib/ld-linux-*.so.*")
    for loader in loaders:
        assert maker(f"subprocess.call([{loader!r}, {shutil.which('true')!r}])") == 0
    if os.path.exists("/sbin/ldconfig"):
        assert maker("subprocess.call(['/sbin/ldconfig', '-p'], stdout=-3)") == 0
    assert unseen(stage) == []
