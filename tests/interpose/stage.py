"""A stage for the wrappers: a table made from rules, a managed directory, programs that run preloaded in it.

The test plays the server: it says when a file is committed and when an app is over. Blocked calls are recognised by the
table's own record of who waits for what, never by a pause.
"""

from __future__ import annotations

import ast
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.own_place import memory_dir
from tests.patience import PATIENCE

from penstock.streaming.language.workflow import parse_workflow
from penstock.streaming.native import interposer_path
from penstock.streaming.rules.blob import compiled
from penstock.streaming.table import Table
from penstock.streaming.table_records import AppState, Info, ServerState, WaitKind


def aged(path: Path) -> Path:
    """The file as if an earlier run had left it: what changed since the table was made is taken for this run's."""
    os.utime(path, (1, 1))
    return path


PUPPET = Path(__file__).parent / "puppet.py"

RULES = """
name = "stage"
[[step]]
name = "maker"
command = "true"
output = ["out*", "made*", "closed*", "late*", "tmp*"]
[[step.stream]]
files = ["out*"]
commit = "on_close"
fire = "no_update"
[[step.stream]]
files = ["closed*"]
commit = "on_close"
fire = "update"
[[step.stream]]
files = ["late*"]
commit = "on_termination"
fire = "no_update"
[[step.stream]]
directories = ["made"]
commit = "on_termination"
fire = "no_update"
[[step]]
name = "taker"
command = "true"
input = ["out*", "made*", "closed*", "late*", "tmp*"]
"""


class Puppet:
    """One preloaded Python process whose calls the test makes, one at a time."""

    def __init__(self, stage: Stage, app: str, **options: Any) -> None:
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.stage, self.app = stage, app
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(PUPPET), str(requests), str(answers)],
            env=stage.environment(app),
            cwd=options.pop("cwd", stage.root),
            pass_fds=(requests, answers, *options.pop("pass_fds", ())),
            **options,
        )
        os.close(requests)
        os.close(answers)
        self._text = b""
        assert self("'penstock_interpose' in open('/proc/self/maps').read()"), "the library is not loaded"
        assert self("libc.penstock_interposed()") == 2, "the library is not active"

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, expression: str) -> None:
        """Begin a call; ``answer`` ends it."""
        os.write(self.requests, expression.encode("utf-8", "surrogateescape").hex().encode() + b"\n")

    def answer(self, patience: float = PATIENCE) -> Any:
        end = time.monotonic() + patience
        while b"\n" not in self._text:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{self.app} did not answer within {patience} s; waits: {self.stage.table.waits()}"
            got = os.read(self.answers, 65536)
            assert got, f"{self.app} ended with {self.process.wait()}"
            self._text += got
        line, self._text = self._text.split(b"\n", 1)
        text = bytes.fromhex(line.decode()).decode("utf-8", "surrogateescape")
        if text.startswith("E "):
            raise OSError(int(text[2:]), os.strerror(int(text[2:])))
        assert text.startswith("= "), f"{self.app}: {text}"
        return ast.literal_eval(text[2:])

    def __call__(self, expression: str) -> Any:
        self.send(expression)
        return self.answer()

    def blocks(self, expression: str, *kinds: WaitKind) -> None:
        """Begin a call that must wait for something of one of these kinds."""
        self.send(expression)
        self.stage.await_wait(self.pid, *kinds)
        assert not select.select([self.answers], [], [], 0)[0], f"answered: {self.answer()!r}"

    def end(self) -> int:
        """Let it come to its end by itself; its exit status."""
        if self.requests >= 0:
            os.close(self.requests)
            os.close(self.answers)
            self.requests = -1
        status = self.process.wait(PATIENCE)
        self.stage.reap()
        return status


class Stage:
    """The table, the managed directory, and who plays in it."""

    def __init__(self, root: Path, rules: str = RULES, library: str | None = None, **options: Any) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.workflow = parse_workflow(rules, "stage.toml", str(root))
        self.apps = {step.name: number for number, step in enumerate(self.workflow.steps)}
        self.folder = tempfile.mkdtemp(prefix="stage-", dir=memory_dir())
        self.library = library or interposer_path()
        roots = options.pop("roots", [str(root)])
        self.table = Table.create(
            f"{self.folder}/table", "stage", roots, compiled(self.workflow), slots=4096, **options
        )
        self.table.serve(ServerState.RUNS)
        self.puppets: list[Puppet] = []
        self.processes: list[subprocess.Popen[Any]] = []

    def environment(self, app: str, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        preload = " ".join(filter(None, [more.pop("preload", ""), self.library]))
        return {
            **kept,
            "LD_PRELOAD": preload,
            "PENSTOCK_STREAM_TABLE": self.table.path,
            "PENSTOCK_STREAM_APP": app,
            "PENSTOCK_TEST_EXPECTS": "2",
            **more,
        }

    def puppet(self, app: str, **options: Any) -> Puppet:
        puppet = Puppet(self, app, **options)
        self.puppets.append(puppet)
        return puppet

    def start(self, app: str, command: list[str] | str, **options: Any) -> subprocess.Popen[Any]:
        options.setdefault("cwd", self.root)
        environment = self.environment(app, **options.pop("env", {}))
        process = subprocess.Popen(command, env=environment, shell=isinstance(command, str), **options)
        self.processes.append(process)
        return process

    def run(self, app: str, command: list[str] | str, **options: Any) -> str:
        """Run to the end, which must be good; what it printed."""
        process = self.start(app, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        out, err = process.communicate(timeout=PATIENCE * 3)
        assert process.returncode == 0, f"{command} ended with {process.returncode}: {out!r} {err!r}"
        self.reap()
        return str(os.fsdecode(out))

    def reap(self) -> None:
        """What the server does for processes that are gone."""
        for process in self.table.processes():
            if process.pid > 0 and not Path(f"/proc/{process.pid}").exists():
                self.table.process_reap(process.process)

    def over(self, app: str, state: AppState = AppState.OVER, how: str = "ended with status 0") -> None:
        self.table.app_over(self.apps[app], state, how)
        self.table.settle()

    def info(self, name: str) -> Info:
        slot = self.table.lookup(name)
        assert slot is not None, f"no slot for {name!r}"
        found = self.table.info(slot)
        assert found is not None
        return found

    def has(self, name: str, flag: int) -> bool:
        slot = self.table.lookup(name)
        return slot is not None and bool(self.info(name).flags & flag)

    def commit(self, name: str) -> None:
        slot = self.table.obtain(name)
        assert slot is not None
        self.table.commit(slot)

    def await_wait(self, pid: int, *kinds: WaitKind) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if any(wait.pid == pid and wait.kind in kinds for wait in self.table.waits()):
                return
            time.sleep(0.001)
        raise AssertionError(f"no wait of {pid} of {kinds}; there are {self.table.waits()}")

    def await_wait_for(self, name: str, *kinds: WaitKind) -> None:
        """Whoever it is that waits for this name, a child of a puppet for one."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            slot = self.table.lookup(name)
            if any(wait.slot == slot and wait.kind in kinds for wait in self.table.waits()):
                return
            time.sleep(0.001)
        raise AssertionError(f"nobody waits for {name}; there are {self.table.waits()}")

    def await_flag(self, name: str, flag: int) -> None:
        end = time.monotonic() + PATIENCE
        while not self.has(name, flag):
            assert time.monotonic() < end, f"{name} never became {flag!r}"
            time.sleep(0.001)

    def close(self) -> None:
        for puppet in self.puppets:
            if puppet.process.poll() is None:
                puppet.process.send_signal(signal.SIGKILL)
            puppet.end()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        self.table.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def staged(root: Path, rules: str = RULES, **options: Any) -> Iterator[Stage]:
    stage = Stage(root, rules, **options)
    try:
        yield stage
    finally:
        stage.close()
