"""`python -m benchmarks.tables`: put the figures of build/bench.json into README.md and docs/performance.md.

A table of theirs stands between `<!-- bench: NAME -->` and `<!-- end -->` and is replaced as a whole, so all figures
there come from one run, and none is copied by hand. What a table shows is said here, by the modules of `rows/` whose
rows it has; a new row of such a module appears by itself.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import origin
from benchmarks.harness import ROOT
from benchmarks.report import number
from benchmarks.row import PEERS, Row

PAGES = ("README.md", "docs/performance.md")

_PLACE = re.compile(r"(<!-- bench: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_JUDGED = {True: "met", False: "**missed**", None: "not judged"}
_PEER_NAMES = {"ray": "Ray", "dask": "Dask", "parsl": "Parsl", "futures": "process pool"}


class Bench:
    """What one run of all benchmarks has written."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told
        self.records: dict[str, Mapping[str, Any]] = {record["name"]: record for record in told["records"]}

    def measured(self, modules: Iterable[str]) -> list[list[Mapping[str, Any]]]:
        """The records of modules in `rows/`; those that judge one figure by several budgets together."""
        found: dict[object, list[Mapping[str, Any]]] = {}
        for module in modules:
            rows: Sequence[Row] = import_module(f"benchmarks.rows.{module}").ROWS
            there = [row for row in rows if row.name in self.records]
            if not there:
                sys.exit(f"no row of {module} is in this file; the tables are made from a run of all benchmarks")
            for row in there:
                found.setdefault(row.measurement, []).append(self.records[row.name])
        return list(found.values())

    def details(self, module: str) -> Mapping[str, float]:
        """What else the process of a module has told."""
        details: Mapping[str, float] = self.measured([module])[0][0]["details"]
        return details


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in rows)


def _what(record: Mapping[str, Any]) -> str:
    return f"{record['name']}, {record['unit']}" if record["unit"] else record["name"]


def _budget(records: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"{record['budget']}: {_JUDGED[record['met']]}" for record in records)


def against_peers(*modules: str, judged: bool = True) -> Callable[[Bench], str]:
    """Ours beside the peers', a line for each figure."""

    def made(bench: Bench) -> str:
        heads = ["What", "Penstock", *(_PEER_NAMES.get(peer, peer) for peer in PEERS), *(["Budget"] if judged else [])]
        lines = []
        for records in bench.measured(modules):
            first = records[0]
            peers = [number(first["peers"].get(peer)) for peer in PEERS]
            lines.append([_what(first), number(first["ours"]), *peers, *([_budget(records)] if judged else [])])
        return _table(heads, lines)

    return made


def alone(*modules: str, judged: bool = True) -> Callable[[Bench], str]:
    """Figures that only we have."""

    def made(bench: Bench) -> str:
        lines = [(_what(one[0]), number(one[0]["ours"]), _budget(one)) for one in bench.measured(modules)]
        width = 3 if judged else 2
        return _table(("What", "Measured", "Budget")[:width], [line[:width] for line in lines])

    return made


def seconds(columns: Mapping[str, tuple[str, str]]) -> Callable[[Bench], str]:
    """Seconds of every way in which programs were run: header of a column, to its module and its word in details."""

    def made(bench: Bench) -> str:
        found: dict[str, dict[str, float]] = {}  # way, header
        for header, (module, program) in columns.items():
            for name, value in bench.details(module).items():
                if name.startswith(f"{program} ") and name.endswith(", s"):
                    found.setdefault(name.removeprefix(f"{program} ").removesuffix(", s"), {})[header] = value
        return _table(
            ("Way", *columns),
            [
                (way, *(f"{cell[header]:.2f}" if header in cell else "" for header in columns))
                for way, cell in found.items()
            ],
        )

    return made


def taken(bench: Bench) -> str:
    """Where the figures come from."""
    told = bench.told
    of = f" of commit {told['commit']}" if "commit" in told else ""
    machine = f"{told['cores']} cores, Python {told['python']}"
    missed = sum(record["met"] is False for record in told["records"])
    return (
        f"All figures in these tables were taken by one `make bench` on {told['date'][:10]}{of}, on {machine}, in "
        f"{origin.shown(told['seconds'])}. Of {len(told['records'])} rows, {missed} missed their budget."
    )


SECTIONS: dict[str, Callable[[Bench], str]] = {
    "origin": taken,
    "speed": against_peers("tasks", "bulk_map", "latency", judged=False),
    "tasks": against_peers("tasks", "bulk_map", "latency", "imports", "first_result", "array_shared"),
    "memory": alone(
        "array_made", "array_parts", "result_sizes", "store_reuse", "finished_task", "pending_task", "million_tasks"
    ),
    "objects": alone("tracked_objects", "temporaries", "collections", "object_programs"),
    "stores": alone("persistent_local", "persistent_redis", "persistent_cluster"),
    "scheduling": alone("engine_scaling", "io_scaling", "generations", "simulator", "validation"),
    "early": alone("eager_overhead", "eager_stream", "eager_decomposition", "eager_web", "mpi_start", "mpi_programs"),
    "streaming": alone(
        "streaming_calls",
        "streaming_costs",
        "streaming_earlier_run",
        "streaming_memory",
        "streaming_nodes",
        "streaming_shapes",
        "streaming_overlap",
        "streaming_workflows",
    ),
    "ways": seconds({"HMMER shape": ("hmmer", "hmmer"), "variants shape": ("variants", "variants")}),
    "saved": alone("hmmer", "variants", judged=False),
    "storage": alone("hmmer", "variants", "kmeans_checkpoints", "constrained_task", "overlap_real_disk"),
    "learned": alone("learned_regret", "learned_processes", "learned_task"),
    "schedulers": seconds(
        {
            "alignment (200 and 800 MB)": ("io_schedulers", "alignment"),
            "synthetic (500 and 800 MB)": ("io_schedulers", "synthetic"),
            "HMMER (400 MB)": ("io_schedulers", "hmmer"),
        }
    ),
    "orders": alone("io_schedulers"),
}


def filled(page: str, bench: Bench) -> str:
    """A page with all its tables made anew."""

    def replaced(place: re.Match[str]) -> str:
        if place[2] not in SECTIONS:
            sys.exit(f"there is no table {place[2]!r}; there are: {', '.join(SECTIONS)}")
        return f"{place[1]}\n{SECTIONS[place[2]](bench)}\n\n{place[3]}"

    return _PLACE.sub(replaced, page)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--quick-too", action="store_true", help="take figures of a quick run as well: to try it out")
    options = parser.parse_args()
    bench = Bench(json.loads(options.file.read_text(encoding="utf-8")))
    if bench.told["quick"] and not options.quick_too:
        sys.exit(f"{options.file} is of a quick run: a look, not a verdict")
    for name in PAGES:
        page = ROOT / name
        page.write_text(filled(page.read_text(encoding="utf-8"), bench), encoding="utf-8")
        print(f"written: {name}")


if __name__ == "__main__":
    main()
