"""A directory that is in memory looks as it would on the user's disk: size, blocks, links, to every program."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.streaming.flows import Flow
from tests.streaming.own_mounts import need_own_mounts

from penstock.streaming.native import why_not_supervised

SOURCE = Path(__file__).parent / "programs" / "directories.c"

#: directories that are new, changed, made again, and as they were; the order of listings is each file system's own
CHANGES = """
set -e
export LC_ALL=C
mkdir -p new/inner/most new/empty old/fresh
echo x > new/file; ln new/file new/hard; ln -s file new/link
echo y > old/more; rm old/gone; rmdir old/left
rm -r again; mkdir again; echo z > again/file
mv moved old/moved.here
mkdir over; mkdir over/one; rmdir over/one
"""
ALL = ". new new/inner new/inner/most new/empty old old/fresh old/kept.here old/moved.here again over untouched"

LOOK = f"""
stat -c '%n %F %h %s %b %B %o' {ALL} new/file new/hard new/link
ls -ldn --time-style=+ {ALL}; ls -n --time-style=+ new old
du {ALL} | sort; du -s --apparent-size -B1 .
find . -size +7b | sort; find . -links +2 | sort; find . -links 2 | sort
find . -type d -printf '%p %n %s %b %k\\n' | sort
tar cf - --sort=name --mtime=@0 new old again | tar tvf -
"""

#: entries of a listing are those that stat tells of
NUMBERS = """
import os, stat
for folder, _, _ in os.walk("."):
    for entry in os.scandir(folder):
        found = os.lstat(entry.path)
        assert entry.inode() == found.st_ino, entry
        assert entry.is_dir(follow_symlinks=False) == stat.S_ISDIR(found.st_mode), entry
print("listings agree")
"""


@pytest.fixture(params=["on disk", "in memory"])
def home(request: pytest.FixtureRequest, flow: Flow, tmp_path: Path) -> Iterator[Flow]:
    """The user's directory, on a file system with other numbers each time."""
    need_own_mounts()
    if request.param == "on disk":
        yield flow
        return
    folder = tempfile.mkdtemp(prefix="penstock-home-", dir="/dev/shm")
    try:
        yield Flow(Path(folder) / "work")
    finally:
        shutil.rmtree(folder)


def seen(flow: Flow, look: str, placement: str) -> list[str]:
    """What a step says that changes the directory and looks at it."""
    shutil.rmtree(flow.folder)
    for name in ("old/kept.here/deep", "old/left", "moved", "again/sub", "untouched/sub"):
        (flow.folder / name).mkdir(parents=True)
    flow.write("old/gone", "gone")
    flow.write("look.sh", CHANGES + look)
    flow.toml(
        """
        name = "looks"
        permanent = ["*"]
        [[step]]
        name = "look"
        command = "sh look.sh"
        output = ["new/*"]
        """
    )
    ended = flow.run("--no-log", "--no-progress", placement).expect()
    return [line for line in ended.out.splitlines() if "│" in line]


def test_programs_see_directories_as_in_batch(home: Flow) -> None:
    numbers = home.folder.parent / "numbers.py"
    numbers.write_text(NUMBERS)
    look = f"{LOOK}\npython3 {numbers}\n"
    assert seen(home, look, "--memory") == seen(home, look, "--batch")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("linked", [(), ("-static",)], ids=["with the library", "supervised"])
def test_every_call_tells_the_same(home: Flow, tmp_path: Path, linked: tuple[str, ...]) -> None:
    if linked and why_not_supervised():
        pytest.skip(f"PROGRAMS WITHOUT THE LIBRARY ARE NOT TESTED: {why_not_supervised()}")
    program, compiler = tmp_path / "directories", shutil.which("cc")
    command = [str(compiler), "-O1", "-D_GNU_SOURCE", str(SOURCE), "-o", str(program), *linked]
    if not compiler or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("it cannot be compiled here")
    look = f'export TOP="$PWD"; {program} {ALL}\n'
    told = seen(home, look, "--memory")
    assert told == seen(home, look, "--batch")
    assert len(told) >= len(ALL.split()) * 14 and not any(": -1" in line for line in told)


def test_who_may_not_list_a_directory_is_told_of_it_too(flow: Flow) -> None:
    """Its size needs no listing, where the disk gives all directories the same."""
    need_own_mounts()
    look = "mkdir closed; chmod 311 closed; mkdir closed/inner; stat -c '%s %b %h %a' closed\n"
    assert seen(flow, look, "--memory") == seen(flow, look, "--batch")
    os.chmod(flow.folder / "closed", 0o755)
