"""Simulated from their own logs, real runs of five programs: how far is the predicted makespan from the measured one?

Lines of the printed table that tell of a run with other settings than the logged one are judged by nobody: how long a
body takes depends on what else the machine does, which a log of another run cannot tell.
"""

from benchmarks.row import Budget, Measurement, Row
from benchmarks.validation.comparison import USUAL, compare, print_table
from benchmarks.validation.programs import PROGRAMS
from benchmarks.workload import emit

#: per cent
WITHIN = 10.0


def _figure(program: str) -> str:
    return f"{program} predicted off"


ROWS = [
    Row(
        f"simulated makespan off, {program}",
        "%",
        Measurement(_figure(program), "less", __name__, rounds=1, together=True),
        Budget(WITHIN),
    )
    for program in PROGRAMS
]


def main() -> None:
    comparisons = list(compare())
    print_table(comparisons)
    own = [one for one in comparisons if one.setting == USUAL]
    figures = {_figure(one.program): abs(one.off) for one in own}
    figures |= {f"{one.program} measured, s": one.measured for one in own}
    figures |= {f"{one.program} off with {one.setting}, %": one.off for one in comparisons if one not in own}
    emit(figures)


if __name__ == "__main__":
    main()
