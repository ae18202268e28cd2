"""How much longer a program with a learned ``storage_bw`` takes than with the best static one, in the simulator.

*Regret* is that time over that of the best static value, less one, in per cent; over all scenarios, in a first run and
in a second one that knows what the first has learned; and where four nodes with like devices learn together.
Each scenario has a row of its own, for the first run with 200 tasks; its other figures are in the details.
"""

import sys
from statistics import fmean

from benchmarks.row import Budget, Measurement, Row
from benchmarks.steering import on_nodes
from benchmarks.steering.scenarios import scenarios
from benchmarks.steering.simulated import best_static, plain, seconds
from benchmarks.workload import emit

#: tasks, and what the mean regret of the first run may be
BOUNDS = {50: 20, 200: 10, 1000: 4}
#: of the second run, in any scenario with so many tasks, over plain writers, and on a flat device
SECOND, OVER_PLAIN, FLAT = 3, 5, 1
MANY, WORST = 200, 35
#: what is compared with the best static value
WAYS = ("first run", "second run", "published", "plain writers")
#: with so many nodes: tasks of each, and what the mean regret of the first run may be, over some scenarios
NODES = 4
ON_NODES = {50: 15, 200: 6}
SOME = ("flat", "peak at 8", "best at 1", "best at 3, noisy", "cliff after 6", "six strangers come", "computes before")


def _row(name: str, figure: str, limit: float) -> Row:
    return Row(
        f"learned over best static: {name}",
        "%",
        Measurement(figure, "less", __name__, rounds=1, together=True),
        Budget(limit),
    )


ROWS = [
    *(_row(f"{tasks} tasks, first run", f"regret_first_{tasks}", limit) for tasks, limit in BOUNDS.items()),
    *(_row(f"{tasks} tasks, second run", f"regret_second_{tasks}", SECOND) for tasks in BOUNDS),
    _row(f"{MANY} tasks, worst scenario", "regret_worst", WORST),
    _row("over as many plain writers as cores, worst", "regret_over_plain", OVER_PLAIN),
    _row("flat device", "regret_flat", FLAT),
    *(_row(f"{NODES} nodes, {tasks} tasks each", f"regret_nodes_{tasks}", limit) for tasks, limit in ON_NODES.items()),
    *(_row(f"{MANY} tasks, {one.name}", f"{one.name}, {MANY} tasks, first run", WORST) for one in scenarios()),
]


def main() -> None:
    figures: dict[str, float] = {}
    over_plain, flat, worst = [], [], []
    for tasks in BOUNDS if "--quick" not in sys.argv else (50,):
        first, second, published, on_some = [], [], [], []
        for scenario in scenarios():
            best, streams = best_static(scenario, tasks)
            took, known = seconds(scenario, tasks, "auto")
            again, _ = seconds(scenario, tasks, "auto", known=known)
            epochs, _ = seconds(scenario, tasks, "auto", tuner="published")
            unaware = plain(scenario, tasks)
            regrets = [100 * (time / best - 1) for time in (took, again, epochs, unaware)]
            first.append(regrets[0])
            second.append(regrets[1])
            published.append(regrets[2])
            over_plain.append(100 * (took / unaware - 1))
            if scenario.name.startswith("flat"):
                flat.append(regrets[0])
            words = ", ".join(f"{way} {regret:.0f} %" for way, regret in zip(WAYS, regrets, strict=True))
            figures |= {f"{scenario.name}, {tasks} tasks, {way}": one for way, one in zip(WAYS, regrets, strict=True)}
            if tasks in ON_NODES and scenario.name in SOME:
                least = on_nodes.best_static(scenario, NODES, tasks, around=streams)
                on_some.append(100 * (on_nodes.seconds(scenario, NODES, tasks, "auto") / least - 1))
                words += f"; {NODES} nodes {on_some[-1]:.0f} %"
            print(f"{scenario.name}, {tasks} tasks, best {streams}: {words}", flush=True)
        figures |= {f"regret_first_{tasks}": fmean(first), f"regret_second_{tasks}": fmean(second)}
        figures[f"regret_published_{tasks}"] = fmean(published)
        if on_some:
            figures[f"regret_nodes_{tasks}"] = fmean(on_some)
        if tasks == MANY:
            worst = first
    figures |= {"regret_over_plain": max(over_plain), "regret_flat": max(flat)}
    emit(figures | ({"regret_worst": max(worst)} if worst else {}))


if __name__ == "__main__":
    main()
