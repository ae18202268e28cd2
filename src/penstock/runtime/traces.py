"""Which storage layers runs have used, in the user's cache directory: layers that only a program knows are found again.

    ~/.cache/penstock/layers/penstock-UID-PID-ID    one line for each mount

A run notes a layer before it writes there, and takes its note away when nothing of it is left on any. So what is there
is of runs that live or were killed; of the latter, it goes when `penstock recover`, or the next run, sees that nothing
is left. It is only a help: a run does not fail because of it.
"""

from __future__ import annotations

import contextlib
import os
import time

from penstock.runtime.cache_file import default_path

__all__ = ["Trace", "all_traces"]

#: seconds within which a run makes the folder on a layer that it has noted
_MADE_WITHIN = 60.0


def _folder() -> str:
    return default_path("layers")


class Trace:
    """The note of one run."""

    def __init__(self, run: str, mounts: tuple[str, ...] = ()) -> None:
        self.run = run
        self.mounts = list(mounts)
        self.path = os.path.join(_folder(), run)

    def note(self, mount: str) -> None:
        """The run is about to use a layer."""
        if mount in self.mounts:
            return
        import json  # not needed by runs that use no layer

        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            with open(self.path, "ab", buffering=0) as file:
                file.write(json.dumps(mount).encode() + b"\n")
            self.mounts.append(mount)

    def forget(self) -> None:
        """Nothing of the run is left on any layer."""
        if self.mounts:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    @property
    def is_new(self) -> bool:
        """Whether its run may be about to make the folders that it has noted."""
        with contextlib.suppress(OSError):
            return time.time() - os.stat(self.path).st_mtime < _MADE_WITHIN
        return False

    def roots(self) -> list[str]:
        """The folders of the run on its layers, where they are or would be."""
        return [os.path.join(mount, f"{self.run}-layer") for mount in self.mounts]


def all_traces() -> list[Trace]:
    """The notes of all runs of this user."""
    traces = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(_folder())):
            with contextlib.suppress(OSError), open(os.path.join(_folder(), name), "rb") as file:
                traces.append(Trace(name, tuple(_mounts(file.read()))))
    return traces


def _mounts(content: bytes) -> list[str]:
    import json

    mounts = []
    for line in content.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError):
            mount = json.loads(line)
            if isinstance(mount, str) and os.path.isabs(mount):
                mounts.append(mount)
    return mounts
