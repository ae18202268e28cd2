"""The current runtime: started by the first task call, by ``start``, by ``with Runtime(...)``, or by the command line.

A program that ends waits for its tasks, as if it had run them itself; one that ends by an exception does not.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, PenstockError, RuntimeStopped
from penstock.executors.inside import inside_task
from penstock.executors.saying import flush_streams, say
from penstock.persistent import where

if TYPE_CHECKING:
    from penstock.persistent.where import Desk
    from penstock.runtime.runtime import Runtime
    from penstock.runtime.simulated_files import SimulatedFiles
    from penstock.runtime.simulated_runtime import Plan

__all__ = [
    "configure",
    "current",
    "enter",
    "files",
    "finish",
    "leave",
    "on_start",
    "running",
    "simulating",
    "start",
    "stop",
]

_stack: list[Runtime] = []
#: the address of the store of the last run, where its objects still are
_last_store = ""


def _store() -> str:
    """The address of the store that persistent objects of the program live in."""
    if _stack:
        return _stack[-1].objects.store
    if _last_store:
        return _last_store
    from penstock.runtime.config import load_config
    from penstock.runtime.persistent_data import store_address

    address = "memory:" if simulation is not None else store_address(load_config(_flags).config)
    # Servers of a run are not there before the run.
    return current().objects.store if address.startswith("redis-start:") else address


def _desk() -> Desk | None:
    runtime = running()
    return None if runtime is None else runtime.objects


where.settings.find = _store
where.settings.desk = _desk
_flags: dict[str, Any] = {}
#: why no runtime could start with the settings of the command line, the environment and files
unusable: ConfigError | None = None
_was_stopped = False
_starting = threading.RLock()
#: while a program is simulated: every runtime it makes is, in this way
simulation: Plan | None = None
#: what a program that is simulated did to files while it had no runtime
outside_files: SimulatedFiles | None = None
#: called with each runtime as it starts, before its first record
on_start: list[Callable[[Runtime], None]] = []


def configure(**flags: Any) -> None:
    """Settings for the runtime that the first task call will start; the command line's flags."""
    _flags.update(flags)


def running() -> Runtime | None:
    """The current runtime, if there is one; inside a task there is none."""
    newest = _stack[-1:]  # in one step: another thread may be stopping it
    return newest[0] if newest and not inside_task() else None


def current() -> Runtime:
    """The current runtime; starts one if the program has neither started nor stopped any."""
    for newest in _stack[-1:]:  # in one step: another thread may be stopping it
        return newest
    with _starting:
        for newest in _stack[-1:]:
            return newest
        if _was_stopped:
            raise RuntimeStopped("the runtime was stopped; call penstock.start() or use penstock.Runtime() again")
        if _ended:
            raise RuntimeStopped("the program is at its end, and nobody would wait for a task; use penstock.Runtime")
        return start()


def files() -> SimulatedFiles | None:
    """What stands for files while there is no runtime; None if they are real."""
    global outside_files
    if inside_task():
        return None
    if simulation is None:
        from penstock.runtime.config import load_config

        if load_config(_flags).config.mode != "simulated":
            return None
    if outside_files is None:
        from penstock.runtime.simulated_files import SimulatedFiles

        outside_files = SimulatedFiles()
    return outside_files


def start(**settings: Any) -> Runtime:
    """Start a runtime and make it the current one."""
    with _starting:
        if _stack:
            raise PenstockError("a runtime is already running; stop() it first, or use `with Runtime(...)`")
        try:
            _warm_up({**_flags, **settings})
            from penstock.runtime.runtime import Runtime  # half of what there is to import, and not needed before

            runtime = Runtime(**{**_flags, **settings})
        except ConfigError as error:
            global unusable
            unusable = None if settings else error
            raise
        finally:
            if early := sys.modules.get("penstock.executors.guardian_process"):
                early.discard_early()
        enter(runtime)
        return runtime


def _warm_up(settings: dict[str, Any]) -> None:
    """Have the process that workers are forked from start while we import all that a run needs."""
    if "penstock.runtime.runtime" in sys.modules or simulation is not None or inside_task():
        return
    from penstock.runtime.config import load_config

    if load_config(settings).config.mode == "parallel":
        from penstock.executors.guardian_process import start_early
        from penstock.executors.thread_limits import thread_limits

        start_early({**os.environ, **thread_limits(1)})


def enter(runtime: Runtime) -> None:
    """Make a runtime the current one."""
    _install_hooks()
    _finish_with_child()
    _stack.append(runtime)


def leave(runtime: Runtime) -> None:
    """A runtime was stopped; the one before it is current again."""
    global _was_stopped, _last_store
    _last_store = runtime.objects.store
    # In one step: a call in another thread could else find neither a runtime nor that there was one, and start another.
    with _starting:
        if runtime in _stack:
            _stack.remove(runtime)
        _was_stopped = not _stack


def stop(*, abort: bool = False) -> None:
    """Stop the current runtime: after all its tasks, or at once with ``abort``. Nothing happens if there is none."""
    _stop(abort=abort, gives_back=True)


def finish(*, abort: bool = False) -> None:
    """Stop the current runtime at the end of the program, where nobody sees any more what tasks made of objects."""
    _stop(abort=abort, gives_back=False)


def _stop(*, abort: bool, gives_back: bool) -> None:
    runtime = running()
    if runtime is None:
        return
    try:
        runtime.stop(abort=abort, gives_back=gives_back)
        if not abort:
            runtime.raise_unobserved()
    finally:
        leave(runtime)


@contextlib.contextmanager
def simulating(plan: Plan) -> Iterator[None]:
    """Meanwhile, there is no runtime but those that are made, and they are simulated."""
    global simulation, outside_files, _was_stopped
    outside = simulation, outside_files, _was_stopped, _stack[:]
    simulation, outside_files, _was_stopped, _stack[:] = plan, None, False, []
    try:
        yield
    finally:
        simulation, outside_files, _was_stopped, _stack[:] = outside


# --- the end of the program ---------------------------------------------------------------------------------------

_hooked = False
_failing = False
#: whether no exit handler of ours is still to come
_ended = not threading.main_thread().is_alive()
#: exit status of the program, if it is not its own
_status = 0
_INTERRUPTED = 130


def _install_hooks() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_forget_all)
    previous = sys.excepthook

    def note_failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failing
        _failing = True
        previous(kind, error, trace)

    sys.excepthook = note_failure


def _finish_with_child() -> None:
    """A child that ``multiprocessing`` has forked ends without exit handlers, but with those of ``multiprocessing``."""
    module = sys.modules.get("multiprocessing.process")
    if module is not None and module.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _at_exit, exitpriority=0)


def _at_exit() -> None:
    """Finish what the program has called, or give it up if the program fell over."""
    while _stack:
        unfinished = _stack[-1].driver.engine.unfinished
        try:
            finish(abort=_failing or sys.exception() is not None)
        except KeyboardInterrupt:
            finish(abort=True)
            say(f"Interrupted: {unfinished} unfinished tasks were given up.\n")
            _end_with(_INTERRUPTED)
        except Exception as error:
            _report(error)


def _report(error: BaseException) -> None:
    """A task failed and nobody has looked: say so, and have the program's exit status say so too."""
    import traceback

    told = "".join(traceback.format_exception(error.with_traceback(None)))
    say(f"A task failed, and the program ended without looking at it:\n{told}")
    _end_with(1)


def _end_with(status: int) -> None:
    """Have the program's exit status say that not all went well."""
    global _status
    if "pytest" not in sys.modules:
        _status = status


def _exit() -> None:
    """Registered first and so called last: an exit handler has no other way to set the status."""
    global _ended
    _at_exit()  # of a runtime that an exit handler has started: its own was registered too late to be called
    _ended = True
    if _status:
        flush_streams()
        os._exit(_status)


atexit.register(_exit)


def _forget_all() -> None:
    """A fork of the program has no runtime: its threads and workers belong to the parent."""
    global _starting
    _stack.clear()
    _starting = threading.RLock()  # a thread that is not here may have held it
