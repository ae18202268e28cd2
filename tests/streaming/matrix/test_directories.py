"""Programs that list a directory while another fills it: they find what they would have found afterwards."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.streaming.matrix.rig import stream_run

FILES = 12
MAKE = f"mkdir {{folder}}/d; for i in $(seq {FILES}); do seq $((i * 50)) > {{folder}}/d/f$i; done"

# The rule of the directory in each lane; its files are streamed as they are written.
RULES = {
    "counted": f'commit = "n_files:{FILES}"\nfire = "no_update"',
    "ending": 'commit = "on_termination"\nfire = "no_update"',
    "whole": 'commit = "on_termination"\nfire = "update"',
}

# It looks at the directory before and after its listing and complains when it has changed.
NOT_AS_THEY_COME = {("tar", "counted"), ("tar", "ending"), ("tar-pipe", "counted"), ("tar-pipe", "ending")}


@dataclasses.dataclass(frozen=True)
class Lister:
    line: str
    needs: str = "bash"


PYTHON = sys.executable
LISTERS = {
    "ls": Lister("ls {source} > {out}"),
    "ls-long": Lister("ls -l {source} | awk '{{ print $5, $9 }}' > {out}", "awk"),
    "find": Lister("find {source} -type f | sort > {out}", "find"),
    "find-exec": Lister("find {source} -name 'f*' -exec cat {{}} + | sort -n | tail -n 20 > {out}", "find"),
    "glob": Lister("cat {source}/f* > {out}"),
    "for": Lister('for f in {source}/*; do echo "$f $(wc -l < $f)"; done > {out}'),
    "cp": Lister("cp -r {source} {out}.d; cat {out}.d/* > {out}"),
    "tar": Lister("tar --sort=name --mtime=@0 --owner=0 --group=0 -cf {out} -C {source} .", "tar"),
    "tar-pipe": Lister("tar -c {source} | tar -t | sort > {out}", "tar"),
    "grep": Lister("grep -rc 7 {source} | sort > {out}"),
    "du": Lister("du -ab --apparent-size {source}/f* | sort > {out}"),
    "xargs": Lister("ls {source} | xargs -I@ wc -c {source}/@ > {out}", "xargs"),
    "perl": Lister(
        """perl -e 'opendir(D, "{source}"); print "$_ ", -s "{source}/$_", "\\n" for sort grep /^f/, readdir D'"""
        " > {out}",
        "perl",
    ),
    "listdir": Lister(f"{PYTHON} -c \"import os; print(*sorted(os.listdir('{{source}}')))\" > {{out}}"),
    "scandir": Lister(
        f"{PYTHON} -c \"import os; print(*sorted((e.name, e.stat().st_size) for e in os.scandir('{{source}}')))\""
        " > {out}"
    ),
    "walk": Lister(
        f"{PYTHON} -c \"import os; print(*sorted(n for _, _, f in os.walk('{{source}}') for n in f))\" > {{out}}"
    ),
    "node": Lister("node -e \"console.log(require('fs').readdirSync('{source}').sort().join(' '))\" > {out}", "node"),
}


def lines(lane: str) -> dict[str, str]:
    """What each lister is told, where it is installed."""
    found = {name: lister for name, lister in LISTERS.items() if shutil.which(lister.needs)}
    return {name: lister.line.format(source=f"{lane}/d", out=f"{lane}/{name}") for name, lister in found.items()}


def workflow() -> str:
    """One producer for each rule, and every lister as a reader of all three directories."""
    text = 'name = "directories"\n'
    for lane, rule in RULES.items():
        for name, line in lines(lane).items():
            if (name, lane) in NOT_AS_THEY_COME:
                continue
            text += f"""
[[step]]
name = "{lane}-{name}"
command = ["bash", "-c", '''set -e; {line}''']
input = ["{lane}/d", "{lane}/d/*"]
output = ["{lane}/{name}", "{lane}/{name}.d"]
"""
        text += f"""
[[step]]
name = "{lane}-make"
command = ["bash", "-c", '''set -e; sleep 0.2; {MAKE.format(folder=lane)}''']
output = ["{lane}/d", "{lane}/d/*"]
[[step.stream]]
directories = ["{lane}/d"]
{rule}
[[step.stream]]
files = ["{lane}/d/*"]
commit = "on_close"
fire = "no_update"
"""
    return text


def test_listings_are_those_of_batch(tmp_path: Path) -> None:
    batch, streamed = tmp_path / "batch", tmp_path / "streamed"
    for lane in RULES:
        (batch / lane).mkdir(parents=True)
        (streamed / lane).mkdir(parents=True)
        line = "; ".join([MAKE.format(folder=lane), *lines(lane).values()])
        subprocess.run(["bash", "-c", f"set -e; {line}"], cwd=batch, check=True, timeout=60)
    (streamed / "workflow.toml").write_text(workflow())
    stream_run(streamed)
    expected, found = ({name: (folder / name).read_bytes() for name in names(folder)} for folder in (batch, streamed))
    assert all(expected.values())
    assert [name for name in expected if found.get(name) != expected[name]] == []


def names(folder: Path) -> list[str]:
    made = [f"{lane}/{name}" for lane in RULES for name in lines(lane) if (name, lane) not in NOT_AS_THEY_COME]
    return [name for name in made if (folder / name).is_file()]


@pytest.mark.parametrize("program", sorted({lister.needs for lister in LISTERS.values()}))
def test_listers_are_there(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"STREAMING IS NOT TESTED WITH {program}: it is not installed; .ci/run installs it")


def test_entries_arrive_one_by_one(tmp_path: Path) -> None:
    """The producer makes the next file only when its reader has got the one before."""
    make = f"for i in {{1..{FILES}}}; do echo $i > d/f$i; until [ -e ../seen/f$i ]; do sleep 0.005; done; done"
    read = (
        "import os\n"
        "for entry in os.scandir('d'):\n"
        "    open(f'../seen/{entry.name}', 'w').write(open(entry.path).read())\n"
        "open('result', 'w').write('over')\n"
    )
    work = tmp_path / "work"
    for folder in (work, work / "d", tmp_path / "seen"):
        folder.mkdir()
    (tmp_path / "read.py").write_text(read)
    (work / "workflow.toml").write_text(f"""
name = "one by one"
[[step]]
name = "read"
command = ["{PYTHON}", "{tmp_path}/read.py"]
input = ["d/*"]
output = ["result"]
[[step]]
name = "make"
command = ["bash", "-c", '''{make}''']
output = ["d/*"]
[[step.stream]]
files = ["d/*"]
commit = "on_close"
""")
    stream_run(work)
    assert (work / "result").read_text() == "over"
    assert {path.name: path.read_text() for path in (tmp_path / "seen").iterdir()} == {
        f"f{i}": f"{i}\n" for i in range(1, FILES + 1)
    }
