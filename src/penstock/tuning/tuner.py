"""One function on one layer: first learning, then settled, and back to learning when the times no longer hold.

The engine talks to this and to nothing else of the package: it asks for a constraint, reports what becomes of
attempts, and logs the notes it gets. An attempt is reported with the phase in which it started, because the phase may
change while it runs.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.model.resources import Auto
from penstock.tuning.drift import Drift
from penstock.tuning.epochs import Learner, epoch_size, highest_constraint
from penstock.tuning.objective import TIE, Choice, choose
from penstock.tuning.registry import Learned, Measure

__all__ = ["Drifted", "EpochClosed", "Note", "Outgrown", "Tuner"]

# Answers kept per registry: queues grow and shrink over the same lengths.
_REMEMBERED = 4096


class EpochClosed(Struct, frozen=True):
    """An epoch has its mean time."""

    epoch: Measure
    #: False for the epoch that ended an unbounded search by not paying
    registered: bool
    learning_over: bool


class Drifted(Struct, frozen=True):
    """Tasks take ``ratio`` times as long as was learned: it is forgotten, and learning begins again."""

    ratio: float


class Outgrown(Struct, frozen=True):
    """What was learned on too few tasks is forgotten, now that enough of them wait to fill every epoch."""

    ready: int


Note = EpochClosed | Drifted | Outgrown


class Tuner:
    """Finds and holds the constraint of one function on one layer."""

    def __init__(
        self,
        function: str,
        layer: str,
        auto: Auto,
        bandwidth: float,
        executors: int,
        *,
        known: Learned | None = None,
        ceiling: float | None = None,
        tie: float = TIE,
    ) -> None:
        self._tie = tie
        self.function = function
        self.layer = layer
        self._auto = auto
        self._bandwidth = bandwidth
        self._executors = executors
        self._ceiling = ceiling
        #: the last answer of ``constraint`` since learning ended
        self.choice: Choice | None = None
        self._learn()
        if known is not None and known.measures and self._circumstances(known.measures) == known:
            self._settle(known.measures)

    @property
    def learning(self) -> bool:
        return not self._measures

    @property
    def learner(self) -> Learner:
        """The learning phase, present or last."""
        return self._learner

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What choices rest on; empty while learning."""
        return self._measures

    def constraint(self, ready: int, nodes: int) -> float:
        """Bytes per second for each instance while ``ready`` of them wait for ``nodes`` nodes.

        While learning it is that of the present epoch.
        """
        if self.learning:
            return self._learner.constraint
        key = (ready, nodes)
        choice = self._answers.get(key)
        if choice is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            most = highest_constraint(self._auto, self._bandwidth, self._ceiling)
            choice = choose(
                self._measures, max(1, ready), max(1, nodes), self._bandwidth, self._executors, most=most, tie=self._tie
            )
            self._answers[key] = choice
        self.choice = choice
        return choice.constraint

    def arrived(self, ready: int) -> Outgrown | None:
        """Instances arrived and ``ready`` of them wait now: is that enough to replace partial measures?

        Epochs of a few tasks cannot show what the device does with many, and a constraint chosen from them may keep
        tasks from ever running together, so that the drift would not be seen either.
        """
        if self._outgrown_at is None or ready < self._outgrown_at:
            return None
        self._learn()
        return Outgrown(ready)

    def started(self) -> None:
        """An instance was launched; it counts while learning only."""
        if self.learning:
            self._learner.started()

    def finished(self, seconds: float, concurrency: int, *, learning: bool, now: float | None = None) -> Note | None:
        """An attempt, ``learning`` when it started, succeeded among ``concurrency`` of its function on its node."""
        if learning:
            return self._closed() if self._learner.succeeded(seconds, now) else None
        # What began under an older registry says nothing of the epoch that runs now.
        if self.learning or not self._drift.add(seconds, max(1, concurrency)):
            return None
        ratio = self._drift.ratio
        self._learn()
        return Drifted(ratio)

    def failed(self, *, learning: bool) -> None:
        """An attempt, ``learning`` when it started, ended without success."""
        if learning:
            self._learner.failed()

    def close_early(self) -> EpochClosed | None:
        """No more instances can come: close the epoch on what there is."""
        return self._closed() if self.learning and self._learner.close_early() else None

    def learned(self) -> Learned | None:
        """What to keep for later runs; None while learning is not over."""
        return self._circumstances(self._measures) if self._measures else None

    def _circumstances(self, measures: tuple[Measure, ...]) -> Learned:
        return Learned(self.function, self.layer, self._bandwidth, self._executors, self._auto, measures, self._ceiling)

    def _learn(self) -> None:
        self._learner = Learner(self._auto, self._bandwidth, self._executors, ceiling=self._ceiling)
        self.choice = None
        self._settle(())

    def _settle(self, measures: tuple[Measure, ...]) -> None:
        self._measures = measures
        self._drift = Drift(measures)
        self._answers: dict[tuple[int, int], Choice] = {}
        self._outgrown_at: int | None = None
        if any(measure.partial for measure in measures):
            sizes = (epoch_size(measure.constraint, self._bandwidth, self._executors) for measure in measures)
            self._outgrown_at = sum(sizes)

    def _closed(self) -> EpochClosed:
        epoch = self._learner.epochs[-1]
        if self._learner.done:
            self._settle(self._learner.measures)
        return EpochClosed(epoch, epoch in self._learner.measures, self._learner.done)
