"""Where the files of a simulation are: which node and device holds each path, and how many bytes it has.

Nodes may have devices of the same name and mount; a file stays on the device of the node that wrote it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from penstock.model.resources import Node, StorageLayer
from penstock.sim.devices import Device
from penstock.storage.redirect import home_of

__all__ = ["Files", "Stored"]

S = TypeVar("S", bound=Hashable)


class Stored(Struct, Generic[S], frozen=True):
    """A file as it lies somewhere."""

    node: str
    #: None where it is on no layer
    device: Device[S] | None
    size: int


class Files(Generic[S]):
    """Devices by node and layer, and the files that were written in this simulation."""

    def __init__(self, nodes: Iterable[Node], stream_bandwidth: Mapping[str, float]) -> None:
        #: by the name that outcomes show: that of the layer if nodes share it, else with that of the node before it
        self.devices: dict[str, Device[S]] = {}
        self._layers: dict[str, dict[str, StorageLayer]] = {}
        self._stored: dict[str, Stored[S]] = {}
        for node in nodes:
            self._layers[node.name] = {layer.name: layer for layer in node.storage}
            for layer in node.storage:
                device: Device[S] = Device(layer, stream_bandwidth.get(layer.name, 0.0))
                self.devices.setdefault(_label(node.name, layer), device)

    def device(self, node: str, layer: str) -> Device[S]:
        """A layer as a node sees it."""
        return self.devices[_label(node, self._layers[node][layer])]

    def home(self, node: str, path: str) -> Device[S] | None:
        """The device that a path lies on by its name."""
        layer = home_of(path, self._layers[node].values())
        return None if layer is None else self.devices[_label(node, layer)]

    def path_on(self, node: str, layer: str, number: int, name: str) -> str:
        """Where a file is put that is written on a layer instead of under its name."""
        return f"{self._layers[node][layer].mount.rstrip('/')}/sim/{number}/{name.lstrip('/')}"

    def found(self, node: str, path: str, size: int) -> Stored[S]:
        """What a node finds under a path; ``size`` is for files that nobody has written here."""
        return self._stored.get(path) or Stored(node, self.home(node, path), size)

    def stored(self, path: str) -> Stored[S]:
        """A file that was written here and is still there."""
        return self._stored[path]

    def put(self, path: str, stored: Stored[S]) -> None:
        """A file is there, in place of what was there before."""
        self._stored[path] = stored

    def remove(self, path: str) -> None:
        """A path means nothing any more."""
        self._stored.pop(path, None)


def _label(node: str, layer: StorageLayer) -> str:
    return layer.name if layer.shared else f"{node}:{layer.name}"
