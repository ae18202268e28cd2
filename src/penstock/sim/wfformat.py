"""Workflows of the WfCommons project as workloads: JSON in WfFormat 1.5 (1.6 is read alike), or in the older 1.4.

    specification: tasks, who comes before whom, files ─┐
    execution: seconds, cores, memory of each task     ─┴─▶ Workload

Tasks are called in an order that respects their parents, else in the order of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import ceil, isfinite
from typing import Any

from penstock.model.resources import Node
from penstock.sim.wfformat_schema import Executed, Execution, Source, Specification, Task, Workflow
from penstock.sim.workloads import Job, Seconds, Workload

__all__ = ["read_machines", "read_wfformat"]

_Durations = Seconds | Mapping[str, Seconds]
#: bytes of a machine of which nothing is said: tasks do not have to wait for memory
UNKNOWN_MEMORY = 1 << 50


def read_wfformat(
    path: str, *, seconds: _Durations | None = None, default: Seconds | None = None, files_under: str = ""
) -> Workload:
    """The workload that a file describes.

    ``seconds`` says how long tasks take instead of what the file says: for all, or by id or name of the task;
    ``default`` is for tasks of which nobody says it. Without ``files_under``, a file is no more than an object that a
    task hands on to those that read it, for the times of tasks include input and output. With it, files lie in that
    directory, tasks read and write them there, and of the time of a task only the share counts in which it used its
    cores, where the file says so.
    """
    source = Source(os.fspath(path))
    workflow = source.read()
    return _Building(source, workflow, seconds, default, files_under).workload


def read_machines(path: str) -> list[Node]:
    """The machines that a file says its tasks ran on; none if it does not, or not how many cores they have."""
    source = Source(os.fspath(path))
    execution = source.read().execution
    nodes = []
    for machine in execution.machines if execution else ():
        cores = machine.cpu.coreCount or machine.cpu.count
        if not cores or cores < 1:
            return []
        nodes.append(Node(machine.nodeName, cores, machine.memoryInBytes or UNKNOWN_MEMORY))
    return nodes


class _Building:
    """Makes the workload, and looks on the way whether what the file says can be true."""

    def __init__(
        self,
        source: Source,
        workflow: Workflow,
        seconds: _Durations | None,
        default: Seconds | None,
        files_under: str,
    ) -> None:
        self.workload = Workload()
        self._source = source
        self._seconds = seconds
        self._default = default
        self._folder = files_under
        self._tasks = self._by_id(workflow.specification.tasks)
        self._sizes = self._file_sizes(workflow.specification)
        self._executed = self._executions(workflow.execution)
        self._written: set[str] = set()
        self._read = {name for task in self._tasks.values() for name in task.inputFiles}
        jobs: dict[str, Job] = {}
        parents = self._parents()
        for name in self._in_order(parents):
            jobs[name] = self._add(self._tasks[name], [jobs[parent] for parent in parents[name]])

    def _by_id(self, tasks: list[Task]) -> dict[str, Task]:
        found: dict[str, Task] = {}
        for task in tasks:
            if task.id in found:
                raise self._source.wrong(f"two tasks have the id {task.id!r}")
            found[task.id] = task
        if not found:
            raise self._source.wrong("it has no tasks")
        return found

    def _file_sizes(self, specification: Specification) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for file in specification.files:
            if file.sizeInBytes < 0:
                raise self._source.wrong(f"file {file.id!r} has {file.sizeInBytes} bytes")
            sizes[file.id] = file.sizeInBytes
        for task in specification.tasks:
            for name in (*task.inputFiles, *task.outputFiles):
                if name not in sizes:
                    raise self._source.wrong(f"task {task.id!r} uses file {name!r}, which is not among the files")
        return sizes

    def _executions(self, execution: Execution | None) -> dict[str, Executed]:
        if execution is None or not execution.tasks:
            if self._seconds is None and self._default is None:
                raise self._source.wrong(
                    "it tells of no execution, so say how long tasks take: --default-duration 1s, in Python default=1.0"
                )
            return {}
        found = {one.id: one for one in execution.tasks}
        for name, one in found.items():
            if name not in self._tasks:
                raise self._source.wrong(f"task {name!r} was executed, but is not in the specification")
            if not (one.runtimeInSeconds >= 0 and isfinite(one.runtimeInSeconds)):
                raise self._source.wrong(f"task {name!r} took {one.runtimeInSeconds} seconds")
        return found

    def _parents(self) -> dict[str, list[str]]:
        """Who comes before each task; it may be said by either of the two."""
        parents: dict[str, dict[str, None]] = {name: {} for name in self._tasks}
        for name, task in self._tasks.items():
            for other in (*task.parents, *task.children):
                if other not in self._tasks:
                    raise self._source.wrong(f"task {name!r} names {other!r} as parent or child, but there is none")
            parents[name].update(dict.fromkeys(task.parents))
            for child in task.children:
                parents[child][name] = None
        return {name: list(found) for name, found in parents.items()}

    def _in_order(self, parents: Mapping[str, list[str]]) -> Iterable[str]:
        missing = {name: len(found) for name, found in parents.items()}
        children: dict[str, list[str]] = {name: [] for name in parents}
        for name, found in parents.items():
            for parent in found:
                children[parent].append(name)
        order = [name for name, count in missing.items() if not count]
        for name in order:
            for child in children[name]:
                missing[child] -= 1
                if not missing[child]:
                    order.append(child)
        if len(order) < len(missing):
            cycle = next(name for name, count in missing.items() if count)
            raise self._source.wrong(f"task {cycle!r} is part of a cycle, or comes after one: it could never start")
        return order

    def _add(self, task: Task, parents: list[Job]) -> Job:
        executed = self._executed.get(task.id)
        cores = max(1, ceil(executed.coreCount or 1)) if executed else 1
        options = self._as_files(task) if self._folder else self._as_objects(task)
        self._written.update(task.outputFiles)
        if executed and executed.priority:
            options["priority"] = executed.priority
        memory = int(executed.memoryInBytes or 0) if executed else 0
        time = self._time_of(task, executed, cores)
        return self.workload.task(task.name, seconds=time, cpus=cores, memory=memory, after=parents, **options)

    def _as_files(self, task: Task) -> dict[str, Any]:
        return {
            "reads": [self._to_read(name) for name in dict.fromkeys(task.inputFiles)],
            "writes": [(self._path(name), self._sizes[name]) for name in dict.fromkeys(task.outputFiles)],
        }

    def _as_objects(self, task: Task) -> dict[str, Any]:
        """What nobody reads needs no mention; what is there from the start is wherever it is needed."""
        return {
            "takes": [name for name in dict.fromkeys(task.inputFiles) if name in self._written],
            "gives": [(name, self._sizes[name]) for name in dict.fromkeys(task.outputFiles) if name in self._read],
        }

    def _time_of(self, task: Task, executed: Executed | None, cores: int) -> Seconds:
        given = self._seconds
        if isinstance(given, Mapping):
            given = given.get(task.id, given.get(task.name))
        if given is not None:
            return given
        if executed is None and self._default is not None:
            return self._default
        if executed is None:
            raise self._source.wrong(
                f"nothing says how long task {task.id!r} ({task.name}) takes; give --default-duration 1s, in "
                f"Python default=1.0"
            )
        if not self._folder or executed.avgCPU is None:
            return executed.runtimeInSeconds
        return executed.runtimeInSeconds * min(1.0, max(0.0, executed.avgCPU) / (100 * cores))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name.lstrip("/"))

    def _to_read(self, name: str) -> str | tuple[str, int]:
        path = self._path(name)
        return path if name in self._written else (path, self._sizes[name])
