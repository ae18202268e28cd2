"""Processes: children stay interposed, inherited files have their writer at every moment, close-on-exec closes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from tests.interpose.stage import PATIENCE, Stage

from penstock.streaming.table_records import Flag, Process, ProcessState, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
LOADED = "grep -c libpenstock_interpose /proc/self/maps > /dev/null && echo loaded"


@pytest.mark.parametrize(
    "start",
    [
        "os.posix_spawn('/bin/sh', command, {})",
        "os.posix_spawnp('sh', command, {})",
        "os.spawnve(os.P_NOWAIT, '/bin/sh', command, {})",
        "keep.setdefault('p', __import__('subprocess').Popen(command, env={})).pid",
        "keep.setdefault('p', __import__('subprocess').Popen(command, env={}, close_fds=False)).pid",
        "os.fork() or os.execve('/bin/sh', command, {})",
        "os.fork() or os.execve(os.open('/bin/sh', 0), command, {})",
        "os.fork() or libc.execle(b'/bin/sh', b'sh', b'-c', command[2].encode(), None, (ctypes.c_char_p * 1)(None))",
        "os.fork() or libc.execvpe(b'sh', argv, (ctypes.c_char_p * 1)(None))",
        "os.fork() or libc.execveat(-100, b'/bin/sh', argv, (ctypes.c_char_p * 1)(None), 0)",
        "libc.vfork() or libc.execve(b'/bin/sh', argv, (ctypes.c_char_p * 1)(None))",
        "os.fork() or (os.environ.clear(), os.execvp('/bin/sh', command))",
    ],
)
def test_a_child_with_an_empty_environment_is_still_interposed(stage: Stage, start: str) -> None:
    maker = stage.puppet("maker")
    maker(f"!command = ['sh', '-c', {LOADED + ' > out'!r}]")
    maker("!argv = (ctypes.c_char_p * 4)(*[c.encode() for c in command], None)")
    maker(f"os.waitpid({start}, 0) and None")
    assert (stage.root / "out").read_text() == "loaded\n"
    assert stage.has("out", Flag.COMMITTED)


def test_an_existing_preload_is_kept(stage: Stage, program: Callable[..., str]) -> None:
    other = program("other_library.c", "-shared", "-fPIC")
    maker = stage.puppet("maker")
    text = f"{{'LD_PRELOAD': {other!r}}}"
    maker(f"os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'echo $LD_PRELOAD > out'], {text}), 0) and None")
    assert (stage.root / "out").read_text() == f"{other}:{stage.library}\n"


def test_env_i_keeps_streaming(stage: Stage) -> None:
    stage.run("maker", ["env", "-i", "/bin/sh", "-c", f"{LOADED} > out"])
    assert (stage.root / "out").read_text() == "loaded\n"


def test_system_and_popen(stage: Stage, program: Callable[..., str]) -> None:
    maker = stage.puppet("maker")
    maker("os.environ.clear()")
    assert maker(f"os.system({LOADED + ' > out'!r})") == 0
    assert (stage.root / "out").read_text() == "loaded\n"
    maker(f"!f = ctypes.c_void_p(libc.popen({(LOADED + ' > out.2').encode()!r}, b'r'))")
    assert maker("libc.pclose(f)") == 0
    assert (stage.root / "out.2").read_text() == "loaded\n"
    assert maker("os.popen('cat out').read()") == "loaded\n"


def test_every_process_is_known_and_says_goodbye(stage: Stage) -> None:
    process = stage.start("maker", ["sh", "-c", "sleep 30 & wait"])
    end = time.monotonic() + PATIENCE
    alive: list[Process] = []
    while len(alive) < 2 and time.monotonic() < end:
        alive = [p for p in stage.table.processes() if p.state == ProcessState.ALIVE]
    assert {p.app for p in alive} == {stage.apps["maker"]}
    process.kill()
    subprocess.run(["kill", str(max(p.pid for p in alive))], check=False)


def test_a_child_that_inherits_a_writer_keeps_the_file_open(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    maker(
        f"!gate = os.pipe()\npid = os.fork()\nif pid == 0:\n    os.read(gate[0], 1)\n    os.write({out}, b'child')\n"
        "    os._exit(0)"
    )
    maker(f"os.close({out})")
    assert not stage.has("out", Flag.COMMITTED)
    maker("os.write(gate[1], b'x') and os.waitpid(pid, 0) and None")
    assert stage.has("out", Flag.COMMITTED)
    assert (stage.info("out").solid, stage.info("out").closes) == (5, 1)


@pytest.mark.parametrize(
    "start",
    [
        "os.posix_spawn('/bin/sh', ['sh', '-c', f'read x <&{{gate[0]}}; echo spawned >&{out}'], os.environ)",
        "os.fork() or os.execv('/bin/sh', ['sh', '-c', f'read x <&{{gate[0]}}; echo spawned >&{out}'])",
    ],
)
def test_a_spawned_child_has_its_writer_from_the_start(stage: Stage, start: str) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    maker(f"os.set_inheritable({out}, True)")
    maker("!gate = os.pipe()\nos.set_inheritable(gate[0], True)")
    maker(f"!pid = {start.format(out=out)}\nos.close({out})")
    assert not stage.has("out", Flag.COMMITTED)  # at once: the child may not have run yet
    maker("os.write(gate[1], b'\\n') and os.waitpid(pid, 0) and None")
    assert stage.has("out", Flag.COMMITTED)
    assert (stage.root / "out").read_text() == "spawned\n"
    assert stage.info("out").solid == 8


def test_close_on_exec_closes(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker(f"!a = os.open('out.a', {MAKE})\nb = os.open('out.b', {MAKE})\nos.set_inheritable(b, True)")
    maker("!os.write(a, b'A')\nos.write(b, b'B')")
    maker.send("os.execv('/bin/sleep', ['sleep', '30'])")  # close-on-exec is what Python opens with
    stage.await_flag("out.a", Flag.COMMITTED)
    assert not stage.has("out.b", Flag.COMMITTED)
    maker.process.terminate()
    maker.process.wait(60)


def test_inherited_descriptors_share_their_offset(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('late', {MAKE})")
    maker(f"os.write({out}, b'parent ')")
    maker(f"os.set_inheritable({out}, True)")
    maker(f"os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'printf child >&{out}'], os.environ), 0) and None")
    maker(f"os.write({out}, b' parent')")
    assert (stage.root / "late").read_bytes() == b"parent child parent"
    assert stage.info("late").solid == 19


def test_a_reader_inherited_by_exec_waits(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    reader = stage.start("taker", "exec head -c 4 < out", stdout=subprocess.PIPE)
    stage.await_wait(reader.pid, WaitKind.RANGE, WaitKind.COMMITTED)
    maker(f"os.write({out}, b'data and more') and os.close({out})")
    assert reader.communicate(timeout=60)[0] == b"data"


def test_spawn_actions_that_open_managed_files(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    open_out = f"(os.POSIX_SPAWN_OPEN, 1, 'out', {MAKE}, 0o644)"
    maker(f"os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'hi'], os.environ, file_actions=[{open_out}]), 0) and None")
    assert stage.has("out", Flag.COMMITTED)
    open_in = "(os.POSIX_SPAWN_OPEN, 0, 'out.2', os.O_RDONLY, 0)"
    taker.blocks(f"os.posix_spawn('/bin/cat', ['cat'], os.environ, file_actions=[{open_in}]) > 0", WaitKind.BORN)
    maker(f"os.close(os.open('out.2', {MAKE}))")
    assert taker.answer() is True


def test_fork_in_a_threaded_program(stage: Stage, program: Callable[..., str]) -> None:
    assert stage.run("maker", [program("forks_in_threads")]) == "160 files\n"
    done = [info for info in stage.table.iterate(Flag.COMMITTED) if info.name.startswith("out.")]
    assert len(done) == 160
    assert {(info.solid, info.writers) for info in done} == {(4, 0)}


def test_a_child_that_has_not_run_yet_is_known_once_its_parent_goes_on(
    stage: Stage, program: Callable[..., str]
) -> None:
    """It outlives a parent that ends at once, as one in the background of a shell does, on a busy machine."""
    parent = stage.start("maker", [program("stops_its_children")], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = {int(line) for line in iter(parent.stdout.readline, "all\n")}
    try:
        known = {process.pid: process.state for process in stage.table.processes()}
        assert {known.get(child) for child in children} == {ProcessState.ALIVE}
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_daemon(stage: Stage, program: Callable[..., str]) -> None:
    assert stage.run("maker", [program("becomes_daemon"), str(stage.root)]) == ""
    stage.await_flag("out", Flag.COMMITTED)
    assert (stage.root / "out").read_text() == "by a daemon"


def test_files_opened_before_main(stage: Stage, program: Callable[..., str]) -> None:
    other = program("other_library.c", "-shared", "-fPIC")
    out = stage.run("maker", f"{program('prints')} > out.printed", env={"preload": other})
    assert out == ""
    assert (stage.root / "out.early").read_text() == "by a constructor"
    assert stage.has("out.early", Flag.COMMITTED)
    assert (stage.root / "out.printed").read_text().startswith("before main\nline 0\n")
    assert stage.info("out.printed").solid == len("before main\n") + 70


def test_a_program_whose_workflow_is_gone_is_refused(stage: Stage) -> None:
    done = subprocess.run(
        ["cat", "/dev/null"],
        env={"LD_PRELOAD": stage.library, "PENSTOCK_STREAM_TABLE": "/no/such/table"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 126
    assert "penstock: cannot join the workflow of table /no/such/table" in done.stderr


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("line", "closes"),
    [
        ("cat /dev/null > late", 1),
        ("seq 3 > late; true", 1),
        ("seq 3 > late; seq 3 >> late; echo x >> late", 3),
        ("{ seq 3; echo x; seq 3; } > late; true", 1),
        ("exec 5> late; seq 3 >&5; echo x >&5; exec 5>&-; true", 1),
        ("(seq 3; echo x) > late; true", 1),
        ("seq 3 | cat > late; true", 1),
    ],
)
def test_one_opening_is_one_close_whoever_writes_through_it(stage: Stage, shell: str, line: str, closes: int) -> None:
    stage.run("maker", [shell, "-c", line])
    assert stage.info("late").closes == closes
    assert stage.info("late").writers == 0
