"""What a machine says of itself, on made-up /proc and /sys trees, and where workers are pinned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.runtime.machine import Machine, NumaNode, place_workers, this_machine

GIB = 1 << 30


class FakeRoot:
    """A folder that looks like / as far as we read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n")
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Imaginary 9000\n\nprocessor\t: 1\n")

    def write(self, name: str, content: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def look(self, affinity: range = range(8), **environ: str) -> Machine:
        return this_machine(str(self.path), environ, affinity)


@pytest.fixture
def root(tmp_path: Path) -> FakeRoot:
    return FakeRoot(tmp_path)


def cgroup2(root: FakeRoot, path: str = "/job/step", top: str = "/") -> None:
    root.write("proc/self/cgroup", f"0::{path}\n")
    root.write("proc/self/mountinfo", f"30 23 0:26 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n")


def test_this_real_machine() -> None:
    machine = this_machine()
    assert 1 <= machine.cpus <= len(machine.cpu_ids) == len(os.sched_getaffinity(0))
    assert 0 < machine.memory <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.hostname == os.uname().nodename
    assert machine.operating_system == "Linux"


def test_without_limits(root: FakeRoot) -> None:
    machine = root.look()
    assert (machine.cpus, machine.cpus_limit) == (8, "affinity")
    assert (machine.memory, machine.memory_limit) == (16 * GIB, "installed")
    assert machine.processor == "Imaginary 9000"
    assert machine.numa == (NumaNode(0, tuple(range(8))),)


def test_cgroup_2_limits_hold_at_every_level_above(root: FakeRoot) -> None:
    cgroup2(root)
    root.write("sys/fs/cgroup/job/cpu.max", "250000 100000\n")
    root.write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n")
    root.write("sys/fs/cgroup/job/memory.max", f"{2 * GIB}\n")
    root.write("sys/fs/cgroup/job/step/memory.max", "max\n")
    machine = root.look()
    assert (machine.cpus, machine.cpus_limit) == (3, "cgroup quota")  # two and a half, rounded up
    assert (machine.memory, machine.memory_limit) == (2 * GIB, "cgroup limit")
    assert len(machine.cpu_ids) == 8


@pytest.mark.parametrize(("path", "top"), [("/docker/abc", "/docker/abc"), ("/../other", "/docker/abc"), ("/", "/")])
def test_cgroup_2_as_seen_in_a_container(root: FakeRoot, path: str, top: str) -> None:
    cgroup2(root, path, top)
    root.write("sys/fs/cgroup/cpu.max", "200000 100000\n")
    assert root.look().cpus == 2


def test_cgroup_1(root: FakeRoot) -> None:
    root.write("proc/self/cgroup", "4:memory:/a\n2:cpu,cpuacct:/b\n1:name=systemd:/\n0::/\n")
    root.write(
        "proc/self/mountinfo",
        "33 31 0:30 / /cg/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n",
    )
    root.write("cg/cpu/cpu.cfs_quota_us", "-1\n")
    root.write("cg/cpu/cpu.cfs_period_us", "100000\n")
    root.write("cg/cpu/b/cpu.cfs_quota_us", "400000\n")
    root.write("cg/cpu/b/cpu.cfs_period_us", "100000\n")
    root.write("cg/memory/memory.limit_in_bytes", "9223372036854771712\n")
    root.write("cg/memory/a/memory.limit_in_bytes", f"{GIB}\n")
    machine = root.look()
    assert (machine.cpus, machine.memory) == (4, GIB)


def test_a_quota_below_one_cpu_is_one_cpu(root: FakeRoot) -> None:
    cgroup2(root, "/")
    root.write("sys/fs/cgroup/cpu.max", "1000 100000\n")
    assert root.look().cpus == 1


def test_slurm(root: FakeRoot) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "6"}
    assert root.look(**job).cpus == 6
    assert root.look(**job, SLURM_CPUS_PER_TASK="2").cpus_limit == "SLURM_CPUS_PER_TASK"
    assert root.look(**job, SLURM_MEM_PER_NODE="2048").memory == 2 * GIB
    assert root.look(**job, SLURM_MEM_PER_NODE="0").memory == 16 * GIB
    assert root.look(**job, SLURM_MEM_PER_CPU="1024").memory == 6 * GIB
    assert root.look(range(2), **job).cpus == 2  # Slurm cannot grant what affinity denies


def test_slurm_variables_outside_a_job_mean_nothing(root: FakeRoot) -> None:
    assert root.look(SLURM_CPUS_ON_NODE="2", SLURM_MEM_PER_NODE="1").cpus == 8


def test_numa_nodes_hold_only_cpus_we_may_use(root: FakeRoot) -> None:
    root.write("sys/devices/system/node/online", "0-2\n")
    root.write("sys/devices/system/node/node0/cpulist", "0-3,8-11\n")
    root.write("sys/devices/system/node/node1/cpulist", "4-7,12-15\n")
    root.write("sys/devices/system/node/node2/cpulist", "\n")  # memory alone
    assert root.look(range(6)).numa == (NumaNode(0, (0, 1, 2, 3)), NumaNode(1, (4, 5)))


TWO_NODES = (NumaNode(0, (0, 1, 2, 3)), NumaNode(1, (4, 5, 6, 7)))


def test_workers_go_to_the_nodes_in_turn() -> None:
    first, second = (node.cpus for node in TWO_NODES)
    assert place_workers(range(8), TWO_NODES, 5) == [first, second, first, second, first]


def test_cpus_we_may_not_use_are_left_out() -> None:
    assert place_workers([1, 2, 6], TWO_NODES, 3) == [(1, 2), (1, 2), (6,)]


def test_more_workers_than_cpus_share_their_node() -> None:
    places = place_workers(range(8), TWO_NODES, 16)
    assert sorted(places) == [TWO_NODES[0].cpus] * 8 + [TWO_NODES[1].cpus] * 8


def test_uneven_nodes_get_workers_in_proportion() -> None:
    numa = (NumaNode(0, (0, 1, 2, 3, 4, 5)), NumaNode(1, (6, 7)))
    places = place_workers(range(8), numa, 4)
    assert sum(set(place) <= {6, 7} for place in places) == 1


def test_cpus_unknown_to_numa_are_used_all_the_same() -> None:
    assert sorted(place_workers([0, 1, 2], (NumaNode(0, (0, 1)),), 3)) == [(0, 1), (0, 1), (2,)]


@st.composite
def topologies(draw: st.DrawFn) -> tuple[list[int], list[NumaNode]]:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    nodes, first = [], 0
    for number, size in enumerate(sizes):
        nodes.append(NumaNode(number, tuple(range(first, first + size))))
        first += size
    allowed = draw(st.sets(st.integers(0, first - 1), min_size=1))
    return sorted(allowed), nodes


@given(topologies(), st.integers(0, 40))
def test_every_worker_has_a_place_on_one_node_and_no_cpu_is_wasted(
    topology: tuple[list[int], list[NumaNode]], count: int
) -> None:
    cpu_ids, numa = topology
    places = place_workers(cpu_ids, numa, count)
    assert len(places) == count
    for place in places:
        assert place
        assert set(place) <= set(cpu_ids)
        assert any(set(place) <= set(node.cpus) for node in numa)
    if count >= len(cpu_ids):
        assert {cpu for place in places for cpu in place} == set(cpu_ids)
    for place in set(places):
        assert places.count(place) <= -(-count * len(place) // len(cpu_ids)) + 1  # an even spread


def test_gpus_are_those_that_somebody_has_set_aside_else_all_that_the_driver_lists(root: FakeRoot) -> None:
    assert root.look().gpus is None
    for name in ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0"):
        root.write(f"proc/driver/nvidia/gpus/{name}/information", "")
    assert root.look().gpus == ("0", "1", "2")
    assert root.look(CUDA_VISIBLE_DEVICES="2,GPU-8a5e").gpus == ("2", "GPU-8a5e")
    assert root.look(CUDA_VISIBLE_DEVICES="1,-1,2").gpus == ("1",), "CUDA stops at the first that is no device"
    assert root.look(CUDA_VISIBLE_DEVICES="").gpus == ()


def test_what_is_counted_is_what_is_found_and_what_settings_say(root: FakeRoot) -> None:
    machine = root.look(CUDA_VISIBLE_DEVICES="4,5,6")
    assert machine.countable(()) == (("gpus", 3),)
    assert machine.countable((("gpus", 2), ("licences", 4))) == (("gpus", 2), ("licences", 4))
    assert machine.gpus_for(2) == ("4", "5")
    with pytest.raises(ConfigError, match=r"gpus = 4, but there are 3.*CUDA_VISIBLE_DEVICES=4,5,6"):
        machine.gpus_for(4)
    assert root.look().countable(()) == ()
    assert root.look().gpus_for(2) == ("0", "1"), "where nothing is known of any they are numbered"
