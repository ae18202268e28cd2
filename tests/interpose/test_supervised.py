"""Programs that the library cannot get into, held by a supervisor: they see what batch order shows, and are seen."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.interpose.stage import RULES, Stage, aged, staged
from tests.patience import PATIENCE, eventually

from penstock.streaming.native import why_not_supervised
from penstock.streaming.table_records import AppState, Flag, Note, UnseenAre, WaitKind

SOURCE = Path(__file__).parent / "programs" / "by_request.c"
BUILDS = {
    "static": ["cc", "-static", "-pthread"],
    "static-pie": ["cc", "-static-pie", "-pthread"],
    "musl": ["musl-gcc"],
    "musl-static": ["musl-gcc", "-static"],
}

pytestmark = pytest.mark.skipif(
    bool(why_not_supervised()), reason=f"PROGRAMS WITHOUT THE LIBRARY ARE NOT TESTED: {why_not_supervised()}"
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The program, built in one of several ways."""
    folder = tmp_path_factory.mktemp("supervised")

    def built(how: str) -> str:
        words, target = BUILDS[how], folder / how
        if not shutil.which(words[0]):
            pytest.skip(f"no {words[0]} here: programs of the kind {how!r} are NOT tested")
        if not target.exists():
            command = [*words, "-O1", "-D_GNU_SOURCE", str(SOURCE), "-o", str(target)]
            if subprocess.run(command, check=False, capture_output=True).returncode:
                pytest.skip(f"programs of the kind {how!r} cannot be linked here and are NOT tested")
        return str(target)

    return built


@pytest.fixture(params=["static", "musl"])
def program(request: pytest.FixtureRequest, build: Callable[[str], str]) -> str:
    return build(request.param)


@pytest.fixture
def static(build: Callable[[str], str]) -> str:
    return build("static")


class Actor:
    """A program that does what it was told, started by one that has the library."""

    def __init__(self, stage: Stage, app: str, program: str, *requests: str, **options: Any) -> None:
        self.stage = stage
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options}
        self.process = stage.start(app, ["env", program, *requests], **options)

    def sign(self) -> None:
        """It may go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def end(self, status: int = 0) -> list[str]:
        out, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == status
        return [line.partition(" -> ")[2] for line in out.decode().splitlines()]


def supervisors(stage: Stage) -> list[int]:
    """Those that serve this stage."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if words[1:2] == [b"watch"] and words[2] == os.fsencode(stage.table.path):
            found.append(int(entry.name))
    return found


def are_gone(stage: Stage) -> bool:
    """Whether no supervisor of this stage is left, not even as an orphan that is ending and has to be collected."""
    left = supervisors(stage)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            if not child.name().startswith("penstock_superv") or os.waitpid(child.pid, os.WNOHANG)[0]:
                continue
            if not Path(f"/proc/{child.pid}/cmdline").read_bytes():  # it is ending: whose it was nobody can tell
                left.append(child.pid)
    return not left


@contextlib.contextmanager
def until_all_are_gone(root: Path, rules: str = RULES) -> Iterator[Stage]:
    """A stage; a supervisor ends with its programs."""
    with staged(root, rules) as stage:
        yield stage
        for process in stage.processes:
            process.kill()
        eventually(lambda: are_gone(stage))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with until_all_are_gone(tmp_path / "root") as one:
        yield one


# --- as consumers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["out", "closed", "late"])
def test_a_file_is_read_when_it_is_whole(stage: Stage, program: str, file: str) -> None:
    """Also where a program with the library would get its bytes as they come."""
    maker = stage.puppet("maker")
    taker = Actor(stage, "taker", program, f"read:{file}")
    stage.await_wait_for(file, WaitKind.BORN)
    maker(f"!file = open({file!r}, 'w', buffering=1); file.write('one\\n')")
    stage.await_wait_for(file, WaitKind.COMMITTED)
    maker("!file.write('two'); file.close()")
    if file == "late":
        maker.end()
        stage.over("maker")
    assert taker.line() == f"read:{file} -> one"
    assert taker.line() == "two"
    taker.end()


@pytest.mark.parametrize("request_", ["read:out", "stat:out", "lstat:out", "access:out"])
def test_what_an_earlier_run_left_is_not_seen(stage: Stage, program: str, request_: str) -> None:
    (stage.root / "out").write_text("old, longer")
    aged(stage.root / "out")
    maker = stage.puppet("maker")
    taker = Actor(stage, "taker", program, request_, "read:out")
    stage.await_wait_for("out", WaitKind.BORN)
    maker("!file = open('out', 'w'); file.write('new'); file.close()")
    assert taker.end()[1] == "new"


@pytest.mark.parametrize("request_", ["chmod:out,640", "chown:out", "touch:out", "setxattr:out,1", "listxattr:out"])
def test_attributes_are_those_of_the_file_when_it_is_whole(stage: Stage, program: str, request_: str) -> None:
    maker = stage.puppet("maker")
    taker = Actor(stage, "taker", program, request_, "read:out")
    stage.await_wait_for("out", WaitKind.BORN)
    maker("!file = open('out', 'w'); file.write('new')")
    stage.await_wait_for("out", WaitKind.COMMITTED)
    maker("!file.close()")
    assert taker.end() == ["done", "new"]
    if request_ == "chmod:out,640":
        assert (stage.root / "out").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("request_", ["statfs:out", "watch:out"])
def test_what_only_asks_for_a_file_waits_for_its_birth(stage: Stage, program: str, request_: str) -> None:
    maker = stage.puppet("maker")
    taker = Actor(stage, "taker", program, request_)
    stage.await_wait_for("out", WaitKind.BORN)
    maker("!file = open('out', 'w')")
    assert taker.end() == ["done"]


@pytest.mark.parametrize("request_", ["symlink:own,out", "link:own,out", "mknod:out,100600", "mknod:out,10600"])
def test_what_it_makes_under_the_name_of_another_step_finds_it_there(stage: Stage, program: str, request_: str) -> None:
    (stage.root / "own").write_text("own")
    taker = Actor(stage, "taker", program, request_)
    stage.await_wait_for("out", WaitKind.BORN)
    stage.run("maker", ["sh", "-c", "echo x > out"])
    assert taker.end() == [f"error {errno.EEXIST}"]


def test_nobody_makes_it_after_all(stage: Stage, program: str) -> None:
    taker = Actor(stage, "taker", program, "read:out", "access:out")
    stage.await_wait_for("out", WaitKind.BORN)
    stage.over("maker")
    assert taker.end() == [f"error {errno.ENOENT}", f"error {errno.ENOENT}"]


def test_its_maker_failed(stage: Stage, program: str) -> None:
    taker = Actor(stage, "taker", program, "read:out", stderr=subprocess.PIPE)
    stage.await_wait_for("out", WaitKind.BORN)
    stage.over("maker", AppState.FAILED, "ended with status 1")
    out, err = taker.process.communicate(timeout=PATIENCE)
    assert out.decode() == f"read:out -> error {errno.EIO}\n"
    assert "'out' is not complete and never will be: its producer 'maker' ended with status 1" in err.decode()


def test_one_thread_waits_and_another_goes_on(stage: Stage, static: str) -> None:
    (stage.root / "plain").write_text("here")
    taker = Actor(stage, "taker", static, "threads:out,plain")
    stage.await_wait_for("out", WaitKind.BORN)
    assert taker.line() == "plain -> here"
    stage.run("maker", ["sh", "-c", "printf there > out"])
    assert taker.end() == ["there"]


def test_its_children_are_held_too(stage: Stage, program: str) -> None:
    (stage.root / "plain").write_text("here")
    taker = Actor(stage, "taker", program, "read:plain", "fork:", "read:out")
    stage.await_wait_for("out", WaitKind.BORN)
    stage.run("maker", ["sh", "-c", "printf there > out"])
    assert taker.end() == ["here", "there"]


def test_what_it_executes_is_held_too(stage: Stage, program: str) -> None:
    """A program with a loader, which would take the library along: one of the two will do."""
    cat = shutil.which("cat") or ""
    taker = Actor(stage, "taker", program, "exec:", cat, "out")
    stage.await_wait_for("out", WaitKind.BORN)
    stage.run("maker", ["sh", "-c", "printf 'x -> there' > out"])
    assert taker.end() == ["there"]


def test_a_program_that_another_step_makes_is_awaited(stage: Stage, program: str) -> None:
    taker = Actor(stage, "taker", program, "exec:", "./out")
    stage.await_wait_for("out", WaitKind.BORN)
    stage.run("maker", ["sh", "-c", "printf '#!/bin/sh\\necho x -\\\\> made' > out; chmod +x out"])
    assert taker.end() == ["made"]


def test_what_it_inherits_is_whole(stage: Stage, static: str) -> None:
    maker = stage.puppet("maker")
    maker("!file = open('out', 'w'); file.write('one'); file.flush()")
    taker = Actor(stage, "taker", "sh", "-c", f"{static} input: < out")
    stage.await_wait_for("out", WaitKind.COMMITTED)
    maker("!file.write(' two'); file.close()")
    assert taker.end() == ["one two"]


WHOLE = """
name = "whole"
[[step]]
name = "maker"
command = "true"
output = ["made/*"]
[[step.stream]]
directories = ["made"]
commit = "on_termination"
fire = "FIRE"
[[step]]
name = "taker"
command = "true"
input = ["made/*"]
"""


@pytest.mark.parametrize("fire", ["update", "no_update"])
def test_a_listing_is_whole(tmp_path: Path, program: str, fire: str) -> None:
    with until_all_are_gone(tmp_path / "whole", WHOLE.replace("FIRE", fire)) as stage:
        maker = stage.puppet("maker")
        maker("os.mkdir('made')")
        maker("!open('made/one', 'w').close()")
        taker = Actor(stage, "taker", program, "list:made")
        stage.await_wait_for("made", WaitKind.COMMITTED)
        maker("!open('made/two', 'w').close()")
        maker.end()
        stage.over("maker")
        assert taker.end() == ["one two "]


LATER = """
name = "later"
[[step]]
name = "maker"
command = "true"
output = ["one", "two"]
[[step]]
name = "taker"
command = "true"
input = ["one", "two"]
output = ["mine"]
[[step]]
name = "last"
command = "true"
input = ["mine"]
output = ["after"]
"""


def test_a_listing_shows_nothing_of_later_steps(tmp_path: Path, program: str) -> None:
    with until_all_are_gone(tmp_path / "later", LATER) as stage:
        stage.run("maker", ["touch", "one", "two"])
        stage.over("maker")
        stage.run("last", ["touch", "after"])
        assert (stage.root / "after").exists()
        taker = Actor(stage, "taker", program, "write:mine,text", "list:.")
        assert taker.end() == ["done", "mine one two "]


def test_a_signal_that_ends_it_ends_its_wait(stage: Stage, program: str) -> None:
    taker = Actor(stage, "taker", program, "read:out")
    stage.await_wait_for("out", WaitKind.BORN)
    taker.process.send_signal(signal.SIGTERM)
    taker.end(-signal.SIGTERM)


# --- as producers -----------------------------------------------------------------------------------------------------


def test_what_it_closes_is_final_while_it_runs_on(stage: Stage, program: str) -> None:
    taker = stage.puppet("taker")
    maker = Actor(stage, "maker", program, "keep:out,one", "sign:", "more: two", "close:", "sign:")
    taker.blocks("open('out').read()", WaitKind.BORN, WaitKind.RANGE, WaitKind.COMMITTED)
    assert [maker.line(), maker.line()] == ["keep:out,one -> done", "sign: -> waits"]
    assert not stage.has("out", Flag.COMMITTED)
    maker.sign()
    assert taker.answer() == "one two"
    assert stage.info("out").closes == 1 and stage.info("out").high == 7
    maker.sign()
    maker.end()


def test_what_it_leaves_open_is_final_when_it_has_ended(stage: Stage, program: str) -> None:
    maker = Actor(stage, "maker", program, "keep:out,one", "sign:")
    stage.await_flag("out", Flag.BORN)
    assert not stage.has("out", Flag.COMMITTED)
    maker.sign()
    maker.end()
    stage.await_flag("out", Flag.COMMITTED)


def test_a_child_that_goes_on_writing_keeps_it_open(stage: Stage, program: str) -> None:
    maker = Actor(stage, "maker", program, "keep:out,one", "fork:at once", "sign:", "more: two", "close:")
    assert [maker.line(), maker.line()] == ["keep:out,one -> done", "sign: -> waits"]
    assert maker.process.wait(PATIENCE) == 0
    assert stage.info("out").writers == 1 and not stage.has("out", Flag.COMMITTED)
    maker.sign()
    stage.await_flag("out", Flag.COMMITTED)
    assert (stage.root / "out").read_text() == "one two"


def test_what_it_was_killed_over_is_not_final(stage: Stage, program: str) -> None:
    maker = Actor(stage, "maker", program, "keep:out,half", "sign:")
    maker.line(), maker.line()
    maker.process.kill()
    maker.end(-signal.SIGKILL)
    assert_not_final(stage)


def test_what_a_child_was_killed_over_is_not_final(stage: Stage, program: str) -> None:
    """Its parent goes on, and so does their supervisor, which hears of the close that the kernel has made."""
    maker = Actor(stage, "maker", program, "fork:", "keep:out,half", "sign:")
    maker.line(), maker.line()
    (child,) = psutil.Process(maker.process.pid).children()
    child.kill()
    maker.end()
    assert_not_final(stage)


def assert_not_final(stage: Stage) -> None:
    eventually(lambda: are_gone(stage))
    stage.reap()
    assert not stage.has("out", Flag.COMMITTED) and stage.info("out").writers == 0
    stage.over("maker")
    assert stage.has("out", Flag.COMMITTED)


def test_several_closes_are_counted(stage: Stage, program: str) -> None:
    words = [f"add:out,{number}." for number in range(20)]
    Actor(stage, "maker", program, *words).end()
    eventually(lambda: are_gone(stage))
    assert stage.info("out").closes == 20


def test_to_look_at_what_was_there_is_no_close(stage: Stage, program: str) -> None:
    (stage.root / "out").write_text("old")
    aged(stage.root / "out")
    maker = Actor(stage, "maker", program, "look:out", "sign:", "over:out,new", "sign:")
    assert [maker.line(), maker.line()] == ["look:out -> done", "sign: -> waits"]
    assert not stage.has("out", Flag.BORN)
    maker.sign()
    stage.await_flag("out", Flag.COMMITTED)
    maker.sign()
    maker.end()
    assert stage.info("out").closes == 1


@pytest.mark.parametrize("line", ["{0} read:seed > out", "{{ {0} read:seed; }} > out", "{0} read:seed >> out"])
def test_what_a_shell_opens_for_it(stage: Stage, static: str, line: str) -> None:
    (stage.root / "seed").write_text("text")
    if ">>" in line:
        (stage.root / "out").write_text("old ")
        aged(stage.root / "out")
    maker = Actor(stage, "maker", "sh", "-c", f"{line.format(static)}; read sign")
    stage.await_flag("out", Flag.COMMITTED)
    maker.sign()
    maker.end()
    assert (stage.root / "out").read_text().endswith("read:seed -> text\n")
    assert stage.info("out").closes == 1


def test_names_it_changes(stage: Stage, program: str) -> None:
    requests = [
        "mkdir:made",
        "write:made/x,text",
        "rename:made/x,out",
        "unlink:out",
        "write:tmp,more",
        "rename:tmp,out2",
    ]
    requests += ["symlink:out2,out3", "link:out2,out4", "sign:"]
    maker = Actor(stage, "maker", program, *requests)
    stage.await_flag("out4", Flag.BORN)
    assert stage.has("made", Flag.DIRECTORY)
    assert stage.has("out", Flag.REMOVED)
    assert stage.has("out3", Flag.SYMLINK)
    stage.await_flag("out2", Flag.COMMITTED)
    stage.await_flag("out4", Flag.COMMITTED)
    taker = stage.puppet("taker")
    assert taker("[open(name).read() for name in ('out2', 'out3', 'out4')]") == ["more"] * 3
    maker.sign()
    assert set(maker.end()) == {"done", "waits"}


def test_a_file_that_gets_its_name_last(stage: Stage, static: str) -> None:
    maker = Actor(stage, "maker", static, "nameless:.,out", "sign:", "more: and more", "close:", "sign:")
    assert [maker.line(), maker.line()] == ["nameless:.,out -> done", "sign: -> waits"]
    assert stage.has("out", Flag.BORN) and not stage.has("out", Flag.COMMITTED)
    maker.sign()
    stage.await_flag("out", Flag.COMMITTED)
    assert (stage.root / "out").read_text() == "nameless and more"
    maker.sign()
    maker.end()


def test_a_consumer_removes_what_is_final(stage: Stage, program: str) -> None:
    taker = Actor(stage, "taker", program, "unlink:out", "read:out")
    stage.await_wait_for("out", WaitKind.BORN)
    stage.run("maker", ["sh", "-c", "echo x > out"])
    assert taker.end() == ["done", f"error {errno.ENOENT}"]
    assert not (stage.root / "out").exists()


# --- it notices nothing -----------------------------------------------------------------------------------------------

OF_ALL_KINDS = [
    *("group:", "children:", "umask:27", "descriptor:a", "stat:a", "write:a,text", "read:a", "add:a,more", "read:a"),
    *("new:a,x", "new:b,x", "stat:b", "read:nothing", "read:a/b", "read:", "mkdir:d", "mkdir:d", "stat:d", "list:d"),
    *("write:d/x,1", "write:d/y,22", "list:d", "rename:d/x,d/z", "rename:d/x,d/w", "list:d", "rmdir:d", "unlink:d/y"),
    *("symlink:a,s", "lstat:s", "stat:s", "read:s", "symlink:nowhere,t", "stat:t", "lstat:t", "write:t,made", "list:."),
    *("link:a,h", "truncate:h,3", "read:a", "truncate:nothing,3", "chdir:d", "list:.", "read:../a", "chdir:nothing"),
    *("write:/nowhere/at/all,x", "read:/proc/self/comm", "look:../a", "over:../a,O", "read:../a", "nameless:.,n"),
    *(
        "chmod:../a,604",
        "stat:../a",
        "chown:../a",
        "touch:../a",
        "touch:nothing",
        "setxattr:../a,1",
        "getxattr:../a,user.a",
    ),
    *("listxattr:../a", "getxattr:../a,user.none", "statfs:.", "statfs:nothing", "watch:../a", "watch:nothing"),
    *("mknod:file,100644", "stat:file", "mknod:pipe,10600", "lstat:pipe", "mknod:pipe,10600", "unlink:pipe"),
    *("read:n", "unlink:n", "umask:777", "write:none,x", "stat:none", "children:", "fork:", "write:by-child,x"),
    *("read:by-child", "exit:7"),
]


@pytest.mark.parametrize("how", BUILDS)
def test_it_runs_as_it_would_by_itself(stage: Stage, tmp_path: Path, build: Callable[[str], str], how: str) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    program = build(how)
    expected = subprocess.run([program, *OF_ALL_KINDS], cwd=plain, check=False, **options)  # type: ignore[call-overload]
    found = stage.start("maker", ["env", program, *OF_ALL_KINDS], **options)
    out, _ = found.communicate(timeout=PATIENCE)
    assert out.decode().splitlines() == expected.stdout.decode().splitlines()
    assert found.returncode == expected.returncode == 7


@pytest.mark.parametrize(
    "start",
    [
        "os.waitpid(os.posix_spawn(program, words, os.environ), 0)[1]",
        "os.waitpid(os.posix_spawnp('static', words, os.environ), 0)[1]",
        "os.waitpid(os.fork() or os.execv(program, words), 0)[1]",
        "os.waitpid(os.fork() or os.execve(os.open(program, 0), words, {}), 0)[1]",
        "subprocess.call([program, *words[1:]]) << 8",
        "subprocess.call(['static', *words[1:]]) << 8",
        "subprocess.call(['env', '-i', program, *words[1:]]) << 8",
        "os.system(' '.join([program, *words[1:]]))",
        "subprocess.call(['./script', *words[1:]]) << 8",
    ],
)
def test_whoever_starts_it(stage: Stage, static: str, start: str) -> None:
    (stage.root / "script").write_text(f"#!{static} read:seed\n")
    (stage.root / "script").chmod(0o755)
    (stage.root / "seed").write_text("seed")
    maker = stage.puppet("maker")
    maker(f"!import subprocess; program = {static!r}; words = ['any', 'write:out,text', 'exit:3']")
    maker(f"!os.environ['PATH'] = {os.path.dirname(static)!r} + ':' + os.environ['PATH']")
    stage.table.drain()
    assert maker(start) == 3 << 8
    stage.await_flag("out", Flag.COMMITTED)
    assert not [record for record in stage.table.drain() if record.kind is Note.VIOLATION]


def test_strictly_it_is_allowed(stage: Stage, static: str) -> None:
    stage.table.set_unseen(UnseenAre.REFUSED)
    assert Actor(stage, "maker", static, "write:out,text").end() == ["done"]


def test_its_pipes_end_with_it(stage: Stage, static: str) -> None:
    """Neither the supervisor nor what it started in the background keeps its output open."""
    reading, writing = os.pipe()
    ours, its = os.pipe()
    requests = ["fork:at once", "alone:", "sign:", "write:out,x"]
    daemon = Actor(stage, "maker", static, *requests, stdin=reading, pass_fds=(its,))
    os.close(reading)
    os.close(its)
    try:
        assert daemon.end() == []
        assert select.select([ours], [], [], PATIENCE)[0] and os.read(ours, 1) == b""
        os.close(ours)
        eventually(lambda: supervisors(stage))  # whose command line may be unreadable for a moment
    finally:
        os.close(writing)  # or what waits there would be in the way of the next test
    stage.await_flag("out", Flag.COMMITTED)


def test_without_its_supervisor_its_calls_fail(stage: Stage, program: str) -> None:
    (stage.root / "plain").write_text("text")
    taker = Actor(stage, "taker", program, "read:plain", "sign:", "read:plain", "access:plain")
    assert [taker.line(), taker.line()] == ["read:plain -> text", "sign: -> waits"]
    for pid in supervisors(stage):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: are_gone(stage))
    taker.sign()
    assert [taker.line(), taker.line()] == [
        f"read:plain -> error {errno.ENOSYS}",
        f"access:plain -> error {errno.ENOSYS}",
    ]
    taker.process.wait(PATIENCE)


def test_io_uring_is_not_there(stage: Stage, static: str) -> None:
    assert Actor(stage, "maker", static, "uring:").end() == [f"error {errno.ENOSYS}"]
