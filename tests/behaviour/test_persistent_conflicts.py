"""Persistent objects that are reached in several ways, or changed by others: nothing is lost without a word."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import MODES, Gate, only_workers

import penstock
from penstock import INOUT, PersistentObject, task, wait_on
from penstock.errors import MissingObject, StorageError
from penstock.persistent.context import Outgoing
from penstock.persistent.where import current_store

#: in the manifest, and in a block of its own
SIZES = [3, 20_000]


@pytest.fixture(scope="module")
def _runtime_of_the_module(mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Runtime]:
    with penstock.Runtime(store=f"local:{tmp_path_factory.mktemp('store')}", **MODES[mode]) as runtime:
        yield runtime


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.release_everybody()


class Block(PersistentObject):
    def __init__(self, size: int = 3) -> None:
        self.values = np.zeros(size)
        self.label = ""


class Outer(PersistentObject):
    def __init__(self, inner: Any) -> None:
        self.inner = inner


@task(block=INOUT)
def add(block: Block, amount: float) -> None:
    block.values = block.values + amount


@task(block=INOUT)
def add_after(gate: Gate, block: Block, amount: float) -> None:
    gate.enter()
    block.values = block.values + amount


@task()
def first(block: Block) -> float:
    return float(block.values[0])


@task()
def same(block: Any) -> Any:
    return block


def stored(block: Block) -> float:
    return float(Block.get_by_id(str(block.get_id())).values[0])


# --- objects inside of objects ----------------------------------------------------------------------------------------


@task()
def first_inside(outer: Outer) -> float:
    inner = outer.inner
    while not isinstance(inner, Block):
        inner = inner[0] if isinstance(inner, list) else inner["a"] if isinstance(inner, dict) else inner.inner
    return float(inner.values[0])


@task(outer=INOUT)
def label_outer(outer: Outer, text: str) -> float:
    outer.label = text  # type: ignore[attr-defined]
    return float(outer.inner.values[0])


@pytest.mark.usefixtures("runtime")
class TestObjectsInside:
    @pytest.mark.parametrize("size", SIZES)
    def test_a_task_that_is_given_the_outer_sees_what_tasks_made_of_the_inner(self, size: int) -> None:
        inner = Block(size).make_persistent()
        outer = Outer(inner).make_persistent()
        seen = []
        for _ in range(3):
            add(inner, 1)
            seen.append(first_inside(outer))
        assert wait_on(seen) == [1, 2, 3]

    @pytest.mark.parametrize("size", SIZES)
    def test_also_if_the_program_has_waited_for_the_inner(self, size: int) -> None:
        inner = Block(size).make_persistent()
        outer = Outer(inner).make_persistent()
        for number in range(1, 4):
            add(inner, 1)
            wait_on(inner)
            assert first_inside(outer).result() == number

    def test_in_containers_and_further_down(self) -> None:
        inner = Block().make_persistent()
        outer = Outer({"a": Outer([inner]).make_persistent()}).make_persistent()
        add(inner, 1)
        assert first_inside(outer).result() == 1
        assert first_inside([outer][0]).result() == 1

    def test_a_task_that_updates_the_outer_sees_it_too_and_keeps_the_reference(self) -> None:
        inner = Block().make_persistent()
        outer = Outer(inner).make_persistent()
        add(inner, 1)
        assert label_outer(outer, "x").result() == 1
        add(inner, 1)
        assert first_inside(outer).result() == 2 and wait_on(outer).inner is inner

    @only_workers
    def test_it_waits_for_the_writer_of_the_inner(self, gate: Gate) -> None:
        inner = Block().make_persistent()
        outer = Outer(inner).make_persistent()
        add_after(gate, inner, 1)
        seen = first_inside(outer)
        gate.open()
        assert seen.result() == 1

    def test_the_program_changes_the_inner(self) -> None:
        inner = Block().make_persistent()
        outer = Outer(inner).make_persistent()
        assert first_inside(outer).result() == 0
        inner.values = np.ones(3)
        assert first_inside(outer).result() == 1


# --- one object, by itself and through futures ------------------------------------------------------------------------


@pytest.mark.usefixtures("runtime")
class TestFutures:
    @pytest.mark.parametrize("size", SIZES)
    def test_a_future_that_is_done_and_the_object_are_one(self, size: int) -> None:
        block = Block(size).make_persistent()
        future = same(block)
        wait_on(future)
        seen = []
        for target, other in ((future, block), (block, future), (future, block)):
            add(target, 1)
            seen.append(first(other))
        assert wait_on(seen) == [1, 2, 3]
        assert wait_on(block).values[0] == 3 == stored(block) and future.result() is block

    def test_an_object_that_the_program_has_only_as_a_future(self) -> None:
        future = same(Block().make_persistent("only-a-future"))
        penstock.barrier()
        add(future, 1)
        add(future, 1)
        assert first(future).result() == 2 and future.result().values[0] == 2

    def test_found_by_its_id_later(self) -> None:
        future = same(Block().make_persistent("found-later"))
        future.result()
        block = Block.get_by_id("found-later")
        add(block, 1)
        add(future, 1)
        assert wait_on(block).values[0] == 2 == first(future).result()

    def test_through_a_future_that_is_not_done_no_update_is_lost_without_an_error(self) -> None:
        block = Block().make_persistent()
        future = same(block)
        for target in (future, block, future):
            add(target, 1)
        conflict = None
        try:
            penstock.barrier()
        except StorageError as error:
            conflict = str(error)
        assert "changed by somebody else" in conflict if conflict is not None else stored(block) == 3


# --- storing and removing while tasks update --------------------------------------------------------------------------


@pytest.mark.usefixtures("runtime")
class TestUpToDate:
    @pytest.mark.parametrize("size", SIZES)
    def test_storing_an_object_that_tasks_have_updated(self, size: int) -> None:
        block = Block(size)
        add(block, 1)
        block.make_persistent()
        assert block.values[0] == 1 == stored(block)
        add(block, 1)
        assert first(block).result() == 2 == wait_on(block).values[0]

    def test_deleting_brings_the_object_up_to_date(self) -> None:
        block = Block().make_persistent()
        add(block, 1)
        block.delete_persistent()
        assert block.get_id() is None and block.values[0] == 1
        assert first(block).result() == 1 == wait_on(block).values[0]

    def test_so_does_a_version_that_takes_its_place(self) -> None:
        block = Block().make_persistent()
        add(block, 1)
        copy = block.new_version(preserve=False)
        assert block.get_id() is None and block.values[0] == 1 == copy.values[0]
        assert first(block).result() == 1 == first(copy).result()


# --- changes by others ------------------------------------------------------------------------------------------------


def _elsewhere(action: Callable[[], None]) -> None:
    """In a thread of its own, which is in no task: what another program would do to the store."""
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def _rival(identifier: str) -> None:
    block = Block.get_by_id(identifier)
    block.values = block.values + 100
    block.update_persistent()


def add_meanwhile(block: Block, marker: str) -> None:
    identifier = str(block.get_id())
    if not os.path.exists(marker):
        Path(marker).touch()
        _elsewhere(lambda: _rival(identifier))
    block.values = block.values + 1


def add_and_die_when_it_is_stored(block: Block, marker: str) -> None:
    if not os.path.exists(marker):
        Path(marker).touch()
        publish = Outgoing.publish

        def publish_and_die(self: Outgoing) -> None:
            publish(self)
            os.kill(os.getpid(), signal.SIGKILL)

        Outgoing.publish = publish_and_die  # type: ignore[method-assign]
    block.values = block.values + 1


def store_and_fail_once(block: Block, marker: str) -> None:
    for _ in range(2):
        block.values = block.values + 1
        block.update_persistent()
    if not os.path.exists(marker):
        Path(marker).touch()
        raise ValueError("once")


@task()
def label_undeclared(block: Block, text: str) -> None:
    block.label = text


@task(block=INOUT)
def update_deleted(block: Block) -> None:
    identifier = str(block.get_id())
    _elsewhere(lambda: Block.get_by_id(identifier).delete_persistent())
    block.values = block.values + 1


@pytest.mark.usefixtures("runtime")
class TestChangesByOthers:
    @only_workers
    @pytest.mark.parametrize("size", SIZES)
    def test_a_task_does_not_overwrite_what_others_stored_meanwhile(self, size: int, tmp_path: Path) -> None:
        block = Block(size).make_persistent()
        identifier = str(block.get_id())
        with pytest.raises(StorageError, match="was changed by somebody else since this task read it"):
            task(block=INOUT)(add_meanwhile)(block, str(tmp_path / "marker")).result()
        penstock.delete_object(block)
        assert Block.get_by_id(identifier).values[0] == 100

    @only_workers
    @pytest.mark.parametrize("size", SIZES)
    def test_a_retry_reads_what_others_stored(self, size: int, tmp_path: Path) -> None:
        block = Block(size).make_persistent()
        task(block=INOUT, retries=1)(add_meanwhile)(block, str(tmp_path / "marker"))
        assert first(block).result() == 101 == wait_on(block).values[0]

    @only_workers
    @pytest.mark.parametrize("size", SIZES)
    def test_an_attempt_that_died_when_it_had_stored_counts_as_none(self, size: int, tmp_path: Path) -> None:
        block = Block(size).make_persistent()
        task(block=INOUT, retries=1)(add_and_die_when_it_is_stored)(block, str(tmp_path / "marker"))
        assert first(block).result() == 1 == stored(block)
        add(block, 1)
        assert wait_on(block).values[0] == 2

    @only_workers
    def test_it_had_begun_with_what_others_stored_before(self, tmp_path: Path) -> None:
        block = Block().make_persistent()
        label_undeclared(block, "by a task that does not say so").result()
        task(block=INOUT, retries=1)(add_and_die_when_it_is_stored)(block, str(tmp_path / "marker"))
        assert wait_on(block).label == "by a task that does not say so" and block.values[0] == 1

    def test_an_attempt_that_failed_when_it_had_stored_counts_as_none(self, tmp_path: Path) -> None:
        block = Block().make_persistent()
        task(block=INOUT, retries=1)(store_and_fail_once)(block, str(tmp_path / "marker"))
        assert first(block).result() == 2 == stored(block)

    def test_the_program_does_not_overwrite_what_others_stored(self) -> None:
        block = Block().make_persistent()
        label_undeclared(block, "theirs").result()
        block.label = "mine"
        with pytest.raises(StorageError, match=r"since the program read it.*mark_unmodified\(\) and then get_by_id"):
            block.update_persistent()
        block.mark_unmodified()
        assert Block.get_by_id(str(block.get_id())) is block and block.label == "theirs"
        block.label = "both"
        block.update_persistent()
        add(block, 1)
        assert wait_on(block).label == "both"

    def test_all_or_none_if_one_of_several_was_changed(self) -> None:
        kept, changed = Block().make_persistent(), Block().make_persistent()
        label_undeclared(changed, "theirs").result()
        kept.label = changed.label = "mine"
        with pytest.raises(StorageError, match=str(changed.get_id())):
            penstock.barrier()
        assert current_store().entry(str(kept.get_id())).generation == 1
        changed.mark_unmodified()
        penstock.barrier()
        assert current_store().entry(str(kept.get_id())).generation == 2

    @only_workers
    def test_an_object_that_others_deleted_does_not_come_back(self) -> None:
        block = Block().make_persistent()
        with pytest.raises(StorageError, match="was deleted by somebody else"):
            update_deleted(block).result()
        identifier = str(block.get_id())
        penstock.delete_object(block)
        with pytest.raises(MissingObject):
            Block.get_by_id(identifier)
