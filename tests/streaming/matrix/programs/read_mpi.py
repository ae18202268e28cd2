"""Ranks read one file together by MPI-IO and add up what they find: read_mpi.py IN OUT"""

import sys

import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_RDONLY)
size = file.Get_size()
ends = [size * rank // comm.size for rank in range(comm.size + 1)]
part = numpy.empty(ends[comm.rank + 1] - ends[comm.rank], dtype="u1")
file.Read_at_all(ends[comm.rank], part)
file.Close()
total = comm.reduce(int(part.sum()), root=0)
if comm.rank == 0:
    with open(sys.argv[2], "w") as out:
        out.write(f"{size} bytes, sum {total}\n")
