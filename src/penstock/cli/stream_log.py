"""The event log of a streamed workflow: what happens becomes records of the same log that tasks have."""

from __future__ import annotations

import os
import platform
import sys
import time

import msgspec

from penstock.observe import records
from penstock.observe.log import EventLog
from penstock.streaming.happenings import Happening, StepEnded, Tell
from penstock.streaming.language.model import Workflow

__all__ = ["StreamLog"]


class StreamLog:
    """Writes ``.penstock/NAME-TIME/events.jsonl`` where Penstock was called, and passes on to ``then``."""

    def __init__(self, workflow: Workflow, wanted: bool, then: Tell) -> None:
        folder = _new_folder(workflow.name) if wanted else None
        self.path = os.path.join(folder, "events.jsonl") if folder else None
        # Opened now: later the name may lead into memory, where the log would vanish.
        self._log = EventLog(self.path)
        self._then = then
        self._began = time.monotonic()
        self._done = self._failed = 0
        self._log.append(_started(workflow))

    def tell(self, happening: Happening) -> None:
        """Record what happened."""
        if self._log.active:
            kind = getattr(records, type(happening).__name__)
            self._log.append(kind(self._now(), **msgspec.structs.asdict(happening)))
        if isinstance(happening, StepEnded):
            self._done += happening.status == 0
            self._failed += happening.status != 0
        self._then(happening)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def close(self, *, ok: bool) -> None:
        """Write the last record."""
        self._log.append(records.RunEnded(self._now(), ok, self._done, self._failed, 0))
        self._log.close()


def _started(workflow: Workflow) -> records.RunStarted:
    from penstock import __version__

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = len(os.sched_getaffinity(0))
    return records.RunStarted(
        0.0, time.time(), __version__, sys.argv, cpus, memory, platform.node(), f"stream {workflow.name}"
    )


def _new_folder(name: str) -> str | None:
    parent = os.path.join(os.getcwd(), ".penstock")
    readable = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    folder = os.path.join(parent, f"{readable}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    try:
        if not os.path.isdir(parent):
            os.makedirs(parent, exist_ok=True)
            with open(os.path.join(parent, ".gitignore"), "w", encoding="utf-8") as file:
                file.write("*\n")
        os.mkdir(folder)
    except OSError as error:
        print(f"penstock: no event log is kept: cannot write in {parent}: {error.strerror}", file=sys.stderr)
        return None
    return folder
