"""Persistent objects on their way between memory and the store, in the program and in tasks.

Unpickling a reference gives a ghost; when all arguments of a call are there, all ghosts are read together and become
what they are. A task has its objects for itself (``current.loaded``): an id that occurs twice is one object there.
After the body, ``Outgoing`` stages what the task changed, and makes it current when everything else has succeeded.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from penstock.data.slots import current
from penstock.errors import ArgumentChanged, StorageError, WrongClass
from penstock.persistent.forms import class_of, form, state_of
from penstock.persistent.manifest import Entry
from penstock.persistent.stores import Fetched, Staged, Wanted
from penstock.persistent.where import current_store, is_stored, settings, unsaved

if TYPE_CHECKING:
    from penstock.persistent.objects import PersistentObject

__all__ = ["Link", "Outgoing", "Unfilled", "flush", "reference", "resolve"]

P = TypeVar("P", bound="PersistentObject")


class Link:
    """What an object knows of itself in the store."""

    __slots__ = ("entry", "filled", "generation", "identifier", "modified", "token", "writable")

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


#: objects of the program, by id
_live: weakref.WeakValueDictionary[str, PersistentObject] = weakref.WeakValueDictionary()


def _scope() -> Any:
    """The objects that this thread's task has, or those of the program."""
    return _live if current.loaded is None else current.loaded


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
    desk = settings.desk() if current.loaded is None else None
    if desk is not None:
        desk.settle(link.identifier, alone=False)
    if link.modified:
        save([obj])
    current.referred = [*(current.referred or ()), f"{link.identifier}\n{link.token}"]
    return resolve, (link.identifier, link.token, link.generation)


def resolve(identifier: str, token: str | None, generation: int) -> PersistentObject:
    """The object of a reference; it may have to be read yet."""
    scope = _scope()
    obj: PersistentObject | None = scope.get(identifier)
    if obj is None:
        obj = _ghost()
        scope[identifier] = obj
    link = obj._link
    if link.identifier is None or generation > link.generation:
        link.writable = current.writable or (link.identifier is not None and link.writable)
        link.identifier, link.token, link.generation, link.filled = identifier, token, generation, False
    elif current.writable and not link.writable:
        link.writable, link.filled = True, False  # the task has it twice, and changes it by one of the two
    if not link.filled:
        if current.unfilled is None:
            current.unfilled = Unfilled()
        current.unfilled.objects[id(obj)] = obj
    return obj


def _ghost() -> PersistentObject:
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
    wanted = [Wanted(link.identifier, link.token, link.writable) for link in links if link.identifier is not None]
    for obj, fetched in zip(objects, current_store().get(wanted), strict=True):
        _become(obj, fetched)


def _become(obj: PersistentObject, fetched: Fetched) -> None:
    """Give an object the state that was read."""
    link = obj._link
    head, stream, *buffers = fetched.parts
    kind = class_of(head, link.identifier or "")
    outer, current.writable = current.writable, link.writable
    try:
        state = state_of(stream, buffers, link.identifier or "", kind)
    finally:
        current.writable = outer
    link.filled, link.modified, link.entry = True, False, fetched.entry
    link.token, link.generation = fetched.entry.token, max(link.generation, fetched.entry.generation)
    unsaved.pop(id(obj), None)
    object.__setattr__(obj, "__class__", kind)
    content = obj.__dict__
    content.clear()
    restore = getattr(kind, "__setstate__", None)
    if restore is not None:
        restore(obj, state)
        link.modified = False
    else:
        content.update(state)


def fill_one(obj: PersistentObject) -> None:
    """Read an object that somebody touches before all are read."""
    _read([obj])


def filled(obj: PersistentObject) -> None:
    """See that an object has been read."""
    if not obj._link.filled:
        _read([obj])


# --- what users call --------------------------------------------------------------------------------------------------


def store_new(obj: PersistentObject, identifier: str | None, host: str | None) -> None:
    """Store an object for the first time."""
    store = current_store()
    fresh = identifier is None
    if identifier is None:
        identifier = uuid4().hex if host is None else store.place(host)
    else:
        _settle(identifier, alone=False)
    parts, kind = form(obj)
    staged = store.stage(identifier, parts, kind, fresh=fresh)
    [entry] = store.switch([staged], keep=not fresh and _is_read(identifier, None))
    _now_is(obj, identifier, entry)
    _scope()[identifier] = obj


def save(objects: Iterable[PersistentObject]) -> None:
    """Write objects as they are, all of them or none."""
    objects = list(objects)
    for obj in objects:
        if _is_with_tasks(obj):
            raise StorageError(
                f"{obj!r} is with tasks that update it, and what they make of it would be lost; call wait_on() first"
            )
    store = current_store()
    staged: list[Staged] = []
    try:
        for obj in objects:
            filled(obj)
            parts, kind = form(obj)
            staged.append(store.stage(obj._link.identifier or "", parts, kind))
    except BaseException:
        store.withdraw(staged)
        raise
    read = [_is_read(obj._link.identifier or "", obj._link.token) for obj in objects]
    entries = store.switch(staged, keep=any(read))
    for obj, one, entry in zip(objects, staged, entries, strict=True):
        before = obj._link.token
        _now_is(obj, one.identifier, entry)
        if before is not None and any(read) and not _is_read(one.identifier, before):
            store.drop(one.identifier, before)  # its last reader was done meanwhile


def _now_is(obj: PersistentObject, identifier: str, entry: Entry) -> None:
    link = obj._link
    link.identifier, link.entry, link.token = identifier, entry, entry.token
    link.generation = max(link.generation + 1, entry.generation)
    link.modified, link.filled = False, True
    unsaved.pop(id(obj), None)
    desk = settings.desk() if current.loaded is None else None
    if desk is not None:
        desk.replaced(identifier)


def up_to_date(obj: PersistentObject) -> None:
    """See that the store has an object as it is."""
    if obj._link.identifier is None:
        raise StorageError(f"{obj!r} is not stored; call make_persistent() first")
    if obj._link.modified:
        save([obj])


def new_version(obj: P, *, preserve: bool, host: str | None) -> P:
    """A copy in the store, and the object that it is."""
    up_to_date(obj)
    assert obj._link.identifier is not None
    _settle(obj._link.identifier, alone=not preserve)
    copy = current_store().new_version(obj._link.identifier, preserve=preserve, host=host)
    if not preserve:
        _forget(obj)
    twin: P = fetch([copy], type(obj))[0]
    return twin


def remove(obj: PersistentObject) -> None:
    """Remove an object from the store."""
    identifier = obj._link.identifier
    assert identifier is not None
    filled(obj)
    _settle(identifier, alone=True)
    current_store().delete(identifier)
    _forget(obj)


def _forget(obj: PersistentObject) -> None:
    _scope().pop(obj._link.identifier, None)
    desk = settings.desk() if current.loaded is None else None
    if desk is not None:
        desk.replaced(obj._link.identifier or "")
    object.__setattr__(obj, "_link", Link())
    unsaved.pop(id(obj), None)


def fetch(identifiers: Sequence[str], expected: type[PersistentObject]) -> list[Any]:
    """The objects of ids as the store has them now; what this process has of them is brought up to date."""
    scope = _scope()
    found: dict[str, PersistentObject] = {}
    for identifier in identifiers:
        if identifier in found:
            continue
        _settle(identifier, alone=False)
        obj = scope.get(identifier)
        if obj is None:
            obj = _ghost()
            obj._link.identifier, obj._link.filled = identifier, False
        elif current.loaded is None and not obj._link.modified:
            obj._link.token, obj._link.filled = None, False
        found[identifier] = obj
    waiting = [obj for obj in found.values() if not obj._link.filled]
    if waiting:
        outer, current.unfilled = current.unfilled, None
        try:
            _read(waiting)
            if current.unfilled is not None:
                current.unfilled.fill()
        finally:
            current.unfilled = outer
    for identifier, obj in found.items():
        if not isinstance(obj, expected):
            raise WrongClass(
                f"object {identifier!r} is a {type(obj).__qualname__}, not a {expected.__qualname__}; "
                f"PersistentObject.get_by_id() takes any class"
            )
        scope[identifier] = obj
    return [found[identifier] for identifier in identifiers]


def note_change(obj: PersistentObject) -> None:
    """An attribute was assigned to."""
    obj._link.modified = True
    if current.loaded is None:
        unsaved[id(obj)] = obj


def flush() -> None:
    """Write what the program has changed; what tasks update meanwhile is theirs until it waits for it."""
    objects = [obj for obj in list(unsaved.values()) if not _is_with_tasks(obj)]
    if objects:
        save(objects)


def _settle(identifier: str, *, alone: bool) -> None:
    """In the program: wait for tasks that write an object, or use it."""
    desk = settings.desk() if current.loaded is None else None
    if desk is not None:
        desk.settle(identifier, alone=alone)


def _is_with_tasks(obj: PersistentObject) -> bool:
    desk = settings.desk() if current.loaded is None else None
    return desk is not None and desk.is_with_tasks(obj._link.identifier or "")


def _is_read(identifier: str, token: str | None) -> bool:
    """Whether a state may be wanted once more; tasks cannot know, and take it that it is."""
    if current.loaded is not None:
        return True
    desk = settings.desk()
    return desk is not None and desk.is_read(identifier, token)


# --- after the body of a task -----------------------------------------------------------------------------------------


class Outgoing:
    """The objects that a task changed: written before its outputs are pickled, made current after that."""

    def __init__(self, function: str, updated: Iterable[Any], *, strict: bool) -> None:
        """``updated`` are objects declared INOUT: a change inside an array shows nowhere, so they always count."""
        declared = {id(obj): obj for obj in updated if is_stored(obj)}
        others = [obj for obj in (current.loaded or {}).values() if obj._link.modified and id(obj) not in declared]
        if strict and others:
            raise ArgumentChanged(
                f"task {function} changed {others[0]!r}, which it does not declare INOUT: tasks that read it at the "
                f"same time would see the change or not"
            )
        self._staged: list[Staged] = []
        self._objects = [*declared.values(), *others]
        if not self._objects:
            return
        store = current_store()
        try:
            for obj in self._objects:
                filled(obj)
                parts, kind = form(obj)
                self._staged.append(store.stage(obj._link.identifier or "", parts, kind))
        except BaseException:
            self.withdraw()
            raise
        for obj, staged in zip(self._objects, self._staged, strict=True):
            link = obj._link
            link.token, link.generation, link.modified = staged.entry.token, link.generation + 1, False

    def publish(self) -> None:
        """Everything else has succeeded: make the new states the current ones, all of them."""
        if self._staged:
            staged, self._staged = self._staged, []
            # The states before stay: a task that reads one may be under way, and an attempt may have to be repeated.
            current_store().switch(staged, keep=True)

    def withdraw(self) -> None:
        """The task failed: the store stays as it was."""
        if self._staged:
            current_store().withdraw(self._staged)
            self._staged = []
