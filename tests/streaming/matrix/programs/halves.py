"""Writes 1 MiB of lines, waits for a file that tells it to go on, and writes as much again: halves.py DATA GATE"""

import os
import sys
import time

data, gate = sys.argv[1:]
lines = "".join(f"{number} line that is read while others are not yet written\n" for number in range(20_000))
with open(data, "w") as file:
    file.write(lines)
    file.flush()
    while not os.path.exists(gate):
        time.sleep(0.005)
    file.write(lines.upper())
