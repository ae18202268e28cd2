"""Steers how many attempts a device runs at a time, by what it delivers: the default for ``storage_bw="auto"``.

    attempts begin and end ─▶ Controller ─▶ Window: what the device delivers at this limit
    readings of bytes      ─▶     │              │ good enough?
                                  └─ limit ◀─ Search

It stops nothing to learn: the program's own attempts run on, and the limit only says whether another may begin. A limit
is measured once as many attempts run as it allows; where tasks are too few for that nothing is learned, and nothing
needs to be. Pure: time is an argument.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.tuning.member import Member
from penstock.tuning.mixture import Mixture
from penstock.tuning.search import Phase, Search
from penstock.tuning.window import Flow, Window

__all__ = ["Changed", "Controller", "Judged", "News", "Settled"]

#: seconds between readings before anything is known of how long attempts take, and between any two at least
_FIRST_GAP, _LEAST_GAP = 0.010, 0.008
_MOST_GAP = 1.0
#: readings in the time of an attempt; of shorter ones the ends say as much. At rest there is time: fewer will do.
_READINGS, _READINGS_AT_REST = 12, 6
_WORTH_READING, _WORTH_READING_AT_REST = 0.05, 0.5
#: while nothing has ended, the gap grows by this with each reading
_GAP_GROWTH = 1.2
#: a flow whose readings differ by this is none
_BURSTS = 0.6
_READINGS_FOR_BURSTS, _READINGS_FOR_LATE_BURSTS = 5, 12
#: seconds after which bytes should flow from a process that has started
_STARTING = 0.05
#: readings and ends must agree to these
_LEAST_AGREEMENT, _MOST_AGREEMENT = 0.7, 1.4
#: a measurement this good is good enough…
_GOOD = 0.03
#: …and one this bad is none, on the way up to where others begin
_BAD = 0.15
#: that a limit is no better has to be seen in this many readings, unless it is far worse
_CONFIRMED = 8
_FAR_WORSE = -0.5
#: how far the mean number of attempts may be from what was asked for
_NEAR, _NEAREST = 0.15, 0.35
#: attempts that an end changes the mean time by
_NEWEST = 0.2
#: a measurement is as good as it gets after this many times of an attempt
_LONG = 1.2
#: at rest, a measurement takes at least this many ends
_LEAST_ENDS = 4
#: seconds: in less, short attempts tell what else the processors had to do
_SHORTEST = 0.05


class Judged(NamedTuple):
    """A limit was measured."""

    limit: int
    #: bytes per second
    rate: float
    #: standard error, as a part of the rate
    error: float


class Settled(NamedTuple):
    """A limit was found to be the best."""

    limit: int
    rate: float
    #: what the next best of those tried delivered, if others were
    other: tuple[int, float] | None


class Changed(NamedTuple):
    """The device delivers otherwise than it did: others are tried again."""

    limit: int
    before: float
    rate: float


News = Judged | Settled | Changed


class Controller:
    """One device, or one that nodes share; several that are alike may search together, each as a ``Member``."""

    def __init__(self, search: Search | Member, *, steady: bool = True, mixture: Mixture | None = None) -> None:
        self.search = search
        #: the flow of bytes can be trusted
        self.steady = steady
        #: when readings are wanted next; None: this window is measured by what ends
        self.reading_at: float | None = None
        #: what happened since it was last looked at; whoever logs it empties it
        self.news: list[News] = []
        self.running = 0
        #: attempts times seconds, up to some time
        self._load = self._load_at = 0.0
        #: how long an attempt takes, the newest counting more
        self.seconds: float | None = None
        self._window: Window | None = None
        #: bytes that had been transferred when that was last read, and until when processes start
        self._delivered = self._starts_until = 0.0
        #: others use the device too: what it delivers says nothing of the limit
        self._rests = False
        self._gap = _FIRST_GAP
        #: attempts that ended in this window, and ever
        self._ends = self._ever = 0
        #: functions that run here; like devices weigh them together
        self.mixture = mixture or Mixture()

    @property
    def limit(self) -> int:
        """Attempts that may run at a time."""
        return self.search.limit

    def limit_beside_others(self, part: float) -> int:
        """The same while others use the device too, and this program has such a part of it.

        What was found best is best for all together. Before that nothing is known, nor can it be learned beside them:
        then as many run as in a program that knows nothing of I/O.
        """
        search = self.search
        ours = int(search.limit * part)
        return max(ours, search.start) if search.phase is Phase.RAMP else ours

    # --- what happens ----------------------------------------------------------------------------------------------

    def runs(self, running: int, now: float) -> None:
        """So many attempts run from now on."""
        self._load += self.running * (now - self._load_at)
        self._load_at = now
        self.running = running
        if self._window is None and running == self.limit:
            self._open(now)

    def rest(self, rests: bool) -> None:
        """Learn nothing for the time being, or go on."""
        if rests and not self._rests:
            self._window = None
            self.reading_at = None
        self._rests = rests

    def ended(self, function: str, nbytes: float, seconds: float, concurrency: float, now: float) -> None:
        """An attempt transferred its bytes in so many seconds, with so many running on the average."""
        mixture = self.mixture
        is_new = not mixture.knows(function)
        mixture.ended(function, nbytes, seconds, concurrency)
        if mixture.is_uneven and (is_new or self.steady):
            self._distrust(now)
        before = self.seconds
        self.seconds = seconds if before is None else before + _NEWEST * (seconds - before)
        self._ever += 1
        if self._window is None:
            return
        self._ends += 1
        self._window.ended(function, nbytes, mixture.weight(function), seconds, concurrency)
        if self.reading_at is None:
            self._look_at_ends(self._window, now)

    def read(self, delivered: float, now: float, *, starting: bool = False) -> None:
        """Attempts have transferred so many bytes, all together, ever.

        While the process of one of them is ``starting``, fewer run than it seems: what flowed up to now does not count.
        """
        window = self._window
        if window is None or self.reading_at is None:
            return
        self.reading_at = now + self._gap
        if starting:
            self._starts_until = now + _STARTING
        if starting or (now < self._starts_until and delivered == self._delivered):
            window = self._window = Window(self.limit, now)
        self._delivered = delivered
        window.read(now, delivered, self._load + self.running * (now - self._load_at))
        flow = window.flow()
        if flow is not None:
            self._look_at_flow(window, flow, now)

    def cannot_read(self) -> None:
        """Nobody can tell how many bytes attempts have transferred."""
        self.steady = False
        self.reading_at = None

    def follow(self, now: float) -> None:
        """What others of its group did may have changed the limit, or left it alone."""
        if isinstance(self.search, Member) and self.search.alone is not None:
            self.search = self.search.alone
        if self._window is None or self._window.limit != self.limit:
            self._close(now)

    # --- windows ---------------------------------------------------------------------------------------------------

    def _open(self, now: float) -> None:
        if self._rests:
            return
        self._window = Window(self.limit, now)
        self._ends = 0
        self._gap = _FIRST_GAP
        self.reading_at = now if self.steady else None
        if self.seconds is not None:
            resting = self.search.resting
            self._gap = min(_MOST_GAP, max(_LEAST_GAP, self.seconds / (_READINGS_AT_REST if resting else _READINGS)))
            if self.seconds < (_WORTH_READING_AT_REST if resting else _WORTH_READING):
                self.reading_at = None

    def _close(self, now: float) -> None:
        """Begin another as soon as as many run as are asked for."""
        self._window = None
        self.reading_at = None
        if self.running == self.limit:
            self._open(now)

    def _look_at_flow(self, window: Window, flow: Flow, now: float) -> None:
        search = self.search
        if self.seconds is None and flow.intervals > 3:
            self._gap = min(_MOST_GAP, self._gap * _GAP_GROWTH)
        if self._is_no_flow(window, flow, now):
            self._distrust(now)
            return
        if flow.rate <= 0 or not self._is_enough(window, flow, now):
            return
        if abs(flow.concurrency - window.limit) > max(_NEAREST, _NEAR * window.limit):
            self._close(now)
            return
        if search.phase is Phase.RAMP and window.limit >= 2 * search.start and not self._ever:
            return  # what the kernel takes into its cache at first says little: see one attempt to its end
        self._judge(flow.rate, flow.error, flow.rate * (now - window.opened), now)

    def _is_no_flow(self, window: Window, flow: Flow, now: float) -> bool:
        """Whether bytes come in bursts, or other bytes than those of the files."""
        early = self.search.phase is not Phase.RAMP or window.limit < self.search.start
        enough = _READINGS_FOR_BURSTS if early else _READINGS_FOR_LATE_BURSTS
        if flow.intervals >= enough and (flow.spread > _BURSTS or flow.rate <= 0):
            return True
        ends = window.ends(self.mixture, now)
        if ends is None or ends.attempts < 3 or flow.rate <= 0:
            return False
        return not _LEAST_AGREEMENT < flow.rate / ends.rate < _MOST_AGREEMENT

    def _is_enough(self, window: Window, flow: Flow, now: float) -> bool:
        search = self.search
        full = self._ends >= window.limit and flow.intervals >= 4
        if search.resting:
            return full and self._ends >= _LEAST_ENDS
        if search.phase is Phase.RAMP and window.limit < search.start and flow.error > _BAD:
            return False
        full = full or (self.seconds is not None and now - window.opened >= _LONG * self.seconds)
        reference = search.reference
        if full or reference is None:
            return full or flow.error <= _GOOD
        gain = flow.rate / reference.rate - 1
        if flow.intervals < _CONFIRMED and _FAR_WORSE < gain <= _GOOD:
            return False
        return flow.error <= _GOOD or abs(gain) > 3 * (flow.error + reference.error)

    def _distrust(self, now: float) -> None:
        """Readings tell nothing here: look at what ends from now on."""
        self.steady = False
        self.search.forget()
        self.search.skip()
        self._close(now)

    def _look_at_ends(self, window: Window, now: float) -> None:
        search = self.search
        if now - window.opened < _SHORTEST:
            return
        ends = window.ends(self.mixture, now)
        if ends is None:
            return
        enough = ends.attempts >= max(_LEAST_ENDS if search.resting else 2, window.limit)
        if not enough and not search.resting and ends.attempts >= 3:
            reference = search.reference
            clear = reference is not None and abs(ends.rate / reference.rate - 1) > 3 * (ends.error + reference.error)
            enough = ends.error <= _GOOD or clear
        if enough:
            self._judge(ends.rate, ends.error, window.bytes_ended, now)
        elif self._ends > 3 * window.limit + 2 * _LEAST_ENDS:
            self._close(now)  # they come and go too unevenly to tell

    def _judge(self, rate: float, error: float, nbytes: float, now: float) -> None:
        search = self.search
        limit, settled, changes, reference = search.limit, search.settled, search.changes, search.reference
        before = reference.rate if reference is not None else rate
        search.judge(rate, error, nbytes, self.seconds or _FIRST_GAP)
        if isinstance(search, Member) and search.alone is not None:
            self.search = search.alone
        scale = self.mixture.bytes_of_worth
        self.news.append(Judged(limit, rate * scale, error))
        if search.changes > changes:
            self.news.append(Changed(limit, before * scale, rate * scale))
        if search.settled > settled and search.reference is not None:
            others = {one: point.rate * scale for one, point in search.points.items() if one != search.best}
            other = max(others.items(), key=lambda item: item[1], default=None)
            self.news.append(Settled(search.best, search.reference.rate * scale, other))
        self._close(now)
