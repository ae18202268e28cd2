"""What a run does with learned constraints: takes up what earlier runs know, says what it chose, keeps what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.engine.state import StorageRules
from penstock.executors.saying import say
from penstock.model.events import (
    ConstraintChosen,
    ConstraintDrifted,
    DeliveryChanged,
    DeliveryMeasured,
    EpochEnded,
    LayerShared,
    LimitSettled,
    Note,
)
from penstock.tuning.registry import Delivery, Learned
from penstock.units import format_duration, format_rate

if TYPE_CHECKING:
    from penstock.engine.devices import DeviceRecord
    from penstock.runtime.config import Config
    from penstock.tuning.tuner import Tuner

__all__ = ["Tuning"]

#: a device on which the next best delivers more than this part of the best has little to gain
_WORTH_SAYING = 0.95
#: lines about a device after which only the 16th, the 32nd and so on are said: the log has all
_ALL_SAID = 8


class Tuning:
    """The registry as one run sees it."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._loaded = False
        #: filled before the first task with a learned constraint is submitted; the engine looks here
        self.known: dict[tuple[str, str], Learned] = {}
        self.deliveries: dict[tuple[str, str], Delivery] = {}
        self._announced: set[tuple[str, str]] = set()
        #: how many attempts at a time each layer was last said to be best with; by node, none if several are alike
        self._said: dict[tuple[str, str], int] = {}
        #: changes of mind about each, said or not
        self._changes: dict[tuple[str, str], int] = {}

    def rules(self, config: Config) -> StorageRules:
        """How storage is scheduled, and what is known of it."""
        return StorageRules(
            config.io_scheduler,
            config.io_ageing,
            config.data_movement,
            config.tuning_ceiling,
            self.known,
            config.tuner,
            self.deliveries,
            config.tuning_tolerance,
            config.tuning_counts,
        )

    def load(self) -> None:
        """Take up what earlier runs learned; done once, and only by programs that have something to learn."""
        if self._loaded or self._path == "off":
            return
        from penstock.runtime.tuning_cache import tuning_cache

        self._loaded = True
        for key, entry in tuning_cache(self._path).load().items():
            if isinstance(entry, Learned):
                self.known[key] = entry
            else:
                self.deliveries[key] = entry

    def save(self, tuners: Mapping[tuple[str, str], Tuner], steered: Sequence[DeviceRecord]) -> None:
        """Keep what this run learned, and forget what it found to be no longer true."""
        if not self._loaded:
            return
        from penstock.runtime.delivery import deliveries_of
        from penstock.runtime.tuning_cache import Entry, tuning_cache

        cache = tuning_cache(self._path)
        learned: list[Entry] = [entry for tuner in tuners.values() if (entry := tuner.learned()) is not None]
        learned += deliveries_of(steered)
        before = {**self.known, **self.deliveries}
        news = [entry for entry in learned if before.get((entry.function, entry.layer)) != entry]
        if news:
            cache.save(news)
        for key, tuner in tuners.items():
            if tuner.learning and key in self.known:
                cache.clear(*key)

    def take_note(self, note: Note) -> None:
        """Say what was chosen: once for each function and layer, and when it is no longer so."""
        match note:
            case LimitSettled():
                self._settled(note)
            case DeliveryChanged():
                if (note.layer, note.node) in self._said:
                    faster = "more" if note.delivered > note.before else "less"
                    self._change(
                        (note.layer, note.node),
                        f"{note.concurrency} at a time deliver {faster} than they did, "
                        f"{format_rate(note.delivered)} instead of {format_rate(note.before)}; looking again",
                    )
            case ConstraintDrifted():
                times = f"{note.ratio:.2g} times as long as learned"
                _say(f"{note.function} on {note.layer}: its tasks take {times}, so storage_bw is learned anew")
                self._announced.discard((note.function, note.layer))
            case ConstraintChosen():
                self._chosen(note)
            case EpochEnded() | DeliveryMeasured() | LayerShared():
                pass

    def _settled(self, note: LimitSettled) -> None:
        """Where nothing is to be gained, nothing is said; nor twice."""
        gained = not note.other or note.other_delivered < _WORTH_SAYING * note.delivered
        key = (note.layer, note.node)
        if self._said.get(key) == note.concurrency or not (gained or key in self._said):
            return
        self._said[key] = note.concurrency
        many = f"{note.concurrency} {'task delivers' if note.concurrency == 1 else 'tasks at a time deliver'}"
        other = f"; {note.other} delivered {format_rate(note.other_delivered)}" if note.other else ""
        self._change(key, f"{many} {format_rate(note.delivered)}{other}")

    def _change(self, key: tuple[str, str], what: str) -> None:
        """Say what is thought of a device now; more and more seldom, if that goes on and on."""
        changes = self._changes[key] = self._changes.get(key, 0) + 1
        if changes <= _ALL_SAID or changes & (changes - 1) == 0:
            often = f" ({changes} changes so far)" if changes > _ALL_SAID else ""
            _say(f"{self._where(*key)}: {what}{often}")

    def _where(self, layer: str, node: str) -> str:
        """A layer, and the node whose own is meant if others have such a layer too."""
        elsewhere = any(there == layer and other != node for there, other in self._said)
        return f"{layer} on {node}" if node and elsewhere else layer

    def _chosen(self, note: ConstraintChosen) -> None:
        key = (note.function, note.layer)
        if key not in self._announced:
            self._announced.add(key)
            how = "as earlier runs learned" if note.remembered else "learned"
            _say(
                f"{note.function} on {note.layer}: storage_bw = {format_rate(note.constraint)} ({how}): "
                f"{note.concurrency} at a time, {format_duration(note.seconds)} each"
            )


def _say(message: str) -> None:
    say(f"penstock: {message}\n")
