"""What a person sees while finished files are brought home at the end of a run, if that takes a while."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.executors.saying import say, sees_a_person
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.engine.state import State

__all__ = ["DrainView"]

#: seconds before anything is shown, and between two lines where lines cannot be drawn over
_PATIENCE, _PERIOD = 0.5, 10.0


class DrainView:
    """One line on the terminal, drawn over as files arrive; elsewhere a line now and then."""

    def __init__(self, state: State) -> None:
        self._state = state
        #: what is to come home, and the size of each
        self._files: dict[str, int] = {}
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._live = sees_a_person()
        self._base = 0

    def begin(self, moved: int) -> None:
        """What is on layers now comes home, and so many bytes were moved in this run before that.

        Called when the engine has sorted out what goes with the run, and before it can hear that anything is home.
        """
        for _, version in sorted(self._state.placed.items()):  # of several versions of a file, the newest comes home
            if version.placed is not None and version.file is not None and not version.temp:
                self._files[version.file] = version.placed.size
        self._base = moved

    def show(self, moved: int) -> None:
        """So many bytes were moved in this run."""
        now = time.monotonic()
        if not self._files:
            return  # what only has to be removed is of no interest
        if now - self._began < _PATIENCE or (not self._live and now - self._shown_at < _PERIOD):
            return
        self._shown_at = now
        left = {version.file for version in self._state.placed.values()}
        files = sum(file not in left for file in self._files)
        size = sum(self._files.values())
        line = (
            f"penstock: bringing files home: {files} of {len(self._files)}, "
            f"{format_size(min(size, moved - self._base))} of {format_size(size)}"
        )
        say(f"\r\x1b[K{line}" if self._live else f"{line}\n")

    def _tell_of_astray(self) -> None:
        """Files whose names the program took away: it may have done with them, or have named them elsewhere."""
        astray = {path: one.file for path, one in self._state.astray.items() if not one.temp}
        if not astray:
            return
        places = [f"{file} as {path}" for path, file in list(astray.items())[:3]] + ["…"] * (len(astray) > 3)
        count = "1 file" if len(astray) == 1 else f"{len(astray)} files"
        say(
            f"penstock: the program removed or replaced the names of {count} on storage layers; what tasks wrote is "
            f"kept: {', '.join(places)}\n"
        )

    def __enter__(self) -> DrainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and self._shown_at:
            say("\r\x1b[K")
        self._tell_of_astray()
        left = [version for version in self._state.placed.values() if not version.temp]
        if kind is not None and left:
            names = ", ".join(version.file or "" for version in left[:3]) + (", …" if len(left) > 3 else "")
            say(
                f"penstock: {len(left)} finished files are still on their storage layers, and their names are links "
                f"to them: {names}\n"
            )
