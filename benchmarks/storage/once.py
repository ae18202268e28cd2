"""`python -m benchmarks.storage.once PROGRAM WAY`: one run of one program, told as one line of JSON."""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.storage import ways
from benchmarks.storage.device import MB, layer, mounted
from benchmarks.storage.shapes import PROGRAMS, work


def run(program: str, way: str) -> dict[str, Any]:
    """Seconds from the first submission until all is done, and what was learned on the way, in MB/s."""
    from penstock import Runtime
    from penstock.observe.log import read_log

    with mounted() as device, tempfile.TemporaryDirectory() as run_dir:
        settings: dict[str, Any] = {"cpus": 2, "tuning": "off", "run_dir": run_dir, "log": True}
        settings |= {"io_executors": ways.executors(way), "storage": [layer(device)], "keep_run_dir": "always"}
        with Runtime(**settings):
            for warm in [work(0.0) for _ in range(4)]:
                warm.result()
            began = time.perf_counter()
            PROGRAMS[program](device, partial(ways.declare_writer, way))
            seconds = time.perf_counter() - began
        records = list(read_log(str(Path(run_dir) / "events.jsonl")))
    return {"seconds": seconds, "constraints": _most_used(records), "epochs": _epochs(records)}


def _most_used(records: Iterable[Any]) -> dict[str, float]:
    """For each function, the learned constraint under which most of its tasks ran once learning was over."""
    from penstock.observe.records import ConstraintChosen, ConstraintDrifted, Launched, LimitSettled, Submitted

    names: dict[int, str] = {}
    settled: set[str] = set()
    uses: dict[str, Counter[float]] = {}
    for record in records:
        if isinstance(record, Submitted):
            names[record.task] = record.name
        elif isinstance(record, ConstraintChosen):
            settled.add(record.name)
        elif isinstance(record, LimitSettled):
            settled.update(record.functions)
        elif isinstance(record, ConstraintDrifted):
            settled.discard(record.name)
        elif isinstance(record, Launched) and names.get(record.task) in settled:
            uses.setdefault(names[record.task], Counter())[record.bandwidth / MB] += 1
    return {name: values.most_common(1)[0][0] for name, values in uses.items()}


def _epochs(records: Iterable[Any]) -> list[list[Any]]:
    """Every closed epoch: function, MB/s, tasks at a time, mean seconds, whether it counts and whether it was whole."""
    from penstock.observe.records import EpochEnded

    return [
        [one.name, one.constraint / MB, one.concurrency, round(one.seconds, 4), one.registered, not one.partial]
        for one in records
        if isinstance(one, EpochEnded)
    ]


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:3])))
