"""What a simulation runs: tasks with durations, files and dependencies instead of code.

workload = Workload()
block = workload.task("generate", seconds=Normal(1.0, 0.1))
workload.io_task("checkpoint", writes=[("/out/x", 290_000_000)], after=[block], constraint="auto")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, inf, isfinite
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import ConfigError
from penstock.model.commands import Launch
from penstock.model.data import FileRef, TaskId, Value, VersionId
from penstock.model.events import Submitted
from penstock.model.resources import Requirements
from penstock.model.tasks import Failure, FailureKind, OnFailure, Output, TaskCall, TaskSpec
from penstock.sim.work import Work, WorkOf
from penstock.tuning.spec import is_auto, parse
from penstock.units import parse_rate

__all__ = ["Job", "Lognormal", "Normal", "Part", "Seconds", "Uniform", "Workload"]

_NO_ARGUMENTS = Value(b"")
#: fields of ``TaskSpec`` that are said of a task here
_OPTIONS = ("priority", "retries", "retry_delay", "timeout", "on_failure")


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


# There may be millions of these, and they hold no cycles: keep them out of the garbage collector's rounds.
class Job(Struct, frozen=True, gc=False):
    """One task of a workload."""

    call: TaskCall
    seconds: Seconds
    #: bytes of each of ``call.outputs``, files and objects
    sizes: tuple[int, ...] = ()
    #: bytes of the object that it returns
    makes: int = 0
    #: further bytes that it transfers on the layer it is placed on
    traffic: int = 0
    #: probability that an attempt fails
    fails: float = 0.0
    #: the first attempts, so many of them, fail
    fails_first: int = 0
    #: when the program calls it, at the earliest
    at: float = 0.0
    #: what the program does between the call before and this one, in order: seconds of its own, and tasks that it
    #: waits for until they are over
    steps: tuple[float | TaskId, ...] = ()
    #: seconds after it began to compute at which each of its return values is handed over; empty: one, at its end
    ready: tuple[float, ...] = ()

    @property
    def result(self) -> VersionId:
        """The version of its return value, or of the first of several."""
        return self.call.writes[0]

    @property
    def results(self) -> tuple[VersionId, ...]:
        """The versions of its return values."""
        return self.call.writes[: self.call.returns]

    def __getitem__(self, index: int) -> Part:
        """One of the return values that it hands over."""
        return Part(self, range(self.call.returns)[index])


class Part(Struct, frozen=True):
    """A return value of a task that has several."""

    job: Job
    index: int

    @property
    def makes(self) -> int:
        """Bytes of the object, or of all that the task returns."""
        return self.job.makes

    @property
    def results(self) -> tuple[VersionId, ...]:
        """Its version."""
        return (self.job.call.writes[self.index],)


class Workload:
    """Tasks in the order in which a program would call them."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._specs: dict[tuple[object, ...], TaskSpec] = {}
        self._versions = 0
        #: newest version of each file that a task writes, and of each object that a task gives
        self._newest: dict[str, VersionId] = {}
        self._objects: dict[str, VersionId] = {}

    def task(
        self,
        name: str,
        *,
        seconds: Seconds = 0.0,
        cpus: int = 1,
        memory: int = 0,
        processes: int = 1,
        processes_per_node: int = 0,
        **details: Any,
    ) -> Job:
        """Add a task that computes; ``details`` are those of ``add``.

        One with several ``processes`` is a gang: each takes ``cpus`` and ``memory``, on one node or on several.
        """
        need = Requirements(cpus, memory, processes=processes, processes_per_node=processes_per_node)
        return self.add(name, need, seconds=seconds, **details)

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
        after: Iterable[Job | Part] = (),
        reads: Sequence[str | tuple[str, int]] = (),
        writes: Sequence[tuple[str, int]] = (),
        updates: Sequence[tuple[str, int]] = (),
        temp: bool = False,
        makes: int = 0,
        gives: Sequence[tuple[str, int]] = (),
        takes: Sequence[str] = (),
        traffic: int = 0,
        fails: float = 0.0,
        fails_first: int = 0,
        at: float = 0.0,
        steps: Iterable[float | Job] = (),
        ready: Sequence[float] = (),
        **options: Any,
    ) -> Job:
        """Add a task.

        It gets what the tasks before it made (``after``), reads its files, computes, then writes. A file that it
        ``reads`` is one that a task before it writes, or is there from the start and given with its size. One that it
        ``updates`` is read as well, and written anew with the given size, which it also has if it was there from the
        start. ``makes`` are the bytes of the object that it returns, which all tasks after it get. Further objects that
        it ``gives``, with their bytes, have names: only tasks that name what they take get them. ``steps`` is what the
        program does before it calls the task: seconds of its own (float), and tasks that it waits for. ``ready`` are
        the seconds after it began to compute at which it hands over a return value each: ``after=[job[1]]`` waits for
        one of them, ``after=[job]`` for all. ``options`` are ``priority``, ``retries``, ``retry_delay``,
        ``timeout`` and ``on_failure``,
        as in a program.
        """
        taken = tuple(step.call.task if isinstance(step, Job) else float(step) for step in steps) if steps else ()
        _check_seconds(name, seconds)
        if at or makes or traffic or fails_first or taken or gives:
            amounts = {"at": at, "makes": makes, "traffic": traffic, "fails_first": fails_first}
            _check_amounts(name, (*amounts.items(), *(("a step", step) for step in taken), *gives))
        if not 0 <= fails <= 1:
            raise ConfigError(f"task {name}: fails={fails}; a probability is between 0 and 1")
        _check_ready(name, seconds, ready)
        before = list(after)
        if not all(isinstance(job, Job | Part) for job in before):
            raise ConfigError(f"task {name}: after={before!r:.80}; give what task() and io_task() returned")
        waits = [version for job in before for version in job.results]
        objects = [self._object_taken(name, taken) for taken in takes]
        waits += objects
        slots: tuple[VersionId | FileRef, ...] = (
            *(one for job in before if job.makes for one in job.results),
            *objects,
        )
        files = tuple(self._file_read(name, file) for file in reads)
        files += tuple(self._newest.get(path) or FileRef(path, size) for path, size in updates)
        first_update = len(slots) + len(reads)
        slots += files
        waits += [slot for slot in files if isinstance(slot, int)]
        written = (*writes, *updates)
        if temp and written and requirements.layered:
            requirements = replace(requirements, temporary=True)
        returns = len(ready) or 1
        made = tuple(range(self._versions + 1, self._versions + 1 + returns + len(written) + len(gives)))
        self._versions = made[-1]
        self._newest.update(zip((path for path, _ in written), made[returns:], strict=False))
        self._objects.update(zip((given for given, _ in gives), made[returns + len(written) :], strict=True))
        outputs = [Output((index,), -1, path, temp=temp) for index, (path, _) in enumerate(writes)]
        for slot, (path, _) in enumerate(updates, start=first_update):
            outputs.append(Output((len(outputs),), slot, path, update=True, temp=temp))
        outputs += [Output((index,)) for index in range(len(outputs), len(outputs) + len(gives))]
        call = TaskCall(
            len(self.jobs) + 1,
            self._spec(name, requirements, options),
            _NO_ARGUMENTS,
            slots,
            reads=tuple(dict.fromkeys(waits)) if waits else (),
            writes=made,
            returns=returns,
            outputs=tuple(outputs),
        )
        sizes = tuple(size for _, size in (*written, *gives))
        job = Job(call, seconds, sizes, makes, traffic, fails, fails_first, at, taken, tuple(ready))
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

    def work(self, seed: int) -> WorkOf:
        """What attempts do. Who fails by chance does so whatever happened before: under every scheduler or none."""
        jobs, durations = self.jobs, self.durations(seed)

        def work(launch: Launch) -> Work:
            index = launch.task - 1
            job = jobs[index]
            failure = _failure(job, launch, seed) if job.fails or job.fails_first else None
            return Work(durations[index], job.sizes, job.makes, job.traffic, failure, job.ready)

        return work

    def submissions(self) -> Iterator[Submitted]:
        """The calls, as the program makes them; it lets go of each version with the last call that reads it."""
        last = {version: job.call.task for job in self.jobs for version in (*job.call.writes, *job.call.reads)}
        released: dict[int, list[VersionId]] = {}
        for version, task in last.items():
            released.setdefault(task, []).append(version)
        return (Submitted(job.call, tuple(released.pop(job.call.task, ()))) for job in self.jobs)

    def _spec(self, name: str, requirements: Requirements, options: dict[str, Any]) -> TaskSpec:
        key = (name, requirements, *sorted(options.items()))
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = TaskSpec(
                len(self._specs), name, requirements, identity=name, **_checked_options(name, options)
            )
        return spec

    def _file_read(self, name: str, file: str | tuple[str, int]) -> VersionId | FileRef:
        if not isinstance(file, str):
            return FileRef(*file)
        version = self._newest.get(file)
        if version is None:
            raise ConfigError(f"task {name} reads {file!r}, which no task before it writes: give its size with it")
        return version

    def _object_taken(self, name: str, wanted: str) -> VersionId:
        version = self._objects.get(wanted)
        if version is None:
            raise ConfigError(f"task {name} takes {wanted!r}, which no task before it gives")
        return version


def _failure(job: Job, launch: Launch, seed: int) -> Failure | None:
    if launch.attempt <= job.fails_first:
        return Failure(FailureKind.EXCEPTION, "it failed, as its first attempts were to do")
    if Random(f"{seed}/{launch.task}/{launch.attempt}").random() < job.fails:
        return Failure(FailureKind.EXCEPTION, "it failed, as it was to do now and then")
    return None


def _check_amounts(name: str, amounts: Iterable[tuple[str, float]]) -> None:
    for what, number in amounts:
        if not (number >= 0 and isfinite(number)):
            raise ConfigError(f"task {name}: {what}={number}; it must be a finite number, zero or above")


def _checked_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """What becomes of failures is said as in a program: by a word, and ``retries`` alone mean to try again."""
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise ConfigError(
            f"task {name}: there is no {min(unknown)!r}; besides what it does, give {', '.join(_OPTIONS)}"
        )
    written = options.get("on_failure")
    if written is None:
        return {**options, "on_failure": OnFailure.RETRY if options.get("retries") else OnFailure.FAIL}
    try:
        return {**options, "on_failure": OnFailure(written)}
    except ValueError:
        known = ", ".join(repr(one.value) for one in OnFailure)
        raise ConfigError(f"task {name}: on_failure={written!r}; expected one of {known}") from None


def _check_ready(name: str, seconds: Seconds, ready: Sequence[float]) -> None:
    if not ready:
        return
    if not isinstance(seconds, int | float):
        raise ConfigError(f"task {name}: ready={ready!r:.60} needs a number of seconds that it computes, not a chance")
    for at in ready:
        if not 0 <= at <= seconds:
            raise ConfigError(f"task {name}: an output is ready after {at} seconds; it computes from 0 to {seconds}")


def _check_seconds(name: str, seconds: Seconds) -> None:
    if isinstance(seconds, int | float):
        if not 0 <= seconds < inf:
            _check_amounts(name, [("seconds", seconds)])
    elif isinstance(seconds, Normal) and not seconds.mean >= 0:
        raise ConfigError(f"task {name}: a mean of {seconds.mean} seconds; it must be zero or above")
    elif isinstance(seconds, Uniform) and not 0 <= seconds.least <= seconds.most:
        raise ConfigError(f"task {name}: seconds from {seconds.least} to {seconds.most}; give the smaller one first")
    elif not isinstance(seconds, Normal | Lognormal | Uniform):
        raise ConfigError(f"task {name}: seconds={seconds!r}; give a number, or Normal, Lognormal or Uniform")
