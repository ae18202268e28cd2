"""All that one workflow has on this node, from the lock on its directory to the removal of its traces.

    lock ▶ repair ▶ folders ▶ placement ▶ table ▶ server ▶ control   …steps…   last call ▶ drain ▶ put back ▶ remove

``run`` and ``serve`` are two ways to use it. Whatever was begun is ended in the opposite order, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

import msgspec

from penstock.errors import ConfigError
from penstock.streaming.control import Began, Control
from penstock.streaming.copies import CopyList
from penstock.streaming.departure import Departure
from penstock.streaming.directories import Measure
from penstock.streaming.flow import FlowNotes
from penstock.streaming.folders import RunFolders, lock_directory
from penstock.streaming.happenings import Tell, Warned
from penstock.streaming.language.model import Workflow
from penstock.streaming.nodes.federation import Federation
from penstock.streaming.nodes.peers import NodeSettings
from penstock.streaming.nodes.replicas import Replicas
from penstock.streaming.placement import Placement, repair, true_root
from penstock.streaming.private_view import PrivateView
from penstock.streaming.rules.blob import compiled
from penstock.streaming.rules.coverage import Rules
from penstock.streaming.server import Server
from penstock.streaming.status import Status, how_it_stands
from penstock.streaming.table import Table, interposer_path
from penstock.streaming.watchdog import Watchdog
from penstock.units import format_size

__all__ = ["Hosting", "Settings"]

#: seconds between two looks at waits and memory
_PERIOD = 0.5


class Settings(msgspec.Struct, frozen=True):
    """How a workflow is to be streamed."""

    #: its files live in memory while it runs
    memory: bool = False
    #: broken promises end it
    strict: bool = False
    #: this process has mounts of its own, so that its programs can have a view of their own of the directory
    own_mounts: bool = False
    #: bytes that all temporary files may take while they are streamed; 0 is without limit
    limit: int = 0
    #: seconds after which somebody who waits is reported
    stall: float = 30.0
    #: directory on a file system in memory, for the table and for files that live there
    memory_at: str = "/dev/shm"
    #: bytes that these files may take before the user is warned; None is what is free
    capacity: int | None = None
    #: the other nodes; None where this is the only one
    nodes: NodeSettings | None = None


class Hosting:
    """One workflow on this node, as an asynchronous context."""

    server: Server

    def __init__(self, workflow: Workflow, root: str, settings: Settings, tell: Tell) -> None:
        self.root = true_root(root)
        #: every name in memory that is not kept is temporary
        self.workflow = msgspec.structs.replace(workflow, temporary=(".",)) if settings.memory else workflow
        self.settings = settings
        self._given = os.path.abspath(root)
        self._tell = tell
        self._began = time.monotonic()
        self._stack = contextlib.AsyncExitStack()
        #: why the workflow must stop, once it must
        self.stop_reason: str | None = None
        self.stopping = asyncio.Event()
        #: set when a step is over, or the workflow must stop
        self.changed = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        #: what else is to be done now and then
        self.on_tick: Callable[[], None] = lambda: None
        #: what the environment of its programs needs
        self.environment: dict[str, str] = {}
        #: what directories have at home, where programs have a view of their own of it
        self._measure: Measure | None = None
        self._federation: Federation | None = None
        #: set when the end is asked for a second time: other nodes get nothing more
        self._hurry = asyncio.Event()

    def stop(self, reason: str) -> None:
        """Have the workflow end; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
        elif self.stopping.is_set():
            self._hurry.set()
        self.stopping.set()
        self.changed.set()

    def status(self) -> Status:
        """How it stands."""
        placement = "in memory" if self.settings.memory else "in place"
        return how_it_stands(self.server, self.root, placement, self._began)

    @property
    def traffic(self) -> str:
        """What went between this node and others; empty where there are none."""
        return "" if self._federation is None else self._federation.traffic

    async def __aenter__(self) -> Hosting:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        library = interposer_path()
        self._stack.enter_context(lock_directory(self.root))
        if repair(self.root, self.settings.memory_at):
            self._tell(Warned(f"{self.root} was put back in its place: the server of an earlier run had been killed"))
        if not os.path.isdir(self.root):
            raise ConfigError(f"the workflow's directory {self.root} does not exist; make it, or name another one")
        folders = RunFolders(self.workflow.name, self.root, self.workflow.source, self.settings.memory_at)
        self._stack.callback(folders.remove)
        folders.make()
        files = self._place(folders)
        spellings = dict.fromkeys([os.path.realpath(files), self.root, self._given])
        table = Table.create(
            folders.identity.table,
            self.workflow.name,
            list(spellings),
            compiled(self.workflow),
            limit=self.settings.limit,
        )
        self._stack.callback(table.close)
        if self._measure is not None:
            table.set_view(os.stat(files).st_dev, self._measure)
        self.server = Server(self.workflow, table, files, self._tell, self.stop, strict=self.settings.strict)
        self.server.on_over = self.changed.set
        self._flow = FlowNotes(self.server, self._tell)
        self._departure.attach(self.server)
        self._stack.callback(self.server.close)
        self.environment = {"PENSTOCK_STREAM_TABLE": folders.identity.table, "LD_PRELOAD": library}
        self.server.start()
        if self.settings.nodes is not None:
            copies = None if self.settings.memory else CopyList(folders.identity.copies, files)
            replicas = Replicas(files, copies)
            self._federation = Federation(self.settings.nodes, self.server, replicas, self.stop)
            self._departure.is_kept_elsewhere = self._federation.is_kept_elsewhere
            self._stack.push_async_callback(self._federation.close)
            await self._federation.start()
        await self._listen(folders)
        for text in self.workflow.warnings:
            self.server.warn(text)
        if self.settings.memory:
            self._warn_of_memory()
        if self.settings.memory and not self.settings.own_mounts:
            self._warn_of_paths()

    def _warn_of_memory(self) -> None:
        """What a workflow may have forgotten that is not where it seems to be."""
        if not self.workflow.permanent:
            self.server.warn("the files live in memory, and none is named permanent: nothing of them will be kept")

    def _warn_of_paths(self) -> None:
        """A directory that is not where it seems to be has another parent."""
        for step in self.workflow.steps:
            words = step.command or ""
            if "../" in (words if isinstance(words, str) else " ".join(words)):
                self.server.warn(
                    f"{step.name} names a path that leads out of the directory by ..; while the files live in memory "
                    f"it leads elsewhere: give it as an absolute path"
                )

    def _place(self, folders: RunFolders) -> str:
        """Put the files where they are to live; returns that directory."""
        placed: PrivateView | Placement | None = None
        if self.settings.memory:
            placed = (PrivateView if self.settings.own_mounts else Placement)(self.root, folders)
        self._departure = Departure(
            self.workflow, self.root, placed, folders.rescue, self.settings.capacity, self._tell
        )
        if placed is None:
            return self.root
        self._stack.callback(placed.end)
        rules = Rules(self.workflow)
        placed.begin(lambda name: bool(rules.file(name).producers), rules.excluded)
        if isinstance(placed, PrivateView):
            self._measure = placed.measure
        if isinstance(placed, Placement) and placed.linked:
            size = format_size(placed.linked_bytes)
            self._tell(
                Warned(
                    f"{placed.linked} files that exist ({size}) do not fit into memory and are seen as links: programs "
                    f"that look for files, as tar and find do, take them for links; `penstock doctor` says why"
                )
            )
        return placed.files

    async def _listen(self, folders: RunFolders) -> None:
        began = Began(self.root, self.environment, self.settings.own_mounts)
        control = Control(self.server, self.status, lambda: self.stop("somebody asked for its end"), began)
        await control.start(folders.identity.control)
        self._stack.push_async_callback(control.close)
        ticking = asyncio.create_task(self._tick())

        async def end() -> None:
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking

        self._stack.push_async_callback(end)

    async def _tick(self) -> None:
        watchdog = Watchdog(self.server, self._tell, self.settings.stall)
        while True:
            await asyncio.sleep(_PERIOD)
            self.server.read_journal()
            watchdog.look()
            self._flow.look()
            self._departure.mind_memory()
            self._departure.give_back()
            if self._federation is not None:
                self._federation.look()
            self.on_tick()

    async def finish(self) -> None:
        """The programs have ended, or were ended: settle what is left, bring home what is kept, remove the rest."""
        self.server.last_call()
        self._flow.look_last()
        if self._federation is not None:
            await self._federation.leave(self._hurry)
        await asyncio.to_thread(self._departure.finish)
