"""What every store of persistent objects must do, as a class to inherit: a backend gives the fixture ``store``.

``bytes_left`` says what lies in the store outside of manifests; ``steps`` names what a process does to a store, so that
one can be killed before each of them. ``another`` opens the same store again, as another process would.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from tests.moments import SOME_MOMENTS, moments

from penstock.errors import MissingObject, StorageError, StoreUnreachable
from penstock.persistent.stores import Store, Wanted
from penstock.persistent.upkeep import clean, collect, inspect, settle

#: what a writer that is killed may have been about to do
CHANGES = ["put", "keep", "delete", "drop"]

#: the edges of what is in the manifest, of what travels together, and of blocks
SIZES = [0, 1, 100, 16 * 1024, 16 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 300_000]

STRANGE_IDS = [
    "a b",
    "a/b",
    "../up",
    ".",
    "ünïcode-\N{SNOWMAN}",
    "with\nnewline",
    "x" * 1000,
    "{tag}",
    "{}",
    "%2e",
    "a:b:0",
]


@functools.lru_cache(200)
def content(number: int, size: int) -> bytes:
    """Bytes that no other number has, and no shift of them."""
    return b"".join(f"{number}-{at};".encode() for at in range(size // 4 + 1))[:size]


class PersistentStoreContract:
    """Inherit, and give ``store``, ``another``, ``bytes_left`` and ``steps``."""

    @pytest.fixture
    def store(self) -> Any:
        raise NotImplementedError

    def another(self, store: Store) -> Store:
        from penstock.persistent.where import open_store

        return open_store(store.url)

    def bytes_left(self, store: Store) -> int:
        """Bytes of blocks, named or not."""
        raise NotImplementedError

    def steps(self) -> list[tuple[Any, str]]:
        """What a writer calls, as (where, name): each is a moment at which it can be killed."""
        raise NotImplementedError

    # --- storing and reading --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [100, 100_000])
    def test_a_state_replaces_only_the_one_it_was_made_from(self, store: Store, size: int) -> None:
        other = self.another(store)
        read = store.put("one", [content(1, size)], "Kind").token
        other.put("one", [content(2, size)], "Kind")
        left = self.bytes_left(store)
        staged = [
            store.stage("two", [content(3, size)], "Kind"),
            store.stage("one", [content(3, size)], "Kind", base=read),
        ]
        with pytest.raises(StorageError, match="'one' was changed by somebody else since the program read it"):
            store.switch(staged)
        assert not store.exists("two") and self.bytes_left(store) == left
        now = store.entry("one").token
        assert bytes(store.get([Wanted("one")])[0].parts[0]) == content(2, size)
        store.switch([other.stage("one", [content(4, size)], "Kind", base=now)])
        store.delete("one")
        with pytest.raises(StorageError, match="'one' was deleted by somebody else"):
            store.switch([store.stage("one", [content(5, size)], "Kind", base=now)])
        assert not store.exists("one")

    def test_attempts_of_one_author_replace_each_other_and_begin_with_the_state_before(self, store: Store) -> None:
        before = store.put("one", [content(1, 100)], "Kind").token
        for number in (2, 3, 4):
            [fetched] = self.another(store).get([Wanted("one", author="me")])
            assert fetched.entry.token == before and bytes(fetched.parts[0]) == content(1, 100)
            staged = store.stage("one", [content(number, 100)], "Kind", base=before, author="me")
            store.switch([staged], keep=True)
        [fetched] = store.get([Wanted("one", before, author="another")])
        assert bytes(fetched.parts[0]) == content(4, 100)
        with pytest.raises(StorageError, match="since this task read it"):
            store.switch([store.stage("one", [content(5, 100)], "Kind", base=before, author="another")])

    @pytest.mark.parametrize("size", SIZES)
    def test_what_is_put_is_got(self, store: Store, size: int) -> None:
        parts = [b"head", content(1, size), content(2, size // 2)]
        entry = store.put("x", parts, "Kind")
        [found] = store.get([Wanted("x")])
        assert [bytes(part) for part in found.parts] == parts
        assert found.entry == entry and found.entry.kind == "Kind" and entry.size == sum(map(len, parts))

    def test_many_parts_of_all_sizes(self, store: Store) -> None:
        parts = [content(i, (i * 7919) % 200_000) for i in range(40)]
        store.put("x", parts, "Kind")
        assert [bytes(part) for part in store.get([Wanted("x")])[0].parts] == parts

    @pytest.mark.parametrize("identifier", STRANGE_IDS)
    def test_ids_may_be_any_text(self, store: Store, identifier: str) -> None:
        store.put(identifier, [content(1, 100_000)], "Kind")
        store.put(identifier + "2", [b"other"], "Kind")
        assert bytes(self.another(store).get([Wanted(identifier)])[0].parts[0]) == content(1, 100_000)
        assert store.delete(identifier) and store.exists(identifier + "2") and not store.exists(identifier)

    def test_ids_that_look_like_keys_of_others_are_objects_of_their_own(self, store: Store) -> None:
        ids = ["x", "{x}", "{{x}}", "={x}", "=x", "x:0", "object:x", "%7Bx%7D"]
        for identifier in ids:
            store.put(identifier, [identifier.encode()], "Kind")
        assert [bytes(found.parts[0]).decode() for found in store.get(list(map(Wanted, ids)))] == ids
        assert sorted(identifier for identifier, _ in store.inventory()) == sorted(ids)

    def test_many_objects_are_read_together_and_in_order(self, store: Store) -> None:
        for i in range(20):
            store.put(f"x{i}", [content(i, i * 9_000)], "Kind")
        order = [7, 3, 3, 19, 0]
        found = store.get([Wanted(f"x{i}") for i in order])
        assert [bytes(one.parts[0]) for one in found] == [content(i, i * 9_000) for i in order]

    @pytest.mark.parametrize("size", [10, 30_000, 300_000])
    def test_writable_parts_are_private(self, store: Store, size: int) -> None:
        store.put("x", [content(1, size)], "Kind")
        [mine], [theirs] = (store.get([Wanted("x", writable=True)]) for _ in range(2))
        view = memoryview(mine.parts[0])
        assert not view.readonly
        view[:3] = b"!!!"
        assert bytes(theirs.parts[0]) == bytes(store.get([Wanted("x")])[0].parts[0]) == content(1, size)

    @pytest.mark.parametrize("size", [10, 30_000, 300_000])
    def test_parts_that_are_not_asked_for_writing_are_read_only(self, store: Store, size: int) -> None:
        store.put("x", [content(1, size)], "Kind")
        assert memoryview(store.get([Wanted("x", writable=False)])[0].parts[0]).readonly

    def test_a_missing_object_is_named(self, store: Store) -> None:
        store.put("there", [b"1"], "Kind")
        with pytest.raises(MissingObject, match="not-there"):
            store.get([Wanted("there"), Wanted("not-there")])
        for change in (store.entry, store.new_version, store.consolidate_version):
            with pytest.raises(MissingObject, match="not-there"):
                change("not-there")

    def test_another_process_sees_what_is_stored(self, store: Store) -> None:
        store.put("x", [content(1, 100_000)], "Kind")
        other = self.another(store)
        assert bytes(other.get([Wanted("x")])[0].parts[0]) == content(1, 100_000)
        other.put("x", [content(2, 100_000)], "Kind")
        store.put("x", [content(3, 90_000)], "Kind")  # what this one remembers is old by now
        assert bytes(other.get([Wanted("x")])[0].parts[0]) == content(3, 90_000)
        other.close()

    # --- states ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [100, 100_000])
    def test_a_new_state_takes_the_place_of_the_old(self, store: Store, size: int) -> None:
        first = store.put("x", [content(1, size)], "Kind")
        second = store.put("x", [content(2, size)], "Kind")
        assert second.generation > first.generation
        assert bytes(store.get([Wanted("x")])[0].parts[0]) == content(2, size)
        assert self.bytes_left(store) == (size if size > 16 * 1024 else 0)

    @pytest.mark.parametrize("size", [100, 100_000])
    def test_a_state_that_is_kept_can_be_read_until_it_is_dropped(self, store: Store, size: int) -> None:
        first = store.put("x", [content(1, size)], "Kind")
        store.put("x", [content(2, size)], "Kind", keep=True)
        last = store.put("x", [content(3, size)], "Kind", keep=True)
        assert bytes(store.get([Wanted("x", first.token)])[0].parts[0]) == content(1, size)
        store.drop("x", first.token)
        assert bytes(store.get([Wanted("x", first.token)])[0].parts[0]) == content(3, size)  # the newest instead
        store.drop("x", last.token)  # the current state stays
        assert bytes(store.get([Wanted("x")])[0].parts[0]) == content(3, size)
        store.delete("x")
        assert self.bytes_left(store) == 0

    @pytest.mark.parametrize("size", [100, 100_000])
    def test_who_knows_where_a_state_is_reads_the_same(self, store: Store, size: int) -> None:
        first = store.put("x", [content(1, size)], "Kind")
        second = store.put("x", [content(2, size)], "Kind", keep=True)
        wanted = [Wanted("x", state.token, entry=state) for state in (first, second)]
        assert [bytes(f.parts[0]) for f in store.get(wanted)] == [content(1, size), content(2, size)]
        store.drop("x", first.token)
        assert [bytes(f.parts[0]) for f in store.get(wanted)] == [content(2, size)] * 2
        store.delete("x")
        with pytest.raises(MissingObject):
            store.get(wanted)

    def test_dropping_what_is_not_there_does_nothing(self, store: Store) -> None:
        store.drop("nothing", "token")
        store.put("x", [b"1"], "Kind")
        store.drop("x", "token")
        assert store.exists("x")

    def test_deleting_removes_everything_once(self, store: Store) -> None:
        store.put("x", [content(1, 100_000)], "Kind")
        store.put("x", [content(2, 100_000)], "Kind", keep=True)
        assert store.delete("x") and not store.delete("x")
        assert not store.exists("x") and self.bytes_left(store) == 0

    def test_staged_states_are_seen_by_nobody_until_all_are_switched(self, store: Store) -> None:
        store.put("x", [b"old"], "Kind")
        staged = [store.stage("x", [content(1, 100_000)], "Kind"), store.stage("y", [content(2, 90_000)], "Kind")]
        other = self.another(store)
        assert bytes(other.get([Wanted("x")])[0].parts[0]) == b"old" and not other.exists("y")
        store.switch(staged)
        assert [bytes(f.parts[0]) for f in other.get([Wanted("x"), Wanted("y")])] == [
            content(1, 100_000),
            content(2, 90_000),
        ]

    def test_staged_states_can_be_withdrawn(self, store: Store) -> None:
        store.withdraw([store.stage("x", [content(1, 100_000)], "Kind"), store.stage("y", [b"2"], "Kind")])
        assert not store.exists("x") and self.bytes_left(store) == 0

    def test_all_states_are_switched_or_none(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in "xy":
            store.put(name, [content(1, 70_000)], "Kind")
        swap = store._swap

        def fails_for_y(changes: Any) -> list[bool]:
            done = swap([change for change in changes if change.identifier != "y"])
            if any(change.identifier == "y" for change in changes):
                if len(changes) > 1:
                    return [change.identifier != "y" for change in changes]  # somebody else was faster
                raise StorageError("no")
            return done

        staged = [store.stage(name, [content(2, 70_000)], "Kind") for name in "xy"]
        monkeypatch.setattr(store, "_swap", fails_for_y)
        with pytest.raises(StorageError, match="no"):
            store.switch(staged)
        monkeypatch.undo()
        assert [bytes(f.parts[0]) for f in store.get([Wanted("x"), Wanted("y")])] == [content(1, 70_000)] * 2
        assert self.bytes_left(store) == 140_000

    def test_writers_of_one_object_take_turns(self, store: Store) -> None:
        def write(number: int) -> None:
            mine = self.another(store)
            for _ in range(8):
                mine.put("x", [content(number, 70_000)], "Kind")
            mine.close()

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [found] = self.another(store).get([Wanted("x")])
        assert bytes(found.parts[0]) in [content(number, 70_000) for number in range(4)]
        assert found.entry.generation == 32 and self.bytes_left(store) == 70_000

    def test_a_reader_never_sees_a_mixture(self, store: Store) -> None:
        store.put("x", [content(0, 150_000), content(0, 80_000)], "Kind")
        over = threading.Event()

        def write() -> None:
            mine = self.another(store)
            for number in range(40):
                mine.put("x", [content(number, 150_000), content(number, 80_000)], "Kind")
            over.set()
            mine.close()

        thread = threading.Thread(target=write)
        thread.start()
        reads = 0
        while not over.is_set() or not reads:
            first, second = store.get([Wanted("x")])[0].parts
            assert bytes(first[:80_000]) == bytes(second)
            reads += 1
        thread.join()

    # --- versions -------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [100, 100_000])
    def test_a_version_is_a_copy_under_another_id(self, store: Store, size: int) -> None:
        store.put("x", [content(1, size)], "Kind")
        copy = store.new_version("x")
        store.put(copy, [content(2, size)], "Kind")
        assert [bytes(f.parts[0]) for f in store.get([Wanted("x"), Wanted(copy)])] == [
            content(1, size),
            content(2, size),
        ]

    def test_a_version_that_need_not_preserve_its_source_replaces_it(self, store: Store) -> None:
        store.put("x", [content(1, 100_000)], "Kind")
        copy = store.new_version("x", preserve=False)
        assert not store.exists("x") and bytes(store.get([Wanted(copy)])[0].parts[0]) == content(1, 100_000)
        assert self.bytes_left(store) == 100_000

    def test_consolidating_deletes_all_that_came_before(self, store: Store) -> None:
        store.put("x", [content(1, 100_000)], "Kind")
        second = store.new_version("x")
        branch = store.new_version("x")
        third = store.new_version(second)
        store.consolidate_version(third)
        assert not store.exists("x") and not store.exists(second)
        assert store.exists(third) and store.exists(branch)
        store.consolidate_version(third)  # nothing is left to do
        assert store.exists(third)

    # --- places ---------------------------------------------------------------------------------------------------

    def test_an_object_can_be_placed_where_others_are(self, store: Store) -> None:
        store.put("x", [content(1, 400_000)], "Kind")
        hosts = store.locations("x", store.entry("x"))
        assert all(isinstance(host, str) for host in hosts)
        for host in hosts:
            identifier = store.place(host)
            store.put(identifier, [content(1, 400_000)], "Kind")
            assert store.locations(identifier, store.entry(identifier)) == [host]

    # --- a writer is killed -----------------------------------------------------------------------------------------

    @SOME_MOMENTS
    def test_a_killed_writer_leaves_the_old_state_or_the_new_one(self, store: Store, every: int) -> None:
        old, new = [content(1, 200_000)], [content(2, 210_000)]
        seen = set()
        for moment in moments(100, every, first=0):
            store.put("x", old, "Kind")
            survived = self._killed_at(moment, store, lambda mine: mine.put("x", new, "Kind"))
            fresh = self.another(store)
            found = [bytes(part) for part in fresh.get([Wanted("x")])[0].parts]
            assert found in (old, new), f"killed before step {moment}: the object is damaged"
            fresh.close()
            seen.add(found == new)
            if survived:
                break
        assert survived and seen == {False, True} and moment > 2

    @SOME_MOMENTS
    @pytest.mark.parametrize("change", CHANGES)
    def test_what_a_killed_writer_leaves_is_removed_by_who_comes_next(
        self, store: Store, change: str, every: int
    ) -> None:
        """At whatever step it was killed: one state is left, whole, and no byte that is not of it."""

        def write(mine: Store) -> None:
            if change == "delete":
                mine.delete("x")
            elif change == "put":
                mine.put("x", [content(3, 210_000)], "Kind")
            else:
                now = mine.entry("x").token
                mine.put("x", [content(3, 210_000)], "Kind", keep=True)
                if change == "drop":
                    mine.drop("x", now)

        for moment in moments(100, every, CHANGES.index(change), first=0):
            store.put("x", [content(1, 200_000)], "Kind")
            survived = self._killed_at(moment, store, write)
            collect(store)
            report = inspect(store)
            assert report.is_fine, f"killed before step {moment}: {report}"
            sizes = [entry.size for one in report.objects for entry in one.manifest.entries()]
            assert sizes in ([200_000], [210_000], []) and self.bytes_left(store) == sum(sizes), f"step {moment}"
            if survived:
                break
        assert survived and moment > 2

    def test_states_that_a_living_run_keeps_stay_whoever_writes_and_go_with_it(self, store: Store) -> None:
        other = self.another(store)
        for size in (100, 100_000):
            first = store.put("x", [content(1, size)], "Kind")
            store.put("x", [content(2, size)], "Kind", keep=True)
            collect(other)
            assert not inspect(other).left
            other.put("x", [content(3, size)], "Kind")
            other.put("x", [content(4, size)], "Kind", keep=True)
            assert bytes(other.get([Wanted("x", first.token)])[0].parts[0]) == content(1, size)
        store.runs.let_go()  # as the kernel, or the server, does for one that was killed
        report = inspect(other)
        assert len(report.dead) == 1 and len(report.left) == 1 and not report.is_fine
        other.put("x", [content(5, 100_000)], "Kind", keep=True)
        assert not inspect(other).left and len(other._manifest("x")[1].kept) == 2
        collect(other)
        assert not inspect(other).dead
        settle(other, other.run)
        assert inspect(other).is_fine and self.bytes_left(store) == 100_000
        other.close()

    def test_a_dead_run_is_cleaned_up_after_and_a_living_one_is_not_touched(self, store: Store) -> None:
        dead, living = self.another(store), self.another(store)
        for name, one in (("dead", dead), ("living", living)):
            one.put(name, [content(1, 70_000)], "Kind")
            one.put(name, [content(2, 70_000)], "Kind", keep=True)
            one.stage(name, [content(3, 70_000)], "Kind")
        dead.runs.let_go()
        report = inspect(store)
        assert [name for name, _ in report.left] == ["dead"] and not report.orphans
        assert (len(report.dead), len(report.living)) == (1, 1)
        clean(store, report, damaged=False)
        assert inspect(store).is_fine and self.bytes_left(store) == 4 * 70_000
        living.close()

    def test_objects_whose_blocks_are_gone_and_blocks_without_an_object_are_found(self, store: Store) -> None:
        whole, lost = (store.put(name, [content(1, 100_000)], "Kind") for name in ("whole", "lost"))
        store._erase([("lost", lost)])
        nobodys = store.stage("nobody", [content(2, 90_000)], "Kind")
        store._settled([nobodys.entry])
        report = inspect(store)
        assert [one.identifier for one in report.damaged] == ["lost"]
        assert sum(one.size for one in report.orphans) == 90_000 and not report.is_fine
        clean(store, report, damaged=False)
        assert not inspect(store).orphans and store.exists("lost")
        clean(store, report, damaged=True)
        assert inspect(store).is_fine and not store.exists("lost") and store.entry("whole").token == whole.token

    def test_what_a_living_run_erases_while_somebody_looks_belongs_to_nobody_but_is_gone(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        staged, known = store.stage("x", [content(1, 90_000)], "Kind"), store.runs.known

        def after_it_is_erased() -> Any:
            store._erase([("x", staged.entry)])
            store._settled([staged.entry])
            return known()

        monkeypatch.setattr(store.runs, "known", after_it_is_erased)
        assert inspect(store).is_fine

    @pytest.mark.parametrize("repeated", [True, False])
    def test_an_exchange_whose_answer_is_lost(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, repeated: bool
    ) -> None:
        """A client that repeats its request is told that somebody was faster: itself."""
        store.put("x", [content(1, 70_000)], "Kind")
        before, swap, lost = store.entry("x").token, store._swap, [1]

        def answer_is_lost(changes: Any) -> list[bool]:
            outcome = swap(changes)
            if lost:
                lost.clear()
                if not repeated:
                    raise StoreUnreachable("gone for a moment")
                return [False] * len(changes)
            return outcome

        staged = store.stage("x", [content(2, 70_000)], "Kind", base=before)
        monkeypatch.setattr(store, "_swap", answer_is_lost)
        if repeated:
            store.switch([staged])
        else:
            with pytest.raises(StoreUnreachable, match="gone for a moment"):
                store.switch([staged])
        monkeypatch.undo()
        assert bytes(store.get([Wanted("x")])[0].parts[0]) == content(1 + repeated, 70_000)
        assert repeated or self.bytes_left(store) == 70_000

    def _killed_at(self, moment: int, store: Store, write: Callable[[Store], object]) -> bool:
        """Write in a process that is killed before it takes its n-th step; True if it had come to its end by then."""
        child = os.fork()
        if child == 0:
            try:
                mine = self.another(store)
                left = [moment]
                for where, name in self.steps():
                    _kill_when_none_is_left(where, name, left)
                write(mine)
            finally:
                os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    # --- a model ----------------------------------------------------------------------------------------------------

    #: how many random histories are tried
    examples = 30

    def test_a_store_is_a_dictionary_of_states(self, store: Store) -> None:
        chosen = settings(max_examples=self.examples, stateful_step_count=20, deadline=None)
        run_state_machine_as_test(lambda: _Histories(store, self.bytes_left), settings=chosen)


def _kill_when_none_is_left(where: Any, name: str, left: list[int]) -> None:
    real = getattr(where, name)

    def step(*args: Any, **kwargs: Any) -> Any:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return real(*args, **kwargs)

    setattr(where, name, step)


class _Histories(RuleBasedStateMachine):
    """Random changes to a few objects; the model is a dictionary of what should be there."""

    def __init__(self, store: Store, bytes_left: Callable[[Store], int]) -> None:
        super().__init__()
        self.store = store
        self.bytes_left = bytes_left
        #: id to token to content, the current one last
        self.model: dict[str, dict[str, bytes]] = {}
        self.previous: dict[str, str | None] = {}
        self.number = 0

    ids = st.sampled_from(["a", "b", "c"])
    sizes = st.sampled_from([0, 50, 17_000, 70_000, 140_000])
    copies = Bundle("copies")

    def teardown(self) -> None:
        for name in list(self.model):
            self.store.delete(name)
        assert self.bytes_left(self.store) == 0

    @rule(name=ids, size=sizes, keep=st.booleans())
    def put(self, name: str, size: int, keep: bool) -> None:
        self.number += 1
        data = content(self.number, size)
        entry = self.store.put(name, [b"head", data], "Kind", keep=keep)
        states = self.model.get(name, {}) if keep else {}
        self.model[name] = {**states, entry.token: data}
        self.previous.setdefault(name, None)

    @rule(name=ids)
    def delete(self, name: str) -> None:
        assert self.store.delete(name) == (name in self.model)
        self.model.pop(name, None)
        self.previous.pop(name, None)

    @rule(name=ids, which=st.integers(0, 5))
    def drop(self, name: str, which: int) -> None:
        states = self.model.get(name)
        if states:
            token = list(states)[which % len(states)]
            self.store.drop(name, token)
            if token != list(states)[-1]:
                del states[token]

    @rule(target=copies, name=ids)
    def copy(self, name: str) -> str:
        if name not in self.model:
            with pytest.raises(MissingObject):
                self.store.new_version(name)
            return ""
        copy = self.store.new_version(name)
        token = self.store.entry(copy).token
        self.model[copy] = {token: list(self.model[name].values())[-1]}
        self.previous[copy] = name
        return copy

    @rule(copy=consumes(copies))
    def consolidate(self, copy: str) -> None:
        if copy not in self.model:
            return
        self.store.consolidate_version(copy)
        before, self.previous[copy] = self.previous[copy], None
        while before is not None:
            self.model.pop(before, None)
            before = self.previous.pop(before, None)

    @invariant()
    def everything_is_there(self) -> None:
        wanted = [(name, token, data) for name, states in self.model.items() for token, data in states.items()]
        for (name, token, data), found in zip(
            wanted, self.store.get([Wanted(name, token) for name, token, _ in wanted]) if wanted else [], strict=True
        ):
            assert [bytes(part) for part in found.parts] == [b"head", data], (name, token)
        for name in ("a", "b", "c"):
            assert self.store.exists(name) == (name in self.model)
