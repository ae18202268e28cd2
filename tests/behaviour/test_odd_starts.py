"""Programs that are started without what most programs have: standard streams, a working directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from penstock import task, wait_on

@task
def double(x):
    print("doubling", x, file=sys.stderr)
    return 2 * x

{ending}
"""
FINE = "open(sys.argv[1], 'w').write(str(wait_on(double(21))))"
FAILS = "double(None)"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("command", [[sys.executable], [str(Path(sys.executable).with_name("penstock")), "run"]])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_without_standard_streams(tmp_path: Path, command: list[str], closed: str) -> None:
    (tmp_path / "app.py").write_text(PROGRAM.format(ending=FINE))
    line = ["bash", "-c", f'"$@" {closed}', "bash", *command, "app.py", "result"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "result").read_text()) == (0, "42"), done.stderr


@pytest.mark.one_in(2)
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "2> /dev/full", "> /dev/full 2> /dev/full"])
def test_a_failure_that_nobody_can_be_told_of_is_in_the_status(tmp_path: Path, closed: str) -> None:
    (tmp_path / "app.py").write_text(PROGRAM.format(ending=FAILS))
    line = ["bash", "-c", f'"$@" {closed}', "bash", sys.executable, "app.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_in_a_directory_that_was_removed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM.format(ending=FINE))
    (tmp_path / "gone").mkdir()
    line = ["bash", "-c", 'rmdir "$PWD"; exec "$@"', "bash", sys.executable, str(tmp_path / "app.py")]
    done = subprocess.run(
        [*line, str(tmp_path / "result")], cwd=tmp_path / "gone", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "doubling 21\n")
    assert (tmp_path / "result").read_text() == "42"
