"""Programs that give results of the first half of a file while its second half is not written.

Many ask for the file's size when they open it, without needing it; `sizes = "so_far"` lets these stream too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.streaming.matrix.rig import SOURCES, programs_folder, stream_run

LINES = {
    "cat": "cat {data} > {out}",
    "redirection": "cat < {data} > {out}",
    "dd": "dd if={data} of={out} bs=10k status=none",
    "tee": "tee {out} < {data} > /dev/null",
    "pipeline": "cat {data} | tr a-z A-Z > {out}",
    "split": "split -l 5000 {data} {out}.part; cat {out}.part* > {out}",
    "awk": "awk '{{ print $1 }}' {data} > {out}",
    "sed": "sed s/line/word/ {data} > {out}",
    "grep": "grep -ai line {data} > {out}",
    "perl": "perl -pe 's/line/word/' {data} > {out}",
    "bash": "while read -r n _; do [ $((n % 100)) = 0 ] && echo $n; done < {data} > {out} || true",
    "python": f"{sys.executable} -c 'import sys; [print(l, end=\"\") for l in open(sys.argv[1])]' {{data}} > {{out}}",
    "c-stdio": "{bin}/read_stdio {data} {out}",
    "c-raw": "{bin}/read_raw {out} {data}",
    "node": """node -e 'require("fs").createReadStream("{data}").pipe(process.stdout)' > {out}""",
}
NEEDS = {"c-stdio": "gcc", "c-raw": "gcc"}
# They never ask for the size.
WITHOUT_SIZES = ("c-stdio", "c-raw", "bash", "dd")


def there() -> list[str]:
    return [
        name for name in LINES if shutil.which(NEEDS.get(name, name)) or name in ("redirection", "pipeline", "python")
    ]


def line(name: str, data: str) -> str:
    return LINES[name].format(data=data, out=f"{name}.out", bin=programs_folder())


def workflow(names: list[str], gates: Path, options: str) -> str:
    text = 'name = "inside"\n'
    for name in names:
        text += f"""
[[step]]
name = "{name}-read"
command = ["bash", "-c", '''{line(name, f"{name}.data")}''']
input = ["{name}.data"]
output = ["{name}.out*"]
{options}
[[step]]
name = "{name}-write"
command = ["{sys.executable}", "{SOURCES}/halves.py", "{name}.data", "{gates}/{name}"]
output = ["{name}.data"]
[[step.stream]]
files = ["{name}.data"]
commit = "on_close"
fire = "no_update"
"""
    return text


def expected(names: list[str], folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    (folder / "gate").touch()
    subprocess.run([sys.executable, f"{SOURCES}/halves.py", "data", "gate"], cwd=folder, check=True, timeout=60)
    for name in names:
        subprocess.run(["bash", "-c", line(name, "data")], cwd=folder, check=True, timeout=60)
    return {name: (folder / f"{name}.out").read_bytes() for name in names}


def open_gates(names: list[str], work: Path, gates: Path, overdue: list[str]) -> None:
    """Let a producer go on when its consumer has left something; after a while, let all go on and tell of them."""
    waiting, until = set(names), time.monotonic() + 60
    while waiting:
        overdue += waiting if time.monotonic() > until else []
        for name in sorted(waiting):
            parts = list(work.glob(f"{name}.out*"))
            if name in overdue or any(part.stat().st_size for part in parts):
                (gates / name).touch()
                waiting.remove(name)
        time.sleep(0.02)


@pytest.mark.parametrize("options", ['sizes = "so_far"', ""], ids=["sizes so far", "sizes at commit"])
def test_the_first_half_is_used_while_the_second_is_not_written(options: str, tmp_path: Path) -> None:
    names = there() if options else [name for name in there() if name in WITHOUT_SIZES]
    work, gates, overdue = tmp_path / "work", tmp_path / "gates", list[str]()
    work.mkdir()
    gates.mkdir()
    (work / "workflow.toml").write_text(workflow(names, gates, options))
    conductor = threading.Thread(target=open_gates, args=(names, work, gates, overdue))
    conductor.start()
    try:
        stream_run(work)
    finally:
        conductor.join()
    assert overdue == [], "these made nothing of the first half"
    found = {name: (work / f"{name}.out").read_bytes() for name in names}
    batch = expected(names, tmp_path / "batch")
    assert [name for name in names if found[name] != batch[name]] == []
