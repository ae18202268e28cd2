"""Storage layers of a machine that nobody described: shared memory, ``TMPDIR``, and the working directory.

Asked at each start without a description. Which file systems there are and what they stand on is read from /proc and
/sys; how fast they are is a guess by their kind, until ``penstock probe`` has measured them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.model.resources import StorageLayer
from penstock.runtime.config import working_directory
from penstock.runtime.directories import SHARED_MEMORY, free_bytes
from penstock.runtime.layers import described_layers, precedence

if TYPE_CHECKING:
    from penstock.runtime.config import Config

__all__ = ["FoundLayer", "find_layers", "is_on_network", "known_layers"]

#: bytes per second of each kind
_GUESSES = {"memory": 2e9, "NVMe": 1.5e9, "SSD": 450e6, "unknown": 450e6, "rotating disk": 150e6, "network": 500e6}
_MEMORY = frozenset({"tmpfs", "ramfs"})
_NETWORK = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "lustre",
            "gpfs",
            "beegfs",
            "ceph",
            "glusterfs",
            "orangefs",
            "pvfs2",
            "panfs",
            "wekafs",
            "afs",
        ),
        *("cifs", "smb3", "smbfs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "fuse.daos"),
    }
)
_VIRTUAL = re.compile("x?vd[a-z]")
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")


class FoundLayer(Struct, frozen=True):
    """A layer, and what we know of it."""

    layer: StorageLayer
    #: what it seems to be: ``memory``, ``NVMe``, ``SSD``, ``rotating disk``, ``network`` or ``unknown``
    kind: str
    #: the bandwidth was not measured
    guessed: bool = True


class _Mount(Struct, frozen=True):
    """A line of /proc/self/mountinfo."""

    point: str
    #: major and minor number; the same for all mounts of one file system
    device: str
    type: str
    source: str


def known_layers(config: Config) -> tuple[FoundLayer, ...]:
    """The layers that a run will use, fastest first, for those who show them."""
    described = described_layers(config)
    if described is None:
        return find_layers(memory=config.memory_dir)
    return tuple(FoundLayer(layer, "described", guessed=False) for layer in described)


def find_layers(
    root: str = "/", environ: Mapping[str, str] | None = None, cwd: str | None = None, memory: str | None = None
) -> tuple[FoundLayer, ...]:
    """Find the layers, fastest first; tests pass another root, environment and working directory.

    ``memory`` is the setting ``memory_dir``.
    """
    environ = os.environ if environ is None else environ
    mounts = _mounts(root)
    found: dict[str, FoundLayer] = {}
    for name, path in _places(root, environ, cwd or working_directory(), memory or SHARED_MEMORY):
        mount = _mount_of(_resolved(root, path), mounts)
        if mount is None or mount.device in found or (name == "memory" and mount.type not in _MEMORY):
            continue
        kind = _kind(root, mount)
        free = free_bytes(_under(root, path))
        # What fills a tmpfs is missing from the memory that tasks compute in.
        capacity = free // 4 if kind == "memory" else free
        # Memory is lost when the machine goes down; /tmp is emptied by many systems when they start, and TMPDIR of a
        # batch job when it ends. A file that is to last must not lie there unless the user says so, by a description.
        fleeting = kind == "memory" or name == "tmp"
        layer = StorageLayer(name, path, _GUESSES[kind], capacity, shared=kind == "network", temporary=fleeting)
        found[mount.device] = FoundLayer(layer, kind)
    return tuple(sorted(found.values(), key=lambda one: precedence(one.layer)))


def is_on_network(path: str) -> bool:
    """Whether other machines may use a file system too."""
    mount = _mount_of(os.path.realpath(path), _mounts("/"))
    return mount is not None and mount.type in _NETWORK


def _places(root: str, environ: Mapping[str, str], cwd: str, memory: str) -> Iterator[tuple[str, str]]:
    """Name and path of each place that may be a layer. Of two on one device the first gives the name."""
    if _writable(_under(root, cwd)):
        yield "work", cwd
    named = [os.path.normpath(os.path.join(cwd, path)) for variable in _TEMPORARY if (path := environ.get(variable))]
    for path in (*named, "/tmp", "/var/tmp"):
        if _writable(_under(root, path)):
            yield "tmp", path
            break
    if _writable(_under(root, memory)):
        yield "memory", memory


def _kind(root: str, mount: _Mount) -> str:
    if mount.type in _MEMORY:
        return "memory"
    if mount.type in _NETWORK:
        return "network"
    # A virtual machine's disk says that it rotates whatever the host keeps it on.
    disks = [disk for disk in _disks(_block_device(root, mount)) if not _VIRTUAL.match(os.path.basename(disk))]
    if disks and all(os.path.basename(disk).startswith("nvme") for disk in disks):
        return "NVMe"
    rotates = [_text(os.path.join(disk, "queue/rotational")).strip() for disk in disks]
    if "1" in rotates:
        return "rotating disk"  # the slowest of several sets the pace
    return "SSD" if "0" in rotates else "unknown"


def _block_device(root: str, mount: _Mount) -> str:
    """The folder of the kernel for the device that a file system stands on; it need not exist."""
    if mount.device.startswith("0:") and mount.source.startswith("/dev/"):
        # btrfs and its like span devices and have a number of their own; the source is one of those devices.
        return os.path.join(root, "sys/class/block", os.path.basename(_resolved(root, mount.source)))
    return os.path.join(root, "sys/dev/block", mount.device)


def _disks(folder: str) -> Iterator[str]:
    """The folders of the real disks below a device: through volumes and arrays, from a partition to its disk."""
    folder = os.path.realpath(folder)
    if not os.path.isdir(folder):
        return
    try:
        below = sorted(os.listdir(os.path.join(folder, "slaves")))
    except OSError:
        below = []
    if below:
        for name in below:
            yield from _disks(os.path.join(folder, "slaves", name))
    elif os.path.isdir(os.path.join(folder, "queue")):
        yield folder
    else:
        yield os.path.dirname(folder)


def _mounts(root: str) -> list[_Mount]:
    mounts = []
    for line in _text(os.path.join(root, "proc/self/mountinfo")).splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if dash and len(fields) >= 5 and len(rest) >= 2:
            mounts.append(_Mount(_unescaped(fields[4]), fields[2], rest[0], _unescaped(rest[1])))
    return mounts


def _mount_of(path: str, mounts: list[_Mount]) -> _Mount | None:
    best = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # Of two mounts on one point the later one is in sight.
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _unescaped(text: str) -> str:
    """The kernel writes blanks and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _resolved(root: str, path: str) -> str:
    """The path without links, as seen from ``root``."""
    return "/" + os.path.relpath(os.path.realpath(_under(root, path)), os.path.realpath(root))


def _under(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _writable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
