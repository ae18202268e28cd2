"""I/O scheduling, rule by rule: placement, the three schedulers and their corrections, ageing, names, cost."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from tests.unit.io_rig import UNLAYERED, Device, Node, Task, World, as_declared, need

from penstock.errors import ConfigError, InternalError
from penstock.model.resources import Auto, Requirements
from penstock.scheduling.io import DeviceView, IONodeView, IOReadySet, IOTask, Placement, io_scheduler_names
from penstock.scheduling.io_policies import Backfilling, Fcfs, Priority, io_policy

SCHEDULERS = ("fcfs", "priority", "backfilling")
AUTO = Requirements(cpus=0, io=True, auto=Auto())


def one_disk(scheduler: str, bandwidth: float = 100, ageing: float | None = None) -> tuple[World, Device]:
    disk = Device("disk", bandwidth)
    return World([Node("a", 0, [disk])], scheduler, ageing), disk


def two_layers(scheduler: str) -> tuple[World, Device, Device]:
    fast, slow = Device("fast", 100.0), Device("slow", 50.0)
    return World([Node("a", 0, [fast, slow])], scheduler), fast, slow


def chosen(world: World) -> Placement:
    placement = world.propose()
    assert placement is not None
    return placement


# --- placement --------------------------------------------------------------------------------------------------------


def test_a_task_goes_to_the_highest_layer_that_fits_and_overflows_to_the_next() -> None:
    world, fast, slow = two_layers("fcfs")
    world.add(*(Task(serial, need(40)) for serial in range(4)))
    assert world.round() == [0, 1, 2]
    assert [world.running[serial].device for serial in range(3)] == [fast, fast, slow]


def test_the_highest_layer_of_all_nodes_wins_over_the_first_node() -> None:
    busy = Node("a", 0, [Device("fast", 0.0), Device("slow", 100.0)])
    free = Node("b", 1, [Device("fast", 30.0)])
    world = World([busy, free])
    world.add(Task(1, need(30), locality={"a": 1000}))
    assert chosen(world)[1:] == (free, free.devices[0], 30)


def test_on_equal_layers_bytes_then_free_bandwidth_then_the_first_node_decide() -> None:
    nodes = [Node(name, index, [Device("fast", 100.0)]) for index, name in ((2, "c"), (0, "a"), (1, "b"))]
    world = World(nodes)
    world.add(Task(1, need(30)))
    assert chosen(world).node.name == "a"
    nodes[0].devices[0].free_bandwidth = 110
    assert chosen(world).node.name == "c"
    world.ready.remove(next(iter(world.ready.tasks())))
    world.add(Task(2, need(30), locality={"b": 1}))
    assert chosen(world).node.name == "b"


def test_a_node_without_an_idle_executor_takes_nothing() -> None:
    world = World([Node("a", 0, [Device("fast", 100.0)], executors=0), Node("b", 1, [Device("slow", 100.0)])])
    world.add(Task(1, need(10)), Task(2, UNLAYERED))
    assert world.round() == [1, 2]
    assert {placement.node.name for placement in world.running.values()} == {"b"}


def test_an_anchored_task_uses_its_layer_only() -> None:
    world, fast, slow = two_layers("fcfs")
    world.add(Task(1, need(40), anchor="slow"), Task(2, need(40), anchor="slow"))
    assert world.round() == [1]
    assert world.running[1].device is slow and fast.free_bandwidth == 100


def test_room_is_needed_as_well_and_a_full_device_takes_nothing_at_all() -> None:
    world, fast, slow = two_layers("fcfs")
    fast.free_capacity = 5
    world.add(Task(1, need(10, 6)), Task(2, need(10, 5)), Task(3, need(10)), Task(4, UNLAYERED))
    assert world.round() == [1, 2, 3, 4]
    assert [world.running[serial].device for serial in (1, 2, 3, 4)] == [slow, fast, slow, None]


def test_who_reads_a_file_on_a_full_device_needs_no_room_there() -> None:
    world, disk = one_disk("fcfs")
    disk.free_capacity = 0
    world.add(Task(1, need(10), anchor="disk"), Task(2, need(10)))
    assert world.round() == [1]


def test_a_task_without_storage_needs_asks_for_a_node_only() -> None:
    world = World([Node("a", 0, []), Node("b", 1, [])])
    task = Task(1, UNLAYERED, locality={"b": 5})
    world.add(task)
    assert chosen(world) == (task, world.nodes[1], None, 0.0)
    world.demand = lambda task, node, device: None if node.name == "b" else 0.0
    assert chosen(world).node.name == "a"


def test_what_is_taken_is_what_is_demanded_there() -> None:
    world, _, slow = two_layers("fcfs")
    world.demand = lambda task, node, device: {"fast": None, "slow": 12.5}[device.name if device else ""]
    world.add(Task(1, AUTO))
    assert chosen(world)[2:] == (slow, 12.5)


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_user_priority_comes_before_everything(scheduler: str) -> None:
    world, _ = one_disk(scheduler, 1000)
    world.add(Task(1, need(50)), Task(2, need(10), priority=1), Task(3, need(10)), Task(4, need(10), priority=2))
    assert world.round()[:2] == [4, 2]


def test_fcfs_goes_by_arrival_and_passes_over_what_does_not_fit() -> None:
    world, _ = one_disk("fcfs")
    world.add(Task(1, need(60)), Task(2, need(50)), Task(3, need(30)), Task(4, need(20)), Task(5, need(10)))
    assert world.round() == [1, 3, 5]


def test_priority_goes_by_bandwidth_and_stops_at_the_first_that_does_not_fit() -> None:
    world, _ = one_disk("priority")
    world.add(Task(1, need(10)), Task(2, need(30)), Task(3, need(60)), Task(4, need(30)))
    assert world.round() == [3, 2]


def test_learned_tasks_are_ordered_by_the_largest_they_would_take() -> None:
    world, _, _ = two_layers("priority")
    learned = {"fast": 20.0, "slow": 40.0}

    def demand(task: IOTask, node: IONodeView, device: DeviceView | None) -> float | None:
        return learned[device.name] if device and task.requirements.auto else as_declared(task, node, device)

    world.demand = demand
    world.add(Task(1, need(30)), Task(2, AUTO), Task(3, UNLAYERED), Task(4, need(41)))
    assert world.round() == [4, 2, 1, 3]


def test_a_task_taken_back_goes_to_its_old_place() -> None:
    world, _ = one_disk("fcfs", 10)
    tasks = [Task(serial, need(10)) for serial in range(5)]
    world.add(*tasks)
    for gone in (tasks[0], tasks[2], tasks[3]):
        world.ready.remove(gone)
    assert chosen(world).task is tasks[1]
    world.add(tasks[3], tasks[0])
    world.ready.remove(tasks[3])
    world.add(tasks[3])
    assert world.run({0: 1.0}) == [(0, [0]), (1, [1]), (2, [3]), (3, [4])]


def test_many_cancelled_behind_the_first_leave_the_others_in_order() -> None:
    world, _ = one_disk("fcfs", 1000)
    tasks = [Task(serial, need(1), priority=serial % 5) for serial in range(200)]
    world.add(*tasks)
    for task in tasks[:190]:
        if task.serial != 4:  # the first in line stays
            world.ready.remove(task)
    kept = sorted([tasks[4], *tasks[190:]], key=lambda task: (-task.priority, task.serial))
    assert world.round() == [task.serial for task in kept]


def test_a_task_is_added_and_removed_once() -> None:
    ready = IOReadySet()
    task = Task(7, need(10), function=3)
    ready.add(task)
    assert (len(ready), ready.count(3), list(ready.tasks())) == (1, 1, [task])
    with pytest.raises(InternalError, match="became ready twice"):
        ready.add(task)
    ready.remove(task)
    assert (len(ready), ready.count(3), list(ready.tasks())) == (0, 0, [])
    with pytest.raises(InternalError, match="is not ready"):
        ready.remove(task)


def test_the_next_alike_is_told_only_if_nobody_else_is_overtaken() -> None:
    ready = IOReadySet()
    tasks = [Task(serial, need(10)) for serial in range(3)]
    for task in tasks[1:]:
        ready.add(task)
    assert ready.next_alike(tasks[0]) is tasks[1]
    assert ready.next_alike(Task(9, need(20))) is None
    for other in (Task(5, need(20)), Task(6, need(10), function=1), Task(7, need(10), anchor="disk")):
        ready.add(other)
        assert ready.next_alike(tasks[0]) is None
        ready.remove(other)
    assert ready.next_alike(tasks[0]) is tasks[1]


# --- who blocks whom --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_task_that_waits_for_a_learning_phase_blocks_nobody(scheduler: str) -> None:
    world, disk = one_disk(scheduler)
    disk.means = {0: 1.0}
    world.add(Task(1, need(10)))
    assert world.round() == [1]
    world.demand = lambda task, node, device: None if task.requirements.auto else as_declared(task, node, device)
    world.add(Task(2, AUTO, priority=1), Task(3, need(90)))
    assert world.round() == [3]


def test_a_waiting_task_that_must_learn_meanwhile_holds_nobody_back() -> None:
    world, disk = one_disk("backfilling")
    world.add(Task(1, need(50)), Task(2, AUTO, function=1))
    world.demand = lambda task, node, device: 60.0 if task.function == 1 else 50.0
    disk.free_bandwidth = 50
    disk.attempts[99] = (0, 0.0)
    assert world.round() == []
    world.demand = lambda task, node, device: None if task.function == 1 else 50.0
    assert world.round() == [1]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_without_an_idle_executor_nothing_is_proposed_and_nobody_becomes_the_waiting_task(scheduler: str) -> None:
    world, _ = one_disk(scheduler)
    world.nodes[0].executors = 0
    world.add(Task(1, need(90)))
    assert world.propose() is None
    world.nodes[0].executors = 2
    world.add(Task(2, need(95)))
    assert world.round() == [1 if scheduler == "fcfs" else 2]


def test_a_task_of_larger_user_priority_does_not_wait_for_the_waiting_task() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 10.0}
    world.add(Task(1, need(60)), Task(2, need(50)))
    assert world.round() == [1]
    world.add(Task(3, need(20)), Task(4, need(20), priority=1))
    assert world.round() == [4]


def test_a_blocked_task_of_larger_user_priority_takes_the_part_of_the_waiting_task() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 10.0}
    world.add(Task(1, need(60)), Task(2, need(40)), Task(3, need(50)))
    assert world.round() == [1]
    world.add(Task(4, need(90), priority=1))
    world.now = 1.0
    assert world.round() == []
    world.finish(1)
    assert world.round() == [4]


# --- the corrections --------------------------------------------------------------------------------------------------


def maximizing() -> tuple[World, Device, Device]:
    """The fast layer is taken for one more second; there the next task would take one, on the slow layer ten."""
    world, fast, slow = two_layers("priority")
    fast.means, slow.means = {0: 1.0}, {0: 10.0}
    world.add(Task(1, need(90)))
    assert world.round() == [1]
    world.add(Task(2, need(40)))
    return world, fast, slow


def test_correction_1_what_is_placed_but_not_launched_has_taken_nothing() -> None:
    world, fast, slow = maximizing()
    assert world.propose() is None
    assert (slow.free_bandwidth, slow.free_capacity, world.nodes[0].executors) == (50, inf, 999_999)
    world.finish(1)
    assert world.round() == [2] and world.running[2].device is fast


def test_correction_1_nor_has_what_is_not_backfilled() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 5.0}
    world.add(*(Task(serial, need(60)) for serial in (1, 2)), Task(3, need(30)))
    assert world.round() == [1]
    assert (disk.free_bandwidth, world.nodes[0].executors) == (40, 999_999)


def test_correction_2_the_waiting_task_lives_until_it_is_launched() -> None:
    """A larger task that comes later does not take its part; it would make the first one backfill, and too long."""
    world, disk = one_disk("backfilling")
    disk.means = {0: 2.0, 1: 9.0}
    world.add(Task(1, need(50)), Task(2, need(50)), Task(3, need(40), function=1))
    assert world.round() == [1, 2]
    world.add(Task(4, need(80)))
    world.now = 1.0
    assert world.round() == []
    world.finish(1)
    assert world.round() == [3]
    world.finish(2)
    assert world.round() == []
    world.finish(3)
    assert world.round() == [4]


def test_correction_2_a_waiting_task_that_is_cancelled_is_forgotten() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 2.0}
    waiting = Task(2, need(50))
    world.add(Task(1, need(60)), waiting, Task(3, need(40)))
    assert world.round() == [1]
    world.ready.remove(waiting)
    assert world.round() == [3]


def test_correction_2_the_time_it_waits_is_estimated_anew_in_each_round_and_once() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 10.0, 1: 4.0}
    world.add(Task(1, need(60)), Task(2, need(50)), *(Task(serial, need(10), function=1) for serial in (3, 4, 5, 6, 7)))
    assert world.round() == [1, 3, 4, 5, 6]  # all four end before the first; not only the first of them
    world.finish(3)
    assert world.round() == []  # the others of them end as soon as a new one would
    for serial in (4, 5, 6):
        world.finish(serial)
    world.now = 6.0
    assert world.round() == []  # the large one ends in 4 seconds, a small one would not end before it
    world.now = 5.9
    assert world.round() == [7]


def test_correction_2_another_waiting_task_has_its_own_estimate() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 10.0, 1: 4.0}
    cancelled = Task(2, need(50))
    world.add(Task(1, need(60)), cancelled, Task(3, need(20), function=1))
    for expected in (1, 3):
        assert chosen(world).task.serial == expected
        world.launch(chosen(world))
    world.ready.remove(cancelled)
    world.add(Task(4, need(50)), Task(5, need(10), function=1))
    assert world.round() == []


def test_correction_2_it_is_first_in_line_when_it_can_start() -> None:
    """Else ever new larger tasks would keep it waiting."""
    world, disk = one_disk("backfilling")
    disk.means = {0: 2.0}
    world.add(Task(1, need(90)), Task(2, need(40)))
    assert world.round() == [1]
    world.finish(1)
    world.add(Task(3, need(90)))
    assert world.round() == [2]


def test_correction_2_a_waiting_task_behind_one_alike_is_still_the_waiting_task() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 5.0, 1: 20.0}
    world.add(Task(1, need(50)), Task(2, need(50)), Task(5, need(40), function=1))
    assert world.round() == [1, 2]
    world.add(Task(4, need(40), function=1))  # an older one, taken back
    world.now = 1.0
    world.finish(1)
    assert world.round() == [5]


def test_correction_3_without_measured_times_priority_does_not_wait_for_a_higher_layer() -> None:
    for forget in ("fast", "slow"):
        world, fast, slow = maximizing()
        (fast if forget == "fast" else slow).means = {}
        assert world.round() == [2] and world.running[2].device is slow


@pytest.mark.parametrize(("size", "fits"), [(0, False), (30 * 3, True), (30 * 6, False)])
def test_correction_3_backfilling_estimates_from_the_size_or_refuses(size: int, fits: bool) -> None:
    world, disk = one_disk("backfilling")
    disk.means = {0: 5.0}
    world.add(Task(1, need(60)), Task(2, need(50)), Task(3, need(30, size), function=1))
    assert world.round() == ([1, 3] if fits else [1])


def test_correction_3_what_runs_for_an_unknown_time_may_end_at_once() -> None:
    world, disk = one_disk("backfilling")
    disk.means = {1: 5.0}
    world.add(Task(1, need(60)), Task(2, need(50)), Task(3, need(30), function=1))
    assert world.round() == [1]


def test_correction_4_waiting_for_a_layer_without_room_cannot_help() -> None:
    for room, launched in ((4.0, [2]), (5.0, [])):
        world, fast, _ = maximizing()
        world.ready.remove(next(iter(world.ready.tasks())))
        world.add(Task(2, need(40, 5)))
        fast.free_capacity = room
        assert world.round() == launched


def test_correction_4_nor_for_a_layer_where_nothing_runs_or_the_task_may_not_start() -> None:
    world, fast, _ = maximizing()
    fast.attempts.clear()
    assert world.round() == [2]
    world, _, _ = maximizing()
    world.demand = lambda task, node, device: None if device and device.name == "fast" else 40.0
    assert world.round() == [2]
    world, _, _ = maximizing()
    world.ready.remove(next(iter(world.ready.tasks())))
    world.add(Task(2, need(40), anchor="slow"))
    assert world.round() == [2]


def test_only_a_higher_layer_is_worth_waiting_for_not_another_node() -> None:
    busy, slow = Device("disk", 0.0, means={0: 1.0}), Device("disk", 50.0, means={0: 10.0})
    busy.attempts[99] = (0, 0.0)
    world = World([Node("a", 0, [busy]), Node("b", 1, [slow])], "priority")
    world.add(Task(1, need(40)))
    assert world.round() == [1]


def test_correction_4_time_is_what_is_left_and_never_below_zero() -> None:
    world, fast, _ = maximizing()
    fast.means = {0: 6.0}  # six left and six there, against ten
    assert world.propose() is not None
    world.now = 2.5  # three and a half
    assert world.propose() is None
    fast.means = {0: 11.0}
    world.now = 100.0  # long overdue: none left, but eleven there
    assert world.propose() is not None


def test_correction_5_a_task_that_no_device_can_ever_take_does_not_block_for_ever() -> None:
    """Submission refuses it; but what else makes a task impossible, as a device that fills up, must stop nobody."""
    for scheduler in SCHEDULERS:
        world, disk = one_disk(scheduler)
        disk.free_capacity = 10
        world.add(Task(1, need(101)), Task(2, need(50, 11)), Task(3, need(20)), Task(4, need(20)))
        assert [serial for _, launched in world.run({0: 1.0}) for serial in launched] == [3, 4]


def test_correction_6_the_waiting_time_is_the_shortest_on_any_layer_of_any_node() -> None:
    for left, launched in ((3.0, []), (5.0, [3])):
        near, far = Device("near", 30.0, means={0: 4.0, 1: 20.0}), Device("far", 0.0, means={1: left})
        near.attempts[98] = (1, 0.0)
        far.attempts[99] = (1, 0.0)
        world = World([Node("a", 0, [near]), Node("b", 1, [far])], "backfilling")
        world.add(Task(2, need(50)), Task(3, need(30)))
        assert world.round() == launched


def test_correction_7_each_node_offers_its_highest_layer_that_fits_and_no_other() -> None:
    asked = []

    def demand(task: IOTask, node: IONodeView, device: DeviceView | None) -> float:
        assert device is not None
        asked.append((node.name, device.name))
        return 30.0

    world = World(
        [Node("a", 0, [Device("x", 10.0), Device("y", 30.0), Device("z", 90.0)]), Node("b", 1, [Device("x", 50.0)])]
    )
    world.demand = demand
    world.add(Task(1, need(30)))
    assert chosen(world).node.name == "b"
    assert asked == [("a", "x"), ("a", "y"), ("b", "x")]


# --- ageing -----------------------------------------------------------------------------------------------------------


def served_while_larger_ones_keep_coming(scheduler: str, ageing: float | None) -> list[int]:
    """A small task, and at each second a new large one, one more than the device can serve: who was launched when."""
    world, disk = one_disk(scheduler, ageing=ageing)
    disk.means = {0: 1.0, 1: 1.0}
    world.add(Task(0, need(20), function=1))
    launched: list[int] = []
    for second in range(20):
        world.now = float(second)
        for serial in list(world.running):
            world.finish(serial)
        world.add(*(Task(1 + 2 * second + i, need(90), ready_since=world.now) for i in range(2)))
        launched += world.round()
    return launched


@pytest.mark.parametrize("scheduler", ["priority", "backfilling"])
def test_small_tasks_starve_as_published_and_age_cures_it(scheduler: str) -> None:
    assert served_while_larger_ones_keep_coming(scheduler, None) == list(range(1, 21))
    # In second 5 it is the first in line; under backfilling, behind the task that was waiting then.
    cured = served_while_larger_ones_keep_coming(scheduler, 5.0)
    assert cured.index(0) == {"priority": 5, "backfilling": 6}[scheduler]


def test_the_oldest_of_the_aged_is_first_and_only_within_its_priority() -> None:
    world, _ = one_disk("priority", 1000, ageing=10.0)
    world.add(
        Task(1, need(10), ready_since=1.0),
        Task(2, need(20), ready_since=2.0),
        Task(3, need(30), ready_since=3.0),
        Task(4, need(5), ready_since=3.0, priority=1),
    )
    world.now = 12.0
    assert world.round() == [4, 1, 2, 3]


def test_the_next_change_is_when_the_next_kind_ages() -> None:
    world, _ = one_disk("priority", ageing=10.0)
    world.add(Task(1, need(10), ready_since=1.0), Task(2, need(10), ready_since=1.5))
    assert world.ready.next_change(0.0) is None  # one kind alone has nobody to overtake
    world.add(Task(3, need(20), ready_since=2.0))
    assert world.ready.next_change(2.0) == 11.0
    assert world.ready.next_change(11.0) == 12.0
    assert world.ready.next_change(12.0) is None
    world.now = 11.0
    assert chosen(world).task.serial == 1
    world.now = 10.9
    assert chosen(world).task.serial == 3


def test_without_ageing_or_under_fcfs_time_alone_changes_nothing() -> None:
    for ready in (IOReadySet("priority"), IOReadySet("backfilling", None), IOReadySet("fcfs", 10.0)):
        ready.add(Task(1, need(10)))
        ready.add(Task(2, need(20)))
        assert ready.next_change(0.0) is None


# --- names ------------------------------------------------------------------------------------------------------------


def test_schedulers_are_known_by_their_names_and_by_those_of_pycompss() -> None:
    assert io_scheduler_names() == ["backfilling", "fcfs", "priority"]
    for names, kind in (
        (("fcfs", "FCFS", "FcfsScheduler"), Fcfs),
        (("priority", "Priority", "IOPriorityScheduler", "iopriorityscheduler"), Priority),
        (("backfilling", "IOBackfillingScheduler"), Backfilling),
    ):
        assert {type(io_policy(name)) for name in names} == {kind}


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"'backfil': known are backfilling, fcfs, priority; did you mean 'backfilling'"
    ):
        IOReadySet("backfil")
    with pytest.raises(ConfigError, match=r"known are backfilling, fcfs, priority$"):
        IOReadySet("zzz")


# --- cost -------------------------------------------------------------------------------------------------------------


class Counted(Task):
    """A task that counts how often anything of it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        looks[0] += 1
        return super().__getattribute__(name)


looks = [0]


def looks_of_some_launches(scheduler: str, ready: int) -> int:
    """How often tasks are looked at during 20 launches and as many ends, and as many rounds in vain."""
    world, disk = one_disk(scheduler, ageing=5.0)
    disk.means = {0: 2.0, 1: 1.0}
    for serial in range(ready):
        world.ready.add(Counted(serial, need(60 if serial % 2 else 30), function=serial % 2))
    looks[0] = 0
    launched = 0
    while launched < 20:
        launched += len(world.round())
        world.now += 1
        for serial in list(world.running):
            world.finish(serial)
    return looks[0]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_cost_of_a_decision_does_not_grow_with_the_number_of_ready_tasks(scheduler: str) -> None:
    few, many = looks_of_some_launches(scheduler, 1_000), looks_of_some_launches(scheduler, 100_000)
    assert 0 < many <= 2 * few
