"""The live view of a run: a table and a bar for each storage device on a terminal, now and then a line elsewhere.

Batches of the event log are counted as they come, in the log's feeder thread; drawing has a thread of its own, at
most four times a second, so that a slow terminal delays nobody. Nothing is drawn, and rich is not imported, before
the first quarter of a second is over: short programs pay nothing.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from penstock.alert_waits import until_ended
from penstock.observe.device_bars import DeviceBars, storage_part
from penstock.observe.records import Record
from penstock.observe.tally import Line, Snapshot, Tally
from penstock.own_threads import OwnThread
from penstock.units import format_count, format_duration

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table

__all__ = ["ProgressView", "can_draw", "plain_line", "progress_picture", "progress_table"]

_LIVE_PERIOD = 0.25
_LINE_PERIOD = 10.0
#: lines of the table that are never given up: headings, a function, how many more there are, the total, and one spare
_LEAST_TABLE = 5


def can_draw(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal on which lines can be drawn over."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class ProgressView:
    """Shows a run on ``stream``. Subscribe ``on_batch`` to the run's log; ``close`` at the end."""

    def __init__(
        self,
        stream: TextIO,
        *,
        live: bool,
        period: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tally = Tally()
        self._stream = stream
        self._clock = clock
        self._start = clock()
        self._period = period or (_LIVE_PERIOD if live else _LINE_PERIOD)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        #: held while something is drawn, and while the program asks its user
        self._terminal = threading.Lock()
        self._live: Live | None = None
        #: functions of the program that were replaced: where, by which name, what was there
        self._wrapped: list[tuple[Any, str, Any]] = []
        if live:
            self._make_room_for_questions()
        self._thread = OwnThread("view", self._guard, self._draw_table if live else self._print_lines)
        self._thread.start()

    def on_batch(self, batch: list[Record]) -> None:
        """Count a batch of records."""
        with self._lock:
            # Batches come late, never early: the earliest start they speak of is the nearest to the truth.
            self._start = min(self._start, self._clock() - batch[-1].t)
            self.tally.add(batch)
            # While files are brought home the runtime has a line of its own on the terminal.
            if self.tally.ended is not None or self.tally.draining:
                self._closing.set()

    def close(self) -> None:
        """Stop drawing and give the terminal back."""
        self._closing.set()
        until_ended(self._thread)
        for module, name, original in self._wrapped:
            setattr(module, name, original)
        self._wrapped.clear()

    def _make_room_for_questions(self) -> None:
        """Take the table away while the program waits for an answer: it would be drawn over the question."""
        import builtins
        import getpass

        self._wrapped = [(builtins, "input", input), (getpass, "getpass", getpass.getpass)]
        for module, name, original in list(self._wrapped):
            setattr(module, name, self._without_table(original))

    def _without_table(self, ask: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(ask)
        def asking(*args: Any, **kwargs: Any) -> str:
            with self._terminal:
                live = self._live
                if live is not None:
                    live.stop()
                try:
                    return ask(*args, **kwargs)
                finally:
                    if live is not None and not self._closing.is_set():
                        live.start()

        return asking

    def _snapshot(self) -> Snapshot:
        with self._lock:
            return self.tally.snapshot(self._clock() - self._start)

    def _guard(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except Exception:  # a terminal that went away must not be the end of the run
            logging.getLogger("penstock").exception("the progress view stopped")

    def _print_lines(self) -> None:
        while not self._closing.wait(self._period):
            snapshot = self._snapshot()
            if snapshot.lines:
                self._stream.write(plain_line(snapshot) + "\n")
                self._stream.flush()

    def _draw_table(self) -> None:
        if self._closing.wait(self._period):
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream)
        # The program's own output is printed above the table, unless it goes elsewhere anyway.
        live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        try:
            while not self._closing.is_set():
                snapshot = self._snapshot()
                with self._terminal:
                    if self._live is None:
                        live.start()
                        self._live = live
                    if snapshot.lines:
                        live.update(progress_picture(snapshot, console), refresh=True)
                self._closing.wait(self._period)
        finally:
            with self._terminal:
                self._live = None
                live.stop()


def plain_line(snapshot: Snapshot) -> str:
    """The state of the whole run in one line of text."""
    total = snapshot.total
    parts = [f"{format_count(total.done)} done", f"{format_count(total.running)} running"]
    parts.append(f"{format_count(total.waiting)} waiting")
    for count, word in ((total.failed, "failed"), (total.cancelled, "cancelled")):
        if count:
            parts.append(f"{format_count(count)} {word}")
    if total.rate:
        parts.append(f"{format_count(total.rate)}/s")
    if total.remaining:
        parts.append(f"{format_duration(total.remaining)} left")
    line = f"penstock {format_duration(total.elapsed)}: {', '.join(parts)}"
    storage = storage_part(snapshot)
    return f"{line}; {storage}" if storage else line


def progress_picture(snapshot: Snapshot, console: Console) -> Group:
    """All that a terminal shows: the table of functions, and below it storage, which has at most half of the lines."""
    from rich.console import Group

    bars = DeviceBars(snapshot, console, min(console.height // 2, console.height - _LEAST_TABLE))
    return Group(progress_table(snapshot, console, console.height - bars.height), *bars.parts())


def progress_table(snapshot: Snapshot, console: Console, height: int) -> Table:
    """The state of the run as a table, one line per function, that fits into ``height`` lines with some to spare."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("task", overflow="ellipsis", no_wrap=True, max_width=max(12, console.width - 68))
    for heading in ("waiting", "running", "done", "failed", "rate", "elapsed", "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = _shown(snapshot.lines, height - _LEAST_TABLE)
    for line in shown:
        table.add_row(Text(line.name), *_cells(line), style="" if line.waiting or line.running else "dim")
    if hidden := len(snapshot.lines) - len(shown):
        table.add_row(f"… and {hidden} more", style="dim")
    if len(snapshot.lines) > 1:
        table.add_row(snapshot.total.name, *_cells(snapshot.total), style="bold")
    return table


def _shown(lines: list[Line], room: int) -> list[Line]:
    """As many lines as there is room for: those with work to do first, in their usual order."""
    if len(lines) <= room:
        return lines
    order = sorted(range(len(lines)), key=lambda index: (not lines[index].running, not lines[index].waiting, index))
    return [lines[index] for index in sorted(order[: max(room, 1)])]


def _cells(line: Line) -> list[str]:
    return [
        format_count(line.waiting),
        f"[cyan]{line.running}[/]" if line.running else "0",
        f"[green]{format_count(line.done)}[/]" if line.done else "0",
        f"[bold red]{format_count(line.failed)}[/]" if line.failed else "0",
        f"{format_count(line.rate)}/s" if line.rate else "–",
        format_duration(line.elapsed),
        format_duration(line.remaining) if line.remaining else "–",
    ]
