"""What a line of the table is: a figure, how it is measured, its budget, and the judgement.

A module in `rows/` makes `Row` values; rows that look at one figure against several budgets share one `Measurement`,
which is then taken once. `judge` turns the medians into the `Record` that the table and the JSON show.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PEERS = ("ray", "dask", "parsl", "joblib", "mpire", "futures")


@dataclass(frozen=True)
class Measurement:
    """One figure, taken in rounds: ours, then each peer, then ours again."""

    figure: str  # the key in the JSON object that a measuring script prints
    better: Literal["more", "less"]
    ours: str = "benchmarks.ours"  # the module that measures us, run in a fresh process
    peers: tuple[str, ...] = ()
    rounds: int = 3
    together: bool = False  # the module's process prints all its figures: it runs once a round for all its rows


@dataclass(frozen=True)
class Budget:
    """A limit in the row's unit, or, against peers, a factor by which we must beat the best of them."""

    limit: float
    against: tuple[str, ...] = ()

    def text(self, better: str) -> str:
        if not self.against:
            return f"{'≥' if better == 'more' else '≤'} {self.limit:,g}"
        best = self.against[0] if len(self.against) == 1 else f"best of {', '.join(self.against)}"
        return f"≥ {self.limit:g} × {best}"


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    measurement: Measurement
    budget: Budget


@dataclass(frozen=True)
class Record:
    """A finished line. `ratio`: how many times better we are than the best peer that the budget looks at.

    `met` is None when it cannot be judged: a comparison without the peers.
    """

    name: str
    ours: float | None
    unit: str
    peers: dict[str, float]
    ratio: float | None
    budget: str
    met: bool | None
    #: what else was measured on the way to our figure, in the last round
    details: dict[str, float] = field(default_factory=dict)
    #: what it took to measure, all rounds and peers; 0 where a line above has taken the figure along
    seconds: float = 0.0


def judge(
    row: Row,
    ours: float | None,
    peers: Mapping[str, float],
    details: Mapping[str, float] | None = None,
    seconds: float = 0.0,
) -> Record:
    better = row.measurement.better
    rivals = [figure for name, figure in peers.items() if not row.budget.against or name in row.budget.against]
    best = (max if better == "more" else min)(rivals, default=None)
    ratio = None
    if ours is not None and best is not None and ours > 0 and best > 0:
        ratio = ours / best if better == "more" else best / ours
    met: bool | None
    if ours is None:
        met = False
    elif row.budget.against:
        met = None if ratio is None else ratio >= row.budget.limit
    else:
        met = ours >= row.budget.limit if better == "more" else ours <= row.budget.limit
    budget = row.budget.text(better)
    return Record(row.name, ours, row.unit, dict(peers), ratio, budget, met, dict(details or {}), seconds)
