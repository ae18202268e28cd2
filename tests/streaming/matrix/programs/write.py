"""Writes in one of several ways that Python programs have: write.py OUT text|binary|path|copy|numpy|append [FROM]"""

import os
import shutil
import sys
from pathlib import Path

out, how, *source = sys.argv[1:]
lines = [f"{number} from Python, {how}\n" for number in range(1500)]
if how == "text":
    with open(out, "w") as file:
        for number, line in enumerate(lines):
            file.write(line)
            if number % 400 == 0:
                file.flush()
elif how == "binary":
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for start in range(0, len(lines), 100):
        os.write(descriptor, "".join(lines[start : start + 100]).encode())
    os.close(descriptor)
elif how == "path":
    Path(out).write_text("".join(lines))
elif how == "copy":
    shutil.copyfile(source[0], out)
elif how == "append":
    for start in range(0, len(lines), 500):
        with open(out, "a") as file:
            file.writelines(lines[start : start + 500])
elif how == "numpy":
    import numpy

    numpy.save(out, numpy.arange(20000.0).reshape(100, 200) / 7)
