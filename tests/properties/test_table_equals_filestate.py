"""The shared table in C gives the same answers as its pure statement, on random histories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.own_place import memory_dir
from tests.unit.table_program import Program
from tests.unit.table_rules import DIRECTORY_RULE, FILE_RULE, OUTPUT, App, Entry, rules_area

from penstock.streaming.filestate import Answer, Commit, Files, Fire, Holding, Kind, NameRules, Rule, Said
from penstock.streaming.table import NONE, AppState, Born, Flag, Table, WaitKind

APPS = range(3)
DIRECTORIES = ["d", "d/e"]
NAMES = ["a", "b", "d/x", "d/y", "d/e/z"]
ALL = [".", *DIRECTORIES, *NAMES]
IMPLIED = Rule(fire=Fire.NO_UPDATE, said=Said.IMPLIED)
_KINDS = {Kind.FILE: Born.FILE, Kind.DIRECTORY: Born.DIRECTORY, Kind.SYMLINK: Born.SYMLINK}
_serial = itertools.count()

names, places, apps = st.sampled_from(NAMES), st.integers(0, 40), st.sampled_from(APPS)
file_rules = st.builds(
    Rule, st.sampled_from([Commit.ON_TERMINATION, Commit.ON_CLOSE]), st.sampled_from(Fire), st.integers(1, 3)
)
directory_rules = st.builds(
    Rule, st.sampled_from([Commit.ON_TERMINATION, Commit.N_FILES]), st.sampled_from(Fire), st.integers(1, 3)
)


class Twins(RuleBasedStateMachine):
    """Every event goes to both, then every question is put to both."""

    table: Table | None = None

    @initialize(
        producers=st.fixed_dictionaries({name: st.integers(0, 7) for name in NAMES}),
        files=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, file_rules)),
        directories=st.fixed_dictionaries(dict.fromkeys([".", *DIRECTORIES], directory_rules | st.just(IMPLIED))),
        before=st.sampled_from([(0, 0, 0), (0, 1, 1), (0, 1, 3)]),
    )
    def begin(
        self,
        producers: dict[str, int],
        files: dict[str, Rule],
        directories: dict[str, Rule],
        before: tuple[int, ...],
    ) -> None:
        entries = [Entry(OUTPUT, name, app) for name in NAMES for app in APPS if producers[name] >> app & 1]
        entries += [Entry(FILE_RULE, name, 0, r.commit, r.fire, r.n) for name, r in files.items()]
        # A directory rule makes its app a maker: app 0, here.
        entries += [
            Entry(DIRECTORY_RULE, name, 0, r.commit, r.fire, r.n, serial=int(r is IMPLIED))
            for name, r in directories.items()
        ]

        def rules_of(name: str) -> NameRules:
            below = [mask for other, mask in producers.items() if name == "." or other.startswith(name + "/")]
            makers = producers.get(name, 0) | (1 if name in directories else 0)
            for mask in below:
                makers |= mask
            default = Rule(said=Said.DEFAULT)
            return NameRules(files.get(name, default), directories.get(name, default), producers.get(name, 0), makers)

        self.files = Files(rules_of, before)
        path = str(memory_dir() / f"twins-{next(_serial)}")
        area = rules_area([App(f"app{app}", before[app]) for app in APPS], entries, first_implied=1)
        self.table = Table.create(path, "twins", ["/nonexistent"], area, slots=1 << 12, ring=64)
        self.base = Program(self.table, 0)
        self.programs = [self.base.another(app) for app in APPS]
        self.held: list[tuple[int, int, Holding, int]] = []

    def teardown(self) -> None:
        if self.table is not None:
            self.table.close()
            self.table = None

    @rule(app=apps, name=names, truncated=st.booleans())
    def opens(self, app: int, name: str, truncated: bool) -> None:
        holding = self.files.open_writer(name, app, truncated=truncated)
        handle = self.programs[app].opened(name, truncated=truncated)
        assert (handle == NONE) == (holding is None)
        if holding is not None:
            self.held.append((app, handle, holding, self.programs[app].slot(name)))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99), start=places, length=st.integers(1, 10))
    def writes(self, which: int, start: int, length: int) -> None:
        app, handle, holding, slot = self.held[which % len(self.held)]
        if not holding.counts:
            self.programs[app].wrote_first(handle, slot)
        self.files.write(holding, start, start + length)
        assert self.table
        self.table.code.psx_written(slot, start, start + length)  # the number of old, whatever the file is called now

    @rule(app=apps)
    def forks(self, app: int) -> None:
        """A child holds all that its parent does, under the same handles."""
        child = self.programs[app].another(app)
        self.programs.append(child)
        self.held += [
            (len(self.programs) - 1, handle, self.files.fork(holding), slot)
            for parent, handle, holding, slot in list(self.held)
            if parent == app
        ]

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99))
    def closes(self, which: int) -> None:
        app, handle, holding, _ = self.held.pop(which % len(self.held))
        self.files.close(holding)
        self.programs[app].closed(handle)

    @rule(which=st.integers(0, 99))
    def is_killed(self, which: int) -> None:
        """What it held open is let go; another program of the app goes on."""
        assert self.table
        number = which % len(self.programs)
        for _, _, holding, _ in sorted((held for held in self.held if held[0] == number), key=lambda held: held[1]):
            self.files.vanish(holding)
        self.held = [held for held in self.held if held[0] != number]
        self.table.process_reap(self.programs[number].process)
        self.programs[number] = self.base.another(self.programs[number].app)

    @rule(app=apps, name=st.sampled_from(DIRECTORIES), counted=st.booleans())
    def makes_directory(self, app: int, name: str, counted: bool) -> None:
        self.files.birth(name, app, Kind.DIRECTORY, counted=counted)
        self.programs[app].born(name, Born.DIRECTORY if counted else Born.DIRECTORY | Born.NOT_COUNTED)

    @rule(app=apps, name=names)
    def links(self, app: int, name: str) -> None:
        self.files.birth(name, app, Kind.SYMLINK)
        self.programs[app].born(name, Born.SYMLINK)

    @rule(app=apps, name=names, size=places)
    def truncates(self, app: int, name: str, size: int) -> None:
        self.files.truncate(name, size)
        self.programs[app].truncated(name, size)

    @rule(app=apps, name=names)
    def removes(self, app: int, name: str) -> None:
        self.files.remove(name)
        self.programs[app].removed(name)

    @rule(app=apps, old=names, new=names)
    def renames(self, app: int, old: str, new: str) -> None:
        if self.files[old].born:
            self.files.rename(old, new, app)
            self.programs[app].renamed(old, new)

    @rule(app=apps, failed=st.booleans(), settles=st.booleans())
    def ends(self, app: int, failed: bool, settles: bool) -> None:
        assert self.table
        if self.files.over >> app & 1:
            return
        self.files.app_over(app, failed=failed)
        self.table.app_over(app, AppState.FAILED if failed else AppState.OVER, "ended")
        if settles:
            self.files.settle()
            self.table.settle()

    @invariant()
    def the_same_is_known(self) -> None:
        if self.table is None:
            return
        for name in ALL:
            state = self.files[name]
            slot = self.table.obtain(name)
            assert slot is not None
            info = self.table.info(slot)
            assert info is not None
            known = (bool(info.flags & Flag.BORN), bool(info.flags & Flag.COMMITTED), info.producers, info.makers)
            assert known == (state.born, state.committed, state.settled_by, state.makers), name
            assert (info.solid, info.high) == (state.written.solid, state.written.high), name
            assert (info.closes, info.writers, info.entries) == (state.closes, state.writers, state.entries), name

    @invariant()
    def the_same_is_answered(self) -> None:
        if self.table is None:
            return
        for app, name in itertools.product(APPS, NAMES):
            program = self.programs[app]
            assert answer(program.ask(WaitKind.BORN, name)) is self.files.is_born(name, app)
            assert answer(program.ask(WaitKind.COMMITTED, name)) is self.files.is_final(name, app)
            for start, end in ((0, 1), (0, 20), (5, 9), (30, 50)):
                asked = answer(program.ask(WaitKind.RANGE, name, start, end))
                assert asked is self.files.may_read(name, app, start, end), (name, app, start, end)

    @invariant()
    def the_same_is_listed(self) -> None:
        if self.table is None:
            return
        for app, name in itertools.product(APPS, [".", *DIRECTORIES]):
            streamed = list(self._streamed(name, app))
            listed = self.table.code.ps_next_entry(self.programs[app].slot(name), app, NONE)
            found = []
            while listed != NONE:
                info = self.table.info(listed)
                assert info is not None
                found.append(info.name)
                listed = self.table.code.ps_next_entry(self.programs[app].slot(name), app, listed)
            if streamed or (
                self.files[name].rules.directory.fire is Fire.NO_UPDATE and self.files.awaited(self.files[name], app)
            ):
                assert found == streamed

    def _streamed(self, name: str, app: int) -> Iterator[str]:
        seen = 0
        while True:
            _, seen, entry = self.files.next_entry(name, app, seen)
            if entry is None:
                return
            yield entry


def answer(code: int) -> Answer:
    return {0: Answer.GO, -1: Answer.WAIT, 5: Answer.FAIL}[code]


@pytest.mark.usefixtures("capfd")
def test_table_and_statement_agree(tmp_path: Path) -> None:
    run_state_machine_as_test(
        Twins,
        settings=settings(
            max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
