"""What is counted of storage from the records of a run, what that means for the time that is left, and the summary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe import records
from penstock.observe.device_tally import ConstraintTally, DeviceLine, StorageTally
from penstock.observe.records import (
    ConstraintChosen,
    ConstraintDrifted,
    Device,
    EpochEnded,
    Finished,
    Launched,
    Layer,
    LayerShared,
    Moved,
    Record,
    RunEnded,
    RunStarted,
    Submitted,
)
from penstock.observe.summary import summary_lines
from penstock.observe.tally import Tally

MB = 1_000_000
LAYERS = [Layer("ssd", "/fast", 450.0 * MB, 200_000 * MB), Layer("gpfs", "/fast/shared", 12_000.0 * MB, shared=True)]
STARTED = RunStarted(0.0, 0.0, "1", ["app.py"], 2, 1 << 30, "here", "fifo", 16, "fcfs", LAYERS)


def submitted(task: int, name: str = "save", *, learned: bool = False, io: bool = True) -> Record:
    return Submitted(0.0, task, name, 1, [], [], 0 if io else 1, io, learned)


def launched(task: int, bandwidth: float = 8.0 * MB, *, t: float = 0.0, layer: str = "ssd") -> Record:
    return Launched(t, task, 1, "here", task, layer, bandwidth)


def finished(task: int, size: int = 0, *, t: float = 1.0, seconds: float = 1.0, layer: str = "ssd") -> Record:
    return Finished(t, task, 1, "here", task, seconds, size, layer)


def device(
    used: float = 0.0, running: int = 0, *, t: float = 0.0, waiting: int = 0, stored: int = 0, layer: str = "ssd"
) -> Record:
    return Device(t, "here", layer, used, running, waiting, stored)


def chosen(value: float, *, concurrency: int = 56, remembered: bool = False) -> Record:
    return ConstraintChosen(2.0, "save", "ssd", value, concurrency, 0.5, remembered)


def epoch(value: float, tasks: int) -> Record:
    return EpochEnded(1.0, "save", "ssd", "here", value, 0.5, tasks, tasks)


def moved(source: str, path: str, size: int, *, layer: str = "", error: str = "") -> Record:
    return Moved(3.0, 1, path, source, layer, size, 0.1, error)


@pytest.fixture
def tally() -> Tally:
    tally = Tally()
    tally.add([STARTED])
    return tally


# --- devices ---------------------------------------------------------------------------------------------------------


def test_a_device_is_told_of_once_it_is_used(tally: Tally) -> None:
    tally.add([submitted(1), device(), device(layer="gpfs")])
    assert tally.snapshot(0.0).devices == []
    tally.add([launched(1), device(8.0 * MB, 1, waiting=12, stored=5 * MB)])
    snapshot = tally.snapshot(0.0)
    assert snapshot.devices == [DeviceLine("ssd", 8.0 * MB, 450.0 * MB, 1, 0.0, 5 * MB, 200_000 * MB)]
    assert snapshot.waiting == 12


def test_devices_stay_in_their_order(tally: Tally) -> None:
    tally.add([submitted(1), submitted(2), launched(1, layer="gpfs"), launched(2)])
    assert [line.name for line in tally.snapshot(0.0).devices] == ["ssd", "gpfs"]


def test_the_rate_of_a_device_is_what_finished_tasks_wrote_of_late(tally: Tally) -> None:
    tally.add([submitted(task) for task in range(10)] + [launched(task, t=100.0) for task in range(10)])
    tally.add([finished(task, 30 * MB, t=101.0) for task in range(10)])
    assert tally.snapshot(101.0).devices[0].rate == pytest.approx(300 * MB)
    for second in range(102, 112):
        rate = tally.snapshot(float(second)).devices[0].rate
    assert rate == 0


def test_waves_of_long_tasks_show_a_steady_rate(tally: Tally) -> None:
    tally.add(submitted(task) for task in range(40))
    for wave in range(4):  # ten tasks of 20 s together, four times
        tasks = range(wave * 10, wave * 10 + 10)
        tally.add([launched(task, t=wave * 20.0) for task in tasks])
        for quarter in range(1, 80):
            rate = tally.snapshot(wave * 20 + quarter / 4).devices[0].rate
            assert not wave or 95 * MB < rate < 110 * MB
        tally.add([finished(task, 200 * MB, t=wave * 20 + 20.0, seconds=20.0) for task in tasks])
        tally.snapshot(wave * 20 + 20.0)


def test_time_in_use_is_the_time_with_attempts_running(tally: Tally) -> None:
    tally.add([submitted(1), launched(1, t=2.0), device(1.0, 1, t=2.0), device(2.0, 2, t=3.0), device(0.0, 0, t=5.0)])
    ssd = tally.storage.devices["ssd"]
    assert ssd.seconds_in_use(20.0) == pytest.approx(3)
    tally.add([device(0.0, 0, t=6.0), device(1.0, 1, t=10.0)])
    assert ssd.seconds_in_use(20.0) == pytest.approx(13)


def test_a_flush_belongs_to_the_layer_that_the_file_leaves(tally: Tally) -> None:
    tally.add(
        [
            moved("/fast/penstock-0-1-a-layer/kept/x", "/home/me/x", 40 * MB),
            moved("/fast/penstock-0-1-a-layer/kept/y", "/home/me/y", 0, error="no space left"),
            moved("/fast/shared/penstock-0-1-a-layer/kept/z", "/home/me/z", 7 * MB),
            moved("/faster/z", "/home/me/z", 7 * MB),  # no layer of ours, for all that its name begins alike
        ]
    )
    ssd, gpfs = tally.storage.devices.values()
    assert (ssd.flushes, ssd.flushed) == (1, 40 * MB)
    assert (gpfs.flushes, gpfs.flushed) == (1, 7 * MB)


@pytest.mark.parametrize("layer", ["gpfs", ""])
def test_a_device_that_files_are_moved_to_is_told_of(tally: Tally, layer: str) -> None:
    tally.add([moved("/fast/kept/x", "/fast/shared/x", 40 * MB, layer=layer), device(layer="gpfs", stored=40 * MB)])
    assert [(line.name, line.stored) for line in tally.snapshot(3.0).devices] == [("gpfs", 40 * MB)]


def test_layers_from_before_the_first_record_are_passed_over() -> None:
    tally = Tally()
    tally.add([submitted(1), launched(1), device(1.0, 1), finished(1, 5), moved("/fast/x", "/x", 5)])
    assert tally.snapshot(1.0).devices == []


# --- learned constraints ---------------------------------------------------------------------------------------------


def constraint(tally: Tally) -> tuple[float, int | None, bool]:
    (found,) = tally.snapshot(1.0).constraints
    return found.value, found.concurrency, found.learning


def test_a_constraint_from_the_first_epoch_to_the_choice_and_anew(tally: Tally) -> None:
    tally.add([submitted(task, learned=True) for task in range(9)])
    assert tally.snapshot(0.0).constraints == []
    tally.add([launched(0, 2.0 * MB)])
    assert constraint(tally) == (2.0 * MB, None, True)
    tally.add([epoch(2.0 * MB, 225), launched(1, 4.0 * MB)])
    assert constraint(tally) == (4.0 * MB, None, True)
    tally.add([epoch(4.0 * MB, 112), chosen(8.0 * MB), launched(2, 8.0 * MB)])
    assert constraint(tally) == (8.0 * MB, 56, False)
    tally.add([chosen(16.0 * MB, concurrency=28), launched(3, 8.0 * MB)])  # an earlier value does not come back
    assert constraint(tally) == (16.0 * MB, 28, False)
    tally.add([ConstraintDrifted(3.0, "save", "ssd", 1.7)])
    assert constraint(tally) == (0.0, None, True)
    assert tally.storage.constraints["save", "ssd"].epochs == 2
    assert tally.storage.constraints["save", "ssd"].tasks == 337


def test_a_fixed_constraint_is_not_taken_for_a_learned_one(tally: Tally) -> None:
    tally.add([submitted(1), launched(1)])
    assert tally.snapshot(0.0).constraints == []


def test_constraints_of_functions_that_are_through_are_not_shown(tally: Tally) -> None:
    tally.add([submitted(1, learned=True), launched(1), finished(1)])
    assert tally.snapshot(1.0).constraints == []
    assert tally.storage.constraints["save", "ssd"] == ConstraintTally("save", "ssd", 8.0 * MB)


def test_a_picture_does_not_change_afterwards(tally: Tally) -> None:
    tally.add([submitted(1, learned=True), launched(1)])
    snapshot = tally.snapshot(0.0)
    tally.add([chosen(2.0 * MB)])
    assert snapshot.constraints[0].learning


# --- time that is left -----------------------------------------------------------------------------------------------


def test_io_tasks_go_on_at_their_rate_whatever_the_cpus(tally: Tally) -> None:
    tally.add([submitted(task) for task in range(100)])
    tally.add([finished(task, seconds=8.0, t=2.0) for task in range(40)])
    # 20 a second for the last two seconds; 60 of 8 s each on two CPUs would be four minutes.
    assert tally.snapshot(2.0).total.remaining == pytest.approx(3)


def test_io_runs_beside_the_rest_and_the_longer_of_the_two_counts(tally: Tally) -> None:
    tally.add([submitted(task) for task in range(100)])
    tally.add([submitted(100 + task, "compute", io=False) for task in range(11)])
    tally.add([finished(task, t=2.0) for task in range(40)])
    tally.add([Finished(2.0, 100, 1, "here", 0, 2.0, 0)])
    snapshot = tally.snapshot(2.0)
    assert snapshot.total.remaining == pytest.approx(10)  # ten of 2 s on two CPUs; I/O takes 3 s
    assert snapshot.lines[0].remaining == pytest.approx(3)


def test_io_tasks_that_wait_for_others_are_expected_to_be_as_fast_as_before(tally: Tally) -> None:
    tally.add([submitted(task) for task in range(100)])
    tally.add([finished(task, t=10.0) for task in range(50)])
    for second in range(10, 31):
        snapshot = tally.snapshot(float(second))
    assert snapshot.lines[0].rate == 0
    assert snapshot.total.remaining == pytest.approx(10)


events = st.sampled_from(["submit", "launch", "finish", "device", "chosen", "epoch", "drift", "move"])


@given(st.lists(st.tuples(events, st.integers(0, 3), st.booleans(), st.sampled_from(["ssd", "gpfs", "none"]))))
def test_no_order_of_events_breaks_the_pictures(story: list[tuple[str, int, bool, str]]) -> None:
    tally = Tally()
    tally.add([STARTED])
    known: set[int] = set()
    for t, (event, number, flag, layer) in enumerate(story):
        if event == "submit" and number in known:
            continue
        known.add(number)
        record: dict[str, Record] = {
            "submit": submitted(number, learned=flag),
            "launch": launched(number, t=float(t), layer=layer),
            "finish": finished(number, number, t=float(t), layer=layer),
            "device": device(float(number), number, t=float(t), layer=layer),
            "chosen": chosen(float(number), remembered=flag),
            "epoch": epoch(float(number), number),
            "drift": ConstraintDrifted(float(t), "save", layer, 2.0),
            "move": moved(f"/fast/{number}", "/x", number, error="no" if flag else ""),
        }
        tally.add([record[event]])
        snapshot = tally.snapshot(float(t))
        assert all(line.rate >= 0 for line in snapshot.devices)
        for each in tally.storage.devices.values():
            assert 0 <= each.seconds_in_use(float(t)) <= t
        summary_lines(tally)


# --- the summary -----------------------------------------------------------------------------------------------------


def test_the_summary_of_storage(tally: Tally) -> None:
    tally.add([submitted(task, learned=True) for task in range(2)] + [submitted(2, "trace")])
    tally.add([launched(task) for task in range(2)] + [device(16.0 * MB, 2)])
    tally.add([finished(task, 400 * MB, t=4.0, seconds=4.0) for task in range(2)] + [device(t=4.0)])
    tally.add([epoch(4.0 * MB, 112), epoch(8.0 * MB, 56), chosen(8.0 * MB)])
    tally.add([moved("/fast/kept/x", "/home/me/x", 400 * MB), RunEnded(5.0, True, 2, 0, 0)])
    lines = summary_lines(tally)
    at = next(index for index, line in enumerate(lines) if "storage " in line)
    assert lines[at - 1 : at + 5] == [
        "",
        "  storage  written                  rate  in use           flushed",
        "  ssd       800 MB  200 MB/s of 450 MB/s     80%  400 MB in 1 file",
        "",
        "  learned      storage_bw  at a time  epochs  tasks in them",
        "  save on ssd      8 MB/s         56       2            168",
    ]


def test_the_summary_tells_for_how_long_other_programs_used_a_layer_too(tally: Tally) -> None:
    tally.add([submitted(1), launched(1), device(16.0 * MB, 1)])
    tally.add([LayerShared(1.0, "ssd", 1, 225.0 * MB), LayerShared(2.0, "ssd", 2, 150.0 * MB)])
    tally.add([LayerShared(2.5, "ssd", 0, 450.0 * MB), LayerShared(2.6, "unknown", 1, 1.0)])
    tally.add([finished(1, 800 * MB, t=4.0, seconds=4.0), device(t=4.0), RunEnded(5.0, True, 1, 0, 0)])
    assert any("200 MB/s of 450 MB/s, shared for 1.5 s" in line for line in summary_lines(tally))


def test_the_summary_tells_what_was_not_learned_in_this_run(tally: Tally) -> None:
    tally.add([submitted(1, learned=True), chosen(8.0 * MB, remembered=True), launched(1)])
    tally.add([submitted(2, "other", learned=True), launched(2)])
    text = "\n".join(summary_lines(tally))
    assert "save on ssd       8 MB/s         56  earlier runs              –" in text
    assert "other on ssd     not yet          –             –              –" in text


def test_a_run_without_storage_has_no_such_tables(tally: Tally) -> None:
    tally.add([submitted(1), Finished(1.0, 1, 1, "here", 0, 1.0, 0), device(t=1.0)])
    assert not any("storage" in line or "learned" in line for line in summary_lines(tally))


def test_the_devices_of_several_nodes_are_one_line() -> None:
    tally = StorageTally()
    layers = [records.Layer("ssd", "/ssd", 450e6, 100), records.Layer("gpfs", "/gpfs", 900e6, None, shared=True)]
    tally.on_run_started(records.RunStarted(0.0, 0.0, "1", [], 96, 0, "a", "fifo", storage=layers))
    for name in "ab":
        tally.on_node_joined(records.NodeJoined(0.0, name, 48, 0, storage=layers))
        tally.on_launched(records.Launched(1.0, 1, 1, name, 0, "ssd", 8e6), "f", learned=False)
        tally.on_device(records.Device(1.0, name, "ssd", 80e6, 10, 0, 30))
    tally.on_device(records.Device(2.0, "a", "ssd", 8e6, 1, 0, 50))
    (line,) = tally.lines(3.0)
    assert (line.used, line.running, line.stored) == (88e6, 11, 80)
    assert (line.limit, line.capacity) == (900e6, 200)
    assert tally.devices["gpfs"].limit == 900e6
