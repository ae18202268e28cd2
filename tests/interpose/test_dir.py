"""Directory listings: entries in order of birth, each once, the end after commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interpose.stage import RULES, Stage, staged

from penstock.streaming.table_records import Flag, WaitKind

COUNTED = RULES.replace(
    'directories = ["made"]\ncommit = "on_termination"', 'directories = ["made"]\ncommit = "n_files:3"'
)
BATCH = RULES.replace(
    'directories = ["made"]\ncommit = "on_termination"\nfire = "no_update"',
    'directories = ["made"]\ncommit = "on_termination"\nfire = "update"',
)


def make(maker: object, *names: str) -> None:
    for name in names:
        maker(f"open('made/{name}', 'w').close()")  # type: ignore[operator]


def test_entries_come_as_they_are_born_and_the_end_after_commit(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker("os.mkdir('made')")
    make(maker, "z")
    taker("!entries = os.scandir('made')")
    assert taker("next(entries).name") == "z"
    taker.blocks("next(entries).name", WaitKind.ENTRY)
    make(maker, "b")
    assert taker.answer() == "b"
    make(maker, "a", "c")
    assert taker("[next(entries).name, next(entries).name]") == ["a", "c"]
    taker.blocks("next(entries, None)", WaitKind.ENTRY)
    maker.end()
    stage.over("maker")
    assert taker.answer() is None


def test_n_files_ends_the_listing_before_the_producer(tmp_path: Path) -> None:
    with staged(tmp_path / "root", COUNTED) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        maker("os.mkdir('made')")
        taker.blocks("os.listdir('made')", WaitKind.ENTRY)
        make(maker, "1", "2")
        assert stage.table.waits()
        make(maker, "3")
        assert taker.answer() == ["1", "2", "3"]


def test_an_update_directory_is_listed_after_commit(tmp_path: Path) -> None:
    with staged(tmp_path / "root", BATCH) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        maker("os.mkdir('made')")
        make(maker, "1", "2")
        maker("os.unlink('made/1')")
        taker.blocks("os.listdir('made')", WaitKind.ENTRY, WaitKind.COMMITTED)
        maker.end()
        stage.over("maker")
        assert taker.answer() == ["2"]


def test_names_that_no_rule_covers_are_listed_at_the_end(stage: Stage) -> None:
    """Rules of files in a directory imply that it is streamed, but nobody has promised that such a name stays."""
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker("[open(name, 'w').close() for name in ('tmp-1', 'tmp-2', 'out-1')] and None")
    taker("!entries = os.scandir('.')")
    assert taker("next(entries).name") == "out-1"
    taker.blocks("next(entries).name", WaitKind.ENTRY)
    maker("os.rename('tmp-1', 'out-2')")
    assert taker.answer() == "out-2"
    taker.blocks("sorted(entry.name for entry in entries)", WaitKind.ENTRY)
    maker("os.unlink('tmp-2') or open('tmp-3', 'w').close()")
    maker.end()
    stage.over("maker")
    assert taker.answer() == ["tmp-3"]
    assert not stage.table.iterate(Flag.WARNED)


def test_a_rename_of_what_was_listed_is_told(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker("[open(name, 'w').close() for name in ('out-1', 'out-2')] and None")
    listed = stage.table.lookup("out-1"), stage.table.lookup("out-2")
    taker("!entries = os.scandir('.')")
    assert taker("next(entries).name") == "out-1"
    for name in ("out-1", "out-2"):
        maker(f"os.rename({name!r}, {name + '-moved'!r})")
    told = {slot: stage.table.info(slot) for slot in listed if slot is not None}
    assert [bool(info and info.flags & Flag.WARNED) for info in told.values()] == [True, False]


def test_files_that_were_there_are_listed_at_the_end(stage: Stage) -> None:
    (stage.root / "made").mkdir()
    (stage.root / "made" / "old").write_text("")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    make(maker, "new")
    taker.blocks("os.listdir('made')", WaitKind.ENTRY)
    maker.end()
    stage.over("maker")
    assert taker.answer() == ["new", "old"]


LISTINGS = {
    "listdir": "sorted(os.listdir('made'))",
    "fdopendir": "sorted(os.listdir(os.open('made', os.O_RDONLY)))",
    "glob": "sorted(p.split('/')[-1] for p in __import__('glob').glob('made/*'))",
    "walk": "sorted(next(os.walk('made'))[2])",
    "libc glob": "libc_glob(b'made/*')",
    "scandir": "libc_scandir(b'made')",
    "getdents64": "libc_getdents('made')",
    "readdir_r": "libc_readdir_r(b'made')",
    "ftw": "libc_ftw(b'made')",
    "nftw": "libc_nftw(b'made')",
}
LIBC = """
class Glob(ctypes.Structure):
    _fields_ = [('n', ctypes.c_size_t), ('paths', ctypes.POINTER(ctypes.c_char_p)), ('rest', ctypes.c_char * 56)]
def libc_glob(pattern):
    found = Glob()
    call('glob', pattern, 0, None, ctypes.byref(found))
    return sorted(found.paths[i].decode().split('/')[-1] for i in range(found.n))
def name_of(entry):
    return ctypes.string_at(entry + 19).decode()
def libc_scandir(path):
    found = ctypes.POINTER(ctypes.c_void_p)()
    n = call('scandir', path, ctypes.byref(found), None, None)
    return sorted(name for name in (name_of(found[i]) for i in range(n)) if name not in ('.', '..'))
def libc_getdents(path):
    fd, names, room = os.open(path, os.O_RDONLY), [], ctypes.create_string_buffer(1024)
    while (got := call('getdents64', fd, room, 1024)) > 0:
        at = 0
        while at < got:
            names.append(room[at + 19:at + 275].split(b'\\0')[0].decode())
            at += int.from_bytes(room[at + 16:at + 18], 'little')
    return sorted(name for name in names if name not in ('.', '..'))
def libc_readdir_r(path):
    directory, names = ctypes.c_void_p(libc.opendir(path)), []
    room, out = ctypes.create_string_buffer(512), ctypes.c_void_p()
    while call('readdir_r', directory, room, ctypes.byref(out)) == 0 and out.value:
        names.append(name_of(out.value))
    return sorted(name for name in names if name not in ('.', '..'))
def libc_ftw(path):
    names = []
    visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)(
        lambda p, s, k: names.append(p.decode()) or 0)
    call('ftw', path, visit, 8)
    return sorted(name[5:] for name in names if name != 'made')
def libc_nftw(path):
    names = []
    visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda p, s, k, f: names.append(p.decode()) or 0)
    call('nftw', path, visit, 8, 1)
    return sorted(name[5:] for name in names if name != 'made')
"""


@pytest.mark.parametrize("way", LISTINGS)
def test_every_way_to_list_is_complete(stage: Stage, way: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker(f"!{LIBC}")
    maker("os.mkdir('made')")
    make(maker, "c", "a")
    taker.blocks(LISTINGS[way], WaitKind.ENTRY, WaitKind.COMMITTED)
    make(maker, "b")
    maker.end()
    stage.over("maker")
    assert taker.answer() == ["a", "b", "c"]


@pytest.mark.parametrize("way", LISTINGS)
def test_an_entry_that_is_gone_before_it_is_shown_is_no_error(stage: Stage, way: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker(f"!{LIBC}")
    maker("os.mkdir('made')")
    make(maker, "a", "b")
    (stage.root / "made" / "b").unlink()
    maker.end()
    stage.over("maker")
    assert taker(LISTINGS[way]) == ["a"]


def test_a_shell_pattern_waits_for_its_directory(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker("os.mkdir('made')")
    shell = stage.start("taker", ["bash", "-c", "echo made/*"], stdout=-1)
    stage.await_wait(shell.pid, WaitKind.ENTRY)
    make(maker, "x", "y")
    maker.end()
    stage.over("maker")
    assert shell.communicate(timeout=60)[0] == b"made/x made/y\n"


def test_rewinding_and_seeking_in_a_listing(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker(f"!{LIBC}")
    maker("os.mkdir('made')")
    make(maker, "a", "b", "c")
    taker("!d = ctypes.c_void_p(libc.opendir(b'made'))\nlibc.readdir.restype = ctypes.c_void_p")
    taker("!libc.telldir.restype = ctypes.c_long\ndef following(): return name_of(libc.readdir(d))")
    assert [taker("following()") for _ in range(3)] == [".", "..", "a"]
    where = taker("libc.telldir(d)")
    assert taker("following()") == "b"
    taker(f"!libc.seekdir(d, ctypes.c_long({where}))")
    assert taker("following()") == "b"
    taker("!libc.rewinddir(d)")
    assert [taker("following()") for _ in range(4)] == [".", "..", "a", "b"]


def test_a_producer_lists_its_own_directory_at_once(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker("os.mkdir('made')")
    make(maker, "a")
    assert maker("os.listdir('made')") == ["a"]


def test_a_directory_nobody_produces_into_is_plain(stage: Stage) -> None:
    (stage.root / "plain").mkdir()
    (stage.root / "plain" / "file").write_text("")
    assert stage.puppet("taker")("os.listdir('plain')") == ["file"]


def test_a_step_sees_its_own_files_beside_those_it_waited_for(tmp_path: Path) -> None:
    rules = RULES.replace('input = ["out*"', 'output = ["made/mine*"]\ninput = ["out*"')
    with staged(tmp_path / "root", rules) as stage:
        maker = stage.puppet("maker")
        maker("os.mkdir('made')")
        make(maker, "a")
        first = "cat made/a > made/mine.1; echo > made/mine.2; echo made/*"
        taker = stage.start("taker", ["bash", "-c", first], stdout=-1)
        make(maker, "b")
        maker.end()
        stage.over("maker")
        assert taker.communicate(timeout=60)[0] == b"made/a made/b made/mine.1 made/mine.2\n"
