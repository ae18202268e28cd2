"""1 GB through a reader that waits on another node, as a part of the rate of `sendfile` on the same link, in turns.

Once by loopback, where nothing has to be waited for: what counts is how little of two cores six processes need. And
once over a link of 1 Gbit/s, as between two machines: the loopback of a network namespace with a brake.
"""

import json
import statistics
import subprocess
import sys

from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs
from benchmarks.streaming.two_nodes import by_nodes, by_sendfile
from benchmarks.workload import emit

TURNS, TURNS_ON_LINK = 5, 2
SIZE = 1 << 30
_LINK = "tc qdisc add dev lo root tbf rate 1gbit burst 1mb latency 100ms"
_INSIDE = "--on-this-link"

ROWS = [
    Row(
        f"two nodes: 1 GB through a waiting reader, of sendfile's rate, {link}",
        "%",
        Measurement(figure, "more", __name__, rounds=1, together=True),
        Budget(80),
    )
    for figure, link in (("stream_nodes", "loopback"), ("stream_nodes_link", "1 Gbit/s"))
]


def main() -> None:
    quick = "--quick" in sys.argv
    if _INSIDE in sys.argv:
        emit(_seconds(quick, TURNS_ON_LINK))
        return
    here, there = _seconds(quick, TURNS), _seconds_on_link(quick)
    figures = {"stream_nodes": _part(here), **here}
    if there is not None:
        figures |= {"stream_nodes_link": _part(there), **{f"{name}_on_link": took for name, took in there.items()}}
    emit(figures)


def _part(seconds: dict[str, float]) -> float:
    return 100 * seconds["sendfile_s"] / seconds["nodes_s"]


def _seconds(quick: bool, turns: int) -> dict[str, float]:
    size = SIZE // 10 if quick else SIZE
    size -= size % (1 << 20)
    programs = runs.programs()
    nodes, plain = list[float](), list[float]()
    for _ in range(1 if quick else turns):
        with runs.scratch() as folder:
            plain.append(by_sendfile(folder, size))
        with runs.scratch() as folder:
            nodes.append(by_nodes(folder, programs, size))
    return {"nodes_s": statistics.median(nodes), "sendfile_s": statistics.median(plain)}


def _seconds_on_link(quick: bool) -> dict[str, float] | None:
    """None where the machine does not allow such a link."""
    script = f'ip link set lo up && {_LINK} && exec "$@"'
    again = [sys.executable, "-m", "benchmarks.rows.streaming_nodes", _INSIDE, *(["--quick"] if quick else [])]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "sh", *again], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"no link of 1 Gbit/s can be made here: {done.stderr.strip()[-200:]}")
        return None
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


if __name__ == "__main__":
    main()
