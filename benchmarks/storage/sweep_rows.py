"""The rows that a program's sweep gives: what is saved, what constraints are for, and what was learned."""

import sys

from benchmarks.row import Budget, Measurement, Row
from benchmarks.storage import ways
from benchmarks.storage.sweep import whole_sweep
from benchmarks.workload import emit

ROUNDS = 2


def rows(title: str, program: str, module: str, at_least: float) -> list[Row]:
    """Rows of a sweep that `module` measures; every way must save `at_least` so many per cent."""

    def row(name: str, unit: str, figure: str, better: str, limit: float) -> Row:
        measurement = Measurement(f"{program}_{figure}", better, module, rounds=1, together=True)  # type: ignore[arg-type]
        return Row(f"{title}: {name}", unit, measurement, Budget(limit))

    return [
        row("saved by best static", "%", "static_saved", "more", at_least),
        row("saved by auto", "%", "auto_saved", "more", at_least),
        row("saved by bounded auto", "%", "bounded_saved", "more", at_least),
        row("unconstrained over best static", "×", "unconstrained_ratio", "more", 1.1),
        row("learned, doublings from best", "", "doublings_off", "less", 1),
    ]


def measure(program: str) -> None:
    sweep = whole_sweep(program, rounds=1 if "--quick" in sys.argv else ROUNDS)
    sweep.print_table()
    auto, bounded = ways.AUTOS
    figures = {
        "static_saved": sweep.saved(sweep.best),
        "auto_saved": sweep.saved(auto),
        "bounded_saved": sweep.saved(bounded),
        "unconstrained_ratio": sweep.seconds(ways.UNCONSTRAINED) / sweep.seconds(sweep.best),
        "doublings_off": max(map(sweep.doublings_off, ways.AUTOS)),
    }
    emit({f"{program}_{name}": value for name, value in figures.items()} | sweep.figures())
