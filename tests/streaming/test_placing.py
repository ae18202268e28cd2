"""The user's directory stands aside while a workflow lives in memory, and comes back whatever happens."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.own_place import memory_dir

from penstock.errors import ConfigError
from penstock.streaming import drain as drain_module
from penstock.streaming import placement
from penstock.streaming.drain import Drain, punch
from penstock.streaming.folders import RunFolders, lock_directory
from penstock.streaming.placement import Placement, put_back, repair, true_root


@pytest.fixture(autouse=True)
def _own_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left_behind: None) -> None:
    (tmp_path / "r").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "r"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "input.txt").write_text("input")
    (folder / "sub" / "more.txt").write_text("more")
    (folder / "old.out").write_text("old")
    (folder / "kept").mkdir()
    (folder / "kept" / "x").write_text("x")
    (folder / "link").symlink_to("input.txt")
    return folder


@pytest.fixture
def folders(work: Path) -> Iterator[RunFolders]:
    folders = RunFolders("test", str(work), "", str(memory_dir()))
    folders.make()
    yield folders
    folders.remove()


def begun(work: Path, folders: RunFolders) -> Placement:
    placed = Placement(str(work), folders)
    placed.begin(lambda name: name.endswith(".out"), lambda name: name.split("/")[0] == "kept")
    return placed


def test_inputs_are_seen_and_new_files_vanish(work: Path, folders: RunFolders) -> None:
    inode = work.stat().st_ino
    placed = begun(work, folders)
    assert work.is_symlink() and work.resolve() == Path(placed.files)
    assert (work / "input.txt").read_text() == "input"
    assert (work / "sub" / "more.txt").read_text() == "more"
    assert (work / "link").read_text() == "input"
    assert sorted(os.listdir(work)) == ["input.txt", "kept", "link", "old.out", "sub"]
    assert not (work / "input.txt").is_symlink() and os.readlink(work / "link") == "input.txt"
    (work / "new.txt").write_text("new")
    (work / "sub" / "deep" / "new.txt").write_text("new")
    placed.end()
    assert not work.is_symlink() and work.stat().st_ino == inode
    assert sorted(str(path.relative_to(work)) for path in work.rglob("*") if path.is_file()) == [
        "input.txt",
        "kept/x",
        "link",
        "old.out",
        "sub/more.txt",
    ]


def test_an_old_output_is_a_copy_and_an_excluded_folder_the_real_one(work: Path, folders: RunFolders) -> None:
    placed = begun(work, folders)
    (work / "old.out").write_text("rewritten")
    (work / "kept" / "y").write_text("y")
    placed.end()
    assert (work / "old.out").read_text() == "old"
    assert (work / "kept" / "y").read_text() == "y"


def test_who_stands_in_the_directory_stays_in_it(work: Path, folders: RunFolders) -> None:
    before = os.getcwd()
    os.chdir(work)
    try:
        placed = begun(work, folders)
        placed.end()
        assert os.getcwd() == str(work)
    finally:
        os.chdir(before)


def test_without_exchange_it_takes_more_steps_and_ends_the_same(
    work: Path, folders: RunFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def renameat2(self, *arguments: object) -> int:
            placement.ctypes.set_errno(22)
            return -1

    monkeypatch.setattr(placement, "_libc", Refusing())
    placed = begun(work, folders)
    assert work.is_symlink() and (work / "input.txt").read_text() == "input"
    placed.end()
    assert not work.is_symlink() and (work / "input.txt").read_text() == "input"
    assert not os.path.lexists(placed.aside)


def aside_of(work: Path) -> Path:
    return work.parent / f".{work.name}.penstock"


def dead_link(folder: Path) -> None:
    folder.symlink_to(memory_dir() / f"penstock-{os.getuid()}-999999999-0123abcd" / "files")


@pytest.mark.parametrize("picture", ["link aside", "exchanged", "moved away", "nothing"])
def test_from_each_picture_a_kill_can_leave_the_directory_comes_back(work: Path, picture: str) -> None:
    if picture == "link aside":
        dead_link(aside_of(work))
    elif picture == "exchanged":
        work.rename(aside_of(work))
        dead_link(work)
    elif picture == "moved away":
        work.rename(aside_of(work))
    assert true_root(str(work)) == str(work)
    assert put_back(str(work)) is (picture != "nothing")
    assert not work.is_symlink() and (work / "input.txt").read_text() == "input"
    assert not os.path.lexists(aside_of(work))


def test_a_directory_made_anew_meanwhile_is_not_touched(work: Path) -> None:
    work.rename(aside_of(work))
    work.mkdir()
    with pytest.raises(ConfigError, match="look at both"):
        put_back(str(work))
    assert (aside_of(work) / "input.txt").exists()


def place_and_die(work: Path, moment: int) -> int:
    """In a process of its own: begin and end a placement, killed at its n-th step; the status of that process."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]

    def die_in_time(event: str, arguments: object) -> None:
        nonlocal moment
        if event in ("os.symlink", "os.rename", "os.mkdir", "ctypes.call_function", "os.remove"):
            moment -= 1
            if moment == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die_in_time)
    folders = RunFolders("killed", str(work), "", str(memory_dir()))
    folders.make()
    placed = begun(work, folders)
    (work / "new.txt").touch()
    placed.end()
    folders.remove()
    os._exit(0)


def test_killed_at_every_step_it_loses_nothing(work: Path, tmp_path: Path) -> None:
    for moment in range(1, 100):
        status = place_and_die(work, moment)
        repair(str(work))
        assert not work.is_symlink()
        assert (work / "input.txt").read_text() == "input" and (work / "old.out").read_text() == "old"
        assert not (work / "new.txt").exists()
        assert not os.path.lexists(aside_of(work))
        assert not list((tmp_path / "r").glob("*/stream-*"))
        if status == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    else:
        pytest.fail("it never came to its end")
    assert moment > 8


def test_two_workflows_cannot_have_one_directory(work: Path) -> None:
    held = "import sys; from penstock.streaming.folders import lock_directory\n"
    held += "with lock_directory(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", held, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"process {other.pid}"), lock_directory(str(work)):
            pass
        other.kill()  # the kernel lets go of the lock
    with lock_directory(str(work)):
        pass


# --- delivery ---------------------------------------------------------------------------------------------------------


def test_a_delivered_file_has_content_rights_and_holes(tmp_path: Path) -> None:
    source = tmp_path / "from" / "a" / "b" / "file"
    source.parent.mkdir(parents=True)
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(64 << 20)
        file.write(b"end")
        file.truncate(100 << 20)
    source.chmod(0o751)
    os.utime(source, ns=(10**18, 10**18 + 7))
    target = tmp_path / "to" / "a" / "b" / "file"
    drain = Drain(str(tmp_path / "from"), str(tmp_path / "to"), lambda name, size: None)
    drain.submit("a/b/file")
    drain.finish()
    about = target.stat()
    assert about.st_size == 100 << 20 and about.st_mode & 0o777 == 0o751 and about.st_mtime_ns == 10**18 + 7
    assert about.st_blocks * 512 < 8 << 20
    assert target.read_bytes()[:5] == b"begin" and os.listdir(target.parent) == ["file"]


@pytest.mark.parametrize("mode", [0o4755, 0o400, 0o666, 0o2070])
def test_a_delivered_file_has_its_rights_whatever_the_mask(tmp_path: Path, mode: int) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    (source / "file").write_text("content")
    (source / "file").chmod(mode)
    drain = Drain(str(source), str(target), lambda name, size: None)
    drain.submit("file")
    drain.finish()
    assert stat.S_IMODE((target / "file").stat().st_mode) == mode


def test_what_has_changed_since_its_delivery_is_not_taken_for_delivered(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    for name in ("same", "longer", "gone"):
        (source / name).write_text("1")
    delivered: list[str] = []
    drain = Drain(str(source), str(target), lambda name, size: delivered.append(name))
    for name in ("same", "longer", "gone"):
        drain.submit(name)
    while len(delivered) < 3:
        pass
    (source / "longer").write_text("22")
    (source / "gone").unlink()
    found = {name for name in ("same", "longer", "gone", "never") if drain.has_taken_up(name)}
    drain.finish()
    assert found == {"same"}


def test_a_file_that_waits_for_its_delivery_need_not_be_asked_for_again(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    for name in ("first", "waits"):
        (source / name).write_text("1")
    arrived, go_on = threading.Event(), threading.Event()

    def stop(name: str, size: int) -> None:
        arrived.set()
        go_on.wait()

    drain = Drain(str(source), str(target), stop)
    drain.submit("first")
    arrived.wait()
    drain.submit("waits")
    found = {name for name in ("first", "waits", "never") if drain.has_taken_up(name)}
    go_on.set()
    drain.finish()
    assert found == {"first", "waits"} and (target / "waits").exists()


def test_a_copy_whose_folder_was_a_file_until_just_now_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, staging = tmp_path / "from", tmp_path / "to", tmp_path / "staging"
    for folder in (source / "was_file", target, staging):
        folder.mkdir(parents=True)
    (source / "was_file" / "made").write_text("new")
    (target / "was_file").write_text("a file in the way")
    arrived, go_on, sync = threading.Event(), threading.Event(), drain_module._sync

    def stop(copies: list[drain_module._Copy]) -> None:
        arrived.set()
        go_on.wait()
        sync(copies)

    monkeypatch.setattr(drain_module, "_sync", stop)
    drain = Drain(str(source), str(target), lambda name, size: None, str(staging))
    drain.submit("was_file/made")
    arrived.wait()
    (target / "was_file").unlink()
    assert not drain.has_taken_up("was_file/made")
    drain.submit("was_file/made")
    go_on.set()
    drain.finish()
    assert (target / "was_file" / "made").read_text() == "new" and not drain.failures


def test_a_delivery_that_fails_leaves_the_old_file_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "x").write_text("new")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "x").mkdir()  # a directory in the way
    drain = Drain(str(tmp_path / "from"), str(tmp_path / "to"), lambda name, size: None)
    drain.submit("x")
    drain.finish()
    assert "x" in drain.failures
    assert os.listdir(tmp_path / "to") == ["x"]


def test_what_was_removed_after_its_delivery_goes_from_its_place(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    (source / "gone").write_text("1")
    (source / "stays").write_text("2")
    delivered: list[str] = []
    drain = Drain(str(source), str(target), lambda name, size: delivered.append(name))
    drain.submit("gone")
    drain.submit("stays")
    while len(delivered) < 2:
        pass
    (source / "gone").unlink()
    drain.finish()
    assert os.listdir(target) == ["stays"]


@pytest.mark.parametrize("count", [3, 30])
def test_no_file_has_its_name_before_it_is_on_the_disk(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    for folder in (source / "a", source / "b", target):
        folder.mkdir(parents=True)
    names = [f"{'ab'[number % 2]}/{number}" for number in range(count)]
    for name in names:
        (source / name).write_text(name)
    happened: list[str] = []

    class Noting:
        def syncfs(self, descriptor: int) -> int:
            happened.append("sync all")
            return 0

    def fsync(descriptor: int) -> None:
        happened.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")

    def rename(old: str, new: str) -> None:
        happened.append("name")
        os.replace(old, new)

    monkeypatch.setattr(drain_module, "_libc", Noting())
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    drain = Drain(str(source), str(target), lambda name, size: happened.append("told"))
    drain._waiting = dict.fromkeys(names)  # together, as they come when the thread is busy
    drain._thread.submit(drain._carry)
    drain.finish()
    syncs = ["sync file"] * count if count < 9 else ["sync all"]
    # Both folders are new, so that which they are in has new entries too.
    assert happened == [*syncs, *["name"] * count, *["sync folder"] * 3, *["told"] * count]
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*/*")) == sorted(names)


def test_files_that_cannot_be_synced_do_not_get_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "from" / "x").write_text("x")

    def fsync(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    drain = Drain(str(tmp_path / "from"), str(tmp_path / "to"), lambda name, size: None)
    drain.submit("x")
    drain.finish()
    assert drain.failures == {"x": "Input/output error"} and os.listdir(tmp_path / "to") == []


def test_punching_gives_room_back_and_keeps_the_rest() -> None:
    path = memory_dir() / "punch"
    path.write_bytes(b"a" * (4 << 20) + b"b" * 100)
    try:
        before = path.stat().st_blocks
        with path.open("r+b") as file:
            assert punch(file.fileno(), (4 << 20) + 50) == 4 << 20
        assert path.stat().st_blocks <= before - (4 << 20) // 512
        assert path.stat().st_size == (4 << 20) + 100
        assert path.read_bytes()[-100:] == b"b" * 100
    finally:
        path.unlink()


def test_what_nobody_foresaw_while_files_come_home_is_not_kept_quiet(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "from" / "file").write_text("content")

    def delivered(name: str, size: int) -> None:
        raise ValueError(f"nobody expects {name}")

    drain = Drain(str(tmp_path / "from"), str(tmp_path / "to"), delivered)
    drain.submit("file")
    with pytest.raises(ValueError, match="nobody expects file"):
        drain.finish()
