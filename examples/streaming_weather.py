"""Two programs that exchange files, run as they are: one after the other, then streamed, with the same pictures."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKFLOW = Path(__file__).with_suffix("")
PENSTOCK = [sys.executable, "-m", "penstock.cli", "stream", "run", "weather.toml"]
# The steps say `python`: the one that runs this program.
ENVIRONMENT = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def run(folder, *words):
    """The pictures and a digest of them; and whether the forecast was at work when the first one was there."""
    shutil.copytree(WORKFLOW, folder)
    for name in ("hours", "pictures"):
        (folder / name).mkdir()
    meanwhile = None
    process = subprocess.Popen([*PENSTOCK, *words], cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        if meanwhile is None and any((folder / "pictures").iterdir()):
            meanwhile = not (folder / "hours" / "hour-5.txt").exists()
        time.sleep(0.01)
    pictures = sorted((folder / "pictures").iterdir())
    digest = hashlib.sha256(b"".join(picture.read_bytes() for picture in pictures)).hexdigest()
    return [picture.name for picture in pictures], digest, meanwhile


with tempfile.TemporaryDirectory() as scratch:
    names, expected, meanwhile = run(Path(scratch) / "batch", "--batch")
    print(f"pictures: {', '.join(names)}")
    print(f"one after the other, the first one is there before the last hour is computed: {meanwhile}")
    names, found, meanwhile = run(Path(scratch) / "streamed")
    print(f"streamed, the first one is there before the last hour is computed: {meanwhile}")
    print(f"streamed, the pictures are the same: {found == expected}")
