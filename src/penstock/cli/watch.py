"""What ``penstock run`` shows of each runtime that the program starts: progress while it runs, then a summary."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Protocol, TextIO

from penstock.observe.log import EventLog
from penstock.observe.progress import ProgressView, can_draw
from penstock.observe.summary import summary_lines
from penstock.observe.tally import Tally

__all__ = ["Watch"]


class Observed(Protocol):
    """All that is asked of a runtime here."""

    @property
    def log(self) -> EventLog: ...


class Watch:
    """Attached to every runtime at its start; usually there is one."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._views: list[ProgressView] = []
        self._runs: list[tuple[Tally, str | None]] = []

    def attach(self, runtime: Observed) -> None:
        """Follow the events of ``runtime``."""
        if self._shown:
            view = ProgressView(sys.stderr, live=can_draw(sys.stderr))
            self._views.append(view)
            tally = view.tally
            runtime.log.subscribe(view.on_batch)
        else:
            tally = Tally()
            runtime.log.subscribe(tally.add)
        self._runs.append((tally, runtime.log.path))

    def close(self) -> None:
        """Stop drawing. The runtimes have stopped, so every event was seen."""
        for view in self._views:
            view.close()

    def print_summaries(self, stream: TextIO) -> None:
        """Say what each run came to."""
        terminal = can_draw(stream)
        colour = terminal and not os.environ.get("NO_COLOR")
        width = shutil.get_terminal_size().columns if terminal else 200
        for tally, path in self._runs:
            kept = os.path.relpath(path) if path is not None and os.path.exists(path) else None
            print(*summary_lines(tally, kept, colour=colour, width=width), sep="\n", file=stream)
