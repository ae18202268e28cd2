"""Enums that travel by value: with the contents and attributes of their members, and with other names of these.

cloudpickle makes each member anew by its value, when the class has neither the ``__new__`` nor the ``__init__`` yet
that the program gave it. So a member that is more than its value would be something else in a worker. Here it brings
along what it was made of (an ``IntEnum``'s number, say), and what ``__init__`` gave it is part of the class's state.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, cast

__all__ = ["make_enum", "set_members", "with_attributes", "with_members"]

#: what the machinery of enums gives each member
_OF_ANY_MEMBER = frozenset({"_name_", "_value_", "__objclass__", "_sort_order_", "_inverted_"})


def with_members(arguments: Callable[[type], tuple[Any, ...]]) -> Callable[[type], tuple[Any, ...]]:
    """cloudpickle's function for what a class is made from: with all names, and with the contents of members."""

    @functools.wraps(arguments)
    def with_members(cls: type) -> tuple[Any, ...]:
        given, members, kind = arguments(cls), _members(cls), _data_type(cls)
        contents = None
        if "__new_member__" in vars(cls) or kind is not object:  # made otherwise than by its value
            of = getattr(kind, "__getnewargs__", None)
            contents = [() if of is None else of(member) for member in members.values()]
        return (*given[:3], {name: member.value for name, member in members.items()}, *given[4:], contents)

    return with_members


def with_attributes(state_of: Callable[[type], Any]) -> Callable[[type], Any]:
    """cloudpickle's function for the state of a class: with what each member has besides name and value."""

    @functools.wraps(state_of)
    def with_attributes(cls: type) -> Any:
        namespace, _ = state_of(cls)
        attributes = {}
        for name, member in _members(cls).items():
            namespace.pop(name, None)
            own = {key: value for key, value in vars(member).items() if key not in _OF_ANY_MEMBER}
            if own:
                attributes[name] = own
        return namespace, attributes

    return with_attributes


def make_enum(*args: Any) -> type:
    """An enum whose members have the values and contents that they have where it comes from."""
    from cloudpickle import cloudpickle

    bases, name, qualname, members, module, tracker, _, contents = args
    known: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    if known is not None:
        return known
    kind: Any = type(bases[-1])
    namespace = kind.__prepare__(name, bases)
    if contents is not None:
        namespace["__new__"] = _maker(members, contents)
    for member, value in members.items():
        namespace[member] = value
    made = kind.__new__(kind, name, bases, namespace)
    made.__module__, made.__qualname__ = module, qualname
    return cast(type, cloudpickle._lookup_class_or_track(tracker, made))


def set_members(cls: type, attributes: dict[str, dict[str, Any]]) -> None:
    """Give members what they have besides name and value."""
    members = _members(cls)
    for name, given in attributes.items():
        vars(members[name]).update(given)


def _members(cls: type) -> dict[str, enum.Enum]:
    """Of each name; several may be names of one."""
    return cast(type[enum.Enum], cls).__members__  # type: ignore[return-value]


def _data_type(cls: type) -> type:
    return getattr(cls, "_member_type_", object)


def _maker(members: dict[str, Any], contents: list[tuple[Any, ...]]) -> Callable[..., Any]:
    """What takes the part of ``__new__`` while members are made, in their order."""
    left = iter(zip(members.values(), contents, strict=True))

    def make_member(cls: type, *_: Any) -> Any:
        value, content = next(left)
        member = _data_type(cls).__new__(cls, *content)
        member._value_ = value
        return member

    return make_member
