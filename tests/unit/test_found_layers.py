"""Storage layers that nobody described, found on made-up /proc and /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.runtime import found_layers
from penstock.runtime.config import load_config
from penstock.runtime.found_layers import FoundLayer, find_layers, known_layers

HOME, SCRATCH = "/home/me/run", "/scratch/tmp"


class FakeRoot:
    """A folder that looks like / as far as we read it: ``/`` on 8:1, ``/scratch`` on 8:17, a tmpfs in ``/dev/shm``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mounts = [
            "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
            "21 20 8:17 / /scratch rw - xfs /dev/sdb1 rw",
            "22 20 0:23 / /dev/shm rw,nosuid - tmpfs tmpfs rw",
        ]
        for folder in (HOME, SCRATCH, "/dev/shm", "/tmp"):
            self.folder(folder)

    def folder(self, name: str) -> Path:
        folder = self.path / name.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def disk(self, device: str, name: str, rotational: int, partition: str = "") -> Path:
        """A disk as /sys shows it, with its number, or with that of its partition."""
        disk = self.folder(f"/sys/devices/pci0/block/{name}")
        (disk / "queue").mkdir(exist_ok=True)
        (disk / "queue" / "rotational").write_text(f"{rotational}\n")
        whole = disk / partition
        whole.mkdir(exist_ok=True)
        self.link(f"/sys/dev/block/{device}", whole)
        return whole

    def link(self, name: str, target: Path) -> None:
        link = self.path / name.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))

    def look(self, cwd: str = HOME, **environ: str) -> tuple[FoundLayer, ...]:
        info = self.folder("/proc/self") / "mountinfo"
        info.write_text("".join(f"{line}\n" for line in self.mounts))
        return find_layers(str(self.path), environ, cwd)

    def kind_of_home(self) -> str:
        (work,) = (found for found in self.look() if found.layer.name == "work")
        return work.kind


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRoot:
    # Layers that are equally fast are in the order of their room, which on a disk in use is never the same twice.
    monkeypatch.setattr(found_layers, "free_bytes", lambda folder: 4000)
    return FakeRoot(tmp_path)


def names(found: tuple[FoundLayer, ...]) -> list[str]:
    return [one.layer.name for one in found]


def test_this_real_machine(tmp_path: Path) -> None:
    found = find_layers(cwd=str(tmp_path))
    assert found
    for one in found:
        assert os.path.isdir(one.layer.mount)
        assert one.layer.capacity is not None and one.layer.capacity >= 0
        assert one.guessed


def test_memory_temporary_and_working_directory_fastest_first(root: FakeRoot) -> None:
    root.disk("8:1", "sda", 1, "sda1")
    root.disk("8:17", "sdb", 0, "sdb1")
    memory, tmp, work = root.look(TMPDIR=SCRATCH)
    assert (memory.layer.name, memory.layer.mount, memory.layer.bandwidth, memory.kind) == (
        *("memory", "/dev/shm"),
        *(2e9, "memory"),
    )
    assert (tmp.layer.name, tmp.layer.mount, tmp.layer.bandwidth, tmp.kind) == ("tmp", SCRATCH, 450e6, "SSD")
    assert (work.layer.name, work.layer.mount, work.layer.bandwidth, work.kind) == (
        "work",
        HOME,
        150e6,
        "rotating disk",
    )
    assert not any(one.layer.shared for one in (memory, tmp, work))


def test_one_device_is_one_layer_and_bears_the_name_of_the_work(root: FakeRoot) -> None:
    assert names(root.look()) == ["memory", "work"]  # /tmp is on the device of /home
    assert names(root.look(cwd="/tmp")) == ["memory", "work"]
    assert names(root.look(TMPDIR="/dev/shm")) == ["tmp", "work"]
    assert names(root.look(cwd="/dev/shm", TMPDIR="/dev/shm")) == ["work"]
    root.mounts.append("23 20 8:1 /other /bound rw - ext4 /dev/sda1 rw")  # the same file system, seen elsewhere
    root.folder("/bound")
    assert names(root.look(TMPDIR="/bound")) == ["memory", "work"]


def only_for_temporary_files(found: tuple[FoundLayer, ...]) -> list[str]:
    return [one.layer.name for one in found if one.layer.temporary]


def test_what_may_be_gone_tomorrow_is_for_temporary_files_only(root: FakeRoot) -> None:
    assert only_for_temporary_files(root.look()) == ["memory"]
    assert only_for_temporary_files(root.look(TMPDIR=SCRATCH)) == ["memory", "tmp"]
    assert only_for_temporary_files(root.look(cwd=SCRATCH)) == ["memory", "tmp"]  # /tmp, on another device now
    assert only_for_temporary_files(root.look(cwd=SCRATCH, TMPDIR=SCRATCH)) == ["memory"]


def test_a_working_directory_in_memory_is_memory_all_the_same(root: FakeRoot) -> None:
    """Files that are named there are written there; those that are named on a disk must not come by here."""
    assert only_for_temporary_files(root.look(cwd="/dev/shm")) == ["work", "tmp"]


def test_links_are_followed_to_the_device(root: FakeRoot) -> None:
    root.link("/home/me/fast", root.path / "scratch")
    assert names(root.look(TMPDIR="/home/me/fast/tmp")) == ["memory", "work", "tmp"]


def test_memory_gives_a_quarter_and_disks_what_is_free(root: FakeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_layers, "free_bytes", lambda folder: 4000 if folder.endswith("shm") else 70)
    assert {one.layer.name: one.layer.capacity for one in root.look()} == {"memory": 1000, "work": 70}


def test_shared_memory_counts_only_if_it_is_memory(root: FakeRoot) -> None:
    root.mounts[2] = "22 20 8:33 / /dev/shm rw - ext4 /dev/sdc1 rw"
    assert names(root.look()) == ["work"]
    del root.mounts[2]
    assert names(root.look()) == ["work"]


def test_the_mount_in_sight_is_the_last_one(root: FakeRoot) -> None:
    root.mounts.append("23 20 0:40 / /home rw - nfs4 server:/home rw")
    root.mounts.append("24 23 0:41 / /home rw - tmpfs tmpfs rw")
    assert root.kind_of_home() == "memory"


def test_neighbours_with_a_longer_name_are_not_the_same(root: FakeRoot) -> None:
    root.mounts.append("23 20 0:40 / /home/m rw - nfs4 server:/m rw")
    assert root.kind_of_home() == "unknown"


def test_blanks_in_the_name_of_a_mount(root: FakeRoot) -> None:
    root.mounts.append("23 20 0:40 / /my\\040data rw - lustre mgs:/x rw")
    root.folder("/my data")
    (work,) = (one for one in root.look(cwd="/my data") if one.layer.name == "work")
    assert work.kind == "network"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "fuse.sshfs"])
def test_file_systems_of_the_network_are_shared(root: FakeRoot, kind: str) -> None:
    root.mounts.append(f"23 20 0:40 / /home rw - {kind} server:/home rw")
    (work,) = (one for one in root.look() if one.layer.name == "work")
    assert (work.kind, work.layer.shared, work.layer.bandwidth) == ("network", True, 500e6)


def test_kinds_of_disk(root: FakeRoot) -> None:
    assert root.kind_of_home() == "unknown"
    root.disk("8:1", "sda", 0)
    assert root.kind_of_home() == "SSD"


def test_an_nvme_is_known_by_its_name(root: FakeRoot) -> None:
    root.disk("8:1", "nvme0n1", 0, "nvme0n1p2")
    assert root.kind_of_home() == "NVMe"


def test_a_virtual_disk_is_not_believed(root: FakeRoot) -> None:
    root.disk("8:1", "vda", 1, "vda1")
    assert root.kind_of_home() == "unknown"


def test_a_volume_is_as_fast_as_its_slowest_disk(root: FakeRoot) -> None:
    volume = root.disk("8:1", "dm-0", 1)
    root.disk("259:0", "nvme0n1", 0)
    part = root.disk("259:1", "nvme1n1", 0, "nvme1n1p1")
    root.link("/sys/devices/pci0/block/dm-0/slaves/nvme0n1", root.path / "sys/devices/pci0/block/nvme0n1")
    root.link("/sys/devices/pci0/block/dm-0/slaves/nvme1n1p1", part)
    assert root.kind_of_home() == "NVMe"
    root.disk("8:2", "sdc", 1)
    root.link("/sys/devices/pci0/block/dm-0/slaves/sdc", root.path / "sys/devices/pci0/block/sdc")
    assert root.kind_of_home() == "rotating disk"
    assert volume.exists()


def test_a_file_system_with_a_number_of_its_own_is_known_by_its_source(root: FakeRoot) -> None:
    root.mounts[0] = "20 1 0:31 /@ / rw - btrfs /dev/sda1 rw"
    part = root.disk("8:1", "sda", 0, "sda1")
    root.link("/sys/class/block/sda1", part)
    assert root.kind_of_home() == "SSD"


def test_what_cannot_be_written_in_is_no_layer(root: FakeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    real = found_layers._writable
    monkeypatch.setattr(found_layers, "_writable", lambda folder: not folder.endswith(("shm", "run")) and real(folder))
    assert names(root.look(TMPDIR="/gone")) == ["tmp"]
    assert root.look(TMPDIR="/gone")[0].layer.mount == "/tmp"


def test_a_system_that_tells_nothing_has_no_layers(root: FakeRoot) -> None:
    root.mounts.clear()
    assert root.look() == ()


def test_what_is_described_is_not_looked_for(tmp_path: Path) -> None:
    table = {"name": "ssd", "mount": ".", "bandwidth": 450, "capacity": 1}
    (known,) = known_layers(load_config({"storage": [table]}, {}, str(tmp_path)).config)
    assert (known.layer.name, known.layer.capacity, known.guessed) == ("ssd", 1_000_000, False)
