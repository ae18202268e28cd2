"""1 GB through a reader that waits on another node, as a part of the rate of `sendfile` on the same link, in turns."""

import statistics
import sys

from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs
from benchmarks.streaming.two_nodes import by_nodes, by_sendfile
from benchmarks.workload import emit

TURNS = 5
SIZE = 1 << 30

ROWS = [
    Row(
        "two nodes: 1 GB through a waiting reader, of sendfile's rate",
        "%",
        Measurement("stream_nodes", "more", __name__, rounds=1, together=True),
        Budget(80),
    )
]


def main() -> None:
    quick = "--quick" in sys.argv
    size = SIZE // 10 if quick else SIZE
    size -= size % (1 << 20)
    programs = runs.programs()
    nodes, plain = list[float](), list[float]()
    for _ in range(1 if quick else TURNS):
        with runs.scratch() as folder:
            plain.append(by_sendfile(folder, size))
        with runs.scratch() as folder:
            nodes.append(by_nodes(folder, programs, size))
    figure = 100 * statistics.median(plain) / statistics.median(nodes)
    emit({"stream_nodes": figure, "nodes_s": statistics.median(nodes), "sendfile_s": statistics.median(plain)})


if __name__ == "__main__":
    main()
