"""Which limit of the system stands behind an error, and where it is set: the kernel only says that there is one."""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Iterator

__all__ = ["behind", "named_limits"]


def behind(error: BaseException, *, starting: bool = False) -> str:
    """The limit that an error met and how to change it; empty if it met none. ``starting``: a process was to begin."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return (
            f"this process has as many files open as it may, {_soft(resource.RLIMIT_NOFILE)}; each large array that it "
            f"holds takes one too. Raise the limit (ulimit -n, or LimitNOFILE= of a service), or hold fewer at a time"
        )
    if number == errno.ENFILE:
        return "the system has as many files open as it may; the limit is fs.file-max (sysctl)"
    if number == errno.EFBIG and (limit := _soft(resource.RLIMIT_FSIZE)) != "unlimited":
        return (
            f"files may have at most {limit} bytes here, also those in shared memory, where large arrays lie; raise "
            f"the limit (ulimit -f, or LimitFSIZE= of a service)"
        )
    if number == errno.ENOMEM:
        if (limit := _soft(resource.RLIMIT_AS)) != "unlimited":
            return f"a process may have at most {limit} bytes of address space here; raise the limit (ulimit -v)"
        return "memory is short, or a process has more arrays mapped than vm.max_map_count (sysctl) allows"
    no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if no_thread or (starting and number == errno.EAGAIN):
        return (
            f"no more processes and threads may be started; the limit of this user is {_soft(resource.RLIMIT_NPROC)} "
            f"(ulimit -u), that of a container or job is pids.max of its cgroup"
        )
    return ""


@contextlib.contextmanager
def named_limits() -> Iterator[None]:
    """Errors that pass through say which limit they met."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if (limit := behind(error, starting=True)) and limit not in getattr(error, "__notes__", ()):
            error.add_note(limit)
        raise


def _soft(kind: int) -> str:
    soft = resource.getrlimit(kind)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
