"""What streaming is compared with besides batch: each side alone on ordinary files, and both through a pipe."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.streaming.runs import programs, scratch, times_of

__all__ = ["pipe", "slower_side"]


def slower_side(size: int, block: int) -> float:
    """Seconds of writing, or of reading what is written if that takes longer; nothing else runs."""
    with scratch() as folder:
        write = _seconds([f"{programs()}/produce", "file", "0", "1", str(size), str(block), "0"], folder)
        read = _seconds([f"{programs()}/consume", "file", "0", "1", str(block), "0", "sum"], folder)
    return max(write, read)


def _seconds(command: list[str], folder: Path) -> float:
    times = folder / f"times-{Path(command[0]).name}"
    times.mkdir()
    subprocess.run(command, cwd=folder, env=os.environ | {"BENCH_TIMES": str(times)}, check=True)
    return times_of(times, 0.0).seconds


def pipe(size: int, block: int) -> float:
    """Seconds of the same two programs, the one's output being the other's input."""
    with scratch() as folder:
        (folder / "times").mkdir()
        environment = os.environ | {"BENCH_TIMES": str(folder / "times")}
        write = [f"{programs()}/produce", "-", "0", "1", str(size), str(block), "0"]
        read = [f"{programs()}/consume", "-", "0", "1", str(block), "0", "sum"]
        writer = subprocess.Popen(write, cwd=folder, env=environment, stdout=subprocess.PIPE)
        reader = subprocess.Popen(read, cwd=folder, env=environment, stdin=writer.stdout)
        assert writer.stdout
        writer.stdout.close()
        if writer.wait() or reader.wait():
            raise RuntimeError("a side of the pipe failed")
        return times_of(folder / "times", 0.0).seconds
