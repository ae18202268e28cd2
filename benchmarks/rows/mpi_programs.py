"""Two programs whose slowest task is sequential, or an MPI task of two ranks, in turns: how much time that saves."""

import statistics
import sys
import tempfile

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

TURNS = 5


def _measurement(figure: str) -> Measurement:
    return Measurement(figure, "more", __name__, rounds=1, together=True)


ROWS = [
    Row("MPI over sequential: one block written", "×", _measurement("mpi_write_gain"), Budget(1.3)),
    Row("MPI over sequential: product, written", "×", _measurement("mpi_matmul_gain"), Budget(0.8)),
    Row("MPI over sequential: web archive", "×", _measurement("mpi_web_gain"), Budget(1.1)),
]


def main() -> None:
    import penstock
    from benchmarks.mpi import matmul, web

    quick = "--quick" in sys.argv
    size, pages = (200, 200) if quick else (700, 2_000)
    times: dict[str, list[float]] = {}
    with penstock.Runtime(cpus=2), tempfile.TemporaryDirectory() as folder:
        archive = f"{folder}/pages.warc.gz"
        offsets = web.write_archive(archive, pages, 400)
        answers = []
        forms = (("alone", matmul.write_alone, web.read_alone), ("together", matmul.write_together, web.read_together))
        for _ in range(TURNS):
            for name, write, read in forms:
                matmul.run(write, 1, 8)  # so that the world is warm, as in the middle of a program
                times.setdefault(f"write_{name}", []).append(matmul.run(write, 1, size))
                times.setdefault(f"matmul_{name}", []).append(matmul.run(write, 3, size))
                seconds, best = web.run(read, archive, offsets)
                times.setdefault(f"web_{name}", []).append(seconds)
                answers.append(best)
        if any(answer != answers[0] for answer in answers):
            raise AssertionError("the programs do not agree")
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    programs = ("write", "matmul", "web")
    gains = {f"mpi_{what}_gain": medians[f"{what}_alone"] / medians[f"{what}_together"] for what in programs}
    emit({**gains, **{f"{name}_s": seconds for name, seconds in medians.items()}})


if __name__ == "__main__":
    main()
