"""Small workflows of real programs, and the command line that runs them; for the tests in this folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.patience import PATIENCE

#: writes lines, one at a time
PRODUCER = """
import sys, time
path, count, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with open(path, "w") as file:
    for number in range(count):
        file.write(f"line {number}\\n")
        file.flush()
        time.sleep(pause)
"""

#: copies what it reads, and says when the first line came
CONSUMER = """
import sys, time
with open(sys.argv[1]) as file, open(sys.argv[2], "w") as out:
    for number, line in enumerate(file):
        if number == 0:
            print("first", time.monotonic(), flush=True)
        out.write(line)
print("last", time.monotonic(), flush=True)
"""


class Flow:
    """A folder with a coordination file, and what was run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.write("producer.py", PRODUCER)
        self.write("consumer.py", CONSUMER)
        self.environment = {**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        self.environment.pop("CAPIO_DIR", None)
        #: what Penstock is started by
        self.prefix: tuple[str, ...] = ()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def toml(self, text: str, name: str = "flow.toml") -> None:
        """The coordination file; PYTHON stands for this interpreter."""
        self.write(name, text.replace("PYTHON", sys.executable))

    def start(self, *arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
        command = [*self.prefix, sys.executable, "-m", "penstock.cli", "stream", *arguments]
        return subprocess.Popen(
            command,
            cwd=folder or self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def seen_by(self, process: subprocess.Popen[str]) -> Path:
        """The folder as a running Penstock and its programs see it."""
        return Path(f"/proc/{process.pid}/root{self.folder}")

    def run(self, *arguments: str, file: str = "flow.toml") -> Ended:
        """``penstock stream run`` to its end."""
        return self.ended(self.start("run", file, *arguments))

    def run_until_told(self, words: str, told: Path, *arguments: str) -> Ended:
        """Like ``run``; makes the file ``told`` once the words are said. The workflow has to end without that, too."""
        process = self.start("run", "flow.toml", *arguments)
        assert process.stdout is not None and process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if words in line:
                told.touch()
        return Ended(process.wait(PATIENCE), process.stdout.read(), "".join(lines))

    def ended(self, process: subprocess.Popen[str]) -> Ended:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
            raise AssertionError(f"it hung:\n{out}\n{err}") from None
        return Ended(process.returncode, out, err)


class Ended:
    """How a command ended, and what it printed."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def expect(self, status: int = 0) -> Ended:
        assert self.status == status, f"exit status {self.status}\n{self.out}\n{self.err}"
        return self


def once(path: Path, patience: float = PATIENCE / 3) -> str:
    """Shell that waits for a file; it lies outside the workflow, where nothing else waits for it."""
    return f"for i in $(seq {patience * 100:.0f}); do [ -e {path} ] && break; sleep 0.01; done"


PAIR = """
    name = "pair"
    [[step]]
    name = "make"
    command = "PYTHON producer.py out.txt 20 0.01"
    output = ["out.txt"]
    [[step.stream]]
    files = ["out.txt"]
    commit = "on_close"
    fire = "no_update"
    [[step]]
    name = "copy"
    command = "PYTHON consumer.py out.txt copy.txt"
    sizes = "so_far"  # Python asks for the size of what it opens
    input = ["out.txt"]
    output = ["copy.txt"]
"""
EXPECTED = "".join(f"line {number}\n" for number in range(20))
