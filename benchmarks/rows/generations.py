"""Three generations of published schedulers and ours: total scheduling time of one program of 75,259 tasks, as ratios.

The engine alone is driven, on 16 nodes of 48 units: all tasks are called, then the oldest running one ends, again and
again. V1, V2 and ours do all of it. V0 would need hours, since each of its decisions looks at all ready tasks: its
decisions are measured at several queue lengths and summed over the course of our run, whose queue has the same length
at every step.
"""

import sys

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURES = {"V0": "scheduling_v0_ratio", "V1": "scheduling_v1_ratio", "V2": "scheduling_v2_ratio"}
LENGTHS = (20, 500, 2_000, 8_000, 30_000, 75_000)
#: V0 tests for duplicates with a set; a test that goes through the queue makes it quadratic, and is only looked at here
LINEAR = "V0, linear duplicate test"
LINEAR_LENGTH = 2_000


def _row(name: str) -> Row:
    measurement = Measurement(FIGURES[name], "more", __name__, rounds=1, together=True)
    return Row(f"75,259 tasks, scheduling time of {name} over ours", "×", measurement, Budget(1))


ROWS = [_row(name) for name in FIGURES]


def run(name: str, tasks: int) -> tuple[float, list[int]]:
    """Seconds of all decisions, and the number of ready tasks at each end of a task."""
    from benchmarks.generations.cost import Course, clock, scheduler
    from benchmarks.generations.shape import NODES, widths

    lengths: list[int] = []
    now = clock(name)
    with scheduler(name) as ready:
        course = Course(ready, NODES)
        began = now()
        for cpus in widths()[-tasks:]:
            course.submit(cpus)
        while course.running:
            lengths.append(len(ready))
            course.finish()
        seconds = now() - began
    if len(lengths) != tasks:
        raise AssertionError(f"{len(lengths)} of {tasks} tasks ended")
    return seconds, lengths


def main() -> None:
    from benchmarks.generations.cost import measured
    from benchmarks.generations.shape import NODES, TASKS

    tasks = TASKS // 10 if "--quick" in sys.argv else TASKS
    ours, lengths = run("ours", tasks)
    seconds = {name: run(name, tasks)[0] for name in ("V1", "V2")}
    old = measured("V0", NODES, LENGTHS, steps=20)
    seconds["V0"] = sum(old.release(length) + old.add(length) for length in lengths)
    linear = measured(LINEAR, NODES, [LINEAR_LENGTH], steps=20).release(LINEAR_LENGTH)
    for name, value in sorted(seconds.items()):
        print(f"{name}: {value:,.4g} s, {value / tasks * 1e6:,.3g} µs per task, {value / ours:,.3g} × ours")
    print(f"ours: {ours:,.3g} s, {ours / tasks * 1e6:,.3g} µs per task")
    print(
        f"V0, a decision among {LINEAR_LENGTH:,} tasks: {old.release(LINEAR_LENGTH) * 1e3:.3g} ms; "
        f"{linear * 1e3:.3g} ms if the test for duplicates goes through the queue"
    )
    ratios = {figure: seconds[name] / ours for name, figure in FIGURES.items()}
    emit(ratios | {f"{name}_seconds": value for name, value in seconds.items()} | {"ours_seconds": ours})


if __name__ == "__main__":
    main()
