"""Workflows in WfFormat: what they become as workloads, and what is said of those that cannot be right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.model.resources import Node, StorageLayer
from penstock.sim.network import Network
from penstock.sim.simulation import Simulation
from penstock.sim.wfformat import UNKNOWN_MEMORY, read_machines, read_wfformat
from penstock.sim.workloads import Uniform

MB = 1_000_000


def task(name: str, number: str, *parents: str, reads: tuple[str, ...] = (), writes: tuple[str, ...] = ()) -> Any:
    return {
        "name": name,
        "id": number,
        "parents": list(parents),
        "children": [],
        "inputFiles": list(reads),
        "outputFiles": list(writes),
    }


def ran(number: str, seconds: float, **more: Any) -> Any:
    return {"id": number, "runtimeInSeconds": seconds, **more}


def instance() -> Any:
    """A diamond: split, two parts, join."""
    return {
        "name": "diamond",
        "schemaVersion": "1.5",
        "author": {"name": "n", "email": "n@example.org"},
        "workflow": {
            "specification": {
                "tasks": [
                    # The last comes first: the order of the file is not that of the work.
                    task("join", "d", "b", "c", reads=("left", "right"), writes=("all",)),
                    task("split", "a", reads=("given",), writes=("one", "two")),
                    task("part", "b", "a", reads=("one",), writes=("left",)),
                    task("part", "c", "a", reads=("two",), writes=("right",)),
                ],
                "files": [
                    {"id": name, "sizeInBytes": 100 * MB} for name in ("given", "one", "two", "left", "right", "all")
                ],
            },
            "execution": {
                "makespanInSeconds": 9,
                "executedAt": "2026-01-01T00:00:00Z",
                "tasks": [
                    ran("a", 1.0, avgCPU=50.0),
                    ran("b", 2.0, coreCount=1.5, memoryInBytes=5000, priority=3),
                    ran("c", 3.0),
                    ran("d", 4.0, machines=["m"]),
                ],
            },
        },
    }


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], str]:
    def write(content: Any) -> str:
        path = tmp_path / "workflow.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def makespan(workload: Any, *nodes: Node) -> float:
    return Simulation(nodes or (Node("n", 4, 10**9),), workload).run().makespan


def test_a_workflow_runs_as_its_parents_say(written: Callable[[Any], str]) -> None:
    workload = read_wfformat(written(instance()))
    assert [job.call.spec.name for job in workload.jobs] == ["split", "part", "part", "join"]
    assert makespan(workload) == 1 + 3 + 4
    needs = [job.call.spec.requirements for job in workload.jobs]
    assert [need.cpus for need in needs] == [1, 2, 1, 1]  # one and a half cores are two
    assert needs[1].memory == 5000
    assert [job.call.spec.priority for job in workload.jobs] == [0, 3, 0, 0]


def test_children_count_as_much_as_parents(written: Callable[[Any], str]) -> None:
    content = instance()
    tasks = content["workflow"]["specification"]["tasks"]
    for one in tasks:
        one["parents"] = []
    tasks[1]["children"] = ["b", "c"]
    tasks[2]["children"] = tasks[3]["children"] = ["d"]
    assert makespan(read_wfformat(written(content))) == 8


def test_files_in_a_directory_are_read_and_written_there(written: Callable[[Any], str]) -> None:
    disk = StorageLayer("disk", "/data", 100.0 * MB)
    workload = read_wfformat(written(instance()), files_under="/data/in")
    # split: 1 s to read, half of its second computes, 2 s to write two files. The parts: 1 s each to read, together
    # 2 s; the first computes 2 s and writes alone for 1 s, the second computes 3 s and writes. join: 2 + 4 + 1.
    assert makespan(workload, Node("n", 4, 10**9, (), (disk,))) == pytest.approx(3.5 + 2 + 3 + 1 + 7)
    outcome = Simulation([Node("n", 4, 10**9, (), (disk,))], workload).run()
    assert outcome.devices["n:disk"].transferred == 1000 * MB


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(2.0, 6.0), ({"split": 5.0, "part": 1.0, "join": 1.0}, 7.0), ({"b": 9.0}, 1 + 9 + 4)],
)
def test_durations_may_be_given(written: Callable[[Any], str], seconds: Any, expected: float) -> None:
    assert makespan(read_wfformat(written(instance()), seconds=seconds)) == expected


def test_a_workflow_that_was_never_run_needs_durations(written: Callable[[Any], str]) -> None:
    content = instance()
    del content["workflow"]["execution"]
    path = written(content)
    with pytest.raises(ConfigError, match="say how long tasks take"):
        read_wfformat(path)
    with pytest.raises(ConfigError, match=r"nothing says how long task 'b' \(part\) takes"):
        read_wfformat(path, seconds={"split": 1.0})
    assert 3 <= makespan(read_wfformat(path, seconds=Uniform(1.0, 2.0))) <= 6


def test_version_1_6_is_read_alike(written: Callable[[Any], str]) -> None:
    content = instance() | {"schemaVersion": "1.6"}
    content["workflow"]["specification"]["metrics"] = {"numberOfTasks": 4}
    assert makespan(read_wfformat(written(content))) == 8


def test_a_task_on_another_node_gets_the_files_that_it_reads_and_no_others(written: Callable[[Any], str]) -> None:
    nodes = [Node(name, 2, 10**9) for name in "mn"]  # each part needs two cores, so one is on the other node
    simulation = Simulation(nodes, read_wfformat(written(instance())), network=Network(100 * MB))
    # split, its second file on the way for a second, the part there; then the file of one part, and join
    outcome = simulation.run()
    assert outcome.makespan == pytest.approx(1 + (1 + 3) + (1 + 4))
    assert sum(use.transferred for name, use in outcome.links.items() if name.endswith(":in")) == 200 * MB


def test_what_nobody_tells_takes_the_default_time(written: Callable[[Any], str]) -> None:
    content = instance()
    content["workflow"]["execution"]["tasks"].pop(0)  # of the split
    assert makespan(read_wfformat(written(content), default=5.0)) == 5 + 3 + 4
    del content["workflow"]["execution"]
    assert makespan(read_wfformat(written(content), default=5.0)) == 15


def test_version_1_4_calls_tasks_by_name(written: Callable[[Any], str]) -> None:
    def file(name: str, link: str) -> Any:
        return {"name": name, "link": link, "sizeInBytes": 10}

    content = {
        "schemaVersion": "1.4",
        "workflow": {
            "makespanInSeconds": 3,
            "tasks": [
                {
                    "name": "second_2",
                    "id": "2",
                    "parents": ["first_1"],
                    "runtimeInSeconds": 2.0,
                    "cores": 2,
                    "files": [file("x", "input")],
                },
                {"name": "first_1", "id": "1", "runtimeInSeconds": 1.0, "files": [file("x", "output")]},
            ],
        },
    }
    workload = read_wfformat(written(content))
    assert [job.call.spec.name for job in workload.jobs] == ["first_1", "second_2"]
    assert [job.call.spec.requirements.cpus for job in workload.jobs] == [1, 2]
    assert workload.jobs[0].sizes == (10,)
    assert makespan(workload) == 3


def test_machines_are_nodes_if_their_cores_are_known(written: Callable[[Any], str]) -> None:
    content = instance()
    assert read_machines(written(content)) == []
    machines = content["workflow"]["execution"]["machines"] = [
        {"nodeName": "m", "cpu": {"coreCount": 8, "speedInMHz": 3000}, "memoryInBytes": 10**9},
        {"nodeName": "o", "cpu": {"coreCount": 4}},
    ]
    assert read_machines(written(content)) == [Node("m", 8, 10**9), Node("o", 4, UNKNOWN_MEMORY)]
    del machines[1]["cpu"]
    assert read_machines(written(content)) == []


def spoiled(change: Callable[[Any], object]) -> Any:
    content = instance()
    change(content["workflow"])
    return content


BROKEN = {
    "no JSON": ("{", "is no JSON object"),
    "a list": ([], "is no JSON object"),
    "another version": ({"schemaVersion": "0.9"}, "schemaVersion is '0.9'; WfFormat 1.5 is read"),
    "no version": ({}, "schemaVersion is None"),
    "no workflow": ({"schemaVersion": "1.5"}, r"does not follow WfFormat 1.5: .*workflow"),
    "no tasks": (spoiled(lambda w: w["specification"]["tasks"].clear()), "it has no tasks"),
    "wrong type": (
        spoiled(lambda w: w["specification"]["tasks"][1].update(parents="a")),
        r"does not follow WfFormat 1.5: .*\$.workflow.specification.tasks\[1\].parents",
    ),
    "twice the same id": (
        spoiled(lambda w: w["specification"]["tasks"][1].update(id="b")),
        "two tasks have the id 'b'",
    ),
    "missing parent": (
        spoiled(lambda w: w["specification"]["tasks"][1].update(parents=["z"])),
        "task 'a' names 'z' as parent or child, but there is none",
    ),
    "missing child": (
        spoiled(lambda w: w["specification"]["tasks"][1].update(children=["z"])),
        "task 'a' names 'z' as parent or child",
    ),
    "cycle": (
        spoiled(lambda w: w["specification"]["tasks"][1].update(parents=["d"])),
        "is part of a cycle, or comes after one",
    ),
    "its own parent": (spoiled(lambda w: w["specification"]["tasks"][1].update(parents=["a"])), "cycle"),
    "dangling file": (
        spoiled(lambda w: w["specification"]["files"].pop(0)),
        "task 'a' uses file 'given', which is not among the files",
    ),
    "negative size": (
        spoiled(lambda w: w["specification"]["files"][0].update(sizeInBytes=-1)),
        "file 'given' has -1 bytes",
    ),
    "negative time": (
        spoiled(lambda w: w["execution"]["tasks"][2].update(runtimeInSeconds=-3.0)),
        "task 'c' took -3.0 seconds",
    ),
    "not executed": (
        spoiled(lambda w: w["execution"]["tasks"].pop()),
        r"nothing says how long task 'd' \(join\) takes",
    ),
    "not specified": (
        spoiled(lambda w: w["execution"]["tasks"].append(ran("z", 1.0))),
        "task 'z' was executed, but is not in the specification",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_right_is_said_with_the_file(written: Callable[[Any], str], case: str) -> None:
    content, message = BROKEN[case]
    path = written(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_wfformat(path)
    assert str(caught.value).startswith(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_wfformat(str(tmp_path / "none.json"))
