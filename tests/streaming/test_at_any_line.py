"""A signal at any line of the start and the end of a run: at none of them is there something that nobody removes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from tests.own_place import memory_dir
from tests.patience import eventually
from tests.streaming import at_any_line
from tests.streaming.flows import Flow
from tests.streaming.own_mounts import need_own_mounts, refusing_own_mounts

INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL
WAYS = [[INT], [INT, INT], [TERM], [HUP, TERM], [KILL]]
#: those that make and remove things
OWNERS = ["guard.py", "private_view.py", "placement.py", "folders.py", "hosting.py", "running.py", "stream_launch.py"]
SHORT = """
    name = "short"
    [[step]]
    name = "make"
    command = "echo made > made.txt"
    output = ["made.txt"]
"""

told = pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(signal.Signals(one).name for one in way))


def at_lines(flow: Flow, way: list[int], every: int, *words: str, modules: list[str] = OWNERS) -> None:
    """Try each so many-th line, others for each way to end it."""
    memory = tempfile.mkdtemp(dir=memory_dir())
    order = {
        "what": "command" if words else "trial",
        "words": words,
        "signals": [int(number) for number in way],
        "modules": modules,
        "every": every,
        "shift": WAYS.index(way) * every // len(WAYS),
        "folder": str(flow.folder),
        "memory": memory,
        "marks": os.environ["XDG_RUNTIME_DIR"],
    }
    command = [*flow.prefix, sys.executable, at_any_line.__file__, json.dumps(order)]
    environment = {**flow.environment, "PENSTOCK_MEMORY_DIR": memory}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    shutil.rmtree(memory)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert not answer["left"]
    assert answer["tried"] >= answer["lines"] // every // 2 > 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("every", [pytest.param(8, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)])
@told
def test_the_trial_of_a_view(flow: Flow, way: list[int], every: int) -> None:
    """With all lines of Python's own modules: most of the time is spent in those."""
    need_own_mounts()
    at_lines(flow, way, every, modules=[""])


@pytest.mark.timeout(600)
@pytest.mark.one_in(8)
@pytest.mark.parametrize("every", [pytest.param(50, id="some"), pytest.param(6, id="many", marks=pytest.mark.long)])
@told
def test_a_run_in_a_view(flow: Flow, way: list[int], every: int) -> None:
    need_own_mounts()
    flow.toml(SHORT.replace('"short"', '"short"\npermanent = ["made.txt"]'))
    at_lines(flow, way, every, "run", "flow.toml", "--memory", "--no-log")


@pytest.mark.timeout(600)
@pytest.mark.one_in(8)
@pytest.mark.parametrize("every", [pytest.param(50, id="some"), pytest.param(6, id="many", marks=pytest.mark.long)])
@told
def test_a_run_behind_a_link(flow: Flow, way: list[int], every: int) -> None:
    flow.prefix = refusing_own_mounts()
    flow.toml(SHORT)
    at_lines(flow, way, every, "run", "flow.toml", "--memory", "--no-log")


#: is killed when it has started a step and has not told the guard of it
UNTOLD = """
import os, signal, sys
from penstock.cli import main
from penstock.streaming.guard import Guard
Guard.cover = lambda self, group: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


@pytest.mark.parametrize("how", ["--in-place", "--memory", "--batch"])
def test_a_step_that_the_guard_was_not_told_of_ends_too(flow: Flow, tmp_path: Path, how: str) -> None:
    flow.toml(SHORT.replace("echo made > made.txt", "exec sleep 1000"))
    (tmp_path / "untold.py").write_text(UNTOLD)
    command = [sys.executable, str(tmp_path / "untold.py"), "stream", "run", "flow.toml", how, "--no-log"]
    killed = subprocess.run(command, cwd=flow.folder, env=flow.environment, capture_output=True, check=False)
    assert killed.returncode == -KILL
    eventually(lambda: not any(one.name() == "sleep" and lives(one) for one in psutil.Process().children()))


def lives(orphan: psutil.Process) -> bool:
    """Whether it is not merely uncollected; the guard's work is done, then."""
    try:
        return orphan.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
