"""What a simulation runs: tasks with durations, files and dependencies instead of code.

workload = Workload()
block = workload.task("generate", seconds=Normal(1.0, 0.1))
workload.io_task("checkpoint", writes=[("/out/x", 290_000_000)], after=[block], constraint="auto")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, isfinite
from random import Random
from typing import Any

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.model.data import FileRef, Value, VersionId
from penstock.model.events import Submitted
from penstock.model.resources import Requirements
from penstock.model.tasks import Output, TaskCall, TaskSpec
from penstock.tuning.spec import is_auto, parse
from penstock.units import parse_rate

__all__ = ["Job", "Lognormal", "Normal", "Seconds", "Uniform", "Workload"]

_NO_ARGUMENTS = Value(b"")


class Normal(Struct, frozen=True):
    """Normally distributed, without what would be below zero."""

    mean: float
    deviation: float

    def draw(self, chance: Random) -> float:
        while (seconds := chance.normalvariate(self.mean, self.deviation)) < 0:
            pass
        return seconds


class Lognormal(Struct, frozen=True):
    """Half of the values are below the median; their logarithms deviate by ``sigma``."""

    median: float
    sigma: float

    def draw(self, chance: Random) -> float:
        return self.median * exp(chance.normalvariate(0.0, self.sigma))


class Uniform(Struct, frozen=True):
    """Anything between two values alike."""

    least: float
    most: float

    def draw(self, chance: Random) -> float:
        return chance.uniform(self.least, self.most)


Seconds = float | Normal | Lognormal | Uniform


class Job(Struct, frozen=True):
    """One task of a workload."""

    call: TaskCall
    seconds: Seconds
    #: bytes of each file in ``call.outputs``
    sizes: tuple[int, ...]
    #: further bytes that it transfers on the layer it is placed on
    traffic: int
    #: probability that an attempt fails
    fails: float
    #: when the program calls it, at the earliest
    at: float

    @property
    def result(self) -> VersionId:
        """The version that exists when the task is done."""
        return self.call.writes[0]


class Workload:
    """Tasks in the order in which a program would call them."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._specs: dict[tuple[object, ...], TaskSpec] = {}
        self._versions = 0
        #: newest version of each file that a task writes
        self._newest: dict[str, VersionId] = {}

    def task(self, name: str, *, seconds: Seconds = 0.0, cpus: int = 1, memory: int = 0, **details: Any) -> Job:
        """Add a task that computes; ``details`` are those of ``add``."""
        return self.add(name, Requirements(cpus, memory), seconds=seconds, **details)

    def io_task(
        self,
        name: str,
        *,
        constraint: str | float | None = None,
        capacity: int = 0,
        seconds: Seconds = 0.0,
        **details: Any,
    ) -> Job:
        """Add an I/O task; the bandwidth constraint is given as in a program, the capacity in bytes."""
        auto = parse(str(constraint)) if is_auto(constraint) else None
        bandwidth = 0.0 if constraint is None or auto is not None else parse_rate(constraint)
        need = Requirements(0, io=True, bandwidth=bandwidth, capacity=capacity, auto=auto)
        return self.add(name, need, seconds=seconds, **details)

    def add(
        self,
        name: str,
        requirements: Requirements,
        *,
        seconds: Seconds = 0.0,
        after: Iterable[Job] = (),
        reads: Sequence[str | tuple[str, int]] = (),
        writes: Sequence[tuple[str, int]] = (),
        temp: bool = False,
        traffic: int = 0,
        fails: float = 0.0,
        at: float = 0.0,
        **options: Any,
    ) -> Job:
        """Add a task.

        It reads its files first, then computes, then writes. A file that it ``reads`` is one that a task before it
        writes, or is there from the start and given with its size. ``options`` are fields of ``TaskSpec``.
        """
        _check(name, seconds, fails, at)
        slots = tuple(self._file_read(name, file) for file in reads)
        waits = [job.result for job in after] + [slot for slot in slots if isinstance(slot, int)]
        made = tuple(range(self._versions + 1, self._versions + 2 + len(writes)))
        self._versions = made[-1]
        for version, (path, _) in zip(made[1:], writes, strict=True):
            self._newest[path] = version
        call = TaskCall(
            len(self.jobs) + 1,
            self._spec(name, requirements, options),
            _NO_ARGUMENTS,
            slots,
            reads=tuple(dict.fromkeys(waits)),
            writes=made,
            returns=1,
            outputs=tuple(Output((index,), -1, path, temp=temp) for index, (path, _) in enumerate(writes)),
        )
        job = Job(call, seconds, tuple(size for _, size in writes), traffic, fails, at)
        self.jobs.append(job)
        return job

    def specs(self) -> list[TaskSpec]:
        """The functions whose calls the tasks are."""
        return list(self._specs.values())

    def durations(self, seed: int) -> list[float]:
        """How long each task computes. They do not depend on the order of execution: schedulers can be compared."""
        chance = Random(seed)
        return [
            float(job.seconds) if isinstance(job.seconds, int | float) else job.seconds.draw(chance)
            for job in self.jobs
        ]

    def submissions(self) -> list[Submitted]:
        """The calls, as the program makes them; it lets go of each version with the last call that reads it."""
        last = {version: job.call.task for job in self.jobs for version in (*job.call.writes, *job.call.reads)}
        released: dict[int, list[VersionId]] = {}
        for version, task in last.items():
            released.setdefault(task, []).append(version)
        return [Submitted(job.call, tuple(released.get(job.call.task, ()))) for job in self.jobs]

    def _spec(self, name: str, requirements: Requirements, options: dict[str, Any]) -> TaskSpec:
        key = (name, requirements, *sorted(options.items()))
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = TaskSpec(len(self._specs), name, requirements, identity=name, **options)
        return spec

    def _file_read(self, name: str, file: str | tuple[str, int]) -> VersionId | FileRef:
        if not isinstance(file, str):
            return FileRef(*file)
        version = self._newest.get(file)
        if version is None:
            raise ConfigError(f"task {name} reads {file!r}, which no task before it writes: give its size with it")
        return version


def _check(name: str, seconds: Seconds, fails: float, at: float) -> None:
    fixed = seconds if isinstance(seconds, int | float) else 0.0
    for number, what in ((fixed, "seconds"), (at, "at")):
        if not (number >= 0 and isfinite(number)):
            raise ConfigError(f"task {name}: {what}={number}; it must be a finite number, zero or above")
    if isinstance(seconds, Normal) and not seconds.mean >= 0:
        raise ConfigError(f"task {name}: a mean of {seconds.mean} seconds; it must be zero or above")
    if isinstance(seconds, Uniform) and not 0 <= seconds.least <= seconds.most:
        raise ConfigError(f"task {name}: seconds from {seconds.least} to {seconds.most}; give the smaller one first")
    if not 0 <= fails <= 1:
        raise ConfigError(f"task {name}: fails={fails}; a probability is between 0 and 1")
