"""What runs inside a worker process: take a task, carry it out, say how it went, take the next.

Forked from the fork server with everything imported, so its first task starts at once.
"""

from __future__ import annotations

import os
import socket

import msgspec

from penstock.data.segments import Segments
from penstock.executors.execution import Function, carry_out, define
from penstock.executors.wire import Define, Down, Parcel, Run, decode_down, frame

__all__ = ["PACKET", "SETUP", "Setup", "serve"]

#: largest message that travels as a packet; larger ones are left in a segment
PACKET = 96 * 1024

#: environment variable that carries a worker's ``Setup``
SETUP = "PENSTOCK_INTERNAL_SETUP"

#: how often a worker looks for the next task before it goes to sleep: waking up costs more than these looks
_LOOKS = 60


class Setup(msgspec.Struct):
    """What a worker needs to know of its run."""

    memory_dir: str
    spill_dir: str
    strict: bool


def serve(worker_id: int, tasks: socket.socket, results: socket.socket) -> None:
    """Carry out tasks until the other side closes."""
    setup = msgspec.json.decode(os.environ.pop(SETUP), type=Setup)
    segments = Segments(setup.memory_dir, setup.spill_dir, worker_id)
    functions: dict[int, Function] = {}
    looks = _LOOKS if (os.cpu_count() or 1) > 1 else 0
    while True:
        packet = _next(tasks, looks)
        if not packet:
            return
        message: Down = decode_down(packet)
        if type(message) is Parcel:
            message = _unpack(message, segments)
        if type(message) is Run:
            results.sendall(frame(carry_out(message, functions[message.function], segments, strict=setup.strict)))
        elif type(message) is Define:
            functions[message.function] = define(message, segments)


def _next(tasks: socket.socket, looks: int) -> bytes:
    for _ in range(looks):
        try:
            return tasks.recv(PACKET, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
    return tasks.recv(PACKET)


def _unpack(parcel: Parcel, segments: Segments) -> Down:
    """Read a large message from its segment, which was made for it alone."""
    piece = parcel.content
    path = segments.path(piece.segment, spilled=piece.spilled)
    with open(path, "rb") as file:
        message: Down = decode_down(file.read())
    os.unlink(path)
    return message
