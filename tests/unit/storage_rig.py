"""Drives an engine by hand where there is storage: layers, I/O tasks, and what is asked of file systems."""

from __future__ import annotations

from typing import Any

from tests.unit.engine_rig import Rig, call, spec

from penstock.engine.state import StorageRules
from penstock.model.commands import Command, Discard, Launch, Move, Publish, Warm
from penstock.model.data import FileRef
from penstock.model.events import Discarded, Draining, FileDropped, HomeWanted, Moved, NodeJoined, Warmed
from penstock.model.resources import Auto, Node, Requirements, StorageLayer
from penstock.model.tasks import Failure, FailureKind, Output, TaskCall, TaskSpec

MB = 1e6
FULL = Failure(FailureKind.STORAGE_FULL, "no space left on device")

FAST = StorageLayer("fast", "/fast", 100 * MB)
SLOW = StorageLayer("slow", "/slow", 40 * MB)


def io(name: str = "w", *, bw: float = 0.0, size: int = 0, auto: Auto | None = None, **fields: Any) -> TaskSpec:
    """An I/O function; bandwidth in MB/s."""
    return spec(name, requirements=Requirements(0, io=True, bandwidth=bw * MB, capacity=size, auto=auto), **fields)


def writes(task: int, file: str, of: TaskSpec, *, new: int = 0, old: int = 0, temp: bool = False) -> TaskCall:
    """A call with one FILE_OUT, as version ``100 + task``, or a FILE_INOUT one if there is an old version."""
    output = Output((0,), 0 if old else -1, file, bool(old), temp)
    slots = (old,) if old else ()
    return call(task, of, slots=slots, writable=(0,) if old else (), writes=(new or 100 + task,), outputs=(output,))


def reads(task: int, *versions: int, of: TaskSpec | None = None) -> TaskCall:
    return call(task, of, slots=versions)


class StorageRig(Rig):
    """One node with two layers and four I/O executors, unless told otherwise."""

    def __init__(self, *layers: StorageLayer, executors: int = 4, nodes: int = 1, lanes: int = 1, **rules: Any) -> None:
        super().__init__(lanes=0, storage=StorageRules(**rules))
        self.now = 1.0
        for index in range(nodes):
            name = f"n{index}" if nodes > 1 else "n"
            self.tell(NodeJoined(Node(name, lanes, 0, (), layers or (FAST, SLOW), executors)))

    def wrote(self, task: int, *, size: int = 10, path: str = "") -> list[Command]:
        """An attempt ends that wrote its one file where it was told to."""
        record = self.engine.state.tasks[task]
        [output] = record.call.outputs
        device = record.device  # type: ignore[attr-defined]
        assert output.file is not None
        if not path:
            path = output.file if device is None else f"{device.mount}/ours/{task}{output.file}"
        return self.finish(task, FileRef(path, size))

    def moved(self, move: Command, error: str = "") -> list[Command]:
        """A move is over."""
        assert type(move) is Move
        if error:
            return self.tell(Moved(move.version, move.source, error))
        mounts = {device.name: device.mount for device in self.engine.state.ledger.devices()}
        path = f"{mounts[move.layer]}/ours/-{move.version}{move.name}" if move.layer else move.name
        return self.tell(Moved(move.version, path))

    def discarded(self, *commands: Command) -> list[Command]:
        """Copies are gone."""
        answers: list[Command] = []
        for command in commands:
            assert type(command) is Discard and command.tell
            answers += self.tell(Discarded(command.path))
        return answers

    def warmed(self, node: str = "n") -> list[Command]:
        return self.tell(Warmed(node))

    def want_home(self, name: str) -> list[Command]:
        return self.tell(HomeWanted(name))

    def drop_file(self, name: str) -> list[Command]:
        return self.tell(FileDropped(name))

    def drain(self) -> list[Command]:
        return self.tell(Draining())

    def device(self, name: str, node: str = "n") -> Any:
        [found] = [device for device in self.engine.state.ledger.nodes[node].devices if device.name == name]
        return found

    def free(self, name: str, node: str = "n") -> tuple[float, float]:
        """What a device has left: MB/s, bytes."""
        device = self.device(name, node)
        return device.free_bandwidth / MB, device.free_capacity


class PublishedRig(StorageRig):
    """One in which constraints are learned in epochs."""

    def __init__(self, *layers: StorageLayer, **settings: Any) -> None:
        super().__init__(*layers, tuner="published", **settings)


def where(commands: list[Command]) -> list[tuple[int, str, float]]:
    """The launched tasks, with the layer and the bandwidth in MB/s that each has."""
    return [(c.task, c.layer, c.bandwidth / MB) for c in commands if type(c) is Launch]


def of_kind(commands: list[Command], *kinds: type) -> list[Command]:
    return [command for command in commands if type(command) in kinds]


def on_disk(commands: list[Command]) -> list[Command]:
    """What is asked of file systems."""
    return of_kind(commands, Publish, Move, Discard)


__all__ = [
    "FAST",
    "FULL",
    "MB",
    "SLOW",
    "PublishedRig",
    "StorageRig",
    "Warm",
    "io",
    "of_kind",
    "on_disk",
    "reads",
    "where",
    "writes",
]
