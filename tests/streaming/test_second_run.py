"""A workflow that is run again gives what running its steps one after the other again gives.

Outputs of the run before lie about, or what somebody put in their place. Producers probe them, add to them, update them
in place, write them anew, put others in their place, remove them, or leave them alone; consumers read them, map them,
ask for their size, list their directory or run them, at once.
"""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.streaming.flows import Flow

SOURCE = Path(__file__).parent / "programs" / "acts.c"
#: whoever runs such a file has its content printed
HEAD = "#!/bin/cat\n"
OLD = f"{HEAD}old bytes of an earlier run, longer than what comes"

#: acts of a producer that change its file once, whatever is there
CHANGES = ("trunc", "append", "update", "patch", "rename")


@dataclasses.dataclass(frozen=True)
class Lane:
    """A producer, what is there before it, its rule, and a consumer."""

    acts: tuple[str, ...]
    looks: tuple[str, ...]
    old: bool
    close: bool
    streamed: bool
    nap: int

    @property
    def rule(self) -> str:
        """The rule of the file, as far as its producer keeps what that promises."""
        changes = [place for place, act in enumerate(self.acts) if act in CHANGES]
        is_final_at_close = "remove" not in self.acts[changes[0] :] if changes else True
        commit = f"on_close:{max(len(changes), 1)}" if self.close and is_final_at_close else "on_termination"
        first, rest = self.acts[:1], self.acts[1:]
        is_only_added_to = set(first) <= {"probe", "append", "trunc"} and set(rest) <= {"probe", "append"}
        return f'commit = "{commit}", fire = "{"no_update" if self.streamed and is_only_added_to else "update"}"'

    def producer(self, number: int, run: int) -> list[str]:
        file = f"lane-{number}/file"
        texts = [f"{HEAD}{act} {place} of run {run}, lane {number}" for place, act in enumerate(self.acts)]
        return [f"nap:{self.nap}", *(f"{act}:{file}:{text}" for act, text in zip(self.acts, texts, strict=True))]

    def consumer(self, number: int) -> list[str]:
        changes = [place for place, act in enumerate(self.acts) if act in CHANGES]
        # A rule for files promises that their names stay; who removes one that was made is told that it was seen.
        is_listed = not changes or "remove" not in self.acts[changes[0] :]
        looks = [look if is_listed or look != "list" else "read" for look in self.looks]
        seen = {look: f"lane-{number}" if look == "list" else f"lane-{number}/file" for look in looks}
        return [f"{look}:{seen[look]}:seen-{number}" for look in looks]


lanes = st.builds(
    Lane,
    acts=st.lists(st.sampled_from(["probe", "remove", *CHANGES]), max_size=4).map(tuple),
    looks=st.lists(st.sampled_from(["read", "size", "map", "list", "run"]), min_size=1, max_size=2).map(tuple),
    old=st.booleans(),
    close=st.booleans(),
    streamed=st.booleans(),
    nap=st.sampled_from([0, 20, 300]),
)


@pytest.fixture(scope="session")
def acts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc on this machine to compile the steps with")
    program = tmp_path_factory.mktemp("acts") / "acts"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", str(program), str(SOURCE)], check=True, timeout=100)
    return program


def by_turns(folder: Path, acts: Path, drawn: list[Lane], run: int) -> None:
    """All producers, then all consumers: what batch does."""
    for number, lane in enumerate(drawn):
        subprocess.run([acts, *lane.producer(number, run)], cwd=folder, check=True, timeout=60)
    for number, lane in enumerate(drawn):
        subprocess.run([acts, *lane.consumer(number)], cwd=folder, check=True, timeout=60)


def workflow(acts: Path, drawn: list[Lane], run: int) -> str:
    steps = ['name = "again"']
    for number, lane in enumerate(drawn):
        make, take = ([str(acts), *words] for words in (lane.producer(number, run), lane.consumer(number)))
        steps.append(f"""
[[step]]
name = "make-{number}"
command = {json.dumps(make)}
output = ["lane-{number}/*"]
stream = [{{ files = ["lane-{number}/file"], {lane.rule} }}]
[[step]]
name = "take-{number}"
command = {json.dumps(take)}
input = ["lane-{number}/*"]
output = ["seen-{number}"]
""")
    return "".join(steps)


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in outputs(folder)}


def outputs(folder: Path) -> list[Path]:
    return sorted([*folder.glob("lane-*/*"), *folder.glob("seen-*")])


def check(flow: Flow, acts: Path, drawn: list[Lane], folder: Path, *, replaced: bool = False) -> None:
    """Two runs of a workflow against two runs of its steps, from the same beginning."""
    shutil.rmtree(folder, ignore_errors=True)
    streamed, plain = folder / "streamed", folder / "plain"
    for place in (streamed, plain):
        place.mkdir(parents=True)
        for number, lane in enumerate(drawn):
            (place / f"lane-{number}").mkdir()
            if lane.old:
                (place / f"lane-{number}/file").write_text(OLD)
                (place / f"lane-{number}/file").chmod(0o755)
    for run in (1, 2):
        if replaced and run == 2:
            for place in (streamed, plain):
                dice = random.Random(len(drawn))
                for path in outputs(place):
                    path.write_text("".join(dice.choices("abcdefgh", k=dice.randrange(80))))
        by_turns(plain, acts, drawn, run)
        (streamed / "flow.toml").write_text(workflow(acts, drawn, run))
        flow.ended(flow.start("run", "flow.toml", folder=streamed)).expect()
        assert contents(streamed) == contents(plain), f"run {run}"


PROBED = Lane(("probe", "trunc"), ("read",), old=True, close=True, streamed=False, nap=300)


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@example(drawn=[PROBED, dataclasses.replace(PROBED, acts=("probe", "append"), streamed=True)])
@given(drawn=st.lists(lanes, min_size=8, max_size=16))
def test_two_runs_give_what_two_batch_runs_give(flow: Flow, acts: Path, tmp_path: Path, drawn: list[Lane]) -> None:
    check(flow, acts, drawn, tmp_path / "again")


@pytest.mark.long
@pytest.mark.timeout(1200)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(lanes, min_size=8, max_size=20))
def test_many_two_runs_give_what_two_batch_runs_give(flow: Flow, acts: Path, tmp_path: Path, drawn: list[Lane]) -> None:
    check(flow, acts, drawn, tmp_path / "again", replaced=True)
