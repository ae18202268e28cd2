"""`make demo`: one program that writes checkpoints, run I/O-unaware and I/O-aware, and what awareness saved.

Every pair of fragments is searched, which keeps a computing unit busy, and its result is written to a storage device
that is emulated, so that it behaves alike on every machine (see `benchmarks/storage/device.py`).
"""

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table

from benchmarks.storage.device import BANDWIDTH, EXECUTORS, MB, layer, mounted
from benchmarks.storage.work import compute, write
from penstock import FILE_OUT, Runtime, barrier, constraint, io, task
from penstock.observe.progress import ProgressView, can_draw
from penstock.observe.records import LimitSettled, Record
from penstock.runtime import session
from penstock.units import format_duration, format_rate, format_size

FRAGMENTS = 14
SECONDS = 0.03
SIZE = round(1.1 * MB)
UNITS = 2

INTRODUCTION = f"""\
[bold]One program, twice.[/] {FRAGMENTS**2} searches of {SECONDS * 1e3:.0f} ms, each followed by a checkpoint of \
{format_size(SIZE)},
on {UNITS} computing units and a storage device of {BANDWIDTH} MB/s, which 8 writers use best and 32 congest.
"""

UNAWARE = """\
@task(path=FILE_OUT)
def checkpoint(result, path): ...
"""

AWARE = """\
@constraint(storage_bw="auto")
@io
@task(path=FILE_OUT)
def checkpoint(result, path): ...
"""


@task(returns=1)
def search(sequences: int, database: int) -> int:
    compute(SECONDS)
    return sequences * FRAGMENTS + database


@task(path=FILE_OUT)
def checkpoint(result: int, path: str) -> None:
    write(path, SIZE)


# The same function: written with decorators it would be `AWARE`.
checkpoint_aware = constraint(storage_bw="auto")(io(checkpoint))


def program(checkpoint: Any, folder: Path) -> None:
    for i in range(FRAGMENTS):
        for j in range(FRAGMENTS):
            checkpoint(search(i, j), folder / f"pair-{i}-{j}")
    barrier()


@dataclass
class Told:
    """What became of a run."""

    seconds: float
    #: bytes per second that each writer reserved in the end, and how many wrote at a time; None if nothing was learned
    learned: LimitSettled | None = None


def run(checkpoint: Any) -> Told:
    """Run the program in view; the time is that from the first task to the last."""
    told = Told(0.0)
    view = ProgressView(sys.stderr, live=can_draw(sys.stderr))

    def attach(runtime: Runtime) -> None:
        runtime.log.subscribe(view.on_batch)
        runtime.log.subscribe(partial(_note_learned, told))

    session.on_start[:] = [attach]  # from its first record on: that one describes the storage
    settings: dict[str, Any] = {"cpus": UNITS, "io_executors": EXECUTORS, "tuning": "off"}
    with mounted() as folder, Runtime(storage=[layer(folder)], **settings):
        search(0, 0).result()
        began = time.perf_counter()
        program(checkpoint, folder)
        told.seconds = time.perf_counter() - began
    view.close()
    return told


def _note_learned(told: Told, batch: list[Record]) -> None:
    for record in batch:
        # The first choice is the one for a long queue; later ones suit the last few tasks.
        if isinstance(record, LimitSettled) and told.learned is None:
            told.learned = record


def main() -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(INTRODUCTION)
    results = []
    for title, source, writer in (
        ("I/O-unaware: a task that writes holds a computing unit meanwhile", UNAWARE, checkpoint),
        ("I/O-aware: two lines more", AWARE, checkpoint_aware),
    ):
        console.print(f"[bold]{title}[/]")
        console.print(Padding(Syntax(source, "python", background_color="default"), (0, 4), expand=False))
        results.append(run(writer))
        console.print(f"    [bold]{format_duration(results[-1].seconds)}[/]\n")
    console.print(_comparison(*results))
    console.print(_learned(results[-1]))


def _comparison(unaware: Told, aware: Told) -> Table:
    table = Table(title="What it saved", title_justify="left")
    table.add_column()
    for header in ("I/O-unaware", "I/O-aware"):
        table.add_column(header, justify="right")
    table.add_column("", justify="right", style="bold green")
    runs = (unaware, aware)
    searches, written = FRAGMENTS**2 * SECONDS, FRAGMENTS**2 * SIZE
    busy = [f"{searches / UNITS / one.seconds:.0%}" for one in runs]
    rates = [format_rate(written / one.seconds) for one in runs]
    saved = 1 - aware.seconds / unaware.seconds
    table.add_row("time", *(format_duration(one.seconds) for one in runs), f"{saved:.0%} less")
    table.add_row("units that compute", *busy)
    table.add_row("written", *rates)
    return table


def _learned(aware: Told) -> str:
    if aware.learned is None:
        return ""
    rate = format_rate(aware.learned.constraint)
    return f"learned while running: storage_bw = {rate}, {aware.learned.concurrency} writers at a time"


if __name__ == "__main__":
    main()
