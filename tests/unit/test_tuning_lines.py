"""What a run says of devices whose limits it learns."""

from __future__ import annotations

import pytest

from penstock.model.events import DeliveryChanged, LimitSettled
from penstock.runtime.tuning import Tuning

MB = 1e6


def settled(concurrency: int, other: int, layer: str = "disk") -> LimitSettled:
    return LimitSettled(layer, "here", ("write",), concurrency, 40 * MB, 1 * MB, other, 20 * MB)


def test_where_nothing_is_gained_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    tuning = Tuning("off")
    tuning.take_note(LimitSettled("disk", "here", ("write",), 4, 40 * MB, 1 * MB, 5, 39 * MB))
    tuning.take_note(DeliveryChanged("disk", "here", 4, 40 * MB, 20 * MB))
    assert capsys.readouterr().err == ""


def test_changes_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    tuning = Tuning("off")
    tuning.take_note(settled(8, 10))
    tuning.take_note(DeliveryChanged("disk", "here", 8, 40 * MB, 20 * MB))
    tuning.take_note(settled(4, 8))
    tuning.take_note(settled(4, 8))
    assert capsys.readouterr().err.splitlines() == [
        "penstock: disk: 8 tasks at a time deliver 40 MB/s; 10 delivered 20 MB/s",
        "penstock: disk: 8 at a time deliver less than they did, 20 MB/s instead of 40 MB/s; looking again",
        "penstock: disk: 4 tasks at a time deliver 40 MB/s; 8 delivered 20 MB/s",
    ]


def test_a_device_that_changes_all_the_time_does_not_fill_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    tuning = Tuning("off")
    for turn in range(500):
        tuning.take_note(settled(3 + turn % 2, 4 - turn % 2))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 8 + 5
    assert lines[-1].endswith("(256 changes so far)")
    tuning.take_note(settled(3, 4, layer="other"))
    assert "other: 3 tasks" in capsys.readouterr().err, "another device has lines of its own"
