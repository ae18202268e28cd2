"""What streaming means, without clock, files or processes: who may see what of which file, and when.

Events come in (births, writes, closes, renames, ends of apps), questions are answered (may this app open, read, list
now?). The shared table in C answers the same questions for real programs; a property test holds it to this module,
and another shows that answers by these rules give each reader what running the apps one after the other gives.
Apps are numbers, sets of apps are masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, IntEnum

import msgspec

from penstock.streaming.written import Written

__all__ = ["Answer", "Commit", "FileState", "Files", "Fire", "Holding", "Kind", "NameRules", "Rule", "Said"]


class Commit(IntEnum):
    """When a name becomes final. The numbers are those of table.h, as are the ones of ``Fire``."""

    ON_TERMINATION = 0
    ON_CLOSE = 1
    ON_FILE = 2
    N_FILES = 3


class Fire(IntEnum):
    """What may be read before: nothing, or bytes that are written, as they will never be written again."""

    UPDATE = 0
    NO_UPDATE = 1


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


class Answer(Enum):
    GO = "go"
    WAIT = "wait"
    FAIL = "fail"


class Said(Enum):
    """Who says a rule."""

    WRITTEN = "written"
    #: of a directory, by a rule that was written for files
    IMPLIED = "implied"
    #: nobody: it is what holds without any
    DEFAULT = "default"


class Rule(msgspec.Struct, frozen=True):
    commit: Commit = Commit.ON_TERMINATION
    fire: Fire = Fire.UPDATE
    #: of on_close and n_files
    n: int = 1
    #: names that an on_file name waits for
    after: tuple[str, ...] = ()
    said: Said = Said.WRITTEN


class NameRules(msgspec.Struct, frozen=True):
    """What the workflow says of one name, whatever it turns out to be."""

    file: Rule = Rule()
    directory: Rule = Rule()
    #: apps that may make a file of this name; a directory of it, or anything in that
    producers: int = 0
    makers: int = 0


class FileState:
    """One name."""

    def __init__(self, name: str, rules: NameRules) -> None:
        self.name, self.rules = name, rules
        self.born = self.committed = self.removed = self.counted = self.listed = False
        self.kind = Kind.FILE
        self.written = Written()
        self.writers = self.closes = self.entries = 0
        self.producers, self.makers = rules.producers, rules.makers
        #: names in it, in order of birth
        self.children: list[FileState] = []

    @property
    def settled_by(self) -> int:
        """The apps whose end decides what becomes of the name."""
        if self.born:
            return self.makers if self.kind is Kind.DIRECTORY else self.producers
        return self.producers | self.makers

    @property
    def rule(self) -> Rule:
        return self.rules.directory if self.kind is Kind.DIRECTORY else self.rules.file


class Description:
    """One open file description that may write. By fork processes share it; it is closed when the last closes it."""

    def __init__(self) -> None:
        self.holders = 0
        #: somebody who wrote through it has closed it in order
        self.owes_a_close = False


class Holding:
    """An open file description in one process. It follows its file through renames."""

    def __init__(self, state: FileState, app: int, description: Description, *, counts: bool) -> None:
        self.state, self.app = state, app
        self.description = description
        description.holders += 1
        #: to close it is a close: not before it was written through, if it came by fork or found a file that was there
        self.counts = counts


class Files:
    """All names of a workflow. ``before[a]`` are the apps upstream of app ``a``."""

    def __init__(self, rules_of: Callable[[str], NameRules], before: Sequence[int]) -> None:
        self._rules_of = rules_of
        self._before = before
        self._after = [sum(1 << b for b, mask in enumerate(before) if mask >> app & 1) for app in range(len(before))]
        self._states: dict[str, FileState] = {}
        self._moved: dict[FileState, FileState] = {}
        self.over = self.failed = 0

    def __getitem__(self, name: str) -> FileState:
        if name not in self._states:
            self._states[name] = FileState(name, self._rules_of(name))
        return self._states[name]

    def __iter__(self) -> Iterator[FileState]:
        return iter(list(self._states.values()))

    def now(self, state: FileState) -> FileState:
        """Where a file is that may have been renamed."""
        while state in self._moved:
            state = self._moved[state]
        return state

    # --- events -------------------------------------------------------------------------------------------------------

    def birth(self, name: str, app: int, kind: Kind = Kind.FILE, *, counted: bool = True) -> None:
        """The name exists, made by this run. Its parents do too, then; they count for n_files only if made."""
        self._birth(self[name], app, kind, counted)

    def _birth(self, state: FileState, app: int, kind: Kind, counted: bool) -> None:
        directory = kind is Kind.DIRECTORY
        if state.born and (state.counted or not counted) and directory == (state.kind is Kind.DIRECTORY):
            return
        if state.removed:  # another file of that name
            state.written, state.closes = Written(), 0
        if counted and directory and not state.rules.makers:
            state.makers |= 1 << app
        elif counted and not directory and not state.rules.producers:
            state.producers |= 1 << app
        state.born, state.removed, state.kind = True, False, kind
        if state.name != ".":
            self._enter_parent(state, counted)

    def _enter_parent(self, state: FileState, counted: bool) -> None:
        parent = self[state.name.rpartition("/")[0] or "."]
        self._birth(parent, -1, Kind.DIRECTORY, counted=False)
        if not state.listed:
            state.listed = True
            parent.children.append(state)
        if counted and not state.counted:
            state.counted = True
            parent.entries += 1
            rule = parent.rules.directory
            if rule.commit is Commit.N_FILES and parent.entries >= rule.n:
                parent.committed = True

    def open_writer(self, name: str, app: int, *, truncated: bool = True) -> Holding | None:
        """An open for writing; None: others are declared to produce the file, so this one is not counted.

        What was there and is not truncated may be of an earlier run. It is no file of this one before it is written to.
        """
        state = self[name]
        foreign = bool(state.rules.producers) and not state.rules.producers >> app & 1
        if foreign and not truncated:
            return None
        if truncated:
            self._birth(state, app, Kind.FILE, True)
            state.written.cut(0)
        if foreign:
            return None
        if truncated:
            state.producers |= 1 << app
        state.writers += 1
        return Holding(state, app, Description(), counts=truncated)

    def fork(self, holding: Holding) -> Holding:
        """A child has the description too."""
        self.now(holding.state).writers += 1
        return Holding(self.now(holding.state), holding.app, holding.description, counts=False)

    def write(self, holding: Holding, start: int, end: int) -> None:
        state = self.now(holding.state)
        if not holding.counts and not state.removed:
            self._birth(state, holding.app, Kind.FILE, True)
            state.producers |= 1 << holding.app
        holding.counts = True
        state.written.add(start, end)

    def truncate(self, name: str, size: int) -> None:
        self[name].written.cut(size)

    def close(self, holding: Holding) -> None:
        self._let_go(holding, orderly=True)

    def vanish(self, holding: Holding) -> None:
        """Its process was killed: if it wrote, nobody knows whether the file was complete, so it is no close."""
        self._let_go(holding, orderly=not holding.counts)

    def _let_go(self, holding: Holding, *, orderly: bool) -> None:
        state, description = self.now(holding.state), holding.description
        state.writers -= 1
        description.holders -= 1
        if orderly:
            description.owes_a_close |= holding.counts
            if not description.holders:
                state.closes += description.owes_a_close
            self._commit_if_closed(state)

    def _commit_if_closed(self, state: FileState) -> None:
        rule = state.rules.file
        if rule.commit is Commit.ON_CLOSE and state.born and state.kind is not Kind.DIRECTORY:
            state.committed |= state.writers == 0 and state.closes >= rule.n

    def remove(self, name: str) -> None:
        state = self[name]
        state.removed = True
        if state.born:
            state.born = False
            self._leave_parent(state)
            state.kind = Kind.FILE

    def _leave_parent(self, state: FileState) -> None:
        if state.counted:
            state.counted = False
            self[state.name.rpartition("/")[0] or "."].entries -= 1

    def rename(self, old: str, new: str, app: int) -> None:
        """What was known of a file follows it; the rule of its new name holds. Subtrees too."""
        source = self[old]
        if old == new or not source.born:
            return
        below = [name for name, state in self._states.items() if name.startswith(old + "/") and state.born]
        subtree = below if source.kind is Kind.DIRECTORY else []
        for name in [old, *subtree]:
            self._move(self._states[name], self[new + name[len(old) :]], app)

    def _move(self, source: FileState, target: FileState, app: int) -> None:
        if not target.rules.producers:
            target.producers |= source.producers
        self._leave_parent(source)
        del self._states[source.name]
        self._moved[source] = target
        if target.removed:
            target.closes = 0
        target.removed = False
        target.written = Written()
        target.written.update(source.written)
        target.writers += source.writers
        target.closes += source.closes
        self._birth(target, app, source.kind, True)
        self._commit_if_closed(target)

    def app_over(self, app: int, *, failed: bool = False) -> None:
        self.over |= 1 << app
        self.failed |= failed << app

    def settle(self) -> None:
        """The server's part of commits: on_file, and all that was made by apps that are over."""
        changed = True
        while changed:
            ready = [state for state in self if not state.committed and self._may_settle(state)]
            for state in ready:
                state.committed = True
            changed = bool(ready)

    def _may_settle(self, state: FileState) -> bool:
        if not state.born:
            return False
        if state.rule.commit is Commit.ON_FILE and all(self[name].committed for name in state.rule.after):
            return True
        makers = state.settled_by
        return bool(makers) and not makers & ~self.over and not makers & self.failed

    # --- questions ----------------------------------------------------------------------------------------------------

    def awaited(self, state: FileState, app: int) -> int:
        """Whose end or commit the app waits for here. One that makes the name too waits only for those upstream."""
        makers, self_ = state.settled_by, 1 << app
        return makers & ~self_ & self._before[app] if makers & self_ else makers & ~self._after[app]

    def _otherwise(self, state: FileState, app: int) -> Answer:
        awaited = self.awaited(state, app)
        if awaited & self.failed:
            return Answer.FAIL
        return Answer.WAIT if awaited & ~self.over else Answer.GO

    def is_born(self, name: str, app: int) -> Answer:
        """Whether it is known if there is such a name: it is there, or nobody is left who could make it."""
        state = self[name]
        return Answer.GO if state.born or state.committed else self._otherwise(state, app)

    def may_open(self, name: str, app: int) -> Answer:
        """For reading. What may still be updated may also be replaced, and an open file stays what it was."""
        state = self[name]
        if state.born and state.kind is not Kind.DIRECTORY and state.rules.file.fire is Fire.UPDATE:
            return self.is_final(name, app)
        return self.is_born(name, app)

    def is_final(self, name: str, app: int) -> Answer:
        """For sizes, ends of files, and all reads of an ``update`` file."""
        state = self[name]
        return Answer.GO if state.committed else self._otherwise(state, app)

    def may_read(self, name: str, app: int, start: int, end: int) -> Answer:
        state = self[name]
        if state.committed or (state.rules.file.fire is Fire.NO_UPDATE and state.written.covers(start, end)):
            return Answer.GO
        return self._otherwise(state, app)

    def next_entry(self, name: str, app: int, seen: int) -> tuple[Answer, int, str | None]:
        """The first entry at or after the place ``seen`` that a listing shows, and the place after it.

        GO without a name ends the streamed part: what the disk shows besides comes then, if ``listable``.
        """
        state = self[name]
        final = self.is_final(name, app)
        if not self.awaited(state, app) or state.rules.directory.fire is Fire.UPDATE:
            return final, seen, None
        for place in range(seen, len(state.children)):
            child = state.children[place]
            if child.born and child not in self._moved and self.listable(child, app) and _listed_early(state, child):
                return Answer.GO, place + 1, child.name
        return final, len(state.children) if final is Answer.GO else seen, None

    def listable(self, state: FileState, app: int, *, was_there: bool = False) -> bool:
        """Not what apps downstream made, nor what the app itself made since it began to list: that comes later."""
        makers = state.settled_by
        if not makers or makers & ~(self._after[app] | 1 << app):
            return True
        return was_there and bool(makers >> app & 1)


def _listed_early(directory: FileState, child: FileState) -> bool:
    """Whether a ``no_update`` directory shows a name as it is made.

    If its rule is only implied, names that no rule covers wait for the end: nobody has promised that they stay.
    """
    return directory.rules.directory.said is not Said.IMPLIED or child.rule.said is not Said.DEFAULT
