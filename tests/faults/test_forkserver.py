"""The fork server with real processes: births, ends of every kind, and nothing left behind after any of them."""

from __future__ import annotations

import ast
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE

from penstock.errors import RuntimeStopped
from penstock.executors import forkserver_main
from penstock.executors.forkserver import Exited, ForkServer, Notice, ServerLost, Spawned

ENTRY = "tests.faults.told_worker:serve"


class Crew:
    """A fork server and the main program's ends of its workers' sockets."""

    def __init__(self, entry: str = ENTRY, **options: Any) -> None:
        self.server = ForkServer(entry=entry, **options)
        self.sockets: dict[int, tuple[socket.socket, socket.socket]] = {}
        self.heard: list[Notice] = []

    def spawn(self, worker_id: int, stdout: int | None = None, **options: Any) -> None:
        tasks, tasks_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        results, results_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        results.settimeout(PATIENCE)
        self.sockets[worker_id] = tasks, results
        with open(os.devnull, "wb") as nowhere, tasks_far, results_far:
            outlet = nowhere.fileno() if stdout is None else stdout
            self.server.spawn(worker_id, tasks_far.fileno(), results_far.fileno(), outlet, outlet, **options)

    def started(self, worker_id: int) -> int:
        """Pid of a worker that is up and answers."""
        self.spawn(worker_id)
        assert self.ask(worker_id, "answer(worker_id)") == worker_id
        return int(self.wait_for(Spawned, worker_id).pid)

    def tell(self, worker_id: int, source: str) -> None:
        self.sockets[worker_id][0].send(source.encode())

    def ask(self, worker_id: int, source: str) -> Any:
        self.tell(worker_id, source)
        return ast.literal_eval(self.sockets[worker_id][1].recv(1 << 16).decode())

    def wait_for(self, kind: type[Any], worker_id: int | None = None) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            for notice in self.heard:
                if isinstance(notice, kind) and worker_id in (None, getattr(notice, "worker_id", None)):
                    return notice
            ready, _, _ = select.select([self.server], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {kind.__name__} for worker {worker_id}; heard {self.heard}"
            self.heard += self.server.notices()

    def close(self) -> None:
        self.server.close()
        for pair in self.sockets.values():
            for end in pair:
                end.close()


@pytest.fixture
def crew() -> Iterator[Crew]:
    with contextlib.closing(Crew()) as crew:
        yield crew


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "deep" / "file").write_text("x")
    return tmp_path / "run"


@pytest.fixture
def crew_with_directory(run_directory: Path) -> Iterator[Crew]:
    with contextlib.closing(Crew(cleanup=[str(run_directory)])) as crew:
        yield crew


def watched(pid: int) -> int:
    """A descriptor that becomes readable when the process ends; -1 if it already did."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def assert_ends(handle: int) -> None:
    if handle >= 0:
        ready, _, _ = select.select([handle], [], [], PATIENCE)
        os.close(handle)
        assert ready, "the process is still there"


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status != "Z"


# In a session of its own and without a living parent: only the guardian can find it.
DETACHED_SLEEPER = """
import subprocess, sys
starter = "import subprocess as s; print(s.Popen(['sleep', '1000'], stdout=s.DEVNULL, start_new_session=True).pid)"
answer(int(subprocess.run([sys.executable, '-S', '-c', starter], stdout=subprocess.PIPE, check=True).stdout))
"""


def test_worker_answers_and_its_return_is_an_exit_with_zero(crew: Crew) -> None:
    pid = crew.started(7)
    assert crew.ask(7, "import os; answer(os.getpid())") == pid
    crew.sockets[7][0].close()
    assert crew.wait_for(Exited, 7) == Exited(7, pid, 0)


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import os; os._exit(3)", 3),
        ("raise SystemExit(4)", 4),
        ("raise SystemExit('words')", 1),
        ("raise ValueError", 1),
    ],
)
def test_every_end_is_reported_with_its_status(crew: Crew, source: str, status: int) -> None:
    pid = crew.started(1)
    crew.tell(1, source)
    assert crew.wait_for(Exited, 1) == Exited(1, pid, status)


def test_traceback_of_a_worker_that_broke_is_on_its_stderr(crew: Crew, tmp_path: Path) -> None:
    with open(tmp_path / "output", "wb") as output:
        crew.spawn(1, stdout=output.fileno())
    crew.tell(1, "print('a line'); print('no newline', end=''); raise ValueError('broken')")
    crew.wait_for(Exited, 1)
    text = (tmp_path / "output").read_text()
    assert "a line\n" in text
    assert "no newline" in text
    assert "ValueError: broken" in text


def test_stopped_worker_is_killed(crew: Crew) -> None:
    pid = crew.started(1)
    os.kill(pid, signal.SIGSTOP)
    crew.server.kill(1)
    assert crew.wait_for(Exited, 1) == Exited(1, pid, -signal.SIGKILL)


def test_kill_right_after_spawn_and_kill_of_nobody(crew: Crew) -> None:
    crew.spawn(1)
    crew.server.kill(1)
    crew.server.kill(99)
    assert crew.wait_for(Exited, 1).status == -signal.SIGKILL


def test_abandoned_process_lives_with_its_worker_and_dies_with_it(crew: Crew) -> None:
    crew.started(1)
    crew.started(2)
    sleeper = crew.ask(1, DETACHED_SLEEPER)
    handle = watched(sleeper)
    crew.server.kill(2)
    crew.wait_for(Exited, 2)
    crew.started(3)
    assert is_alive(sleeper)
    crew.sockets[1][0].close()
    crew.wait_for(Exited, 1)
    assert_ends(handle)


def test_children_of_a_killed_worker_are_gone(crew: Crew) -> None:
    crew.started(1)
    child = crew.ask(1, "import subprocess; answer(subprocess.Popen(['sleep', '1000']).pid)")
    handle = watched(child)
    crew.server.kill(1)
    crew.wait_for(Exited, 1)
    assert_ends(handle)


def test_affinity_environment_path_and_directory_are_applied(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    cpu = max(os.sched_getaffinity(0))
    crew.spawn(1, cpus=(cpu,), environ={"OMP_NUM_THREADS": "3"})
    assert crew.ask(1, "import os; answer(os.sched_getaffinity(0))") == {cpu}
    assert crew.ask(1, "import subprocess; answer(subprocess.getoutput('echo $OMP_NUM_THREADS'))") == "3"
    assert crew.ask(1, "import os, sys; answer((os.getcwd(), sys.path[0]))") == (
        str(tmp_path),
        str(tmp_path / "modules"),
    )


def test_tasks_see_the_arguments_of_the_main_program_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["app.py", *(f"sample-{number:06}.fastq" for number in range(20_000))]
    monkeypatch.setattr(sys, "argv", arguments)
    with contextlib.closing(Crew()) as crew:
        crew.spawn(1)
        assert crew.ask(1, "import sys; answer((len(sys.argv), sys.argv[0], sys.argv[-1]))") == (
            20_001,
            "app.py",
            "sample-019999.fastq",
        )


def test_affinity_that_this_machine_refuses_is_ignored(crew: Crew) -> None:
    crew.spawn(1, cpus=(100_000,))
    assert crew.ask(1, "answer('here')") == "here"


def test_worker_starts_with_clean_state(crew: Crew) -> None:
    crew.started(1)
    crew.started(2)
    draw = "import random; answer(random.random())"
    assert crew.ask(1, draw) != crew.ask(2, draw)
    state = "import os, signal; answer((os.getpgid(0) == os.getpid(), signal.getsignal(signal.SIGINT).name, "
    state += "signal.getsignal(signal.SIGTERM).name, signal.getsignal(signal.SIGCHLD).name, os.read(0, 1)))"
    assert crew.ask(2, state) == (True, "SIG_IGN", "SIG_DFL", "SIG_DFL", b"")
    # Standard streams and its two sockets; the sixth is the listing itself.
    assert crew.ask(2, "import os; answer(len(os.listdir('/proc/self/fd')))") == 6
    assert crew.ask(2, "import subprocess; answer(subprocess.getoutput('ls /proc/self/fd').split())") == list("0123")


def test_preloaded_module_is_there_in_later_workers_and_a_missing_one_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "loaded")
    (tmp_path / "preloaded_by_test.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w').write('1')")
    monkeypatch.syspath_prepend(str(tmp_path))
    is_loaded = "import sys; answer('preloaded_by_test' in sys.modules)"
    with contextlib.closing(Crew(preload=["no_such_module_at_all", "preloaded_by_test"])) as crew:
        crew.started(1)
        assert crew.ask(1, is_loaded) is False
        # Opening our end of the named pipe waits until the guardian imports the module.
        assert (tmp_path / "loaded").read_text() == "1"
        crew.started(2)
        assert crew.ask(2, is_loaded) is True


def test_two_hundred_workers_leave_no_descriptor_behind(crew: Crew) -> None:
    crew.started(0)
    guardian = f"/proc/{crew.server.pid}/fd"
    ours, theirs = len(os.listdir("/proc/self/fd")), len(os.listdir(guardian))
    for worker_id in range(1, 201):
        crew.spawn(worker_id)
        for end in crew.sockets.pop(worker_id):
            end.close()
    for worker_id in range(1, 201):
        assert crew.wait_for(Exited, worker_id).status == 0
    assert len(os.listdir("/proc/self/fd")) == ours
    assert len(os.listdir(guardian)) == theirs


def test_close_ends_busy_workers_and_what_they_started_and_removes_the_directories(
    crew_with_directory: Crew, run_directory: Path, tmp_path: Path
) -> None:
    crew = crew_with_directory
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run_directory / "link").symlink_to(elsewhere)
    pids = [crew.started(worker_id) for worker_id in range(3)]
    sleeper = crew.ask(0, DETACHED_SLEEPER)
    for worker_id in range(3):
        crew.tell(worker_id, "while True: pass")
    begin = time.monotonic()
    crew.server.close()
    assert time.monotonic() - begin < 300
    assert [pid for pid in [*pids, sleeper, crew.server.pid] if is_alive(pid)] == []
    assert not run_directory.exists()
    assert elsewhere.exists()
    with pytest.raises(RuntimeStopped):
        crew.spawn(9)


def test_close_can_keep_the_directories(crew_with_directory: Crew, run_directory: Path) -> None:
    crew_with_directory.started(1)
    crew_with_directory.server.close(remove=False)
    assert run_directory.exists()


def test_close_does_not_wait_for_a_guardian_that_hangs(crew_with_directory: Crew, run_directory: Path) -> None:
    crew = crew_with_directory
    handles = [watched(crew.started(1)), watched(crew.ask(1, DETACHED_SLEEPER))]
    os.kill(crew.server.pid, signal.SIGSTOP)
    begin = time.monotonic()
    crew.server.close()
    assert time.monotonic() - begin < 30
    for handle in handles:
        assert_ends(handle)
    assert not run_directory.exists()


def test_guardian_killed_takes_all_with_it_and_is_reported(crew: Crew) -> None:
    pids = [crew.started(worker_id) for worker_id in (1, 2)]
    sleeper = crew.ask(1, DETACHED_SLEEPER)
    crew.tell(2, "while True: pass")
    handles = [watched(pid) for pid in [*pids, sleeper]]
    os.kill(crew.server.pid, signal.SIGKILL)
    crew.spawn(3)
    assert "status -9" in crew.wait_for(ServerLost).reason
    ends = {notice for notice in crew.heard if isinstance(notice, Exited)}
    assert ends == {Exited(1, pids[0], -9), Exited(2, pids[1], -9), Exited(3, 0, -9)}
    for handle in handles:
        assert_ends(handle)
    assert crew.server.notices() == []
    crew.spawn(4)
    assert crew.server.notices() == [Exited(4, 0, -9)]


def test_guardian_that_cannot_load_the_worker_says_why() -> None:
    with contextlib.closing(Crew(entry="tests.faults.told_worker:no_such_function")) as crew:
        # A request that is never read must not cost us the guardian's last words.
        crew.spawn(1)
        assert "no_such_function" in crew.wait_for(ServerLost).reason
        assert crew.heard[0] == Exited(1, 0, -9)


def test_signals_to_the_whole_job_do_not_end_the_guardian(crew: Crew) -> None:
    crew.started(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(crew.server.pid, number)
    crew.started(2)


def test_child_list_of_the_kernel_equals_the_search() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        try:
            assert child.pid in forkserver_main.children_of_this_process()
            assert set(forkserver_main.children_of_this_process()) == set(forkserver_main._children_by_search())
        finally:
            child.kill()


MAIN_PROGRAM = """
import os, signal, sys
sys.path.insert(0, os.getcwd())
from tests.faults.test_forkserver import Crew, DETACHED_SLEEPER
crew = Crew(cleanup=[{run!r}])
pids = [crew.started(worker_id) for worker_id in (1, 2)]
pids.append(crew.ask(1, DETACHED_SLEEPER))
pids.append(crew.server.pid)
crew.tell(2, "while True: pass")
{twist}
print(*pids, flush=True)
{ending}
"""

FORK = "pids.append(os.fork())\nif pids[-1] == 0:\n    signal.pause()\nforked = pids.pop()"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("twist", "ending"),
    [
        ("", "signal.pause()"),
        # The fork holds the socket open, so that the guardian sees no end of file.
        (FORK + "\nopen({fork!r}, 'w').write(str(forked))", "signal.pause()"),
        ("", "os._exit(0)"),
        ("", "raise ValueError('in the main program')"),
        ("", "os.execvp('true', ['true'])"),
    ],
    ids=["killed", "killed while a fork of it lives", "vanished", "raised", "replaced by exec"],
)
def test_nothing_is_left_when_the_main_program_is_gone(
    run_directory: Path, tmp_path: Path, twist: str, ending: str
) -> None:
    fork = tmp_path / "fork"
    source = MAIN_PROGRAM.format(run=str(run_directory), twist=twist.format(fork=str(fork)), ending=ending)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        try:
            assert program.stdout is not None
            handles = [watched(int(pid)) for pid in program.stdout.readline().split()]
            assert len(handles) == 4
            if ending == "signal.pause()":
                program.kill()
            for handle in handles:
                assert_ends(handle)
            assert not run_directory.exists()
        finally:
            program.kill()
            if fork.exists():
                os.kill(int(fork.read_text()), signal.SIGKILL)


def test_fork_of_the_main_program_does_not_end_its_workers(crew: Crew) -> None:
    crew.started(1)
    if (pid := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            crew.server.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert crew.ask(1, "answer('still here')") == "still here"
