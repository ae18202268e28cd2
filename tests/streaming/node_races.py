"""Two programs on two nodes that race: one makes files in all the ways that give a file its name, the other reads them
in all the ways that wait for it.

Run by ``test_nodes_races`` under the library, ``node_races.py make|read SEED COUNT PIPE``. Both work out the same plan
from the seed. Before each race the reader lets the maker go through the pipe; then both hesitate for a random moment.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import shutil
import sys
import time
from collections.abc import Callable

#: what is declared: files that stream (s-*), files that show when they are final (u-*), directories of three files
FLOW = """
    name = "races"
    [[step]]
    name = "make"
    output = ["s-*", "u-*", "d-*/*"]
    [[step.stream]]
    files = ["s-*", "d-*/*"]
    commit = "on_close"
    fire = "no_update"
    [[step.stream]]
    files = ["u-*"]
    commit = "on_close"
    fire = "update"
    [[step.stream]]
    directories = ["d-*"]
    commit = "n_files:3"
    fire = "no_update"
    [[step]]
    name = "read"
    input = ["s-*", "u-*", "d-*/*"]
"""
#: races that are lost before the reader gives up
_ENOUGH = 5
_EXCHANGE, _FOLLOW = 2, 0x400
_libc = ctypes.CDLL(None, use_errno=True)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


# --- makers: each leaves ``data`` at ``name`` -------------------------------------------------------------------------


def plainly(name: str, data: bytes) -> None:
    _write(name, data)


def in_pieces(name: str, data: bytes) -> None:
    with open(name, "wb", buffering=0) as file:
        for start in range(0, len(data), 5000):
            file.write(data[start : start + 5000])


def renamed(name: str, data: bytes) -> None:
    _write(f"new-{name}", data)
    os.rename(f"new-{name}", name)


def renamed_from_a_declared_name(name: str, data: bytes) -> None:
    _write(f"{name}.new", data)
    os.rename(f"{name}.new", name)


def renamed_twice(name: str, data: bytes) -> None:
    _write(f"new-{name}", data)
    os.rename(f"new-{name}", f"{name}.new")
    os.rename(f"{name}.new", name)


def renamed_while_it_is_written(name: str, data: bytes) -> None:
    with open(f"new-{name}", "wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        os.rename(f"new-{name}", name)
        file.write(data[len(data) // 2 :])


def renamed_read_only(name: str, data: bytes) -> None:
    _write(f"new-{name}", data)
    os.chmod(f"new-{name}", 0o444)
    os.utime(f"new-{name}", (1, 1))
    os.rename(f"new-{name}", name)


def cut_and_renamed(name: str, data: bytes) -> None:
    with open(f"new-{name}", "wb", buffering=0) as file:
        file.write(b"x" * (len(data) + 100))
        file.truncate(0)
        file.seek(0)
        file.write(data + b"more")
    os.truncate(f"new-{name}", len(data))
    os.rename(f"new-{name}", name)


def mapped_and_renamed(name: str, data: bytes) -> None:
    with open(f"new-{name}", "w+b") as file:
        file.truncate(len(data))
        if data:
            with mmap.mmap(file.fileno(), len(data)) as memory:
                memory[:] = data
    os.rename(f"new-{name}", name)


def linked(name: str, data: bytes) -> None:
    _write(f"new-{name}", data)
    os.link(f"new-{name}", name)
    os.unlink(f"new-{name}")


def linked_without_a_name(name: str, data: bytes) -> None:
    descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o644)
    os.write(descriptor, data)
    assert _libc.linkat(-100, f"/proc/self/fd/{descriptor}".encode(), -100, name.encode(), _FOLLOW) == 0
    os.close(descriptor)


def symlinked(name: str, data: bytes) -> None:
    _write(f"{name}.data", data)
    os.symlink(f"{name}.data", name)


def symlinked_beforehand(name: str, data: bytes) -> None:
    os.symlink(f"{name}.data", name)
    renamed(f"{name}.data", data)


def symlink_renamed(name: str, data: bytes) -> None:
    _write(f"{name}.data", data)
    os.symlink(f"{name}.data", f"new-{name}")
    os.rename(f"new-{name}", name)


def renamed_over(name: str, data: bytes) -> None:
    """What it replaces is not final, so nobody has seen it."""
    with open(name, "wb"):
        _write(f"new-{name}", data)
        os.rename(f"new-{name}", name)


def exchanged(name: str, data: bytes) -> None:
    with open(name, "wb"):
        _write(f"new-{name}", data)
        assert _libc.renameat2(-100, f"new-{name}".encode(), -100, name.encode(), _EXCHANGE) == 0


def made_again(name: str, data: bytes) -> None:
    """What is removed has not been seen either."""
    with open(name, "wb"):
        os.unlink(name)
        renamed(name, data)


def _three(folder: str, data: bytes) -> None:
    for number in range(3):
        _write(f"{folder}/{number}", data[number:])


def directory(name: str, data: bytes) -> None:
    os.mkdir(name)
    _three(name, data)


def directory_renamed(name: str, data: bytes) -> None:
    os.mkdir(f"new-{name}")
    _three(f"new-{name}", data)
    os.rename(f"new-{name}", name)


def directory_filled_by_renames(name: str, data: bytes) -> None:
    os.makedirs(name)
    for number in range(3):
        _write(f"new-{name}-{number}", data[number:])
        os.rename(f"new-{name}-{number}", f"{name}/{number}")


# --- readers: each returns what it has found --------------------------------------------------------------------------


def at_once(name: str) -> bytes:
    with open(name, "rb") as file:
        return file.read()


def piece_by_piece(name: str) -> bytes:
    found = b""
    with open(name, "rb", buffering=0) as file:
        while piece := file.read(3000):
            found += piece
    return found


def by_size(name: str) -> bytes:
    size = os.stat(name).st_size
    found = at_once(name)
    assert len(found) == size, f"its size was {size}, but it has {len(found)} bytes"
    return found


def once_it_exists(name: str) -> bytes:
    assert os.path.exists(name), "it does not exist"
    return at_once(name)


def mapped(name: str) -> bytes:
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)[:] if size else b""


def from_its_end(name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        half = os.pread(descriptor, size - size // 2, size // 2)
        return os.pread(descriptor, size // 2, 0) + half
    finally:
        os.close(descriptor)


def copied(name: str) -> bytes:
    copy = f"../copy-{os.getpid()}"
    shutil.copyfile(name, copy)
    with open(copy, "rb") as file:
        return file.read()


def listed(name: str) -> bytes:
    entries = sorted(os.listdir(name))
    assert entries == ["0", "1", "2"], f"its entries are {entries}"
    return _joined(name)


def walked(name: str) -> bytes:
    entries = sorted(entry.name for entry in os.scandir(name))
    assert entries == ["0", "1", "2"], f"its entries are {entries}"
    return _joined(name)


def without_a_listing(name: str) -> bytes:
    return _joined(name)


def _joined(name: str) -> bytes:
    whole = at_once(f"{name}/0")
    assert at_once(f"{name}/1") == whole[1:] and by_size(f"{name}/2") == whole[2:], "its files do not fit together"
    return whole


_FILE_MAKERS = [
    *(plainly, in_pieces, renamed, renamed_from_a_declared_name, renamed_twice, renamed_while_it_is_written),
    *(renamed_read_only, cut_and_renamed, mapped_and_renamed, linked, linked_without_a_name, symlinked),
    *(symlinked_beforehand, symlink_renamed),
]
#: only where nobody sees a file before it is final
_UNSEEN_MAKERS = [*_FILE_MAKERS, renamed_over, exchanged, made_again]
_DIRECTORY_MAKERS = [directory, directory_renamed, directory_filled_by_renames]
_FILE_READERS = [at_once, piece_by_piece, by_size, once_it_exists, mapped, from_its_end, copied]
_DIRECTORY_READERS = [listed, walked, without_a_listing]
_SIZES = [1, 100, 4096, 30_000, 200_000, 200_000, 1_500_000]


class Race:
    """What happens in one of them, and who hesitates for how long."""

    def __init__(self, chance: random.Random, number: int) -> None:
        kind = chance.choice("ssuud")
        makers = {"s": _FILE_MAKERS, "u": _UNSEEN_MAKERS, "d": _DIRECTORY_MAKERS}[kind]
        self.name = f"{kind}-{number}"
        self.make: Callable[[str, bytes], None] = chance.choice(makers)
        self.read: Callable[[str], bytes] = chance.choice(_DIRECTORY_READERS if kind == "d" else _FILE_READERS)
        size = chance.choice(_SIZES) if chance.random() < 0.95 else 0
        self.data = random.Random(number).randbytes(max(size, 3) if kind == "d" else size)
        self.pauses = [chance.choice((0.0, chance.random() * 0.001, chance.random() * 0.01)) for _ in range(2)]

    def __str__(self) -> str:
        return f"{self.name}: {self.make.__name__}, read {self.read.__name__}, {len(self.data)} bytes"


def main() -> None:
    role, seed, count, pipe = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    chance = random.Random(seed)
    lost = 0
    with open(pipe, "wb" if role == "read" else "rb", buffering=0) as starts:
        for number in range(count):
            race = Race(chance, number)
            if role == "make":
                assert starts.read(1), "the reader has given up"
                time.sleep(race.pauses[0])
                race.make(race.name, race.data)
                continue
            starts.write(b".")
            time.sleep(race.pauses[1])
            try:
                found = race.read(race.name)
                said = "" if found == race.data else f"other bytes: {len(found)}, the first of which are {found[:20]!r}"
            except (OSError, AssertionError) as error:
                said = str(error)
            if said:
                lost += 1
                print(f"{race}: {said}", flush=True)
            if lost == _ENOUGH:
                break
    if role == "read":
        print(f"{lost} of {count} lost")


if __name__ == "__main__":
    main()
