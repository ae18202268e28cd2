"""Arrays that a task builds in the store: returned, they are there already, and nothing is copied.

While the body runs, such an array is a shared mapping of a segment that nobody else knows. What the task hands over
before its end is copied, since the body may change it afterwards. When the body is over, outputs may refer to the
segments. Those that none refers to are removed; and who has kept an array has a copy of its own from then on, so that
nothing written to it reaches others, nor the other way round. A killed worker's segments go as all that it made.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from mmap import mmap
from typing import Any, NamedTuple

from penstock.data.adoption import address
from penstock.data.huge_pages import HUGE, detach, own
from penstock.data.segments import Segments
from penstock.data.slots import current
from penstock.model.data import SegmentId, Value

__all__ = ["Built", "empty_array"]


class _Memory(NamedTuple):
    segment: SegmentId
    address: int
    size: int
    #: of which the segment is a part
    mapping: mmap

    def view(self) -> memoryview:
        whole = memoryview(self.mapping)
        start = self.address - address(whole)
        return whole[start : start + self.size]

    def let_go(self) -> bool:
        """Unmap it; False if somebody still has a part of it."""
        try:
            self.mapping.close()
        except BufferError:
            return False
        return True


class Built:
    """What the task under way has built."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._memory: list[_Memory] = []
        #: segments that outputs refer to
        self._kept: list[SegmentId] = []

    def array(self, like: Any) -> Any:
        """An array like another, in the store; None where that is not possible."""
        import numpy

        self._remove_garbage()
        made = self._segments.build(like.nbytes)
        if made is None:
            return None
        segment, view = made
        self._memory.append(_Memory(segment, address(view), len(view), view.obj))  # type: ignore[arg-type]
        # frombuffer keeps the memory exported while any part of the array is there, ndarray(buffer=…) does not.
        return numpy.frombuffer(view, numpy.uint8).view(like.dtype).reshape(like.shape)

    def _remove_garbage(self) -> None:
        """Remove what the body had and dropped."""
        memory, self._memory = self._memory, []
        for one in memory:
            if one.let_go():
                self._segments.remove(one.segment)
            else:
                self._memory.append(one)

    def offer(self) -> None:
        """The body is over: outputs may refer to what it has built."""
        if current.mapped is not None:
            current.mapped += [(one.segment, False, one.view()) for one in self._memory]

    def finish(self, outputs: Iterable[object]) -> None:
        """Keep what outputs refer to, out of reach of this process; remove the rest."""
        current.mapped = None
        ends: dict[SegmentId, int] = {}
        for output in outputs:
            for piece in output.pieces() if type(output) is Value else ():
                ends[piece.segment] = max(ends.get(piece.segment, 0), piece.offset + piece.size)
        while self._memory:
            one = self._memory.pop()
            end = ends.get(one.segment)
            if end is None:
                self._abandon(one)
                continue
            self._kept.append(one.segment)
            if not one.let_go():
                self._detach(one)
                own(one.address, one.size)
            elif end < one.size:
                os.truncate(self._segments.path(one.segment, spilled=False), end)

    def _abandon(self, one: _Memory) -> None:
        if not one.let_go():
            with contextlib.suppress(OSError):  # nobody else will see it in any case
                self._detach(one)
        self._segments.remove(one.segment)

    def withdraw(self) -> None:
        """The attempt has failed: nothing that it built will be needed."""
        self.finish(())
        for segment in self._kept:
            self._segments.remove(segment)

    def leave_to_parent(self) -> None:
        """This process is a copy of the one that carries out the task: it has copies of the arrays, too."""
        for one in self._memory:
            self._detach(one)
        self._memory.clear()

    def _detach(self, one: _Memory) -> None:
        descriptor = os.open(self._segments.path(one.segment, spilled=False), os.O_RDONLY | os.O_CLOEXEC)
        try:
            detach(one.address, one.size, descriptor)
        finally:
            os.close(descriptor)


#: of the task that this process carries out
_latest: list[Built] = []


def _is_forked() -> None:
    for built in _latest:
        built.leave_to_parent()


os.register_at_fork(after_in_child=_is_forked)


def empty_array(shape: Any, dtype: Any) -> Any:
    """A new array: in the store, if a task in a worker asks for it and it is large."""
    import numpy

    plain = numpy.empty(shape, dtype)  # which has no pages yet, and tells what is wrong with shape or dtype
    if current.building is None or plain.nbytes < HUGE or plain.dtype.hasobject:
        return plain
    if current.built is None:
        current.built = Built(current.building)
        _latest[:] = [current.built]
    array = current.built.array(plain)
    return plain if array is None else array
