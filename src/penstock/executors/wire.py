"""What a node executor and its workers say to each other, and how it becomes bytes.

Two sockets join them. On the first, messages travel both ways as a stream of frames, so that many small ones are
written and read at once. On the second, the executor writes a claim to each attempt it has sent, and the worker reads
one before it starts the next. The executor keeps that socket's other end open too and can read claims back; the kernel
gives each to one of them, so a task is either started or taken back, never both. What was taken back may be sent to the
same worker again, with other data, so a claim names the sending too.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from penstock.model.commands import Launch
from penstock.model.data import Slot, Value
from penstock.model.outside import Outside
from penstock.model.resources import StorageLayer
from penstock.model.tasks import Failure, Output
from penstock.model.worlds import World

__all__ = [
    "CLAIM",
    "SETUP",
    "STREAM",
    "Clearing",
    "Define",
    "Done",
    "Down",
    "Early",
    "Error",
    "Frames",
    "Grant",
    "Logged",
    "RankFailed",
    "Ready",
    "Run",
    "Setup",
    "Spent",
    "Stop",
    "Up",
    "WorldStarted",
    "by_columns",
    "by_items",
    "claimed",
    "claims",
    "frame",
    "frames_down",
    "frames_up",
    "run_of",
    "sending_claimed",
    "setup_of",
    "setup_text",
]


#: stands for a number of return values that only the function itself knows
STREAM = -2

#: environment variable that carries a worker's ``Setup``
SETUP = "PENSTOCK_INTERNAL_SETUP"


class Setup(Struct):
    """What a worker needs to know of its run."""

    memory_dir: str
    spill_dir: str
    strict: bool
    layers: list[StorageLayer] = []
    #: where segments are spilled to on storage layers, by layer
    layer_dirs: dict[str, str] = {}
    #: the process keeps an MPI world, and its tasks are carried out by the ranks
    world: World | None = None
    #: address of the store of persistent objects
    store: str | None = None
    #: bytes of memory for turning objects to bytes and back, over all processes
    serialization_memory: int | None = None
    #: bytes of objects that each worker keeps for the next tasks
    read_cache: int = 0
    #: where the program's own setup of workers lies
    prepare: str = ""
    #: tasks after which the process ends, for another to take its place; 0: it lives as long as the run
    tasks: int = 0
    #: with which processes that ``multiprocessing`` knows prove to each other that they belong together
    authkey: bytes = b""


def setup_text(setup: Setup) -> str:
    """A ``Setup`` for the environment; its paths need not be UTF-8."""
    return pickle.dumps(setup, 5).hex()


def setup_of(text: str) -> Setup:
    """The ``Setup`` that the environment carried."""
    setup: Setup = pickle.loads(bytes.fromhex(text))
    return setup


class Define(Struct, array_like=True, tag="d"):
    """The code of a function, sent once to each worker before its first call."""

    function: int
    name: str
    code: Value
    #: number of values to return: 0 checks that there is none, -1 takes whatever comes as one value, STREAM any number
    returns: int
    #: names of its positional parameters, for messages
    parameters: list[str] = []
    #: those of which each rank of an MPI task receives its part
    scattered: list[str] = []
    #: how many outputs that nobody has used it may be ahead; 0 is without limit
    ahead: int = 0
    #: arrays among its arguments are its own, to change as it likes
    private: bool = False


class Run(Struct, array_like=True, tag="r"):
    """One attempt to carry out."""

    task: int
    attempt: int
    function: int
    args: Value
    slots: tuple[Slot, ...] = ()
    writable: tuple[int, ...] = ()
    in_place: tuple[int, ...] = ()
    outputs: tuple[Output, ...] = ()
    publish: bool = True
    #: -1 for a call; otherwise this is a piece of a map, and ``args`` the arguments of that many calls ``by_columns``
    items: int = -1
    #: how many buffers of ``args`` the task may change, and whether in their segment itself
    writable_buffers: int = 0
    args_in_place: bool = False
    #: the storage layer that it may use, and the outputs that are files to be written there
    layer: str = ""
    redirected: tuple[int, ...] = ()
    #: bytes per second that it holds there
    bandwidth: float = 0.0
    #: outputs that an earlier attempt has handed over already
    delivered: tuple[int, ...] = ()
    #: it reads or writes streamed files: the seat for those that it writes, or -1; None if it does neither
    stream: int | None = None
    #: how many attempts the worker had been sent by then, with this one
    sending: int = 0


def run_of(command: Launch) -> Run:
    """What a worker is told of an attempt to launch."""
    call = command.call
    return Run(
        command.task,
        command.attempt,
        call.spec.function,
        call.args,
        command.slots,
        call.writable,
        command.in_place,
        call.outputs,
        command.publish,
        call.items,
        call.writable_buffers,
        command.args_in_place,
        command.layer,
        command.redirected,
        command.bandwidth,
        command.delivered,
        -1 if call.streams or (call.outputs and any(output.stream for output in call.outputs)) else None,
    )


def by_columns(items: list[Any]) -> list[Any] | tuple[list[Any], ...]:
    """The items of a piece of a map as they are best pickled: tuples by columns, since a tuple each would cost more
    than what is in it; those that are pickled already as they are.
    """
    if type(items[0]) is not tuple:
        return items
    width, row = len(items[0]), list(chain.from_iterable(items))
    return tuple([row[column::width] for column in range(width)])


def by_items(content: list[Any] | tuple[list[Any], ...]) -> Iterator[tuple[Any, ...]]:
    """What ``by_columns`` was given, one tuple after the other."""
    return zip(*content, strict=True) if type(content) is tuple else map(_item, content)


def _item(pickled: bytes) -> tuple[Any, ...]:
    try:
        args: tuple[Any, ...] = pickle.loads(pickled)
    except StopIteration as error:  # would be taken for the end of the items
        raise RuntimeError("an argument of this call raised StopIteration when it was unpickled") from error
    return args


class Ready(Struct, array_like=True, tag="y"):
    """The process has started and takes tasks."""


class Done(Struct, array_like=True, tag="o"):
    """An attempt delivered."""

    task: int
    attempt: int
    outputs: list[Slot | None]
    seconds: float


class Error(Struct, array_like=True, tag="e"):
    """An attempt did not deliver."""

    task: int
    attempt: int
    failure: Failure
    seconds: float


class Delivering(Struct, array_like=True, tag="n"):
    """An attempt has made everything, and is about to make that known: it counts from now on, or once its states do.

    Its ``Done`` or ``Error`` follows. If its process ends before that, the node executor says that it is done, unless
    new states of persistent objects have not become the current ones.
    """

    task: int
    attempt: int
    #: as in ``Done``: files as they are called in the end
    outputs: list[Slot | None]
    seconds: float
    #: files that change their names: where they are, the numbers by which they are known there, and what they will be
    moves: list[tuple[str, int, str]]
    #: states of persistent objects that become the current ones before that: the objects' ids, and the states' tokens
    states: list[tuple[str, str]] = []


class WorldStarted(Struct, array_like=True, tag="w"):
    """All ranks of an MPI world are there."""

    seconds: float


class RankFailed(Struct, array_like=True, tag="f"):
    """A rank of an MPI world did not deliver; the attempt's error follows."""

    task: int
    attempt: int
    rank: int
    message: str


class Spent(Struct, array_like=True, tag="s"):
    """An MPI world takes no more tasks; what it says of the last one follows."""

    reason: str


class Early(Struct, array_like=True, tag="v"):
    """An attempt that goes on hands one output over."""

    task: int
    attempt: int
    index: int
    value: Slot


class Clearing(Struct, array_like=True, tag="c"):
    """A body was told to ``Stop``; the end of the attempt follows."""


class Logged(Struct, array_like=True, tag="l"):
    """A task has logged a record."""

    #: its attributes, pickled
    record: bytes
    #: loggers whose handlers have seen it already
    handled: list[str]


class Grant(Struct, array_like=True, tag="g"):
    """A task with any number of outputs may hand over this many in all."""

    task: int
    upto: int


class Stop(Struct, array_like=True, tag="t"):
    """No more outputs of a task are wanted: its body is to end when it next hands one over."""

    task: int


#: a run is carried out in the latest ``Outside`` that came before it
Down = Define | Run | Grant | Stop | Outside
Up = Ready | Done | Error | Delivering | Early | Clearing | Logged | WorldStarted | RankFailed | Spent

_encode = msgspec.msgpack.Encoder().encode
_length = struct.Struct("<I")
_claim = struct.Struct("<QQ")

#: a longer message is garbage: what is large travels in segments
_LARGEST = 1 << 30

#: in the length of a message: it is pickled
_PICKLED = 1 << 31

#: bytes of a claim
CLAIM = _claim.size

M = TypeVar("M")


def claims(runs: list[Run]) -> bytes:
    """Attempts, as the worker claims them."""
    return b"".join([_claim.pack(run.task, run.sending) for run in runs])


def sending_claimed(data: bytes) -> int:
    """The sending in what was read of one claim."""
    sending: int = _claim.unpack(data)[1]
    return sending


def claimed(data: bytes) -> list[tuple[int, int]]:
    """The tasks, and their sendings, in what was read from the socket of claims."""
    return list(_claim.iter_unpack(data))


def frame(message: Struct) -> bytes:
    """A message of a stream, with its length in front."""
    try:
        body = _encode(message)
    except UnicodeEncodeError:
        # A file's name, or an exception's text, that is not UTF-8: Python has surrogates in such text.
        body = pickle.dumps(message, 5)
        return _length.pack(len(body) | _PICKLED) + body
    return _length.pack(len(body)) + body


def _unpickle(data: Any) -> Any:
    with data:  # or an error would hold on to what is about to be cut
        copy = bytes(data)
    try:
        return pickle.loads(copy)
    except Exception as error:
        raise msgspec.DecodeError(f"a message that is garbage: {error}") from error


class Frames(Generic[M]):
    """Cuts a stream into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decode = decoder.decode
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        """The messages completed by these bytes."""
        rest = self._rest
        rest += data
        position, end = 0, len(rest)
        view, size_at, usual = memoryview(rest), _length.unpack_from, self._decode
        try:
            while (start := position + 4) <= end:
                size, decode = size_at(rest, position)[0], usual
                if size > _LARGEST:
                    size, decode = size ^ _PICKLED, _unpickle
                    if size > _LARGEST:
                        raise msgspec.DecodeError(f"a message of {size} bytes")
                stop = start + size
                if stop > end:
                    break
                yield decode(view[start:stop])
                position = stop
        finally:
            view.release()
            del rest[:position]


def frames_down() -> Frames[Down]:
    """For the worker's end."""
    return Frames(msgspec.msgpack.Decoder(Down))


def frames_up() -> Frames[Up]:
    """For the executor's end."""
    return Frames(msgspec.msgpack.Decoder(Up))
