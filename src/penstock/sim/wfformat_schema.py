"""WfFormat as it is written: the parts of a file that matter here, and how a file becomes them.

Files of version 1.4, where everything about a task is in one place, are brought into the form of 1.5.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import ConfigError

__all__ = ["Executed", "Execution", "Machine", "Source", "Specification", "Task", "Workflow"]


class Task(Struct):
    """A task of the specification."""

    name: str
    id: str
    parents: list[str] = []
    children: list[str] = []
    inputFiles: list[str] = []
    outputFiles: list[str] = []


class File(Struct):
    id: str
    sizeInBytes: int


class Executed(Struct):
    """How a task was run."""

    id: str
    runtimeInSeconds: float
    coreCount: float | None = None
    avgCPU: float | None = None
    memoryInBytes: float | None = None
    priority: int | None = None


class Specification(Struct):
    tasks: list[Task]
    files: list[File] = []


class Cpu(Struct, frozen=True):
    coreCount: int | None = None
    #: what versions before 1.5 call it
    count: int | None = None


class Machine(Struct):
    nodeName: str
    cpu: Cpu = Cpu()
    memoryInBytes: int | None = None


class Execution(Struct):
    tasks: list[Executed]
    machines: list[Machine] = []


class Workflow(Struct):
    specification: Specification
    execution: Execution | None = None


class _Instance(Struct):
    workflow: Workflow


class _OldFile(Struct):
    name: str
    link: str
    sizeInBytes: int = 0
    path: str = ""


class _OldTask(Struct):
    """A task as version 1.4 has it: all in one place, and others are called by their names."""

    name: str
    id: str = ""
    parents: list[str] = []
    children: list[str] = []
    files: list[_OldFile] = []
    runtimeInSeconds: float | None = None
    cores: float | None = None
    avgCPU: float | None = None
    memoryInBytes: float | None = None
    priority: int | None = None


class _OldWorkflow(Struct):
    tasks: list[_OldTask]
    machines: list[Machine] = []


class _OldInstance(Struct):
    workflow: _OldWorkflow


class Source:
    """The file, and what is wrong with it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{self.path}: {what}")

    def read(self) -> Workflow:
        try:
            with open(self.path, "rb") as file:
                text = file.read()
            instance = msgspec.json.decode(text, type=dict[str, Any])
        except OSError as error:
            raise self.wrong(f"cannot be read: {error.strerror}") from None
        except msgspec.DecodeError as error:
            raise self.wrong(f"is no JSON object: {error}") from None
        version = instance.get("schemaVersion")
        if version not in ("1.4", "1.5", "1.6"):
            raise self.wrong(f"schemaVersion is {version!r}; WfFormat 1.5 is read, and 1.4 and 1.6")
        try:
            if version == "1.4":
                return _renewed(msgspec.convert(instance, _OldInstance).workflow)
            return msgspec.convert(instance, _Instance).workflow
        except msgspec.ValidationError as error:
            raise self.wrong(f"does not follow WfFormat {version}: {error}") from None


def _renewed(old: _OldWorkflow) -> Workflow:
    """A workflow of version 1.4 in the form of 1.5."""
    ids = [task.id or task.name for task in old.tasks]
    if len(set(ids)) < len(ids):
        ids = [task.name for task in old.tasks]
    called = {**dict(zip((task.name for task in old.tasks), ids, strict=True)), **{one: one for one in ids}}
    specification, execution = Specification([]), Execution([], old.machines)
    files: dict[str, File] = {}
    for task, number in zip(old.tasks, ids, strict=True):
        links: dict[bool, list[str]] = {True: [], False: []}
        for file in task.files:
            name = file.path + file.name
            files.setdefault(name, File(name, file.sizeInBytes))
            links[file.link.lower() == "input"].append(name)
        parents = [called.get(one, one) for one in task.parents]
        children = [called.get(one, one) for one in task.children]
        specification.tasks.append(Task(task.name, number, parents, children, links[True], links[False]))
        if task.runtimeInSeconds is not None:
            about = (task.cores, task.avgCPU, task.memoryInBytes, task.priority)
            execution.tasks.append(Executed(number, task.runtimeInSeconds, *about))
    specification.files = list(files.values())
    return Workflow(specification, execution if execution.tasks or execution.machines else None)
