"""A world with file systems: links, and two clerks who carry out what is asked of them when they get to it.

One gives names and removes copies, the other moves files; each works in order, and anything may happen in between.
Judged throughout: a name means a complete file at any time, and never an older version than before; whoever waits for
a file gets it; what is permanent is under its name in the end, and nothing else is left.
"""

from __future__ import annotations

from collections import deque

from tests.properties.engine_model import ModelVersion
from tests.properties.engine_world import World

from penstock.engine.engine import Engine
from penstock.engine.state import Placed
from penstock.model import events
from penstock.model.commands import Command, Discard, Move, Publish
from penstock.model.data import FileRef, Slot
from penstock.model.resources import Node
from penstock.storage.redirect import home_of, is_below


class Disk(dict[str, str]):
    """Contents of files by path; beside them links, and what files fill of layers."""

    def __init__(self) -> None:
        super().__init__()
        #: names that are links, and to what
        self.links: dict[str, str] = {}
        #: sizes of files that layered attempts wrote or that were moved
        self.sizes: dict[str, int] = {}
        #: and of those that others wrote over, who say nothing of what they fill
        self.loose: dict[str, int] = {}

    def read(self, path: str) -> str | None:
        return self.get(self.links.get(path, path))

    def put(self, path: str, content: str, size: int | None) -> None:
        if size is None and path in self.sizes:
            self.loose[path] = self.sizes[path]
        self.remove(path)
        self[path] = content
        if size is not None:
            self.sizes[path] = size
            self.loose.pop(path, None)

    def link(self, name: str, to: str) -> None:
        self.remove(name)
        self.links[name] = to

    def remove(self, path: str) -> None:
        self.links.pop(path, None)
        self.pop(path, None)
        self.sizes.pop(path, None)

    def filled(self, mount: str) -> int:
        """Bytes that files fill of a layer, as far as somebody counts them."""
        return sum(size for path, size in self.sizes.items() if is_below(path, mount))

    def loosely_filled(self, mount: str) -> int:
        return sum(size for path, size in self.loose.items() if is_below(path, mount))


class FileWorld(World):
    disk: Disk

    def __init__(self, engines: list[Engine]) -> None:
        super().__init__(engines)
        self.disk = Disk()
        #: what the two clerks have before them
        self.errands: deque[Publish | Discard] = deque()
        self.moves: deque[Move] = deque()
        self.draining = False
        #: when something last showed that there is room, or made some
        self.room_made = 0.0
        #: every node that ever was: its layers outlive it
        self.all_nodes: dict[str, Node] = {}
        #: where a version was written
        self.written_on: dict[int, str] = {}
        #: versions that are of use during the run only
        self.temps: set[int] = set()
        #: versions of each name, oldest first; the least that the name may mean now, -1 if it need not exist
        self.history: dict[str, list[int]] = {}
        self.least: dict[str, int] = {}
        #: names that the program waits for, to change them itself or to delete them
        self.wanted_home: set[str] = set()
        self.deleting: set[str] = set()
        #: names that could not be given to some version: the program is told when it asks for them
        self.unnamed: set[str] = set()

    def read(self, slot: Slot) -> str | None:
        return self.disk.read(slot.path) if type(slot) is FileRef else super().read(slot)

    def is_still(self) -> bool:
        """Nothing runs and nothing is under way."""
        pending = self.attempts() or self.errands or self.moves
        return not pending and not any(lane.kill_asked or lane.ending for lane in self.lanes.values())

    def _carry_out(self, command: Command) -> events.Event | None:
        match command:
            case Publish() | Discard():
                self.errands.append(command)
            case Move():
                self._judge_move(command)
                self.moves.append(command)
            case _:
                return super()._carry_out(command)
        return None

    def _judge_move(self, move: Move) -> None:
        """Who moves a file while others read it, or while I/O runs on its node, must have been asked to."""
        assert move.version not in [other.version for other in self.moves]
        if self.draining or move.name in self.wanted_home:
            return
        placed = self.engine.state.versions[move.version].placed
        assert placed is not None
        shared = {device.name for device in placed.node.devices if device.shared}
        running = [attempt.launch for attempt in self.attempts() if attempt.launch.call.spec.requirements.io]
        assert not any(launch.node == placed.node.name or launch.layer in shared for launch in running)
        assert not any(move.version in task.call.reads for task in self.model.tasks.values())

    # --- the clerks ---------------------------------------------------------------------------------------------------

    def fail_errand(self) -> None:
        """A file cannot be given its name, and stays on its layer."""
        errand = self.errands.popleft()
        assert isinstance(errand, Publish)
        self.unnamed.add(errand.target)
        self.tell(events.Published(errand.version, errand.source))

    def do_errand(self) -> None:
        errand = self.errands.popleft()
        match errand:
            case Publish(version, source, target, link):
                assert source in self.disk
                if link:
                    self.disk.link(target, source)
                else:
                    # The same bytes under another name, which stay when the first one goes.
                    self.disk.put(target, self.disk[source], self.disk.sizes.pop(source, None))
                self.tell(events.Published(version, target))
            case Discard(path, tell):
                self._discard(path)
                if tell:
                    self.room_made = self.now
                    self.tell(events.Discarded(path))

    def _discard(self, path: str) -> None:
        if path in self.history:
            # A name goes at the end, if it is of use during the run only, or because the program deletes it.
            assert self.draining or path in self.deleting
            self.least[path] = -1
            self.disk.remove(path)
            return
        assert path in self.disk, f"{path} is discarded, but is not there"
        self.disk.remove(path)

    def do_move(self, error: str = "") -> None:
        move = self.moves.popleft()
        if error:
            self.tell(events.Moved(move.version, move.source, error))
            return
        assert move.source in self.disk
        content, size = self.disk[move.source], self.disk.sizes[move.source]
        target = move.name
        if move.layer:
            target = self._path_on(self.written_on[move.version], move.layer, -move.version, move.name)
        # A node knows nothing of layers that it does not list.
        self.disk.put(target, content, None if self._goes_to(move) is None else size)
        if target != move.name:
            self.disk.link(move.name, target)
        self.tell(events.Moved(move.version, target))

    def _goes_to(self, move: Move) -> str | None:
        layers = self.all_nodes[self.written_on[move.version]].storage
        if move.layer:
            return next(layer.mount for layer in layers if layer.name == move.layer)
        home = home_of(move.name, layers)
        return None if home is None else home.mount

    def _path_on(self, node: str, layer: str, number: int, name: str) -> str:
        [found] = [one for one in self.all_nodes[node].storage if one.name == layer]
        return f"{found.mount}/ours/{number}{name}"

    # --- the program --------------------------------------------------------------------------------------------------

    def name_version(self, version: int, file: str, *, temp: bool | None = None) -> None:
        super().name_version(version, file)
        if self._is_temp(file) if temp is None else temp:
            self.temps.add(version)
        self.history.setdefault(file, []).append(version)
        self.least.setdefault(file, -1)

    def is_alone(self, name: str) -> bool:
        """Whether the program may change or delete a file: it is under its name, and no task uses it."""
        if name in self.wanted_home | self.deleting or self.read(FileRef(name)) is None:
            return False
        if self.held.intersection(self.history[name]) or name in self.unnamed:
            return False
        records = [self.engine.state.versions[number] for number in self.engine.state.files.get(name, ())]
        return all(
            record.outcome is not None and not record.uses and (record.scratch is None or record.published)
            for record in records
        )

    def want_home(self, name: str) -> None:
        self.wanted_home.add(name)
        self.tell(events.HomeWanted(name))

    def _await_home(self, name: str) -> None:
        """The program goes on once the file is under its name, or cannot be moved."""
        on_layers = self._on_layers(name)
        if all(placed.error for placed in on_layers):
            self.wanted_home.discard(name)
            if not on_layers:
                self._program_writes(name, -len(self.log))

    def _on_layers(self, name: str) -> list[Placed]:
        state = self.engine.state
        records = [state.versions[number] for number in state.files.get(name, ())]
        return [record.placed for record in records if record.placed is not None and record.scratch is not None]

    def _program_writes(self, name: str, number: int) -> None:
        """The program changes a file that is at home and that no task uses."""
        assert name not in self.disk.links
        if self._is_temp(name):
            self.temps.add(number)
        self.model.versions[number] = ModelVersion(content=f"program {number}")
        self.disk.put(name, f"program {number}", None)
        self.history[name].append(number)

    def delete(self, name: str) -> None:
        """The program deletes a file: first its copies go, then its name."""
        self.deleting.add(name)
        if name in self.disk.sizes:
            self.disk.loose[name] = self.disk.sizes.pop(name)
        self.tell(events.FileDropped(name))

    def _has_left_layers(self, name: str) -> bool:
        state = self.engine.state
        return not state.discarding and not any(state.versions[n].placed for n in state.files.get(name, ()))

    def finish_deletions(self) -> None:
        for name in sorted(self.deleting):
            if self._has_left_layers(name):
                while self.errands:
                    self.do_errand()
                self.disk.remove(name)
                self.disk.loose.pop(name, None)
                self.deleting.discard(name)
                # Nothing that was written before may come back.
                self.history[name] = []
                self.least[name] = -1

    def _judge_program(self) -> None:
        """Whoever waits for a file gets it."""
        for name in sorted(self.wanted_home):
            self._await_home(name)
        waiting = self.wanted_home | {name for name in self.deleting if not self._has_left_layers(name)}
        assert not waiting or not self.is_still(), f"the program waits for ever for {waiting}"

    # --- names --------------------------------------------------------------------------------------------------------

    def _judge_names(self) -> None:
        for name, versions in self.history.items():
            if name in self.deleting:
                continue
            content = self.read(FileRef(name))
            if content is None:
                if self.draining and self.least[name] >= 0 and versions[self.least[name]] in self.temps:
                    continue  # it goes, or what replaces it is on its way
                assert name not in self.disk.links, f"{name} is a link to nothing"
                assert self.least[name] < 0, f"{name} is gone"
                continue
            meant = [i for i, version in enumerate(versions) if self.model.versions[version].content == content]
            assert meant, f"{name} holds {content!r}, which nobody has completed"
            assert meant[-1] >= self.least[name], f"{name} holds an older version than before"
            self.least[name] = meant[-1]

    def _is_temp(self, name: str) -> bool:
        """Whether what is there, or will be when names have been given, is of use during the run only."""
        versions = self.history.get(name, [])
        made = [version for version in versions if self.model.versions[version].content is not None]
        return bool(made) and made[-1] in self.temps

    def judge_end(self) -> None:
        for name, versions in self.history.items():
            assert name not in self.disk.links, f"{name} is still a link"
            made = [version for version in versions if self.model.versions[version].content is not None]
            if made:
                content = self.model.versions[made[-1]].content
                # Where a failure to update was ignored, versions of both kinds may have one content.
                kinds = {version in self.temps for version in made if self.model.versions[version].content == content}
                wanted = [None if temp else content for temp in kinds]
                assert self.read(FileRef(name)) in wanted, f"{name} is lost, or kept in vain"
        left = [path for path in self.disk if "/ours/" in path or ".waits." in path]
        assert not left, f"{left} were left behind"
