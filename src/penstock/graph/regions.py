"""Regions of one piece of memory: which bytes a view of it covers, and in which order tasks may use them.

A view is a set of bytes in the memory of its owner. Two tasks whose regions share a byte run in program order if one of
them writes; all others may run at the same time, in place. What cannot be told exactly is taken for an overlap: that
costs parallelism and never a result.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, product
from math import prod
from typing import NamedTuple

from penstock.model.data import VersionId

__all__ = ["Accesses", "Owned", "Region", "covers", "overlap", "region", "runs", "size_of"]


class Region(NamedTuple):
    """Bytes at ``lo``, repeated: ``run`` of them in a row, each dimension so many times at so large a distance."""

    lo: int
    #: behind its last byte
    hi: int
    #: (count, stride), the largest stride first; each larger than what it repeats
    dims: tuple[tuple[int, int], ...]
    run: int


def region(offset: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Region:
    """The bytes of an array that begins at ``offset``."""
    if 0 in shape:
        return Region(offset, offset, (), 0)
    steps: dict[int, int] = {}
    for count, stride in zip(shape, strides, strict=True):
        if stride < 0:
            offset += stride * (count - 1)
            stride = -stride
        if count > 1 and stride:
            steps[stride] = steps.get(stride, 1) + count - 1
    run = itemsize
    dims: list[tuple[int, int]] = []
    for stride in sorted(steps):
        if stride <= run and not dims:
            run += stride * (steps[stride] - 1)
        else:
            dims.append((steps[stride], stride))
    dims.reverse()
    return Region(offset, offset + _span(dims, run), tuple(dims), run)


def _span(dims: Sequence[tuple[int, int]], run: int) -> int:
    return run + sum((count - 1) * stride for count, stride in dims)


def size_of(one: Region) -> int:
    """How many bytes a region has."""
    return one.run * prod(count for count, _ in one.dims)


def runs(one: Region) -> Iterator[tuple[int, int]]:
    """``(begin, end)`` of each row of bytes."""
    if one.run:
        for places in product(*(range(count) for count, _ in one.dims)):
            begin = one.lo + sum(place * stride for place, (_, stride) in zip(places, one.dims, strict=True))
            yield begin, begin + one.run


def overlap(one: Region, other: Region) -> bool:
    """Whether two regions may share a byte; exact for blocks, rows, columns, fields and slices with equal steps."""
    if one.lo >= other.hi or other.lo >= one.hi or not one.run or not other.run:
        return False
    if not one.dims and not other.dims:
        return True
    period = max(dims[0][1] for dims in (one.dims, other.dims) if dims)
    ours, theirs = _rows(one, period), _rows(other, period)
    if ours is None or theirs is None:
        return True
    return any(
        first < second + more and second < first + many and overlap(inner, within)
        for first, many, inner in ours
        for second, more, within in theirs
    )


def _rows(one: Region, period: int) -> list[tuple[int, int, Region]] | None:
    """A region as ``(first row, number of rows, what it is in each of them)``, if rows of this length allow that."""
    row, at = divmod(one.lo, period)
    if one.dims and one.dims[0][1] == period:
        rest, count = one.dims[1:], one.dims[0][0]
    elif one.dims or at + one.run <= period:
        rest, count = one.dims, 1
    else:
        return list(_cut(one, period))
    end = at + _span(rest, one.run)
    return [(row, count, Region(at, end, rest, one.run))] if end <= period else None


def _cut(one: Region, period: int) -> Iterator[tuple[int, int, Region]]:
    """Bytes in a row over several rows: the end of one, whole ones, and the beginning of another."""
    row, at = divmod(one.lo, period)
    last, end = divmod(one.hi, period)
    if at:
        yield row, 1, Region(at, period, (), period - at)
        row += 1
    if last > row:
        yield row, last - row, Region(0, period, (), period)
    if end:
        yield last, 1, Region(0, end, (), end)


def covers(one: Region, other: Region) -> bool:
    """Whether a region surely has every byte of another."""
    return one == other or (not one.dims and one.lo <= other.lo and other.hi <= one.hi)


def _without(row: tuple[int, int], taken: list[tuple[int, int]], ends: list[int]) -> Iterator[tuple[int, int]]:
    """What of a row is left; ``ends`` are the furthest ends up to each place in ``taken``."""
    lo, hi = row
    for at in range(bisect_left(ends, lo + 1), len(taken)):
        begin, end = taken[at]
        if begin >= hi:
            break
        if begin > lo:
            yield lo, begin
        lo = max(lo, end)
    if lo < hi:
        yield lo, hi


class Owned:
    """The bytes that tasks have written and that the program does not have yet."""

    def __init__(self) -> None:
        #: in a row: begins and ends, apart from each other and in order
        self._begins: list[int] = []
        self._ends: list[int] = []
        #: all others
        self._scattered: dict[Region, None] = {}

    def __bool__(self) -> bool:
        return bool(self._begins or self._scattered)

    def add(self, one: Region) -> None:
        """Tasks write it."""
        if one.dims:
            if not self.has(one):
                self._scattered[one] = None
        elif one.run:
            first, last = bisect_left(self._ends, one.lo), bisect_left(self._begins, one.hi + 1)
            lo = min([one.lo, *self._begins[first:last]])
            hi = max([one.hi, *self._ends[first:last]])
            self._begins[first:last], self._ends[first:last] = [lo], [hi]

    def has(self, one: Region) -> bool:
        """Whether all of a region surely is among them."""
        at = bisect_left(self._ends, one.hi)
        inside = at < len(self._begins) and self._begins[at] <= one.lo
        return inside or not one.run or any(covers(other, one) for other in self._scattered)

    def meeting(self, one: Region) -> list[Region]:
        """The regions among them that share bytes with one; of what lies in a row, no more than is shared."""
        if not one.run:
            return []
        found = [other for other in self._scattered if overlap(other, one)]
        for at in range(bisect_left(self._ends, one.lo + 1), len(self._begins)):
            if self._begins[at] >= one.hi:
                break
            lo, hi = max(one.lo, self._begins[at]), min(one.hi, self._ends[at])
            shared = Region(lo, hi, (), hi - lo)
            if overlap(shared, one):
                found.append(shared)
        return found

    def lacking(self, one: Region) -> list[Region]:
        """What of a region is not among them."""
        if self.has(one):
            return []
        met = self.meeting(one)
        if not met:
            return [one]
        taken = sorted(row for each in met for row in runs(each))
        ends = [end for _, end in accumulate(taken, lambda before, row: (row[0], max(before[1], row[1])))]
        return [Region(lo, hi, (), hi - lo) for row in runs(one) for lo, hi in _without(row, taken, ends)]

    def all(self) -> list[Region]:
        """Every region."""
        pairs = zip(self._begins, self._ends, strict=True)
        return [*self._scattered, *(Region(lo, hi, (), hi - lo) for lo, hi in pairs)]

    def remove(self, gone: Iterable[Region]) -> None:
        """The program has these, which ``meeting`` or ``all`` gave."""
        for one in gone:
            if one.dims:
                self._scattered.pop(one, None)
                continue
            at = bisect_left(self._ends, one.hi)
            lo, hi = self._begins[at], self._ends[at]
            left = [(begin, end) for begin, end in ((lo, one.lo), (one.hi, hi)) if begin < end]
            self._begins[at : at + 1] = [begin for begin, _ in left]
            self._ends[at : at + 1] = [end for _, end in left]


def _left(one: Region, written: Region) -> list[Region] | None:
    """What of a region others still have to wait for, once a task that waits for it too writes there; None: all."""
    if covers(written, one):
        return []
    if one.dims or written.dims:
        return None
    ends = ((one.lo, min(one.hi, written.lo)), (max(one.lo, written.hi), one.hi))
    return [Region(lo, hi, (), hi - lo) for lo, hi in ends if lo < hi]


class _Access(NamedTuple):
    lo: int
    serial: int
    region: Region
    #: exists when the task is over
    token: VersionId
    writes: bool


class Accesses:
    """The tasks that use one piece of memory, in program order."""

    def __init__(self) -> None:
        self._accesses: list[_Access] = []
        #: how many of them each task has
        self._counts: Counter[VersionId] = Counter()
        self._serial = 0
        #: bytes from the first to the last of the longest
        self._longest = 0
        self._swept = 64

    def __len__(self) -> int:
        return len(self._accesses)

    def tokens(self) -> Iterable[VersionId]:
        """Those of all tasks that are known here."""
        return self._counts

    def before(self, one: Region, *, writes: bool) -> list[VersionId]:
        """What a task has to wait for that uses a region: the others that write there; if it writes, all others."""
        return [access.token for access in self._meeting(one) if writes or access.writes]

    def add(self, one: Region, token: VersionId, *, writes: bool) -> list[VersionId]:
        """A task uses a region from now on; gives the tokens of those that nobody needs to wait for any more.

        These are the tasks that the new one waits for, where it writes all that they use.
        """
        gone: list[_Access] = []
        if writes:
            for access in list(self._meeting(one)):
                left = _left(access.region, one)
                if left is not None and access.token != token:
                    del self._accesses[bisect_left(self._accesses, access)]
                    gone.append(access)
                    for region in left:
                        self._insert(region, access.token, access.writes)
        self._longest = max(self._longest, one.hi - one.lo)
        self._insert(one, token, writes)
        return self._uncounted(gone)

    def _insert(self, one: Region, token: VersionId, writes: bool) -> None:
        self._serial += 1
        self._counts[token] += 1
        insort(self._accesses, _Access(one.lo, self._serial, one, token, writes))

    def sweep(self, is_over: Callable[[VersionId], bool]) -> list[VersionId]:
        """Forget those that are over, if it is time to look."""
        if len(self._accesses) < self._swept:
            return []
        gone = self.forget(is_over)
        self._swept = max(64, 2 * len(self._accesses))
        return gone

    def forget(self, is_over: Callable[[VersionId], bool]) -> list[VersionId]:
        """Forget those that are over; gives their tokens."""
        over = {token for token in self._counts if is_over(token)}
        gone = [access for access in self._accesses if access.token in over]
        self._accesses = [access for access in self._accesses if access.token not in over]
        self._longest = max((access.region.hi - access.lo for access in self._accesses), default=0)
        return self._uncounted(gone)

    def _uncounted(self, gone: list[_Access]) -> list[VersionId]:
        tokens = []
        for access in gone:
            self._counts[access.token] -= 1
            if not self._counts[access.token]:
                del self._counts[access.token]
                tokens.append(access.token)
        return tokens

    def _meeting(self, one: Region) -> Iterator[_Access]:
        for at in range(bisect_left(self._accesses, (one.lo - self._longest,)), len(self._accesses)):
            access = self._accesses[at]
            if access.lo >= one.hi:
                return
            if overlap(access.region, one):
                yield access
