"""What happens to persistent objects: stored, saved, read by their ids, removed; and what a task changed, when it ends.

After the body of a task, ``Outgoing`` stages what the task changed, and makes it current when everything else has
succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from penstock.data.slots import current
from penstock.errors import ArgumentChanged, SerializationError, StorageError, StoreFull, StoreUnreachable, WrongClass
from penstock.persistent.forms import form
from penstock.persistent.links import Link, author, filled, ghost, read, scope
from penstock.persistent.manifest import Entry
from penstock.persistent.stores import Staged
from penstock.persistent.where import current_store, is_saved, is_stored, settings, unsavable, unsaved

if TYPE_CHECKING:
    from penstock.persistent.objects import PersistentObject

__all__ = [
    "Outgoing",
    "fetch",
    "flush",
    "new_version",
    "note_change",
    "remove",
    "save",
    "store_new",
    "up_to_date",
]

P = TypeVar("P", bound="PersistentObject")


# --- what users call --------------------------------------------------------------------------------------------------


def store_new(obj: PersistentObject, identifier: str | None, host: str | None) -> None:
    """Store an object for the first time."""
    _bring_up_to_date(obj)
    store = current_store()
    fresh = identifier is None
    if identifier is None:
        identifier = uuid4().hex if host is None else store.place(host)
    else:
        _settle(identifier, alone=False)
    parts, kind = form(obj)
    staged = store.stage(identifier, parts, kind, fresh=fresh, author=author())
    [entry] = store.switch([staged], keep=not fresh and _is_read(identifier, None))
    _now_is(obj, identifier, entry)
    obj._link.made = current.loaded is not None
    scope()[identifier] = obj


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
            link = obj._link
            staged.append(store.stage(link.identifier or "", parts, kind, base=link.token, author=author()))
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
    is_saved(obj)
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
    if not preserve:
        _bring_up_to_date(obj)
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
    _bring_up_to_date(obj)
    current_store().delete(identifier)
    _forget(obj)


def _forget(obj: PersistentObject) -> None:
    scope().pop(obj._link.identifier, None)
    desk = settings.desk() if current.loaded is None else None
    if desk is not None:
        desk.replaced(obj._link.identifier or "")
    object.__setattr__(obj, "_link", Link())
    is_saved(obj)


def fetch(identifiers: Sequence[str], expected: type[PersistentObject]) -> list[Any]:
    """The objects of ids as the store has them now; what this process has of them is brought up to date."""
    known = scope()
    found: dict[str, PersistentObject] = {}
    new: list[str] = []
    for identifier in dict.fromkeys(identifiers):
        _settle(identifier, alone=False)
        obj = known.get(identifier)
        if obj is None:
            # Known before it is read: what it refers to may refer to it.
            obj = known[identifier] = ghost()
            obj._link.identifier, obj._link.filled = identifier, False
            new.append(identifier)
        elif current.loaded is None and not obj._link.modified:
            obj._link.token, obj._link.filled = None, False
        found[identifier] = obj
    try:
        read([obj for obj in found.values() if not obj._link.filled])
        desk = settings.desk() if current.loaded is None else None
        for identifier, obj in found.items() if desk is not None else ():
            if not obj._link.modified:
                desk.seen(identifier, obj._link.token)  # type: ignore[union-attr]
        for identifier, obj in found.items():
            if not isinstance(obj, expected):
                raise WrongClass(
                    f"object {identifier!r} is a {type(obj).__qualname__}, not a {expected.__qualname__}; "
                    f"PersistentObject.get_by_id() takes any class"
                )
    except BaseException:
        for identifier in new:
            known.pop(identifier, None)
        raise
    return [found[identifier] for identifier in identifiers]


def note_change(obj: PersistentObject) -> None:
    """An attribute was assigned to."""
    obj._link.modified = True
    if current.loaded is None:
        unsavable.pop(id(obj), None)
        unsaved[id(obj)] = obj


def flush(*, every: bool) -> None:
    """Write what the program has changed; what tasks update meanwhile is theirs until it waits for it.

    Without ``every``, an object that cannot be written holds up nobody: who uses it is told.
    """
    waiting = {**unsaved, **unsavable} if every else dict(unsaved)
    objects = [obj for obj in waiting.values() if not _is_with_tasks(obj)]
    try:
        if objects:
            save(objects)
    except (StoreUnreachable, StoreFull):
        raise
    except (StorageError, SerializationError):
        if every:
            raise
        _save_those_that_can_be(objects)


def _save_those_that_can_be(objects: Iterable[PersistentObject]) -> None:
    for obj in objects:
        try:
            save([obj])
        except (StoreUnreachable, StoreFull):
            raise
        except (StorageError, SerializationError):
            unsavable[id(obj)] = unsaved.pop(id(obj))


def _settle(identifier: str, *, alone: bool) -> None:
    """In the program: wait for tasks that write an object, or use it."""
    desk = settings.desk() if current.loaded is None else None
    if desk is not None:
        desk.settle(identifier, alone=alone)


def _bring_up_to_date(obj: PersistentObject) -> None:
    """In the program: give an object what tasks made of it."""
    desk = settings.desk() if current.loaded is None else None
    if desk is not None:
        desk.bring_up_to_date(obj)


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
        given = [obj for obj in others if not obj._link.made]
        if strict and given:
            raise ArgumentChanged(
                f"task {function} changed {given[0]!r}, which it does not declare INOUT: tasks that read it at the "
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
                link = obj._link
                new = store.stage(link.identifier or "", parts, kind, base=link.token, author=author())
                self._staged.append(new)
        except BaseException:
            self.withdraw()
            raise
        for obj, staged in zip(self._objects, self._staged, strict=True):
            link = obj._link
            link.token, link.generation, link.modified = staged.entry.token, link.generation + 1, False
            link.entry = staged.entry

    def states(self) -> list[tuple[str, str]]:
        """The new states: ids and tokens."""
        return [(one.identifier, one.entry.token) for one in self._staged]

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
