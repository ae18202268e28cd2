"""What a learned ``storage_bw`` costs over the best static one with real processes: on emulated devices, and on a disk.

The best number of streams of a device is the simulator's; that of the disk that is there is looked for, for it is not
known. What each scenario takes is told on the way, and in the details.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import harness
from benchmarks.row import Budget, Measurement, Row
from benchmarks.steering.processes import on_device, seconds
from benchmarks.steering.scenarios import CORES, EXECUTORS, MB, PEAK, File, scenarios
from benchmarks.steering.simulated import best_static
from benchmarks.storage.ways import AUTO
from benchmarks.workload import emit

TASKS = 50
SOME = (
    "flat",
    "linear to 4",
    "peak at 8",
    "best at 1",
    "best at 3",
    "cliff after 6",
    "two functions",
    "computes before",
)
#: on the real disk: files, their size, and how often each number of streams is tried
FILES, SIZE, TURNS = 200, 8 * MB, 3
STREAMS = (1, 2, 4, 8, EXECUTORS)


def _row(name: str, figure: str, limit: float) -> Row:
    return Row(
        f"learned over best static, processes: {name}",
        "%",
        Measurement(figure, "less", __name__, rounds=1, together=True),
        Budget(limit),
    )


ROWS = [
    _row(f"{TASKS} tasks, first run", "regret_first", 20),
    _row(f"{TASKS} tasks, second run", "regret_second", 3),
    _row("over as many plain writers as cores, worst", "regret_over_plain", 5),
    _row("the real disk, 200 files", "regret_disk", 10),
]


def main() -> None:
    quick = "--quick" in sys.argv
    first, second, over_plain = [], [], []
    told: dict[str, float] = {}
    for scenario in scenarios():
        if scenario.name not in (SOME[:2] if quick else SOME):
            continue
        _, streams = best_static(scenario, TASKS)
        best = on_device(scenario, TASKS, _static(streams))
        plain = on_device(scenario, TASKS, _static(CORES))
        with tempfile.TemporaryDirectory() as folder:
            registry = f"{folder}/registry"
            took, again = (on_device(scenario, TASKS, AUTO, registry) for _ in range(2))
        first.append(100 * (took / best - 1))
        second.append(100 * (again / best - 1))
        over_plain.append(100 * (took / plain - 1))
        told |= {f"{scenario.name}, first run": first[-1], f"{scenario.name}, second run": second[-1]}
        words = f"first {first[-1]:.0f}, second {second[-1]:.0f}, plain {100 * (plain / best - 1):.0f} %"
        print(f"{scenario.name}, {TASKS} tasks, best {streams}: {words}", flush=True)
    figures = {"regret_first": statistics.fmean(first), "regret_second": statistics.fmean(second)}
    emit(told | figures | {"regret_over_plain": max(over_plain), "regret_disk": _on_disk(1 if quick else TURNS)})


def _static(streams: int) -> str:
    return str(PEAK // streams / MB)


def _on_disk(turns: int) -> float:
    ways = {str(streams): _static(streams) for streams in STREAMS} | {AUTO: AUTO}
    files = [File(SIZE)] * FILES
    build = harness.ROOT / "build"
    build.mkdir(exist_ok=True)
    # Not the temporary directory, which may be in memory.
    with tempfile.TemporaryDirectory(dir=build, prefix="disk-") as folder:
        seconds(Path(folder), files, AUTO)  # the files are there: all others write over them
        times = {name: [seconds(Path(folder), files, way) for _ in range(turns)] for name, way in ways.items()}
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    learned = medians.pop(AUTO)
    print("the real disk:", {name: round(one, 2) for name, one in medians.items()}, flush=True)
    return 100 * (learned / min(medians.values()) - 1)


if __name__ == "__main__":
    main()
