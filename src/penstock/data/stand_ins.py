"""What stands for a value, as a future does, and is used as if it were that value: it refuses, and says what to do.

``OPERATIONS`` are the ways in which a program uses a value. They are refused by methods that are set on a class, not
written in it, so that type checkers go on to refuse them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from penstock.errors import NotAValue

__all__ = ["OPERATIONS", "Promised", "PromisedSequence", "refuse"]

_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
_UNARY = ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")

#: method → what the program does with the value that it needs
OPERATIONS: Mapping[str, str] = {
    **{f"__{form}{name}__": "used in arithmetic" for name in _BINARY.split() for form in ("", "r")},
    **{f"__{name}__": "used in arithmetic" for name in _UNARY},
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), "compared"),
    **dict.fromkeys(("__int__", "__float__", "__complex__"), "made a number"),
    "__index__": "used as an index",
    "__bytes__": "made bytes",
    "__len__": "asked for its length",
    **dict.fromkeys(("__iter__", "__reversed__"), "iterated over"),
    "__contains__": "searched",
    "__getitem__": "indexed",
    **dict.fromkeys(("__setitem__", "__delitem__"), "changed"),
    "__fspath__": "used as a path",
    **dict.fromkeys(("__enter__", "__exit__", "__aenter__", "__aexit__"), "used in a with statement"),
}

#: attributes of the values that tasks mostly return: arrays, tables, lists, dicts, texts, numbers, files
_ATTRIBUTES = (
    *("shape", "dtype", "ndim", "size", "nbytes", "T", "flat", "real", "imag", "reshape", "astype", "tolist", "item"),
    *("mean", "sum", "min", "max", "std", "var", "any", "all", "dot", "transpose", "ravel", "flatten", "round"),
    *("columns", "index", "loc", "iloc", "head", "tail", "describe", "groupby", "merge", "apply", "plot", "to_csv"),
    *("append", "extend", "insert", "remove", "pop", "sort", "count", "copy", "clear", "reverse", "add", "update"),
    *("keys", "values", "items", "get", "setdefault", "union", "most_common"),
    *("split", "splitlines", "strip", "lower", "upper", "join", "format", "encode", "decode", "replace", "find"),
    *("startswith", "endswith", "read", "write", "close", "name", "as_posix", "exists"),
)

_COMPARING = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

#: what is done with the several values that a task returns
_SEVERAL = ("asked for its length", "iterated over", "indexed", "searched")


def refuse(cls: type, operations: Mapping[str, str], complain: Callable[[Any, str], NoReturn]) -> None:
    """Have objects of a class complain when they are used in one of these ways."""
    for name, how in operations.items():

        def method(self: Any, *args: Any, how: str = how, **kwargs: Any) -> NoReturn:
            complain(self, how)

        method.__name__ = name
        setattr(cls, name, method)


class Promised:
    """The value of a call that is promised: it has an identity, and may be kept and passed on, but is not the value."""

    __slots__ = ()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if hasattr(type(other), "add_done_callback"):
            return False  # another future, of whatever kind
        # What is equal to everything, such as unittest.mock.ANY, is equal to this too.
        if type(other).__eq__(other, self) is True:
            return True
        return _complain(self, "compared")

    def __array_ufunc__(self, function: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Operators and functions of NumPy, of which this is an operand."""
        _complain(self, "compared" if function.__name__ in _COMPARING else "used in arithmetic")

    def __format__(self, spec: str) -> str:
        return str(self) if not spec else _complain(self, f"formatted with {spec!r}")


class PromisedSequence:
    """Futures in a row: not equal to the values that they stand for."""

    __slots__ = ()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if other is self or isinstance(other, PromisedSequence):
            return other is self
        if type(other).__eq__(other, self) is True:
            return True
        raise NotAValue(f"{self!r} is compared, but it holds futures, not their values: use wait_on(it)")


def _complain(promised: Any, how: str) -> NoReturn:
    several = "; for a future of each of N values, declare @task(returns=N)" if how in _SEVERAL else ""
    raise NotAValue(
        f"{promised!r} is {how}, but it only stands for the value that its task returns: use wait_on(it) or "
        f"it.result(), or pass it to a task{several}"
    )


class _AttributeOfValue:
    """An attribute that many values have, and what stands for a value has not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, promised: Any, owner: type) -> NoReturn:
        if promised is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {self._name!r}")
        raise AttributeError(
            f"{promised!r} has no attribute {self._name!r}; if its value has, use wait_on(it) or it.result(), or "
            f"a task that is given it"
        )


refuse(Promised, OPERATIONS, _complain)
# One by one: a __getattr__ would slow down every look at a future's own attributes, which the hot path is full of.
for _name in _ATTRIBUTES:
    setattr(Promised, _name, _AttributeOfValue(_name))
