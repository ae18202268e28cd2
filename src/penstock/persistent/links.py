"""References to persistent objects, and how they become the objects again, in the program and in tasks.

Unpickling a reference gives a ghost; when all arguments of a call are there, all ghosts are read together and become
what they are. A task has its objects for itself (``current.loaded``): an id that occurs twice is one object there.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.data.slots import current
from penstock.errors import StorageError
from penstock.persistent.forms import class_of, state_of
from penstock.persistent.manifest import Entry, decode_entry, encode_entry
from penstock.persistent.stores import Fetched, Wanted
from penstock.persistent.where import current_store, is_saved, settings

if TYPE_CHECKING:
    from penstock.persistent.objects import PersistentObject

__all__ = [
    "Link",
    "Unfilled",
    "author",
    "fill_one",
    "filled",
    "ghost",
    "live",
    "read",
    "reduced",
    "reference",
    "resolve",
    "scope",
    "together",
]

#: blocks of an object that a reference to it may list
_FEW = 64


class Link:
    """What an object knows of itself in the store."""

    __slots__ = (
        *("entry", "filled", "generation", "identifier", "made", "modified", "refers_to", "token", "undeclared"),
        *("updated", "writable"),
    )

    def __init__(self, identifier: str | None = None, token: str | None = None, generation: int = 0) -> None:
        #: None: it is not stored
        self.identifier = identifier
        #: the state that it has, or is to have
        self.token = token
        self.generation = generation
        self.entry: Entry | None = None
        #: it differs from the store
        self.modified = False
        #: its state is that of the token
        self.filled = identifier is None
        #: whether its arrays may be changed
        self.writable = True
        #: the task that has it declares to update it
        self.updated = False
        #: the task that has it has stored it first
        self.made = False
        #: ids of the objects inside, as it was stored or read last
        self.refers_to: tuple[str, ...] = ()
        #: attributes that it was stored with and its class no longer declares: they stay with it
        self.undeclared: frozenset[str] = frozenset()


class _Inside(threading.local):
    """The object whose state this thread is unpacking."""

    #: ids of the objects that it refers to; None outside
    found: list[str] | None = None


_inside = _Inside()
#: objects of the program, by id
_live: weakref.WeakValueDictionary[str, PersistentObject] = weakref.WeakValueDictionary()


def scope() -> Any:
    """The objects that this thread's task has, or those of the program."""
    return _live if current.loaded is None else current.loaded


def live(identifier: str) -> PersistentObject | None:
    """The object that the program has of an id."""
    return _live.get(identifier)


def together(obj: Any, *_: Any) -> Any:
    """An argument; what else a call reads for its sake is met before it is filled, and so is what it refers to."""
    return obj


def author() -> str:
    """Names the task that this thread carries out, the same in each of its attempts; empty in the program."""
    if current.loaded is None or settings.attempt is None:
        return ""
    run, task = settings.attempt
    name = f"{socket.gethostname()} {run} {task}"
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


# --- references -------------------------------------------------------------------------------------------------------


def reduced(obj: PersistentObject) -> tuple[Any, ...]:
    """How an object that is stored is pickled."""
    if current.referring is not None:
        return current.referring(obj)
    return reference(obj)


def reference(obj: PersistentObject) -> tuple[Any, ...]:
    """An object by its id and its state."""
    link = obj._link
    assert link.identifier is not None
    token = link.token
    if current.loaded is None:
        desk = settings.desk()
        if desk is not None and desk.is_with_tasks(link.identifier):
            desk.settle(link.identifier, alone=False)
            token = None  # what the tasks made of it, which the program has not looked at
        elif link.modified:
            obj.update_persistent()
            token = link.token
    elif link.modified and current.referred is None:
        token = f"{link.token} modified"  # whoever only compares sees the difference, and nothing is stored
    elif link.modified or link.updated:
        _hand_over(obj)
        token = link.token
    if current.referred is not None:
        current.referred.append(f"{link.identifier}\n{token}")
    entry = link.entry
    if entry is None or entry.token != token or not 0 < len(entry.blocks) <= _FEW:
        return resolve, (link.identifier, token, link.generation)
    return resolve, (link.identifier, token, link.generation, encode_entry(entry))


def _hand_over(obj: PersistentObject) -> None:
    """See that a task which refers to an object that it changes refers to what is in the store."""
    link = obj._link
    if current.staged is None and not link.made:
        raise StorageError(
            f"{obj!r} was handed over by a task that changes it, before the end of the task: what becomes of it is "
            f"not known until then. Return it, or hand over a copy that is stored: copy.copy(…).make_persistent()"
        )
    if link.modified:
        obj.update_persistent()


def resolve(identifier: str, token: str | None, generation: int, blocks: bytes | None = None) -> PersistentObject:
    """The object of a reference; it may have to be read yet. ``blocks`` say where, which saves asking."""
    if _inside.found is not None:
        _inside.found.append(identifier)
        token, generation, blocks = None, 0, None  # it may have been stored again since: the newest state is meant
    known = scope()
    obj: PersistentObject | None = known.get(identifier)
    if obj is None:
        obj = ghost()
        known[identifier] = obj
    link = obj._link
    if link.identifier is None or generation > link.generation:
        link.writable = current.writable or (link.identifier is not None and link.writable)
        link.identifier, link.token, link.generation, link.filled = identifier, token, generation, False
        link.entry = None if blocks is None else decode_entry(blocks)
        link.updated = current.updating
    elif current.writable and not link.writable:
        link.writable, link.filled = True, False  # the task has it twice, and changes it by one of the two
        link.updated = current.updating
    if not link.filled:
        if current.unfilled is None:
            current.unfilled = Unfilled()
        current.unfilled.objects[id(obj)] = obj
    return obj


def ghost() -> PersistentObject:
    from penstock.persistent.objects import Ghost  # which needs this module

    return Ghost()


class Unfilled:
    """Objects that were met as references."""

    def __init__(self) -> None:
        self.objects: dict[int, PersistentObject] = {}

    def fill(self) -> None:
        """Read all of them, those inside of them included: one round for each level."""
        unfilled: Unfilled | None = self
        while unfilled is not None:
            current.unfilled = None
            waiting = [obj for obj in unfilled.objects.values() if not obj._link.filled]
            if waiting:
                _read(waiting)
            unfilled = current.unfilled


def _read(objects: Sequence[PersistentObject]) -> None:
    links = [obj._link for obj in objects]
    by = author() if any(link.updated for link in links) else ""
    wanted = [
        Wanted(link.identifier or "", None, link.writable, author=by)
        if link.updated
        else Wanted(link.identifier or "", link.token, link.writable, link.entry if link.token is not None else None)
        for link in links
    ]
    for obj, fetched in zip(objects, current_store().get(wanted), strict=True):
        _become(obj, fetched)


def _become(obj: PersistentObject, fetched: Fetched) -> None:
    """Give an object the state that was read."""
    link = obj._link
    head, stream, *buffers = fetched.parts
    kind = class_of(head, link.identifier or "")
    outer, current.writable = current.writable, link.writable
    outside, _inside.found = _inside.found, []
    try:
        state = state_of(stream, buffers, link.identifier or "", kind)
        link.refers_to = tuple(dict.fromkeys(_inside.found))
    finally:
        current.writable, _inside.found = outer, outside
    link.filled, link.modified, link.entry = True, False, fetched.entry
    link.token, link.generation = fetched.entry.token, max(link.generation, fetched.entry.generation)
    is_saved(obj)
    object.__setattr__(obj, "__class__", kind)
    link.undeclared = frozenset(state) - kind.fields.keys() if kind.fields and isinstance(state, dict) else frozenset()
    content = obj.__dict__
    content.clear()
    restore = getattr(kind, "__setstate__", None)
    if restore is not None:
        restore(obj, state)
        link.modified = False
    else:
        content.update(state)


def read(objects: Sequence[PersistentObject]) -> None:
    outer, current.unfilled = current.unfilled, None
    try:
        if objects:
            _read(objects)
        if current.unfilled is not None:
            current.unfilled.fill()
    finally:
        current.unfilled = outer


def fill_one(obj: PersistentObject) -> None:
    """Read an object that somebody touches before all are read."""
    read([obj])


def filled(obj: PersistentObject) -> None:
    """See that an object has been read."""
    if not obj._link.filled:
        read([obj])
