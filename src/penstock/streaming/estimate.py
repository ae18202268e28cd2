"""What streaming would gain: a model of two steps, one writing files that the other reads.

It knows the number of files, their sizes, the bandwidths and the time for computing, and nothing of a machine. Batch
and ideal overlap bound what can be reached; between them lies what whole files, or records, give.
"""

from __future__ import annotations

import math

from msgspec import Struct

from penstock.errors import ConfigError

__all__ = ["Estimate", "Pipeline", "estimate"]


class Pipeline(Struct, frozen=True):
    """A step that writes files, and one that reads them. Bytes, bytes per second, seconds."""

    files: int
    #: of each file, by the writer and by the reader
    written: float
    read: float
    write_rate: float
    read_rate: float
    #: computing, in all, not overlapped with a program's own input and output
    writer_compute: float = 0.0
    reader_compute: float = 0.0
    #: what the reader asks for at a time
    record: float = 1 << 20


class Estimate(Struct, frozen=True):
    """Seconds."""

    #: input and output alone: one step after the other, overlapped without any loss, and file by file
    io_batch: float
    io_ideal: float
    io_by_file: float
    compute: float
    #: with computing: one step after the other; files handed over when closed; records as they are written
    batch: float
    by_file: float
    by_record: float
    #: no schedule is quicker: the longer of the two steps
    ideal: float

    def gain(self, streamed: float) -> float:
        """The part of the batch time that is saved."""
        return 1 - streamed / self.batch if self.batch else 0.0

    @property
    def io_gain(self) -> float:
        """Of input and output alone, file by file."""
        return 1 - self.io_by_file / self.io_batch if self.io_batch else 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """What a batch run takes if computing and input and output hide each other inside each program, or do not."""
        return max(self.compute, self.io_batch), self.compute + self.io_batch


def estimate(pipeline: Pipeline) -> Estimate:
    """The times of a pipeline; ConfigError for one that cannot be."""
    _check(pipeline)
    count = pipeline.files
    write = pipeline.written / pipeline.write_rate
    read = pipeline.read / pipeline.read_rate
    writer = write + pipeline.writer_compute / count
    reader = read + pipeline.reader_compute / count
    parts = max(1, math.ceil(pipeline.written / pipeline.record))
    return Estimate(
        io_batch=count * (write + read),
        io_ideal=max(count * write, count * read),
        io_by_file=_handed_over(count, write, read),
        compute=pipeline.writer_compute + pipeline.reader_compute,
        batch=count * (writer + reader),
        by_file=_handed_over(count, writer, reader),
        by_record=_handed_over(count * parts, writer / parts, reader / parts),
        ideal=max(count * writer, count * reader),
    )


def _handed_over(pieces: int, make: float, use: float) -> float:
    """The time of two stages, each doing one piece after the other: the first fills the pipe, the last drains it."""
    return make + (pieces - 1) * max(make, use) + use


def _check(pipeline: Pipeline) -> None:
    if pipeline.files < 1:
        raise ConfigError(f"expected at least one file, not {pipeline.files}")
    for name in ("write_rate", "read_rate", "record"):
        if not (value := getattr(pipeline, name)) > 0:
            raise ConfigError(f"the {name.replace('_', ' ')} must be above zero, not {value:g}")
    for name in ("written", "read", "writer_compute", "reader_compute"):
        if not (value := getattr(pipeline, name)) >= 0:
            raise ConfigError(f"{name.replace('_', ' ')} cannot be below zero: {value:g}")
