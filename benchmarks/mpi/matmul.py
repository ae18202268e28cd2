"""Blocked matrix product whose blocks are written as text, by a sequential task or by the ranks of an MPI task.

To write numbers as text is work, and the last blocks are written when nothing else is left to do: that is what ranks
can share.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock import FILE_OUT, SCATTER, mpi, task

__all__ = ["run", "write_alone", "write_together"]

RANKS = 2


@task
def random_block(seed: list[int], size: int) -> Any:
    return np.random.default_rng(seed).standard_normal((size, size))


@task
def product_of(row: list[Any], column: list[Any]) -> Any:
    return sum(a @ b for a, b in zip(row, column, strict=True))


def as_text(rows: Any) -> bytes:
    """Rows of equal length in bytes, so that every rank knows where its own begin."""
    return b"".join(b"".join(b"%24.15e" % number for number in row) + b"\n" for row in rows.tolist())


@task(path=FILE_OUT)
def write_alone(path: str, part: Any) -> None:
    Path(path).write_bytes(as_text(part))


@mpi(processes=RANKS)
@task(path=FILE_OUT, part=SCATTER)
def write_together(path: str, part: Any) -> None:
    from mpi4py import MPI

    comm = mpi.comm()
    text = as_text(part)
    before = comm.exscan(len(text)) or 0
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY)
    file.Write_at_all(before, text)
    file.Close()


def run(write: Any, blocks: int, size: int) -> float:
    """Seconds from the first call to the last block in its file, which is checked."""
    began = time.perf_counter()
    a = [[random_block([1, i, j], size) for j in range(blocks)] for i in range(blocks)]
    b = [[random_block([2, i, j], size) for j in range(blocks)] for i in range(blocks)]
    with tempfile.TemporaryDirectory() as folder:
        last = Path(folder) / "last"
        for i in range(blocks):
            for j in range(blocks):
                final = i == j == blocks - 1
                product = product_of(a[i], [row[j] for row in b])
                write(str(last if final else Path(folder) / f"{i}-{j}"), product)
        penstock.barrier()
        seconds = time.perf_counter() - began
        if not np.allclose(np.loadtxt(last), penstock.wait_on(product)):
            raise AssertionError("the last block is not what was written")
    return seconds
