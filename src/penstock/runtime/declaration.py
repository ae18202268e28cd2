"""What is known of a task's function once and for all: its parameters, directions, returns, policies and constraints.

Made when a function is decorated; no call inspects a signature again.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import CallError
from penstock.executors.coroutines import yields
from penstock.executors.wire import STREAM
from penstock.model.directions import Direction
from penstock.model.tasks import OnFailure
from penstock.runtime.mpi_declaration import MPI

__all__ = ["Declaration", "Place", "Sizes", "checked_size"]

#: an argument's place: its position, or its keyword
Place = int | str
#: bytes of each output, or by parameter; ``"returns"`` is what the function returns
Sizes = Mapping[str, int] | int | None

_LONGEST_LABEL = 200

#: types of defaults that bodies change by mistake, or to remember something from call to call
_CHANGEABLE = (list, dict, set, bytearray, deque)


def checked_size(written: Any) -> int | dict[str, int]:
    """Bytes as written in ``size=``: a size, or sizes by parameter."""
    from penstock.units import parse_size

    if isinstance(written, Mapping):
        return {str(name): parse_size(size) for name, size in written.items()}
    return parse_size(written)


@dataclass(eq=False)
class Declaration:
    """A decorated function."""

    body: Callable[..., Any]
    name: str
    signature: inspect.Signature
    #: parameters that are not plain IN
    directions: Mapping[str, Direction] = field(default_factory=dict)
    #: the direction of its first parameter is written, and is IN
    first_is_in: bool = False
    #: declared number of return values; -1 takes whatever comes as one value, STREAM is any number of values
    returns: int = -1
    #: of a stream: how many of its outputs may be unused before it is held back; 0 is without limit
    ahead: int = 0
    priority: int = 0
    retries: int | None = None
    #: seconds before the second attempt; ``None``: as the settings say
    retry_delay: float | None = None
    timeout: float | None = None
    on_failure: OnFailure = OnFailure.FAIL
    #: it does only input and output: decorated with @io
    io: bool = False
    #: as written in @constraint; may refer to environment variables
    constraints: Mapping[str, Any] = field(default_factory=dict)
    #: it is carried out by MPI processes: decorated with @mpi
    mpi: MPI | None = None
    #: each call has arguments of its own, arrays included, which it may change
    private: bool = False
    #: for simulated runs: how long a call takes, how large what it makes is, and what it returns; as written, checked
    duration: Any = None
    size: Any = None
    simulated: Callable[..., Any] | None = None
    #: how messages call a call of it besides its name: a text, or a function of the arguments
    label: str | Callable[..., Any] | None = None
    #: the declaration that this one is like, but for options of some calls
    variant_of: Declaration | None = None
    #: other functions that do the same, each with its own constraints: those decorated with @implement
    implementations: tuple[Declaration, ...] = ()
    #: parameters by kind, and how many positional arguments a call may have
    positional: list[str] = field(init=False)
    least: int = field(init=False)
    most: float = field(init=False)
    #: parameters that a keyword of a call can mean; any other keyword is one of ``**kwargs``, whatever its name
    by_keyword: frozenset[str] = field(init=False)
    #: its body yields its outputs
    generator: bool = field(init=False)
    #: parameters whose defaults a body could change: each call is given them as they are with the program
    own_defaults: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        parameters = self.signature.parameters.values()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.positional = [p.name for p in positional]
        required = [p for p in positional if p.default is p.empty]
        keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        self.least = len(required)
        self.most = float("inf") if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
        self.by_keyword = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        self.generator = yields(self.body)
        changeable = (p.name for p in parameters if isinstance(p.default, _CHANGEABLE) and p.name in self.by_keyword)
        self.own_defaults = frozenset(changeable) - self.directions.keys()
        if keywords:
            self.most = -1  # positional arguments alone never suffice

    @property
    def is_program(self) -> bool:
        """Whether a program is run in the place of a function."""
        from penstock.executors.programs import ProgramBody  # what it needs, only programs need

        return isinstance(self.body, ProgramBody)

    @property
    def streams(self) -> bool:
        """Whether a call gives any number of outputs."""
        return self.returns == STREAM

    @property
    def outputs(self) -> int:
        """Versions that a call returns; of a stream, the one that says that it is over."""
        return self.returns if self.returns > 1 else 1

    @property
    def is_temporary(self) -> bool:
        """Whether it writes files, and all that it writes are of use during the run only.

        Not so with directories, which are always written beside their names.
        """
        written = [one.temp and not one.directory for one in self.directions.values() if one.file and one.writes]
        return bool(written) and all(written)

    @property
    def scattered(self) -> list[str]:
        """Parameters of which each rank of an MPI task receives its part."""
        return [name for name, direction in self.directions.items() if direction.scatter]

    def label_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """What a call is called, in one line."""
        label = self.label
        if callable(label):
            try:
                label = label(*args, **kwargs)
            except Exception as error:
                raise CallError(
                    f"task {self.name}: the function that gives its label raised {type(error).__name__}: {error}"
                ) from error
        return " ".join(str(label).split())[:_LONGEST_LABEL] if label is not None else ""

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments that do not fit the signature, at the line of the call."""
        if not kwargs and self.least <= len(args) <= self.most:
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CallError(f"task {self.name}{self.signature}: {error}") from None

    def with_own_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keywords of a call, and the defaults that are arguments like any other: a body that changes one changes a
        copy, not what a later call in the same process finds.
        """
        left = self.own_defaults.difference(self.positional[: len(args)], kwargs)
        if not left:
            return kwargs
        signature = inspect.signature(self.body)  # not as decorated: a program may change defaults too
        defaults = {name: signature.parameters[name].default for name in left if name in signature.parameters}
        return kwargs | {name: value for name, value in defaults.items() if isinstance(value, _CHANGEABLE)}

    def accesses(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Place, str, Any, Direction]]:
        """``(place, name, value, direction)`` of every argument that is not plain IN."""
        for name, direction in self.directions.items():
            parameter = self.signature.parameters[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                first = len(self.positional)
                for position in range(first, len(args)):
                    yield position, f"*{name}[{position - first}]", args[position], direction
            elif parameter.kind is parameter.VAR_KEYWORD:
                for keyword in [keyword for keyword in kwargs if keyword not in self.by_keyword]:
                    yield keyword, keyword, kwargs[keyword], direction
            elif name in kwargs and name in self.by_keyword:
                yield name, name, kwargs[name], direction
            elif name in self.positional and self.positional.index(name) < len(args):
                position = self.positional.index(name)
                yield position, name, args[position], direction
            elif parameter.default is not None:
                kwargs[name] = parameter.default
                yield name, name, parameter.default, direction
