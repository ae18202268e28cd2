"""Results that tasks have updated since the program asked for them: the same objects, of which their futures know less.

A program that does ``r = f.result()`` has the object that ``f`` stands for. If tasks then update ``r``, or something in
it, later uses of ``f`` mean what they made of it, as in a sequential program, and not what ``f``'s task returned.
While tasks have the object, ``Identity`` knows it. What ``wait_on`` gave back is noted here, by address and time: an
object that a future holds has its address for itself from when it was loaded, so what came back to that address later
is that object. Nothing is kept alive, and a future that was never asked for its value is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.data.reach import reaches

if TYPE_CHECKING:
    from penstock.runtime.futures import Future
    from penstock.runtime.runtime import Runtime

__all__ = ["OwnResults"]


class OwnResults:
    """What tasks have updated and the program has again."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        #: how often something was given back
        self.now = 0
        #: addresses of what was, and when that was last
        self._returned: dict[int, int] = {}

    def note(self, obj: Any) -> None:
        """The program has an object again that tasks have updated."""
        self.now += 1
        self._returned[id(obj)] = self.now

    def of(self, future: Future[Any]) -> Any:
        """The program's own object that a future stands for, if tasks have updated it or what is in it; else None."""
        runtime = self._runtime
        known = future.known
        if known is None or runtime.simulated:
            return None
        if self._returned.get(id(known), 0) > future.loaded_at or runtime.has_given(known):
            return known
        data = runtime.identity.by_address
        # Of what lies in it, addresses may have come back before it was loaded, as those of other objects. What is
        # given to the task then is the program's object all the same, pickled once more.
        returned = self._returned if future.loaded_at < self.now else {}
        return known if (data and reaches(known, data)) or (returned and reaches(known, returned)) else None
