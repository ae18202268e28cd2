"""Storage layers of the failure tests: folders or really small file systems, and what is left on them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.storage_tasks import WHOLE, content
from tests.own_place import memory_dir
from tests.trees import everything_below

import penstock
from penstock.engine.checks import check
from penstock.engine.devices import DeviceRecord


def layer(name: str, mount: Path | str, **more: Any) -> dict[str, Any]:
    """A layer as a user describes it."""
    Path(mount).mkdir(exist_ok=True)
    return {"name": name, "mount": str(mount), "bandwidth": WHOLE, "capacity": "1GB", **more}


def start(*layers: dict[str, Any], **settings: Any) -> penstock.Runtime:
    """A runtime with these layers that learns nothing from other runs and leaves nothing to them."""
    return penstock.start(**{"cpus": 2, "tuning": "off", "storage": list(layers), **settings})


def remains(*mounts: Path | str) -> list[str]:
    """Whatever lies on layers."""
    return sorted(str(path) for mount in mounts for path in everything_below(mount))


def names_in(folder: Path) -> list[str]:
    """The names in a folder, hidden ones too."""
    return sorted(os.listdir(folder))


def assert_home(path: Path, number: int, size: int = 1000) -> None:
    """The file is under its name in truth, and complete."""
    assert not path.is_symlink(), f"{path} is a link to {os.readlink(path)}"
    assert path.read_bytes() == content(number, size), f"{path} does not hold file {number}"


def devices(runtime: penstock.Runtime) -> dict[str, DeviceRecord]:
    return {device.name: device for device in runtime.driver.engine.state.ledger.devices()}


def assert_sums(runtime: penstock.Runtime) -> None:
    """The engine's records agree with each other."""
    with runtime.driver.lock:
        check(runtime.driver.engine)


def assert_given_back(runtime: penstock.Runtime) -> None:
    """No attempt holds bandwidth or room, and the sums are right."""
    assert_sums(runtime)
    for device in devices(runtime).values():
        assert device.free_bandwidth + device.others == device.layer.bandwidth
        assert device.reserved == 0
        assert not device.holders


# --- small file systems -------------------------------------------------------------------------------------------


def mount(folder: Path, options: str) -> str:
    """Mount a small file system; why that was impossible, or nothing."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "small", str(folder)], capture_output=True, text=True, check=False
    )
    return done.stderr.strip() if done.returncode else ""


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


def may_mount() -> bool:
    """Whether this process may mount file systems."""
    with tempfile.TemporaryDirectory() as folder:
        if mount(Path(folder), "size=64k"):
            return False
        unmount(Path(folder))
        return True


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "8m", inodes: str = "10k") -> Iterator[Path]:
    """A file system of a few megabytes."""
    refused = mount(folder, f"size={size},nr_inodes={inodes}")
    if refused:
        pytest.skip(f"a full disk needs a small one, which may not be mounted here: {refused.splitlines()[0]}")
    try:
        yield folder
    finally:
        unmount(folder)


@contextlib.contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder on another file system than that of the tests' own, if shared memory is one."""
    with tempfile.TemporaryDirectory(prefix="faults-", dir=memory_dir()) as folder:
        yield Path(folder)
