"""The two ways of running a program that must agree, and gates that hold a task until the test has seen enough."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["MODES", "Gate", "only_workers"]

MODES: dict[str, dict[str, Any]] = {"workers": {"cpus": 2}, "inline": {"mode": "inline"}}

#: for tests of what cannot happen where each task is over before its call returns
only_workers = pytest.mark.parametrize("mode", ["workers"], indirect=True)


class Gate:
    """A named pipe: whoever passes it waits until the other side opens it, so neither has to sleep and look again."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        if not os.path.exists(path):
            os.mkfifo(path)

    def enter(self) -> None:
        """In a task: wait until the test opens the gate."""
        with open(self.path) as pipe:
            pipe.read()

    def open(self) -> None:
        """In the test: wait until a task stands at the gate, and let it through."""
        with open(self.path, "w"):
            pass

    def release_everybody(self) -> None:
        """A test that failed must not leave a task waiting."""
        os.close(os.open(self.path, os.O_RDWR | os.O_NONBLOCK))
