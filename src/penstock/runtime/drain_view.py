"""What a person sees while finished files are brought home at the end of a run, if that takes a while."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

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
        placed = [version.placed for version in state.placed.values() if version.placed and not version.temp]
        self._files = len(placed)
        self._bytes = sum(one.size for one in placed)
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._live = sys.stderr.isatty()
        self._base: int | None = None

    def show(self, files: int, moved: int) -> None:
        """So many files are home, and so many bytes were moved in this run."""
        if self._base is None:
            self._base = moved
        now = time.monotonic()
        if now - self._began < _PATIENCE or (not self._live and now - self._shown_at < _PERIOD):
            return
        self._shown_at = now
        done = min(self._bytes, moved - self._base)
        line = (
            f"penstock: bringing files home: {files} of {self._files}, "
            f"{format_size(done)} of {format_size(self._bytes)}"
        )
        sys.stderr.write(f"\r\x1b[K{line}" if self._live else f"{line}\n")
        sys.stderr.flush()

    def __enter__(self) -> DrainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and self._shown_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        left = [version for version in self._state.placed.values() if not version.temp]
        if kind is not None and left:
            names = ", ".join(version.file or "" for version in left[:3]) + (", …" if len(left) > 3 else "")
            sys.stderr.write(
                f"penstock: {len(left)} finished files are still on their storage layers, and their names are links "
                f"to them: {names}\n"
            )
