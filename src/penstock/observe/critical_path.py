"""What determined the end of a run: the chain back from the attempt that ended last.

    program ──▶ waiting for a place ──▶ starting ──▶ running ──▶ waiting … ──▶ running ──▶ end

An attempt that waited for data leads to the one that made them, which may have gone on after it handed them over. One
that was ready at its call leads to the program, and from there to the task whose end or early output the program seems
to have waited for. The segments cover the time from the start of the run without gaps, so their lengths add up to it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from operator import itemgetter

from msgspec import Struct

from penstock.observe.history import Attempt, History
from penstock.observe.waiting import STARTING

__all__ = ["PROGRAM", "RUNNING", "WAITING", "Chain", "Segment", "critical_path"]

RUNNING = "running"
FETCHING = "fetching data"
WAITING = "waiting"
PROGRAM = "program"
#: the program is at work, not waiting, while it calls one task after the other faster than this share of the run
_PAUSE = 1e-3
_LEAST_PAUSE = 1e-3
_TIME = itemgetter(0)


class Segment(Struct, frozen=True, omit_defaults=True):
    """A part of the critical path."""

    #: running, fetching data, waiting, or program
    kind: str
    start: float
    end: float
    task: int = 0
    name: str = ""
    node: str = ""
    #: for waiting: what for, in seconds
    reasons: dict[str, float] = {}
    #: number of the attempt, 1 for the first of a task; 0 for the program
    attempt: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Chain(Struct, frozen=True):
    """A critical path, and where the attempts of its segments are in the history; -1 for the program."""

    segments: list[Segment]
    positions: list[int]

    def waits(self) -> set[int]:
        """Positions of the attempts that waited, whose reasons are wanted."""
        return {at for segment, at in zip(self.segments, self.positions, strict=True) if segment.kind == WAITING}

    def with_reasons(self, reasons: dict[int, dict[str, float]]) -> list[Segment]:
        """The segments, their waits with what is known of attempts by position."""
        return [
            _with_reasons(segment, reasons.get(position, {}))
            for segment, position in zip(self.segments, self.positions, strict=True)
        ]


def critical_path(history: History) -> Chain:
    """The segments from the start of the run to the end of its last attempt; reasons of waits are not known yet."""
    attempts = history.attempts
    index = max(range(len(attempts)), key=lambda position: attempts[position].ended, default=-1)
    program = _Program(history)
    until = history.makespan
    path: list[Segment] = []
    positions: list[int] = []
    while index >= 0:
        attempt = attempts[index]
        path += _of_attempt(attempt, until)
        positions += [index] * (len(path) - len(positions))
        if attempt.after >= 0:
            index, until = attempt.after, attempt.ready
            continue
        index, until = program.waited_for(attempt)
        if attempt.ready > until:
            path.append(Segment(PROGRAM, until, attempt.ready))
            positions.append(-1)
    path.reverse()
    positions.reverse()
    return Chain(path, positions)


def _with_reasons(segment: Segment, reasons: dict[str, float]) -> Segment:
    if segment.kind != WAITING or segment.reasons:
        return segment
    return Segment(
        WAITING, segment.start, segment.end, segment.task, segment.name, segment.node, reasons, segment.attempt
    )


def _of_attempt(attempt: Attempt, until: float) -> list[Segment]:
    """The segments of one attempt up to a time, the last one first."""
    about, number = (attempt.task, attempt.group.name, attempt.node), attempt.number
    ended = min(attempt.ended, until)
    begun = min(attempt.begun, ended)
    fetched = min(ended, begun + attempt.fetching)
    segments = [
        Segment(RUNNING, fetched, ended, *about, attempt=number),
        Segment(FETCHING, begun, fetched, *about, attempt=number),
        Segment(WAITING, attempt.taken, begun, *about, {STARTING: begun - attempt.taken}, number),
        Segment(WAITING, attempt.ready, attempt.taken, *about, attempt=number),
    ]
    return [segment for segment in segments if segment.end > segment.start]


class _Program:
    """When the main program went on after a wait, and what it seems to have waited for."""

    def __init__(self, history: History) -> None:
        calls = history.calls
        pause = max(_LEAST_PAUSE, history.makespan * _PAUSE)
        pauses = [(before, after) for before, after in itertools.pairwise(calls) if after - before > pause]
        # The log tells of waits; older ones do not, and a simulated program's show only as pauses between calls.
        self._waits = sorted(history.waits or pauses, key=lambda wait: wait[1])
        self._until = [until for _, until in self._waits]
        attempts = history.attempts
        ends = [(attempt.ended, position) for position, attempt in enumerate(attempts)]
        #: what may have ended a wait: when, and whose end or early output it was: its position, and that of its call
        self._moments = sorted((when, at, attempts[at].call) for when, at in (*ends, *history.releases))

    def waited_for(self, attempt: Attempt) -> tuple[int, float]:
        """The attempt whose end or early output let the program go on to this one's call, and when that was; or -1."""
        moments = self._moments
        for position in range(bisect_right(self._until, attempt.submitted) - 1, -1, -1):
            since, until = self._waits[position]
            at = bisect_right(moments, until, key=_TIME) - 1
            while at >= 0 and (when := moments[at][0]) > since:
                first = bisect_left(moments, when, key=_TIME)
                # What was called later cannot have let the program go on. Of several, the first is as good as any.
                for _, found, call in moments[first : at + 1]:
                    if call < attempt.call:
                        return found, when
                at = first - 1
        return -1, 0.0
