"""Workflows of programs that the library cannot get into: what they leave is what running one after the other leaves.

All lanes run in one workflow. Each consumer has started before its producer begins, so nothing but streaming can finish
them; and each run is followed by a second one, with another seed, over what the first has left.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from tests.patience import eventually
from tests.streaming.flows import Flow
from tests.streaming.matrix.rig import stream_run

from penstock.streaming.native import why_not_supervised

SOURCE = Path(__file__).parents[1] / "interpose" / "programs" / "by_request.c"

#: name → what makes `data`, what makes `result` of it, the rule of `data`. STATIC is the program.
LANES = {
    "both": ("STATIC copy:../seed,data", "STATIC copy:data,result", "on_close"),
    "read": ("cp ../seed data", "STATIC copy:data,result", "on_close"),
    "made": ("STATIC copy:../seed,data", "cat data > result", "on_close"),
    "late": ("STATIC copy:../seed,data", "STATIC copy:data,result", "on_termination"),
    "shell": ("STATIC read:../seed > data", "STATIC read:/dev/stdin < data > result", "on_close"),
    "append": ("STATIC copy:../seed,data add:data,more", "STATIC read:data stat:data > result", "on_close:2"),
    "rename": ("STATIC copy:../seed,tmp rename:tmp,data", "STATIC read:data > result", "on_close"),
    "over": ("STATIC copy:../seed,tmp; mv tmp data", "STATIC access:data read:data > result", "on_close"),
    "link": ("STATIC copy:../seed,real symlink:real,data", "STATIC read:data > result", "on_close"),
    "fork": ("STATIC fork: copy:../seed,data", "STATIC fork: copy:data,result", "on_close"),
    "exec": ("STATIC exec: /bin/cp ../seed data", "STATIC exec: /bin/cp data result", "on_close"),
    "chain": (
        "sh -c 'STATIC exec: STATIC copy:../seed,data'",
        "sh -c 'STATIC exec: /bin/cat data' > result",
        "on_close",
    ),
    "list": (
        "STATIC mkdir:data copy:../seed,data/a copy:../seed,data/b",
        "STATIC list:data read:data/a > result",
        "on_close",
    ),
    "remove": ("STATIC copy:../seed,data", "STATIC copy:data,result unlink:data", "on_close"),
    "none": ("STATIC read:../seed", "STATIC read:data access:data > result", "on_close"),
}


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> str:
    if why_not_supervised():
        pytest.skip(f"PROGRAMS WITHOUT THE LIBRARY ARE NOT TESTED: {why_not_supervised()}")
    target = tmp_path_factory.mktemp("static") / "by_request"
    compiler = shutil.which("cc")
    command = [str(compiler), "-static", "-pthread", "-O1", "-D_GNU_SOURCE", str(SOURCE), "-o", str(target)]
    if not compiler or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("STATIC PROGRAMS ARE NOT TESTED: they cannot be linked here")
    return str(target)


def workflow(static: str, gates: Path | None, fire: str) -> str:
    """All lanes; with gates, producers wait for their consumers."""
    text = 'name = "lanes"\n'
    for name, (make, take, commit) in LANES.items():
        wait = f"until [ -e {gates}/{name} ]; do sleep 0.005; done; " if gates else ""
        begin = f": > {gates}/{name}; " if gates else ""
        text += f'''
[[step]]
name = "make-{name}"
cwd = "{name}"
command = """{wait}{make.replace("STATIC", static)}"""
output = ["{name}/data*", "{name}/tmp", "{name}/real"]
[[step.stream]]
files = ["{name}/data*", "{name}/tmp", "{name}/real"]
commit = "{commit}"
fire = "{fire}"
[[step]]
name = "take-{name}"
cwd = "{name}"
command = """{begin}{take.replace("STATIC", static)}"""
input = ["{name}/data*"]
output = ["{name}/result"]
'''
    return text


def left(folder: Path) -> dict[str, str]:
    found = sorted(path for name in LANES for path in (folder / name).rglob("*"))
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in found}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("fire", ["update", "no_update"])
def test_what_they_leave_is_that_of_batch(tmp_path: Path, static: str, fire: str) -> None:
    results: dict[str, list[dict[str, str]]] = {"batch": [], "streamed": []}
    for way, found in results.items():
        folder = tmp_path / way
        for name in LANES:
            (folder / name).mkdir(parents=True)
        for run in ("first", "second, longer"):
            gates = tmp_path / f"gates-{run.split(',')[0]}" if way == "streamed" else None
            if gates:
                gates.mkdir()
            (folder / "seed").write_text(f"seed of the {run} run\n")
            (folder / "workflow.toml").write_text(workflow(static, gates, fire))
            stream_run(folder, *(() if gates else ("--batch",)))
            found.append(left(folder))
    assert results["streamed"] == results["batch"]
    assert results["batch"][1]["both/result"] == "seed of the second, longer run\n"


def running(static: str) -> bool:
    """Whether somebody runs the program."""
    living = (one.info for one in psutil.process_iter(["exe", "status"]))
    return any(info["exe"] == static and info["status"] != psutil.STATUS_ZOMBIE for info in living)


STALLED = """
    name = "stalled"
    [[step]]
    name = "make"
    command = "sleep 1000"
    output = ["data"]
    [[step]]
    name = "take"
    command = ["STATIC", "read:data"]
    input = ["data"]
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_run_that_is_ended(flow: Flow, static: str, number: signal.Signals) -> None:
    """The fixture sees to it that no supervisor is left, either."""
    flow.toml(STALLED.replace("STATIC", static))
    process = flow.start("run", "flow.toml", "--stall", "0.1s")
    assert process.stderr is not None
    assert any("has waited" in line for line in process.stderr)
    assert running(static)
    process.send_signal(number)
    flow.ended(process)
    eventually(lambda: not running(static))


def test_a_program_started_by_hand_is_supervised_too(flow: Flow, static: str) -> None:
    flow.toml(STALLED)
    server = flow.start("serve", "flow.toml", "--stall", "0.1s")
    take = flow.start("exec", "--app", "take", "--", static, "read:data")
    assert server.stderr is not None
    assert any("has waited" in line for line in server.stderr)
    flow.ended(flow.start("exec", "--app", "make", "--", static, "write:data,text")).expect()
    assert flow.ended(take).expect().out == "read:data -> text\n"
    server.send_signal(signal.SIGINT)
    flow.ended(server).expect()
