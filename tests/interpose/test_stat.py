"""stat and its kin: sizes are final before a consumer sees them; existence waits for the birth."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interpose.stage import PATIENCE, RULES, Puppet, Stage, staged

from penstock.streaming.table_records import WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
BUFFER = "ctypes.create_string_buffer(512)"


@pytest.mark.parametrize(
    "expression",
    [
        "os.stat('out').st_size",
        "os.lstat('out').st_size",
        "os.path.getsize('out')",
        "os.stat('out', dir_fd=os.open('.', os.O_RDONLY)).st_size",
        f"call('stat64', b'out', {BUFFER})",
        f"call('lstat64', b'out', {BUFFER})",
        f"call('fstatat64', -100, b'out', {BUFFER}, 0)",
        f"call('__xstat', 1, b'out', {BUFFER})",
        f"call('__xstat64', 1, b'out', {BUFFER})",
        f"call('__lxstat', 1, b'out', {BUFFER})",
        f"call('__lxstat64', 1, b'out', {BUFFER})",
        f"call('__fxstatat', 1, -100, b'out', {BUFFER}, 0)",
        f"call('__fxstatat64', 1, -100, b'out', {BUFFER}, 0)",
        f"call('statx', -100, b'out', 0, 0x7ff, {BUFFER})",
        f"call('syscall', 332 if os.uname().machine == 'x86_64' else 291, -100, b'out', 0, 0x7ff, {BUFFER})",
    ],
)
def test_sizes_by_path_wait_for_the_commit(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    taker.blocks(expression, WaitKind.COMMITTED)
    maker(f"os.write({out}, b'12345')")
    maker(f"os.close({out})")
    assert taker.answer() == (5 if "os." in expression and "call" not in expression else 0)


@pytest.mark.parametrize(
    "expression",
    [
        "os.fstat({fd}).st_size",
        f"call('fstat64', {{fd}}, {BUFFER})",
        f"call('__fxstat', 1, {{fd}}, {BUFFER})",
        f"call('__fxstat64', 1, {{fd}}, {BUFFER})",
        f"call('fstatat', {{fd}}, b'', {BUFFER}, 0x1000)",
        f"call('statx', {{fd}}, b'', 0x1000, 0x200, {BUFFER})",
    ],
)
def test_sizes_by_descriptor_wait_for_the_commit(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker.blocks(expression.format(fd=fd), WaitKind.COMMITTED)
    maker(f"os.write({out}, b'12345')")
    maker(f"os.close({out})")
    assert taker.answer() == (5 if "st_size" in expression else 0)


@pytest.mark.parametrize(
    "expression",
    [
        "os.access('out', os.R_OK)",
        "os.access('out', os.R_OK, effective_ids=True)",
        "os.access('out', os.R_OK, dir_fd=os.open('.', os.O_RDONLY))",
        "call('eaccess', b'out', 4) == 0",
        "call('euidaccess', b'out', 4) == 0",
        f"call('statx', -100, b'out', 0, 1, {BUFFER}) == 0",  # only its kind
    ],
)
def test_existence_waits_for_the_birth(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks(expression, WaitKind.BORN)
    maker(f"os.open('out', {MAKE})")
    assert taker.answer() is True


@pytest.mark.parametrize(
    "expression",
    [
        "os.readlink('out.l')",
        "os.readlink('out.l', dir_fd=os.open('.', os.O_RDONLY))",
        "ctypes.string_at(ctypes.cast(libc.realpath, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, "
        "ctypes.c_void_p))(b'out.l', None)).decode().split('/')[-1]",
    ],
)
def test_links_wait_for_their_birth(stage: Stage, expression: str) -> None:
    (stage.root / "out.t").write_text("")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"os.close(os.open('out.t', {MAKE}))")
    taker.blocks(expression, WaitKind.BORN)
    maker("os.symlink('out.t', 'out.l')")
    assert taker.answer() == "out.t"


def test_a_directory_waits_for_its_birth_only(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("__import__('stat').S_ISDIR(os.stat('made').st_mode)", WaitKind.BORN)
    maker("os.mkdir('made')")
    assert taker.answer() is True


def test_a_directory_that_is_final_at_commit_is_seen_then(tmp_path: Path) -> None:
    """tar, for one, complains if the times of a directory change while it is read."""
    rules = RULES.replace(
        'directories = ["made"]\ncommit = "on_termination"\nfire = "no_update"',
        'directories = ["made"]\ncommit = "on_termination"\nfire = "update"',
    )
    assert rules != RULES
    with staged(tmp_path / "root", rules) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        maker("os.mkdir('made')")
        taker.blocks("os.stat('made').st_nlink", WaitKind.COMMITTED)
        maker("os.mkdir('made/sub')")
        maker.end()
        stage.over("maker")
        assert taker.answer() == 3


def test_a_directory_that_is_there_is_there(stage: Stage) -> None:
    taker = stage.puppet("taker")
    assert taker("os.path.isdir('.')") is True
    (stage.root / "made").mkdir()
    assert taker("os.path.isdir('made')") is True


def test_a_step_may_ask_for_sizes_so_far(tmp_path: Path) -> None:
    rules = RULES.replace('name = "taker"', 'name = "taker"\nsizes = "so_far"')
    with staged(tmp_path / "root", rules) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        taker.blocks("os.stat('late').st_size", WaitKind.BORN)
        out = maker(f"os.open('late', {MAKE})")
        assert taker.answer() == 0
        maker(f"os.write({out}, b'12345')")
        assert taker("os.stat('late').st_size") == 5
        assert taker("os.lseek(os.open('late', 0), 0, os.SEEK_END)") == 5
        assert taker("os.lseek(os.open('late', 0), 0, os.SEEK_HOLE)") == 5
        maker(f"os.close(os.open('closed', {MAKE})) or os.open('closed.2', {MAKE})")
        taker.blocks("os.stat('closed.2').st_size", WaitKind.COMMITTED)  # an update file: after commit all the same


# --- directories that were there before the run -----------------------------------------------------------------------

RULE = 'directories = ["made"]\ncommit = "on_termination"\nfire = "no_update"'
OF_OLD = RULES.replace('"made*"', '"made/file", "made/new"')
BY_RULE = OF_OLD.replace(RULE, RULE.replace("no_update", "update"))
BY_DEFAULT = OF_OLD.replace(f"[[step.stream]]\n{RULE}\n", "")


def made_before(stage: Stage) -> None:
    (stage.root / "made").mkdir()
    (stage.root / "made" / "old").mkdir()


def add_to(maker: Puppet) -> None:
    maker("os.mkdir('made/new') or os.close(os.open('made/file', os.O_WRONLY|os.O_CREAT))")
    maker.end()
    maker.stage.over("maker")


@pytest.mark.parametrize("rules", [BY_RULE, BY_DEFAULT])
@pytest.mark.parametrize(
    "expression",
    [
        "os.fstat(os.open('made', os.O_RDONLY)).st_nlink",
        "os.fstat(os.open('made', os.O_PATH)).st_nlink",
        f"[found := {BUFFER}, call('statx', -100, b'made', 0, 4, found)] and int.from_bytes(found[16:20], 'little')",
        "int(os.popen('stat -c %h made').read())",
    ],
)
def test_what_entries_change_is_final_in_a_directory_of_old(tmp_path: Path, rules: str, expression: str) -> None:
    with staged(tmp_path / "root", rules) as stage:
        made_before(stage)
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        taker.send(expression)
        stage.await_wait_for("made", WaitKind.COMMITTED)
        add_to(maker)
        assert taker.answer() == 4


def test_a_rule_holds_for_a_directory_of_old_too(tmp_path: Path) -> None:
    with staged(tmp_path / "root", BY_RULE) as stage:
        made_before(stage)
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        taker.blocks("os.stat('made').st_nlink", WaitKind.COMMITTED)
        add_to(maker)
        assert taker.answer() == 4


@pytest.mark.parametrize("rules", [BY_RULE, BY_DEFAULT])
def test_tar_sees_a_directory_of_old_that_does_not_change(tmp_path: Path, rules: str) -> None:
    if shutil.which("tar") is None:
        pytest.skip("no tar here: it is NOT tested whether it sees directories change")
    with staged(tmp_path / "root", rules) as stage:
        made_before(stage)
        maker = stage.puppet("maker")
        tar = stage.start("taker", ["tar", "-cf", str(tmp_path / "made.tar"), "made"], stderr=subprocess.PIPE)
        stage.await_wait_for("made", WaitKind.COMMITTED)
        add_to(maker)
        assert tar.communicate(timeout=PATIENCE)[1] == b""
        assert tar.returncode == 0
    listed = subprocess.run(["tar", "-tf", str(tmp_path / "made.tar")], capture_output=True, text=True, check=True)
    assert sorted(listed.stdout.split()) == ["made/", "made/file", "made/new/", "made/old/"]


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p made",
        "mkdir -p made/old",
        "test -d made",
        "cd made && pwd && cd old && test -d .",
        "bash -c 'cd made && [[ -d . ]] && pwd'",
        f'{sys.executable} -c \'import os; os.makedirs("made", exist_ok=True); os.chdir("made"); os.getcwd()\'',
        f"cd made && {sys.executable} own.py",
        f"{sys.executable} made/own.py",
        "realpath made",
        "perl -e 'exit !-d \"made\"'",
    ],
)
def test_who_only_looks_whether_it_is_there_does_not_wait(tmp_path: Path, command: str) -> None:
    """Those that a rule of the workflow makes wait for a directory are not among them."""
    with staged(tmp_path / "root", BY_DEFAULT) as stage:
        made_before(stage)
        (stage.root / "made" / "own.py").write_text("import neighbour\n")
        (stage.root / "made" / "neighbour.py").write_text("")
        stage.run("taker", command, env={"PYTHONDONTWRITEBYTECODE": "1"})


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_rule_for_the_directory_of_all_holds_up_no_shell(tmp_path: Path, shell: str) -> None:
    rules = RULES.replace(RULE, RULE.replace('"made"', '"."').replace("no_update", "update"))
    with staged(tmp_path / "root", rules) as stage:
        stage.puppet("maker")(f"os.open('out', {MAKE})")
        assert stage.run("taker", [shell, "-c", "pwd"]) == f"{stage.root}\n"
