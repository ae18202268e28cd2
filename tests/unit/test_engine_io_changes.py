"""What changes for I/O tasks, seen through the engine: full devices, room from time zero on, learning below a layer
that nodes share, files that rest; and that none of it costs more where there is more of everything.
"""

from __future__ import annotations

import pytest
from tests.unit.engine_rig import call, settled
from tests.unit.storage_rig import FAST, MB, PublishedRig, StorageRig, io, of_kind, where, writes

from penstock.engine import flushing, io_demand
from penstock.engine.crowding import GRACE
from penstock.model.commands import Move, Warm
from penstock.model.resources import Auto, StorageLayer
from penstock.model.tasks import FailureKind
from penstock.tuning.registry import Learned, Measure

W = io("w", bw=10)


def test_who_waits_for_room_at_time_zero_is_refused_when_its_time_is_up() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 10))
    rig.now = 0.0
    small = io("w", bw=1, size=8)
    rig.submit(writes(1, "/fast/a", small))
    rig.wrote(1, path="/fast/a", size=8)
    rig.release(101)
    rig.submit(writes(2, "/fast/b", small))
    assert rig.engine.next_look() == GRACE
    assert rig.tick(GRACE - 1) == []
    told = settled(rig.tick(1.0))
    assert told[102].kind is FailureKind.STORAGE_FULL  # type: ignore[union-attr]


def test_a_refusal_names_a_layer_once_however_many_nodes_have_it() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 10), nodes=3)
    w = io("w", bw=1, size=8)
    for task in (1, 2, 3):
        rig.submit(writes(task, f"/fast/{task}", w))
    for task in (1, 2, 3):
        rig.wrote(task, path=f"/fast/{task}", size=10 - task)
        rig.release(100 + task)
    rig.submit(writes(4, "/fast/4", w))
    rig.tick(0.0)
    message = settled(rig.tick(GRACE))[104].message  # type: ignore[union-attr]
    assert message.count("fast") == 1 and "3 B of 10 B left (the emptiest of 3)" in message


def test_a_function_learns_on_a_lower_layer_of_an_untouched_node_when_the_shared_one_above_is_taken() -> None:
    shared, own = StorageLayer("pfs", "/pfs", 80 * MB, shared=True), StorageLayer("ssd", "/ssd", 60 * MB)
    auto = Auto(20 * MB, 20 * MB, 2)
    known = Learned("l", "pfs", shared.bandwidth, 3, auto, (Measure(20 * MB, 1.0, 3, 3),))
    rig = PublishedRig(shared, own, executors=3, nodes=2, known={("l", "pfs"): known})
    learner = io("l", auto=auto)
    assert where(rig.submit(call(1, learner))) == [(1, "pfs", 20.0)]
    assert where(rig.submit(*(call(task, io("h", bw=30)) for task in (2, 3)))) == [(2, "pfs", 30.0), (3, "pfs", 30.0)]
    assert {rig.engine.state.tasks[task].lane.node.name for task in (1, 2, 3)} == {"n0"}  # type: ignore[union-attr]
    assert of_kind(rig.submit(call(4, learner)), Warm) == [Warm("n1", 3)]


def test_times_are_known_on_every_node_that_has_such_a_layer() -> None:
    rig = StorageRig(FAST, nodes=2)
    rig.submit(call(1, W))
    rig.finish(1, seconds=3.0)
    assert {rig.device("fast", node).seconds(W.function) for node in ("n0", "n1")} == {3.0}


def test_a_closed_node_may_have_a_layer_worth_waiting_for_below_one_that_is_free() -> None:
    """The task is given the third layer of one node; the second of the other, which has no idle executor, is better."""
    layers = [StorageLayer(name, f"/{name}", bandwidth * MB) for name, bandwidth in (("x", 90), ("y", 60), ("z", 50))]
    rig = StorageRig(*layers, executors=1, nodes=2, scheduler="priority")
    device, fetch = rig.device, io("f", bw=50)
    for name, seconds in (("y", 1.0), ("z", 9.0)):
        device(name, "n0").learn(fetch.function, seconds)
    for layer in ("x", "y"):
        device(layer, "n1").free_bandwidth = 0.0  # others have it
    device("x", "n0").free_bandwidth = 40 * MB
    rig.checking = False
    assert where(rig.submit(call(1, io("g", bw=60)))) == [(1, "y", 60.0)]
    device("y", "n0").learn(sum(b"g"), 2.0)
    device("x", "n0").free_bandwidth = 90 * MB
    rig.tick(0.0)
    assert where(rig.submit(call(2, fetch))) == []


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temp", [False, True], ids=["held by the program", "where they will stay"])
def test_files_that_cannot_move_are_not_looked_at_whenever_one_can(temp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = StorageLayer("slow", "/slow", 40 * MB)
    rig = StorageRig(slow, data_movement=True) if temp else StorageRig(FAST, slow, data_movement=True)
    for task in range(1, 101):
        rig.submit(writes(task, f"/out/{task}", W, temp=temp))
        rig.wrote(task)
        if temp:
            rig.release(100 + task)
    rig.tick(0.0)
    looks = 0
    look = flushing._may_move

    def counted(*args: object) -> bool:
        nonlocal looks
        looks += 1
        return look(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(flushing, "_may_move", counted)
    moves = []
    for task in range(500, 510):
        rig.submit(writes(task, f"/out/{task}", W, temp=temp))
        moves += of_kind(rig.wrote(task) + rig.release(100 + task), Move)
    assert looks <= 40
    assert bool(moves) is not temp


@pytest.mark.parametrize("scheduler", ["fcfs", "priority", "backfilling"])
@pytest.mark.parametrize("tuner", [None, "published", "adaptive"], ids=["declared", "learned in epochs", "steered"])
def test_the_cost_of_an_io_task_does_not_grow_with_the_number_of_nodes(
    scheduler: str, tuner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    demand = io_demand.demand

    def counted(*args: object) -> object:
        nonlocal asked
        asked += 1
        return demand(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(io_demand, "demand", counted)
    found = []
    for nodes in (10, 100):
        rules = {"scheduler": scheduler, "tuner": tuner or "adaptive"}
        rig = StorageRig(FAST, StorageLayer("pfs", "/pfs", 50 * MB, shared=True), nodes=nodes, **rules)
        rig.checking = False
        functions = [io("one", bw=60), io("two", auto=Auto(20 * MB, 40 * MB, 2)) if tuner else io("two", bw=30)]
        task = 0
        while len(rig.engine.state.io_ready) < 50:
            task += 1
            rig.submit(call(task, functions[task % 2]))
        asked = 0
        running = [number for number, record in rig.engine.state.tasks.items() if record.lane is not None][:10]
        for number in running:
            rig.now += 0.001
            rig.finish(number)
            task += 1
            rig.submit(call(task, functions[task % 2]))
        found.append(asked / len(running))
    assert 0 < found[1] <= 2 * found[0]
