"""Where the files of a simulation are: which node and device holds each path, and how many bytes it has.

Nodes may have devices of the same name and mount; a file stays on the device of the node that wrote it. Like in a real
file system, a file may have several names and takes its room until the last of them is gone; a link takes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from penstock.model.resources import Node, StorageLayer
from penstock.sim.devices import Device
from penstock.sim.transfers import TransferDevice
from penstock.storage.redirect import home_of

__all__ = ["Files", "MakeDevice", "Stored", "make_device"]

#: by the name that outcomes show, the layer, and the bytes per second of one stream at most (0: no such limit)
MakeDevice = Callable[[str, StorageLayer, float], TransferDevice]


def make_device(name: str, layer: StorageLayer, per_stream: float) -> TransferDevice:
    """A device that bears what its layer says."""
    return Device(name, layer.bandwidth, layer.curve or layer.measured, per_stream)


class Stored:
    """A file as it lies somewhere."""

    __slots__ = ("device", "names", "node", "size")

    def __init__(self, node: str, device: TransferDevice | None, size: int) -> None:
        self.node = node
        #: None where it is on no layer
        self.device = device
        self.size = size
        self.names = 0


class Files:
    """Devices by node and layer, and the files that were written in this simulation."""

    def __init__(self, stream_bandwidth: Mapping[str, float], room: Mapping[str, int], device: MakeDevice) -> None:
        #: by the name that outcomes show: that of the layer if nodes share it, else with that of the node before it
        self.devices: dict[str, TransferDevice] = {}
        self._make_device = device
        self._stream_bandwidth = stream_bandwidth
        #: bytes that layers really hold, by name of the layer; those not named here hold whatever comes
        self._room = room
        self._left: dict[TransferDevice, int] = {}
        #: the nodes of devices that are not shared
        self.owners: dict[TransferDevice, str] = {}
        self._layers: dict[str, dict[str, StorageLayer]] = {}
        self._stored: dict[str, Stored] = {}
        self._links: dict[str, str] = {}
        #: files that went with a node, by path, with the name of the node
        self._lost: dict[str, str] = {}

    def join(self, node: Node) -> None:
        """A node brings its devices; those of one that was here before are empty now."""
        self._layers[node.name] = {layer.name: layer for layer in node.storage}
        for layer in node.storage:
            label = _label(node.name, layer)
            if label not in self.devices:
                per_stream = self._stream_bandwidth.get(layer.name, 0.0)
                device = self.devices[label] = self._make_device(label, layer, per_stream)
                if not layer.shared:
                    self.owners[device] = node.name
                if layer.name in self._room:
                    self._left[device] = self._room[layer.name]

    def lose(self, node: str) -> None:
        """A node is gone with the files on its own devices."""
        for path in [
            path
            for path, stored in self._stored.items()
            if stored.device is not None and self.owners.get(stored.device) == node
        ]:
            self._lost[path] = node
            self.remove(path)

    def device(self, node: str, layer: str) -> TransferDevice:
        """A layer as a node sees it."""
        return self.devices[_label(node, self._layers[node][layer])]

    def is_enforced(self, node: str, layer: str) -> bool:
        """Whether attempts write there no faster than they may."""
        return self._layers[node][layer].enforced

    def home(self, node: str, path: str) -> TransferDevice | None:
        """The device that a path lies on by its name."""
        layer = home_of(path, self._layers[node].values())
        return None if layer is None else self.devices[_label(node, layer)]

    def path_on(self, node: str, layer: str, number: int, name: str) -> str:
        """Where a file is put that is written on a layer instead of under its name."""
        return f"{self._layers[node][layer].mount.rstrip('/')}/sim/{number}/{name.lstrip('/')}"

    def found(self, node: str, path: str, size: int) -> Stored:
        """What a node finds under a path; ``size`` is for files that nobody has written here."""
        return self.stored(path) or Stored(node, self.home(node, path), size)

    def stored(self, path: str) -> Stored | None:
        """A file that was written here and is still there."""
        return self._stored.get(self._links.get(path, path))

    def lost_with(self, path: str) -> str:
        """The node with which a file went; empty if it did not."""
        return self._lost.get(self._links.get(path, path), "")

    # --- room ---------------------------------------------------------------------------------------------------------

    def take_room(self, device: TransferDevice | None, size: int) -> int:
        """Bytes of a file that fit on a device; they are taken."""
        if device is None or device not in self._left:
            return size
        fits = min(size, max(0, self._left[device]))
        self._left[device] -= fits
        return fits

    def give_room(self, device: TransferDevice | None, size: int) -> None:
        """Bytes on a device are free again."""
        if device is not None and device in self._left:
            self._left[device] += size

    def used(self) -> Counter[str]:
        """Bytes of files on each device, by its name."""
        found = {id(stored): stored for stored in self._stored.values()}.values()
        used: Counter[str] = Counter()
        for stored in found:
            if stored.device is not None:
                used[stored.device.name] += stored.size
        return used

    # --- names --------------------------------------------------------------------------------------------------------

    def put(self, path: str, stored: Stored) -> None:
        """A file, whose room was taken, has a name, in place of whatever had it before."""
        stored.names += 1
        self.remove(path)
        self._lost.pop(path, None)
        self._stored[path] = stored

    def link(self, name: str, path: str) -> None:
        """A name means the file at a path."""
        self.remove(name)
        self._links[name] = path

    def remove(self, path: str) -> None:
        """A path means nothing any more."""
        self._links.pop(path, None)
        stored = self._stored.pop(path, None)
        if stored is not None:
            stored.names -= 1
            if not stored.names:
                self.give_room(stored.device, stored.size)


def _label(node: str, layer: StorageLayer) -> str:
    return layer.name if layer.shared else f"{node}:{layer.name}"
