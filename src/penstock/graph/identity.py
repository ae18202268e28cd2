"""Which datum an object of the program is, in constant time.

Only objects that tasks write (or that the program shares) are data; everything else travels by value. They are found
by their address, which is theirs alone as long as they live, so every entry either keeps its object alive or goes
away with it.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.model.data import VersionId

__all__ = ["Datum", "Identity"]

#: references to an object that only we hold: the entry's and the argument's
_OURS = 2
#: entries that are looked at for each one that is added: more than one, so that those nobody uses become fewer
_LOOKS = 2
#: and how many more may be looked at when the program waits anyway
_LATER = 2


class _Reference(weakref.ref[Any]):
    """A weak reference that knows where its object was: one method serves all, and not a closure each."""

    __slots__ = ("address",)
    address: int


class Datum:
    """An object of the program that tasks have written, or that is shared; its newest version is elsewhere."""

    __slots__ = ("_object", "_weak", "picture", "replaceable", "shared", "version")

    def __init__(self, obj: Any, version: VersionId, *, shared: bool) -> None:
        self._object = obj
        self._weak = False
        self.version = version
        #: the program promised not to change it, so its own object is as good as the version
        self.shared = shared
        #: strict mode: what the program's object looked like when tasks took it over
        self.picture: bytes | None = None
        #: tasks had it as an element of a collection, and may have put another object there
        self.replaceable = False

    def object(self) -> Any:
        """The object, or None if it is gone."""
        return self._object() if self._weak else self._object


class Identity:
    """All data of a run that are objects of the program."""

    def __init__(self, on_gone: Callable[[VersionId], None]) -> None:
        #: to be read only
        self.by_address: dict[int, Datum] = {}
        self._on_gone = on_gone
        self._on_end = self._ended
        #: entries that keep their objects alive, the one looked at longest ago first
        self._kept: deque[tuple[int, Datum]] = deque()
        #: looks saved up for when the program waits
        self._saved = 0

    def __len__(self) -> int:
        return len(self.by_address)

    def find(self, obj: Any) -> Datum | None:
        """The datum that an object is, if it is one."""
        datum = self.by_address.get(id(obj))
        return datum if datum is not None and datum.object() is obj else None

    def track(self, obj: Any, version: VersionId, *, shared: bool = False) -> Datum:
        """Make an object a datum with this version."""
        address = id(obj)
        datum = Datum(obj, version, shared=shared)
        try:
            datum._object = _Reference(obj, self._on_end)
            datum._object.address = address
            datum._weak = True
        except TypeError:
            # Lists and dicts take no weak references: the entry keeps them, until it is seen that nobody else does.
            self._kept.append((address, datum))
            self._saved += _LATER
        self.by_address[address] = datum
        self._look(_LOOKS)
        return datum

    def forget(self, obj: Any) -> None:
        """An object is no longer a datum: the program has its newest version, or deleted it."""
        datum = self.by_address.pop(id(obj), None)
        if datum is not None and not datum._weak:
            datum._object = None  # its entry is taken out when its turn comes
            self._look(_LOOKS)

    def look_around(self) -> None:
        """The program waits: forget what it has no use for, without spending more than each entry has earned."""
        looks = min(self._saved, len(self._kept))
        self._saved -= looks
        self._look(looks)

    def updated(self) -> list[Any]:
        """The objects that tasks have written and that the program still has."""
        self._look(len(self._kept))
        found = [datum.object() for datum in self.by_address.values() if not datum.shared]
        return [obj for obj in found if obj is not None]

    def _look(self, count: int) -> None:
        """Forget objects that only this table keeps alive; some of them at each call, so that no call waits for all."""
        for _ in range(min(count, len(self._kept))):
            address, datum = self._kept.popleft()
            if self.by_address.get(address) is not datum:
                continue
            if sys.getrefcount(datum._object) <= _OURS:
                self._gone(address)
            else:
                self._kept.append((address, datum))

    def _ended(self, reference: _Reference) -> None:
        self._gone(reference.address)

    def _gone(self, address: int) -> None:
        """The program has no use for an object any more."""
        datum = self.by_address.pop(address, None)
        if datum is not None:
            self._on_gone(datum.version)
