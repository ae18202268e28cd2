"""Random programs in little memory: segments are spilled and restored, or cannot be, and nobody notices or waits."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.properties.engine_world import World
from tests.properties.test_engine_machine import EngineMachine

from penstock.engine.engine import Engine
from penstock.engine.segment_store import StoreRules
from penstock.model import events
from penstock.model.commands import Command, Divert, Free, Launch, Restore, Spill
from penstock.model.data import Piece, Value
from penstock.model.resources import Node, StorageLayer
from penstock.model.tasks import TaskState
from penstock.scheduling.compute import Fifo, FifoData, Lifo, LoadBalance, Locality
from penstock.scheduling.ready_queues import ReadyQueues
from penstock.scheduling.reference import NaiveReadySet

#: bandwidth for two moves at a time, in whichever direction
LAYERS = (StorageLayer("fast", "/fast", 2.0, 400), StorageLayer("slow", "/slow", 2.0, 1000))


class SmallWorld(World):
    """A world whose memory is limited."""

    def __init__(self, engines: list[Engine]) -> None:
        super().__init__(engines)
        #: segments on disk, and the layer of each
        self.on_disk: dict[int, str] = {}
        self.moves: dict[int, Spill | Restore] = {}
        self.diverted = False
        #: moves are over as soon as they begin
        self.instant = False
        #: places on disk that have no room, whatever the engine counts
        self.full: set[str] = set()

    def store(self, token: str) -> Value:
        self.made_segments += 1
        segment = self.made_segments
        self.segments[segment] = token
        direct = self.engine.state.store.rules.direct  # type: ignore[union-attr]
        spilled = self.diverted and direct not in self.full  # who cannot write there writes to memory
        if spilled:
            self.on_disk[segment] = direct
        return Value(token.encode(), (Piece(segment, spilled, 0, 40 + 37 * segment % 160),))

    def _carry_out(self, command: Command) -> events.Event | None:
        match command:
            case Spill() | Restore():
                assert command.segment in self.segments
                assert command.segment not in self.moves
                self.moves[command.segment] = command
                if isinstance(command, Spill):
                    assert command.segment not in self.on_disk
                    assert command.segment not in self._used()
                else:
                    assert self.on_disk[command.segment] == command.layer
                return self._answer(command.segment, "") if self.instant else None
            case Divert(to_disk):
                assert to_disk != self.diverted
                self.diverted = to_disk
            case Free(segment, _, tell):
                assert segment not in self.moves
                layer = self.on_disk.pop(segment, "")
                assert layer or not tell  # what no version ever held was never counted
                super()._carry_out(command)
                return events.Discarded(f"s{segment}") if tell else None
            case _:
                return super()._carry_out(command)
        return None

    def _used(self) -> set[int]:
        """Segments that launched attempts use."""
        contents = [slot for attempt in self.attempts() for slot in attempt.launch.slots]
        return {piece.segment for slot in contents if type(slot) is Value for piece in slot.pieces()}

    def _launch(self, launch: Launch) -> None:
        super()._launch(launch)
        for index in launch.in_place:
            content = launch.slots[index]
            if type(content) is Value:
                assert not any(piece.segment in self.on_disk for piece in content.pieces()), "a checksum would be wrong"
        for segment in self._used():
            assert not isinstance(self.moves.get(segment), Spill)

    def _answer(self, segment: int, error: str) -> events.Event:
        command = self.moves.pop(segment)
        if isinstance(command, Spill):
            if command.layer in self.full:
                error = "no space left on device"
            if not error:
                self.on_disk[segment] = command.layer
            return events.Spilled(segment, error)
        if not error:
            del self.on_disk[segment]
        return events.Restored(segment, error)

    def end_move(self, segment: int, error: str) -> None:
        self.tell(self._answer(segment, error))

    def _judge_liveness(self) -> None:
        state = self.engine.state
        store = state.store
        assert store is not None
        used_up = store.restores or any(state.tasks[holder].relieves for holder in state.ledger.holders)
        waits_for_room = used_up and 2 * store.passing_bytes >= store.capacity
        for task in state.tasks.values():
            could = self.model.could_run(self.model.tasks[task.task]) and not store.waits(task.task)
            assert (task.state is TaskState.WAITING) == (not could)
            if task.state is TaskState.READY and not waits_for_room:
                for node in self.nodes.values():
                    kept = state.ledger.nodes[node.name].kept
                    assert kept is not None or not self._fits(node, task.requirements)


class SpillingMachine(EngineMachine):
    world: SmallWorld

    @initialize(
        policy=st.sampled_from([Fifo, Lifo, Locality, FifoData, LoadBalance]),
        cpus=st.integers(1, 3),
        capacity=st.sampled_from([1, 100, 300, 600, 1500]),
        places=st.sampled_from([("fast", "slow", ""), ("fast", "slow"), ("",), ("fast",)]),
        direct=st.sampled_from(["", "slow"]),
    )
    def begin(self, policy: Any, cpus: int, capacity: int, places: tuple[str, ...], direct: str) -> None:  # type: ignore[override]
        self.policy = policy
        self.rules = StoreRules(capacity, places, direct)
        self.world = SmallWorld([self._fresh(ReadyQueues), self._fresh(NaiveReadySet)])
        self.numbers = iter(range(1, 1 << 30))
        self.world.join(Node("n0", cpus, 100, (), LAYERS, countable=(("gpus", 2),)))
        self.joined = 4  # others come and go in the machine of the whole engine: here they would share a store

    def _fresh(self, ready: Any) -> Engine:
        follows = self.policy in (Locality, FifoData, LoadBalance)
        return Engine(ready(self.policy()), follows_data=follows, store=self.rules)

    @precondition(lambda self: self.world.moves)
    @rule(data=st.data(), error=st.sampled_from(["", "", "", "", "no space left on device"]))
    def end_move(self, data: st.DataObject, error: str) -> None:
        self.world.end_move(data.draw(st.sampled_from(sorted(self.world.moves))), error)

    @precondition(lambda self: self.world.moves)
    @rule()
    def end_moves(self) -> None:
        for segment in sorted(self.world.moves):
            self.world.end_move(segment, "")

    @rule(place=st.sampled_from(["fast", "slow", ""]))
    def fill_or_empty_a_disk(self, place: str) -> None:
        self.world.full ^= {place}

    def _drain(self) -> None:
        world = self.world
        world.instant = True
        for segment in sorted(world.moves):
            world.end_move(segment, "")
        super()._drain()

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "world"):
            store = self.world.engine.state.store
            assert store is not None
            assert not (store.records or store.needs or store.parked or store.used or store.pinned)
            assert not self.world.on_disk
            for device in self.world.engine.state.ledger.devices():
                assert device.free_bandwidth == device.layer.bandwidth
                assert not device.stored


SpillingMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestSpillingMachine = SpillingMachine.TestCase
