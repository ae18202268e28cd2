"""Programs and servers that are killed under persistent objects: nothing is left, and nobody waits for ever."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.programs import Program, gone

import penstock
from penstock import INOUT, PersistentObject, StoreFull, StoreUnreachable, WorkerDied, task
from penstock.errors import MissingObject, SerializationError
from penstock.persistent.redis_store import manifest_key
from penstock.persistent.servers import start_servers
from penstock.persistent.upkeep import collect, inspect
from penstock.persistent.where import current_store, open_store

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
    time.sleep(600)

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
        deadline = time.monotonic() + 60
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


# --- a program ends while tasks read an older state -------------------------------------------------------------------

READS_OLD = """
import numpy

class Held(penstock.PersistentObject):
    array = ()

@task()
def linger(held):
    arrive("reads")
    time.sleep(600)

@task(held=INOUT)
def change(held, number):
    held.array = numpy.full(50_000, float(number))

if {raises}:
    signal.signal(signal.SIGUSR1, lambda *_: exec("raise RuntimeError"))
with penstock.Runtime(store={store!r}, mode="parallel", cpus=2):
    held = Held()
    held.array = numpy.zeros(50_000)
    held.make_persistent("shared")
    linger(held)
    for number in range(3):
        change(held, number).result()
    arrive("changed")
    time.sleep(600)
"""

NEXT = """
class Held(penstock.PersistentObject):
    array = ()

with penstock.Runtime(store={store!r}, mode="parallel", cpus=1):
    assert Held.get_by_id("shared").array[0] == 2
"""


@pytest.mark.one_in(15)
@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT", "SIGUSR1"])
def test_states_that_a_program_kept_for_its_readers_do_not_outlive_it(address: str, tmp_path: Path, end: str) -> None:
    """However it ends; of one that is killed, the next program removes them."""
    if address.startswith("redis-cluster:") and end != "SIGKILL":
        pytest.skip("as on one server")
    for name in ("first", "next"):
        (tmp_path / name).mkdir()
    with Program(tmp_path / "first", READS_OLD.format(store=address, raises=end == "SIGUSR1")) as program:
        assert {program.arrival(), program.arrival()} == {"reads", "changed"}
        store = open_store(address)
        deadline = time.monotonic() + 60
        while len(store._manifest("shared")[1].kept) != 1 and time.monotonic() < deadline:
            time.sleep(0.01)  # those that nobody reads are dropped soon
        kept = inspect(store)
        assert [len(one.manifest.kept) for one in kept.objects] == [1] and kept.is_fine  # it is of use yet
        collect(store)
        assert inspect(store) == kept
        family = program.family()
        os.kill(program.process.pid, getattr(signal, end))
        program.process.wait(60)
        gone(family, program, within=60)
    if end in ("SIGKILL", "SIGTERM"):  # Python ends at once on either
        assert inspect(store).left
        with Program(tmp_path / "next", NEXT.format(store=address)) as program:
            assert program.process.wait(60) == 0, program.process.stderr.read()  # type: ignore[union-attr]
    report = inspect(store)
    assert report.is_fine and not report.living and [len(one.manifest.kept) for one in report.objects] == [0]
    store.close()


# --- killed while storing ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["local:", "redis-start:?block_size=64KiB", "redis-start:3?block_size=64KiB"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local:":
        yield f"local:{tmp_path / 'store'}"
        return
    servers = start_servers(request.param)
    yield servers.url
    servers.stop()


class Killed(Exception):
    pass


@task(held=INOUT, retries=1)
def count_up(held: Held, marker: str) -> None:
    """Store the object again and again, as fast as it goes; somebody will end this process."""
    if os.path.exists(f"{marker}.killed"):
        raise Killed("once is enough")
    with open(marker, "w") as file:
        file.write(str(os.getpid()))
    os.rename(marker, f"{marker}.now")
    while True:
        held.array += 1
        held.update_persistent()


@pytest.mark.one_in(6)
def test_workers_killed_while_they_store_leave_whole_objects(address: str, tmp_path: Path) -> None:
    """Each is killed at another moment: what is found is one state, all of it, and it can be changed as ever."""
    marker, moments = str(tmp_path / "marker"), random.Random(5)
    with penstock.Runtime(cpus=1, store=address):
        held = Held(50_000).make_persistent("counted")
        least = 0.0
        for _ in range(3):
            attempt = count_up(held, marker)
            while not os.path.exists(f"{marker}.now"):
                time.sleep(0.001)
            time.sleep(moments.random() * 0.05)
            Path(f"{marker}.killed").touch()
            os.kill(int(Path(f"{marker}.now").read_text()), signal.SIGKILL)
            with pytest.raises((Killed, WorkerDied)):
                attempt.result(timeout=60)
            os.unlink(f"{marker}.now")
            os.unlink(f"{marker}.killed")
            penstock.delete_object(held)
            held = Held.get_by_id("counted")
            assert held.array.min() == held.array.max() >= least
            least = held.array[0]
        held.array[:] = 7
        held.update_persistent()
        assert total(held).result() == 7 * 50_000
        held.delete_persistent()
        with pytest.raises(MissingObject):
            Held.get_by_id("counted")


def test_a_server_killed_while_a_task_stores_fails_the_task(tmp_path: Path) -> None:
    servers = start_servers("redis-start:?block_size=64KiB")
    marker = str(tmp_path / "marker")
    with penstock.Runtime(cpus=1, store=servers.url):
        held = Held(50_000).make_persistent()
        attempt = count_up(held, marker)
        while not os.path.exists(f"{marker}.now"):
            time.sleep(0.001)
        os.kill(servers.pids[0], signal.SIGKILL)
        with pytest.raises(StoreUnreachable, match="Is it running"):
            attempt.result(timeout=60)
    servers.stop()


@pytest.mark.long
def test_what_lies_on_other_nodes_of_a_cluster_stays_of_use() -> None:
    servers = start_servers("redis-start:3")
    try:
        with penstock.Runtime(cpus=1, store=servers.url):
            objects = [Held(10).make_persistent(f"held-{number}") for number in range(12)]
            store: Any = current_store()
            where = [store._primary(manifest_key(str(held.get_id()))) for held in objects]
            ports = servers.url.rpartition("@")[2].split(",")
            os.kill(servers.pids[1], signal.SIGKILL)
            assert len(set(where)) == 3
            for held, node in zip(objects, where, strict=True):
                if node == ports[1]:
                    with pytest.raises(StoreUnreachable, match=node.rpartition(":")[2]):
                        grow(held, 20).result()
                else:
                    grow(held, 20).result()
                    assert penstock.wait_on(held).array.shape == (20,)
    finally:
        servers.stop()


# --- what cannot be stored, or is not there any more ------------------------------------------------------------------


@task(held=INOUT)
def spoil(held: Held) -> None:
    held.array = np.ones(5)
    held.lock = threading.Lock()  # type: ignore[attr-defined]


@pytest.mark.one_in(6)
def test_a_field_that_cannot_be_pickled_is_named_and_nothing_is_stored(address: str) -> None:
    with penstock.Runtime(cpus=1, store=address):
        held = Held(10).make_persistent("whole")
        with pytest.raises(SerializationError, match=r"<Held 'whole'> cannot be pickled.*lock"):
            spoil(held).result()
        penstock.delete_object(held)
        assert Held.get_by_id("whole").array.sum() == 0
        new = Held(10)
        new.lock = threading.Lock()  # type: ignore[attr-defined]
        with pytest.raises(SerializationError, match="not stored.*lock"):
            new.make_persistent("never")
        assert new.get_id() is None
        with pytest.raises(MissingObject):
            Held.get_by_id("never")


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_folder_that_is_removed_meanwhile_is_named(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "store"
    with penstock.Runtime(cpus=1, store=f"local:{folder}"):
        held = Held(size).make_persistent()
        assert total(held).result() == 0
        shutil.rmtree(folder)
        for attempt in (lambda: total(held).result(), lambda: grow(held, size).result()):
            with pytest.raises(StoreUnreachable, match=r"folder of the store local:.* is gone"):
                attempt()
        penstock.delete_object(held)
        for attempt in (held.update_persistent, Held(size).make_persistent, lambda: Held.get_by_id("any")):
            with pytest.raises(StoreUnreachable, match="is gone"):
                attempt()


@pytest.mark.long
def test_a_server_with_a_password(tmp_path: Path) -> None:
    """That of a started cluster is one."""
    servers = start_servers("redis-start:3")
    password, nodes = servers.url.removeprefix("redis-cluster://:").split("@")
    try:
        for url in (f"redis-cluster://{nodes}", f"redis-cluster://:wrong-one@{nodes}"):
            with penstock.Runtime(cpus=1, store=url), pytest.raises(StoreUnreachable, match="password") as caught:
                Held(10).make_persistent()
            assert "wrong-one" not in str(caught.value) and password not in str(caught.value)
    finally:
        servers.stop()


# --- two programs -----------------------------------------------------------------------------------------------------

UPDATES = """
class Held(penstock.PersistentObject):
    array = ()
    count = 0

@task(held=INOUT, retries=1000)
def put(held, number):
    held.count += 1
    held.array = [number] * 5000

@task()
def is_whole(held):
    return len(set(held.array)) <= 1

with penstock.Runtime(store={store!r}, cpus=1):
    held = Held.get_by_id("shared")
    whole = []
    for number in range(8):
        put(held, {first} + number)
        whole.append(is_whole(held))
    assert all(future.result() for future in whole)
    found = Held.get_by_id("shared")
    assert len(set(found.array)) == 1, found.array
"""

BEFORE_AND_AFTER = """
class Held(penstock.PersistentObject):
    array = ()
    count = 0

with penstock.Runtime(store={store!r}, cpus=1):
    {action}
"""


@pytest.mark.one_in(6)
def test_of_two_programs_that_update_one_object_neither_undoes_what_the_other_did(address: str, tmp_path: Path) -> None:
    """Each write is whole, and whoever comes too late tries again."""

    def program(name: str, source: str) -> Program:
        (tmp_path / name).mkdir()
        return Program(tmp_path / name, source)

    def end(program: Program) -> None:
        status = program.process.wait(60)
        assert status == 0, program.process.stderr.read()  # type: ignore[union-attr]

    make, count = 'Held().make_persistent("shared")', 'assert Held.get_by_id("shared").count == 16'
    with program("before", BEFORE_AND_AFTER.format(store=address, action=make)) as before:
        end(before)
    updates = [UPDATES.format(store=address, first=first) for first in (1000, 2000)]
    with program("one", updates[0]) as one, program("two", updates[1]) as two:
        end(one)
        end(two)
    with program("after", BEFORE_AND_AFTER.format(store=address, action=count)) as after:
        end(after)
    store = open_store(address)
    report = inspect(store)
    assert report.is_fine and not store._manifest("shared")[1].kept
    store.close()
