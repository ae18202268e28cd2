"""Runs experiments side by side, each in a process of its own, and hands their outcomes over in order.

The processes are new ones: what the simulation of a million tasks has left behind goes with its process. Experiments
whose figures hang on what a decision was measured to cost have the machine to themselves.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from importlib import import_module

from benchmarks.papers import ALONE, LONGEST
from benchmarks.papers.figure import Replay

__all__ = ["replayed"]


def replayed(names: Sequence[str], jobs: int) -> Iterator[tuple[str, str, Replay, float]]:
    """Name, title, outcome and seconds of each experiment, in the order of the names; so many run at a time."""
    pool = ProcessPoolExecutor(max(1, jobs), multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    begun: dict[str, Future[tuple[str, Replay, float]]] = {}
    try:
        for name in names:
            if name in ALONE:
                begun[name] = pool.submit(_replay, name)
                wait([begun[name]])
        for name in sorted(names, key=lambda name: name != LONGEST):
            if name not in ALONE:
                begun[name] = pool.submit(_replay, name)
        for name in names:
            yield name, *begun[name].result()
    finally:
        pool.shutdown(cancel_futures=True)  # after a failure the others are not waited for


def _replay(name: str) -> tuple[str, Replay, float]:
    """Title, outcome and seconds of one experiment."""
    module = import_module(f"benchmarks.papers.{name}")
    before = time.perf_counter()
    replay: Replay = module.replay()
    return module.TITLE, replay, time.perf_counter() - before
