"""Programs that share a layer: their engines, their looks at the table on it, and the table, in any order.

Only the clock is ours. Between any two steps of a look (the program is asked, the table is locked, the engine is told)
attempts may begin and end, time may pass and other programs may look; so may the machine stand still for a while.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage_rig import MB, StorageRig, io, writes

from penstock.engine.sharing import Usage
from penstock.engine.state import IOTaskRecord
from penstock.executors import layer_table
from penstock.model.events import BudgetChanged, Submitted, Ticked
from penstock.model.resources import StorageLayer
from penstock.runtime import sharing
from penstock.runtime.sharing import LayerShare

TOTAL = 40
NEEDS = [io(bw=bw) for bw in (4, 8, 30, 36, 40)]
#: bytes of the layer, which nothing fills here
ROOM = 10**9


class Program:
    """One engine and its share of the layer; it takes the part of the driver, too."""

    def __init__(self, number: int, mount: str, world: World) -> None:
        self.world = world
        self.number = number
        self.rig = StorageRig(StorageLayer("disk", mount, TOTAL * MB, ROOM), executors=6)
        self.share = LayerShare(StorageLayer("disk", mount, TOTAL * MB, ROOM), ROOM, f"run-{number}", self, self.tell)
        self.called = 0
        self.handle(BudgetChanged("disk", 0.0, closed=True))

    @property
    def running(self) -> list[IOTaskRecord]:
        tasks = self.rig.engine.state.tasks.values()
        return [one for one in tasks if isinstance(one, IOTaskRecord) and one.lane is not None]

    @property
    def holds(self) -> float:
        return sum(one.bandwidth for one in self.running) / MB

    def handle(self, event: object) -> None:
        self.rig.now = self.world.now
        self.rig.tell(event)  # type: ignore[arg-type]
        self.world.check()

    def call(self, which: int) -> None:
        self.called += 1
        self.handle(Submitted(writes(self.called, f"/home/{self.called}", NEEDS[which % len(NEEDS)])))

    def end_one(self, which: int) -> None:
        if running := self.running:
            self.rig.now = self.world.now
            self.rig.wrote(running[which % len(running)].task)
            self.world.check()

    def look(self) -> None:
        if self.number not in self.world.looking and not self.world.is_table_locked():
            self.world.looking.add(self.number)
            self.share._look()
            self.world.looking.discard(self.number)

    # --- what a driver does ---------------------------------------------------------------------------------------

    def usage(self, layer: str) -> Usage:
        self.world.meanwhile()
        usage = self.rig.engine.usage(layer)
        self.world.meanwhile()
        return usage

    def withdraw(self, layer: str) -> Usage:
        self.world.meanwhile()
        usage = self.rig.engine.usage(layer)
        if not usage.busy:
            self.handle(BudgetChanged(layer, 0.0, closed=True))
        self.world.meanwhile()
        return usage

    def tell(self, event: BudgetChanged) -> None:
        self.world.meanwhile()
        self.handle(event)
        self.world.meanwhile()


class World:
    """All programs, and what happens to them."""

    def __init__(self, data: st.DataObject, mount: str) -> None:
        self.data = data
        self.table = layer_table.LayerTable(mount).path
        self.now = 1000.0
        self.looking: set[int] = set()
        self.story: list[str] = []
        self.programs: list[Program] = []
        self.programs = [Program(number, mount, self) for number in range(data.draw(st.integers(2, 3)))]

    def is_table_locked(self) -> bool:
        """Whether one is in the middle of a look, holding the lock: another would wait for it."""
        if not os.path.exists(self.table):
            return False
        with open(self.table, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def check(self) -> None:
        assert sum(program.holds for program in self.programs) <= TOTAL

    def meanwhile(self) -> None:
        if self.data.draw(st.integers(0, 3)) == 0:
            self.step()

    def step(self) -> None:
        what = self.data.draw(st.sampled_from(["call", "end", "end", "look", "look", "time", "tick"]))
        program = self.data.draw(st.sampled_from(self.programs))
        match what:
            case "call":
                program.call(self.data.draw(st.integers(0, 4)))
            case "end":
                program.end_one(self.data.draw(st.integers(0, 5)))
            case "look":
                program.look()
            case "time":
                self.now += self.data.draw(st.sampled_from([0.1, 0.3, 1.2, 6.0, 11.0]))
            case "tick":
                program.handle(Ticked())


@contextmanager
def clock(world: list[World]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        time = SimpleNamespace(monotonic=lambda: world[0].now if world else 1000.0, sleep=lambda seconds: None)
        patch.setattr(sharing, "time", time)
        patch.setattr(layer_table, "time", time)
        yield


@given(st.data())
def test_programs_together_never_hold_more_than_there_is(data: st.DataObject) -> None:
    worlds: list[World] = []
    with clock(worlds), tempfile.TemporaryDirectory() as mount:
        worlds.append(World(data, mount))
        for _ in range(data.draw(st.integers(0, 80))):
            worlds[0].step()
