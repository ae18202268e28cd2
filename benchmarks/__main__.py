"""`python -m benchmarks`: take every measurement, print one table, write build/bench.json.

A budget that is not met is a ✗ in the table, not a failure of the run; the exit status is 1 only when a figure of our
own could not be taken.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from benchmarks import harness, report
from benchmarks.origin import Origin
from benchmarks.row import PEERS, Record, Row, judge
from benchmarks.rows import all_rows


def main() -> int:
    options = _parse()
    origin = Origin()
    console = Console(width=None if sys.stdout.isatty() else 180, highlight=False)
    rows = _selected(all_rows(), options.only)
    peers = [] if options.no_peers else harness.installed(PEERS)
    missing = [] if options.no_peers else [peer for peer in PEERS if peer not in peers]
    if missing:
        console.print(f"not installed (make bench-peers): {', '.join(missing)}")
    records, problems = _measure(rows, peers, options.quick, console)
    console.print(report.table(records, _caption(options.quick)))
    for problem in problems:
        console.print(problem, markup=False)
    report.write_json(records, origin, options.quick, harness.ROOT / "build" / "bench.json")
    console.print(f"{len(records)} figures, {origin}")
    return 1 if any(record.ours is None for record in records) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="rows whose name contains this; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="one round and a tenth of the work: a look, not a verdict")
    parser.add_argument("--no-peers", action="store_true", help="our figures only")
    return parser.parse_args()


def _selected(rows: Sequence[Row], only: Sequence[str] | None) -> list[Row]:
    if not only:
        return list(rows)
    chosen = [row for row in rows if any(part.lower() in row.name.lower() for part in only)]
    if not chosen:
        sys.exit("no such row; there are: " + "; ".join(row.name for row in rows))
    return chosen


def _measure(rows: Sequence[Row], peers: list[str], quick: bool, console: Console) -> tuple[list[Record], list[str]]:
    taken: dict[object, harness.Taken] = {}
    measurements = list(dict.fromkeys(row.measurement for row in rows))
    for number, measurement in enumerate(measurements, 1):
        say = partial(console.print, f"[{number}/{len(measurements)}]", markup=False)
        taken[measurement] = harness.take(measurement, peers, quick, say)
    seconds = {measurement: found.seconds for measurement, found in taken.items()}  # told by the first row of each
    records = [_judged(row, taken[row.measurement], seconds.pop(row.measurement, 0.0)) for row in rows]
    problems = [
        f"{measurement.figure}, {system}: {reason}"
        for measurement in measurements
        for system, reason in taken[measurement].problems.items()
    ]
    return records, problems


def _judged(row: Row, taken: harness.Taken, seconds: float) -> Record:
    return judge(row, taken.median(harness.OURS), taken.peers(), taken.details, seconds)


def _caption(quick: bool) -> str:
    rule = "quick look: one round, a tenth of the work" if quick else "median of the rounds"
    return f"{rule}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; ratio: times better than the best peer"


if __name__ == "__main__":
    sys.exit(main())
