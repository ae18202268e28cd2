"""Writes a file in two halves and tells of every moment: paced_write.py DATA FLAG GATES update|no_update

Moments are gates, empty files in GATES. It waits for ``write`` before it opens DATA and for ``go`` before the second
half. With update, it comes back to the first bytes at the end. ``written`` is made just before DATA is closed. FLAG
is a second, small file, written after that. Then it makes ``closed``, waits for ``linger``, and makes ``ending`` as its
last act.
"""

import sys
import time
from pathlib import Path

data, flag, gates, fire = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]


def wait_for(gate: str) -> None:
    while not (gates / gate).exists():
        time.sleep(0.002)


wait_for("write")
with open(data, "w+b", buffering=0) as file:
    file.write(b"first  " + b"1" * 9000)
    (gates / "half").touch()
    wait_for("go")
    file.write(b"second " + b"2" * 9000)
    if fire == "update":
        file.seek(0)
        file.write(b"changed")
    (gates / "written").touch()
with open(flag, "w") as file:
    file.write("done\n")
(gates / "closed").touch()
wait_for("linger")
(gates / "ending").touch()
