"""One file written by several ranks at once: each computes a band of a field and writes it to its place by MPI-IO.

HDF5 files are written in the same way where h5py was built for MPI; its wheels are not.
"""

import tempfile
from pathlib import Path

import numpy as np

from penstock import FILE_IN, FILE_OUT, mpi, task, wait_on

ROWS, COLUMNS = 1001, 400


def height(rows):
    x = np.linspace(0, 3, COLUMNS)
    return np.sin(x[None, :]) * np.cos(rows[:, None] / 100)


@mpi(processes=2)
@task(path=FILE_OUT)
def write_field(path):
    from mpi4py import MPI

    # Every rank gets the same path. The file takes its name when all of them have returned.
    comm = mpi.comm()
    rows = np.array_split(np.arange(ROWS), comm.size)[comm.rank]
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY)
    file.Write_at_all(int(rows[0]) * COLUMNS * 8, height(rows))
    file.Close()
    return len(rows)


@task(path=FILE_IN)
def highest(path):
    field = np.memmap(path, dtype=float, shape=(ROWS, COLUMNS), mode="r")
    return float(field.max())


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "field.bin"
    rows = write_field(path)
    top = highest(path)  # which waits for the file
    print(f"rows written by each rank: {wait_on(rows)}")
    print(f"highest point: {wait_on(top):.6f}")
    field = np.fromfile(path).reshape(ROWS, COLUMNS)
    print(f"the file is as computed here: {np.array_equal(field, height(np.arange(ROWS)))}")
