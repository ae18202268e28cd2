"""The server of one node: everything that is decided, and nothing that is fast.

    programs ──journal──▶ thread ──▶ event loop: Server.read_journal ──▶ apps (over?) ──▶ table: over, settle, commit
    kernel ──pidfd──────────────────▶     "                         └──▶ dependents (on_file), rules (ambiguity)
    run, exec ──────────────────────▶ began, ended                   └──▶ happenings: log, terminal, drain

Programs never wait for an answer from here; they wait for the table, which this process changes. If it dies, the
library notices, and programs that wait get an error.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Callable

from penstock.errors import ConfigError
from penstock.streaming.apps import App, State
from penstock.streaming.complaints import Complaints, kind_of, told_violation
from penstock.streaming.dependents import Dependents
from penstock.streaming.happenings import FileBorn, FileCommitted, Tell
from penstock.streaming.language.model import Rule, Step, Workflow
from penstock.streaming.processes import Watcher, ended
from penstock.streaming.promises import final_by_default, never_made
from penstock.streaming.rules.coverage import Rules
from penstock.streaming.rules.patterns import common_name
from penstock.streaming.table import (
    OTHER,
    Flag,
    Info,
    Note,
    Process,
    ProcessState,
    Record,
    ServerState,
    Table,
    UnseenAre,
)

__all__ = ["Server"]

#: how long the journal's thread sleeps at most, in milliseconds
_PATIENCE = 500
#: seconds after which a child that never breathed is given up, once its parent is gone
_STILLBORN = 5.0
#: records that are handled before others get a turn
_TURN = 4096


class Server:
    """Judges what happens in one workflow on one node."""

    def __init__(
        self,
        workflow: Workflow,
        table: Table,
        disk: str,
        tell: Tell,
        stop: Callable[[str], None],
        *,
        strict: bool = False,
    ) -> None:
        self.workflow = workflow
        self.table = table
        self.rules = Rules(workflow)
        self._rules = workflow.rules
        self.apps = {step.name: App(step, number) for number, step in enumerate(workflow.steps)}
        self._others = App(Step("(other programs)"), OTHER)
        self._numbered = {app.number: app for app in (*self.apps.values(), self._others)}
        self.watcher = Watcher()
        self._complaints = Complaints(tell)
        #: called with a file or directory that became final
        self.on_commit: Callable[[Info], None] = lambda info: None
        #: called when a step is over
        self.on_over: Callable[[], None] = lambda: None
        #: called with the slot of a temporary file that a reader has read further
        self.on_consumed: Callable[[int], None] = lambda slot: None
        #: for the other nodes: each record, each judgement, and when records were lost
        self.on_record: Callable[[Record], None] = lambda record: None
        self.on_judged: Callable[[], None] = lambda: None
        self.on_lost: Callable[[], None] = lambda: None
        #: whether a file of another node is final there
        self.final_elsewhere: Callable[[str], bool] = lambda name: False
        #: where the files really are
        self._disk = disk
        self._tell = tell
        self._stop = stop
        self._strict = strict
        table.set_unseen(UnseenAre.REFUSED if strict else UnseenAre.TOLD)
        self._dependents = Dependents(workflow)
        self._ambiguous = _could_be_ambiguous(workflow)
        self._known: dict[tuple[int, int], App] = {}
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._handled = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="penstock-journal", daemon=True)

    # --- life of the server ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to listen; from now on programs find a living server."""
        self.table.serve(ServerState.RUNS)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Programs that still wait get an error."""
        if self._closing:
            return
        self.read_journal()
        self._closing = True
        self.table.abort(f"the workflow {self.workflow.name} was stopped")
        self.table.serve(ServerState.STOPS)
        self.table.wake_server()
        self._handled.set()
        self._thread.join(5)
        self.watcher.close()

    def _listen(self) -> None:
        while not self._closing:
            if self.table.wait_journal(_PATIENCE) and not self._closing:
                self._handled.clear()
                try:
                    self._loop.call_soon_threadsafe(self._woken)
                except RuntimeError:
                    return  # the loop is gone, and the server with it
                while not self._handled.wait(0.1) and not self._closing:
                    pass

    def _woken(self) -> None:
        try:
            if not self._closing:
                self.read_journal(once=True)
        finally:
            self._handled.set()

    # --- what programs say ----------------------------------------------------------------------------------------

    def read_journal(self, *, once: bool = False) -> None:
        """Take up all that was noted, and draw the conclusions."""
        if self._closing:
            return  # the end of a process that was noticed late: the table may be gone
        while records := self.table.drain(_TURN):
            if self._take_up(records):
                self._look_at_processes()
            if once:
                break
        if self.table.overflowed():
            self._look_at_processes()
            self._look_at_slots()
            self.on_lost()
        self._judge()

    def _take_up(self, records: list[Record]) -> bool:
        """Handle records; whether processes came."""
        came = False
        for record in records:
            match record.kind:
                case Note.HELLO:
                    if not record.b >> 32:  # else a program that one of the step has started
                        self._app(record.app).program_came()
                    came = True
                case Note.FORK:
                    came = True
                case Note.BORN:
                    self._born(record.slot, record.app)
                case Note.COMMITTED:
                    self._committed(record.slot, record.a)
                case Note.MOVED:
                    self._born(record.a, record.app)
                case Note.REMOVED:
                    self._dependents.drop(record.slot)
                case Note.VIOLATION:
                    self._violated(record)
                case Note.CONSUMED:
                    self.on_consumed(record.slot)
                case Note.FULL:
                    self._full(record.a)
            self.on_record(record)
        return came

    def _app(self, number: int) -> App:
        return self._numbered.get(number, self._others)

    def _born(self, slot: int, app: int) -> None:
        info = self.table.info(slot)
        if info is None:
            return
        self._tell(FileBorn(info.name, self._app(app).name if app != OTHER else ""))
        if self._ambiguous:
            try:
                self.rules.directory(info.name) if info.flags & Flag.DIRECTORY else self.rules.file(info.name)
            except ConfigError as error:
                self._stop(str(error))
        rule = self.rule_of(info)
        if self._dependents.needed and rule is not None and not info.flags & (Flag.COMMITTED | Flag.REMOTE):
            self._dependents.add(slot, rule)

    def _committed(self, slot: int, written: int) -> None:
        self._dependents.drop(slot)
        info = self.table.info(slot)
        if info is not None:
            self._tell(FileCommitted(info.name, 0 if info.flags & Flag.DIRECTORY else max(written, info.high)))
            self.on_commit(info)

    def rule_of(self, info: Info) -> Rule | None:
        """The rule of the workflow for a name, or None where the default holds."""
        ruled = info.directory if info.flags & Flag.DIRECTORY else info.file
        return None if ruled.serial is None else self._rules[ruled.serial]

    def _violated(self, record: Record) -> None:
        info = self.table.info(record.slot)
        if info is None:
            return
        rule = self.rule_of(info)
        who = f"{self._app(record.app).name} (process {record.pid})"
        spelled = rule.spelled if rule else "on_termination / update by default"
        text = told_violation(record, who, info.name, spelled, strict=self._strict)
        if text and self._strict:
            self._stop(f"--strict: {text}")
        elif text:
            self._complaints.add_of(kind_of(record), text)

    def _full(self, what: int) -> None:
        parts = {1: "files", 2: "names of files", 4: "written ranges", 8: "processes", 16: "open files"}
        self.warn(f"the shared table has no room for more {parts.get(what, 'entries')}: those beyond are not streamed")

    @property
    def warnings(self) -> list[str]:
        """What the user was told."""
        return self._complaints.told

    # --- names ------------------------------------------------------------------------------------------------------

    def app_name(self, number: int) -> str:
        """What a program belongs to."""
        return self._app(number).name

    def names_in(self, mask: int) -> list[str]:
        """The steps of a mask."""
        return [app.name for app in self.apps.values() if mask & app.bit]

    def told_app(self, name: str) -> str:
        """A step and how it fares, in words."""
        app = self.apps[name]
        match app.state:
            case State.COMING:
                return f"{name}, which has not started"
            case State.RUNS:
                pids = ", ".join(str(pid) for pid, _ in sorted(app.processes))
                return f"{name}, which runs (process {pids})" if pids else f"{name}, which runs"
            case State.OVER:
                return f"{name}, which is over"
            case State.FAILED:
                return f"{name}, which {app.how}"

    def warn(self, text: str) -> None:
        """Tell the user once."""
        self._complaints.add(text)

    # --- processes and steps --------------------------------------------------------------------------------------

    def _look_at_processes(self) -> None:
        """Watch those that are new."""
        unborn = False
        processes = self.table.processes()
        alive = {process.process for process in processes if (process.pid, process.birth) in self._known}
        for process in processes:
            identity = (process.pid, process.birth)
            if not process.pid and self._is_stillborn(process, alive):
                self.table.process_reap(process.process)
            elif not process.pid:
                unborn = True  # between its fork and its first breath
            elif identity not in self._known:
                app = self._app(process.app)
                self._known[identity] = app
                app.process_came(identity)
                self.watcher.watch(process.pid, process.birth, functools.partial(self._gone, identity))
        if unborn and not self._closing:
            self._loop.call_later(0.05, self._look_again)

    def _is_stillborn(self, process: Process, alive: set[int]) -> bool:
        """Whether a child was announced by a parent that did not live to make it."""
        waited = (time.monotonic_ns() - process.since_ns) / 1e9
        return waited > _STILLBORN and (process.parent is None or process.parent not in alive)

    def _look_again(self) -> None:
        if not self._closing:
            self._look_at_processes()
            self._judge()

    def _gone(self, identity: tuple[int, int], pid: int) -> None:
        """The kernel says that a process is no more."""
        self.read_journal()  # what it noted last comes first
        app = self._known.pop(identity, None)
        if app is None or self._closing:
            return
        killed = False
        for process in self.table.processes():
            if (process.pid, process.birth) == identity:
                killed = killed or (process.state != ProcessState.ENDED and process.parent is None)
                self.table.process_reap(process.process)
        app.process_gone(identity, killed=killed)
        self._judge()

    def command_began(self, step: str, key: object) -> None:
        """A command of a step was started by somebody who will say how it ends."""
        self.apps[step].command_began(key)

    def command_ended(self, step: str, key: object, status: int) -> None:
        """It ended, with an exit status or minus a signal."""
        self.read_journal()
        self.apps[step].command_ended(key, status, ended(status))
        self._judge()

    # --- judgement ------------------------------------------------------------------------------------------------

    def _judge(self, *, last_call: bool = False) -> None:
        if self._closing:
            return
        changed = False
        for app in self._numbered.values():
            if (app is not self._others or last_call) and app.judge(last_call=last_call):
                self._over(app)
                changed = True
        if changed:
            self.table.settle()
            self.on_over()
        if self._dependents.needed:
            for slot in self._dependents.ready(self._is_final, lambda name: self.apps[name].ended):
                self.table.commit(slot)
        self.on_judged()

    def last_call(self) -> None:
        """Nobody will come any more: whoever does not live is over."""
        self.read_journal()
        self._look_at_processes()
        self._judge(last_call=True)
        self.read_journal()
        self._complaints.sum_up()

    def _over(self, app: App) -> None:
        over = sum(one.bit for one in self._numbered.values() if one.ended)
        if app.state is State.OVER:
            beside = Flag.COMMITTED | Flag.REMOVED | Flag.MOVED | Flag.REMOTE | Flag.SYMLINK
            for place, text in final_by_default(self.table.iterate(Flag.BORN, beside), self.rule_of, app, over):
                self._complaints.add_of((place, app.name), text)
            for text in never_made(app, self.workflow, self._is_there, self._makers_left):
                self._complaints.add(text)
        self.table.app_over(app.number, int(app.state), app.how)

    def _born_as(self, name: str) -> Info | None:
        """What is known of a name that this run has made."""
        slot = self.table.lookup(name)
        info = None if slot is None else self.table.info(slot)
        return info if info is not None and info.flags & Flag.BORN else None

    def _is_there(self, name: str) -> bool:
        return self._born_as(name) is not None or os.path.lexists(os.path.join(self._disk, name))

    def _makers_left(self, name: str) -> bool:
        return not all(self.apps[step].ended for step in self.rules.file(name).producers)

    def _is_final(self, name: str) -> bool:
        """Whether a name is committed, or was there before and nobody makes it."""
        if info := self._born_as(name):
            return bool(info.flags & Flag.COMMITTED) or self.final_elsewhere(name)
        if self.rules.file(name).producers:
            return not self._makers_left(name)
        return os.path.lexists(os.path.join(self._disk, name))

    def _look_at_slots(self) -> None:
        """The journal has lost records: find out from the slots."""
        for info in self.table.iterate(Flag.BORN, Flag.COMMITTED | Flag.REMOVED | Flag.MOVED | Flag.REMOTE):
            rule = self.rule_of(info)
            if rule is not None:
                self._dependents.add(info.slot, rule)
        self.table.settle()


def _could_be_ambiguous(workflow: Workflow) -> bool:
    """Whether some name could be covered by two rules that differ: only then is each name looked at."""
    rules = [rule for rule in workflow.rules if not rule.implied]
    return any(
        one.target is other.target
        and one.semantics != other.semantics
        and any(common_name(a, b, directories=True) for a in one.patterns for b in other.patterns)
        for index, one in enumerate(rules)
        for other in rules[index + 1 :]
    )
