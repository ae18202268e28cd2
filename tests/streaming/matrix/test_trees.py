"""Programs that make and read whole trees: make, git, links, renamed and removed folders, temporary files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.streaming.matrix.rig import stream_run

MAKEFILE = r"all: twice\ntwice: src/x\n\tcat src/x src/x > $@\n"
WORKFLOW = f"""
name = "trees"
[[step]]
name = "use"
command = '''
set -e
cat tree/twice tree/hard tree/soft tree/sorted > found
git clone -q repo clone
cat clone/sorted >> found
git -C clone log --format=%H >> found
find tree | sort >> found
if [ -e tree/tmp ]; then echo the temporary folder is there >> found; fi
'''
input = ["tree", "repo"]
output = ["found", "clone"]
[[step]]
name = "build"
command = '''
set -e
mkdir -p tree/src tree/tmp
cd tree
printf '{MAKEFILE}' > Makefile
seq 100 > src/x
make -s
mv src source
ln source/x hard
ln -s source/x soft
sort -T tmp -r source/x > sorted
rm -rf tmp
cd ..
git init -q repo
cp tree/sorted repo
cd repo
git add .
git commit -q -m sorted
'''
output = ["tree", "repo"]
[step.env]
GIT_AUTHOR_NAME = "matrix"
GIT_AUTHOR_EMAIL = "matrix@example.org"
GIT_AUTHOR_DATE = "2020-01-01T00:00:00Z"
GIT_COMMITTER_NAME = "matrix"
GIT_COMMITTER_EMAIL = "matrix@example.org"
GIT_COMMITTER_DATE = "2020-01-01T00:00:00Z"
"""


@pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("make")), reason="TREES ARE NOT TESTED: .ci/run installs git and make"
)
def test_a_tree_that_is_built_and_cloned_is_that_of_batch(tmp_path: Path) -> None:
    found = []
    for way in ((), ("--batch",)):
        folder = tmp_path / ("batch" if way else "streamed")
        folder.mkdir()
        (folder / "workflow.toml").write_text(WORKFLOW)
        stream_run(folder, *way)
        found.append((folder / "found").read_text())
    assert found[0] == found[1]
    lines = found[0].splitlines()
    assert lines.count("tree/source/x") == 1 and "tree/tmp" not in lines and lines.count("100") == 6
