"""A guardian that starts before it is wanted: taken by who would start the same, and gone if nobody does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from tests.patience import PATIENCE

from penstock.executors import guardian_process
from penstock.executors.forkserver import ForkServer
from penstock.executors.guardian_process import WORKER, discard_early, start_early


@pytest.fixture(autouse=True)
def nothing_early() -> Iterator[None]:
    yield
    discard_early()


def waiting() -> int:
    assert guardian_process._early is not None
    return guardian_process._early.process.pid


def _printed(source: str) -> str:
    """What a program printed, however it ended."""
    command = [sys.executable, "-c", source]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False).stdout


def test_the_one_that_waits_is_taken() -> None:
    start_early(os.environ)
    early = waiting()
    server = ForkServer(environ=os.environ)
    try:
        assert server.pid == early
        assert guardian_process._early is None
    finally:
        server.close()
    assert not psutil.pid_exists(early)


@pytest.mark.parametrize("change", ["environ", "argv", "path", "entry", "dead"], ids=lambda change: f"another-{change}")
def test_one_that_was_started_otherwise_is_not_taken(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start_early(os.environ)
    early = waiting()
    environ, entry = dict(os.environ), WORKER
    if change == "environ":
        environ["PENSTOCK_TEST_OTHER"] = "1"
    elif change == "argv":
        monkeypatch.setattr(sys, "argv", [*sys.argv, "--other"])
    elif change == "path":
        monkeypatch.setattr(sys, "path", [*sys.path, "/other"])
    elif change == "entry":
        entry = "tests.faults.told_worker:serve"
    else:
        os.kill(early, signal.SIGKILL)
        psutil.Process(early).wait(PATIENCE) if psutil.pid_exists(early) else None
    server = ForkServer(environ=environ, entry=entry)
    try:
        assert server.pid != early
    finally:
        server.close()
    discard_early()
    assert not psutil.pid_exists(early)


def test_it_ends_with_a_program_that_dies_before_it_is_wanted() -> None:
    source = (
        "import os, signal\n"
        "from penstock.executors import guardian_process\n"
        "guardian_process.start_early(os.environ)\n"
        "print(guardian_process._early.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    early = int(_printed(source))
    try:
        psutil.Process(early).wait(PATIENCE)
    except psutil.NoSuchProcess:
        pass


@pytest.mark.parametrize(
    ("settings", "guardians"), [("", 1), ("mode='inline'", 0), ("mode='simulated'", 0), ("cpus='many'", 0)]
)
def test_a_start_leaves_no_other_guardian_than_its_own(settings: str, guardians: int) -> None:
    source = (
        "import penstock, psutil\n"
        "try:\n"
        f"    penstock.start({settings})\n"
        "except penstock.ConfigError:\n"
        "    pass\n"
        "print(len(psutil.Process().children()))\n"
    )
    assert _printed(source).split() == [str(guardians)]
