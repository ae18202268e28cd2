"""The place of one pytest process in shared memory, and the environment of programs that it starts.

Whatever a test leaves in that place was left by this process or its children: tests in other processes, and other
users of the machine, have theirs elsewhere.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_SETTING = "PENSTOCK_MEMORY_DIR"
_SHARED_MEMORY = "/dev/shm"

#: on our path for the sake of workers alone; programs that may start pytest themselves do without
IN_WORKERS = str(Path(__file__).parent / "in_workers")


def move_in() -> None:
    """Have everything that this process or its children put into shared memory lie in a folder of its own."""
    # Inside that of the process that started us, if it is a pytest too: when its workers are killed, it removes theirs.
    # A short name, for sockets lie below, and their addresses have 107 bytes.
    os.environ[_SETTING] = tempfile.mkdtemp(prefix="pst-", dir=os.environ.get(_SETTING) or _SHARED_MEMORY)


def move_out() -> None:
    """The session is over."""
    shutil.rmtree(os.environ.pop(_SETTING), ignore_errors=True)


def memory_dir() -> Path:
    """Where this process has its shared memory."""
    return Path(os.environ[_SETTING])


def left_in_memory() -> set[Path]:
    """What lies in our place, and what of this very process lies beside it."""
    return {*memory_dir().iterdir(), *Path(_SHARED_MEMORY).glob(f"penstock-*-{os.getpid()}-*")}


def user_environment(**changes: str) -> dict[str, str]:
    """Our environment without any setting of Penstock but our place; for programs that are started as users do."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**environ, _SETTING: os.environ[_SETTING], **changes}
