"""The ways of running a program that must agree, and gates that hold a task until the test has seen enough."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["MODES", "NOT_SIMULATED", "SIMULATED", "Gate", "only_workers"]

MODES: dict[str, dict[str, Any]] = {
    "workers": {"cpus": 2},
    "inline": {"mode": "inline"},
    "simulated": {"mode": "simulated"},
}

#: modules whose tests also run on the simulator, as far as they update neither objects nor files
SIMULATED = {
    *("test_bad_input", "test_collection_arguments", "test_constraint_decorator", "test_copies_of_futures"),
    *(
        "test_executor_interface",
        "test_first_program",
        "test_futures",
        "test_futures_are_no_values",
        "test_futures_of_other_runs",
        "test_lifecycle",
    ),
    *("test_lifetimes", "test_map", "test_task_forms", "test_versions", "test_wait_on"),
}

#: tests in them that start another kind of runtime on purpose
NOT_SIMULATED = {"test_the_inner_context_is_the_current_one"}

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
        """A test that failed must not leave a task waiting: not one at the gate, nor one that has yet to come there."""
        both_sides = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        Path(f"{self.path}.open").touch()
        os.replace(f"{self.path}.open", self.path)
        os.close(both_sides)
