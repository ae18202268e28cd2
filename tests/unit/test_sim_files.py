"""Files of a simulation: updated, rewritten, without room, on nodes that go."""

from __future__ import annotations

import pytest
from tests.unit.sim_rig import MB, SSD, node, simulate

from penstock.engine.state import StorageRules
from penstock.model import events
from penstock.model.resources import StorageLayer
from penstock.model.tasks import FailureKind, OnFailure
from penstock.sim.files import Files, Stored, make_device
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Workload


def test_an_update_reads_and_copies_the_file_then_writes_it_anew() -> None:
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 100 * MB)])
    workload.task("append", updates=[("/ssd/x", 150 * MB)], seconds=1.0)
    workload.task("read", reads=["/ssd/x"])
    outcome = simulate(workload, node("n", 1, SSD))
    # Written 1 s; copied on the same device as one stream 1 s, computed 1 s, written 1.5 s; read 1.5 s.
    assert outcome.makespan == 1.0 + 1.0 + 1.0 + 1.5 + 1.5
    published = [event.path for _, event in outcome.log if isinstance(event, events.Published)]
    assert published == ["/ssd/x"]


def test_an_update_of_a_file_that_was_there_before() -> None:
    workload = Workload()
    for _ in range(2):
        workload.task("change", updates=[("/ssd/x", 50 * MB)])
    assert simulate(workload, node("n", 2, SSD)).makespan == 2 * (0.5 + 0.5)


def test_an_update_of_which_nobody_says_the_size_leaves_the_file_as_large_as_it_was() -> None:
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 100 * MB)])
    workload.task("touch", updates=[("/ssd/x", 0)])
    workload.task("read", reads=["/ssd/x"])
    simulation = Simulation([node("n", 1, SSD)], workload, room={"ssd": 250 * MB})
    assert simulation.run().makespan == 1.0 + 1.0 + 1.0  # it is copied, and that is all
    assert simulation.executor.files.used() == {"n:ssd": 100 * MB}


def test_updates_in_a_row_keep_their_order_and_leave_one_file() -> None:
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 10 * MB)])
    for _ in range(5):
        workload.task("append", updates=[("/ssd/x", 10 * MB)])
    simulation = Simulation([node("n", 4, SSD)], workload, room={"ssd": 100 * MB})
    outcome = simulation.run()
    assert outcome.done == 6
    assert outcome.makespan == pytest.approx(0.1 + 5 * 0.2)
    assert simulation.executor.files.used() == {"n:ssd": 10 * MB}


def test_a_rewritten_file_takes_its_room_once() -> None:
    workload = Workload()
    for _ in range(10):
        workload.task("write", writes=[("/ssd/x", 60 * MB)])
    outcome = simulate(workload, node("n", 1, SSD), room={"ssd": 130 * MB})
    assert outcome.failed == 0


def test_a_layer_that_is_smaller_than_described_sends_io_tasks_to_the_next_one() -> None:
    big = StorageLayer("ssd", "/ssd", 100.0 * MB, capacity=1000 * MB)
    disk = StorageLayer("disk", "/disk", 50.0 * MB)
    workload = Workload()
    for index in range(4):
        workload.io_task("write", writes=[(f"/home/{index}", 100 * MB)], constraint=40, capacity=100 * MB)
    outcome = simulate(workload, node("n", 1, big, disk), room={"ssd": 250 * MB})
    failed = [event.failure.kind for _, event in outcome.log if isinstance(event, events.Failed)]
    assert set(failed) == {FailureKind.STORAGE_FULL}
    assert (outcome.done, outcome.failed) == (4, 0)
    assert outcome.devices["n:disk"].transferred > 0


def test_tasks_are_refused_when_nothing_can_make_room() -> None:
    layer = StorageLayer("ssd", "/ssd", 100.0 * MB, capacity=1000 * MB)
    workload = Workload()
    for index in range(3):
        workload.io_task("write", writes=[(f"/ssd/{index}", 100 * MB)], constraint=100, capacity=100 * MB)
    outcome = simulate(workload, node("n", 1, layer), room={"ssd": 250 * MB})
    assert (outcome.done, outcome.failed) == (2, 1)
    assert outcome.failures == {FailureKind.STORAGE_FULL: 1}


def test_a_compute_task_that_finds_no_room_fails_like_any_that_raises() -> None:
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 300 * MB)])
    outcome = simulate(workload, node("n", 1, SSD), room={"ssd": 200 * MB})
    assert outcome.failures == {FailureKind.EXCEPTION: 1}
    assert outcome.makespan == 2.0  # what fits is written before it is known that the rest does not


def test_a_file_that_finds_no_room_at_home_stays_and_takes_none_there() -> None:
    disk = StorageLayer("disk", "/disk", 50.0 * MB)
    workload = Workload()
    for index, size in enumerate((100, 100, 50)):
        workload.io_task("write", writes=[(f"/disk/{index}", size * MB)], constraint=100, capacity=size * MB)
    simulation = Simulation([node("n", 1, SSD, disk)], workload, room={"disk": 150 * MB}, record=True)
    outcome = simulation.run()
    moved = [event.error for _, event in outcome.log if isinstance(event, events.Moved)]
    assert moved == ["", "no space left on n:disk", ""]
    assert simulation.executor.files.used() == {"n:disk": 150 * MB, "n:ssd": 100 * MB}


def test_a_move_that_breaks_off_gives_back_its_room() -> None:
    gpfs = StorageLayer("gpfs", "/gpfs", 1.0 * MB, shared=True)
    workload = Workload()
    workload.io_task("write", writes=[("/gpfs/x", 100 * MB)], constraint=50, capacity=100 * MB)
    workload.task("write", writes=[("/gpfs/y", 100 * MB)], at=150.0)
    nodes = [node("a", 1, SSD, gpfs), node("b", 1, gpfs, executors=0)]
    rules = StorageRules(data_movement=True)
    outcome = simulate(workload, *nodes, rules=rules, lost=[(50.0, "a")], room={"gpfs": 100 * MB})
    errors = [event.error for _, event in outcome.log if isinstance(event, events.Moved)]
    assert errors == ["the node that it was on was lost"] * 2  # the end of the run tries once more
    assert (outcome.done, outcome.makespan) == (2, 250.0)


def test_what_a_killed_attempt_had_written_is_free_again() -> None:
    workload = Workload()
    stuck = workload.task("stuck", writes=[("/ssd/x", 100 * MB)], seconds=0.5, timeout=1.0)
    workload.task("write", writes=[("/ssd/y", 200 * MB)], at=2.0)
    assert stuck.call.task == 1
    outcome = simulate(workload, node("n", 1, SSD), room={"ssd": 200 * MB})
    assert outcome.failures == {FailureKind.TIMEOUT: 1}
    assert outcome.done == 1


def test_a_file_with_two_names_takes_its_room_until_both_are_gone() -> None:
    files = Files({}, {"ssd": 100}, make_device)
    files.join(node("n", 1, SSD))
    device = files.device("n", "ssd")
    assert files.take_room(device, 80) == 80
    file = Stored("n", device, 80)
    files.put("/ssd/a", file)
    files.put("/ssd/b", file)
    files.link("/home/c", "/ssd/a")
    assert files.stored("/home/c") is file
    files.remove("/ssd/a")
    assert files.stored("/home/c") is None
    assert files.take_room(device, 80) == 20
    files.give_room(device, 20)
    files.remove("/ssd/b")
    assert files.take_room(device, 101) == 100


def test_devices_may_be_made_by_whoever_knows_better() -> None:
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 100 * MB)])
    layers = []

    def slow(name: str, layer: StorageLayer, per_stream: float):  # type: ignore[no-untyped-def]
        layers.append((name, layer.name, per_stream))
        return make_device(name, StorageLayer(layer.name, layer.mount, layer.bandwidth / 4), per_stream)

    assert simulate(workload, node("n", 1, SSD), device=slow).makespan == 4.0
    assert layers == [("n:ssd", "ssd", 0.0)]


def test_what_the_probe_measured_is_the_curve_of_a_simulated_device() -> None:
    measured = ((1, 50.0 * MB), (4, 100.0 * MB))
    probed = StorageLayer("ssd", "/ssd", 100.0 * MB, measured=measured)
    emulated = StorageLayer("ssd", "/ssd", 100.0 * MB, measured=measured, curve=((1, 25.0 * MB),))
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 100 * MB)])
    assert simulate(workload, node("n", 1, probed)).makespan == 2.0
    assert simulate(workload, node("n", 1, emulated)).makespan == 4.0  # what was given counts more


def test_each_node_brings_its_own_files_home() -> None:
    fast, slow = StorageLayer("fast", "/fast", 1000.0 * MB), StorageLayer("slow", "/slow", 50.0 * MB)
    workload = Workload()
    for index in range(4):
        workload.io_task("write", writes=[(f"/slow/{index}", 100 * MB)], constraint=1000, capacity=100 * MB)
    outcome = simulate(workload, node("a", 1, fast, slow), node("b", 1, fast, slow))
    assert outcome.makespan == pytest.approx(0.2)
    assert outcome.end == pytest.approx(0.2 + 2 * 2.0)  # two files of each node, at 50 MB/s


def test_who_ignores_failures_ignores_that_there_is_no_room() -> None:
    layer = StorageLayer("ssd", "/ssd", 100.0 * MB, capacity=1000 * MB)
    workload = Workload()
    for index in range(3):
        options = {"capacity": 100 * MB, "on_failure": OnFailure.IGNORE}
        write = workload.io_task("write", writes=[(f"/ssd/{index}", 100 * MB)], constraint=100, **options)
    workload.task("after", after=[write], seconds=1.0)
    outcome = simulate(workload, node("n", 1, layer), room={"ssd": 250 * MB})
    assert outcome.failures == {FailureKind.STORAGE_FULL: 1}
    assert outcome.done == 3  # two writes, and the one that waited for the third
