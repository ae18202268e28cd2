"""Reads a file and notes which moments of its writer it saw before: paced_read.py DATA RESULT GATES

The bytes go to RESULT; ``first`` and ``end`` in GATES list the gates that were open at the first bytes and at the end.
"""

import os
import sys
import time
from pathlib import Path

data, result, gates = sys.argv[1], sys.argv[2], Path(sys.argv[3])
while not (gates / "read").exists():
    time.sleep(0.002)
(gates / "reading").touch()
descriptor = os.open(data, os.O_RDONLY)
parts = [os.read(descriptor, 5000)]
(gates / "first").write_text(" ".join(sorted(gate.name for gate in gates.iterdir())))
(gates / "got").touch()
while parts[-1]:
    parts.append(os.read(descriptor, 5000))
(gates / "end").write_text(" ".join(sorted(gate.name for gate in gates.iterdir())))
(gates / "ended").touch()
Path(result).write_bytes(b"".join(parts))
