"""A run: everything between ``start`` and ``stop``, and the way a task call takes through it. It is long because every
kind of data that a call can meet is made, held and let go of here.

call ─▶ Arguments.pack ─▶ Submitted ─▶ Driver ─▶ engine … worker … engine ─▶ Settle ─▶ Future
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count, islice
from multiprocessing.process import current_process
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from msgspec.structs import replace

from penstock.data.buffers import BufferCache
from penstock.data.limits import named_limits
from penstock.data.refresh import refresh
from penstock.data.segments import Segments
from penstock.data.serializer import dump
from penstock.engine.engine import Engine
from penstock.errors import CallError, RuntimeStopped
from penstock.executors.descriptor_limit import allow_many_files
from penstock.executors.inside import folders_of_run
from penstock.executors.node import NodeExecutor
from penstock.executors.outside import Here
from penstock.executors.wire import STREAM, Setup, by_columns
from penstock.graph.identity import Datum, Identity
from penstock.model.data import FileRef, Piece, SegmentId, Slot, VersionId, in_segments, segments_of
from penstock.model.events import CancelRequested, NodeJoined, Provided, Released, SegmentMade, Submitted
from penstock.model.outside import Outside
from penstock.model.resources import GPUS, Node
from penstock.model.tasks import Failure, TaskCall, TaskSpec, TaskState
from penstock.observe.log import EventLog
from penstock.persistent.where import save_unsaved, unsaved
from penstock.runtime import session
from penstock.runtime.arguments import Arguments, packed
from penstock.runtime.config import Loaded, load_config
from penstock.runtime.declaration import Declaration
from penstock.runtime.directories import Directories
from penstock.runtime.drain_view import DrainView
from penstock.runtime.driver import Driver, Waiter
from penstock.runtime.ending import Ending, end
from penstock.runtime.engine_lock import CallingLock
from penstock.runtime.failures import as_exception
from penstock.runtime.file_claims import FileClaims
from penstock.runtime.files import Files
from penstock.runtime.functions import Functions
from penstock.runtime.futures import Future
from penstock.runtime.given_setup import setup_of
from penstock.runtime.giving_back import give_back
from penstock.runtime.inside_worker import settings_inside_worker
from penstock.runtime.layers import described_rooms
from penstock.runtime.layers import layers as storage_layers
from penstock.runtime.left_behind import point_out
from penstock.runtime.lost_changes import refuse_lost_changes
from penstock.runtime.machine import Machine, place_workers, this_machine
from penstock.runtime.memories import Memories, Token
from penstock.runtime.neighbours import living, settle_others, uses_files
from penstock.runtime.own_results import OwnResults
from penstock.runtime.persistent_data import KnownObject, PersistentData, store_address
from penstock.runtime.policies import ready_set
from penstock.runtime.profiles import Profiles
from penstock.runtime.recorder import Recorder
from penstock.runtime.reverting import datum_of
from penstock.runtime.shipping import Surroundings
from penstock.runtime.simple_arguments import packed_simply
from penstock.runtime.spills import spill_folders, store_rules
from penstock.runtime.streams import open_stream
from penstock.runtime.tuning import Tuning
from penstock.scheduling.view import ReadySet
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.executors.inline import InlineExecutor

__all__ = ["Runtime"]


class Runtime:
    """Runs tasks on this machine, from construction to ``stop``; also a context manager.

    Keyword arguments are the settings of ``penstock config``: ``cpus``, ``memory``, ``mode``, ``scheduler`` and so on.
    """

    #: whether tasks are not run but take virtual time
    simulated = False
    loaded: Loaded
    _future: ClassVar[type[Future[Any]]] = Future

    def __new__(cls, **settings: Any) -> Self:
        if folders_of_run.memory:
            settings |= settings_inside_worker()
        loaded = load_config(settings, os.environ)
        if session.simulation is not None or loaded.config.mode == "simulated":
            from penstock.runtime.simulated_runtime import SimulatedRuntime

            runtime: Self = super().__new__(SimulatedRuntime)  # type: ignore[assignment]
        else:
            runtime = super().__new__(cls)
        runtime.loaded = loaded
        return runtime

    def __init__(self, **settings: Any) -> None:
        self.config = config = self.loaded.config
        self.machine = machine = this_machine()
        self.cpus = config.cpus or machine.cpus
        self._pid = os.getpid()
        self._started = time.monotonic()
        self.here = Here()
        allow_many_files()
        ready, follows_data = ready_set(config.scheduler)
        self.layers = storage_layers(config)
        if not folders_of_run.memory:
            point_out(self.layers)
        self.directories = Directories(config, self.layers)
        self.run_dir = self.directories.run_dir
        with named_limits(), contextlib.ExitStack() as undo:
            undo.callback(self.directories.remove, ok=False)
            self._start(machine, ready, follows_data, undo)
            undo.pop_all()

    def _start(self, machine: Machine, ready: ReadySet, follows_data: bool, undo: contextlib.ExitStack) -> None:
        """Everything that a start makes; ``undo`` hears how it is unmade, should the rest of the start fail."""
        config = self.config
        log_path = os.path.join(self.run_dir, "events.jsonl") if config.writes_log else None
        self.log = EventLog(log_path)
        undo.callback(self.log.close)
        memory_dir, spill_dir = self.directories.memory_dir, self.directories.spill_dir
        capacity = config.store_capacity or self.directories.memory_free // 2
        rules = store_rules(capacity, self.layers, config.spill_dir)
        folders = spill_folders(self.layers, os.path.basename(memory_dir), rules, spill_dir)
        alone = config.mode == "inline"
        self.segments = Segments(memory_dir, spill_dir, writer=0, alone=alone, layer_dirs=folders)
        undo.callback(self.segments.close)
        self.claims = FileClaims(memory_dir) if config.file_locks else None
        self.segments.admit(machine.budget(config.serialization_memory))
        self.objects = PersistentData(self, store_address(config), memory_dir)
        self.tuning = Tuning(config.tuning)
        self.profiles = Profiles(config.profiles)
        engine = Engine(ready, follows_data=follows_data, storage=self.tuning.rules(self.config), store=rules)
        self._recorder = Recorder(self.log, engine, machine.hostname, self._started)
        executor, rooms = self._executor(machine), described_rooms(config)
        self.driver = Driver(
            engine, executor, self.segments, self.layers, rooms, self._recorder, self.tuning.take_note, config.stall
        )
        undo.callback(self.driver.stop, DrainView(self.driver.engine.state))
        undo.callback(self.objects.close)
        self.functions = Functions(
            engine,
            self.driver.executor,
            self.segments,
            self.tuning,
            self.profiles,
            config.constraints,
            config.retry_delay,
            bring_up_to_date=self.bring_up_to_date,
            strict=config.strict,
        )
        self.driver.drop_state = self.objects.drop_state
        self.driver.hold_states = self.objects.hold_states
        self.identity = Identity(self._version_gone)
        self.memories = Memories(self)
        self.own_results = OwnResults(self)
        self.buffers = BufferCache(self.segments, self._segment_made, self.segment_gone)
        self.files = Files()
        #: tasks that were cancelled and still ran, until somebody has waited for their ends
        self.given_up: set[int] = set()
        self.stopped = False
        self._ending = Ending()
        self.calling = CallingLock(self.driver.lock)
        self._task_numbers = count(1)
        self._version_numbers = count(1)
        self.new_version = self._version_numbers.__next__
        self._window = config.window
        #: futures and maps whose values lie in the store; what they hold at the end of the run is kept
        self.stored: weakref.WeakSet[Any] = weakref.WeakSet()
        #: newest versions of objects which these cannot become in place, and of which the program has been told
        self.irreplaceable: set[VersionId] = set()
        #: futures that copies made by the program share: no task may update them
        self.copied: weakref.WeakSet[Any] = weakref.WeakSet()
        for callback in session.on_start:
            callback(self)
        self._begin(machine)
        living.append(self)

    def _executor(self, machine: Machine) -> NodeExecutor | InlineExecutor:
        config = self.config
        prepare = setup_of(config)
        gpus = machine.gpus_for(dict(machine.countable(config.countable)).get(GPUS, 0))
        if config.mode == "inline":
            from penstock.executors.inline import InlineExecutor  # with what carries out tasks, else in workers only

            return InlineExecutor(
                machine.hostname,
                segments=self.segments,
                layers=self.layers,
                strict=config.strict,
                here=self.here,
                setup=prepare,
                gpus=gpus,
            )
        segments = self.segments
        left = ""
        if prepare is not None:
            from penstock.executors.preparing import leave

            left = leave(prepare, segments.memory_dir)
        setup = Setup(
            segments.memory_dir,
            segments.spill_dir,
            config.strict,
            list(self.layers),
            segments.layer_dirs,
            store=self.objects.store,
            serialization_memory=machine.budget(config.serialization_memory),
            read_cache=config.read_cache,
            prepare=left,
            tasks=config.tasks_per_worker or 0,
            authkey=bytes(current_process().authkey),
        )
        return NodeExecutor(
            machine.hostname,
            self.cpus,
            config.io_executors,
            segments=segments,
            setup=setup,
            cpus=place_workers(machine.cpu_ids, machine.numa, self.cpus),
            gpus=gpus,
            cleanup=self.directories.temporary,
            observe=self._recorder.worker,
            observe_world=self._recorder.world,
        )

    def _begin(self, machine: Machine) -> None:
        config = self.config
        memory = config.memory or machine.memory
        name = machine.hostname
        countable = machine.countable(config.countable)
        node = Node(name, self.cpus, memory, machine.properties(name), self.layers, config.io_executors, countable)
        self._recorder.started(__version__, list(sys.argv), config.scheduler, [node], time.time())
        self.driver.begin()  # not before: that the run has started is the first that is told of it
        self.driver.post(NodeJoined(node))
        self.driver.lock.watch_interrupts()

    # --- calls --------------------------------------------------------------------------------------------------

    def call(
        self,
        declaration: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        make: Callable[[Runtime, int, VersionId, str], Future[Any]] | None = None,
    ) -> Any:
        """Submit a call; gives its future, or a list of them. ``make`` makes them, if not all of them are alike."""
        if self.stopped:
            raise RuntimeStopped(f"task {declaration.name} was called after stop(); start another runtime first")
        if len(living) > 1:
            settle_others(self, files=uses_files(declaration))
        if unsaved:
            save_unsaved(every=False)
        spec = self.functions.spec(declaration)
        declaration.check(args, kwargs)
        given = declaration.with_own_defaults(args, kwargs) if declaration.own_defaults else kwargs
        driver, arguments, stream = self.driver, None, None
        # Between looking up the newest versions and making newer ones, no other thread's call may do the same.
        with self.calling:
            task = next(self._task_numbers)
            returned = tuple(islice(self._version_numbers, declaration.outputs))
            simple = None if declaration.directions else packed_simply(self, args, given)
            if simple is not None:
                value, read = simple
                outside = self.here.now()
                call = TaskCall(task, spec, value, read, (), read, returned, len(returned), outside=outside)
            else:
                arguments, value = packed(partial(Arguments, self, declaration, task), args, given)
                call = arguments.wiring.call(task, spec, value, returned, self.here.now())
            if declaration.label is not None:
                call = replace(call, label=declaration.label_of(args, kwargs))
            if declaration.returns == STREAM:
                stream, returned = open_stream(self, call, declaration.ahead), ()
            futures = self._submit(call, returned, arguments, make)
        driver.after()
        if driver.engine.unfinished >= self._window:
            driver.wait_until(lambda: driver.engine.unfinished < self._window * 0.9)
        if stream is not None:
            return stream
        return futures[0] if declaration.returns <= 1 else futures

    def _submit(
        self,
        call: TaskCall,
        returned: tuple[VersionId, ...],
        arguments: Arguments | None = None,
        make: Callable[[Runtime, int, VersionId, str], Future[Any]] | None = None,
    ) -> list[Future[Any]]:
        driver, make = self.driver, make or self._future
        futures: list[Future[Any]] = [make(self, call.task, version, call.spec.name) for version in returned]
        with driver.lock:
            if self.stopped:
                self._refuse(call)
            for future in futures:
                driver.waiters[future._version] = future
            if arguments is not None:
                for provided in arguments.before:
                    driver.handle(provided)
                for version, path in arguments.file_reads:
                    self._hold_file(version, path, arguments)
                for effect in arguments.effects:
                    effect()
                arguments.effects.clear()  # they hold the arguments, which hold them: large buffers would stay
                released = (*driver.take_released(), *arguments.released)
                driver.handle(Submitted(call, released, replaces=tuple(arguments.replaces)))
                self.files.tidy(driver.engine.lives)
            else:
                driver.handle(Submitted(call, driver.take_released() if driver.released else ()))
            driver.submitted()
        return futures

    def _refuse(self, call: TaskCall) -> NoReturn:
        """Under the lock: another thread has stopped the run since the call began, and workers are gone."""
        raise RuntimeStopped(f"task {call.spec.name} was called while another thread stopped the runtime")

    def _hold_file(self, version: VersionId, path: str, arguments: Arguments) -> None:
        """See that a file's version still lives: its writer may have ended since the arguments were packed."""
        if not self.driver.engine.lives(version):
            self.driver.handle(Provided(version, FileRef(path)))
            arguments.released.append(version)

    def submit_piece(
        self, spec: TaskSpec, outside: Outside, items: list[Any], results: Waiter, failures: Waiter, pause: float
    ) -> tuple[int, VersionId, VersionId]:
        """Submit a piece of a map, many calls in one record, to be started after a pause.

        Gives its number and the versions of its two outputs.
        """
        task, first, second = next(self._task_numbers), self.new_version(), self.new_version()
        what = f"the items of a map of {spec.name}"
        packed = dump(by_columns(items), self.segments, what)
        call = TaskCall(
            task,
            spec,
            packed,
            writes=(first, second),
            returns=2,
            segments=tuple(segments_of(packed)),
            items=len(items),
            outside=outside,
        )
        with self.driver.lock:
            if self.stopped:
                self._refuse(call)
            self.driver.waiters[first] = results
            self.driver.waiters[second] = failures
            self.driver.handle(Submitted(call, pause=pause))
        self.driver.after()
        return task, first, second

    # --- data ---------------------------------------------------------------------------------------------------

    def share(self, obj: Any) -> None:
        """Store an object once for all calls to come."""
        if self.identity.find(obj) is not None:
            return
        if len(living) > 1:
            settle_others(self)
        value = dump(obj, self.segments, "the shared object")
        version = self.new_version()
        with self.driver.lock:
            self.driver.handle(Provided(version, value))
            self.identity.track(obj, version, shared=True)
        self.driver.after()

    def value_of(self, datum: Datum | KnownObject | Token) -> Any:
        """The newest value of a datum; waits for it. Worth nothing if another thread has made a newer one meanwhile."""
        future = self._future(self, 0, datum.version)
        with self.driver.lock:
            record = self.driver.engine.state.versions.get(future._version)
            if record is None or not record.held:
                return None  # another thread has had it, or has called a task that makes a newer one
            if record.outcome is None:
                self.driver.onlookers.setdefault(future._version, []).append(future)
            else:
                future.settle(record.outcome)
        try:
            return future.result()
        finally:
            future._version = 0  # the datum's hold is not this future's to release

    def newest(self, obj: Any, where: str, take: Callable[[Any, Any], bool] | None = None) -> Any:
        """Bring an object up to date that tasks have changed as a whole, and make it the program's own again.

        Gives the object; if it cannot be what tasks have made of it, that. ``take`` makes it so, or says that it can't.
        """
        while (datum := datum_of(self, obj, f"this {type(obj).__name__}")) is not None and not datum.shared:
            self.ensure_unchanged(datum, where)
            version = datum.version
            value = self.value_of(datum)
            with self.calling:
                if self.identity.find(obj) is not datum or datum.version != version:
                    continue  # another thread has taken it back, or called a task that changes it
                take = take or partial(refresh, given=None if datum.replaceable else self.has_given)
                if value is not obj and not take(obj, value):
                    return value
                self._untrack(obj)
                self.own_results.note(obj)
            self.driver.post(Released((version,)))
        return obj

    def take_back(self, obj: Any, where: str) -> None:
        """Bring an object up to date that tasks have changed as a whole; it is the program's own again."""
        if self.newest(obj, where) is not obj:
            raise CallError(
                f"{where} has a {type(obj).__name__} that a task has replaced as a whole; pass what wait_on() gives "
                f"for it"
            )

    def bring_up_to_date(self, taken_along: Surroundings, task: str) -> None:
        """Bring what a function refers to up to date, where tasks called before are to change it."""
        data = self.identity.by_address
        if not data and not self.memories.used:
            return
        for buffer in taken_along.buffers:
            self.memories.await_buffer(buffer)
        for obj in [obj for address, obj in taken_along.objects.items() if address in data]:
            datum = self.identity.find(obj)
            if datum is not None and not datum.shared:
                self.take_back(obj, f"the function of task {task}")

    def has_given(self, obj: Any) -> bool:
        """Whether an object that came from a task is the program's to tasks: they update it, or parts of its memory."""
        given = bool(self.identity.by_address) and self.identity.find(obj) is not None
        return given or self.memories.may_have_changed(obj)

    def ensure_unchanged(self, datum: Datum, where: str) -> None:
        """Strict mode: refuse an object of which a change would be lost."""
        if datum.picture is not None:
            refuse_lost_changes(self.identity, datum, where)

    def forget(self, obj: Any) -> None:
        """An object is the program's own again; its versions live only as long as tasks read them."""
        version = self._untrack(obj)
        if version:
            self.driver.post(Released((version,)))

    def _untrack(self, obj: Any) -> VersionId:
        """Forget a datum; gives the version that it had, if it was one."""
        self.objects.forget(obj)
        with self.driver.lock:
            datum = self.identity.find(obj)
            if datum is None:
                return 0
            self.identity.forget(obj)
        return datum.version

    def let_go(self, version: VersionId, outcome: Slot | Failure | None) -> None:
        """A future is gone. Called by finalisers, so it only leaves a note."""
        if version and not self.stopped and os.getpid() == self._pid:
            self.driver.released.append(version)
            if in_segments(outcome):
                self.driver.wake()

    def _version_gone(self, version: VersionId) -> None:
        """An object is gone, and nobody knows here how large its newest version is."""
        self.let_go(version, None)
        if not self.stopped and os.getpid() == self._pid:
            self.driver.wake()

    def _segment_made(self, piece: Piece) -> None:
        with self.driver.lock:
            self.driver.handle(SegmentMade(piece.segment, piece.size, piece.spilled))

    def segment_gone(self, segment: SegmentId) -> None:
        """The program has no more use for a segment; called by finalisers, whenever and wherever they run."""
        if not self.stopped and os.getpid() == self._pid:
            self.driver.released_segments.append(segment)
            self.driver.wake()

    # --- waiting and ending -------------------------------------------------------------------------------------

    def before_wait(self) -> None:
        """Called before a thread blocks for a result."""
        if self.stopped:
            raise RuntimeStopped("the runtime was stopped before this task was over; its result is lost")
        if os.getpid() != self._pid:
            raise RuntimeStopped(
                "this process was forked before this task was over, and only the program that called it learns its "
                "result; wait for it before the fork, or call the task in this process"
            )

    def barrier(self) -> None:
        """Wait for every task; raise the first failure that nobody has looked at."""
        driver = self.driver
        save_unsaved()
        driver.wait_until(lambda: not driver.engine.unfinished and not driver.engine.naming)
        driver.house.finish()
        self.memories.finish()
        with driver.lock:
            self.identity.look_around()
        if type(driver.executor) is NodeExecutor:
            driver.executor.flush_output()
        self.raise_unobserved()

    def raise_unobserved(self) -> None:
        """Raise the first failure that nobody has looked at."""
        unobserved = self.driver.unobserved
        while self.driver.house.unnamed:
            file, failure = self.driver.house.unnamed.popitem()
            unobserved[file] = failure
        if unobserved:
            first = next(iter(unobserved.values()))
            others = len(unobserved) - 1
            unobserved.clear()
            error = as_exception(first)
            if others:
                error.add_note(f"{others} more tasks failed; their futures tell how")
            raise error

    def observe(self, failure: Failure) -> BaseException:
        """The exception for a failure that the program now knows of."""
        if failure.path:
            self.driver.unobserved.pop(failure.path[0], None)
        return as_exception(failure)

    def cancel(self, task: int, *, kill: bool) -> bool:
        """Give a task up; True if it was, or will be, ended by this."""
        tasks = self.driver.engine.state.tasks
        with self.driver.lock:
            record = tasks.get(task)
            if record is None:
                return False
            self.driver.handle(CancelRequested(task, kill))
            ended = task not in tasks or (kill and record.doom is not None)
            if task in tasks and record.doom is not None:
                self.given_up.add(task)
        self.driver.after()
        return ended

    def is_running(self, task: int) -> bool:
        """Whether a task has been started and is not over."""
        record = self.driver.engine.state.tasks.get(task)
        return record is not None and record.state is TaskState.RUNNING

    def stop(self, *, abort: bool = False, gives_back: bool = True) -> None:
        """End the run: after all tasks, or at once with ``abort``. Leaves no process and no file behind.

        ``gives_back`` says whether somebody is left to see the objects that tasks have updated.
        """
        if os.getpid() != self._pid:
            return
        driver = self.driver
        try:
            if not abort and not self.stopped:
                save_unsaved(every=False)
                driver.wait_until(lambda: not driver.engine.unfinished and not driver.engine.naming)
                self.memories.finish()
                if gives_back:
                    give_back(self)
                save_unsaved()
        except BaseException:
            abort = True
            raise
        finally:
            with self._ending.turn() as ours:
                if ours:
                    end(self, abort=abort)

    def __enter__(self) -> Runtime:
        session.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.stop(abort=kind is not None)
            if kind is None:
                self.raise_unobserved()
        finally:
            session.leave(self)
