"""A workflow that is run again gives what running its steps one after the other again gives.

Outputs of the run before lie about, or what somebody put in their place. Producers probe them, add to them, update them
in place, write them anew, put others in their place, remove them, or leave them alone; consumers look at once.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.streaming.flows import Flow

SOURCE = Path(__file__).parent / "programs" / "acts.c"
OLD = "old bytes of an earlier run, longer than what comes"

#: acts of a producer that change its file once, whatever is there
CHANGES = ("trunc", "append", "update", "rename")


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
        file = f"file-{number}"
        texts = [f"{act} {place} of run {run}, lane {number}" for place, act in enumerate(self.acts)]
        return [f"nap:{self.nap}", *(f"{act}:{file}:{text}" for act, text in zip(self.acts, texts, strict=True))]

    def consumer(self, number: int) -> list[str]:
        return [f"{look}:file-{number}:seen-{number}" for look in self.looks]


lanes = st.builds(
    Lane,
    acts=st.lists(st.sampled_from(["probe", "remove", *CHANGES]), max_size=4).map(tuple),
    looks=st.lists(st.sampled_from(["read", "size"]), min_size=1, max_size=2).map(tuple),
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
command = {make!r}
output = ["file-{number}", "file-{number}.tmp"]
stream = [{{ files = ["file-{number}"], {lane.rule} }}]
[[step]]
name = "take-{number}"
command = {take!r}
input = ["file-{number}"]
output = ["seen-{number}"]
""")
    return "".join(steps)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name.startswith(("file-", "seen-"))}


def check(flow: Flow, acts: Path, drawn: list[Lane], folder: Path, *, replaced: bool = False) -> None:
    """Two runs of a workflow against two runs of its steps, from the same beginning."""
    shutil.rmtree(folder, ignore_errors=True)
    streamed, plain = folder / "streamed", folder / "plain"
    for place in (streamed, plain):
        place.mkdir(parents=True)
        for number, lane in enumerate(drawn):
            if lane.old:
                (place / f"file-{number}").write_text(OLD)
    for run in (1, 2):
        if replaced and run == 2:
            for place in (streamed, plain):
                dice = random.Random(len(drawn))
                for path in sorted(place.glob("*-*")):
                    path.write_text("".join(dice.choices("abcdefgh", k=dice.randrange(80))))
        by_turns(plain, acts, drawn, run)
        (streamed / "flow.toml").write_text(workflow(acts, drawn, run))
        flow.ended(flow.start("run", "flow.toml", folder=streamed)).expect()
        assert contents(streamed) == contents(plain), f"run {run}"


PROBED = Lane(("probe", "trunc"), ("read",), old=True, close=True, streamed=False, nap=300)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
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
