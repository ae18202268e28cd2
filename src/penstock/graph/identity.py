"""Which datum an object of the program is, in constant time.

Only objects that tasks write (or that the program shares) are data; everything else travels by value. They are found
by their address, which is theirs alone as long as they live, so every entry either keeps its object alive or goes
away with it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from penstock.model.data import VersionId

__all__ = ["Datum", "Identity"]

#: references to an object that only we hold: the entry's, the loop variable's and the argument's
_OURS = 3


class Datum:
    """An object of the program that tasks have written, or that is shared; its newest version is elsewhere."""

    __slots__ = ("_object", "_weak", "picture", "shared", "version")

    def __init__(self, obj: Any, version: VersionId, *, shared: bool) -> None:
        self._object = obj
        self._weak = False
        self.version = version
        #: the program promised not to change it, so its own object is as good as the version
        self.shared = shared
        #: strict mode: what the program's object looked like when tasks took it over
        self.picture: bytes | None = None

    def object(self) -> Any:
        """The object, or None if it is gone."""
        return self._object() if self._weak else self._object


class Identity:
    """All data of a run that are objects of the program."""

    def __init__(self, on_gone: Callable[[VersionId], None]) -> None:
        self._by_address: dict[int, Datum] = {}
        self._on_gone = on_gone
        self._sweep_at = 1000

    def __len__(self) -> int:
        return len(self._by_address)

    def find(self, obj: Any) -> Datum | None:
        """The datum that an object is, if it is one."""
        datum = self._by_address.get(id(obj))
        return datum if datum is not None and datum.object() is obj else None

    def track(self, obj: Any, version: VersionId, *, shared: bool = False) -> Datum:
        """Make an object a datum with this version."""
        address = id(obj)
        datum = Datum(obj, version, shared=shared)
        try:
            datum._object = weakref.ref(obj, lambda _: self._gone(address))
            datum._weak = True
        except TypeError:
            # Lists and dicts take no weak references: the entry keeps them, until a sweep finds them unused.
            pass
        self._by_address[address] = datum
        if len(self._by_address) >= self._sweep_at:
            self.sweep()
        return datum

    def forget(self, obj: Any) -> None:
        """An object is no longer a datum: the program has its newest version, or deleted it."""
        self._by_address.pop(id(obj), None)

    def sweep(self) -> None:
        """Forget objects that only this table keeps alive."""
        for address, datum in list(self._by_address.items()):
            if not datum._weak and sys.getrefcount(datum._object) < _OURS:
                self._gone(address)
        self._sweep_at = max(1000, 2 * len(self._by_address))

    def _gone(self, address: int) -> None:
        datum = self._by_address.pop(address, None)
        if datum is not None:
            self._on_gone(datum.version)
