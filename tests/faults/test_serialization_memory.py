"""Many large objects at once, in real tasks: no more memory than the budget, and no deadlock when a worker dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import penstock
from penstock import task, wait_on

MB = 1 << 20
BUDGET = 64 * MB
LINES = 160_000  # of 64 bytes: a stream of about 10 MB, for which 20 are claimed


def watch(log: str) -> None:
    """Note in a file how many slots this process takes and gives back, and when."""
    from penstock.data.admission import Claim

    if hasattr(Claim, "watched"):
        return
    Claim.watched = True  # type: ignore[attr-defined]
    plain_take, plain_release = Claim._take, Claim.release

    def note(change: int) -> None:
        with open(log, "a") as file:
            file.write(f"{time.monotonic_ns()} {change}\n")

    def take(self: Claim, wanted: int, *, wait: bool) -> None:
        before = len(self._held)
        plain_take(self, wanted, wait=wait)
        note(len(self._held) - before)

    def release(self: Claim) -> None:
        note(-len(self._held))
        plain_release(self)

    Claim._take, Claim.release = take, release  # type: ignore[method-assign]


@task
def lines(log: str, tag: int) -> list[str]:
    watch(log)
    return [f"{tag} {number:060}" for number in range(LINES)]


@task
def count(log: str, some: list[str]) -> int:
    watch(log)
    return len(some)


def test_tasks_that_return_and_read_large_objects_at_once_keep_to_the_budget(tmp_path: Path) -> None:
    log = tmp_path / "claims"
    penstock.start(cpus=5, serialization_memory=BUDGET // MB * 1.048576)
    made = [lines(str(log), tag) for tag in range(10)]
    assert wait_on([count(str(log), one) for one in made]) == [LINES] * 10
    held = most = 0
    for line in sorted(log.read_text().splitlines(), key=lambda line: int(line.split()[0])):
        held += int(line.split()[1])
        most = max(most, held)
    slot = BUDGET // 64
    assert held == 0
    assert 20 * MB < most * slot <= BUDGET  # there was something to claim, and never more than there is


class Fatal:
    """Ends the process that pickles it."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        return int, ()


@task
def die_while_pickling() -> list[Any]:
    return [*(f"{number:060}" for number in range(2 * LINES)), Fatal()]


def test_worker_killed_while_it_has_the_budget_gives_it_back(tmp_path: Path) -> None:
    penstock.start(cpus=2, serialization_memory="16MB")  # each of these has all of it
    deaths = [die_while_pickling() for _ in range(2)]
    made = [lines(str(tmp_path / "claims"), tag) for tag in range(3)]
    assert all(isinstance(death.exception(), penstock.WorkerDied) for death in deaths)
    assert [len(one.result()) for one in made] == [LINES] * 3
