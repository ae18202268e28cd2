"""``PersistentObject``: the base class of objects that live in a store.

Once stored, an object travels as its id. Assigning to an attribute marks it as modified; it is written again before a
task, or anybody else in this run, could see the old state. Each process has one object for an id; a task has its own.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from penstock.errors import DefinitionError, StorageError
from penstock.persistent import context, links
from penstock.persistent.where import current_store, is_saved

__all__ = ["PersistentObject"]


class PersistentObject:
    """An object that can be stored under an id, and found again by it, in this run or another.

    A class may declare its fields, by annotations or as ``fields = {"name": type}``: then these are what is stored, and
    names that begin with an underscore are left out. Without a declaration all attributes are stored.
    """

    __slots__ = ("__dict__", "__weakref__", "_link")

    #: the declared fields; empty: all attributes are stored
    fields: ClassVar[Mapping[str, Any]] = {}
    _link: links.Link

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        object.__setattr__(self, "_link", links.Link())
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__basicsize__ != PersistentObject.__basicsize__ or cls.__itemsize__:
            raise DefinitionError(
                f"persistent class {cls.__qualname__} cannot have __slots__, nor a base that is not plain Python "
                f"(list, dict, Exception, …): make that an attribute"
            )
        if "fields" not in cls.__dict__:
            declared = {
                name: kind
                for name, kind in inspect.get_annotations(cls).items()
                if not name.startswith("_") and "ClassVar" not in str(kind)
            }
            cls.fields = {**cls.fields, **declared}

    # --- storing ------------------------------------------------------------------------------------------------

    def make_persistent(self, id: str | None = None, *, host: str | None = None) -> Self:
        """Store the object under an id, or a new one; returns when it is stored. Nothing happens if it is already.

        An object that was stored under the id is replaced. ``host`` asks for a place in the store.
        """
        if self._link.identifier is None:
            if id is not None and not _is_id(id):
                raise StorageError(f"make_persistent(id={id!r}): an id is a text that is not empty")
            context.store_new(self, id, host)
        elif id is not None and id != self._link.identifier:
            raise StorageError(
                f"{self!r} is stored already; it cannot be stored as {id!r} too. Use copy.copy() on it first."
            )
        return self

    def update_persistent(self) -> None:
        """Write the object as it is now. Needed only after a change that no attribute shows: ``p.array[0] = 1``."""
        if self._link.identifier is None:
            raise StorageError(f"{self!r} is not stored; call make_persistent() first")
        context.save([self])

    def delete_persistent(self) -> None:
        """Remove the object from the store, after tasks that use it; it stays in memory."""
        if self._link.identifier is not None:
            context.remove(self)

    def new_version(self, *, preserve: bool = True, host: str | None = None) -> Self:
        """A copy under a new id that remembers this one; without ``preserve``, this one is deleted from the store."""
        return context.new_version(self, preserve=preserve, host=host)

    def consolidate_version(self) -> None:
        """Delete the versions that this one was copied from, one from the other."""
        context.up_to_date(self)
        assert self._link.identifier is not None
        current_store().consolidate_version(self._link.identifier)

    def get_id(self) -> str | None:
        """Its id in the store; None if it is not stored."""
        return self._link.identifier

    @classmethod
    def get_by_id(cls, *ids: str) -> Any:
        """The object of an id, or a list of the objects of several ids, read together."""
        for identifier in ids:
            if not _is_id(identifier):
                raise StorageError(f"get_by_id({identifier!r}): an id is a text that is not empty")
        if not ids:
            raise StorageError("get_by_id() was given no id")
        found = context.fetch(ids, cls)
        return found[0] if len(ids) == 1 else found

    def locations(self) -> list[str]:
        """The hosts that hold it; empty if it is not stored."""
        link = self._link
        return [] if link.identifier is None else current_store().locations(link.identifier, link.entry)

    # --- modified or not ----------------------------------------------------------------------------------------

    def is_modified(self) -> bool:
        """Whether an attribute was assigned to since the object was stored or read."""
        return self._link.modified

    def mark_modified(self) -> None:
        """Have the object written again before anybody else sees it."""
        context.note_change(self)

    def mark_unmodified(self) -> None:
        """Take it that the store has the object as it is."""
        self._link.modified = False
        is_saved(self)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name[0] != "_" and self._link.identifier is not None:
            context.note_change(self)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        if name[0] != "_" and self._link.identifier is not None:
            context.note_change(self)

    # --- travelling ---------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._link.identifier is None:
            return super().__reduce_ex__(protocol)
        return links.reduced(self)

    def __copy__(self) -> Self:
        """A copy that is not stored."""
        links.filled(self)
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._link.undeclared = self._link.undeclared
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        links.filled(self)
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        twin._link.undeclared = self._link.undeclared
        return twin

    def __repr__(self) -> str:
        identifier = self._link.identifier
        return f"<{type(self).__name__} {'not stored' if identifier is None else repr(identifier)}>"

    # --- names of the storage interface of COMPSs -----------------------------------------------------------------

    makePersistent = make_persistent
    deletePersistent = delete_persistent
    updatePersistent = update_persistent
    getID = get_id
    getByID = get_by_id
    get_by_ID = get_by_id
    getLocations = locations
    pycompss_is_modified = is_modified
    pycompss_mark_as_unmodified = mark_unmodified
    pycompss_mark_as_modified = mark_modified

    @property
    def pycompss_psco_identifier(self) -> str | None:
        """Its id in the store; None if it is not stored."""
        return self._link.identifier


def _is_id(given: Any) -> bool:
    if not isinstance(given, str) or not given:
        return False
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


class Ghost(PersistentObject):
    """An object of which only the id is known so far; whoever touches it reads it."""

    def __getattribute__(self, name: str) -> Any:
        if name in _OF_GHOSTS:
            return object.__getattribute__(self, name)
        links.fill_one(self)
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        links.fill_one(self)
        setattr(self, name, value)

    def __hash__(self) -> int:
        links.fill_one(self)
        return hash(self)

    def __eq__(self, other: object) -> bool:
        links.fill_one(self)
        return bool(self == other)


_OF_GHOSTS = frozenset(
    {"_link", "__reduce_ex__", "__repr__", "get_id", "getID", "pycompss_psco_identifier", "__dict__"}
)
