"""`penstock recover` that is killed at any moment, and done again: all is home, and nothing was ever lost.

What a killed run left is made by hand here, with all that can be found in it; test_recover.py has it from real ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.layers import folder_in_memory, names_in, remains
from tests.faults.programs import surroundings
from tests.moments import SOME_MOMENTS, moments

from penstock.executors.layer_files import LayerFolder
from penstock.executors.layer_runs import first_line, note_home
from penstock.runtime import bringing_home, finding_names

pytestmark = pytest.mark.timeout(180)

#: the number of no process: the largest that a kernel gives is smaller
NOBODY = 1 << 23
NAME = f"penstock-{os.getuid()}-{NOBODY}-0123abcd"

#: Ends itself at the Nth thing that it does to the file system.
PROGRAM = """
import os, signal, sys
seen, last = 0, int(sys.argv.pop(1))
changes = ("os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
def count(event, arguments):
    global seen
    if event in changes or (event == "open" and "penstock-" in str(arguments[0])):
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)
from penstock.runtime.bringing_home import recover
sys.addaudithook(count)
for deed in recover(sys.argv[1], [sys.argv[2]]):
    print(deed.what, deed.path, deed.about)
print(seen)
"""


class Remains:
    """What a run left that was killed on the way home."""

    def __init__(self, folder: Path, layer: Path) -> None:
        self.home, self.layer, self.cache = folder / "home", layer, folder / "cache"
        self.home.mkdir(parents=True)
        self.folder = LayerFolder(str(layer), NAME)
        os.makedirs(self.folder.work)
        (layer / f"{NAME}-layer" / "run").write_bytes(first_line())
        note_home(self.folder.root, str(self.home))

    def keep(self, name: str, text: str, task: int, *, linked: bool = True, temp: bool = False) -> Path:
        """A file that a task wrote."""
        kept = Path(self.folder.finished(str(self.home / name), task, 0, temp=temp))
        kept.parent.mkdir(parents=True)
        kept.write_text(text)
        if linked:
            (self.home / name).symlink_to(kept)
        return kept

    def recover(self, last: int = 0, *, directory: Path | None = None, status: int = 0) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(last), str(directory or self.home), str(self.layer)],
            env=surroundings(XDG_CACHE_HOME=str(self.cache)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def layer() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


def everything(folder: Path, layer: Path) -> Remains:
    left = Remains(folder, layer)
    left.keep("a", "of a", 1)
    left.keep("b", "of b", 2)
    os.link(left.home / "b", left.home / "b2", follow_symlinks=False)
    left.keep("home already", "the same", 3, linked=False)
    (left.home / "home already").write_text("the same")
    os.utime(left.keep("updated", "old", 4, linked=False), (1, 1))
    left.keep("updated", "new", 5)
    left.keep("not named yet", "whole", 6, linked=False)
    left.keep("temp", "t", 7, temp=True)
    (left.home / f".penstock-1234abcd-{NOBODY}").write_text("ha")
    kept = left.keep("moving", "of moving", 8)
    (kept.parent / f".penstock-abcd-{NOBODY}").write_text("hal")
    (Path(left.folder.work) / "half").write_text("hal")
    return left


CONTENT = {
    "a": "of a",
    "b": "of b",
    "b2": "of b",
    "home already": "the same",
    "updated": "new",
    "not named yet": "whole",
    "moving": "of moving",
}


@SOME_MOMENTS
def test_killed_at_any_moment_it_is_finished_by_the_next(tmp_path: Path, layer: Path, every: int) -> None:
    count = int(everything(tmp_path / "0", layer).recover()[-1])
    assert count > 20
    for last in moments(count + 1, every):
        left = everything(tmp_path / f"{last}", layer)
        left.recover(last, status=-signal.SIGKILL)
        for name, text in CONTENT.items():
            if name != "not named yet":
                assert (left.home / name).read_text() == text, f"{name} after {last}"
        left.recover()
        assert {name: (left.home / name).read_text() for name in names_in(left.home)} == CONTENT, f"after {last}"
        assert not [name for name in CONTENT if (left.home / name).is_symlink()]
        assert remains(layer) == []


def test_a_layer_that_was_described_by_a_link(tmp_path: Path, layer: Path) -> None:
    by_link = tmp_path / "by-link"
    by_link.symlink_to(layer)
    left = everything(tmp_path / "here", by_link)
    left.recover()
    assert {name: (left.home / name).read_text() for name in names_in(left.home)} == CONTENT
    assert remains(layer) == []


def test_what_somebody_else_put_into_the_folder_stays_and_is_named(tmp_path: Path, layer: Path) -> None:
    left = Remains(tmp_path, layer)
    left.keep("a", "of a", 1)
    strange = Path(left.folder.root) / "notes"
    strange.write_text("mine")
    assert f"left {strange} it is not known what it is: look, then remove it" in left.recover()
    assert (left.home / "a").read_text() == "of a"
    assert strange.read_text() == "mine"


def test_a_file_whose_name_is_nowhere_stays_and_is_named(tmp_path: Path, layer: Path) -> None:
    left = Remains(tmp_path, layer)
    kept = left.keep("a", "of a", 1)
    away = tmp_path / "away"
    left.home.rename(away)
    (tmp_path / "other").mkdir()
    told = left.recover(directory=tmp_path / "other")
    assert f"left {kept} no name here leads to it: run `penstock recover` where its name is, or remove it" in told
    assert (away / "a").read_text() == "of a"
    left.recover(directory=away)
    assert (away / "a").read_text() == "of a"
    assert remains(layer) == []


def test_a_newer_version_that_has_not_got_the_name_is_not_lost(tmp_path: Path, layer: Path) -> None:
    left = Remains(tmp_path, layer)
    os.utime(left.keep("a", "old", 1), (1, 1))
    newer = left.keep("a", "new", 2, linked=False)
    told = left.recover()
    assert f"left {newer} {left.home / 'a'} is another file now, and stays: compare them, and remove one" in told
    assert ((left.home / "a").read_text(), newer.read_text()) == ("old", "new")


def test_a_file_that_is_lost_is_named(tmp_path: Path, layer: Path) -> None:
    left = Remains(tmp_path, layer)
    kept = left.keep("a", "of a", 1)
    kept.unlink()
    told = left.recover()
    assert f"left {left.home / 'a'} the file is lost: it leads to {kept}, and nothing is there" in told
    assert (left.home / "a").is_symlink()


def test_folders_of_a_measurement_that_was_killed_go(tmp_path: Path, layer: Path) -> None:
    left = Remains(tmp_path, layer)
    probe = left.home / f".penstock-probe-{NOBODY}-0123abcd"
    probe.mkdir()
    (probe / "stream-0").write_text("x")
    living = left.home / f".penstock-probe-{os.getpid()}-0123abcd"
    living.mkdir()
    left.recover()
    assert names_in(left.home) == [living.name]


def test_folders_of_tasks_from_before_the_machine_was_started_go(
    tmp_path: Path, layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Remains(tmp_path, layer)
    unfinished, *finished = (left.home / f".{NAME}-7-{owner}-1234abcd" for owner in ("3", "3.0", "done.0"))
    for folder in (unfinished, *finished):
        folder.mkdir()
        (folder / "file").write_text("x")
    list(bringing_home.recover(str(left.home), []))
    assert len(names_in(left.home)) == 3  # they may be of a run that lives, in a container of its own
    monkeypatch.setattr(finding_names, "boot_time", lambda: time.time() + 1)
    list(bringing_home.recover(str(left.home), []))
    assert names_in(left.home) == sorted(folder.name for folder in finished)


@pytest.mark.parametrize("name", [".penstock-1234abcd-1", ".penstock-1234", ".penstock-node-12"])
def test_hidden_files_of_living_processes_and_of_others_stay(tmp_path: Path, layer: Path, name: str) -> None:
    left = Remains(tmp_path, layer)
    (left.home / name.replace("-1234abcd-1", f"-1234abcd-{os.getpid()}")).write_text("x")
    before = names_in(left.home)
    left.recover()
    assert names_in(left.home) == before
