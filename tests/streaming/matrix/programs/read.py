"""Reads in one of several ways that Python programs have: read.py IN OUT lines|blocks|mapped|numpy|whole"""

import mmap
import os
import sys
from pathlib import Path

path, out, how = sys.argv[1:]
if how == "lines":
    with open(path) as file:
        found = "".join(f"{number}: {line}" for number, line in enumerate(file))
elif how == "blocks":
    descriptor, found = os.open(path, os.O_RDONLY), ""
    while block := os.read(descriptor, 1000):
        found += block.decode()
    found += f"\n{os.fstat(descriptor).st_size} {os.path.getsize(path)} {os.path.exists(path)}\n"
elif how == "mapped":
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        found = f"{len(view)} {view.find(b'word36')} {view[-20:]!r}\n"
elif how == "whole":
    found = Path(path).read_text()
else:
    import numpy

    values = numpy.load(path)
    found = f"{values.shape} {values.sum()} {values[-1, -1]}\n"
with open(out, "w") as file:
    file.write(found)
