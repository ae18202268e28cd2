"""Communicators that do more than those of mpi4py, and cannot be told from them by a program.

The classes of mpi4py cannot be changed, so a rank's communicators are of a subclass (``mpi_progress``), and in a rank
the names of mpi4py mean what is of that class (``mpi_world``). What mpi4py does for its own constants only, such as
to pickle them by name and never to free them, the originals do here for those that stand in for them.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["lookalike", "put_in_place"]

_CONSTANTS = ("COMM_WORLD", "COMM_SELF")
#: what mpi4py does differently for constants
_OF_CONSTANTS = ("Free", "free", "Disconnect")
_new = copyreg.__newobj__  # type: ignore[attr-defined]

#: what stands for a constant of mpi4py, and that constant
_stand_ins: list[tuple[Any, Any]] = []


def lookalike(kind: type[Intracomm], methods: dict[str, Any]) -> type[Intracomm]:
    """A subclass with these methods, whose name and whose instances are as those of the class itself."""

    class Kind(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            # Some communicators are made by mpi4py alone.
            return isinstance(instance, kind) if cls is made else super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: Any) -> bool:
            return issubclass(subclass, kind) if cls is made else super().__subclasscheck__(subclass)

    def of_constant(name: str) -> Any:
        method = getattr(kind, name)

        def call(self: Any) -> Any:
            original = next((original for stand_in, original in _stand_ins if stand_in is self), None)
            return method(self if original is None else original)

        call.__name__, call.__doc__ = name, method.__doc__
        return call

    def reduce(self: Any) -> Any:
        for stand_in, original in _stand_ins:
            if stand_in == self:  # a copy refers to what has the constant's name
                return original.__reduce__() if stand_in is self else (_new, (type(self), stand_in))
        return kind.__reduce__(self)

    def fromhandle(cls: type[Intracomm], handle: int) -> Any:
        found = kind.fromhandle(handle)
        return made(found) if type(found) is kind else found

    methods = {name: of_constant(name) for name in _OF_CONSTANTS if hasattr(kind, name)} | methods
    methods |= {"__reduce__": reduce, "fromhandle": classmethod(fromhandle)}
    methods |= {"__module__": kind.__module__, "__doc__": kind.__doc__}
    made: Any = Kind(kind.__name__, (kind,), methods)
    return made  # type: ignore[no-any-return]


def put_in_place(mpi: Any, made: type[Intracomm]) -> None:
    """Have the names of mpi4py mean this class, and constants of it."""
    kind = mpi.Intracomm
    for name in _CONSTANTS:
        original = getattr(mpi, name)
        _stand_ins.append((made(original), original))
        setattr(mpi, name, _stand_ins[-1][0])
    mpi.Intracomm = made
    # Those that mpi4py makes alone are of a class that no longer has the name.
    copyreg.pickle(kind, lambda comm: (made, tuple(made(comm).__reduce__()[1][1:])))
