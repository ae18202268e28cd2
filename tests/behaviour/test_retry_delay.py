"""``retry_delay``: further attempts come after a pause, in every mode; what looks like an outage pauses by itself."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.behaviour.modes import only_workers

import penstock
from penstock import INOUT, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine


def tried(folder: str) -> int:
    """Note an attempt and when it began; gives how many there were before."""
    before = len(list(Path(folder).iterdir()))
    (Path(folder) / str(before)).write_text(repr(time.monotonic()))
    return before


def starts(folder: Path) -> list[float]:
    return [float((folder / str(number)).read_text()) for number in range(len(list(folder.iterdir())))]


@task(retries=3, retry_delay="20ms")
def flaky(folder: str, fails: int) -> int:
    before = tried(folder)
    if before < fails:
        raise ValueError("not yet")
    return before


@task(log=INOUT, retry_delay=0.01)
def note(log: list[int], folder: str) -> None:
    log.append(tried(folder))
    if len(list(Path(folder).iterdir())) < 3:
        raise ValueError("not yet")


@task(retries=1)
def reach(folder: str) -> int:
    before = tried(folder)
    if not before:
        raise ConnectionRefusedError("nobody listens")
    return before


def test_attempts_come_after_pauses_that_double(runtime: Runtime, tmp_path: Path) -> None:
    assert flaky(str(tmp_path), 3).result() == 3
    times = starts(tmp_path)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert [gap >= least for gap, least in zip(gaps, (0.02, 0.04, 0.08), strict=True)] == [True] * 3


def test_a_pause_alone_asks_for_retries_and_updates_begin_from_the_value_before(
    runtime: Runtime, tmp_path: Path
) -> None:
    log: list[int] = []
    note(log, str(tmp_path))
    assert wait_on(log) == [2]


@only_workers
def test_others_run_while_a_task_pauses(runtime: Runtime, tmp_path: Path) -> None:
    slow = flaky_for_long(str(tmp_path))
    assert [wait_on(double(number)) for number in range(4)] == [0, 2, 4, 6]
    assert not slow.done()
    assert penstock.cancel(slow)


@task(retries=1, retry_delay="1h")
def flaky_for_long(folder: str) -> None:
    raise ValueError("not yet")


@task
def double(x: int) -> int:
    return 2 * x


@pytest.mark.one_in(2)
def test_what_looks_like_an_outage_pauses_by_default(runtime: Runtime, tmp_path: Path) -> None:
    assert reach(str(tmp_path)).result() == 1
    first, second = starts(tmp_path)
    assert second - first >= 1.0


def test_a_map_goes_on_beside_elements_that_pause(runtime: Runtime, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(40)]
    for folder in folders:
        folder.mkdir()
    assert flaky.map([str(folder) for folder in folders], [1] * 40).results() == [1] * 40
    assert all(starts(folder)[1] - starts(folder)[0] >= 0.02 for folder in folders)


@pytest.mark.parametrize("written", ["soon", -1, [1]])
def test_a_delay_that_is_none_is_refused(written: object) -> None:
    with pytest.raises(penstock.DefinitionError, match="retry_delay="):
        task(retry_delay=written)(tried)  # type: ignore[call-overload]
