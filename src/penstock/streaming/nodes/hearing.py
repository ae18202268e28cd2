"""From the feeds of other nodes to the shared table of this one: what they made exists here too, as placeholders.

A remote file's slot is marked before it is born, so that no reader here ever takes its placeholder for the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.streaming.apps import Elsewhere, State
from penstock.streaming.nodes.fetching import Final
from penstock.streaming.nodes.homes import home_of
from penstock.streaming.nodes.pulling import Pulling
from penstock.streaming.nodes.records import (
    AppReport,
    Born,
    Committed,
    Moved,
    Ran,
    RemoteRecord,
    Removed,
    unquoted,
)
from penstock.streaming.nodes.remote_file import RemoteFile
from penstock.streaming.nodes.replicas import Replicas
from penstock.streaming.rules.coverage import Home, Rules
from penstock.streaming.server import Server
from penstock.streaming.table import Born as What
from penstock.streaming.table import Flag, Info
from penstock.streaming.table_records import OTHER, AppState

__all__ = ["Hearing"]

#: bytes of a file that comes without being asked for, once it is final
_SMALL = 1 << 20
#: of ``enum ps_fire_kind``
_NO_UPDATE = 1


class Hearing:
    """Applies the records of the other nodes."""

    def __init__(
        self,
        server: Server,
        replicas: Replicas,
        pulling: Pulling,
        nodes: tuple[str, ...],
        own: str,
        prefetch: int,
        stop: Callable[[str], None],
    ) -> None:
        self._server = server
        self._table = server.table
        self._rules = Rules(server.workflow)
        self._replicas = replicas
        self._pulling = pulling
        self._nodes = nodes
        self._own = own
        self._small = min(prefetch, _SMALL) if prefetch else -1
        self._stop = stop
        self._apps = {app.number: app for app in server.apps.values()}
        #: which node has run which process of which step
        self._placed: dict[tuple[str, int | None], str] = {}
        self._policies: dict[str, Home] = {}
        #: steps that have run on this node, as a mask
        self._here = 0
        self.failed_elsewhere: set[int] = set()
        #: changes of names that were heard before the birth, which another node tells
        self._ahead: dict[str, tuple[str, Moved]] = {}

    def apply(self, node: str, record: RemoteRecord) -> None:
        """One record of another node."""
        try:
            match record:
                case Born():
                    self._born(node, record)
                case Committed():
                    self._committed(record)
                case Removed(name):
                    self._removed(unquoted(name))
                case Moved():
                    self._moved(node, record)
                case Ran(app, instance):
                    self.ran(node, app, instance)
                case AppReport():
                    self._reported(node, record)
        except (OSError, ValueError) as error:
            self._stop(f"node {node} told of something that cannot be done here: {error}")

    # --- homes --------------------------------------------------------------------------------------------------------

    def home(self, file: RemoteFile) -> str:
        """The node that holds the file for the others."""
        if file.name not in self._policies:
            self._policies[file.name] = self._rules.file(file.name).home
        return home_of(file.name, self._policies[file.name], file.maker, self._nodes, self._placed)

    def ran(self, node: str, app: int, instance: int | None) -> None:
        """A process of a step runs on a node: files may have their home there."""
        if app not in self._apps:
            return
        name = self._apps[app].name
        here = self._here | self._apps[app].bit if node == self._own else self._here
        if (name, instance) in self._placed and here == self._here:
            return  # one more of its programs
        self._here = here
        self._placed.setdefault((name, instance), node)
        self._placed.setdefault((name, None), node)
        for file in list(self._pulling.files.values()):
            self._fetch_unasked(file)

    def _fetch_unasked(self, file: RemoteFile) -> None:
        """Fetch what is homed here, and small files of which a reader runs here: each would cost a round trip."""
        if file.complete:
            self.arrived(file)
        info = self._table.info(file.slot)
        if file.ended or info is None:
            return
        if self.home(file) == self._own:
            if file.size is not None or info.flags & Flag.STREAMED:
                self._pulling.want_all(file, kept=True)
        elif file.size is not None and file.size <= self._small and info.consumers & self._here:
            self._pulling.want_all(file, kept=False)

    def arrived(self, file: RemoteFile) -> None:
        """A copy is complete. The home treats it as its own from now on."""
        if self.home(file) == self._own:
            self._replicas.keep(file.name)
            self._table.set_flags(file.slot, 0, Flag.REMOTE)

    # --- names --------------------------------------------------------------------------------------------------------

    def _born(self, node: str, record: Born) -> None:
        name = unquoted(record.name)
        if record.what & What.DIRECTORY:
            self._replicas.make_folder(name, record.mode)
            self._bear(name, record)
        elif self._is_free(node, name):
            if record.what & What.SYMLINK:
                self._replicas.make_link(name, unquoted(record.target))
                self._bear(name, record)
            else:
                slot = self._obtain(name)
                made_again = self._expect(slot)
                descriptor = self._replicas.make_placeholder(name, record.mode)
                file = RemoteFile(name, slot, node, descriptor, record.mode)
                file.only_from_maker = made_again
                self._pulling.add(file)
                self._bear(name, record)
                self._fetch_unasked(file)
        if name in self._ahead:
            mover, moved = self._ahead.pop(name)
            if mover != node:  # else it was another file of that name
                self._moved(mover, moved)
        self._server.read_journal()

    def _expect(self, slot: int) -> bool:
        """Nobody reads on at this name until bytes of another node have come; returns whether it had others before."""
        info = self._table.info(slot)
        assert info is not None
        self._table.set_flags(slot, Flag.REMOTE, Flag.COMMITTED | Flag.STREAMED)
        self._table.code.ps_truncated(slot, 0)
        if info.file.fire == _NO_UPDATE:
            self._table.set_flags(slot, Flag.STREAMED)
        return bool(info.flags & (Flag.BORN | Flag.REMOVED))

    def _is_free(self, node: str, name: str) -> bool:
        """Whether nobody here, and no other node, has made a file of that name already."""
        known = self._pulling.files.get(name)
        slot = self._table.lookup(name)
        info = None if slot is None else self._table.info(slot)
        if info is None or not info.flags & Flag.BORN:
            if known is not None:
                self._pulling.drop(known)
            return True
        maker = known.maker if known is not None else self._own
        if maker != node:
            self._written_twice(name, maker, node)
        return False

    def written_here(self, slot: int) -> None:
        """A program of this node has written a file: it had better be a file of this node."""
        info = self._table.info(slot)
        file = None if info is None else self._pulling.files.get(info.name)
        if file is not None:
            self._written_twice(file.name, file.maker, self._own)

    def _written_twice(self, name: str, one: str, other: str) -> None:
        text = f"{name} is written on two nodes, {one} and {other}; its writers have to run on one"
        coverage = self._rules.file(name)
        if coverage.producers or coverage.consumers:
            self._stop(text)
        else:
            self._server.warn(f"{text}: each node has its own")

    def _bear(self, name: str, record: Born) -> None:
        self._table.code.ps_born(self._obtain(name), record.app, record.what)

    def _obtain(self, name: str) -> int:
        slot = self._table.obtain(name)
        if slot is None:
            raise ValueError(f"the shared table has no room for {name}")
        return slot

    def _committed(self, record: Committed) -> None:
        file = self._pulling.files.get(unquoted(record.name))
        if file is None:
            return
        self._pulling.learn(file, Final(record.size, record.mode, record.mtime_ns))
        if file.complete:
            self._table.commit(file.slot)  # a program here has changed its name: by the new one it is final too
        self._fetch_unasked(file)
        self._server.read_journal()

    def _removed(self, name: str) -> None:
        file = self._pulling.files.get(name)
        if file is not None:
            self._pulling.drop(file)
        slot = self._table.lookup(name)
        if slot is not None:
            self._replicas.remove(name, even_own=True)
            self._table.code.ps_removed(slot, OTHER)
            self._table.set_flags(slot, 0, Flag.REMOTE)

    def _moved(self, node: str, record: Moved) -> None:
        old, new = unquoted(record.old), unquoted(record.new)
        slot = self._table.lookup(old)
        info = None if slot is None else self._table.info(slot)
        if info is None or not info.flags & Flag.BORN:
            self._ahead[old] = node, record
            return
        if old in self._pulling.files and not self._yields(new, node):
            self._removed(old)
            return
        moving = [(file, new + file.name[len(old) :]) for file in self._at_or_below(old, info)]
        for _, name in moving:
            self._expect(self._obtain(name))
        self._replicas.rename(old, new)
        encoded = os.fsencode(old), os.fsencode(new)
        self._table.code.ps_renamed(encoded[0], len(encoded[0]), encoded[1], len(encoded[1]), record.app)
        if not moving:
            self._displace(new)
        for file, name in moving:
            file.mover = node
            self._follow(file, name)
        self._server.read_journal()
        if new in self._ahead:
            self._moved(*self._ahead.pop(new))

    def _at_or_below(self, name: str, info: Info) -> list[RemoteFile]:
        if not info.flags & Flag.DIRECTORY:
            return [self._pulling.files[name]] if name in self._pulling.files else []
        return [file for file in self._pulling.files.values() if file.name.startswith(name + "/")]

    def _yields(self, name: str, node: str) -> bool:
        """Whether a file of another node may take this name: not that of a file of this node."""
        slot = self._table.lookup(name)
        info = None if slot is None else self._table.info(slot)
        if info is None or not info.flags & Flag.BORN or info.flags & (Flag.DIRECTORY | Flag.SYMLINK):
            return True
        if name not in self._pulling.files:
            self._written_twice(name, self._own, node)
            return False
        return True

    def _follow(self, file: RemoteFile, name: str) -> None:
        """Another node has changed a name. By the new one the file is final only once that is told."""
        was_complete, replaced = file.complete, self._pulling.files.get(name)
        self._pulling.rename(file, name, self._obtain(name))
        file.not_final_yet()
        self._table.set_flags(file.slot, Flag.REMOTE)
        self._replicas.keep_no_more(name)
        if was_complete:
            file.reopen(self._replicas.path(name))
        if replaced is not None:
            file.take_place_of(replaced)
            self._pulling.drop(replaced)
        self._fetch_unasked(file)

    def _displace(self, name: str) -> None:
        """A file of this node has taken the name of one of another node."""
        replaced = self._pulling.files.get(name)
        if replaced is not None:
            self._pulling.drop(replaced)
            self._replicas.keep(name)
            self._table.set_flags(replaced.slot, 0, Flag.REMOTE)

    def removed_here(self, info: Info) -> None:
        """A program of this node has removed a file of another node: what gets the name next is another one."""
        file = self._pulling.files.get(info.name)
        if file is not None:
            self._pulling.drop(file)
            self._table.set_flags(info.slot, 0, Flag.REMOTE)
        if self._replicas.is_copy(info.name):
            self._replicas.keep(info.name)

    def moved_here(self, source: Info, target: Info) -> None:
        """A program of this node has changed a name."""
        file, replaced = self._pulling.files.get(source.name), self._pulling.files.get(target.name)
        self._replicas.note_rename(source.name, target.name)
        if file is None:
            if replaced is not None:
                self._written_twice(target.name, replaced.maker, self._own)
                self._displace(target.name)
            return
        self._pulling.rename(file, target.name, target.slot)
        file.mover = self._own
        if file.complete:
            self._table.set_flags(target.slot, 0, Flag.REMOTE)  # all of it is here: the rule of its new name counts
        else:
            file.not_final_yet()
        if replaced is not None:
            file.take_place_of(replaced)
            self._pulling.drop(replaced)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _reported(self, node: str, record: AppReport) -> None:
        app = self._apps.get(record.app)
        if app is None:
            return
        app.elsewhere[node] = Elsewhere(record.came, record.lives)
        if record.lives and app.state is State.COMING:
            app.state = State.RUNS
        if record.how and not app.how:
            self.failed_elsewhere.add(app.number)
            app.fail(record.status, f"{record.how} on node {node}")
        self._server.read_journal()
        if app.state is State.FAILED:
            self.give_up(lambda file: file.size is None and bool(self._producers(file) & app.bit))

    def node_ended(self, node: str, how: str, gone: set[str]) -> None:
        """Whatever still ran there has failed, and what no other node has is lost."""
        for app in self._apps.values():
            said = app.elsewhere.get(node)
            if said is not None and said.lives:
                self.failed_elsewhere.add(app.number)
                app.fail(-9, how)
                app.elsewhere[node] = Elsewhere(said.came, False)
        self._server.read_journal()
        open_files = [file for file in self._pulling.files.values() if not file.ended and file.maker == node]
        self.lose([file for file in open_files if file.size is None or self.home(file) in {self._own, *gone}], how)

    def lose(self, files: list[RemoteFile], how: str) -> None:
        """Their readers get an error that names file, producer and node."""
        for number in range(OTHER + 1):
            if any(self._producers(file) >> number & 1 for file in files):
                self._table.app_over(number, AppState.FAILED, how)
        names = {file.name for file in files}
        self.give_up(lambda file: file.name in names)

    def give_up(self, hopeless: Callable[[RemoteFile], bool]) -> None:
        """Nothing more comes of these files: let their readers go on to what the table says of their producers."""
        for file in [file for file in self._pulling.files.values() if not file.ended and hopeless(file)]:
            self._pulling.give_up(file)
            self._table.set_flags(file.slot, 0, Flag.REMOTE)

    def _producers(self, file: RemoteFile) -> int:
        info = self._table.info(file.slot)
        return 0 if info is None else info.producers
