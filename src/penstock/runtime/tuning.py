"""What a run does with learned constraints: takes up what earlier runs know, says what it chose, keeps what is new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.executors.saying import say
from penstock.model.events import ConstraintDrifted, EpochEnded, Note
from penstock.tuning.registry import Learned
from penstock.units import format_duration, format_rate

if TYPE_CHECKING:
    from penstock.tuning.tuner import Tuner

__all__ = ["Tuning"]


class Tuning:
    """The registry as one run sees it."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._loaded = False
        #: filled before the first task with a learned constraint is submitted; the engine looks here
        self.known: dict[tuple[str, str], Learned] = {}
        self._announced: set[tuple[str, str]] = set()

    def load(self) -> None:
        """Take up what earlier runs learned; done once, and only by programs that have something to learn."""
        if self._loaded or self._path == "off":
            return
        from penstock.runtime.tuning_cache import tuning_cache

        self._loaded = True
        self.known.update(tuning_cache(self._path).load())

    def save(self, tuners: Mapping[tuple[str, str], Tuner]) -> None:
        """Keep what this run learned, and forget what it found to be no longer true."""
        if not self._loaded:
            return
        from penstock.runtime.tuning_cache import tuning_cache

        cache = tuning_cache(self._path)
        learned = [entry for tuner in tuners.values() if (entry := tuner.learned()) is not None]
        news = [entry for entry in learned if self.known.get((entry.function, entry.layer)) != entry]
        if news:
            cache.save(news)
        for key, tuner in tuners.items():
            if tuner.learning and key in self.known:
                cache.clear(*key)

    def take_note(self, note: Note) -> None:
        """Say once for each function and layer what was chosen."""
        if isinstance(note, EpochEnded):
            return
        key = (note.function, note.layer)
        if isinstance(note, ConstraintDrifted):
            times = f"{note.ratio:.2g} times as long as learned"
            _say(f"{note.function} on {note.layer}: its tasks take {times}, so storage_bw is learned anew")
            self._announced.discard(key)
        elif key not in self._announced:
            self._announced.add(key)
            how = "as earlier runs learned" if note.remembered else "learned"
            _say(
                f"{note.function} on {note.layer}: storage_bw = {format_rate(note.constraint)} ({how}): "
                f"{note.concurrency} at a time, {format_duration(note.seconds)} each"
            )


def _say(message: str) -> None:
    say(f"penstock: {message}\n")
