"""What programs see of a directory that is in memory is what they would see in batch, and so is what is left of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.own_place import memory_dir
from tests.patience import eventually
from tests.streaming.flows import PAIR, Flow
from tests.streaming.own_mounts import need_own_mounts, refusing_own_mounts

from penstock.streaming.table import interposer_path

FLOW = """
    name = "looks"
    permanent = ["made*", "old.out", "again/*", "was_folder", "was_file/*"]
    exclude = ["logs"]
    [[step]]
    name = "look"
    command = "sh LOOK"
    output = ["made*", "old.out", "temporary.out"]
"""

#: looks at what exists in the ways of programs that copy or archive it, then changes it in every way
LOOK = """
set -e
find . -type f | sort; find . -type l | sort
tar cf - in link logs | tar tvf - | sort
stat -c '%n %s %h %F' in in/*
cat in/data.txt link logs/old.log away
rm gone.txt; rm -r removed again; mkdir again; ls -A again; echo new > again/new.txt
echo more >> updated.txt; chmod 600 in/other.txt
mv renamed.txt made.renamed; rm was_file; mkdir was_file; echo x > was_file/made; rm -r was_folder; echo y > was_folder
echo new > old.out; echo new > temporary.out; echo line >> logs/new.log
ln in/data.txt made.hard; stat -c '%n %h' made.hard; ls -A
rm missing 2> /dev/null || echo missing
"""


def build(flow: Flow) -> None:
    """The same directory each time, to the second."""
    shutil.rmtree(flow.folder, ignore_errors=True)
    flow.folder.mkdir()
    flow.toml(FLOW.replace("LOOK", str(flow.folder.parent / "look.sh")))
    for name in ("in/data.txt", "in/other.txt", "gone.txt", "removed/deep/x", "again/old.txt", "updated.txt"):
        flow.write(name, f"{name}\n")
    for name in ("renamed.txt", "was_file", "was_folder/x", "old.out", "temporary.out", "logs/old.log"):
        flow.write(name, f"{name}\n")
    (flow.folder / "link").symlink_to("in/data.txt")
    (flow.folder / "away").symlink_to("../outside.txt")
    for path in sorted(flow.folder.rglob("*"), reverse=True):
        os.utime(path, (10**9, 10**9), follow_symlinks=False)


def tree(folder: Path) -> dict[str, str]:
    """What is in a directory: kind, permissions and content by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
        found[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {kind}"
    return found


def looked(flow: Flow, look: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """What a step of a run has seen, and what is left after it."""
    build(flow)
    (flow.folder.parent / "look.sh").write_text(look)
    (flow.folder.parent / "outside.txt").write_text("outside\n")
    ended = flow.run("--no-log", *arguments).expect()
    return [line for line in ended.out.splitlines() if "│" in line], tree(flow.folder)


def as_in_batch(flow: Flow, look: str, unseen: Callable[[str], bool]) -> None:
    shown, left = looked(flow, look, "--batch")
    seen, kept = looked(flow, look, "--memory")
    assert [line for line in seen if not unseen(line)] == [line for line in shown if not unseen(line)]
    # What is done to an output that is temporary does not last.
    assert kept.pop("temporary.out").endswith("temporary.out\n") and left.pop("temporary.out").endswith("new\n")
    assert kept == left


def test_programs_see_files_at_their_place_and_what_they_do_to_them_lasts(flow: Flow) -> None:
    need_own_mounts()
    sizes = "stat -c '%n %s' in removed\n"  # of directories
    rest = (
        "pwd -P; cat ../outside.txt; touch made.late; stat -c %d in in/data.txt made.late updated.txt | uniq | wc -l\n"
    )
    as_in_batch(flow, sizes + LOOK + rest, lambda line: False)


def test_without_a_view_of_their_own_they_see_copies(flow: Flow) -> None:
    flow.prefix = refusing_own_mounts()
    # A directory in memory has a size of its own, and an excluded one is a link.
    as_in_batch(flow, LOOK, lambda line: "directory" in line or "logs" in line)


@pytest.fixture
def of_user() -> Iterator[Flow]:
    """A folder for a workflow of somebody who is not the administrator."""
    need_own_mounts()
    if os.getuid() or not shutil.which("setpriv"):
        pytest.skip("only the administrator can be somebody else, with setpriv")
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    flow = Flow(place / "work")
    (place / "r").mkdir()
    flow.prefix = ("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups")
    flow.environment |= {"PENSTOCK_MEMORY_DIR": str(memory), "XDG_RUNTIME_DIR": str(place / "r")}
    for path in (place, memory, *place.rglob("*")):
        os.chown(path, 12345, 12345)
    try:
        started = subprocess.run([*flow.prefix, sys.executable, "-c", "import penstock"], check=False, cwd=place)
        if started.returncode:
            pytest.skip("others cannot run this Python: its folders are not open to them")
        yield flow
        assert not list(memory.iterdir()) and not list((place / "r").iterdir())
    finally:
        shutil.rmtree(place)
        shutil.rmtree(memory)


def test_an_ordinary_user_stays_who_they_are(of_user: Flow) -> None:
    of_user.toml(
        """
        name = "user"
        permanent = ["who"]
        [[step]]
        name = "a"
        command = "id -u > who; id -g >> who; find . -type f -user 12345 -name '*.toml'; pwd -P; rm -r o; mkdir o; ls o"
        output = ["who"]
        """
    )
    of_user.write("o/x", "x")
    for path in of_user.folder.rglob("*"):
        os.chown(path, 12345, 12345)
    ended = of_user.run("--memory", "--no-log").expect()
    assert ended.out == f"a │ ./flow.toml\na │ {of_user.folder}\n"
    assert of_user.read("who") == "12345\n12345\n" and (of_user.folder / "who").stat().st_uid == 12345
    assert not (of_user.folder / "o" / "x").exists()


def test_files_of_others_are_copied_for_an_ordinary_user(of_user: Flow) -> None:
    """In a user namespace they would be nobody's."""
    of_user.toml('name = "user"\n[[step]]\nname = "a"\ncommand = "find . -type f; cat theirs; pwd -P"\n')
    os.chown(of_user.write("theirs", "theirs\n"), 12346, 12346)
    ended = of_user.run("--memory", "--no-log").expect()
    assert "a │ ./theirs\n" in ended.out and "a │ theirs\n" in ended.out and "a │ /dev/shm/" in ended.out


def test_a_mount_point_is_a_directory_like_any_other(flow: Flow) -> None:
    need_own_mounts()
    flow.toml('name = "mount"\npermanent = ["new"]\n[[step]]\nname = "a"\ncommand = "ls > new"\noutput = ["new"]\n')
    mounted = 'mount --bind "$0" "$0" && cd "$0" && exec "$@"'
    flow.prefix = ("unshare", "-Urm", "sh", "-c", mounted, str(flow.folder))
    flow.run("--memory", "--no-log").expect()
    assert flow.read("new") == "consumer.py\nflow.toml\nnew\nproducer.py\n"


def test_a_mount_point_that_cannot_be_put_aside_is_named(flow: Flow) -> None:
    need_own_mounts()
    flow.toml('name = "mount"\npermanent = ["new"]\n[[step]]\nname = "a"\ncommand = "ls > new"\noutput = ["new"]\n')
    mounted = 'mount --bind "$0" "$0" && cd "$0" && echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"'
    flow.prefix = ("unshare", "-Urm", "sh", "-c", mounted, str(flow.folder))
    ended = flow.run("--memory", "--no-log").expect(2)
    assert f"{flow.folder} cannot be put aside (something is mounted there)" in ended.err
    assert len(ended.err.splitlines()) == 1 and not list(flow.folder.parent.glob(".work*"))


def test_nothing_is_left_when_everything_is_killed(flow: Flow) -> None:
    need_own_mounts()
    flow.write("precious.txt", "precious\n")
    flow.toml(PAIR.replace("20 0.01", "100000 0.01"))
    process = flow.start("run", "flow.toml", "--memory", "--no-log")
    eventually(lambda: (flow.seen_by(process) / "out.txt").exists())
    assert not (flow.folder / "out.txt").exists() and list(flow.folder.glob(".penstock-*"))
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    flow.ended(process)
    assert str(flow.folder) not in Path("/proc/self/mountinfo").read_text()
    flow.toml(PAIR)
    flow.run("--no-log").expect()  # the next start tidies up
    assert not list(flow.folder.glob(".penstock-*")) and not list(memory_dir().iterdir())
    assert flow.read("precious.txt") == "precious\n"


def test_a_program_that_is_started_by_hand_sees_the_same_or_is_refused(flow: Flow) -> None:
    need_own_mounts()
    flow.toml('name = "hand"\npermanent = ["new"]\n[[step]]\nname = "a"\noutput = ["new", "old"]\n')
    server = flow.start("serve", "flow.toml", "--memory")
    ended = flow.ended(flow.start("exec", "--app", "a", "--", "sh", "-c", "pwd -P; echo 1 > new; echo 2 > old; ls"))
    (table,) = memory_dir().glob("penstock-*/table")
    given = {"LD_PRELOAD": str(interposer_path()), "PENSTOCK_STREAM_TABLE": str(table), "PENSTOCK_STREAM_APP": "a"}
    other = subprocess.run(["ls"], env=given, cwd=flow.folder, capture_output=True, text=True, check=False)
    assert other.returncode == 126 and "it cannot see the files, which are in memory" in other.stderr
    server.terminate()
    flow.ended(server).expect()
    assert ended.expect().out == f"{flow.folder}\nconsumer.py\nflow.toml\nnew\nold\nproducer.py\n"
    assert flow.read("new") == "1\n" and not (flow.folder / "old").exists()


LINKED = """
    name = "linked"
    permanent = ["*"]
    [[step]]
    name = "write"
    command = "echo new > b; echo more >> in/d"
    output = ["b", "in/d"]
    [[step]]
    name = "read"
    command = "cat a in/c > seen; stat -c %h a b in/c in/d >> seen; cat untouched e >> seen"
    input = ["a", "b", "in/c", "in/d"]
    output = ["seen"]
"""


def test_two_names_of_a_file_that_exists_are_one_file(flow: Flow) -> None:
    def seen(*way: str) -> str:
        build(flow)
        flow.toml(LINKED)
        for one, other in (("a", "b"), ("in/c", "in/d"), ("untouched", "e")):
            flow.write(one, f"old {one}\n")
            os.link(flow.folder / one, flow.folder / other)
        flow.run(*way).expect()
        assert os.path.samefile(flow.folder / "untouched", flow.folder / "e")
        return flow.read("seen")

    assert seen("--memory") == seen("--batch")
