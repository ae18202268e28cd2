"""MapReduce, a genomes-like and a weather-like workflow, with compute in their steps: time saved against batch.

Batch starts a step when all producers of its inputs have ended, and independent steps at once, so it uses both cores
where it can. Of the weather-like workflow also: how much earlier its first picture is there.
"""

import sys

from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs, shapes
from benchmarks.streaming.flow import Flow
from benchmarks.workload import emit

MIB = 1 << 20
TURNS = 5


def _row(name: str, unit: str, figure: str, limit: float) -> Row:
    return Row(name, unit, Measurement(figure, "more", __name__, rounds=1, together=True), Budget(limit))


ROWS = [
    _row("MapReduce: saved by streaming", "%", "stream_mapreduce_saved", 20),
    _row("genomes-like: saved by streaming", "%", "stream_genomes_saved", 20),
    _row("weather-like: saved by streaming", "%", "stream_weather_saved", 20),
    _row("weather-like: first picture earlier", "×", "stream_weather_first", 5),
]


def flows() -> dict[str, Flow]:
    bin = runs.programs()
    return {
        "mapreduce": shapes.mapreduce(bin, 20, 2 * MIB, mappers=4, reducers=3, pace=30_000),
        "genomes": shapes.genomes(bin, 10_000, 500, processes=4, pace=100),
        "weather": shapes.weather(bin, 30, MIB, simulating=50_000, drawing=40_000),
    }


def main() -> None:
    turns = 1 if "--quick" in sys.argv else TURNS
    figures: dict[str, float] = {}
    for name, flow in flows().items():
        streamed, batch = runs.in_turns(flow, turns)
        for way, ran_so in (("streamed", streamed), ("batch", batch)):
            figures[f"{name}_{way}_s"] = runs.trimmed([ran.seconds for ran in ran_so])
            figures[f"{name}_{way}_first_s"] = runs.trimmed([ran.first for ran in ran_so])
        figures[f"stream_{name}_saved"] = 100 * (1 - figures[f"{name}_streamed_s"] / figures[f"{name}_batch_s"])
    figures["stream_weather_first"] = figures["weather_batch_first_s"] / figures["weather_streamed_first_s"]
    emit(figures)


if __name__ == "__main__":
    main()
