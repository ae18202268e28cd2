"""Where figures come from: when a run began, of which commit, on what, and how long it has taken.

Figures in the documentation can be traced by it, so both commands write it beside their figures.
"""

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT


class Origin:
    """Made when a run begins."""

    def __init__(self) -> None:
        self.date = datetime.now(UTC).isoformat(timespec="seconds")
        self.commit = commit(ROOT)
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._began

    def told(self) -> dict[str, Any]:
        """For JSON; without a commit outside a clone."""
        known = {} if self.commit is None else {"commit": self.commit}
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        return {"date": self.date, **known, **machine, "seconds": round(self.seconds, 1)}

    def __str__(self) -> str:
        of = "" if self.commit is None else f" of {self.commit}"
        return f"{self.date}{of}, taken in {shown(self.seconds)}"


def shown(seconds: float) -> str:
    """As a person says it."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def commit(root: Path) -> str | None:
    """What git calls the state of this folder; None where it is not the root of a clone, or there is no git."""
    if not (root / ".git").exists():  # it may lie in somebody else's
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
