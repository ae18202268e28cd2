"""``penstock doctor``: look at all that a run rests on, try it, and say what to do about what is wrong."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from penstock.model.resources import StorageLayer
    from penstock.runtime.found_layers import FoundLayer

__all__ = ["Check", "doctor"]


class Check(NamedTuple):
    """One finding. ``mark`` is ✓ good, ! works but could be better, ✗ will not work, · not installed, not needed."""

    mark: str
    subject: str
    finding: str
    advice: str = ""


def doctor(
    program: Annotated[
        str | None, typer.Argument(metavar="PROGRAM", help="Only say whether this program can be streamed.")
    ] = None,
) -> None:
    """Check this machine, or whether a program can be streamed, and say what to do.

    The exit status is 1 if something will not work.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    colours = {"✓": "green", "!": "yellow", "✗": "bold red", "·": "dim"}
    broken = False
    for check in _all_checks() if program is None else _program(program):
        colour = colours[check.mark]
        console.print(f"[{colour}]{check.mark}[/] {check.subject:<14} {escape(check.finding)}", soft_wrap=True)
        if check.advice:
            console.print(f"  {'':<14} [{colour}]→ {escape(check.advice)}[/]", soft_wrap=True)
        broken = broken or check.mark == "✗"
    if broken:
        raise typer.Exit(1)


def _all_checks() -> Iterator[Check]:
    local = (_python, _settings, _machine, _shared_memory, _in_memory, _temporary, _storage, _leftovers)
    for look in (*local, _sockets, _open_files, _supervisor, _extras, _mpi, _round_trip):
        yield from _guarded(look)


def _program(name: str) -> Iterator[Check]:
    from penstock.streaming.programs import examine

    verdict = examine(name)
    where = verdict.way or name
    if verdict.supervised:
        yield Check("✓", "program", f"{where} can be streamed, supervised: {verdict.supervised}")
    elif verdict.ok:
        yield Check("✓", "program", f"{where} can be streamed")
    else:
        advice = "run its workflow with --batch, or give it files of its own (exclude)" if verdict.path else ""
        yield Check("✗", "program", f"{where} cannot be streamed: {verdict.reason}", advice)


def _guarded(look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """A check that breaks is a finding, not the end of the examination."""
    try:
        yield from look()
    except Exception as error:
        yield Check("✗", look.__name__.strip("_").replace("_", " "), f"{type(error).__name__}: {error}")


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("✓", "Python", f"{version}, {sys.executable}")  # the installer refuses one that is too old


def _settings() -> Iterator[Check]:
    from penstock.errors import ConfigError
    from penstock.runtime.config import load_config

    try:
        origins = set(load_config({}).origins.values()) - {"default"}
    except ConfigError as error:
        yield Check("✗", "settings", str(error), "correct it; `penstock config` shows the settings")
    else:
        yield Check("✓", "settings", ", ".join(sorted(origins)) or "all at their defaults")


def _machine() -> Iterator[Check]:
    from penstock.runtime.machine import this_machine
    from penstock.units import format_size

    machine = this_machine()
    cpus = f"{machine.cpus} of {os.cpu_count()} ({machine.cpus_limit}), {machine.processor}, {machine.architecture}"
    if machine.cpus > 1:
        yield Check("✓", "CPUs", cpus)
    else:
        yield Check("!", "CPUs", cpus, "tasks will run one after the other; ask for more CPUs to run them in parallel")
    nodes = f", {len(machine.numa)} NUMA nodes" if len(machine.numa) > 1 else ""
    yield Check("✓", "memory", f"{format_size(machine.memory)} ({machine.memory_limit}){nodes}")
    if machine.gpus is not None:
        yield Check("✓", "GPUs", f"{len(machine.gpus)} ({machine.gpus_limit})")


def _shared_memory() -> Iterator[Check]:
    from penstock.errors import ConfigError
    from penstock.runtime.config import load_config
    from penstock.runtime.directories import SHARED_MEMORY
    from penstock.units import format_size

    path, subject = SHARED_MEMORY, "shared memory"
    with contextlib.suppress(ConfigError):  # reported with the settings
        path = load_config({}).config.memory_dir or path
    chosen = path != SHARED_MEMORY
    if not os.path.isdir(path):
        advice = "make it, or set memory_dir to another one" if chosen else f"mount it: mount -t tmpfs tmpfs {path}"
        yield Check("✗", subject, f"there is no {path}", advice)
        return
    if problem := _cannot_write(path):
        advice = "set memory_dir to a directory you can write in" if chosen else f"make it writable: chmod 1777 {path}"
        yield Check("✗", subject, f"cannot write in {path}: {problem}", advice)
        return
    status = os.statvfs(path)
    free, size = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    finding = f"{format_size(free)} free of {format_size(size)} in {path}"
    kind = _file_system(path)
    if kind != "tmpfs":
        yield Check("!", subject, f"{finding}, which is {kind}", "large objects will be slow; mount a tmpfs there")
    elif len(path) > 50:
        yield Check("!", subject, f"{finding}, a long path for sockets", "set memory_dir to a shorter one")
    elif free < 256 << 20:
        advice = "large objects will go to disk; in a container raise it (docker run --shm-size=2g), or set memory_dir"
        yield Check("!", subject, finding, advice)
    else:
        yield Check("✓", subject, finding)


def _in_memory() -> Iterator[Check]:
    """How programs would see this directory if it were streamed in memory."""
    from penstock.errors import ConfigError
    from penstock.runtime.config import load_config
    from penstock.runtime.directories import SHARED_MEMORY
    from penstock.streaming.private_view import reason_against

    memory = SHARED_MEMORY
    with contextlib.suppress(ConfigError):  # reported with the settings
        memory = load_config({}).config.memory_dir or memory
    if not os.path.isdir(memory) or _cannot_write(memory):
        return  # reported with shared memory
    folder = os.path.realpath(os.getcwd())
    what = f"`stream run --memory` in {folder}"
    reason = reason_against(folder, memory)
    if not reason:
        yield Check("✓", "in memory", f"{what}: files in memory over it, mounted for its programs")
    else:
        yield Check("!", "in memory", f"{what}: a link to copies in memory, as nothing can be mounted over it", reason)


def _cannot_write(folder: str) -> str | None:
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"penstock")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _file_system(folder: str) -> str:
    from penstock.storage.redirect import is_below

    path = os.path.join(os.path.realpath(folder), "")
    kind, length = "unknown", 0
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            _, mount, found, *_ = line.split()
            if len(mount) >= length and is_below(path, mount):
                kind, length = found, len(mount)  # the last one mounted is the one in sight
    return kind


def _temporary() -> Iterator[Check]:
    import tempfile

    folder = tempfile.gettempdir()
    if problem := _cannot_write(folder):
        yield Check(
            "✗", "temporary", f"cannot write in {folder}: {problem}", "set TMPDIR to a directory you can write in"
        )
    elif len(folder) > 60:
        # A socket's address holds 107 bytes, and run directories and sockets have names of their own.
        yield Check("!", "temporary", f"{folder} is a long path for sockets", "set TMPDIR to a shorter one")
    else:
        yield Check("✓", "temporary", f"can write in {folder}")


def _known_layers() -> tuple[FoundLayer, ...]:
    from penstock.errors import ConfigError
    from penstock.runtime.config import load_config
    from penstock.runtime.found_layers import known_layers

    try:
        config = load_config({}).config
    except ConfigError:
        return ()  # reported with the settings
    return known_layers(config)


def _storage() -> Iterator[Check]:
    from penstock.errors import ConfigError
    from penstock.units import format_rate, format_size

    try:
        known = _known_layers()
    except ConfigError as error:
        yield Check("✗", "storage", str(error), "correct the description; `penstock config` shows the layers")
        return
    for number, one in enumerate(known, start=1):
        layer = one.layer
        room = "no limit" if layer.capacity is None else format_size(layer.capacity)
        finding = f"{layer.name}: {layer.mount}, {format_rate(layer.bandwidth)}, {room}"
        finding += ", shared" if layer.shared else ""
        finding += ", temporary files only" if layer.temporary else ""
        finding += f", found ({one.kind})" if one.guessed else ", described"
        advice = "bandwidths are guessed: run `penstock probe DIR` to measure"
        yield Check("✓", "storage", finding, advice if one.guessed and number == len(known) else "")
        yield from _programs_on(layer)


def _programs_on(layer: StorageLayer) -> Iterator[Check]:
    """Who shares a layer at this moment."""
    from penstock.executors.layer_table import programs_on
    from penstock.units import format_rate, format_size

    for line in programs_on(layer.mount):
        fills = f", its files fill {format_size(line.fills)}" if line.fills else ""
        yield Check("✓", "storage", f"{layer.name}: process {line.pid} has {format_rate(line.may_hold)}{fills}")


def _leftovers() -> Iterator[Check]:
    """What runs that were killed have left: it goes, except for files on layers that may be the user's."""
    from penstock.errors import ConfigError
    from penstock.executors.disposable import sweep
    from penstock.runtime.config import load_config
    from penstock.runtime.directories import places_of_runs
    from penstock.runtime.left_behind import left_on, traced_mounts
    from penstock.units import format_size

    try:
        places, known = places_of_runs(load_config({}).config), _known_layers()
    except ConfigError:
        return  # reported with the settings, or with the storage
    for path in sweep(dict.fromkeys([*places, *(one.layer.mount for one in known), *traced_mounts()])):
        if not os.path.exists(path):
            yield Check("✓", "leftover", f"{path}, of a run that was killed: removed")
    shared = {one.layer.mount for one in known if one.layer.shared}
    traced = traced_mounts()
    for mount in dict.fromkeys([*(one.layer.mount for one in known), *traced]):
        for left in left_on(mount):
            finding = f"{left.run.root}, {format_size(left.size)}, of a run that is gone"
            advice = "`penstock recover` brings home what is in it"
            if mount in shared and not left.run.of_this_machine:
                advice = f"unless it runs on {left.run.host}: {advice}"
            yield Check("!", "leftover", finding, advice)
    for mount in traced:
        if not os.path.isdir(mount):
            advice = "files of it may be there: mount it, then `penstock recover`"
            yield Check("!", "leftover", f"{mount}, a layer that a run used, is not there", advice)


def _sockets() -> Iterator[Check]:
    import socket

    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX)
    except OSError as error:
        yield Check("✗", "Unix sockets", f"cannot make a pair: {error}", "allow them: workers are spoken to that way")
        return
    with ours, theirs:
        yield Check("✓", "Unix sockets", "work")


def _open_files() -> Iterator[Check]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= 1024:
        yield Check("✓", "open files", "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft}")
    else:
        yield Check("!", "open files", f"only {soft} allowed", f"raise it: ulimit -n {min(4096, hard)}")


def _supervisor() -> Iterator[Check]:
    from penstock.streaming.native import why_not_supervised

    if why := why_not_supervised():
        advice = "such programs begin when the steps before theirs are over; all others are streamed as ever"
        yield Check("!", "supervisor", f"static, Go and musl programs cannot be supervised: {why}", advice)
    else:
        yield Check("✓", "supervisor", "static, Go and musl programs can be streamed, supervised")


def _extras() -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        yield Check("✓", "numpy", version("numpy"))
    except PackageNotFoundError:
        yield Check("·", "numpy", "not installed; only programs with arrays need it: pip install numpy")


def _rank() -> int:
    from penstock.api.mpi import mpi

    return mpi.comm().Get_rank()


def _mpi() -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    from penstock.executors.mpi_runner import find_runner

    try:
        binding = f"mpi4py {version('mpi4py')}"
    except PackageNotFoundError:
        yield Check("·", "MPI", "mpi4py not installed; only MPI tasks need it: pip install 'penstock[mpi]'")
        return
    runner = find_runner("mpiexec")
    if runner is None:
        advice = "pip install 'penstock[mpi]' brings one, or name another: @mpi(processes=2, runner=...)"
        yield Check("!", "MPI", f"{binding}, but mpiexec is neither beside this Python nor on the PATH", advice)
    else:
        yield _ranks_together(f"{binding}, {runner}")


def _ranks_together(what: str) -> Check:
    """Two ranks are started: a runner of one MPI and a library of another fail only then."""
    from penstock import PenstockError, Runtime, task, wait_on
    from penstock.api.mpi import mpi
    from penstock.units import format_duration

    ranks = mpi(processes=2)(task(returns=list, timeout=30)(_rank))
    with Runtime(cpus=2, mode="parallel"):
        times = []
        for _ in range(2):
            begin = time.perf_counter()
            try:
                wait_on(ranks())
            except PenstockError as error:
                return Check("!", "MPI", what, str(error).splitlines()[0])
            times.append(time.perf_counter() - begin)
    return Check("✓", "MPI", f"{what}, two ranks after {format_duration(times[0])}, then {format_duration(times[1])}")


def _same(value: int) -> int:
    return value


def _round_trip() -> Iterator[Check]:
    from statistics import median

    from penstock import Runtime, task, wait_on
    from penstock.units import format_duration

    same = task(returns=1)(_same)
    begin = time.perf_counter()
    with Runtime(cpus=1, mode="parallel"):
        wait_on(same(0))
        first = time.perf_counter() - begin
        times = []
        for number in range(50):
            begin = time.perf_counter()
            wait_on(same(number))
            times.append(time.perf_counter() - begin)
    finding = f"first result after {format_duration(first)}, then {format_duration(median(times))} per round trip"
    if first < 2:
        yield Check("✓", "a task", finding)
    else:
        yield Check("!", "a task", finding, "starting is slow: is TMPDIR or the Python installation on a network disk?")
