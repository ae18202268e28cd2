"""What a node executor and its workers say to each other, and how it becomes bytes.

Down, to a worker, one packet per message on a socket whose receiving end the executor keeps open too: a message that
the worker has not read can be read back by the executor, and the kernel sees to it that only one of them gets it.
Up, from a worker, a stream of frames, so that many small results are read at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from penstock.model.data import Piece, Slot, Value
from penstock.model.tasks import Failure, Output

__all__ = ["Define", "Done", "Down", "Error", "Frames", "Parcel", "Run", "Up", "decode_down", "encode", "frame"]


class Define(Struct, array_like=True, tag="d"):
    """The code of a function, sent once to each worker before its first call."""

    function: int
    name: str
    code: Value
    #: number of values to return: 0 checks that there is none, -1 takes whatever comes as one value
    returns: int


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
    spill: bool = False
    #: -1 for a call; otherwise this is a piece of a map and ``args`` a list of that many pickled items
    items: int = -1


class Parcel(Struct, array_like=True, tag="p"):
    """A message too large for a packet, left in a segment."""

    content: Piece


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


Down = Define | Run | Parcel
Up = Done | Error

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_down = msgspec.msgpack.Decoder(Down).decode
_decode_up = msgspec.msgpack.Decoder(Up).decode

_length = struct.Struct("<I")


def frame(message: Up) -> bytes:
    """A message of the upward stream, with its length in front."""
    body = _encoder.encode(message)
    return _length.pack(len(body)) + body


class Frames:
    """Cuts the upward stream into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Up]:
        """The messages completed by these bytes."""
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        while end - position >= 4:
            size = _length.unpack_from(data, position)[0]
            if end - position - 4 < size:
                break
            position += 4
            yield _decode_up(data[position : position + size])
            position += size
        self._rest = data[position:]
