"""How much of each attempt was transfer to or from storage devices, and how much was computing.

Files are found by the versions that tasks make and read, and devices by the layer of an attempt or of a file's name.
How long the bytes of each attempt took is found by running time backwards (backwards.py).
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.model.data import TaskId, VersionId
from penstock.model.resources import Node, StorageLayer
from penstock.runtime.recorded.backwards import Stream, backwards
from penstock.runtime.recorded.run import Attempt, Call, RecordedRun
from penstock.storage.redirect import home_of

__all__ = ["Transfers"]


class Transfers:
    """The transfers of a run."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        #: where the file behind each version is
        self._files: dict[VersionId, tuple[str, str, int]] = {}
        #: streams of each device, which is the name of a node, or none, and of a layer
        self._streams: dict[tuple[str, str], list[Stream]] = {}
        #: seconds that tasks took at least, for what they wrote to a layer that is enforced
        self._held: dict[TaskId, float] = {}
        self._layers = {
            ("" if layer.shared else node.name, layer.name): layer
            for node in run.nodes.values()
            for layer in node.storage
        }
        for call in run.calls.values():
            self._add(call)
        self._add_moves()
        self._measured = {key: _with_curve(self._layers[key], self._streams[key]) for key in self._streams}
        #: seconds of each task that were not computing
        self.seconds: dict[TaskId, float] = {}
        for key, streams in self._streams.items():
            for task, seconds in backwards(self._measured[key], streams).items():
                self.seconds[task] = self.seconds.get(task, 0.0) + seconds
        for task, seconds in self._held.items():
            self.seconds[task] = max(self.seconds.get(task, 0.0), seconds)

    def nodes(self) -> list[Node]:
        """The nodes, with what was seen of devices that no curve is known of."""
        return [
            replace(node, storage=tuple(self._measured.get(self._key(node, one), one) for one in node.storage))
            for node in self._run.nodes.values()
        ]

    def file(self, version: VersionId) -> str | None:
        """The name of the file that a version is; None if it is none that a task wrote."""
        found = self._files.get(version)
        return found[0] if found else None

    @staticmethod
    def _key(node: Node, layer: StorageLayer) -> tuple[str, str]:
        return ("" if layer.shared else node.name, layer.name)

    def _add(self, call: Call) -> None:
        attempt = call.attempts[-1] if call.attempts else None
        if attempt is None or not attempt.ok:
            return
        sizes: dict[tuple[str, str], int] = {}
        for version in call.reads:
            if version in self._files:
                _, device, size = self._files[version]
                self._count(sizes, attempt.node, device, size)
        outputs = call.writes[len(call.writes) - len(call.paths) :] if call.paths else []
        written = iter(call.sizes)
        for version, path in zip(outputs, call.paths, strict=True):
            if path:
                device, size = attempt.layer or self._home(attempt.node, path), next(written, 0)
                self._files[version] = (path, device, size)
                self._count(sizes, attempt.node, device, size)
        if attempt.bandwidth and self._is_enforced(attempt):
            self._held[call.task] = min(sum(call.sizes) / attempt.bandwidth, attempt.ended - attempt.begun)
        for key, size in sizes.items():
            stream = Stream(call.task, attempt.begun, attempt.ended, size)
            self._streams.setdefault(key, []).append(stream)

    def _count(self, sizes: dict[tuple[str, str], int], node: str, layer: str, size: int) -> None:
        for key in ((node, layer), ("", layer)):
            if size and key in self._layers:
                sizes[key] = sizes.get(key, 0) + size
                return

    def _is_enforced(self, attempt: Attempt) -> bool:
        return any(
            key in self._layers and self._layers[key].enforced
            for key in ((attempt.node, attempt.layer), ("", attempt.layer))
        )

    def _home(self, node: str, path: str) -> str:
        found = self._run.nodes.get(node)
        layer = home_of(path, found.storage) if found else None
        return layer.name if layer else ""

    def _add_moves(self) -> None:
        """Files that moved between layers took their share of both."""
        node = next(iter(self._run.nodes))
        for move in self._run.moves:
            for layer in {self._home(node, move.source), move.layer}:
                sizes: dict[tuple[str, str], int] = {}
                self._count(sizes, node, layer, move.size)
                for key in sizes:
                    stream = Stream(None, move.ended - move.seconds, move.ended, move.size)
                    self._streams.setdefault(key, []).append(stream)


def _with_curve(layer: StorageLayer, streams: list[Stream]) -> StorageLayer:
    """A real device was at least as fast as the run has seen it, perhaps thanks to memory, whatever else is known."""
    if layer.curve:
        return layer
    together = _together(streams)
    if layer.measured and together <= max(rate for _, rate in layer.measured):
        return layer
    alone = max(stream.size / max(1e-9, stream.end - stream.begin) for stream in streams)
    return replace(layer, measured=((1, max(alone, layer.bandwidth)), (2, max(together, layer.bandwidth))))


def _together(streams: list[Stream]) -> float:
    """The most bytes per second that streams which ran together had together."""
    changes: list[tuple[float, float]] = []
    for stream in streams:
        rate = stream.size / max(1e-9, stream.end - stream.begin)
        changes += [(stream.begin, rate), (stream.end, -rate)]
    most = rate = 0.0
    for _, change in sorted(changes):
        rate += change
        most = max(most, rate)
    return most
