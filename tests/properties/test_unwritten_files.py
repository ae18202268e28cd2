"""One file, written and read by tasks of which some fail and are ignored: whoever reads it finds what sequential
execution would give, at every moment until he is done, and at the end there is that one file and nothing beside it.

The engine is driven by hand, with a disk that is a table: what it asks for on file systems is done later, in order.
"""

from __future__ import annotations

from collections import deque
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine_rig import BOOM, NO_ARGUMENTS, spec

from penstock.engine.checks import check
from penstock.engine.engine import Engine
from penstock.model import events
from penstock.model.commands import Command, Discard, Launch, Publish, Settle
from penstock.model.data import FileRef, Slot
from penstock.model.resources import Node
from penstock.model.tasks import OnFailure, Output, TaskCall
from penstock.scheduling.compute import Fifo
from penstock.scheduling.ready_queues import ReadyQueues

FILE = "/data/file"
LENIENT = spec("lenient", on_failure=OnFailure.IGNORE)

#: what a task does with the file, and whether it fails
CALLS = st.lists(st.tuples(st.sampled_from(["in", "out", "inout"]), st.booleans()), min_size=2, max_size=12)


class World:
    """The engine, the disk, and what a sequential program would have in the file at each call."""

    def __init__(self) -> None:
        self.engine = Engine(ReadyQueues(Fifo()))
        self.disk = {FILE: "0"}
        self.numbers = count(1)
        #: what is still to be done on the disk
        self.asked: deque[Publish | Discard] = deque()
        self.running: dict[int, Launch] = {}
        self.newest: int | None = None
        self.sequential = "0"
        #: by task: what it does, whether it fails, and what it must find in the file
        self.fates: dict[int, tuple[str, bool, str]] = {}
        self.tell(events.NodeJoined(Node("n", 64, 0)))

    def tell(self, event: events.Event) -> None:
        pending: list[events.Event] = [event]
        for one in pending:
            for command in self.engine.handle(one, 0.0):
                pending += self.carry_out(command)
            check(self.engine, None)

    def carry_out(self, command: Command) -> list[events.Event]:
        if type(command) is Launch:
            self.running[command.task] = command
        elif type(command) is Publish or type(command) is Discard:
            self.asked.append(command)
        elif type(command) is Settle and type(command.outcome) is FileRef:
            return [events.Released((command.version,))]
        return []

    def call(self, kind: str, fails: bool) -> None:
        """The program calls a task; what it writes is its number, after what it read."""
        task = next(self.numbers)
        newest = self.newest if self.newest is not None and self.engine.lives(self.newest) else None
        slots: tuple[int, ...] = ()
        released: tuple[int, ...] = ()
        if kind != "out":
            if newest is None:
                # What is on disk counts: it must be all that earlier calls have made of it.
                assert self.disk[FILE] == self.sequential
                self.newest = newest = next(self.numbers)
                self.tell(events.Provided(newest, FileRef(FILE)))
                released = (newest,)
            slots = (newest,)
        self.fates[task] = (kind, fails, self.sequential)
        writes: tuple[int, ...] = ()
        outputs: tuple[Output, ...] = ()
        if kind != "in":
            released = () if newest is None else (newest,)
            self.newest = next(self.numbers)
            writes = (self.newest,)
            outputs = (Output((0,), 0 if slots else -1, FILE, bool(slots)),)
            if not fails:
                self.sequential = f"{self.sequential if slots else ''}+{task}"
        writable = (0,) if slots and outputs else ()
        call = TaskCall(task, LENIENT, NO_ARGUMENTS, slots, writable, slots, writes, 0, outputs)
        self.tell(events.Submitted(call, released))

    def end(self, task: int) -> None:
        """A running task ends: it reads as late as it can, and finds what sequential execution would."""
        launch = self.running.pop(task)
        kind, fails, expected = self.fates[task]
        found = ""
        if kind != "out":
            [slot] = launch.slots
            assert type(slot) is FileRef
            found = self.disk[slot.path]
            assert found == expected, (kind, slot.path)
        if fails:
            self.tell(events.Failed(task, launch.attempt, BOOM, 0.1))
            return
        outputs: list[Slot | None] = []
        if kind != "in":
            path = FILE if launch.publish and kind == "out" else f"/data/.private{task}"
            self.disk[path] = f"{found}+{task}"
            outputs = [FileRef(path)]
        self.tell(events.Finished(task, launch.attempt, outputs, 0.1))

    def do_next(self) -> None:
        """The disk does what was asked for first."""
        command = self.asked.popleft()
        if type(command) is Publish:
            self.disk[command.target] = self.disk[command.source]
            self.tell(events.Published(command.version, command.target))
        else:
            del self.disk[command.path]


@given(CALLS, st.data())
def test_a_failed_ignored_writer_leaves_the_file_as_before_it(
    calls: list[tuple[str, bool]], data: st.DataObject
) -> None:
    world = World()
    waiting = deque(calls)
    while waiting or world.running or world.asked:
        steps = ["call"] * bool(waiting) + ["end"] * bool(world.running) + ["disk"] * bool(world.asked)
        step = data.draw(st.sampled_from(steps))
        if step == "call":
            world.call(*waiting.popleft())
        elif step == "end":
            world.end(data.draw(st.sampled_from(sorted(world.running))))
        else:
            world.do_next()
    assert world.disk == {FILE: world.sequential}
    assert not world.engine.state.tasks
    assert not world.engine.state.unwritten
