"""What every test may rely on: nothing is left behind by the one before it.

A leak is a process, a directory in shared memory or a descriptor that outlives its runtime. The fixture
`nothing_left_behind` stops the runtime before and after a test and compares; everything in tests/faults gets it, and
whatever is marked `leaks` or asks for it. Tests in tests/behaviour may share a running runtime, which excuses what it
holds, so the same comparison is made around each of their modules; and once more around the whole session.

Each pytest process has a place of its own in shared memory (own_place.py): no test is blamed for its neighbour.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from tests.own_place import IN_WORKERS, left_in_memory, move_in, move_out
from tests.patience import PATIENCE, Leap, becomes

HERE = Path(__file__).parent

_PR_SET_CHILD_SUBREAPER = 36


def pytest_configure() -> None:
    move_in()
    # A shell without job control has what it starts in the background (`make test &`) ignore the first two, nohup the
    # third, and so would every program of a test that is to be interrupted.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_unconfigure() -> None:
    move_out()


@pytest.hookimpl(tryfirst=True)  # before it is asked which are long
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the variants of a test that is marked ``one_in(n)``, each nth is for every day, the others are long."""
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("one_in")
        if mark is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                item.add_marker("long")
            seen[test] += 1


class Surroundings:
    """What this process has around it: descendants, files and directories in shared memory, open descriptors."""

    def __init__(self) -> None:
        self.processes = set(descendants())
        self.directories = left_in_memory()
        self.descriptors = open_descriptors()

    def leaks_since(self, before: Surroundings) -> list[str]:
        processes = [f"process {describe(process)}" for process in self.processes - before.processes]
        directories = [f"directory {path}" for path in self.directories - before.directories]
        descriptors = [f"descriptor {fd} -> {target}{ends(fd)}" for fd, target in self.descriptors - before.descriptors]
        return sorted(processes + directories + descriptors)


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """Begin and end without a runtime, and fail if the test leaves a process, directory or descriptor."""
    stop_runtime()
    before = settled()
    yield
    stop_runtime()
    expect_no_leaks(before)


@pytest.fixture
def leap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leap]:
    """Lets time pass at once for the engine of the current runtime, which is stopped afterwards.

    A deadline comes up when the test says so: not before a slow machine has begun what is to be late, and without
    anybody waiting for it.
    """
    from penstock.model.events import Ticked
    from penstock.runtime import driver, session, sharing

    ahead = 0.0
    now, sleep = driver.time.monotonic, driver.time.sleep  # type: ignore[attr-defined]
    monkeypatch.setattr(sharing, "LEASE", 1e9)  # what is had of layers does not end by leaps
    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: now() + ahead, sleep=sleep))

    def leap(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds
        session.current().driver.post(Ticked())

    yield leap
    session.stop(abort=True)  # what it did last lies in the future


@pytest.fixture(autouse=True)
def _leak_check_of_a_test(request: pytest.FixtureRequest) -> None:
    if HERE / "faults" in request.path.parents or request.node.get_closest_marker("leaks"):
        request.getfixturevalue("nothing_left_behind")


@pytest.fixture(autouse=True, scope="module")
def _leak_check_of_a_module(request: pytest.FixtureRequest) -> Iterator[None]:
    if HERE / "behaviour" not in request.path.parents:
        yield
        return
    stop_runtime()
    before = settled()
    yield
    stop_runtime()
    expect_no_leaks(before)


@pytest.fixture(autouse=True, scope="session")
def _workers_do_without_pytest() -> None:
    """Here it is imported already; the processes that get our path find in_workers/pytest.py."""
    sys.path.insert(0, IN_WORKERS)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing that a test learns gets into the user's registry, and nothing in there into a test."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    # Functions of one name are many functions in tests: what one of them takes says nothing of the next.
    os.environ["PENSTOCK_PROFILES"] = "off"


@pytest.fixture(autouse=True, scope="session")
def _leak_check_of_the_session() -> Iterator[None]:
    """Orphans of any test become children of this process, and none may be left when the session ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = Surroundings()
    yield
    stop_runtime()
    # The descriptors of a whole session belong to many parties (plug-ins, caches); ours are checked above.
    expect_no_leaks(before, descriptors=False)


def stop_runtime() -> None:
    """Stop the current runtime, without importing Penstock for it. What failed to stop is found by the comparison."""
    stop = getattr(sys.modules.get("penstock"), "stop", None)
    if stop is not None:
        stop()


def expect_no_leaks(before: Surroundings, descriptors: bool = True) -> None:
    __tracebackhide__ = True

    found: list[str] = []

    def nothing_is_left() -> bool:
        found[:] = settled().leaks_since(before)
        if not descriptors:
            found[:] = [leak for leak in found if not leak.startswith("descriptor")]
        return not found

    clean = becomes(nothing_is_left)  # the kernel takes its time to show that what was stopped is gone
    for process in set(descendants()) - before.processes:
        kill(process)  # or the next test would be blamed for it too
    assert clean, "left behind:\n" + "\n".join(found)


def settled() -> Surroundings:
    gc.collect()
    for process in zombies():
        # An adopted orphan has no other parent to collect it. One that is still ending cannot be collected yet.
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(0)
    return Surroundings()


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def zombies() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if status(child) == psutil.STATUS_ZOMBIE]


def status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def kill(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(PATIENCE)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        pass


def describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({process.status()}): {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} (ending)"


def ends(descriptor: int) -> str:
    """The two ends of a socket, if it is one: they tell whose it is."""
    with contextlib.suppress(OSError):  # closed by now, or nobody is at the other end
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                return f", a {copy.type.name} from {copy.getsockname()!r} to {copy.getpeername()!r}"
    return ""


def open_descriptors() -> set[tuple[int, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue  # the descriptor of this very listing
    return found
