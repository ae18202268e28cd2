"""Random workflows on a model of a disk, run one after the other and streamed by the rules of ``filestate``.

A program is a list of operations; what it writes depends on all it has read. Annotations are true: what is no_update is
written once, what is on_close:N is closed N times and not touched after, and so on.
"""

from __future__ import annotations

import itertools
import zlib
from random import Random
from typing import Any

from penstock.streaming.filestate import Answer, Commit, Files, Fire, Holding, Kind, NameRules, Rule

SIZE = 24
Operation = tuple[Any, ...]


class Workflow:
    """Apps in order, each reading what those before it make."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = random.randint(2, 4)
        self.files: dict[str, Rule] = {}
        self.directories: dict[str, Rule] = {}
        self.programs: list[list[Operation]] = []
        self.directories["."] = Rule(Commit.ON_TERMINATION, random.choice(list(Fire)))
        for app in range(self.count):
            self.programs.append(self._program(app))
        self.before = [(1 << app) - 1 for app in range(self.count)]

    def rules_of(self, name: str) -> NameRules:
        owner = self._owner(name)
        if name == ".":
            return NameRules(directory=self.directories["."], makers=(1 << self.count) - 1)
        if owner is None:
            return NameRules()
        mask = 1 << owner
        return NameRules(self.files.get(name, Rule()), self.directories.get(name, Rule()), mask, mask)

    def _owner(self, name: str) -> int | None:
        """Outputs of app 3 are called 3-…, or lie in 3-…/."""
        return int(name[0]) if name[0].isdigit() else None

    def _program(self, app: int) -> list[Operation]:
        random = self.random
        threads = [self._reading(app) for _ in range(random.randint(1, 3))] if app else []
        marker, watched = f"{app}-marker", False
        for number in range(random.randint(1, 3)):
            name = f"{app}-{number}"
            commit = random.choice([Commit.ON_TERMINATION, Commit.ON_CLOSE, Commit.ON_FILE])
            fire, n = random.choice(list(Fire)), random.randint(1, 3)
            watched |= commit is Commit.ON_FILE
            self.files[name] = Rule(commit, fire, n, (marker,) if commit is Commit.ON_FILE else ())
            threads.append(self._writing(name, self.files[name]))
        if random.random() < 0.6:
            threads.append(self._filling(app))
        program = self._interleaved(threads)
        if watched:
            self.files[marker] = Rule(Commit.ON_CLOSE)
            program += [("create", marker, True), ("write", marker, 0, 1), ("close", marker)]
        return program + [("probe", f"{app}-never")] * random.randint(0, 1)

    def _interleaved(self, threads: list[list[Operation]]) -> list[Operation]:
        program: list[Operation] = []
        left = [list(thread) for thread in threads]
        while any(left):
            program.append(self.random.choice([thread for thread in left if thread]).pop(0))
        return program

    def _writing(self, name: str, rule: Rule) -> list[Operation]:
        random = self.random
        cycles = rule.n if rule.commit is Commit.ON_CLOSE else random.randint(1, 2)
        lasting = self.directories["."].fire is Fire.NO_UPDATE  # then no name may go away
        renamed = cycles == 1 and not lasting and random.random() < 0.3
        target = f"tmp-{name}" if renamed else name
        writes = self._parts(rule.fire)
        program: list[Operation] = []
        for cycle in range(cycles):
            program.append(("create", target, cycle == 0))
            share = writes[cycle::cycles]
            program += [("write", target, start, end) for start, end in share]
            program.append(("close", target))
        if renamed:
            program.append(("rename", target, name))
        if rule.fire is Fire.UPDATE and rule.commit is not Commit.ON_CLOSE and not lasting and random.random() < 0.4:
            program += self._replacing(name)
        return program

    def _replacing(self, name: str) -> list[Operation]:
        """Another file of the same name: saved beside and renamed, or made again."""
        beside = self.random.random() < 0.5
        target = f"tmp-{name}" if beside else name
        last = ("rename", target, name) if beside else None
        first = None if beside else ("remove", name)
        written = [("create", target, True), ("write", target, 0, self.random.randint(1, SIZE)), ("close", target)]
        return [operation for operation in (first, *written, last) if operation]

    def _parts(self, fire: Fire) -> list[tuple[int, int]]:
        random = self.random
        if fire is Fire.UPDATE:
            starts = [random.randint(0, SIZE) for _ in range(random.randint(0, 5))]
            return [(start, start + random.randint(1, 8)) for start in starts]
        cuts = sorted({0, SIZE, *(random.randint(0, SIZE) for _ in range(4))})
        parts = list(itertools.pairwise(cuts))
        if random.random() < 0.5:
            random.shuffle(parts)
        return parts[: random.randint(1, len(parts))]  # what is left out stays a hole

    def _filling(self, app: int) -> list[Operation]:
        """A directory with files, of known or unknown number."""
        random, name = self.random, f"{app}-d"
        count = random.randint(1, 3)
        commit = random.choice([Commit.ON_TERMINATION, Commit.N_FILES])
        self.directories[name] = Rule(commit, random.choice(list(Fire)), count)
        program: list[Operation] = [("mkdir", name)]
        for number in range(count):
            file = f"{name}/{number}"
            self.files[file] = Rule(Commit.ON_CLOSE, random.choice(list(Fire)))
            program += [("create", file, True), ("write", file, 0, number + 1), ("close", file)]
        return program

    def _reading(self, app: int) -> list[Operation]:
        random, other = self.random, self.random.randrange(app)
        if random.random() < 0.3:
            return [("list", random.choice([".", f"{other}-d"]))]
        name = random.choice([f"{other}-0", f"{other}-1", f"{other}-2", f"{other}-never", f"{other}-d/0"])
        program: list[Operation] = [("open", name)]
        for _ in range(random.randint(1, 4)):
            start = random.randint(0, SIZE + 2)
            program.append(("read", name, start, start + random.randint(1, 8)))
        if random.random() < 0.4:
            program.append(("size", name))
        return program


class Disk:
    """What the kernel has."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories = {"."}

    def listing(self, directory: str) -> list[str] | None:
        if directory not in self.directories:
            return None
        names = [*self.files, *self.directories - {"."}]
        return [name for name in names if (name.rpartition("/")[0] or ".") == directory]


class Run:
    """One execution. ``files`` is None in batch order: then nobody ever waits."""

    def __init__(self, workflow: Workflow, files: Files | None) -> None:
        self.workflow, self.files, self.disk = workflow, files, Disk()
        self.seen: list[list[Any]] = [[] for _ in workflow.programs]
        self._places = [0] * workflow.count
        self._writing: dict[tuple[int, str], tuple[bytearray, Holding | None]] = {}
        self._reading: dict[tuple[int, str], bytearray | None] = {}
        self._listings: dict[int, tuple[int, list[str], set[str]]] = {}

    def ended(self, app: int) -> bool:
        return self._places[app] == len(self.workflow.programs[app])

    def step(self, app: int) -> bool:
        """One operation of an app, or a part of one; False: it waits."""
        operation = self.workflow.programs[app][self._places[app]]
        done = getattr(self, f"_{operation[0]}")(app, *operation[1:])
        if done is False:
            return False
        self._places[app] += done is True
        if self.files:
            if self.ended(app):
                self.files.app_over(app)
            self.files.settle()
        return True

    def _goes(self, answer: Answer) -> bool:
        assert answer is not Answer.FAIL
        return answer is Answer.GO

    # --- writing ------------------------------------------------------------------------------------------------------

    def _create(self, app: int, name: str, truncated: bool) -> bool:
        content = self.disk.files.setdefault(name, bytearray())
        if truncated:
            content.clear()
        holding = self.files.open_writer(name, app, truncated=truncated) if self.files else None
        assert not self.files or holding
        self._writing[app, name] = (content, holding)
        return True

    def _write(self, app: int, name: str, start: int, end: int) -> bool:
        content, holding = self._writing[app, name]
        mark = zlib.crc32(repr((self.seen[app], name, start)).encode()) % 255 + 1
        content.extend(bytes(max(0, end - len(content))))
        content[start:end] = bytes([mark]) * (end - start)
        if self.files and holding:
            self.files.write(holding, start, end)
        return True

    def _close(self, app: int, name: str) -> bool:
        _, holding = self._writing.pop((app, name))
        if self.files and holding:
            self.files.close(holding)
        return True

    def _rename(self, app: int, old: str, new: str) -> bool:
        self.disk.files[new] = self.disk.files.pop(old)
        if self.files:
            self.files.rename(old, new, app)
        return True

    def _remove(self, app: int, name: str) -> bool:
        del self.disk.files[name]
        if self.files:
            self.files.remove(name)
        return True

    def _mkdir(self, app: int, name: str) -> bool:
        self.disk.directories.add(name)
        if self.files:
            self.files.birth(name, app, Kind.DIRECTORY)
        return True

    # --- reading ------------------------------------------------------------------------------------------------------

    def _probe(self, app: int, name: str) -> bool:
        """A producer looks for its own missing output and is told at once."""
        assert not self.files or self.files.may_open(name, app) is Answer.GO
        self.seen[app].append(name in self.disk.files)
        return True

    def _open(self, app: int, name: str) -> bool:
        if self.files and not self._goes(self.files.may_open(name, app)):
            return False
        self._reading[app, name] = self.disk.files.get(name)
        self.seen[app].append((name, name in self.disk.files))
        return True

    def _read(self, app: int, name: str, start: int, end: int) -> bool:
        content = self._reading[app, name]
        if content is None:
            return True
        if self.files and not self._goes(self.files.may_read(name, app, start, end)):
            return False
        self.seen[app].append((name, start, bytes(content[start:end])))
        return True

    def _size(self, app: int, name: str) -> bool:
        if self.files and not self._goes(self.files.is_final(name, app)):
            return False
        content = self.disk.files.get(name)
        self.seen[app].append((name, None if content is None else len(content)))
        return True

    def _list(self, app: int, name: str) -> bool | None:
        if not self.files:
            listed = self.disk.listing(name)
            self.seen[app].append((name, None if listed is None else sorted(listed)))
            return True
        if app not in self._listings:
            if not self._goes(self.files.is_born(name, app)):
                return False
            if name not in self.disk.directories:
                self.seen[app].append((name, None))
                return True
            self._listings[app] = (0, [], set(self.disk.listing(name) or ()))
        place, found, there = self._listings[app]
        answer, place, entry = self.files.next_entry(name, app, place)
        self._listings[app] = (place, found, there)
        if entry is not None:
            found.append(entry)
            return None  # there may be more
        if not self._goes(answer):
            return False
        besides = [
            other
            for other in self.disk.listing(name) or ()
            if other not in found and self.files.listable(self.files[other], app, was_there=other in there)
        ]
        self.seen[app].append((name, sorted([*found, *besides])))
        del self._listings[app]
        return True
