"""One search by several like devices: each tries another limit at the same time, and what one finds is known to all.
It is long because who is believed, what is tried and who tries it all change one state.

    Member ── what it delivered ──▶ Group: points, best ── another limit to try ──▶ Member
                     │ otherwise than the others at the same limit
                     └─▶ a ``Search`` of its own

A parallel pattern search: the same steps as those of ``Search``, but all that are worth a trial are tried at once, each
by another device, while the rest holds the best. At rest all hold the best, and one at a time probes its neighbours.

A device that others use, or that is slower, must not lead the rest astray, nor be led by it. So each is first measured
at one limit where all begin, and again and again at the best: there it is compared with the others. Small differences
are reckoned with; one that is large, twice in a row and not seen by the others, ends its membership. What it had
reported of other limits is forgotten.
"""

from __future__ import annotations

import math
from statistics import median

from penstock.tuning.member import Member
from penstock.tuning.point import CHANGED, LEAST_ERROR, Point
from penstock.tuning.probes import Probes
from penstock.tuning.search import PASSING, TOLERANCE, Phase, Search, rung_above

__all__ = ["Group"]

#: devices whose rates differ by more are not alike
_ALIKE = 0.15
#: the newest measurement changes what is known of a member's speed by this
_NEWEST = 0.2
#: judgements of others, for each member, after which a trial is given to another: its device has no work, perhaps
_PATIENCE = 3
#: of those that climb, the highest tries at most so many times the best
_AHEAD = 1.5
#: a member that still delivers otherwise is not waited for any longer after so many times
_MOST_STRIKES = 4


class Group:
    """What like devices have in common: parameters as those of ``Search``."""

    def __init__(
        self,
        least: int,
        most: int,
        start: int,
        *,
        begin_at: int | None = None,
        points: dict[int, Point] | None = None,
    ) -> None:
        self.least = least
        self.most = max(least, most)
        self.start = min(max(start, least), self.most)
        self.points: dict[int, Point] = dict(points or {})
        self.phase = Phase.RAMP if begin_at is None else Phase.HOLD
        self.best = self._within(least if begin_at is None else begin_at)
        self.reference: Point | None = None
        self.settled = self.changes = 0
        self.members: list[Member] = []
        #: whose limit was changed, or who left, by what another did; whoever acts on that empties it
        self.moved: dict[Member, None] = {}
        #: where all begin, and what each delivered there
        self._base = self.best
        self._begun: dict[Member, float] = {}
        self._direction = self._step = 1
        self._tried: set[int] = set()
        #: while it climbs: the lowest limit that was worse
        self._ceiling: int | None = None
        self._variance: float | None = None
        self._judgements = 0
        self._probes = Probes()
        self._prober: Member | None = None

    @classmethod
    def of(cls, search: Search) -> Group:
        """One that begins with what a single device has found out."""
        points = dict(search.points)
        climbing = search.phase is Phase.RAMP
        group = cls(search.least, search.most, search.start, begin_at=None if climbing else search.best, points=points)
        if climbing:
            group._base = group.best = search.best
        group.settled, group.changes = search.settled, search.changes
        return group

    @property
    def spread(self) -> float:
        """Standard deviation between measurements of one device at one limit, as a part of them."""
        return 0.0 if self._variance is None else math.sqrt(self._variance)

    # --- members ---------------------------------------------------------------------------------------------------

    def join(self) -> Member:
        """Another device; it is compared with the others before it tries anything."""
        member = Member(self, self._base if self.phase is Phase.RAMP else self.best)
        self.members.append(member)
        return member

    def remove(self, member: Member) -> None:
        """Its node is lost."""
        if member in self.members:
            self.members.remove(member)
            self._begun.pop(member, None)
            if self._prober is member:
                self._prober = None
            self._assign(None)

    def _leave(self, member: Member, rate: float, error: float) -> None:
        """It is unlike the others, and learns alone from now on."""
        at_base = self.phase is Phase.RAMP
        member.alone = Search(self.least, self.most, self.start, begin_at=None if at_base else self.best)
        if not at_base:
            member.alone.look_around(rate, error)
        self.moved[member] = None
        self.remove(member)
        self._forget_reports(member)

    def _forget_reports(self, member: Member) -> None:
        """What it delivered says nothing of the others; where a choice may rest on that, it is made again."""
        doubtful = {limit for limit in member.tried if limit != self.best and limit in self.points}
        if not doubtful:
            return
        for limit in doubtful:
            del self.points[limit]
        self._tried -= doubtful
        if self._ceiling in doubtful:
            self._ceiling = None
        if self.phase is not Phase.RAMP:
            self._begin_search(max(1, self.best // 3), set())
        self._assign(None)

    # --- what is told ----------------------------------------------------------------------------------------------

    def judge(self, member: Member, rate: float, error: float, nbytes: float, seconds: float) -> None:
        """A member's device delivered that at its limit."""
        error = max(math.hypot(error, self.spread), LEAST_ERROR)
        self._judgements += 1
        member.judged = self._judgements
        limit = member.limit
        if not self._is_like_the_others(member, rate, error):
            if member.alone is None:
                self._assign(None)
            return
        rate /= member.scale
        member.tried.add(limit)
        point = self._note(limit, rate, error)
        if self.phase is Phase.HOLD and limit != self.best:
            self._probed(member, point, seconds)
        elif limit == self.best:
            self._watch(member, rate, error, nbytes)
        elif self.phase is Phase.RAMP:
            self._climb(limit, point)
        elif self.phase is Phase.SEARCH:
            self._compare(limit, point)
        self._assign(member)
        if self.phase is Phase.HOLD:
            if not self._probes.known and self.reference is not None:
                self._probes.plan_all(self.best, self.reference.rate, self.points, seconds)
            self._probe_if_due(member)

    def skip(self) -> None:
        """Nothing can be told of few attempts: while it climbs, try where others begin."""
        if self.phase is Phase.RAMP and self._base < self.start:
            self._base = self.start
            self._begun.clear()
            self.best = max(self.best, self.start)
            self.reference = self.points.get(self.best)
            for member in self.members:
                member.proven = False
            self._assign(None)

    def forget(self, member: Member) -> None:
        """What a member measured was measured wrongly."""
        self._begun.pop(member, None)
        member.last = None
        self._forget_reports(member)
        member.tried.clear()

    def bound(self, least: int, most: int) -> None:
        """Other limits are allowed from now on."""
        if (least, most) != (self.least, self.most):
            self.least, self.most = least, max(least, most)
            self.start, self._base = self._within(self.start), self._within(self._base)
            if self._within(self.best) != self.best:
                self.best = self._within(self.best)
                self.reference = None
            for member in self.members:
                self._give(member, self._within(member.limit))

    # --- who is like whom ------------------------------------------------------------------------------------------

    def _is_like_the_others(self, member: Member, rate: float, error: float) -> bool:
        """Whether to count what it delivered; if not, it is left where it is, or has left."""
        if self.phase is Phase.RAMP and member not in self._begun:
            return self._begins_like_the_others(member, rate, error)
        reference = self.reference
        climbs = self.phase is Phase.RAMP and member.proven
        if climbs or member.limit != self.best or reference is None:
            return member.proven
        ratio = rate / reference.rate
        if abs(ratio - 1) > max(_ALIKE, 2.5 * self.spread) + 2 * math.hypot(error, min(reference.error, PASSING)):
            self._strike(member, rate, error)
            return False
        member.strikes = 0
        member.proven = True
        member.scale = min(1 + _ALIKE, max(1 - _ALIKE, member.scale + _NEWEST * (ratio - member.scale)))
        return True

    def _begins_like_the_others(self, member: Member, rate: float, error: float) -> bool:
        """Who is not holds the best until it is known better: one brief measurement proves little."""
        begun = self._begun
        begun[member] = rate
        usual = next(iter(begun.values())) if len(begun) == 2 else median(begun.values())
        for other, delivered in begun.items():
            other.proven = abs(delivered / usual - 1) <= _ALIKE + 3 * error
        return member.proven

    def _strike(self, member: Member, rate: float, error: float) -> None:
        """It is unlike the others: is it alone with that?"""
        if not member.strikes:
            member.struck = self._judgements
        member.strikes += 1
        member.watched = self._judgements
        others = [other for other in self.members if other is not member]
        fresh = [other for other in others if other.watched > member.struck or other.strikes]
        if member.strikes < 2 or (2 * len(fresh) < len(others) and member.strikes < _MOST_STRIKES):
            return
        if self.phase is not Phase.RAMP and 2 * sum(other.strikes > 0 for other in fresh) >= len(fresh):
            self._change(rate, error)
        else:
            self._leave(member, rate, error)

    def _change(self, rate: float, error: float) -> None:
        """At the best limit, all deliver otherwise than they did."""
        self.changes += 1
        self.reference = Point(rate, error)
        self.points = {self.best: Point(rate, error)}
        for member in self.members:
            member.strikes, member.scale, member.last = 0, 1.0, None
            member.tried.clear()
        self._begin_search(max(1, self.best // 3), set())
        self._assign(None)

    # --- comparing -------------------------------------------------------------------------------------------------

    def _note(self, limit: int, rate: float, error: float) -> Point:
        point = self.points.get(limit)
        if point is None:
            point = self.points[limit] = Point(rate, error)
        else:
            point.add(rate, error)
        return point

    def _gain(self, point: Point) -> float:
        return math.inf if self.reference is None else point.rate / self.reference.rate - 1

    def _noise(self, error: float) -> float:
        return TOLERANCE + math.hypot(error, 0.0 if self.reference is None else self.reference.error)

    def _is_gain(self, point: Point) -> bool:
        return self._gain(point) > self._noise(point.error)

    def _accept(self, limit: int, point: Point) -> None:
        self.best = limit
        self.reference = Point(point.rate, point.error)
        for member in self.members:
            member.last = None
            member.strikes = 0

    def _climb(self, limit: int, point: Point) -> None:
        if limit < self.best:
            return
        free = limit <= self.start and self._gain(point) >= -self._noise(point.error)
        if free or self._is_gain(point):
            self._accept(limit, point)
        elif self._ceiling is None or limit < self._ceiling:
            self._ceiling = limit

    def _compare(self, limit: int, point: Point) -> None:
        self._tried.add(limit)
        if self._is_gain(point):
            self._move_to(limit, point)

    def _move_to(self, limit: int, point: Point) -> None:
        """It gained: go on in that direction, faster."""
        way = limit - self.best
        self._tried.add(self.best)
        self._tried.discard(limit)
        self._direction = 1 if way > 0 else -1
        self._step = max(1, min(2 * abs(way), limit // 3 if way > 0 else limit // 2))
        self._accept(limit, point)

    # --- at rest ---------------------------------------------------------------------------------------------------

    def _watch(self, member: Member, rate: float, error: float, nbytes: float) -> None:
        """What a member delivers at the best limit."""
        member.watched = self._judgements
        if self.reference is None:
            self.reference = Point(rate, error)
        else:
            self.reference.add(rate, error)
        if self.phase is Phase.HOLD:
            if member.last is not None:
                square = min(abs(rate / member.last - 1), 2 * CHANGED) ** 2 / 2
                before = self._variance
                self._variance = square if before is None else before + 0.15 * (square - before)
            member.last = rate
            self._probes.earned += nbytes

    def _probe_if_due(self, member: Member) -> None:
        """One at a time tries a neighbour again: the one that was just measured."""
        prober = self._prober
        if prober is not None and self._judgements - prober.given <= _PATIENCE * len(self.members):
            return
        if prober is not None:
            self._prober = None
            self._give(prober, self.best)
        if member.limit != self.best or not member.proven or member.alone is not None:
            return
        limit = self._seems_better()
        if limit is None:
            limit = self._probes.due(self.best, self._within)
        if limit is not None:
            self._prober = member
            self._give(member, limit)

    def _seems_better(self) -> int | None:
        others = [limit for limit in self.points if limit != self.best and self.least <= limit <= self.most]
        best = max(others, key=lambda limit: self.points[limit].rate, default=None)
        return best if best is not None and self._is_gain(self.points[best]) else None

    def _probed(self, member: Member, point: Point, seconds: float) -> None:
        limit = member.limit
        self._prober = None
        if self._is_gain(point):
            self.phase = Phase.SEARCH
            self._tried = set()
            self._move_to(limit, point)
            self._step = max(1, self.best // 4)
        elif self.reference is not None:
            self._probes.failed(1 if limit > self.best else -1, self.reference.rate, point.rate, seconds)

    # --- who tries what --------------------------------------------------------------------------------------------

    def _assign(self, first: Member | None) -> None:
        """Give each limit that is worth a trial to one member, ``first`` before others; the rest holds the best."""
        wanted = self._wanted()
        if self.phase is Phase.HOLD:
            for member in self.members:
                if member is not self._prober:
                    self._give(member, self.best)
            return
        free = []
        held: dict[int, Member] = {}
        for member in self.members:
            if not member.proven:
                begins = self.phase is Phase.RAMP and member not in self._begun
                self._give(member, self._base if begins else self.best)
            elif member.limit in wanted and member.limit not in held and member is not first:
                held[member.limit] = member
            else:
                free.append(member)
        free.sort(key=lambda member: (member is not first, -member.judged))
        patience = _PATIENCE * len(self.members)
        open_ = [limit for limit in wanted if limit not in held or self._judgements - held[limit].given > patience]
        for member, limit in zip(free, open_, strict=False):
            self._give(member, limit)
        for member in free[len(open_) :]:
            self._give(member, self.best)

    def _wanted(self) -> list[int]:
        """Limits that are worth a trial now, the most promising first; when there are none left, it is at rest."""
        if self.phase is Phase.RAMP and self._begun:
            rungs = self._rungs()
            if rungs:
                return rungs
            step = (self._ceiling or self.best + 1) - self.best
            self._begin_search(step, {limit for limit in self.points if limit != self.best})
        if self.phase is Phase.SEARCH:
            steps = self._steps()
            if not steps:
                self._settle()
            return steps
        return []

    def _rungs(self) -> list[int]:
        """While it climbs: the next limits above the best, but none far above."""
        highest = max(self.start, self.best + 1, int(self.best * _AHEAD))
        error = LEAST_ERROR if self.reference is None else self.reference.error
        rungs: list[int] = []
        limit = self.best
        while limit < self.most:
            limit = rung_above(limit, self.start, self.most, error)
            if self._ceiling is not None and limit >= self._ceiling:
                break
            if rungs and limit > highest:
                break
            rungs.append(limit)
        return rungs[::-1] if rungs and rungs[-1] <= self.start else rungs

    def _steps(self) -> list[int]:
        """Around the best: as far as the step, half as far, and so on, where nothing nearer was worse."""
        limits: list[int] = []
        step = self._step
        while step >= 1:
            for direction in (self._direction, -self._direction):
                limit = self._within(self.best + direction * step)
                if limit != self.best and limit not in self._tried and limit not in limits:
                    low, high = sorted((self.best, limit))
                    if not any(low < tried < high for tried in self._tried):
                        limits.append(limit)
            step //= 2
        return limits

    def _begin_search(self, step: int, tried: set[int]) -> None:
        self.phase = Phase.SEARCH
        self._step = max(1, step)
        self._tried = tried
        self._direction = 1
        self._prober = None

    def _settle(self) -> None:
        self.phase = Phase.HOLD
        self.settled += 1
        self._prober = None
        if self.reference is not None:
            self.reference.error = max(self.reference.error, PASSING)
        self._probes.begin()

    def _give(self, member: Member, limit: int) -> None:
        if member.limit != limit:
            member.limit = limit
            member.given = self._judgements
            self.moved[member] = None

    def _within(self, limit: int) -> int:
        return max(self.least, min(self.most, limit))
