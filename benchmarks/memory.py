"""How much memory a run holds: the private pages of the main program and of every process below it."""

import gc
from pathlib import Path

import psutil


def private_bytes() -> int:
    """Private memory of this process and its descendants; shared pages of forked workers count once, as nobody's."""
    gc.collect()
    here = psutil.Process()
    return sum(process.memory_full_info().uss for process in [here, *here.children(recursive=True)])


def reset_peak() -> int:
    """Forget the peak of this process; returns what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    """The most this process has held since `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")
