"""What a worker says that cannot read what its attempt was given: which segments, so that they can be made again."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.data.segments import Access, SegmentLost, Segments
from penstock.model.data import Slot, Value
from penstock.model.tasks import Failure, FailureKind

__all__ = ["unreadable"]


def unreadable(error: SegmentLost, inputs: Iterable[Slot], segments: Segments) -> Failure:
    """The failure of an attempt that has met a lost segment.

    It looks for the others too: to have a thousand lost blocks made again one after the other would take long.
    """
    pieces = {piece.segment: piece for value in inputs if type(value) is Value for piece in value.pieces()}
    lost = {error.segment: error.why}
    for segment, piece in pieces.items():
        try:
            segments.map(segment, spilled=piece.spilled, access=Access.READ)
        except SegmentLost as another:
            lost[segment] = another.why
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    return Failure(FailureKind.LOST, error.why + more, lost=tuple(lost))
