"""The workloads of the published evaluation, scaled: how many files, how large, read and written by how many.

Every function makes a `Flow`. `pace` is compute in microseconds per MiB on each side; `programs` the folder with the
compiled programs.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.streaming.flow import CLOSE_NO_UPDATE, Flow, Step, Stream

__all__ = [
    "genomes",
    "many_to_one",
    "mapreduce",
    "one_to_many",
    "one_to_one",
    "partitions",
    "weather",
]

MIB = 1 << 20


def one_to_one(
    programs: Path,
    files: int,
    size: int,
    block: int = MIB,
    pace: float = 0.0,
    rule: tuple[str, str] = CLOSE_NO_UPDATE,
) -> Flow:
    """One program writes files, one reads them in order."""
    return Flow(
        "one-to-one",
        (
            Step(
                "write",
                (f"{programs}/produce file 0 {files} {size} {block} {pace}",),
                output=("file*",),
                streams=(Stream(("file*",), *rule),),
            ),
            Step(
                "read",
                (f"{programs}/consume file 0 {files} {block} {pace} sum",),
                input=("file*",),
                output=("sum",),
            ),
        ),
        ("sum",),
    )


def one_to_many(programs: Path, files: int, size: int, readers: int, rule: tuple[str, str] = CLOSE_NO_UPDATE) -> Flow:
    """One program writes files, several read all of them."""
    write = Step(
        "write",
        (f"{programs}/produce file 0 {files} {size} {MIB} 0",),
        output=("file*",),
        streams=(Stream(("file*",), *rule),),
    )
    lines = tuple(f"{programs}/consume file 0 {files} {MIB} 0 sum{number}" for number in range(readers))
    read = Step("read", lines, input=("file*",), output=("sum*",))
    return Flow("one-to-many", (write, read), ("sum*",))


def partitions(programs: Path, size: int, writers: int, readers: int, pace: float = 0.0) -> Flow:
    """One sparse file, written in disjoint parts at once and read in others."""

    def lines(verb: str, count: int) -> tuple[str, ...]:
        part = size // count
        return tuple(
            f"{programs}/partition {verb} large {number * part} {part} {MIB} {pace} sum{number}"
            for number in range(count)
        )

    rule = Stream(("large",), "on_termination", "no_update")
    return Flow(
        "partitions",
        (
            Step("write", lines("write", writers), output=("large",), streams=(rule,)),
            Step("read", lines("read", readers), input=("large",), output=("sum*",)),
        ),
        ("sum*",),
    )


def many_to_one(programs: Path, writers: int, files: int, size: int, block: int = MIB, pace: float = 0.0) -> Flow:
    """Several programs write their share of the files, one reads all in order."""
    each = files // writers
    lines = tuple(f"{programs}/produce file {number * each} {each} {size} {block} {pace}" for number in range(writers))
    return Flow(
        "many-to-one",
        (
            Step("write", lines, output=("file*",), streams=(Stream(("file*",)),)),
            Step("read", (f"{programs}/consume file 0 {files} {block} {pace} sum",), ("file*",), ("sum",)),
        ),
        ("sum",),
    )


def mapreduce(programs: Path, chunks: int, size: int, mappers: int, reducers: int, pace: float) -> Flow:
    """Split, map in several processes, merge."""
    each = chunks // mappers
    maps = tuple(
        f"{programs}/mapreduce map chunk {number * each} {each} {pace} part {reducers}" for number in range(mappers)
    )
    return Flow(
        "mapreduce",
        (
            Step(
                "split",
                (f"{programs}/mapreduce split chunk {chunks} {size} {pace}",),
                output=("chunk*",),
                streams=(Stream(("chunk*",)),),
            ),
            Step("map", maps, ("chunk*",), ("part*",), (Stream(("part*",)),)),
            Step(
                "merge",
                (f"{programs}/mapreduce merge part {mappers} {reducers} {each} counts",),
                ("part*",),
                ("counts",),
            ),
        ),
        ("counts",),
    )


def genomes(programs: Path, rows: int, people: int, processes: int, pace: float) -> Flow:
    """Rows of variants, folders of small files, their merge, a filter beside it, two analyses. `pace` is per row."""
    run = f"{programs}/genomes"
    individuals = tuple(
        f"{run} individuals data chr1-{number} {number} {processes} {people} {pace}" for number in range(processes)
    )
    full = f"n_files:{people}"
    analysed = ("chr1n", "chr1n/*", "sifted")
    per_person = pace * rows / people / 8
    return Flow(
        "genomes",
        (
            Step(
                "download", (f"{run} data data {rows} {people} {pace}",), output=("data",), streams=(Stream(("data",)),)
            ),
            Step(
                "individuals",
                individuals,
                ("data",),
                ("chr1-*", "chr1-*/*"),
                (Stream(("chr1-*",), full, directories=True), Stream(("chr1-*/*",))),
            ),
            Step(
                "merge",
                (f"{run} merge chr1- {processes} {people} chr1n",),
                ("chr1-*", "chr1-*/*"),
                ("chr1n", "chr1n/*"),
                (Stream(("chr1n",), full, directories=True), Stream(("chr1n/*",))),
            ),
            Step("sifting", (f"{run} sifting data sifted {pace / 2}",), ("data",), ("sifted",), (Stream(("sifted",)),)),
            Step("overlap", (f"{run} overlap chr1n sifted {people} overlap {per_person}",), analysed, ("overlap",)),
            Step(
                "frequency",
                (f"{run} frequency chr1n sifted {people} frequency {per_person}",),
                analysed,
                ("frequency",),
            ),
        ),
        ("overlap", "frequency", "chr1n/*"),
    )


def weather(programs: Path, hours: int, size: int, simulating: float, drawing: float) -> Flow:
    """A file for every hour, drawn as soon as it is closed. Compute in microseconds per hour and per picture."""
    return Flow(
        "weather",
        (
            Step(
                "simulate",
                (f"{programs}/weather simulate out {hours} {size} {simulating}",),
                output=("out", "out/wrfout_*"),
                streams=(
                    Stream(("out/wrfout_*",), "on_close", "update"),
                    Stream(("out",), "on_termination", "no_update", directories=True),
                ),
            ),
            Step(
                "draw", (f"{programs}/weather draw out pictures {drawing}",), ("out", "out/wrfout_*"), ("pictures/*",)
            ),
        ),
        ("pictures/*",),
        ("out", "pictures"),
    )
