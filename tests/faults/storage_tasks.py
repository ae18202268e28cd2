"""I/O tasks of the storage tests, and what their files must hold.

Apart from the tests, because workers import it: a worker that replaces a killed one should not have to import pytest.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from tests.faults.programs import Tally, TaskSide

from penstock import FILE_IN, FILE_OUT, constraint, io, task

MB = 1_000_000
#: what a layer of these tests has; a task that asks for this much has the layer to itself
WHOLE = "100MB/s"
PART = "10MB/s"
#: set in the environment, a worker dies when it has moved its n-th finished file to where it stays
DEADLY_MOVE = "STORAGE_TASKS_DEADLY_MOVE"


def content(number: int, size: int = 1000) -> bytes:
    """What file number so-and-so holds: no two are alike, and no part of one is."""
    return random.Random(number).randbytes(size)


def fill(path: str | Path, number: int, size: int) -> None:
    with open(path, "wb") as file:
        file.write(content(number, size))


@constraint(storage_bw=PART)
@io
@task(path=FILE_OUT)
def write(path: str | Path, number: int, size: int = 1000) -> None:
    fill(path, number, size)


@constraint(storage_bw=WHOLE, storage_size="10MB")
@io
@task(path=FILE_OUT)
def write_alone(path: str | Path, number: int, size: int = 1000) -> None:
    """Needs all of a layer's bandwidth, and ten megabytes of it."""
    fill(path, number, size)


@constraint(storage_bw=PART)
@io
@task(path=FILE_OUT(temp=True))
def write_temp(path: str | Path, number: int, size: int = 1000) -> None:
    fill(path, number, size)


@task(path=FILE_IN)
def read(path: str | Path) -> bytes:
    return Path(path).read_bytes()


@task(path=FILE_IN)
def read_slowly(path: str | Path, gate: TaskSide) -> bytes:
    gate.hold()
    return Path(path).read_bytes()


# --- ways to end in the middle of a write -------------------------------------------------------------------------


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def hang() -> None:
    while True:
        signal.pause()


ENDS = {"killed": be_killed, "left": leave}


def half(path: str | Path, number: int) -> None:
    with open(path, "wb") as file:
        file.write(content(number)[:500])


@constraint(storage_bw=WHOLE, storage_size="10MB")
@io
@task(path=FILE_OUT)
def end_once(path: str | Path, number: int, end: str, tally: Tally) -> None:
    """Its first attempt ends its process in the middle of the write."""
    if tally.mark() == 1:
        half(path, number)
        ENDS[end]()
    fill(path, number, 1000)


@constraint(storage_bw=WHOLE, storage_size="10MB")
@io
@task(path=FILE_OUT)
def end_always(path: str | Path, number: int, end: str, tally: Tally) -> None:
    tally.mark()
    half(path, number)
    ENDS[end]()


@constraint(storage_bw=WHOLE, storage_size="10MB")
@io
@task(path=FILE_OUT, timeout=0.3)
def take_too_long(path: str | Path, number: int) -> None:
    half(path, number)
    hang()


@constraint(storage_bw=WHOLE, storage_size="10MB")
@io
@task(path=FILE_OUT)
def hold_half(path: str | Path, number: int, notes: str, gate: TaskSide) -> None:
    """Writes half, notes its process and waits; its second attempt writes the file."""
    with open(notes, "a+") as file:
        again = file.tell() > 0
        file.write(f"{os.getpid()}\n")
    if again:
        fill(path, number, 1000)
        return
    half(path, number)
    gate.hold()


@constraint(storage_bw="auto(10,100,2)", storage_size="1MB")
@io
@task(path=FILE_OUT)
def learn(path: str | Path, number: int, deaths: int, tally: Tally) -> None:
    """Its constraint is learned; the first few attempts of all end their processes."""
    if tally.mark() <= deaths:
        half(path, number)
        be_killed()
    fill(path, number, 1000)


@constraint(storage_bw=PART)
@io
@task(one=FILE_OUT, two=FILE_OUT)
def write_two(one: str | Path, two: str | Path, number: int) -> None:
    fill(one, number, 1000)
    fill(two, number + 1, 1000)


@constraint(storage_bw=PART)
@io
@task(one=FILE_OUT, two=FILE_OUT)
def write_one_of_two(one: str | Path, two: str | Path, number: int) -> None:
    fill(one, number, 1000)


@constraint(storage_bw=PART)
@io
@task(path=FILE_OUT)
def write_and_delete(path: str | Path, number: int) -> None:
    fill(path, number, 1000)
    os.unlink(path)


@constraint(storage_bw=PART)
@io
@task(path=FILE_OUT)
def make_oddly(path: str | Path, kind: str) -> None:
    """Makes something of the name it was given that is no plain file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    else:
        fill(f"{path}.1", 1, 1000)
        os.symlink(f"{path}.1" if kind == "link" else f"{os.path.basename(path)}.1", path)


@constraint(storage_bw=PART)
@io
@task(path=FILE_OUT)
def wrap_the_error(path: str | Path, number: int, size: int) -> None:
    """As libraries do: what the disk said is the cause of what is raised."""
    try:
        fill(path, number, size)
    except OSError as error:
        raise RuntimeError("the checkpoint could not be written") from error


def die_after_a_move() -> None:
    """In a worker: be killed right after a finished file was moved to where it stays, before anybody is told."""
    last, real, moves = int(os.environ[DEADLY_MOVE]), os.replace, []

    def replace(source: str, target: str) -> None:
        real(source, target)
        if "-layer/kept/" in str(target):
            moves.append(target)
            if len(moves) == last:
                be_killed()

    os.replace = replace  # type: ignore[assignment]


# The environment says so in workers and in the main program alike, but the main program imported this long before.
if DEADLY_MOVE in os.environ:
    die_after_a_move()
