"""The first moments of a forked worker, between the guardian that forked it and `worker.serve` that it runs.

It sheds what it shares with the guardian (signals, descriptors, exit handlers, random state) and takes on what the
main program gave it: sockets, output pipes, CPUs, environment, import path and working directory.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec

from penstock.executors.task_streams import open_streams, watch_others

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

Serve = Callable[[int, socket.socket, socket.socket], None]


class Surroundings(msgspec.Struct, frozen=True):
    """What a worker should find around it. Paths are bytes: they need not be valid text."""

    cpus: tuple[int, ...]
    environ: dict[str, str]
    path: list[bytes]
    cwd: bytes


def live_as_worker(
    worker_id: int, descriptors: list[int], surroundings: Surroundings, guardian_pid: int, serve: Serve
) -> NoReturn:
    """The forked child: shed the guardian's state, take on the worker's, serve, and end without its exit handlers."""
    status = 1
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian_pid:
            os._exit(status)
        adopt_orphans()
        os.setpgid(0, 0)
        _restore_signals()
        tasks, results = _take_descriptors(descriptors)
        _take_surroundings(surroundings)
        serve(worker_id, socket.socket(fileno=tasks), socket.socket(fileno=results))
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except ConnectionError:
        status = 0  # whoever gave it tasks is gone, or has retired it: there is nobody to tell
    except BaseException:
        traceback.print_exc()
    finally:
        _flush_output()
        os._exit(status & 0xFF)


def _restore_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Ctrl-C is the main program's to handle; it ends its workers through the guardian.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _take_descriptors(descriptors: list[int]) -> tuple[int, int]:
    """Standard streams to their places, the two sockets kept, everything else closed."""
    tasks, results, stdout, stderr = descriptors
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in (tasks, results):
            # The listing's own descriptor is among them, and closed already.
            with contextlib.suppress(OSError):
                os.close(descriptor)
    open_streams()  # the guardian's may stand on a file and then cannot be pointed at a pipe
    watch_others()
    return tasks, results


def _take_surroundings(surroundings: Surroundings) -> None:
    if surroundings.cpus:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, surroundings.cpus)
    os.environ.update(surroundings.environ)
    sys.path[:] = [os.fsdecode(entry) for entry in surroundings.path]
    with contextlib.suppress(OSError):
        os.chdir(surroundings.cwd)
    # The standard generator seeds itself anew after a fork; that of numpy does not.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    gc.enable()


def _flush_output() -> None:
    import ctypes

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    # C libraries keep buffers of their own, which os._exit would drop.
    ctypes.CDLL(None).fflush(None)


def adopt_orphans() -> None:
    """From now on, descendants whose parent ends become children of this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
