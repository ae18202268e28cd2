"""`python -m tests.golden.decisions [NAME…]`: record runs anew, all or those named."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.golden.decisions.recorded import RECORDED, RUNS


def main() -> None:
    names = sys.argv[1:] or sorted(RECORDED)
    if unknown := [name for name in names if name not in RECORDED]:
        sys.exit(f"no such run: {', '.join(unknown)}; there are: {', '.join(sorted(RECORDED))}")
    for name in names:
        test, which = RECORDED[name]
        with tempfile.TemporaryDirectory() as folder:
            plugin = ("-p", "tests.golden.decisions.recorder", "--decisions", f"{folder}/run.jsonl")
            subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "", *plugin, test], check=True)
            made = Path(folder, "run.jsonl" if which == 1 else f"run-{which}.jsonl")
            (RUNS / f"{name}.jsonl").write_text(made.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()
