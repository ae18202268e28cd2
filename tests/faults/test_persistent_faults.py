"""Programs and servers that are killed under persistent objects: nothing is left, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.programs import Program

import penstock
from penstock import INOUT, PersistentObject, StoreFull, StoreUnreachable, task
from penstock.persistent.servers import start_servers

pytest.importorskip("redis")


class Held(PersistentObject):
    def __init__(self, size: int) -> None:
        self.array = np.zeros(size)


@task()
def total(held: Held) -> float:
    return float(held.array.sum())


@task(held=INOUT)
def grow(held: Held, size: int) -> None:
    held.array = np.random.default_rng(1).random(size)


STARTS = """
class Held(penstock.PersistentObject):
    pass

@task(held=INOUT)
def hold(held):
    arrive(os.getpid(), *SERVERS)
    time.sleep(60)

with penstock.Runtime(store="redis-start:", mode={mode!r}, cpus=1) as runtime:
    SERVERS = runtime.objects._servers.pids
    hold(Held().make_persistent())
    barrier()
"""


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_a_program_that_is_killed_leaves_no_server(tmp_path: Path, mode: str) -> None:
    with Program(tmp_path, STARTS.format(mode=mode)) as program:
        _, server = map(int, program.arrival().split())
        assert os.path.exists(f"/proc/{server}")
        os.kill(program.process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{server}") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{server}")


def test_a_server_that_is_lost_is_told_by_every_task_and_holds_up_nobody() -> None:
    servers = start_servers("redis-start:")
    began = time.monotonic()
    with penstock.Runtime(cpus=1, store=servers.url):
        held = Held(100_000).make_persistent()
        assert total(held).result() == 0
        os.kill(servers.pids[0], signal.SIGKILL)
        with pytest.raises(StoreUnreachable, match="Is it running"):
            total(held).result()
        with pytest.raises(StoreUnreachable):
            Held(10).make_persistent()
    servers.stop()
    assert time.monotonic() - began < 60


def test_a_task_whose_object_does_not_fit_fails_and_the_old_one_stays() -> None:
    with penstock.Runtime(cpus=1, store="redis-start:?maxmemory=16MiB&block_size=1MiB"):
        held = Held(1000).make_persistent()
        with pytest.raises(StoreFull, match="maxmemory"):
            grow(held, 4_000_000).result()
        penstock.delete_object(held)
        found: Any = Held.get_by_id(str(held.get_id()))
        assert found.array.shape == (1000,)
        grow(held, 100_000).result()
        assert penstock.wait_on(held).array.shape == (100_000,)
