"""What this process may use of this machine, and which CPUs each worker is pinned to.

Asked once at each start, for every setting that the user left open. The answers come from /proc, /sys and the
environment of a batch job, and honour what others have set aside for us: CPU affinity, cgroup limits, Slurm.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.executors.pools import VISIBLE
from penstock.model.resources import GPUS

__all__ = ["Machine", "NumaNode", "place_workers", "this_machine"]


#: a budget below this would have every large object wait for every other
_LEAST_BUDGET = 64 << 20


class NumaNode(Struct, frozen=True):
    """CPUs that share a memory controller."""

    number: int
    cpus: tuple[int, ...]


class Machine(Struct, frozen=True):
    """What this process may use."""

    hostname: str
    #: computing units we may use, never fewer than one
    cpus: int
    #: which of the limits decided ``cpus``
    cpus_limit: str
    #: numbers of the CPUs we may run on; more than ``cpus`` where time on them is rationed
    cpu_ids: tuple[int, ...]
    #: bytes
    memory: int
    #: which of the limits decided ``memory``
    memory_limit: str
    processor: str
    architecture: str
    operating_system: str
    #: nodes with a CPU that we may use
    numa: tuple[NumaNode, ...]
    #: bytes of memory that nobody needs now, of those that we may use
    memory_free: int
    #: GPUs that we may use, as CUDA names them; None if nothing is known of any
    gpus: tuple[str, ...] | None = None
    #: who says so
    gpus_limit: str = ""

    def budget(self, given: int | None) -> int:
        """Bytes of memory for turning objects to bytes and back, over all processes of a run."""
        return given or max(_LEAST_BUDGET, self.memory_free // 4)

    def countable(self, given: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        """What there is to be counted: the GPUs that are found, and what settings say."""
        found = {GPUS: len(self.gpus)} if self.gpus else {}
        return tuple(sorted({**found, **dict(given)}.items()))

    def gpus_for(self, count: int) -> tuple[str, ...]:
        """The names of so many GPUs; where nothing is known of any they are numbered."""
        if self.gpus is None:
            return tuple(map(str, range(count)))
        if count > len(self.gpus):
            raise ConfigError(
                f"settings say {GPUS} = {count}, but there are {len(self.gpus)} that we may use ({self.gpus_limit})"
            )
        return self.gpus[:count]

    def properties(self, node: str) -> tuple[tuple[str, str], ...]:
        """What constraints may ask by name of a node like this machine."""
        return (
            ("processor_name", self.processor),
            ("processor_architecture", self.architecture),
            ("operating_system", self.operating_system),
            ("node_name", node),
        )


def this_machine(
    root: str = "/", environ: Mapping[str, str] | None = None, affinity: Collection[int] | None = None
) -> Machine:
    """Find out what we may use; tests pass another root, environment and affinity."""
    environ = os.environ if environ is None else environ
    system = os.uname()
    cpu_ids = tuple(sorted(os.sched_getaffinity(0) if affinity is None else affinity))
    cpus, cpus_limit = _cpus(root, environ, len(cpu_ids))
    memory, memory_limit = _memory(root, environ, cpus)
    return Machine(
        hostname=system.nodename,
        cpus=cpus,
        cpus_limit=cpus_limit,
        cpu_ids=cpu_ids,
        memory=memory,
        memory_limit=memory_limit,
        processor=_processor_name(root) or system.machine,
        architecture=system.machine,
        operating_system=system.sysname,
        numa=_numa(root, cpu_ids),
        memory_free=min(memory, _of_memory(root, "MemAvailable")),
        **_gpus(root, environ),
    )


def _gpus(root: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """What CUDA would see: the list that somebody has set aside for us, else every one that the driver lists."""
    if VISIBLE in environ:
        names = [name.strip() for name in environ[VISIBLE].split(",")]
        # CUDA stops at the first that is no device; -1 is the customary way to hide them all.
        named = itertools.takewhile(lambda name: name and not name.startswith("-"), names)
        return {"gpus": tuple(named), "gpus_limit": f"{VISIBLE}={environ[VISIBLE]}"}
    try:
        listed = len(os.listdir(os.path.join(root, "proc/driver/nvidia/gpus")))
    except OSError:
        return {}
    return {"gpus": tuple(map(str, range(listed))), "gpus_limit": "listed by the driver"}


def _cpus(root: str, environ: Mapping[str, str], allowed: int) -> tuple[int, str]:
    limits = [(allowed, "affinity")]
    limits += [(-(-quota // period), "cgroup quota") for quota, period in _cpu_quotas(root)]
    if "SLURM_JOB_ID" in environ:
        for variable in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
            if (given := _number(environ.get(variable, ""))) is not None:
                limits.append((given, variable))
                break
    count, limit = min(limits, key=lambda pair: pair[0])
    return max(1, count), limit


def _memory(root: str, environ: Mapping[str, str], cpus: int) -> tuple[int, str]:
    limits = [(_of_memory(root, "MemTotal"), "installed")]
    limits += [(limit, "cgroup limit") for limit in _memory_limits(root)]
    if "SLURM_JOB_ID" in environ:
        # Slurm counts in MiB, and says 0 for "all of it".
        if per_node := _number(environ.get("SLURM_MEM_PER_NODE", "")):
            limits.append((per_node << 20, "SLURM_MEM_PER_NODE"))
        elif per_cpu := _number(environ.get("SLURM_MEM_PER_CPU", "")):
            limits.append(((per_cpu << 20) * cpus, "SLURM_MEM_PER_CPU"))
    return min(limits, key=lambda pair: pair[0])


def _of_memory(root: str, what: str) -> int:
    for line in _text(os.path.join(root, "proc/meminfo")).splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor_name(root: str) -> str:
    # The file has a page per CPU and the kernel computes it as it is read: take the first CPU's only.
    for line in _text(os.path.join(root, "proc/cpuinfo"), 4096).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return ""


def _numa(root: str, cpu_ids: tuple[int, ...]) -> tuple[NumaNode, ...]:
    allowed = set(cpu_ids)
    nodes = []
    for number in _cpu_list(_text(os.path.join(root, "sys/devices/system/node/online"))):
        cpus = _cpu_list(_text(os.path.join(root, f"sys/devices/system/node/node{number}/cpulist")))
        if ours := tuple(cpu for cpu in cpus if cpu in allowed):
            nodes.append(NumaNode(number, ours))
    return tuple(nodes) or (NumaNode(0, cpu_ids),)


# --- cgroups -------------------------------------------------------------------------------------------------------


def _cpu_quotas(root: str) -> Iterator[tuple[int, int]]:
    """CPU time and the period it is granted for, in microseconds, at each level above us that has a quota."""
    for folder in _cgroup_folders(root, "cpu"):
        # version 2 has both numbers in one file, version 1 a file for each
        words = _text(os.path.join(folder, "cpu.max")).split() or [
            _text(os.path.join(folder, f"cpu.cfs_{part}_us")).strip() for part in ("quota", "period")
        ]
        numbers = [_number(word) for word in words]
        if len(numbers) == 2 and numbers[0] and numbers[1]:
            yield numbers[0], numbers[1]


def _memory_limits(root: str) -> Iterator[int]:
    for folder in _cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if limit := _number(_text(os.path.join(folder, name))):
                yield limit


def _cgroup_folders(root: str, controller: str) -> Iterator[str]:
    """Folders of our cgroup and its parents, in each mounted hierarchy that may limit ``controller``."""
    ours = dict(_our_cgroups(root))
    for line in _text(os.path.join(root, "proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if kind == "cgroup2":
            path = ours.get("")
        elif kind == "cgroup" and controller in options.split()[-1].split(","):
            path = ours.get(controller)
        else:
            continue
        if path is not None:
            top, mount = before.split()[3:5]
            yield from _upwards(os.path.join(root, mount.lstrip("/")), _below(path, top))


def _our_cgroups(root: str) -> Iterator[tuple[str, str]]:
    """Controller and path of each cgroup we are in; version 2 has no controller name here."""
    for line in _text(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _below(path: str, top: str) -> str:
    """``path`` as seen under a mount that shows the hierarchy from ``top`` down, as containers do."""
    if top == "/":
        return path
    return path[len(top) :] if path == top or path.startswith(top + "/") else "/"


def _upwards(mount: str, path: str) -> Iterator[str]:
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        yield os.path.join(mount, *parts[:depth])


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdecimal() else None


def _cpu_list(text: str) -> list[int]:
    """The kernel's lists: ``0-3,8`` is 0, 1, 2, 3, 8."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _text(path: str, limit: int = 1 << 20) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        chunks = []
        # Files of the kernel may come in several pieces however large the buffer is.
        while limit > 0 and (chunk := os.read(descriptor, min(limit, 65536))):
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


# --- pinning -------------------------------------------------------------------------------------------------------


def place_workers(cpu_ids: Sequence[int], numa: Sequence[NumaNode], count: int) -> list[tuple[int, ...]]:
    """CPUs for each of ``count`` workers.

    Workers go to NUMA nodes in turn, in proportion to their CPUs, so that the first few workers of a pool already
    use every memory controller. Each may use all CPUs of its node: the kernel moves it out of the way of the main
    program, whose threads have no CPU of their own, and its memory stays near all the same.
    """
    groups = _groups(cpu_ids, numa)
    if not groups:
        return [()] * count
    members: list[list[int]] = [[] for _ in groups]
    for worker in range(count):
        emptiest = min(range(len(groups)), key=lambda index: (len(members[index]) + 1) / len(groups[index]))
        members[emptiest].append(worker)
    places: list[tuple[int, ...]] = [()] * count
    for group, workers in zip(groups, members, strict=True):
        for worker in workers:
            places[worker] = group
    return places


def _groups(cpu_ids: Sequence[int], numa: Sequence[NumaNode]) -> list[tuple[int, ...]]:
    left = set(cpu_ids)
    groups = []
    for node in numa:
        if ours := tuple(cpu for cpu in node.cpus if cpu in left):
            groups.append(ours)
            left.difference_update(ours)
    if left:  # the kernel did not say where they belong
        groups.append(tuple(sorted(left)))
    return groups
