"""Every test of streaming begins and ends with nothing left of it: no process, nothing in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import eventually
from tests.streaming.flows import Flow


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left_behind: None) -> Iterator[Flow]:
    """A folder for a workflow; its servers leave their marks in a folder of their own, which ends up empty."""
    marks = tmp_path / "r"
    marks.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(marks))
    yield Flow(tmp_path / "work")
    # A guard may still be at work.
    eventually(lambda: not list(marks.iterdir()))
