"""Blocked matrix product with the result in files: sequential tasks multiply, MPI tasks write the blocks.

The ranks of a writing task split a block by rows, and write their parts into its file together.
"""

import tempfile
from pathlib import Path

import numpy as np

from penstock import FILE_OUT, SCATTER, barrier, mpi, task, wait_on

BLOCKS, SIZE = 3, 128


@task
def random_block(seed):
    return np.random.default_rng(seed).standard_normal((SIZE, SIZE))


@task
def product_of(row, column):
    return sum(a @ b for a, b in zip(row, column, strict=True))


@mpi(processes=2)
@task(path=FILE_OUT, part=SCATTER)
def write_block(path, part):
    from mpi4py import MPI

    # part is what this rank has of the block's rows: a view of the shared memory in which the block lies.
    comm = mpi.comm()
    rows_before = comm.exscan(len(part)) or 0
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY)
    file.Write_at_all(rows_before * SIZE * 8, part)
    file.Close()


A = [[random_block([1, i, j]) for j in range(BLOCKS)] for i in range(BLOCKS)]
B = [[random_block([2, i, j]) for j in range(BLOCKS)] for i in range(BLOCKS)]

with tempfile.TemporaryDirectory() as folder:
    files = [[Path(folder) / f"block-{i}-{j}" for j in range(BLOCKS)] for i in range(BLOCKS)]
    for i in range(BLOCKS):
        for j in range(BLOCKS):
            write_block(files[i][j], product_of(A[i], [B[k][j] for k in range(BLOCKS)]))
    barrier()
    written = np.block([[np.fromfile(file).reshape(SIZE, SIZE) for file in row] for row in files])

a, b = (np.block(wait_on(matrix)) for matrix in (A, B))
print(f"{BLOCKS * BLOCKS} blocks of {SIZE}×{SIZE}, each written by 2 ranks")
print(f"the files hold A @ B: {np.allclose(written, a @ b)}")
