"""The state of a process that a task finds outside of its arguments: noted at the call, taken on where the task runs.

    program: Here.now() ─▶ TaskCall.outside ─▶ worker: Stance.take() ─▶ body ─▶ the next take() undoes what it changed

To ask the kernel for it at every call would be felt, and an audit hook is called for things as frequent as ``id()``. So
the functions that change it are wrapped, once, and whoever wants to know whether anything changed compares one mark.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.model.outside import Outside

__all__ = ["Before", "Here", "Stance", "undone", "watch"]


_CHANGING = ("chdir", "fchdir", "umask")


class _Watch:
    """Sees changes of this process's state."""

    #: another object after each change
    mark = object()
    #: the last umask that was set
    umask: int | None = None
    #: functions that some module had taken by name before they could be wrapped: their effects have to be looked for
    blind: frozenset[str] = frozenset()
    _installed = False

    def __init__(self) -> None:
        #: not empty if there was a change since it was emptied: what a loop can look at in no time
        self.changes: list[bool] = []

    def install(self, *, everywhere: bool = False) -> None:
        """Wrap the functions by which a Python program changes its state.

        ``everywhere``: also under the name by which they are pickled. Not in the program, where somebody may have the
        bare ones: they could not be pickled any more.
        """
        if self._installed:
            return
        self._installed = True
        self.blind = _taken({name: getattr(os, name) for name in _CHANGING})
        for name in _CHANGING:
            self._replace(name, everywhere)
        logging.Logger.setLevel = self._wrapped(logging.Logger.setLevel)  # type: ignore[method-assign]
        environ = type(os.environ)
        for name in ("__setitem__", "__delitem__"):
            setattr(environ, name, self._wrapped(getattr(environ, name)))

    def _replace(self, name: str, everywhere: bool) -> None:
        original = getattr(os, name)
        wrapped = self._wrapped(original, self._note_umask if name == "umask" else None)
        wrapped.__module__ = "os"
        setattr(os, name, wrapped)
        if everywhere:
            setattr(sys.modules[original.__module__], name, wrapped)
        if original in os.supports_fd:
            os.supports_fd.add(wrapped)

    def _wrapped(self, function: Callable[..., Any], note: Callable[..., None] | None = None) -> Callable[..., Any]:
        @functools.wraps(function)
        def changing(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if note is not None:
                note(*args, **kwargs)
            self.mark = object()  # not a number: two threads could count to the same one
            if not self.changes:
                self.changes.append(True)
            return result

        return changing

    def _note_umask(self, mask: int) -> None:
        self.umask = mask


watch = _Watch()


def _taken(functions: dict[str, Any]) -> frozenset[str]:
    """Those of these functions that a module has under a name of its own."""
    taken: set[str] = set()
    for module_name, module in list(sys.modules.items()):
        if module_name not in ("os", "posix"):
            names = getattr(module, "__dict__", {})
            taken.update(name for name, function in functions.items() if names.get(name) is function)
    own = {id(value) for value in list(vars(sys.modules["__main__"]).values())}  # there under any name
    return frozenset(taken.union(name for name, function in functions.items() if id(function) in own))


def _working_directory() -> bytes:
    try:
        return os.getcwdb()
    except OSError:
        return b""


class Here:
    """The program's own state, as its calls note it."""

    def __init__(self) -> None:
        watch.install()
        #: the environment of the program when the run began; that of workers is made from it
        self.base = dict(os.environb)
        self._noted: Outside | None = None
        self._mark: object = None
        self._path: list[str] = []

    def now(self) -> Outside:
        """The state as it is; the same object as long as nothing changes."""
        noted = self._noted
        if (
            noted is not None
            and watch.mark is self._mark
            and sys.path == self._path
            and sys.getrecursionlimit() == noted.recursion_limit
            and not watch.blind
        ):
            return noted
        return self._look()

    def _look(self) -> Outside:
        mark, path = watch.mark, list(sys.path)  # before all else: what changes meanwhile is seen by the next look
        environ, base = dict(os.environb), self.base
        changed: dict[bytes, bytes | None] = {name: value for name, value in environ.items() if base.get(name) != value}
        changed.update(dict.fromkeys(base.keys() - environ.keys()))
        found = Outside(
            _working_directory(),
            changed,
            _umask() if "umask" in watch.blind else watch.umask,
            tuple([os.fsencode(os.path.abspath(str(entry))) for entry in path]),
            sys.getrecursionlimit(),
            _log_levels(),
        )
        self._mark, self._path = mark, path
        if found != self._noted:
            self._noted = found
        assert self._noted is not None
        return self._noted


class Before(NamedTuple):
    """Where a worker is before it is set up."""

    cwd: bytes
    recursion_limit: int

    @classmethod
    def now(cls) -> Before:
        return cls(_working_directory(), sys.getrecursionlimit())


class Stance:
    """Puts this process where a task was called, and back there after a task that went elsewhere.

    ``base`` is the environment that an ``Outside`` names the differences to; if none is given, that of this process
    when it first takes a state on. ``before`` is where it was before the program's setup of workers: what that one has
    changed stands, as long as the program itself is where it was.
    """

    def __init__(self, base: dict[bytes, bytes] | None = None, before: Before | None = None) -> None:
        watch.install(everywhere=base is None)
        self._base = base
        self._cwds: dict[bytes, bytes] = {}
        self._limits: dict[int, int] = {}
        if before is not None and before != (after := Before.now()):
            self._cwds[before.cwd] = after.cwd
            self._limits[before.recursion_limit] = after.recursion_limit
        self._umask = _umask()
        #: of loggers as they are in this process, where the program says nothing
        self._log_levels: dict[str, int] = {}
        self._taken: Outside | None = None
        self._limit = 0
        self._mark: object = None

    def take(self, outside: Outside) -> None:
        """Take a state on, unless this process has it already."""
        if (
            outside is not self._taken
            or watch.mark is not self._mark
            or sys.getrecursionlimit() != self._limit
            or watch.blind
        ):
            self._take(outside)

    def back(self) -> None:
        """Undo what has changed since the last ``take``."""
        if self._taken is not None:
            self.take(self._taken)

    def keep(self) -> None:
        """What has changed in the environment since the last ``take`` is for all tasks: imports made the changes."""
        if watch.mark is self._mark or self._taken is None or self._base is None:
            return
        here, target = dict(os.environb), self._environment(self._taken)
        self._base.update({name: value for name, value in here.items() if target.get(name) != value})
        for name in target.keys() - here.keys():
            self._base.pop(name, None)
        self._mark = None

    @contextlib.contextmanager
    def visit(self, outside: Outside, home: Outside) -> Iterator[None]:
        """Take a state on for a while, in a process whose own state is another."""
        self._taken, self._mark = home, watch.mark
        streams = sys.stdout, sys.stderr
        self.take(outside)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            self.take(home)

    def _take(self, outside: Outside) -> None:
        if self._base is None:
            self._base = dict(os.environb)
        self._note_log_levels()
        cwd = self._cwds.get(outside.cwd, outside.cwd)
        if _working_directory() != cwd or not cwd:
            _go_to(cwd)
        if self._taken is None or self._taken.path != outside.path:
            self._take_path(outside)
        self._take_environment(outside)
        os.umask(self._umask if outside.umask is None else outside.umask)
        self._limit = self._limits.get(outside.recursion_limit, outside.recursion_limit)
        with contextlib.suppress(RecursionError):  # we are too deep for the limit ourselves: inline, or nested
            sys.setrecursionlimit(self._limit)
        for name, level in {**self._log_levels, **outside.log_levels}.items():
            if (logger := logging.getLogger(name)).level != level:
                logger.setLevel(level)
        self._taken, self._mark = outside, watch.mark

    def _note_log_levels(self) -> None:
        """Before the first state: as they are here. Later, what the program takes back is as if it had never set it."""
        if self._taken is None:
            self._log_levels = {"": logging.WARNING, **_log_levels()}
        else:
            for name in self._taken.log_levels:
                self._log_levels.setdefault(name, logging.NOTSET if name else logging.WARNING)

    def _take_path(self, outside: Outside) -> None:
        """Import from where the program does, and from places that imports here have added."""
        path = [os.fsdecode(entry) for entry in outside.path]
        before = path if self._taken is None else [os.fsdecode(entry) for entry in self._taken.path]
        sys.path[:] = path + [entry for entry in sys.path if entry not in before and entry not in path]
        importlib.invalidate_caches()

    def _environment(self, outside: Outside) -> dict[bytes, bytes]:
        merged = {**(self._base or {}), **outside.environ}
        return {name: value for name, value in merged.items() if value is not None}

    def _take_environment(self, outside: Outside) -> None:
        target, here = self._environment(outside), dict(os.environb)
        for name in here.keys() - target.keys():
            del os.environb[name]
        for name, value in target.items():
            if here.get(name) != value:
                os.environb[name] = value
        if target.get(b"TZ") != here.get(b"TZ"):
            time.tzset()


def _log_levels() -> dict[str, int]:
    root = logging.getLogger()
    loggers = [one for one in list(root.manager.loggerDict.values()) if isinstance(one, logging.Logger)]
    levels = {logger.name: logger.level for logger in loggers if logger.level}
    if root.level != logging.WARNING:
        levels[""] = root.level
    return levels


def undone() -> contextlib.AbstractContextManager[None]:
    """What is changed meanwhile is undone at the end."""
    here, stance = _own()
    now = here.now()
    return stance.visit(now, now)


@functools.cache
def _own() -> tuple[Here, Stance]:
    here = Here()
    return here, Stance(here.base)


def _umask() -> int:
    """The umask, without changing it for a moment: other threads may be making files."""
    with open("/proc/self/status", "rb") as status:
        return next(int(line.split()[1], 8) for line in status if line.startswith(b"Umask:"))


def _go_to(folder: bytes) -> None:
    """Make a folder the working directory. If it is gone, so is the task's: nothing relative is found elsewhere."""
    with contextlib.suppress(OSError):
        if folder:
            os.chdir(folder)
            return
    import tempfile  # needs random: too much for every import of Penstock

    gone = tempfile.mkdtemp(prefix="penstock-gone-")
    os.chdir(gone)
    os.rmdir(gone)
