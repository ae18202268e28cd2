"""Objects that live in a store: every behaviour with a folder, inline too, with a Redis server and with a cluster."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import MODES, Gate, only_workers
from tests.patience import eventually

import penstock
from penstock import COLLECTION_IN, COLLECTION_INOUT, INOUT, PersistentObject, task, wait_on
from penstock.errors import (
    CallError,
    ConfigError,
    DefinitionError,
    MissingObject,
    StorageError,
    WorkerDied,
    WrongClass,
)
from penstock.persistent import module as storage
from penstock.persistent.servers import start_servers
from penstock.persistent.stores import Store
from penstock.persistent.where import current_store

STORES = {"local": "", "redis": "redis-start:?block_size=256KiB", "cluster": "redis-start:3?block_size=256KiB"}


@pytest.fixture(scope="module", params=STORES)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store that outlives the runtimes, which attach to it."""
    if not STORES[request.param]:
        yield f"local:{tmp_path_factory.mktemp('store')}"
        return
    servers = start_servers(STORES[request.param])
    yield servers.url
    servers.stop()


@pytest.fixture(scope="module")
def _runtime_of_the_module(mode: str, address: str) -> Iterator[penstock.Runtime]:
    if mode == "inline" and not address.startswith("local:"):
        pytest.skip("what differs between stores does not depend on where tasks run")
    with penstock.Runtime(store=address, **MODES[mode]) as runtime:
        yield runtime


class Fragment(PersistentObject):
    """A matrix in a store."""

    def __init__(self, matrix: Any, label: str = "") -> None:
        self.matrix = np.asarray(matrix, dtype=float)
        self.label = label


class Node(PersistentObject):
    def __init__(self, value: Any, next: Any = None) -> None:
        self.value = value
        self.next = next


class Declared(PersistentObject):
    points: Any
    name: str = "unnamed"

    def __init__(self, points: Any) -> None:
        self.points = points
        self._cache = "not stored"


@task()
def total(fragment: Fragment) -> float:
    return float(fragment.matrix.sum())


@task(fragment=INOUT)
def add(fragment: Fragment, amount: float) -> None:
    fragment.matrix += amount


@task()
def make(values: list[float]) -> Fragment:
    return Fragment(values).make_persistent()


LARGE = 200_000


# --- the life of an object --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("runtime")
class TestLife:
    def test_an_object_is_stored_found_and_deleted(self) -> None:
        fragment = Fragment(np.arange(LARGE), "mine")
        assert fragment.get_id() is None and not fragment.is_modified()
        fragment.make_persistent()
        identifier = fragment.get_id()
        assert identifier and fragment.locations()
        del fragment
        found = Fragment.get_by_id(identifier)
        assert type(found) is Fragment and found.label == "mine" and found.matrix[-1] == LARGE - 1
        found.delete_persistent()
        assert found.get_id() is None and found.label == "mine" and found.locations() == []
        with pytest.raises(MissingObject, match=identifier):
            Fragment.get_by_id(identifier)

    def test_storing_twice_and_deleting_twice_does_nothing(self) -> None:
        node = Node(1).make_persistent("twice")
        assert node.make_persistent() is node and node.make_persistent("twice") is node
        with pytest.raises(StorageError, match="stored already"):
            node.make_persistent("other")
        node.delete_persistent()
        node.delete_persistent()

    def test_several_ids_give_a_list_and_one_object_each(self) -> None:
        nodes = [Node(i).make_persistent() for i in range(3)]
        ids = [str(node.get_id()) for node in nodes]
        found = Node.get_by_id(ids[2], ids[0], ids[2])
        assert [node.value for node in found] == [2, 0, 2] and found[0] is found[2] is nodes[2]

    def test_an_object_of_another_class_is_refused(self) -> None:
        Node(1).make_persistent("a-node")
        with pytest.raises(WrongClass, match=r"'a-node' is a Node, not a Fragment"):
            Fragment.get_by_id("a-node")
        assert isinstance(PersistentObject.get_by_id("a-node"), Node)

    @pytest.mark.parametrize("bad", ["", 3, None, b"bytes", "half \udc80"])
    def test_ids_that_are_none(self, bad: Any) -> None:
        with pytest.raises(StorageError, match="an id is a text"):
            PersistentObject.get_by_id(bad)
        if bad is not None:
            with pytest.raises(StorageError, match="an id is a text"):
                Node(1).make_persistent(bad)

    def test_an_object_under_a_used_id_replaces_the_other(self) -> None:
        Node(1).make_persistent("same")
        second = Node(2).make_persistent("same")
        assert Node.get_by_id("same") is second and second.value == 2

    def test_objects_refer_to_each_other_in_circles(self) -> None:
        first, second = Node("first"), Node("second")
        first.make_persistent()
        second.next = first
        second.make_persistent()
        first.next = second
        ids = [str(first.get_id()), str(second.get_id())]
        first.update_persistent()
        assert circle(ids[0]).result() == ["first", "second", True]

    def test_a_copy_is_not_stored(self) -> None:
        node = Node([1]).make_persistent()
        shallow, deep = copy.copy(node), copy.deepcopy(node)
        assert shallow.get_id() is None and shallow.value is node.value
        assert deep.get_id() is None and deep.value == [1] and deep.value is not node.value

    def test_a_stored_object_is_pickled_as_its_id(self) -> None:
        fragment = Fragment(np.zeros(LARGE)).make_persistent()
        data = pickle.dumps(fragment)
        assert len(data) < 300 and str(fragment.get_id()).encode() in data
        unstored = pickle.loads(pickle.dumps(Fragment([1.0, 2.0])))
        assert unstored.get_id() is None and unstored.matrix.tolist() == [1, 2]

    def test_versions_are_copies_that_can_be_consolidated(self) -> None:
        first = Fragment(np.ones(LARGE)).make_persistent()
        second = first.new_version()
        second.matrix = second.matrix + 1
        third = second.new_version()
        assert (total(first).result(), total(second).result(), total(third).result()) == (LARGE, 2 * LARGE, 2 * LARGE)
        third.consolidate_version()
        for old in (first, second):
            with pytest.raises(MissingObject):
                total(old).result()
        assert total(third).result() == 2 * LARGE

    def test_a_version_may_take_the_place_of_its_source(self) -> None:
        first = Fragment([1, 2]).make_persistent()
        second = first.new_version(preserve=False)
        assert first.get_id() is None and total(second).result() == 3


@task()
def circle(identifier: str) -> list[Any]:
    first = Node.get_by_id(identifier)
    return [first.value, first.next.value, first.next.next is first]


# --- fields -----------------------------------------------------------------------------------------------------------


@task(declared=INOUT)
def rename(declared: Any, name: str) -> None:
    declared.name = name


@task()
def value_of(node: Any) -> Any:
    return node.value


@pytest.mark.usefixtures("runtime")
class TestFields:
    def test_a_field_that_the_class_no_longer_declares_stays_with_the_object(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Declared, "fields", {**Declared.fields, "older": int})
        made = Declared(7)
        made.older = 5  # type: ignore[attr-defined]
        identifier = str(made.make_persistent().get_id())
        monkeypatch.undo()
        del made
        found: Any = Declared.get_by_id(identifier)
        assert found.older == 5
        found.name = "new"
        found.update_persistent()
        rename(found, "newer").result()
        twin = copy.copy(wait_on(found)).make_persistent()
        assert (found.name, found.older, twin.older) == ("newer", 5, 5)
        del found.older
        found.update_persistent()
        del found
        assert not hasattr(Declared.get_by_id(identifier), "older")

    def test_an_object_that_cannot_be_stored_holds_up_nothing_else(self) -> None:
        bad, good = Node(1).make_persistent(), Node(2).make_persistent()
        bad.value, good.value = threading.Lock(), 3
        assert value_of(good).result() == 3
        assert value_of(Node(4).make_persistent()).result() == 4
        for use in (lambda: value_of(bad), penstock.barrier):
            with pytest.raises(penstock.errors.SerializationError, match=str(bad.get_id())):
                use()
        bad.value = 5
        penstock.barrier()
        assert value_of(bad).result() == 5

    def test_declared_fields_are_what_is_stored(self) -> None:
        assert set(Declared.fields) == {"points", "name"}
        declared = Declared([1, 2]).make_persistent()
        assert attributes(declared).result() == {"points": [1, 2]}

    def test_an_attribute_that_would_be_lost_is_refused(self) -> None:
        declared = Declared([])
        declared.extra = 1  # type: ignore[attr-defined]
        with pytest.raises(StorageError, match="'extra' that is no declared field of Declared"):
            declared.make_persistent()
        assert declared.get_id() is None

    def test_fields_may_be_a_mapping_and_are_inherited(self) -> None:
        class Base(PersistentObject):
            fields = {"x": int}  # noqa: RUF012

        class Derived(Base):
            y: int

        assert set(Derived.fields) == {"x", "y"}

    def test_classes_that_cannot_be(self) -> None:
        with pytest.raises(DefinitionError, match="__slots__"):
            type("Slotted", (PersistentObject,), {"__slots__": ("x",)})
        with pytest.raises((DefinitionError, TypeError)):
            type("Mixed", (PersistentObject, dict), {})

    def test_assigning_marks_and_underscores_do_not(self) -> None:
        node = Node(1)
        node.value = 2
        assert not node.is_modified()  # not stored
        node.make_persistent()
        node._private = 1  # type: ignore[attr-defined]
        assert not node.is_modified()
        node.value = 3
        assert node.is_modified()
        node.update_persistent()
        assert not node.is_modified()
        del node.value
        assert node.is_modified()
        node.mark_unmodified()
        assert not node.is_modified()


@task()
def attributes(obj: Any) -> dict[str, Any]:
    return dict(vars(obj))


# --- tasks ------------------------------------------------------------------------------------------------------------


@task()
def same(a: Any, b: Any, inside: list[Any], found: str) -> bool:
    return a is b is inside[0] is inside[1]["x"] is PersistentObject.get_by_id(found)


@task()
def can_write(fragment: Fragment) -> bool:
    return bool(fragment.matrix.flags.writeable)


@task(fragment=INOUT)
def can_write_inout(fragment: Fragment) -> bool:
    return bool(fragment.matrix.flags.writeable)


@task()
def relabel(fragment: Fragment, label: str) -> None:
    fragment.label = label


@task()
def label_of(fragment: Fragment) -> str:
    return fragment.label


@task()
def label_by_id(identifier: str) -> str:
    return str(Fragment.get_by_id(identifier).label)


@task(fragment=INOUT)
def add_after(gate: Gate, fragment: Fragment, amount: float) -> None:
    gate.enter()
    fragment.matrix += amount


@task()
def total_after(gate: Gate, fragment: Fragment) -> float:
    gate.enter()
    return float(fragment.matrix.sum())


@task(fragments=COLLECTION_INOUT)
def add_to_all(fragments: list[Fragment], amount: float) -> None:
    for fragment in fragments:
        fragment.matrix += amount


@task(fragments=COLLECTION_IN)
def total_of_all(fragments: list[Fragment]) -> float:
    return float(sum(fragment.matrix.sum() for fragment in fragments))


@task(fragment=INOUT)
def outer(fragment: Fragment) -> None:
    add(fragment, 1)


@task()
def outer_of_in(fragment: Fragment) -> float:
    add(fragment, 1)
    return float(fragment.matrix.sum())


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.usefixtures("runtime")
class TestTasks:
    def test_a_task_reads_an_object(self, size: int) -> None:
        fragment = Fragment(np.ones(size)).make_persistent()
        assert total(fragment).result() == size

    def test_updates_and_reads_follow_one_another(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        seen = []
        for _ in range(4):
            add(fragment, 1)
            seen.append(total(fragment))
        assert [future.result() / size for future in seen] == [1, 2, 3, 4]
        assert fragment.matrix[0] == 0
        assert wait_on(fragment) is fragment and fragment.matrix[0] == 4 and not fragment.is_modified()

    def test_two_objects_of_one_id_are_one_datum(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        twin = copy.copy(fragment)
        object.__setattr__(twin, "_link", copy.copy(fragment._link))
        add(fragment, 1)
        add(twin, 1)
        assert total(fragment).result() == total(twin).result() == 2 * size
        wait_on(twin)
        assert twin.matrix[0] == 2

    def test_an_id_is_one_object_in_a_task(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        assert same(fragment, fragment, [fragment, {"x": fragment}], str(fragment.get_id())).result()

    def test_only_updated_objects_can_be_written(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        assert not can_write(fragment).result()
        assert can_write_inout(fragment).result()

    def test_a_task_makes_an_object(self, size: int) -> None:
        future = make([1.0] * min(size, 20_000))
        assert total(future).result() == min(size, 20_000)
        add(future, 1)
        add(future, 1)
        fragment = future.result()
        assert type(fragment) is Fragment and fragment.get_id() and fragment.matrix[0] == 3
        add(fragment, 1)
        assert total(fragment).result() == 4 * min(size, 20_000)

    def test_what_the_program_changed_is_what_tasks_see(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        first = label_of(fragment)
        fragment.label = "changed"
        assert first.result() == ""
        assert label_by_id(str(fragment.get_id())).result() == "changed"
        assert label_of(fragment).result() == "changed" and not fragment.is_modified()

    def test_a_change_nobody_declared_is_stored_too(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        relabel(fragment, "by the task").result()
        assert Fragment.get_by_id(str(fragment.get_id())).label == "by the task"

    def test_objects_in_collections(self, size: int) -> None:
        fragments = [Fragment(np.zeros(size)).make_persistent() for _ in range(3)]
        add_to_all(fragments, 1)
        add(fragments[1], 1)
        assert total_of_all(fragments).result() == 4 * size
        wait_on(fragments)
        assert [fragment.matrix[0] for fragment in fragments] == [1, 2, 1]

    def test_nested_calls_update_too(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        outer(fragment)
        assert total(fragment).result() == size

    def test_objects_as_items_of_a_map(self, size: int) -> None:
        fragments = [Fragment(np.full(size, float(i))).make_persistent() for i in range(4)]
        add(fragments[2], 1)
        assert total.map(fragments).results() == [0, size, 3 * size, 3 * size]

    def test_the_store_keeps_no_state_that_nobody_reads(self, size: int) -> None:
        fragment = Fragment(np.zeros(size)).make_persistent()
        for _ in range(10):
            add(fragment, 1)
            total(fragment)
        wait_on(fragment)
        identifier = str(fragment.get_id())
        eventually(lambda: not current_store()._manifest(identifier)[1].kept)
        assert fragment.matrix[0] == 10 and current_store()._manifest(identifier)[1].kept == []

    def test_the_same_holds_where_only_a_future_is_known(self, size: int) -> None:
        future = make([0.0] * min(size, 20_000))
        for _ in range(6):
            add(future, 1)
        identifier = str(future.result().get_id())
        eventually(lambda: not current_store()._manifest(identifier)[1].kept)
        assert future.result().matrix[0] == 6 and current_store()._manifest(identifier)[1].kept == []


@only_workers
@pytest.mark.usefixtures("runtime")
class TestOrder:
    def test_a_reader_that_was_called_before_the_writer_sees_the_old_state(self, gate: Gate) -> None:
        fragment = Fragment(np.ones(LARGE)).make_persistent()
        late = total_after(gate, fragment)
        add(fragment, 1)
        assert total(fragment).result() == 2 * LARGE
        gate.open()
        assert late.result() == LARGE

    def test_so_does_one_called_before_the_program_changes_it(self, gate: Gate, second_gate: Gate) -> None:
        blocker = total_after(gate, Fragment([1]).make_persistent())
        fragment = Fragment(np.ones(LARGE)).make_persistent()
        late = total_after(second_gate, fragment)
        fragment.matrix = fragment.matrix * 5
        gate.open()
        assert total(fragment).result() == 5 * LARGE
        second_gate.open()
        assert late.result() == LARGE and blocker.result() == 1

    def test_asking_for_an_object_waits_for_its_writer(self, gate: Gate) -> None:
        fragment = Fragment(np.ones(10)).make_persistent()
        add_after(gate, fragment, 1)
        gate.open()
        assert Fragment.get_by_id(str(fragment.get_id())).matrix[0] == 2

    def test_deleting_waits_for_readers(self, gate: Gate) -> None:
        fragment = Fragment(np.ones(LARGE)).make_persistent()
        late = total_after(gate, fragment)
        gate.open()
        fragment.delete_persistent()
        assert late.result() == LARGE

    def test_a_change_while_tasks_update_is_refused(self, gate: Gate) -> None:
        fragment = Fragment(np.ones(10)).make_persistent()
        add_after(gate, fragment, 1)
        fragment.label = "lost?"
        with pytest.raises(CallError, match=r"call wait_on\(\)"):
            total(fragment)
        with pytest.raises(StorageError, match=r"call wait_on\(\)"):
            fragment.update_persistent()
        gate.open()
        wait_on(fragment)
        assert fragment.label == "" and fragment.matrix[0] == 2
        assert total(fragment).result() == 20


# --- failures ---------------------------------------------------------------------------------------------------------


@task(fragment=INOUT)
def fail_after_change(fragment: Fragment) -> None:
    fragment.matrix += 1
    fragment.label = "half"
    raise ValueError("no")


@task(fragment=INOUT)
def return_what_cannot_travel(fragment: Fragment) -> Any:
    fragment.matrix += 1
    return (part for part in "x")


@task(fragment=INOUT, on_failure="IGNORE")
def fail_and_be_ignored(fragment: Fragment) -> None:
    fragment.matrix += 1
    raise ValueError("no")


@task(fragment=INOUT, retries=1)
def die_once(fragment: Fragment, marker: str) -> None:
    fragment.matrix += 1
    if not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@task(first=INOUT, second=INOUT)
def change_two(first: Fragment, second: Fragment, bad: Any) -> None:
    first.matrix += 1
    second.matrix += 1
    second.label = bad


@pytest.mark.usefixtures("runtime")
class TestFailures:
    def test_a_missing_object_is_told_where_the_result_is_asked_for(self) -> None:
        fragment = Fragment([1]).make_persistent()
        current_store().delete(str(fragment.get_id()))
        with pytest.raises(MissingObject, match=str(fragment.get_id())):
            total(fragment).result()

    def test_a_task_that_fails_leaves_the_store_as_it_was(self) -> None:
        fragment = Fragment(np.zeros(LARGE)).make_persistent()
        with pytest.raises(ValueError, match="no"):
            fail_after_change(fragment).result()
        identifier = str(fragment.get_id())
        penstock.delete_object(fragment)
        assert current_store()._manifest(identifier)[1].current.generation == 1
        assert Fragment.get_by_id(identifier).label == "" and total(fragment).result() == 0

    def test_so_does_one_whose_other_output_cannot_be_sent(self) -> None:
        fragment = Fragment(np.zeros(LARGE)).make_persistent()
        with pytest.raises(penstock.SerializationError):
            return_what_cannot_travel(fragment).result()
        penstock.delete_object(fragment)
        assert total(fragment).result() == 0

    def test_an_ignored_failure_leaves_the_old_state(self) -> None:
        fragment = Fragment(np.zeros(LARGE)).make_persistent()
        fail_and_be_ignored(fragment)
        assert total(fragment).result() == 0
        add(fragment, 1)
        assert total(fragment).result() == LARGE

    def test_two_objects_are_changed_or_none(self) -> None:
        first, second = (Fragment(np.zeros(LARGE)).make_persistent() for _ in range(2))
        with pytest.raises(penstock.SerializationError):
            change_two(first, second, (part for part in "x").gi_frame and [lambda: 0, _Unpicklable()]).result()
        ids = [str(first.get_id()), str(second.get_id())]
        penstock.delete_object(first, second)
        assert [f.matrix[0] for f in Fragment.get_by_id(*ids)] == [0, 0]

    def test_asking_for_an_object_whose_writer_failed_raises_once(self) -> None:
        fragment = Fragment([1]).make_persistent()
        fail_after_change(fragment)
        with pytest.raises(ValueError, match="no"):
            Fragment.get_by_id(str(fragment.get_id()))
        assert Fragment.get_by_id(str(fragment.get_id())).matrix.tolist() == [1]


class _Unpicklable:
    """Can be sent to a task, and not back."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        if getattr(self, "was_sent", False):
            raise TypeError("not again")
        return {"was_sent": True}


@only_workers
@pytest.mark.usefixtures("runtime")
def test_an_update_is_made_once_when_its_worker_dies(tmp_path: Path) -> None:
    fragment = Fragment(np.zeros(LARGE)).make_persistent()
    die_once(fragment, str(tmp_path / "marker"))
    assert total(fragment).result() == LARGE


@task(fragment=INOUT)
def die_between(fragment: Fragment, swaps: int) -> None:
    """End the process in the middle of storing the result."""
    fragment.matrix += 1
    store = current_store()
    real = store._swap

    def swap(changes: Any) -> Any:
        if swaps:
            real(changes)
        os.kill(os.getpid(), signal.SIGKILL)

    store._swap = swap  # type: ignore[method-assign]


@pytest.mark.one_in(2)
@only_workers
@pytest.mark.parametrize("swaps", [0, 1])
@pytest.mark.usefixtures("runtime")
def test_a_worker_killed_while_it_stores_leaves_a_whole_object(swaps: int) -> None:
    fragment = Fragment(np.zeros(LARGE)).make_persistent()
    identifier = str(fragment.get_id())
    future = die_between(fragment, swaps)
    if swaps:
        future.result()  # the store has what it made: it has delivered
    else:
        with pytest.raises(WorkerDied):
            future.result()
    penstock.delete_object(fragment)
    found = Fragment.get_by_id(identifier)
    assert found.matrix.tolist() == [float(swaps)] * LARGE


# --- what is read, and how often --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["inline"], indirect=True)
@pytest.mark.usefixtures("runtime")
def test_all_objects_of_a_call_are_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    fragments = [Fragment([i]).make_persistent() for i in range(20)]
    futures = [make([1.0]) for _ in range(3)]
    reads: list[int] = []
    real = Store.get
    monkeypatch.setattr(Store, "get", lambda self, wanted: reads.append(len(wanted)) or real(self, wanted))
    assert total_of_all([*fragments, *futures]).result() == sum(range(20)) + 3
    assert reads == [23]


# --- names of COMPSs --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("runtime")
class TestNamesOfCompss:
    def test_names_on_objects(self) -> None:
        fragment = Fragment([1])
        assert fragment.pycompss_psco_identifier is None
        fragment.makePersistent("named")
        assert fragment.getID() == fragment.pycompss_psco_identifier == "named"
        assert Fragment.getByID("named") is fragment and fragment.getLocations()
        fragment.label = "x"
        assert fragment.pycompss_is_modified()
        fragment.pycompss_mark_as_unmodified()
        assert not fragment.pycompss_is_modified()
        fragment.deletePersistent()
        assert fragment.getID() is None

    def test_functions_of_the_module(self) -> None:
        storage.init()
        storage.initWorker()
        fragment = Fragment([1, 2])
        storage.makePersistent(fragment, "by-module")
        assert storage.getByID("by-module") is fragment
        assert [f.label for f in storage.get_by_ID("by-module", "by-module")] == ["", ""]
        copy = storage.newVersion("by-module", True)
        storage.consolidateVersion(copy)
        with pytest.raises(storage.StorageException):
            storage.getByID("by-module")
        assert storage.getLocations(copy)
        storage.removeById(copy)
        for refused in (storage.newReplica, storage.executeTask, storage.getResult):
            with pytest.raises(storage.StorageException):
                refused("x", "y")
        storage.finishWorker()
        storage.finish()

    @pytest.mark.parametrize(
        ("hosts", "url"),
        [
            ("", "redis://localhost:6379"),
            ("# the store\nnode1\n\n", "redis://node1:6379"),
            ("node1\nnode2:7000\n", "redis-cluster://node1:6379,node2:7000"),
        ],
    )
    @pytest.mark.parametrize("mode", ["inline"], indirect=True)
    def test_a_file_of_hosts_is_an_address(self, tmp_path: Path, hosts: str, url: str) -> None:
        (tmp_path / "storage.cfg").write_text(hosts)
        assert storage._address(str(tmp_path / "storage.cfg")) == url
        with pytest.raises(ConfigError, match="cannot be read"):
            storage.init(str(tmp_path / "none.cfg"))

    def test_a_task_context_stores_what_was_modified_and_swallows_nothing(self) -> None:
        node, other = Node(1).make_persistent(), Node(1).make_persistent()
        with storage.TaskContext(logging.getLogger(), [node, other, "no object"]):
            node.value = 2
        assert not node.is_modified()
        with pytest.raises(ZeroDivisionError), storage.TaskContext(logging.getLogger(), [other]):
            other.value = 1 / 0
        assert Node.get_by_id(str(node.get_id())).value == 2
