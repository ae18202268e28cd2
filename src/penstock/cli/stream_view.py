"""What a person sees of a streamed workflow: the steps' output with their names, warnings, and what flows.

On a terminal there is one bar per edge of the graph, four times a second at most, and less often where looking takes
long. The bars of the end are shown everywhere, as plain text.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from penstock.observe.progress import can_draw
from penstock.streaming.happenings import Happening, Stalled, Warned
from penstock.streaming.language.model import Workflow
from penstock.units import format_duration, format_size

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from penstock.streaming.hosting import Hosting
    from penstock.streaming.status import Status

__all__ = ["View", "edge_table", "status_tables", "summary_lines"]

_PERIOD = 0.25
_BAR = 24


class View:
    """Shows a workflow while it runs."""

    def __init__(self, workflow: Workflow, output: str | None, progress: bool | None) -> None:
        names = [step.name for step in workflow.steps]
        self._width = min(
            16, max(map(len, names), default=0) + (2 if any(s.instances > 1 for s in workflow.steps) else 0)
        )
        self._folder: int | None = None
        self._files: dict[str, IO[bytes]] = {}
        self._sums_up = progress is not False
        self._live = can_draw(sys.stderr) if progress is None else progress and can_draw(sys.stderr)
        if output is not None:
            os.makedirs(output, exist_ok=True)
            # Opened now: later the name may lead into memory, where these files would vanish.
            self._folder = os.open(output, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def tell(self, happening: Happening) -> None:
        """Show what a user has to know."""
        if isinstance(happening, Warned | Stalled):
            sys.stderr.write(f"penstock: {happening.message}\n")
            sys.stderr.flush()

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags, 0o666, dir_fd=self._folder)

    def relay(self, label: str, number: int, text: bytes) -> None:
        """Pass on what a step has printed: whole lines, to a file or with its name in front."""
        if self._folder is not None:
            name = f"{label.replace('/', '_')}.{'out' if number == 1 else 'err'}"
            if name not in self._files:
                self._files[name] = open(name, "wb", buffering=0, opener=self._open)  # noqa: SIM115
            self._files[name].write(text)
            return
        stream = sys.stdout if number == 1 else sys.stderr
        try:
            for line in text.decode(errors="replace").split("\n")[:-1]:
                stream.write(f"{label:<{self._width}} │ {line}\n")
            stream.flush()
        except BrokenPipeError:
            # Nobody reads any more, as behind `| head`; the workflow goes on.
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())

    def sum_up(self, status: Status, log: str | None) -> None:
        """Show what the run came to."""
        if self._sums_up:
            print(*summary_lines(status, log), sep="\n", file=sys.stderr)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    @contextlib.contextmanager
    def following(self, hosting: Hosting) -> Iterator[None]:
        """Draw the bars while the steps run."""
        if not self._live:
            yield
            return
        closing = threading.Event()
        drawing = threading.Thread(target=_draw, args=(hosting, closing), name="penstock-view", daemon=True)
        drawing.start()
        try:
            yield
        finally:
            closing.set()
            # The loop must be free to answer a question that is under way.
            drawing.join(0.5)


def _draw(hosting: Hosting, closing: threading.Event) -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live

    loop = hosting.loop
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True, redirect_stdout=sys.stdout.isatty()) as live:
        period = _PERIOD
        while not closing.wait(period):
            began = time.perf_counter()

            async def ask() -> Status:
                return hosting.status()

            try:
                status = asyncio.run_coroutine_threadsafe(ask(), loop).result(2)
            except Exception:  # the workflow ends just now, or a terminal went away: neither is worth a word
                continue
            live.update(edge_table(status), refresh=True)
            period = max(_PERIOD, 10 * (time.perf_counter() - began))


def edge_table(status: Status) -> Table:
    """One line per edge: producer, consumer, a bar of what was read of what was written."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    states = {step.name: step for step in status.steps}
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for edge in status.edges:
        bar = ProgressBar(total=max(1, edge.written), completed=min(edge.read, edge.written), width=_BAR)
        names = Text.assemble(_coloured(states[edge.producer].name, states[edge.producer].state), " → ")
        names.append_text(_coloured(edge.consumer, states[edge.consumer].state))
        flowed = (f"{format_size(edge.written)} written", f"{format_size(edge.read)} read")
        table.add_row(names, bar, *flowed, _counted(edge.files, "file"))
    total = f"{format_duration(status.elapsed)}, {status.committed} of {status.born} files final"
    table.add_row(Text(status.name, style="bold"), "", f"{format_size(status.in_flight)} in flight", "", total)
    return table


def summary_lines(status: Status, log: str | None) -> list[str]:
    """What a run came to: one line, one bar per edge, and where the log is."""
    steps = _counted(len(status.steps), "step")
    made = f"{_counted(status.born, 'file')} of {format_size(status.written)}"
    lines = [f"penstock: {status.name}: {steps} in {format_duration(status.elapsed)}, {made}"]
    names = [f"{edge.producer} → {edge.consumer}" for edge in status.edges]
    width = max(map(len, names), default=0)
    for name, edge in zip(names, status.edges, strict=True):
        full = round(_BAR * min(1.0, edge.read / edge.written)) if edge.written else 0
        flowed = f"{format_size(edge.read)} of {format_size(edge.written)} read, {_counted(edge.files, 'file')}"
        lines.append(f"  {name:<{width}}  {'━' * full}{'╌' * (_BAR - full)}  {flowed}")
    if log is not None:
        lines.append(f"  event log: {os.path.relpath(log)}")
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _coloured(name: str, state: str) -> Text:
    from rich.text import Text

    return Text(name, style={"runs": "cyan", "over": "green", "failed": "bold red"}.get(state, "dim"))


def status_tables(status: Status, most: int = 20) -> list[Table]:
    """All that ``status`` shows: steps, edges, files."""
    from rich.table import Table
    from rich.text import Text

    steps = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("step", "state", "processes", "waits for"):
        steps.add_column(heading)
    for step in status.steps:
        pids = ", ".join(map(str, step.processes[:8])) + (" …" if len(step.processes) > 8 else "")
        waits = Text("; ".join(step.waits[:3]) + (" …" if len(step.waits) > 3 else ""))
        steps.add_row(_coloured(step.name, step.state), f"{step.state} {step.how}".strip(), pids, waits)
    files = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    files.add_column("file")
    for heading in ("written", "read by all"):
        files.add_column(heading, justify="right")
    for heading in ("state", "made by", "rule"):
        files.add_column(heading)
    for file in status.files[:most]:
        state = "final" if file.committed else "written to" if file.writers else "open"
        state += f", {file.waiting} waiting" if file.waiting else ""
        files.add_row(
            Text(file.name),
            format_size(file.written),
            format_size(file.consumed),
            state,
            ", ".join(file.producers),
            file.rule,
        )
    if status.born > most:
        files.add_row(f"… and {status.born - most} more")
    return [steps, edge_table(status), files] if status.born else [steps, edge_table(status)]
