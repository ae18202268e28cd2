"""Domain decomposition on two units: sub-domains solved while the generator makes the next, against all at its end."""

import sys
import time
from typing import Any

import benchmarks.eager  # noqa: F401  # makes the examples importable
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "decomposition_saved"
TURNS = 3

ROWS = [
    Row("domain decomposition: saved by early outputs", "%", Measurement(FIGURE, "more", __name__), Budget(30)),
]


def main() -> None:
    from domain_decomposition import cut, equations, solve, worst_error

    import penstock

    quick = "--quick" in sys.argv
    side, parts = (150, 36) if quick else (600, 576)

    @penstock.task(returns=parts)
    def early(side: int) -> None:
        owner = cut(side, parts)
        for part in range(parts):
            penstock.ready_value(equations(owner, part), part)

    @penstock.task(returns=parts)
    def at_the_end(side: int) -> Any:
        owner = cut(side, parts)
        return [equations(owner, part) for part in range(parts)]

    def seconds(generate: Any) -> float:
        began = time.perf_counter()
        solved = penstock.wait_on([solve(domain) for domain in generate(side)])
        took = time.perf_counter() - began
        error, points = worst_error(side, solved)
        assert error < 1e-6, error
        assert points == (side - 2) ** 2, points
        return took

    with penstock.Runtime(cpus=2):
        for generate in (early, at_the_end):
            seconds(generate)
        turns = [(seconds(early), seconds(at_the_end)) for _ in range(1 if quick else TURNS)]
    eager, lazy = (min(times) for times in zip(*turns, strict=True))
    emit({FIGURE: 100 * (1 - eager / lazy), "early_s": eager, "at_end_s": lazy})


if __name__ == "__main__":
    main()
