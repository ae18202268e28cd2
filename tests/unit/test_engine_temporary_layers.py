"""Layers that may lose what lies on them, through the engine: only temporary files go there."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace
from tests.unit.engine_rig import call, failure_of, launched
from tests.unit.storage_rig import FULL, MB, StorageRig, io, of_kind, on_disk, reads, where, writes

from penstock.engine.crowding import GRACE
from penstock.errors import ConstraintError
from penstock.model.commands import Launch, Publish
from penstock.model.events import Published
from penstock.model.resources import Auto, StorageLayer
from penstock.model.tasks import Output, TaskSpec
from penstock.storage.flush import target

MEMORY = StorageLayer("memory", "/memory", 200 * MB, temporary=True)
WORK = StorageLayer("work", "/work", 50 * MB)


def temporary(of: TaskSpec) -> TaskSpec:
    """The same function, declared to write temporary files only."""
    return replace(of, requirements=replace(of.requirements, temporary=True))


LASTS, SERVES = io("lasts", bw=20), temporary(io("serves", bw=20))


def test_what_is_to_last_goes_to_the_slower_layer_and_waits_there() -> None:
    rig = StorageRig(MEMORY, WORK)
    commands = rig.submit(*(writes(task, f"/{task}", LASTS) for task in (1, 2, 3)))
    assert where(commands) == [(1, "work", 20.0), (2, "work", 20.0)]
    assert where(rig.finish(1, None)) == [(3, "work", 20.0)]


def test_temporary_files_go_to_the_fastest_layer() -> None:
    rig = StorageRig(MEMORY, WORK)
    [launch] = rig.submit(writes(1, "/a", SERVES, temp=True))
    assert type(launch) is Launch
    assert (launch.layer, launch.redirected) == ("memory", (0,))
    rig.wrote(1, size=10)
    assert rig.device("memory").stored == 10


def test_who_reads_a_temporary_file_uses_its_layer() -> None:
    rig = StorageRig(MEMORY, WORK)
    rig.submit(writes(1, "/a", SERVES, temp=True))
    [publish] = of_kind(rig.wrote(1), Publish)
    assert type(publish) is Publish
    rig.tell(Published(101, "/a"))
    assert where(rig.submit(reads(2, 101, of=io("reads", bw=30)))) == [(2, "memory", 30.0)]


def test_a_task_of_which_nothing_is_known_counts_where_files_last() -> None:
    """It names no file, so nobody knows where it writes; memory it is not."""
    assert where(StorageRig(MEMORY, WORK).submit(call(1, LASTS))) == [(1, "work", 20.0)]


@pytest.mark.parametrize("auto", [Auto(), Auto(10 * MB, 40 * MB, 2.0)], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("tuner", ["adaptive", "published"])
def test_constraints_are_learned_where_files_last(auto: Auto, tuner: str) -> None:
    rig = StorageRig(MEMORY, WORK, executors=1, tuner=tuner)
    learns = io("learns", auto=auto)
    launches = where(rig.submit(writes(1, "/a", learns))) or where(rig.warmed()) or where(rig.tick(10.0))
    assert [layer for _, layer, _ in launches] == ["work"]


def test_where_no_layer_keeps_files_they_are_written_to_their_names() -> None:
    rig = StorageRig(MEMORY, executors=1)
    [launch] = rig.submit(writes(1, "/a", LASTS))
    assert type(launch) is Launch
    assert (launch.layer, launch.redirected) == ("memory", ())
    assert on_disk(rig.wrote(1, path="/a", size=10)) == []
    assert rig.device("memory").stored == 0  # it is not there


def test_a_lasting_file_whose_own_name_is_on_such_a_layer_is_counted_there() -> None:
    rig = StorageRig(MEMORY, executors=1)
    [launch] = rig.submit(writes(1, "/memory/a", LASTS))
    assert type(launch) is Launch and launch.redirected == ()
    rig.wrote(1, path="/memory/a", size=10)
    assert rig.device("memory").stored == 10


def test_what_only_such_a_layer_could_give_is_refused_and_says_why() -> None:
    rig = StorageRig(MEMORY, replace(WORK, capacity=100))
    only = r"the fastest, 'work', has 50 MB/s \(memory is for temporary files only\)"
    with pytest.raises(ConstraintError, match=only):
        rig.engine.ensure_possible("f", io("f", bw=100).requirements)
    with pytest.raises(ConstraintError, match=r"the largest, 'work', has 0.0001 MB \(memory is for temporary"):
        rig.engine.ensure_possible("f", io("f", bw=10, size=1000).requirements)
    rig.engine.ensure_possible("f", temporary(io("f", bw=100, size=1000)).requirements)


def test_a_full_disk_is_no_reason_to_use_memory() -> None:
    rig = StorageRig(MEMORY, replace(WORK, capacity=100), executors=1)
    rig.submit(writes(1, "/a", io("w", bw=20, size=80)))
    rig.wrote(1, size=80, path="/work/ours/1/a")
    rig.engine.state.placed[101].placed.error = "it cannot be moved"  # type: ignore[union-attr]
    assert launched(rig.submit(writes(2, "/b", io("v", bw=20, size=80)))) == []
    rig.tick(0.1)
    failure = failure_of(rig.tick(GRACE + 1), 102)
    assert "work has 20 B of 100 B left" in failure.message
    assert "memory" not in failure.message


def test_a_disk_that_says_it_is_full_is_no_reason_either() -> None:
    rig = StorageRig(MEMORY, WORK, executors=1)
    rig.submit(writes(1, "/a", LASTS))
    commands = rig.fail(1, FULL)
    for _ in range(100):
        assert not [layer for _, layer, _ in where(commands) if layer != "work"]
        if 1 not in rig.engine.state.tasks:
            return
        if rig.engine.state.tasks[1].lane is not None:
            rig.now += 2.0
            commands = rig.fail(1, FULL)
        else:
            commands = rig.tick(2.0)
    raise AssertionError("it is tried for ever")


class Layer(NamedTuple):
    free_capacity: float
    temporary: bool = False


def test_only_temporary_files_sink_to_a_layer_that_may_lose_them() -> None:
    high, scratch, low = layers = [Layer(100), Layer(100, temporary=True), Layer(1)]
    assert target(10, layers, 0, 2, temp=False) is None  # home is full
    assert target(10, layers, 0, 1, temp=False) is scratch  # that is where its name is
    assert target(10, layers, 0, None, temp=True) is scratch
    assert target(1, layers, 0, 2, temp=False) is low
    assert target(1, layers, 2, 0, temp=False) is None and high.free_capacity


def test_one_lasting_file_among_temporary_ones_decides() -> None:
    """Whatever the requirements say: a file that is to last is never sent there."""
    rig = StorageRig(MEMORY, WORK)
    mixed = call(1, SERVES, writes=(101, 102), outputs=(Output((0,), -1, "/a", temp=True), Output((1,), -1, "/b")))
    [launch] = rig.submit(mixed)
    assert type(launch) is Launch
    assert (launch.layer, launch.redirected) == ("memory", (0,))
