"""Does something of streaming again and again, with signals at another line of the code each time; run as a program.

    python at_any_line.py '{"what": "command", "words": ["run", …], "signals": [2], "modules": ["guard.py"], …}'

A moment is the first time that a line is reached: there are as many as there are lines, and time has no part in it. All
is imported once, and each attempt is a fork, so that hundreds of them take no longer than a few commands. Prints what
was left behind, and by a signal at which line.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec

import penstock.runtime.found_layers
import penstock.runtime.layers
import penstock.streaming.batch
import penstock.streaming.language.check_warnings
import penstock.streaming.running  # noqa: F401 - for all forks
from penstock.cli import app, main, stream_launch, stream_log, stream_run, stream_view  # noqa: F401 - for all forks
from penstock.streaming.private_view import reason_against

Place = tuple[str, int]
_PR_SET_CHILD_SUBREAPER = 36
#: seconds that whoever tidies up has, on a machine with much else to do
_PATIENCE = 60.0
#: exit status of an attempt that did not come to the line
_NOT_REACHED = 99


class Order(msgspec.Struct):
    """What is to be done."""

    #: "command": ``penstock stream`` with these words; "trial": whether programs can have a view of their own
    what: str
    words: list[str]
    #: sent at the line, one after the other
    signals: list[int]
    #: ends of the names of files whose lines count
    modules: list[str]
    #: of all lines, each so many-th, beginning with this one
    every: int
    shift: int
    #: the workflow's folder, and those in which nothing may be left
    folder: str
    memory: str
    marks: str


def _on_lines(modules: list[str], act: Callable[[Place], None]) -> None:
    """Call something at each line of these modules that this process, and no fork of it, comes to."""
    mine, ends = os.getpid(), tuple(modules)

    def lines(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and os.getpid() == mine:
            act((frame.f_code.co_filename, frame.f_lineno))
        return lines

    sys.settrace(lambda frame, event, argument: lines if frame.f_code.co_filename.endswith(ends) else None)


def _attempt(order: Order, act: Callable[[Place], None], last: Callable[[], int | None]) -> int:
    """How a fork ended that did it, as an exit status or minus a signal; ``last`` may say another status."""
    child = os.fork()
    if child == 0:
        status: int | None = 1
        try:
            os.setsid()
            os.chdir(order.folder)
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            sys.argv = ["penstock", "stream", *order.words]
            _on_lines(order.modules, act)
            status = 0
            if order.what == "trial":
                reason_against(order.folder, order.memory)
            else:
                main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        finally:
            sys.settrace(None)
            told = last()
            os._exit(status if told is None else told)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _places(order: Order) -> list[Place]:
    """The lines that an attempt comes to, in order, if nothing disturbs it."""
    found: dict[Place, None] = {}
    note = os.path.join(os.path.dirname(order.folder), "places")

    def last() -> None:
        with open(note, "wb") as file:
            file.write(msgspec.json.encode(list(found)))

    assert _attempt(order, found.setdefault, last) == 0
    with open(note, "rb") as file:
        return msgspec.json.decode(file.read(), type=list[Place])


def _disturbed(order: Order, at: Place) -> int:
    """An attempt that gets the signals when it first comes to a line."""
    reached = False

    def act(place: Place) -> None:
        nonlocal reached
        if place == at and not reached:
            reached = True
            for number in order.signals:
                signal.raise_signal(number)

    return _attempt(order, act, lambda: None if reached else _NOT_REACHED)


def _left(order: Order, own: list[str]) -> list[str]:
    """What there is that should not be: processes, folders, names beside the user's own; and what there is not."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        found = [f"process {pid}" for pid in file.read().split()]
    found += [os.path.join(folder, name) for folder in (order.memory, order.marks) for name in os.listdir(folder)]
    parent = os.path.dirname(order.folder)
    found += [os.path.join(parent, name) for name in os.listdir(parent) if name.endswith(".penstock")]
    found += [name for name in os.listdir(order.folder) if name.startswith(".penstock-")]
    if os.path.islink(order.folder):
        found.append("a link in place of the folder")
    return found + [f"no {name}" for name in own if not os.path.exists(os.path.join(order.folder, name))]


def _settled(order: Order, own: list[str]) -> list[str]:
    deadline = time.monotonic() + _PATIENCE
    while (left := _left(order, own)) and time.monotonic() < deadline:
        time.sleep(0.002)
    return left


def _main(order: Order) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own = os.listdir(order.folder)
    places = _places(order)
    tried, left = 0, _settled(order, own)
    at: Place = ("no line", 0)
    for at in [] if left else places[order.shift :: order.every]:
        tried += _disturbed(order, at) != _NOT_REACHED
        if left := _settled(order, own):
            break  # what comes after it would be blamed for it
    told = f"{os.path.basename(at[0])}:{at[1]}: {', '.join(left)}" if left else ""
    print(json.dumps({"tried": tried, "lines": len(places), "left": told}))


if __name__ == "__main__":
    _main(msgspec.json.decode(sys.argv[1], type=Order))
