"""An exception on its way to another process: itself, or made anew there, with the exceptions that led to it.

    worker ── pickled ──▶ Failure.exception ──▶ runtime/failures.py

Each travels in a pickle of its own, so that one that cannot arrive takes no other with it.
"""

from __future__ import annotations

import pickle
from typing import Any

from penstock.data.serializer import dump_stream

__all__ = ["pickled"]

#: exceptions that led to one another, or are in one another, that travel
_DEEPEST = 16


def pickled(error: BaseException, deepest: int = _DEEPEST) -> bytes | None:
    """The exception itself, if it survives the way to another process; else one of the same class, made anew."""
    data = None
    if isinstance(error, BaseExceptionGroup) and deepest:
        data = _survives(_Regrouped(error, deepest - 1))
    data = data or _survives(error) or _survives(_Rebuilt(error, deepest))
    if data is None or not deepest:
        return data
    cause, context = error.__cause__, None if error.__suppress_context__ else error.__context__
    led = [None if one is None else pickled(one, deepest - 1) for one in (cause, context)]
    return pickle.dumps(_Led(data, *led), 5) if any(led) else data


def _survives(obj: object) -> bytes | None:
    try:
        data, buffers = dump_stream(obj, "the exception")
        if buffers:
            return None
        pickle.loads(data)
    except BaseException:
        return None  # whatever a user's exception does when pickled, its text still travels
    return data


class _Rebuilt:
    """Pickles an exception whose constructor takes other arguments than it hands to its base."""

    def __init__(self, error: BaseException, deepest: int) -> None:
        self._error = error
        self._deepest = deepest

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        state = {name: value for name, value in vars(error).items() if _survives(value) is not None}
        if self._deepest:
            others = {name: value for name, value in vars(error).items() if name not in state}
            inner = {name: _Inner.of(value, self._deepest - 1) for name, value in others.items()}
            state.update({name: value for name, value in inner.items() if value is not None})
        args = tuple(part if _survives(part) is not None else repr(part) for part in error.args)
        return rebuild, (type(error), args, state)


class _Inner:
    """Pickles an exception that another one has as an attribute."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @classmethod
    def of(cls, value: object, deepest: int) -> _Inner | None:
        """None if it is no exception, or cannot travel."""
        data = pickled(value, deepest) if isinstance(value, BaseException) else None
        return None if data is None else cls(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._data,)


class _Regrouped:
    """Pickles a group of exceptions of which each can only travel in its own way."""

    def __init__(self, group: BaseExceptionGroup[Any], deepest: int) -> None:
        self._group = group
        self._deepest = deepest

    def __reduce__(self) -> tuple[Any, ...]:
        group = self._group
        if type(group).__reduce_ex__ is not object.__reduce_ex__ or type(group).__reduce__ != BaseException.__reduce__:
            raise pickle.PicklingError("it knows better what it consists of")
        members = tuple(pickled(member, self._deepest) for member in group.exceptions)
        if None in members:
            raise pickle.PicklingError("a group is all of its members")
        state = {name: value for name, value in vars(group).items() if _survives(value) is not None}
        return regroup, (type(group), group.message, members, state)


class _Led:
    """Pickles an exception together with its cause and its context."""

    def __init__(self, data: bytes, cause: bytes | None, context: bytes | None) -> None:
        self._parts = data, cause, context

    def __reduce__(self) -> tuple[Any, ...]:
        return led, self._parts


def rebuild(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """An exception of a class, without calling its constructor."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def regroup(
    cls: type[BaseExceptionGroup[Any]], message: str, members: tuple[bytes, ...], state: dict[str, Any]
) -> BaseException:
    """A group of exceptions of a class, without calling its constructor."""
    group: BaseException = BaseExceptionGroup.__new__(cls, message, [pickle.loads(member) for member in members])
    group.__dict__.update(state)
    return group


def led(data: bytes, cause: bytes | None, context: bytes | None) -> Any:
    """An exception with those that led to it, as far as their classes are known here."""
    error = pickle.loads(data)
    if cause is not None and (known := _loaded(cause)) is not None:
        error.__cause__ = known
    if context is not None:
        error.__context__ = _loaded(context)
    return error


def _loaded(data: bytes) -> BaseException | None:
    try:
        error = pickle.loads(data)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None
