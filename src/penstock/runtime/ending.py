"""The end of a run: all its steps, whatever goes wrong with one of them, and once, however many threads ask for it.

The first thread to call ``stop`` brings the end about. Others wait for it, so that for each of them nothing is left
when ``stop`` returns. Those on which the end itself depends do not wait: the thread that brings it about, when a
callback asks once more, and our own threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.alert_waits import until_set
from penstock.own_threads import OwnThread
from penstock.runtime.drain_view import DrainView
from penstock.runtime.late_signals import nothing_cut_short
from penstock.runtime.neighbours import living

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["Ending", "end"]


class Ending:
    """Who ends a run, and whether it is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by: int | None = None
        self._over = threading.Event()

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """True for the thread that is to end the run in this block; for others, the end is behind them."""
        me = threading.current_thread()
        ours = False
        try:
            with self._lock:
                if self._by is None:
                    self._by, ours = me.ident, True
            if not ours and self._by != me.ident and type(me) is not OwnThread:
                until_set(self._over)
            yield ours
        finally:
            if ours:
                self._over.set()


def end(runtime: Runtime, *, abort: bool) -> None:
    """Take every step, in the opposite order, whatever goes wrong before it: nothing may be left behind."""
    runtime.stopped = True
    runtime.segments.closed = True
    if runtime in living:
        living.remove(runtime)
    with nothing_cut_short(), contextlib.ExitStack() as steps:
        steps.callback(_remove_traces, runtime, ok=not abort)
        steps.callback(runtime.objects.close)
        steps.callback(_save_what_was_learned, runtime)
        steps.callback(runtime.driver.lock.leave_interrupts)
        steps.callback(_stop_driver, runtime)
        for keeper in list(runtime.stored):
            keeper.keep()
        runtime._recorder.draining(time.monotonic())


def _stop_driver(runtime: Runtime) -> None:
    with DrainView(runtime.driver.engine.state) as view:
        runtime.driver.stop(view)


def _save_what_was_learned(runtime: Runtime) -> None:
    state = runtime.driver.engine.state
    runtime.tuning.save(state.tuners, state.steered)
    runtime.profiles.save(state)
    runtime.functions.point_out_misspelt(runtime.loaded.origins["constraints"])


def _remove_traces(runtime: Runtime, *, ok: bool) -> None:
    from penstock.observe.records import RunEnded

    runtime.segments.close()
    if runtime.claims is not None:
        runtime.claims.close()
    state = runtime.driver.engine.state
    ok = ok and not state.failed
    try:
        with contextlib.closing(runtime.log):
            now = time.monotonic() - runtime._started
            runtime.log.append(RunEnded(now, ok, state.done, state.failed, state.cancelled))
    finally:
        runtime.directories.remove(ok=ok)
