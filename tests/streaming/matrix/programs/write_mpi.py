"""Ranks write one file together by MPI-IO, each the rows that are its own: write_mpi.py OUT"""

import sys

import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rows = numpy.array_split(numpy.arange(400), comm.size)[comm.rank]
file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_WRONLY)
file.Write_at_all(int(rows[0]) * 50 * 8, rows[:, None] * 1000.0 + numpy.arange(50))
file.Close()
