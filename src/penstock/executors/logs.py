"""Records that tasks log, on their way to the program: its own loggers, filters and handlers see to them.

    task: logger.info(…) ─▶ the worker's handlers, if it has any ─▶ Logged ─▶ LogRelay ─▶ the program's handlers

A worker does not run the program, so it has none of the program's handlers; those that the task's own modules have set
up there write there, and the program leaves the loggers out that they belong to.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import threading
from collections.abc import Callable
from typing import Any

from penstock.executors.wire import Logged
from penstock.own_threads import OwnThread, as_the_program

__all__ = ["LogRelay", "forward_records"]

_formatter = logging.Formatter()


def forward_records(send: Callable[[Logged], None]) -> None:
    """In a worker: from now on, send the records that loggers accept."""
    mine = os.getpid()
    # logging.warning() and its like would set up a handler of their own where there is none.
    placeholder = logging.NullHandler()
    logging.root.addHandler(placeholder)
    configure = logging.basicConfig

    def basic_config(**settings: Any) -> None:
        if settings:
            logging.root.removeHandler(placeholder)
            configure(**settings)
            logging.root.addHandler(placeholder)

    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        handled: list[str] = []
        at: logging.Logger | None = logger
        while at is not None:
            own = [handler for handler in at.handlers if handler is not placeholder]
            if own:
                handled.append(at.name)
            for handler in own:
                if record.levelno >= handler.level:
                    handler.handle(record)
            at = at.parent if at.propagate else None
        if os.getpid() == mine:
            send(Logged(_packed(record), handled))
        elif not handled and logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)  # a process that the task has forked: the way back is its parent's

    logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign,assignment]
    logging.basicConfig = basic_config


def _packed(record: logging.LogRecord) -> bytes:
    """A record as bytes, its text made: what it was made of may not travel."""
    fields = dict(record.__dict__)
    try:
        fields["msg"] = record.getMessage()
    except Exception as error:
        fields["msg"] = f"{record.msg} (its arguments do not fit: {error})"
    fields["args"] = None
    if record.exc_info and not record.exc_text:
        fields["exc_text"] = _formatter.formatException(record.exc_info)
    fields["exc_info"] = None
    try:
        return pickle.dumps(fields, 5)
    except Exception:
        return pickle.dumps({name: value if _travels(value) else repr(value) for name, value in fields.items()}, 5)


def _travels(value: Any) -> bool:
    try:
        pickle.dumps(value, 5)
    except Exception:
        return False
    return True


class LogRelay:
    """In the program: gives records to its handlers, in a thread of its own, since a handler may take long."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Logged | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, message: Logged) -> None:
        """Have a record handled soon."""
        if self._thread is None:
            self._thread = OwnThread("logs", self._run)
            self._thread.start()
        self._queue.put(message)

    def flush(self, timeout: float) -> None:
        """Wait until all records so far are handled."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done)
            done.wait(timeout)

    def close(self, timeout: float) -> None:
        """Handle what is left, and stop."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            if isinstance(message, threading.Event):
                message.set()
                continue
            try:
                record = logging.makeLogRecord(pickle.loads(message.record))
                as_the_program(_handle, record, set(message.handled))
            except Exception:
                logging.getLogger("penstock").exception("a record that a task logged could not be handled")


def _handle(record: logging.LogRecord, handled: set[str]) -> None:
    logger = logging.getLogger(record.name)
    if logger.disabled or not logger.isEnabledFor(record.levelno) or not logger.filter(record):
        return
    if not handled:
        logger.callHandlers(record)
        return
    at: logging.Logger | None = logger
    while at is not None:
        for handler in () if at.name in handled else at.handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
        at = at.parent if at.propagate else None
