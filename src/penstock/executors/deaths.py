"""What became of a process, in words: how it ended, and whether the kernel was short of memory."""

from __future__ import annotations

import signal

__all__ = ["Deaths"]


class Deaths:
    """Tells of the worker processes of a node that ended."""

    def __init__(self) -> None:
        self._oom_kills = _oom_kills()

    def reason(self, status: int) -> str:
        """Why the task of a process that ended with this status, or minus a signal, did not deliver."""
        if status >= 0:
            return f"its worker process exited with status {status} in the middle of it"
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        reason = f"its worker process was killed by {name}"
        if -status == signal.SIGKILL:
            kills = _oom_kills()
            if kills > self._oom_kills:
                reason += "; the kernel's out-of-memory killer was at work: give the task a larger memory_size"
            self._oom_kills = kills
        return reason


def _oom_kills() -> int:
    """How often the kernel has killed a process for want of memory."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
