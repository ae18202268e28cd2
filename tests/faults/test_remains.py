"""What runs leave that are killed before anybody looks after them goes with the next run; what lives is let alone."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.moments import SOME_MOMENTS, moments
from tests.own_place import user_environment
from tests.patience import becomes

import penstock
from penstock.executors import disposable
from penstock.executors.disposable import hold, let_go, sweep
from penstock.executors.layer_files import LayerFolder
from penstock.executors.layer_table import LEASE, LayerTable

pytestmark = pytest.mark.timeout(180)

#: Ends itself at the Nth thing that it does to the file system or to processes, from the start of the run on.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from penstock import FILE_OUT, barrier, start, task

@task(path=FILE_OUT)
def write(path):
    Path(path).write_text("x")

settings, last = eval(sys.argv[1]), int(sys.argv[2])
seen, mine = 0, os.getpid()

def count(event, arguments):
    global seen
    if event in ("os.mkdir", "fcntl.flock", "subprocess.Popen", "os.rename") or (
        event == "open" and "penstock-" in str(arguments[0])
    ):
        seen += 1
        if seen == last and os.getpid() == mine:
            os.kill(mine, signal.SIGKILL)

sys.addaudithook(count)
start(**settings)
write("out")
barrier()
print(seen)
"""

MODES = {"parallel": "dict(cpus=1, {})", "inline": "dict(mode='inline', {})"}


class Place:
    """Directories for runs of their own: whatever lies there, they have left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("memory", "spill", "temporary", "mount"):
            (folder / name).mkdir()
        self.settings = f"memory_dir={str(folder / 'memory')!r}, spill_dir={str(folder / 'spill')!r}"
        (folder / "program.py").write_text(PROGRAM)

    def run(self, mode: str, last: int = 0) -> subprocess.CompletedProcess[str]:
        source = str(Path(penstock.__file__).parents[1])
        environment = {**user_environment(), "PYTHONPATH": source, "TMPDIR": str(self.folder / "temporary")}
        command = [sys.executable, "program.py", MODES[mode].format(self.settings), str(last)]
        return subprocess.run(
            command, check=False, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )

    def left(self) -> list[str]:
        return [
            path.name
            for name in ("memory", "spill", "temporary", "mount")
            for path in (self.folder / name).iterdir()
            if path.name.startswith("penstock-")
        ]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@SOME_MOMENTS
@pytest.mark.parametrize("mode", MODES)
def test_whatever_a_run_leaves_that_is_killed_while_it_starts_goes_with_the_next(
    place: Place, mode: str, every: int
) -> None:
    whole = place.run(mode)
    assert whole.returncode == 0, whole.stderr
    count = int(whole.stdout)
    assert count >= 3
    left = set()
    for last in moments(count + 1, every):
        killed = place.run(mode, last)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        left.update(place.left())
    assert left  # or this would test nothing
    assert place.run(mode).returncode == 0
    assert becomes(lambda: not place.left()), place.left()


# --- what is swept, and what is not -----------------------------------------------------------------------------------

#: the number of no process: the largest that a kernel gives is smaller
NOBODY = 1 << 23
NAME = f"penstock-{os.getuid()}-{NOBODY}-0123abcd"

HOLDER = """
import sys
from penstock.executors.disposable import hold
for directory in sys.argv[1:]:
    hold(directory)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes that hold directories."""
    processes = []

    def start(*directories: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *map(str, directories)],
            env={**user_environment(), "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_run_that_lives_keeps_its_directories_even_if_its_process_cannot_be_seen(
    tmp_path: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    folder = LayerFolder(str(tmp_path), NAME)
    held = [tmp_path / NAME, tmp_path / f"{NAME}-spill", Path(folder.work)]
    process = holder(*held)
    for directory in held:
        (directory / "data").write_text("x")
    assert sweep([str(tmp_path)]) == []
    assert all((directory / "data").exists() for directory in held)
    process.kill()
    process.wait()
    assert len(sweep([str(tmp_path)])) == 3
    assert list(tmp_path.iterdir()) == []


def test_finished_files_on_a_layer_stay(tmp_path: Path, holder: Callable[..., subprocess.Popen[str]]) -> None:
    folder = LayerFolder(str(tmp_path), NAME)
    process = holder(Path(folder.work))
    kept = Path(folder.finished("result", 1, 0, temp=False))
    kept.parent.mkdir(parents=True)
    kept.write_text("precious")
    process.kill()
    process.wait()
    sweep([str(tmp_path)])
    assert kept.read_text() == "precious"
    assert not os.path.exists(folder.work)


def test_folders_beside_files_that_a_dead_run_was_writing_go_with_it(
    tmp_path: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    runs, work = tmp_path / "runs", tmp_path / "work"
    runs.mkdir()
    work.mkdir()
    process = holder(runs / NAME)
    private = work / f".{NAME}-1"
    private.mkdir()
    (runs / NAME / private.name).symlink_to(private)
    (runs / NAME / "other").symlink_to(tmp_path)
    process.kill()
    process.wait()
    sweep([str(runs)])
    assert list(work.iterdir()) == []
    assert list(runs.iterdir()) == []


def test_what_only_looks_like_a_run_stays(tmp_path: Path) -> None:
    others = os.getuid() + 1
    strange = [f"penstock-{others}-1-0123abcd", "penstock-x", f"{NAME}-undelivered", f"x{NAME}", f"{NAME}x"]
    for name in strange:
        (tmp_path / name).mkdir()
    (tmp_path / f"{NAME[:-1]}0").write_text("a file")
    (tmp_path / "target").mkdir()
    (tmp_path / f"{NAME[:-1]}1").symlink_to(tmp_path / "target")
    (tmp_path / f"{NAME[:-1]}2").mkdir()
    (tmp_path / f"{NAME[:-1]}2" / "table").write_text("never locked: not known whose")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert sweep([str(tmp_path), str(tmp_path / "missing")]) == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_what_another_machine_has_locked_stays(tmp_path: Path) -> None:
    directory = tmp_path / NAME
    directory.mkdir()
    (directory / "owner").write_text("the lock of another machine is not seen on every file system")
    (directory / "data").write_text("x")
    assert sweep([str(tmp_path)]) == []
    assert (directory / "data").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to give files away")
def test_what_another_user_has_made_under_our_name_stays(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    os.chown(tmp_path / NAME, 12345, 12345)
    assert sweep([str(tmp_path)]) == []
    assert (tmp_path / NAME).exists()


def test_an_empty_directory_that_a_living_process_has_just_made_stays(tmp_path: Path) -> None:
    directory = tmp_path / f"penstock-{os.getuid()}-{os.getpid()}-0123abcd"
    directory.mkdir()
    assert sweep([str(tmp_path)]) == []
    os.utime(directory, (0, 0))  # the number has been given to another process since
    assert sweep([str(tmp_path)]) == [str(directory)]


def test_a_sweep_that_was_killed_half_way_is_completed(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}-dead").mkdir()
    (tmp_path / f"{NAME}-dead" / "data").write_text("x")
    sweep([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["made", "opened"])
def test_a_directory_that_is_swept_while_it_is_being_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    directory = tmp_path / NAME
    swept: list[str] = []
    makedirs, flock = os.makedirs, fcntl.flock

    def make_and_sweep(path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        makedirs(path, mode, exist_ok)
        if not swept:
            swept.extend(sweep([str(tmp_path)]))

    def sweep_and_lock(descriptor: int, operation: int) -> None:
        if not swept and operation == fcntl.LOCK_EX:
            swept.append(str(directory))
            assert sweep([str(tmp_path)]) == swept
        flock(descriptor, operation)

    if moment == "made":
        monkeypatch.setattr(os, "makedirs", make_and_sweep)
    else:
        monkeypatch.setattr(disposable.fcntl, "flock", sweep_and_lock)
    hold(str(directory))
    try:
        assert swept == [str(directory)]
        assert directory.is_dir()
        assert sweep([str(tmp_path)]) == []
    finally:
        let_go([str(directory)])


def test_a_sweep_of_a_folder_that_a_program_is_about_to_lock_does_not_take_its_line(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    work = tmp_path / f"{NAME}-layer" / "work"
    work.mkdir(parents=True)
    (work / "owner").touch()
    with table.held() as held:
        line = table.line(NAME)
        line.may_hold, line.until = 40.0, time.monotonic() + LEASE
        held.write(line)
    assert sweep([str(tmp_path)])
    assert not work.exists()
    with table.held() as held:
        assert held.others("") == [line]


def test_a_fork_of_the_program_does_not_keep_its_directories(tmp_path: Path) -> None:
    directory = tmp_path / NAME
    hold(str(directory))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        os.close(reader)
        assert sweep([str(tmp_path)]) == []
        let_go([str(directory)])
        assert becomes(lambda: sweep([str(tmp_path)]))
    finally:
        os.close(writer)
        os.waitpid(child, 0)
