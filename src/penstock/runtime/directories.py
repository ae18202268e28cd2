"""The directories of a run: shared memory, spill, and the run directory; and what becomes of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

from penstock.runtime.config import Config

__all__ = ["Directories"]

_SHARED_MEMORY = "/dev/shm"


class Directories:
    """Made at the start of a run; ``disposable`` ones are removed at its end, however it ends."""

    def __init__(self, config: Config) -> None:
        mark = f"penstock-{os.getuid()}-{os.getpid()}-{os.urandom(4).hex()}"
        self._keep = config.keep_run_dir if config.run_dir is not None else "never"
        # Inline, there is no fork server to clean up after a program that is killed: make nothing before it is needed.
        needed = config.mode != "inline"
        self.run_dir = config.run_dir or os.path.join(tempfile.gettempdir(), mark)
        if needed or config.writes_log:
            os.makedirs(self.run_dir, mode=0o777 if config.run_dir else 0o700, exist_ok=True)
        roomy = os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
        self.memory_dir = os.path.join(_SHARED_MEMORY if roomy else self.run_dir, mark)
        self.spill_dir = os.path.join(config.spill_dir or self.run_dir, f"{mark}-spill")
        if needed:
            for directory in (self.memory_dir, self.spill_dir):
                os.makedirs(directory, mode=0o700)
        self.disposable = [self.memory_dir, self.spill_dir]
        if config.run_dir is None:
            self.disposable.append(self.run_dir)

    def remove(self, *, ok: bool) -> None:
        """Remove what is disposable, and the run directory if it was not to be kept."""
        for directory in self.disposable:
            shutil.rmtree(directory, ignore_errors=True)
        if self._keep == "never" or (self._keep == "failed" and ok):
            with contextlib.suppress(OSError):
                for name in ("events.jsonl",):
                    os.unlink(os.path.join(self.run_dir, name))
            with contextlib.suppress(OSError):
                os.rmdir(self.run_dir)  # only if nothing of the user's is in it
