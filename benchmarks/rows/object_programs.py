"""Programs that pass objects: HyperLogLog by a collection and by `*args`, k-means and a matrix product with a store.

HyperLogLog is the example program's; its estimate is checked here, and the time to join sketches is told twice, as the
time of the call and the time until the result is there. k-means and the blocked product run the same tasks on plain
objects and on persistent ones (a folder in memory), in turns; each result is compared with numpy's. Plain operands are
results of tasks, so that both ways begin when the data are where they will stay.
"""

import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import penstock
from benchmarks.harness import ROOT
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit
from penstock import INOUT, PersistentObject, task, wait_on

SKETCHES = (10, 60, 1_000)
WORDS = 100_000
TURNS = 5
JOINS = 25
BLOCKS, SIZE = 4, 256
FRAGMENTS, POINTS, CENTRES, ROUNDS = 8, 50_000, 8, 5


def _row(name: str, figure: str, unit: str, limit: float) -> Row:
    return Row(name, unit, Measurement(figure, "less", __name__, rounds=1, together=True), Budget(limit))


ROWS = [
    _row("HyperLogLog, 100,000 words: off by", "hyperloglog_error", "%", 7.0),  # three standard deviations
    *(
        _row(f"HyperLogLog, {count:,} sketches, collection over varargs", f"hyperloglog_{count}", "×", 1.2)
        for count in SKETCHES
    ),
    _row("matrix product, stored over plain blocks", "matmul_stored_over_plain", "×", 1.5),
    _row("k-means, stored over plain fragments", "kmeans_stored_over_plain", "×", 1.5),
]


class Stored(PersistentObject):
    """An array in a store."""

    def __init__(self, values: Any) -> None:
        self.values = values


def _array(obj: Any) -> Any:
    return getattr(obj, "values", obj)


@task(returns=1)
def made(seed: list[int], shape: tuple[int, int]) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


@task(c=INOUT)
def multiply(a: Any, b: Any, c: Any) -> None:
    c += _array(a) @ _array(b)


def _nearest(points: Any, centres: Any) -> Any:
    return ((points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)).argmin(axis=1)


@task(labels=INOUT, returns=2)
def partial(fragment: Any, labels: Any, centres: Any) -> tuple[Any, Any]:
    points = _array(fragment)
    labels[:] = _nearest(points, centres)
    return np.stack([np.bincount(labels, x, CENTRES) for x in points.T], axis=1), np.bincount(labels, minlength=CENTRES)


def product(a: list[list[Any]], b: list[list[Any]]) -> Any:
    c = [[np.zeros((SIZE, SIZE)) for _ in range(BLOCKS)] for _ in range(BLOCKS)]
    for i in range(BLOCKS):
        for j in range(BLOCKS):
            for k in range(BLOCKS):
                multiply(a[i][k], b[k][j], c[i][j])
    return np.block(wait_on(c))


def kmeans(fragments: list[Any], centres: Any) -> Any:
    labels = [np.zeros(POINTS, dtype=np.int64) for _ in fragments]
    for _ in range(ROUNDS):
        parts = wait_on([partial(*pair, centres) for pair in zip(fragments, labels, strict=True)])
        sums, counts = (sum(each) for each in zip(*parts, strict=True))
        centres = sums / np.maximum(counts, 1)[:, None]
    wait_on(labels)
    return centres


def hyperloglog() -> dict[str, float]:
    program = runpy.run_path(str(ROOT / "examples" / "distinct_count.py"), run_name="distinct_count")
    sketches = [program["sketch"]([f"word{i}" for i in range(n, WORDS, 1_000)], 64, 11) for n in range(1_000)]
    made_by_tasks = wait_on_all([_given(sketch) for sketch in sketches])
    figures: dict[str, float] = {}
    for count in SKETCHES:
        times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for _ in range(JOINS):
            for way, taken in times.items():
                ranks, called, done = program["joined"](made_by_tasks[:count], way)
                taken.append((called, done))
        for way, taken in times.items():
            name = "collection" if way else "varargs"
            called, done = (min(each) * 1e3 for each in zip(*taken[1:], strict=True))  # the first one warms up
            figures |= {f"{name}_{count}_called_ms": called, f"{name}_{count}_joined_ms": done}
        figures[f"hyperloglog_{count}"] = (
            figures[f"collection_{count}_joined_ms"] / figures[f"varargs_{count}_joined_ms"]
        )
    return {"hyperloglog_error": abs(program["estimate"](ranks) / WORDS - 1) * 100, **figures}


@task(returns=1)
def _given(sketch: Any) -> Any:
    return sketch


def wait_on_all(futures: list[Any]) -> list[Any]:
    """The futures, done."""
    penstock.barrier()
    return futures


def matmul() -> dict[str, float]:
    plain = [[[made([m, i, j], (SIZE, SIZE)) for j in range(BLOCKS)] for i in range(BLOCKS)] for m in (1, 2)]
    values = [wait_on(matrix) for matrix in plain]
    stored = [[[Stored(np.array(x)).make_persistent() for x in row] for row in matrix] for matrix in values]
    truth = np.block(values[0]) @ np.block(values[1])
    return _compared("matmul", lambda: product(*plain), lambda: product(*stored), truth)


def kmeans_both() -> dict[str, float]:
    plain = [made([3, n], (POINTS, 4)) for n in range(FRAGMENTS)]
    values = wait_on(plain)
    stored = [Stored(np.array(part)).make_persistent() for part in values]
    points, start = np.concatenate(values), values[0][:CENTRES].copy()
    truth = start
    for _ in range(ROUNDS):
        labels = _nearest(points, truth)
        truth = np.stack([points[labels == c].mean(axis=0) for c in range(CENTRES)])
    return _compared("kmeans", lambda: kmeans(plain, start), lambda: kmeans(stored, start), truth)


def _compared(name: str, plain: Callable[[], Any], stored: Callable[[], Any], truth: Any) -> dict[str, float]:
    times: dict[str, list[float]] = {"plain": [], "stored": []}
    for _ in range(TURNS + 1):
        for way, run in (("plain", plain), ("stored", stored)):
            began = time.perf_counter()
            result = run()
            times[way].append(time.perf_counter() - began)
            if not np.allclose(result, truth):
                raise AssertionError(f"{name} with {way} objects is wrong")
    seconds = {way: statistics.median(each[1:]) for way, each in times.items()}
    figures = {f"{name}_{way}_ms": value * 1e3 for way, value in seconds.items()}
    return {f"{name}_stored_over_plain": seconds["stored"] / seconds["plain"], **figures}


def main() -> None:
    global TURNS
    TURNS = 2 if "--quick" in sys.argv else TURNS
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        penstock.Runtime(cpus=2, store=f"local:{folder}"),
    ):
        emit(hyperloglog() | matmul() | kmeans_both())


if __name__ == "__main__":
    main()
