"""Domain decomposition on two units: sub-domains solved while the generator makes the next, against all at its end.

One generator, since generators are few beside the units that solve; on two units it leaves one. If it computes for G
seconds and the solvers for C, late outputs take G + C/2 and early ones at least the larger of G and (G + C)/2. So at
most a third can be saved, and that where G and C are equal: sub-domains have the size at which they are.
"""

import sys
import time
from typing import Any

import benchmarks.eager  # noqa: F401  # makes the examples importable
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "decomposition_saved"
TURNS = 4

ROWS = [
    Row(
        "domain decomposition: saved by early outputs", "%", Measurement(FIGURE, "more", __name__, rounds=1), Budget(30)
    ),
]


def main() -> None:
    from domain_decomposition import cut

    import penstock
    from benchmarks.eager import elements

    quick = "--quick" in sys.argv
    side, parts = (150, 9) if quick else (480, 100)

    @penstock.task(returns=parts)
    def early(side: int) -> None:
        places = elements.mesh(side)
        for part, points in enumerate(elements.cells(cut(side, parts))):
            penstock.ready_value(elements.sub_domain(places, points), part)

    @penstock.task(returns=parts)
    def at_the_end(side: int) -> Any:
        places = elements.mesh(side)
        return [elements.sub_domain(places, points) for points in elements.cells(cut(side, parts))]

    solve = penstock.task(returns=1)(elements.solve)

    def seconds(generate: Any) -> float:
        began = time.perf_counter()
        solved = penstock.wait_on([solve(domain) for domain in generate(side)])
        took = time.perf_counter() - began
        assert sum(len(values) for _, values in solved) == (side - 2) ** 2
        error = max(abs(values - elements.exact(places)).max() for places, values in solved)
        assert error < 1e-6, error
        return took

    with penstock.Runtime(cpus=2):
        for generate in (early, at_the_end):
            seconds(generate)
        turns = [(seconds(early), seconds(at_the_end)) for _ in range(1 if quick else TURNS)]
    eager, lazy = (min(times) for times in zip(*turns, strict=True))
    emit({FIGURE: 100 * (1 - eager / lazy), "early_s": eager, "at_end_s": lazy})


if __name__ == "__main__":
    main()
