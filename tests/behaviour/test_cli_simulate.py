"""``penstock simulate`` as a user meets it: programs, recorded runs and workflows on machines that do not exist."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.own_place import user_environment
from typer.testing import CliRunner

from penstock.cli.app import app_for
from penstock.observe.log import read_log
from penstock.observe.records import NodeJoined, RunEnded

pytestmark = pytest.mark.leaks

PROGRAM = """
import sys
from penstock import FILE_OUT, constraint, io, task, wait_on

@task(duration=2.0, size="10MB")
def compute(step):
    raise AssertionError("it is not executed")

@constraint(storage_bw="40MB/s", storage_size="100MB")
@io
@task(path=FILE_OUT, size="100MB", duration=0.0)
def save(block, path):
    raise AssertionError("it is not executed")

for step in range(int(sys.argv[1])):
    save(compute(step), f"out-{step}.bin")
print("called", sys.argv[1])
"""
LAYERS = """
[[resources.storage]]
name = "ssd"
mount = "."
bandwidth = "100MB/s"
"""
WORKFLOW = {
    "name": "tiny",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "split", "id": "a", "parents": [], "children": ["b", "c"]},
                {"name": "work", "id": "b", "parents": ["a"], "children": []},
                {"name": "work", "id": "c", "parents": ["a"], "children": []},
            ]
        },
        "execution": {
            "makespanInSeconds": 7,
            "executedAt": "2026-01-01T00:00:00Z",
            "tasks": [
                {"id": "a", "runtimeInSeconds": 1.0},
                {"id": "b", "runtimeInSeconds": 4.0},
                {"id": "c", "runtimeInSeconds": 4.0},
            ],
        },
    },
}


class Simulate:
    """Runs the command in a folder that has a program, a description of storage and a workflow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app.py").write_text(PROGRAM)
        (folder / "penstock.toml").write_text(LAYERS)
        (folder / "workflow.json").write_text(json.dumps(WORKFLOW))
        (folder / "log.jsonl").write_text("hello\nworld\n")
        (folder / "empty.jsonl").write_text("")
        self.environ = user_environment()
        self.environ |= {"COLUMNS": "100", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli", "simulate", *arguments]

    def __call__(self, *arguments: str, status: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def analysis(self, *arguments: str) -> dict[str, Any]:
        """What the command writes as JSON."""
        target = self.folder / "analysis.json"
        if arguments[0].endswith(".py"):
            shown = self(*arguments[:1], "--json", str(target), "--quiet", *arguments[1:])
            assert not shown.stderr
        else:  # no program is run: there is no need for a process of its own
            run = ["simulate", str(self.folder / arguments[0]), "--json", str(target), "--quiet", *arguments[1:]]
            assert CliRunner().invoke(app_for(["simulate"]), run, catch_exceptions=False).exit_code == 0
        return json.loads(target.read_text())["analysis"]  # type: ignore[no-any-return]


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    monkeypatch.chdir(tmp_path)
    return Simulate(tmp_path)


def test_a_program_on_a_machine_that_does_not_exist(simulate: Simulate) -> None:
    shown = simulate("app.py", "--nodes", "5", "--cores", "4", "--", "40")
    assert shown.stdout.startswith("called 40\n")
    # 20 cores compute for two rounds of 2 s; each node has 8 files to save, 2 at a time, and each pair takes 2 s
    for line in ("5 nodes of 4 cores", "makespan  10 s", "80 done", "cores     20, 40% in use", "ssd (5 devices)"):
        assert line in shown.stdout, shown.stdout
    assert "bandwidth of ssd" in shown.stdout
    assert not list(simulate.folder.glob("out-*"))


def test_the_analysis_as_json(simulate: Simulate) -> None:
    found = simulate.analysis("app.py", "--nodes", "5", "--cores", "4", "--", "40")
    assert found["makespan"] == pytest.approx(10.0) and found["cpus"] == 20
    assert [(use["name"], use["tasks"]) for use in found["functions"]] == [("compute", 40), ("save", 40)]
    assert sum(device["written"] for device in found["devices"]) == 4_000_000_000
    path = found["critical_path"]
    assert sum(path["seconds"].values()) == pytest.approx(10.0)


def test_the_log_is_that_of_a_run_and_can_be_simulated_again(simulate: Simulate) -> None:
    simulate("app.py", "--nodes", "2", "--cores", "4", "--log", "run.jsonl", "--quiet", "--", "20")
    run = list(read_log(str(simulate.folder / "run.jsonl")))
    assert [record.node for record in run if isinstance(record, NodeJoined)] == ["node-1", "node-2"]
    assert isinstance(run[-1], RunEnded) and run[-1].ok and run[-1].done == 40
    again = simulate.analysis("run.jsonl")
    first = simulate.analysis("app.py", "--nodes", "2", "--cores", "4", "--", "20")
    assert again["makespan"] == pytest.approx(first["makespan"], rel=0.02)
    assert simulate.analysis("run.jsonl", "--nodes", "10")["makespan"] < again["makespan"]
    assert simulate.analysis("run.jsonl", "--duration", "compute=20")["makespan"] > 20


def test_a_recorded_run_directory(simulate: Simulate) -> None:
    (simulate.folder / "real.py").write_text(
        "import time\nfrom penstock import task\n@task\ndef f(x):\n    time.sleep(0.01)\nfor i in range(8):\n    f(i)\n"
    )
    run = [sys.executable, "-m", "penstock.cli", "run", "--cpus", "2", "--run-dir", "kept", "real.py"]
    subprocess.run(run, cwd=simulate.folder, env=simulate.environ, check=True, capture_output=True, timeout=60)
    assert simulate.analysis("kept")["makespan"] >= 8 * 0.01 / 2
    # The cost of starting processes and of telling them is that of the run, on whatever machine, beside any moment at
    # which that stood still: tasks that are far longer show that two lanes share them and eight do not have to.
    longer = ("kept", "--duration", "f=1000")
    assert 4000 <= simulate.analysis(*longer)["makespan"] < 5000
    assert 1000 <= simulate.analysis(*longer, "--cores", "8")["makespan"] < 2000


def test_a_workflow(simulate: Simulate) -> None:
    assert simulate.analysis("workflow.json", "--cores", "2")["makespan"] == pytest.approx(5.0)
    assert simulate.analysis("workflow.json", "--cores", "1")["makespan"] == pytest.approx(9.0)


def test_a_workflow_names_its_machines_and_its_files_use_a_disk(simulate: Simulate) -> None:
    workflow = json.loads(json.dumps(WORKFLOW))
    execution, specification = workflow["workflow"]["execution"], workflow["workflow"]["specification"]
    execution["machines"] = [{"nodeName": "big", "cpu": {"coreCount": 2}}]
    specification["files"] = [{"id": "x", "sizeInBytes": 300_000_000}]
    specification["tasks"][0]["outputFiles"] = ["x"]
    (simulate.folder / "workflow.json").write_text(json.dumps(workflow))
    found = simulate.analysis("workflow.json")
    assert (found["cpus"], found["makespan"]) == (2, pytest.approx(5.0))
    # 300 MB on a disk of 100 MB/s: three seconds more
    under = simulate.analysis("workflow.json", "--files-under", str(simulate.folder))
    assert under["makespan"] == pytest.approx(8.0)


def test_what_was_measured_of_a_device_is_scaled_with_its_bandwidth(simulate: Simulate) -> None:
    (simulate.folder / "penstock.toml").write_text(LAYERS + 'measured = "1: 50MB/s, 2: 100MB/s"\n')
    one = ("app.py", "--cores", "1", "--duration", "compute=0")
    assert simulate.analysis(*one, "--", "1")["makespan"] == pytest.approx(2.0)  # 100 MB at 50 MB/s
    assert simulate.analysis(*one, "--layer", "ssd.bandwidth=400MB/s", "--", "1")["makespan"] == pytest.approx(0.5)


def test_other_devices_a_lost_node_a_network_and_a_slow_master(simulate: Simulate) -> None:
    machine = ("--nodes", "2", "--cores", "4")
    usual = simulate.analysis("app.py", *machine, "--", "20")["makespan"]
    assert simulate.analysis("app.py", *machine, "--layer", "ssd.bandwidth=400MB/s", "--", "20")["makespan"] < usual
    assert simulate.analysis("app.py", *machine, "--lose", "node-2@3s", "--", "20")["makespan"] > usual
    assert simulate.analysis("app.py", *machine, "--decision-cost", "100ms", "--", "20")["makespan"] > usual
    slow = simulate.analysis("app.py", *machine, "--network", "1MB/s,1ms", "--scheduler", "lifo", "--", "20")
    assert slow["makespan"] >= usual


def test_chance_is_the_same_for_a_seed(simulate: Simulate) -> None:
    given = ("--nodes", "2", "--duration", "compute=lognormal(2,0.5)")
    first, same, other = (
        simulate.analysis("app.py", *given, "--seed", seed, "--", "20")["makespan"] for seed in ("1", "1", "2")
    )
    assert first == same != other


# --- sweeps -----------------------------------------------------------------------------------------------------------


def test_a_sweep_compares_all_combinations_and_marks_the_best(simulate: Simulate) -> None:
    sweep = ("--sweep", "nodes=1,2,5", "--sweep", "scheduler=fifo,lifo")
    shown = simulate("app.py", "--cores", "4", *sweep, "--json", "sweep.json", "--", "40")
    rows = [line.split() for line in shown.stdout.splitlines()[1:7]]
    assert [row[:2] for row in rows] == [[nodes, name] for nodes in "125" for name in ("fifo", "lifo")]
    assert ["◀" in row for row in rows] == [False] * 4 + [True] * 2
    assert "nodes=5 scheduler=lifo: 10 s" in shown.stderr
    assert re.search(r"● scheduler=fifo +○ scheduler=lifo", shown.stdout)
    points = json.loads((simulate.folder / "sweep.json").read_text())
    assert points[-1]["settings"] == {"nodes": "5", "scheduler": "lifo"}
    assert points[-1]["outcome"]["analysis"]["makespan"] == pytest.approx(10.0)


def test_a_sweep_over_devices(simulate: Simulate) -> None:
    sweep = ("--sweep", "layer.ssd.bandwidth=50MB/s,100MB/s,400MB/s")
    shown = simulate("app.py", "--nodes", "2", "--cores", "4", *sweep, "--", "20", COLUMNS="120")
    assert "layer.ssd.bandwidth (MB/s)" in shown.stdout
    assert "waiting for bandwidth of ssd" in shown.stdout


def test_a_combination_that_fails_is_shown_and_the_others_are_too(simulate: Simulate) -> None:
    (simulate.folder / "wide.py").write_text(
        "from penstock import constraint, task\n"
        "@constraint(computing_units=4)\n@task(duration=1.0)\ndef f(x):\n    pass\n\nfor i in range(4):\n    f(i)\n"
    )
    shown = simulate("wide.py", "--sweep", "cores=2,4", status=1)
    assert re.search(r"2 +failed", shown.stdout) and re.search(r"4 +4 s", shown.stdout)
    assert "cores=2: ConstraintError: task f requires computing_units=4" in shown.stdout
    assert "cores=2: failed\n" in shown.stderr


def test_a_sweep_that_is_interrupted_shows_what_was_finished(simulate: Simulate) -> None:
    (simulate.folder / "slow.py").write_text(
        "import time\nfrom penstock import task\nfrom penstock.runtime import session\n"
        "@task(duration=1.0)\ndef f():\n    pass\nf().result()\n"
        "if session.current().cpus == 3:\n    open('begun', 'w')\n    time.sleep(600)\n"
    )
    with subprocess.Popen(
        simulate.command("slow.py", "--cores", "1", "--sweep", "nodes=1,3", "--json", "sweep.json"),
        cwd=simulate.folder,
        env=simulate.environ,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "nodes=1: 1 s\n"
        deadline = time.monotonic() + 60
        while not (simulate.folder / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        shown, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "penstock: interrupted\n")
    assert re.search(r"1 +1 s", shown) and "failed" not in shown
    assert [point["settings"] for point in json.loads((simulate.folder / "sweep.json").read_text())] == [{"nodes": "1"}]


def test_the_processes_of_a_sweep_end_with_it_however_that_ends(simulate: Simulate) -> None:
    (simulate.folder / "slow.py").write_text(
        "import os, time\nwith open('new', 'w') as file:\n    file.write(str(os.getpid()))\n"
        "os.rename('new', 'begun')\ntime.sleep(600)\n"
    )
    begun = simulate.folder / "begun"
    command = simulate.command("slow.py", "--sweep", "nodes=1,2")
    with subprocess.Popen(command, cwd=simulate.folder, env=simulate.environ, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    child = int(begun.read_text())
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only waits for somebody to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_sweep_that_is_interrupted_leaves_nothing(simulate: Simulate, number: int, status: int) -> None:
    (simulate.folder / "slow.py").write_text("open('begun', 'w')\nimport time\ntime.sleep(600)\n")
    with subprocess.Popen(
        simulate.command("slow.py", "--sweep", "nodes=1,2,3,4"),
        cwd=simulate.folder,
        env=simulate.environ,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (simulate.folder / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == status, said


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["app.py", "--nodes", "0"], "nodes=0: expected a whole number above zero"),
        (["app.py", "--memory", "much"], "memory=much: cannot read 'much'"),
        (["app.py", "--scheduler", "fiffo"], "did you mean 'fifo'"),
        (["app.py", "--io-scheduler", "x"], 'io_scheduler=x: expected "fcfs" or "priority" or "backfilling"'),
        (["app.py", "--network", "10MB"], "network=10MB: cannot read '10MB'"),
        (["app.py", "--seed", "x"], "seed=x: expected a whole number"),
        (["app.py", "--decision-cost", "soon"], "decision_cost=soon: cannot read 'soon'"),
        (["app.py", "--layer", "ssd"], "--layer ssd: expected NAME.bandwidth=VALUE"),
        (["app.py", "--layer", "ssd.speed=3"], "expected layer.NAME.bandwidth or layer.NAME.capacity"),
        (["app.py", "--layer", "hdd.bandwidth=3MB/s"], "no node has a layer 'hdd'; there are ssd"),
        (["app.py", "--lose", "node-1"], "--lose node-1: expected a node and when it is lost"),
        (["app.py", "--lose", "node-1@soon"], "--lose node-1@soon: cannot read 'soon'"),
        (["app.py", "--duration", "f=normal(-2,1)"], "--duration f=normal(-2,1): cannot read '-2'"),
        (["app.py", "--default-duration", "x"], "--default-duration x: cannot read 'x'"),
        (["app.py", "--files-under", "."], "is for workflows; app.py is a program"),
        (
            ["workflow.json", "--files-under", "/nowhere"],
            "--files-under /nowhere: no storage layer is there; layers: ssd",
        ),
        (["workflow.json", "--main-time"], "--main-time is for programs; workflow.json is a workflow"),
        (["log.jsonl", "--default-duration", "1s"], "all tasks of a recorded run have a duration"),
        (["log.jsonl"], "log.jsonl is no whole event log"),
        (["empty.jsonl"], "it has no record `run_started`"),
        (["app.py", "--sweep", "layer.hdd.bandwidth=1MB/s,2MB/s"], "no node has a layer 'hdd'; there are ssd"),
        (["app.py", "--nodes", "2", "--lose", "node-9@3s"], "there is no node 'node-9'; did you mean node-"),
        (["workflow.json", "--duration", "wrok=3"], "no task is called 'wrok'; did you mean work?"),
        (["app.py", "--duration", "compute"], "write name=duration"),
        (["app.py", "--sweep", "nodes"], "--sweep nodes: expected a setting and its values"),
        (["app.py", "--sweep", "nodes=1,x"], "nodes=x: expected a whole number above zero"),
        (["app.py", "--sweep", "ndoes=1,2"], "there is no setting 'ndoes' of a simulation; did you mean nodes?"),
        (["app.py", "--sweep", "nodes=1", "--sweep", "nodes=2"], "nodes is swept already"),
        (["app.py", "--nodes", "1", "--sweep", "nodes=1,2"], "nodes=1 is given too"),
        (["app.py", "--sweep", "nodes=1,2", "--log", "x.jsonl"], "a sweep is of many runs"),
        (["app.py", "--plot", "x.doc"], "the name must end in .png, .svg, .pdf"),
        (["app.py", "--plot", "nowhere/x.png"], "there is no directory nowhere"),
        (["app.py", "--json", "nowhere/x.json"], "there is no directory nowhere"),
        (["app.py", "--log", "nowhere/x.jsonl"], "--log nowhere/x.jsonl: cannot write it"),
        (["nothing.py"], "cannot open nothing.py: No such file or directory"),
        (["."], "is a directory without events.jsonl"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(simulate: Simulate, arguments: list[str], said: str) -> None:
    shown = CliRunner().invoke(app_for(["simulate"]), ["simulate", *arguments, "--", "3"])
    assert shown.exit_code == 2
    assert said in shown.stderr and shown.stderr.count("\n") == 1
    assert "called" not in shown.stdout


def test_a_program_that_fails_shows_its_own_traceback(simulate: Simulate) -> None:
    shown = simulate("app.py", "--", "many", status=1)
    assert "invalid literal for int()" in shown.stderr and "simulate_input" not in shown.stderr


FALLS_OVER = """
from penstock import task, wait_on

@task(duration=1.0)
def f(x):
    pass

wait_on([f(i) for i in range(4)])
f(4)
raise ValueError("fell over")
"""


def test_what_was_done_until_a_program_fell_over_is_shown_and_written(simulate: Simulate) -> None:
    (simulate.folder / "falls.py").write_text(FALLS_OVER)
    shown = simulate("falls.py", "--cores", "2", "--json", "a.json", "--log", "l.jsonl", status=1)
    assert "the program fell over" in shown.stdout and "4 done" in shown.stdout
    assert shown.stderr.endswith("ValueError: fell over\n") and "simulate_input" not in shown.stderr
    written = json.loads((simulate.folder / "a.json").read_text())
    assert written["error"] == "ValueError: fell over" and written["analysis"]["done"] == 4
    *_, last = read_log(str(simulate.folder / "l.jsonl"))
    assert isinstance(last, RunEnded) and not last.ok


def test_tasks_that_failed_are_named_with_the_reason(simulate: Simulate) -> None:
    (simulate.folder / "fails.py").write_text(
        "from penstock import task\n@task(duration=1.0, retries=2, simulated=lambda: 1 / 0)\ndef f():\n    pass\nf()\n"
    )
    shown = simulate("fails.py", "--cores", "1", "--json", "a.json", status=1).stdout
    assert "failed: f (task 1): ZeroDivisionError: division by zero" in shown and "1 node of 1 core," in shown
    assert re.search(r"f +█+ +3 s +1 +3 +1 s", shown)  # in total, calls, attempts, mean
    written = json.loads((simulate.folder / "a.json").read_text())["analysis"]
    assert [segment["attempt"] for segment in written["critical_path"]["segments"]] == [1, 2, 3]


def test_tasks_of_which_nothing_is_known_take_the_default_time(simulate: Simulate) -> None:
    (simulate.folder / "bare.py").write_text(
        "from penstock import task\n@task\ndef f(i):\n    pass\nfor i in range(4):\n    f(i)\n"
    )
    bare = ("bare.py", "--cores", "2", "--default-duration")
    environ = {"XDG_CACHE_HOME": str(simulate.folder)}
    assert "makespan  6 s" in simulate(*bare, "3s", **environ).stdout
    assert "makespan  6 s" in simulate(*bare, "uniform(3,3)", **environ).stdout
    swept = simulate(*bare, "3s", "--sweep", "seed=1,2", **environ).stdout
    assert len(re.findall(r"\b6 s\b", swept)) == 2
    workflow = json.loads(json.dumps(WORKFLOW))
    del workflow["workflow"]["execution"]
    (simulate.folder / "workflow.json").write_text(json.dumps(workflow))
    assert simulate.analysis("workflow.json", "--cores", "2", "--default-duration", "2s")["makespan"] == 4.0


def test_the_time_of_the_program_itself_counts_if_it_is_to(simulate: Simulate) -> None:
    (simulate.folder / "thinks.py").write_text(
        "import time\nfrom penstock import task\n@task(duration=1.0)\ndef f():\n    pass\n"
        "time.sleep(0.05)\nf().result()\n"
        "time.sleep(0.05)\nf().result()\n"
    )
    assert simulate.analysis("thinks.py")["makespan"] == 2.0
    assert simulate.analysis("thinks.py", "--main-time")["makespan"] >= 2.05


def test_a_log_that_was_cut_off(simulate: Simulate) -> None:
    simulate("app.py", "--cores", "4", "--log", "run.jsonl", "--quiet", "--", "20")
    lines = (simulate.folder / "run.jsonl").read_text().splitlines(keepends=True)
    half = next(number for number, line in enumerate(lines) if line.startswith('{"event":"finished"')) + 1
    (simulate.folder / "cut.jsonl").write_text("".join(lines[:half]))
    assert "cut.jsonl: 39 of 40 tasks were cancelled or had not ended" in simulate("cut.jsonl").stderr
    first = next(number for number, line in enumerate(lines) if line.startswith('{"event":"submitted"'))
    (simulate.folder / "headless.jsonl").write_text("".join(lines[first + 1 :]))
    assert "are its first lines missing?" in simulate("headless.jsonl", status=2).stderr


def test_json_on_standard_output_and_an_output_that_is_full(simulate: Simulate) -> None:
    assert json.loads(simulate("workflow.json", "--json", "-").stdout)["analysis"]["done"] == 3
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            simulate.command("workflow.json"),
            cwd=simulate.folder,
            env=simulate.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (run.returncode, run.stderr) == (1, "penstock: cannot print: No space left on device\n")


def test_a_node_that_the_recorded_run_lost_may_be_lost_at_another_time(simulate: Simulate) -> None:
    simulate("app.py", "--nodes", "2", "--lose", "node-2@6s", "--log", "run.jsonl", "--quiet", "--", "20")
    sooner = simulate.analysis("run.jsonl", "--lose", "node-2@1s")["makespan"]
    assert sooner > simulate.analysis("run.jsonl")["makespan"]


def test_a_module_and_a_program_without_tasks(simulate: Simulate) -> None:
    (simulate.folder / "quiet.py").write_text("print('nothing to do')\n")
    shown = simulate("-m", "quiet")
    assert "nothing to do" in shown.stdout and "0 done" in shown.stdout


def test_the_status_of_the_program_is_that_of_the_command(simulate: Simulate) -> None:
    (simulate.folder / "exits.py").write_text("raise SystemExit(7)\n")
    simulate("exits.py", status=7)
