"""How any system, ours or a peer, is measured: a `System` says how it does a thing, this module times it.

A script (`benchmarks.ours`, `benchmarks.peers.*`) subclasses `System` and calls `main`; run as
`python -m benchmarks.peers.ray FIGURE... [--quick]` it prints one JSON object of figures. A facility that a system
does not have is a method it does not override: such a figure is left out, and the system is not even started.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.workload import ARRAY_BYTES, check_part_sums

MAP_ITEMS = 100_000
ROUND_TRIPS = 500
IMPORTS = 5
FIRST_RESULT_FLAG = "--first-result"


class System:
    """One system with two workers. The counts are chosen so that a figure takes a few seconds."""

    tasks = 5_000
    links = 1_000
    imports: str  # the statement whose cost `import_ms` is

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def run_tasks(self, count: int) -> None:
        """Submit `count` empty tasks one by one, a future each, and collect every result."""
        raise NotImplementedError

    def map(self, count: int) -> list[int]:
        """Increment range(count) with the best bulk facility there is."""
        raise NotImplementedError

    def round_trip(self) -> None:
        """Submit one empty task and wait for its result."""
        raise NotImplementedError

    def chain(self, links: int) -> int:
        """0 incremented `links` times, each task taking the future of the one before."""
        raise NotImplementedError

    def read_shared(self, array: Any) -> list[float]:
        """Share the array of the main program and read it from twenty tasks."""
        raise NotImplementedError


def tasks_per_second(system: System, quick: bool) -> dict[str, float]:
    count = system.tasks // 10 if quick else system.tasks
    system.run_tasks(max(count // 10, 100))
    began = time.perf_counter()
    system.run_tasks(count)
    return {"tasks_per_second": count / (time.perf_counter() - began)}


def map_per_second(system: System, quick: bool) -> dict[str, float]:
    count = MAP_ITEMS // 10 if quick else MAP_ITEMS
    system.map(max(count // 10, 100))
    began = time.perf_counter()
    values = system.map(count)
    seconds = time.perf_counter() - began
    if values != list(range(1, count + 1)):
        raise AssertionError("map returned wrong values")
    return {"map_per_second": count / seconds}


def roundtrip_us(system: System, quick: bool) -> dict[str, float]:
    count = ROUND_TRIPS // 10 if quick else ROUND_TRIPS
    times = []
    for _ in range(count + count // 5):
        began = time.perf_counter()
        system.round_trip()
        times.append(time.perf_counter() - began)
    return {"roundtrip_us": statistics.median(times[count // 5 :]) * 1e6}


def chain_us_per_link(system: System, quick: bool) -> dict[str, float]:
    links = system.links // 10 if quick else system.links
    system.chain(links // 10)
    began = time.perf_counter()
    value = system.chain(links)
    seconds = time.perf_counter() - began
    if value != links:
        raise AssertionError(f"chain of {links} gave {value}")
    return {"chain_us_per_link": seconds / links * 1e6}


def one_copy_seconds(array: Any) -> float:
    """One memory copy: median of three into fresh destinations, whose page faults are part of it."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        copy = array.copy()
        times.append(time.perf_counter() - began)
        del copy
    return statistics.median(times)


def new_array(quick: bool) -> Any:
    import numpy

    return numpy.ones((ARRAY_BYTES // 10 if quick else ARRAY_BYTES) // 8)


def array_shared_copies(system: System, quick: bool) -> dict[str, float]:
    array = new_array(quick)
    copy = one_copy_seconds(array)
    # As large as what is measured, and right before it: memory that has been free for a while may be the host's again.
    other = new_array(quick)
    check_part_sums(system.read_shared(other), len(other))
    del other
    began = time.perf_counter()
    sums = system.read_shared(array)
    seconds = time.perf_counter() - began
    check_part_sums(sums, len(array))
    return {"array_shared_copies": seconds / copy, "array_1gb_20_readers_s": seconds, "one_copy_s": copy}


def import_ms(system: System, quick: bool) -> dict[str, float]:
    """Time of the import statement inside fresh interpreters; the first one, which may compile, is dropped."""
    code = f"import time; t = time.perf_counter(); {system.imports}; print(time.perf_counter() - t)"
    times = []
    for _ in range(1 + (3 if quick else IMPORTS)):
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        times.append(float(answer.stdout.split()[-1]))
    return {"import_ms": statistics.median(times[1:]) * 1e3}


def first_result_ms(system: System, quick: bool) -> dict[str, float]:
    spec = sys.modules["__main__"].__spec__
    assert spec is not None, "run as python -m"
    command = [sys.executable, "-m", spec.name, FIRST_RESULT_FLAG]
    return {"first_result_ms": seconds_to_first_line(command) * 1e3}


def seconds_to_first_line(command: list[str]) -> float:
    """Wall time from starting the command until it has printed its first line."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - began
        _, errors = process.communicate()
    if process.returncode != 0 or not line.strip():
        raise RuntimeError(f"{command[0]} exited with {process.returncode}: {errors.strip()[-300:]}")
    return seconds


Figure = Callable[[System, bool], dict[str, float]]

# Which method a system must have for a figure.
NEEDS: dict[str, tuple[Figure, str]] = {
    "tasks_per_second": (tasks_per_second, "run_tasks"),
    "map_per_second": (map_per_second, "map"),
    "roundtrip_us": (roundtrip_us, "round_trip"),
    "chain_us_per_link": (chain_us_per_link, "chain"),
    "array_shared_copies": (array_shared_copies, "read_shared"),
}
WITHOUT_START: dict[str, Figure] = {"import_ms": import_ms, "first_result_ms": first_result_ms}


def measure(system: System, names: list[str], quick: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in names:
        if name in WITHOUT_START:
            figures |= WITHOUT_START[name](system, quick)
    runnable = [NEEDS[name] for name in names if name in NEEDS]
    runnable = [(figure, method) for figure, method in runnable if _has(system, method)]
    if runnable:
        system.start()
        try:
            for figure, _ in runnable:
                figures |= figure(system, quick)
        finally:
            system.stop()
    return figures


def _has(system: System, method: str) -> bool:
    return getattr(type(system), method) is not getattr(System, method)


def main(system: System) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("figures", nargs="*", help=f"of {', '.join([*NEEDS, *WITHOUT_START])}; default: all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(FIRST_RESULT_FLAG, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_result:
        system.start()
        system.round_trip()
        print("first result", flush=True)
        system.stop()
    else:
        print(json.dumps(measure(system, options.figures or [*NEEDS, *WITHOUT_START], options.quick)))
