"""HMMER: 2,304 searches, each followed by a checkpoint of 290 MB to the node's SSD, then two stages of gathering."""

from __future__ import annotations

from functools import partial

from benchmarks.papers import marenostrum
from benchmarks.papers.figure import Bars, Figure, Lines, Replay
from benchmarks.papers.marenostrum import (
    BOUNDED,
    STATIC,
    STEERED,
    UNAWARE,
    UNBOUNDED,
    UNCONSTRAINED,
    Checkpoint,
    Way,
    about,
    epochs,
    learned,
    saved,
    steered,
    sweep,
)
from penstock.sim.simulation import Outcome
from penstock.sim.workloads import Workload

TITLE = "HMMER on 12 × 48 cores: homogeneous checkpoints"

FRAGMENTS = 48
#: MB
SIZE = 290
#: seconds of one search: about as long as 48 checkpoints on one SSD, where the gain is largest
SEARCH = 48.0
#: seconds of splitting and of each gathering task; small beside all else
OTHER = 1.0
#: I/O executors where there are no constraints, as published
UNCONSTRAINED_EXECUTORS = 500
#: seconds of a search for which the gain is shown
SEARCHES = (24.0, 48.0, 96.0, 192.0, 384.0, 768.0)


def program(checkpoint: Checkpoint, search: float = SEARCH) -> Workload:
    """The published graph."""
    workload = Workload()
    split = workload.task("split", seconds=OTHER)
    gathered = []
    for sequence in range(FRAGMENTS):
        found = []
        for database in range(FRAGMENTS):
            found.append(workload.task("hmmpfam", seconds=about(search), after=[split]))
            checkpoint(workload, "checkpointFrag", f"{sequence}-{database}", SIZE, found[-1])
        gathered.append(workload.task("gatherDB", seconds=OTHER, after=found))
    workload.task("gatherSeq", seconds=OTHER, after=gathered)
    return workload


def replay() -> Replay:
    outcomes = sweep(program, (UNAWARE, UNCONSTRAINED, *STATIC, UNBOUNDED, BOUNDED, STEERED), UNCONSTRAINED_EXECUTORS)
    curves, crossing = _sensitivity(outcomes)
    total = FRAGMENTS**2 * SIZE
    rates = {str(way): marenostrum.written(outcome, total) for way, outcome in outcomes.items() if way != UNAWARE}
    return Replay(
        [*_gains(outcomes), *_choices(outcomes), *_autos(outcomes, crossing), steered(outcomes), *_rates(rates)],
        [
            Bars("HMMER: total time", "s", {str(way): outcome.makespan for way, outcome in outcomes.items()}),
            Bars("HMMER: write rate of a busy SSD", "MB/s", rates),
            Lines("HMMER: time, by the length of a search", "seconds of a search", "% of unaware", curves, log_x=True),
        ],
        [
            f"fitted: a search takes {SEARCH:g} s; compute times and the time of the unaware run were not published",
            "the SSD is that of ssd.py, the same in all experiments on MareNostrum",
        ],
    )


def _gains(outcomes: dict[Way, Outcome]) -> list[Figure]:
    unaware = outcomes[UNAWARE]
    best = max(saved(outcomes[way], unaware) for way in STATIC)
    short = (
        f"{38 - best:.1f} points short. Four equal waves whose I/O just fits behind the next one save 3/8 = 37.5 %; "
        "more only by what 56 streams are faster than 48"
    )
    worse = outcomes[UNCONSTRAINED].makespan / unaware.makespan
    alone = outcomes[256].makespan / unaware.makespan
    return [
        Figure(
            "saved against unaware, best static", "> 38", best, "%", True, 38 < best < 42, "" if best > 38 else short
        ),
        Figure("time without constraints, against unaware", "much worse", worse, "×", False, worse > 1.5),
        Figure("time with 256 MB/s, against unaware", "very poor", alone, "×", False, alone > 2),
    ]


def _choices(outcomes: dict[Way, Outcome]) -> list[Figure]:
    best = min(STATIC, key=lambda way: outcomes[way].makespan)
    picks = {way: learned(outcomes[way]).get("checkpointFrag", 0.0) for way in (UNBOUNDED, BOUNDED)}
    tried = epochs(outcomes[UNBOUNDED], "checkpointFrag")
    counted = [epoch.registered for epoch in outcomes[UNBOUNDED].epochs]
    ends = counted[:-1] == [True] * (len(counted) - 1) and not counted[-1]
    return [
        Figure("best static constraint", 8, best, "MB/s", True, best == 8),
        Figure("unbounded search ends at", 8, picks[UNBOUNDED], "MB/s", True, picks[UNBOUNDED] == 8),
        Figure(
            "epochs of the unbounded search",
            "2 4 8 16, the last does not pay",
            " ".join(f"{value:g}" for value in tried) + (", the last does not pay" if ends else ""),
            "MB/s",
            True,
            tried == [2, 4, 8, 16] and ends,
        ),
        Figure("bounded search ends at", 8, picks[BOUNDED], "MB/s", True, picks[BOUNDED] == 8),
        _used(outcomes[UNBOUNDED], "unbounded", 421),
        _used(outcomes[BOUNDED], "bounded", 446),
    ]


def _used(outcome: Outcome, name: str, published: int) -> Figure:
    used = sum(epoch.tasks for epoch in outcome.epochs)
    return Figure(f"tasks that {name} learning uses", published, used, "tasks", False, used == published)


def _autos(outcomes: dict[Way, Outcome], crossing: float | None) -> list[Figure]:
    unaware, unbounded, bounded = (outcomes[way] for way in (UNAWARE, UNBOUNDED, BOUNDED))
    from_there = "at no length of a search tried" if crossing is None else f"with searches of {crossing:g} s and more"
    why = (
        "learning runs on one node while the other SSDs idle: 421 tasks take at least 7.5 × the time of 56, where the "
        f"unaware run needs 4 × that of 48 for all. Unbounded learning beats unaware {from_there}"
    )
    figures = []
    for name, outcome, note in (("unbounded", unbounded, why), ("bounded", bounded, "as above")):
        gain = saved(outcome, unaware)
        figures.append(
            Figure(f"saved against unaware, {name}", "> 0", gain, "%", False, gain > 0, "" if gain > 0 else note)
        )
    ahead = bounded.makespan - unbounded.makespan
    return [*figures, Figure("unbounded ahead of bounded by", "> 0", ahead, "s", False, ahead > 0)]


def _rates(rates: dict[str, float]) -> list[Figure]:
    best = max(map(str, STATIC), key=lambda way: rates[way])
    lowest = min(rates, key=lambda way: rates[way])
    above = rates["16"] / rates["8"]
    one_alone = (
        "one writer alone is slower still here: bounded learning, which ends with few writers, was published to take "
        "50 s (K-means) and 167 s (HMMER) longer than unbounded"
    )
    return [
        Figure("constraint with the highest write rate", "8", best, "MB/s", True, best == "8"),
        Figure("write rate under 16 MB/s, against 8", "slightly lower", above, "×", False, 0.8 < above < 1),
        Figure("way with the lowest write rate", UNCONSTRAINED, lowest, "", False, lowest == UNCONSTRAINED, one_alone),
    ]


def _sensitivity(outcomes: dict[Way, Outcome]) -> tuple[dict[str, list[tuple[float, float]]], float | None]:
    """Time of two ways by the length of a search, and from which length on unbounded learning pays."""
    shown: dict[str, Way] = {"static 8": 8, "unbounded": UNBOUNDED}
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in shown}
    for search in SEARCHES:
        # What was run already comes out the same.
        runs = outcomes if search == SEARCH else sweep(partial(program, search=search), (UNAWARE, *shown.values()))
        for name, way in shown.items():
            curves[name].append((search, 100 - saved(runs[way], runs[UNAWARE])))
    return curves, next((search for search, share in curves["unbounded"] if share < 100), None)
