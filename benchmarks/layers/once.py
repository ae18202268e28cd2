"""`python -m benchmarks.layers.once SHAPE VARIANT`: one run of one program, told as one line of JSON.

A variant is `baseline` or an I/O scheduler, with `+flush` where files move while the program computes. The baseline
knows of one layer, the PFS, and its I/O tasks ask for nothing, so as many as there are executors write at a time.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.layers.devices import EXECUTORS, SECOND, layers, mounted
from benchmarks.layers.shapes import CPUS, LEAST_COMPUTE, SHAPES, phases

BASELINE = "baseline"
FLUSH = "+flush"


def run(name: str, variant: str) -> dict[str, Any]:
    """For each phase of writing its seconds, in time there, and the number of results of each size on each layer."""
    from penstock import Runtime
    from penstock.observe.log import read_log

    shape = SHAPES[name]
    baseline, flushing = variant == BASELINE, variant.endswith(FLUSH)
    with mounted() as root, tempfile.TemporaryDirectory() as run_dir:
        described = layers(root, shape.nvram)
        settings: dict[str, Any] = {"cpus": CPUS, "io_executors": EXECUTORS, "data_movement": flushing}
        settings |= {"tuning": "off", "io_ageing": "off", "log": True, "run_dir": run_dir, "keep_run_dir": "always"}
        settings["storage"] = described[-1:] if baseline else described
        if not baseline:
            settings["io_scheduler"] = variant.removesuffix(FLUSH)
        with Runtime(**settings):
            _start_executors()
            seconds = phases(
                shape,
                Path(described[-1]["mount"]),
                constrained=not baseline,
                compute=shape.compute if flushing else LEAST_COMPUTE,
                # It is alike in all iterations of the baseline: nothing fills up.
                iterations=1 if baseline else shape.iterations,
            )
        records = list(read_log(str(Path(run_dir) / "events.jsonl")))
    if baseline:
        seconds *= shape.iterations
    return {"phases": [one / SECOND for one in seconds], "layers": _layers(records)}


def _start_executors() -> None:
    """Processes of the I/O pool start with their first task, which is not what is measured."""
    from penstock import barrier, io, task

    @io
    @task()
    def wait() -> None:
        time.sleep(0.2)

    for _ in range(EXECUTORS):
        wait()
    barrier()


def _layers(records: list[Any]) -> dict[str, int]:
    from penstock.observe.records import Launched, Submitted

    names = {record.task: record.name for record in records if isinstance(record, Submitted)}
    launched = [record for record in records if isinstance(record, Launched) and record.layer]
    return dict(sorted(Counter(f"{record.layer} {names[record.task]}" for record in launched).items()))


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:3])))
