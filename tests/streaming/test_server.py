"""The server's judgement, with real processes that use the shared table as the library does, but without it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.own_place import memory_dir

from penstock.streaming.apps import State
from penstock.streaming.flow import FlowNotes
from penstock.streaming.happenings import EdgeFlowed, FileBorn, FileCommitted, Happening
from penstock.streaming.language.workflow import parse_workflow
from penstock.streaming.rules.blob import compiled
from penstock.streaming.server import Server
from penstock.streaming.table import Flag, Table
from penstock.streaming.watchdog import Watchdog, told_wait, waits_for

pytestmark = pytest.mark.leaks

#: a program: obeys lines like "write a.txt 10", answers "ok"
PROGRAM = """
import os, signal, sys
from ctypes import byref, c_bool
from penstock.streaming.table import Table
table, app = Table.attach(sys.argv[1]), int(sys.argv[2])
code = table.code
process = code.ps_process_begin(app, -1, byref(c_bool()))
held = {}
print("ok", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    if verb == "open":
        slot = table.obtain(words[0])
        held[words[0]] = code.ps_writer_opened(process, slot, app, True)
    elif verb == "write":
        slot = table.obtain(words[0])
        code.psx_written(slot, int(words[1]), int(words[2]))
    elif verb == "close":
        code.ps_writer_closed(process, held.pop(words[0]))
    elif verb == "mkdir":
        code.ps_born(table.obtain(words[0]), app, 1)
    elif verb == "read":
        print("reads", flush=True)
        error = code.psx_wait_range(table.obtain(words[0]), app, int(words[1]), int(words[2]), -1)
        print(os.strerror(error) if error else "got", flush=True)
        continue
    elif verb == "final":
        print("reads", flush=True)
        error = code.psx_wait_committed(table.obtain(words[0]), app)
        print(os.strerror(error) if error else "got", flush=True)
        continue
    elif verb == "consume":
        code.ps_consumed(table.obtain(words[0]), app, int(words[1]))
    elif verb == "room":
        print("waits", flush=True)
        error = code.psx_wait_room(table.obtain(words[0]), app, int(words[1]), int(words[2]))
        print(os.strerror(error) if error else "got", flush=True)
        continue
    elif verb == "bye":
        code.ps_process_end(process)
        break
    elif verb == "fork":
        child = code.ps_process_fork(process)
        if os.fork() == 0:
            code.ps_process_became(child)
            signal.pause()
    print("ok", flush=True)
"""

PAIR = """
    name = "pair"
    [[step]]
    name = "make"
    command = "true"
    output = ["*.txt", "d"]
    [[step.stream]]
    files = ["close.txt"]
    commit = "on_close"
    fire = "no_update"
    [[step.stream]]
    files = ["thrice.txt"]
    commit = "on_close:3"
    [[step.stream]]
    files = ["after.txt"]
    commit = "on_file"
    after = ["close.txt"]
    [[step.stream]]
    directories = ["d"]
    commit = "n_files:2"
    [[step]]
    name = "read"
    command = "true"
    input = ["*.txt", "d"]
"""


class Program:
    """A process of the workflow that does what it is told."""

    def __init__(self, table: str, app: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, table, str(app)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        assert self.hear() == "ok"

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def do(self, *words: object) -> str:
        self.say(*words)
        return self.hear()

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.send_signal(signal.SIGKILL)
        else:
            self.say("bye")
        with self.process:
            self.process.wait(60)


class Stage:
    """A server, its table, and what it told."""

    def __init__(self, folder: Path, toml: str, **options: Any) -> None:
        self.workflow = parse_workflow(toml)
        self.limit = options.pop("limit", 0)
        self.table = Table.create(
            str(memory_dir() / "table"), "test", [str(folder)], compiled(self.workflow), limit=self.limit
        )
        self.told: list[Happening] = []
        self.reasons: list[str] = []
        self.server = Server(self.workflow, self.table, str(folder), self.told.append, self.reasons.append, **options)
        self.programs: list[Program] = []
        self.server.start()

    def program(self, app: str) -> Program:
        program = Program(self.table.path, self.server.apps[app].number)
        self.programs.append(program)
        return program

    def committed(self, name: str) -> bool:
        slot = self.table.lookup(name)
        info = None if slot is None else self.table.info(slot)
        return info is not None and bool(info.flags & Flag.COMMITTED)

    async def until(self, condition: Callable[[], object], patience: float = 60.0) -> None:
        deadline = asyncio.get_running_loop().time() + patience
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, "it did not happen"
            await asyncio.sleep(0.01)

    def close(self) -> None:
        for program in self.programs:
            if program.process.poll() is None:
                program.end(kill=True)
        self.server.close()
        self.table.close()


@pytest.fixture
def staged(tmp_path: Path) -> Callable[..., None]:
    def play(scene: Callable[[Stage], Awaitable[None]], toml: str = PAIR, **options: Any) -> None:
        async def play() -> None:
            stage = Stage(tmp_path, toml, **options)
            try:
                await scene(stage)
            finally:
                stage.close()

        asyncio.run(play())

    return play


def test_a_close_commits_and_is_told(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        make.do("open", "close.txt")
        make.do("write", "close.txt", 0, 10)
        assert not stage.committed("close.txt")
        make.do("close", "close.txt")
        await stage.until(lambda: FileCommitted("close.txt", 10) in stage.told)
        assert FileBorn("close.txt", "make") in stage.told
        make.end()

    staged(scene)


def test_the_end_of_a_program_commits_what_it_made(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        make.do("open", "plain.txt")
        make.do("close", "plain.txt")
        await stage.until(lambda: stage.server.apps["make"].processes)
        assert not stage.committed("plain.txt")
        make.end()
        await stage.until(lambda: stage.committed("plain.txt"))
        assert stage.server.apps["make"].state is State.OVER

    staged(scene)


def test_a_killed_program_fails_its_step_and_its_readers(
    staged: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    async def scene(stage: Stage) -> None:
        make, read = stage.program("make"), stage.program("read")
        make.do("open", "plain.txt")
        assert read.do("read", "plain.txt", 0, 5) == "reads"
        await stage.until(lambda: stage.table.waits())
        (text,) = waits_for(stage.server, "make")
        assert f"read (process {read.pid})" in text and "bytes 0 to 5 of plain.txt" in text
        make.end(kill=True)
        await stage.until(lambda: stage.server.apps["make"].state is State.FAILED)
        assert await asyncio.to_thread(read.hear) == "Input/output error"
        assert not stage.committed("plain.txt")

    staged(scene)
    assert "plain.txt" in capfd.readouterr().err


def test_a_step_under_a_command_is_over_only_with_it(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        stage.server.command_began("make", "key")
        first = stage.program("make")
        first.do("open", "plain.txt")
        first.end()
        second = stage.program("make")
        await stage.until(lambda: len(stage.server.apps["make"].processes) == 1)
        assert not stage.committed("plain.txt")
        stage.server.command_ended("make", "key", 0)
        assert not stage.committed("plain.txt")  # something of it still runs
        second.end()
        await stage.until(lambda: stage.committed("plain.txt"))

    staged(scene)


def test_a_forked_child_keeps_its_step_alive(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        make.do("open", "plain.txt")
        make.do("fork")
        await stage.until(lambda: len(stage.server.apps["make"].processes) == 2)
        (child,) = [pid for pid, _ in stage.server.apps["make"].processes if pid != make.pid]
        make.end()
        await stage.until(lambda: len(stage.server.apps["make"].processes) == 1)
        assert not stage.committed("plain.txt")
        os.kill(child, signal.SIGKILL)
        await stage.until(lambda: stage.committed("plain.txt"))

    staged(scene)


def test_files_that_wait_for_others_follow_them(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        for name in ("after.txt", "close.txt"):
            make.do("open", name)
        make.do("close", "after.txt")
        await asyncio.sleep(0.1)
        assert not stage.committed("after.txt")
        make.do("close", "close.txt")
        await stage.until(lambda: stage.committed("after.txt"))
        make.end()
        assert stage.server.warnings == []

    staged(scene)


def test_counts_that_are_never_reached_are_settled_with_a_warning(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        make.do("mkdir", "d")
        make.do("open", "thrice.txt")
        make.do("close", "thrice.txt")
        make.end()
        await stage.until(lambda: stage.committed("thrice.txt") and stage.committed("d"))
        assert sorted(stage.server.warnings) == [
            "d has 0 entries, not 2: it is final because make is over",
            "thrice.txt was closed 1 times, not 3: it is final because make is over",
        ]

    staged(scene)


def test_rewrites_are_warnings_and_errors_where_wanted(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        make.do("open", "close.txt")
        make.do("write", "close.txt", 0, 10)
        make.do("write", "close.txt", 4, 6)
        await stage.until(lambda: stage.server.warnings or stage.reasons)
        make.end()
        (text,) = stage.server.warnings or stage.reasons
        assert f"make (process {make.pid}) rewrote bytes of close.txt" in text and "on_close / no_update" in text
        assert bool(stage.reasons) is strict

    for strict in (False, True):
        staged(scene, strict=strict)


def test_many_of_a_kind_are_told_as_the_first_and_a_number(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        for number in range(50):
            make.do("open", f"thrice-{number}.txt")
            make.do("close", f"thrice-{number}.txt")
        make.end()
        await stage.until(lambda: stage.committed("thrice-49.txt"))
        stage.server.last_call()
        first, rest = [warning for warning in stage.server.warnings if "thrice" in warning]
        assert "was closed 1 times, not 3" in first
        assert rest == f"49 more like this: {first}"

    staged(scene, PAIR.replace("thrice.txt", "thrice*"))


AMBIGUOUS = """
    name = "two"
    [[step]]
    name = "make"
    command = "true"
    output = ["*"]
    [[step.stream]]
    files = ["file*"]
    commit = "on_close"
    [[step.stream]]
    files = ["*.dat"]
    commit = "on_termination"
"""


def test_a_name_with_two_rules_is_reported_when_it_comes(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        make.do("open", "file.txt")
        make.do("open", "x.dat")
        await stage.until(lambda: FileBorn("x.dat", "make") in stage.told)
        assert stage.reasons == []
        make.do("open", "file.dat")
        await stage.until(lambda: stage.reasons)
        assert "file*" in stage.reasons[0] and "*.dat" in stage.reasons[0]
        make.end()

    staged(scene, AMBIGUOUS)


def test_waits_are_told_once_with_all_that_matters(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make, read = stage.program("make"), stage.program("read")
        make.do("open", "close.txt")
        make.do("write", "close.txt", 0, 1000)
        assert read.do("read", "close.txt", 900, 1100) == "reads"
        await stage.until(lambda: stage.table.waits() and stage.server.apps["make"].processes)
        watchdog = Watchdog(stage.server, stage.told.append, 0.0)
        before = len(stage.told)
        watchdog.look()
        watchdog.look()
        (stalled,) = stage.told[before:]
        text = str(stalled)
        for words in (
            f"read (process {read.pid}) has waited",
            "bytes 900 to 1100 of close.txt",
            "on_close / no_update",
            "1 kB written, 1 open for writing",
            f"made by make, which runs (process {make.pid})",
        ):
            assert words in text
        make.do("write", "close.txt", 1000, 1100)
        assert await asyncio.to_thread(read.hear) == "got"

    staged(scene)


LIMITED = """
    name = "limited"
    temporary = ["*"]
    [[step]]
    name = "make"
    command = "true"
    output = ["a", "b"]
    [[step.stream]]
    files = ["a", "b"]
    commit = "on_close"
    fire = "no_update"
    [[step]]
    name = "read"
    command = "true"
    input = ["a", "b"]
"""


def test_a_writer_held_back_for_nothing_is_let_go(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make, read = stage.program("make"), stage.program("read")
        make.do("open", "a")
        make.do("write", "a", 0, 5_000_000)
        assert read.do("read", "b", 0, 10) == "reads"  # and nobody will write b before a
        assert make.do("room", "a", 5_000_000, 5_100_000) == "waits"
        await stage.until(lambda: len(stage.table.waits()) == 2)
        now = 0
        watchdog = Watchdog(stage.server, stage.told.append, 1e9, clock=lambda: now)
        watchdog.look()
        now = int(1e9)
        watchdog.look()
        assert stage.server.warnings == []
        now = int(3e9)
        watchdog.look()
        assert await asyncio.to_thread(make.hear) == "got"
        assert "a is let off the limit" in stage.server.warnings[0]

    staged(scene, LIMITED, limit=1_000_000)


def test_all_files_get_more_room_when_nobody_could_go_on(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make, read = stage.program("make"), stage.program("read")
        make.do("open", "a")
        make.do("open", "b")
        assert make.do("room", "a", 0, 1_000_000) == "waits"
        assert await asyncio.to_thread(make.hear) == "got"
        assert read.do("final", "b") == "reads"  # before it reads a
        assert make.do("room", "b", 0, 100_000) == "waits"
        await stage.until(lambda: len(stage.table.waits()) == 2)
        now = 0
        watchdog = Watchdog(stage.server, stage.told.append, 1e9, clock=lambda: now)
        watchdog.look()
        now = int(3e9)
        watchdog.look()
        assert await asyncio.to_thread(make.hear) == "got"
        assert "all files together may take 2 MB" in stage.server.warnings[0]

    staged(scene, LIMITED, limit=1_000_000)


def test_steps_that_hold_each_other_are_let_go(staged: Callable[..., None]) -> None:
    """Each reads what the other writes, and neither reads before it has written."""

    async def scene(stage: Stage) -> None:
        one, two = stage.program("make"), stage.program("read")
        await stage.until(lambda: stage.server.apps["read"].processes and stage.server.apps["make"].processes)
        for program, name in ((one, "a"), (two, "b")):
            program.do("open", name)
            program.do("write", name, 0, 5_000_000)
            assert program.do("room", name, 5_000_000, 5_100_000) == "waits"
        await stage.until(lambda: len(stage.table.waits()) == 2)
        now = 0
        watchdog = Watchdog(stage.server, stage.told.append, 1e9, clock=lambda: now)
        watchdog.look()
        now = int(3e9)
        watchdog.look()
        await stage.until(lambda: len(stage.table.waits()) < 2)
        assert "is let off the limit" in stage.server.warnings[0]

    both = LIMITED.replace(
        'input = ["a", "b"]', 'input = ["a"]\noutput = ["b"]\n[[step.stream]]\nfiles = ["b"]\nfire = "no_update"'
    )
    both = both.replace('output = ["a", "b"]', 'input = ["b"]\noutput = ["a"]').replace(
        'files = ["a", "b"]', 'files = ["a"]'
    )
    staged(scene, both, limit=1_000_000)


def test_a_writer_ahead_of_a_reader_that_computes_is_held(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make, read = stage.program("make"), stage.program("read")
        await stage.until(lambda: stage.server.apps["read"].processes)
        make.do("open", "a")
        make.do("write", "a", 0, 5_000_000)
        assert make.do("room", "a", 5_000_000, 5_100_000) == "waits"
        await stage.until(lambda: stage.table.waits())
        now = 0
        watchdog = Watchdog(stage.server, stage.told.append, 1e9, clock=lambda: now)
        for _ in range(10):
            watchdog.look()
            now += int(1e9)
        assert stage.server.warnings == [] and len(stage.table.waits()) == 1
        text = told_wait(stage.server, stage.table.waits()[0], stage.table.info(stage.table.lookup("a") or 0))  # type: ignore[arg-type]
        assert "ahead of them" in text and "its readers: read" in text
        read.do("consume", "a", 5_000_000)
        stage.table.freed(stage.table.lookup("a") or 0, 5_000_000)  # as whoever punches it says
        assert await asyncio.to_thread(make.hear) == "got"

    staged(scene, LIMITED, limit=1_000_000)


def test_an_edge_is_told_of_when_more_has_flowed(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make, read = stage.program("make"), stage.program("read")
        await stage.until(lambda: stage.server.apps["read"].processes)
        told: list[Happening] = []
        notes = FlowNotes(stage.server, told.append)
        notes.look_last()
        assert told == []
        make.do("open", "a")
        make.do("write", "a", 0, 500)
        notes.look_last()
        notes.look_last()
        read.do("consume", "a", 200)
        notes.look_last()
        assert told == [EdgeFlowed("make", "read", 1, 500, 0), EdgeFlowed("make", "read", 1, 500, 200)]

    staged(scene, LIMITED)


def test_looking_at_what_flows_takes_little_of_the_time(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        times = iter([0.0, 1.0, 19.0, 20.0, 20.5])  # the first look takes one second
        told: list[Happening] = []
        notes = FlowNotes(stage.server, told.append, clock=lambda: next(times))
        make = stage.program("make")
        make.do("open", "a")
        make.do("write", "a", 0, 500)
        notes.look()
        make.do("write", "a", 500, 900)
        notes.look()
        assert len(told) == 1
        notes.look()
        assert len(told) == 2

    staged(scene, LIMITED)


def test_when_the_server_closes_readers_get_an_error(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        stage.program("make").do("open", "plain.txt")
        read = stage.program("read")
        read.do("read", "plain.txt", 0, 5)
        await stage.until(lambda: stage.table.waits())
        stage.server.close()
        assert await asyncio.to_thread(read.hear) == "Input/output error"

    staged(scene)


def test_at_the_last_call_those_who_never_came_are_over(staged: Callable[..., None]) -> None:
    async def scene(stage: Stage) -> None:
        make = stage.program("make")
        make.do("open", "plain.txt")
        stage.server.last_call()
        assert stage.server.apps["read"].ended and not stage.server.apps["make"].ended
        make.end()

    staged(scene)
