"""Calls that change names: what they change is published, and a consumer's own wait until the file is final."""

from __future__ import annotations

import errno

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"


@pytest.mark.parametrize(
    "rename",
    [
        "os.rename('tmp', 'out')",
        "os.replace('tmp', 'out')",
        "call('renameat', -100, b'tmp', -100, b'out')",
        "call('renameat2', -100, b'tmp', -100, b'out', 0)",
        "os.rename('tmp', 'out', src_dir_fd=os.open('.', 0), dst_dir_fd=os.open('.', 0))",
    ],
)
def test_written_under_another_name_and_renamed(stage: Stage, rename: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("open('out').read()", WaitKind.BORN)
    maker("open('tmp', 'w').write('done') and None")
    maker(rename)
    assert taker.answer() == "done"
    assert stage.has("out", Flag.COMMITTED)


def test_renamed_while_it_is_written(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('tmp', {MAKE})")
    maker(f"os.write({out}, b'one')")
    maker("os.rename('tmp', 'out')")
    fd = taker("os.open('out', os.O_RDONLY)")
    assert taker(f"os.read({fd}, 3)") == b"one"
    taker.blocks(f"os.read({fd}, 3)", WaitKind.RANGE)
    maker(f"os.write({out}, b'two')")
    assert taker.answer() == b"two"
    maker(f"os.close({out})")
    assert taker(f"os.read({fd}, 3)") == b""


def test_a_file_that_comes_from_outside_is_complete(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    outside = stage.root.parent / "outside"
    outside.write_text("ready")
    taker.blocks("open('out').read()", WaitKind.BORN)
    maker(f"os.rename({str(outside)!r}, 'out')")
    assert taker.answer() == "ready"


@pytest.mark.parametrize("link", ["os.link('tmp', 'out')", "os.link('tmp', 'out', follow_symlinks=False)"])
def test_a_hard_link_is_a_birth_with_bytes(stage: Stage, link: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker("open('tmp', 'w').write('same') and None")
    taker.blocks("os.open('out', os.O_RDONLY)", WaitKind.BORN)
    maker(link)
    fd = taker.answer()
    assert taker(f"os.read({fd}, 4)") == b"same"


@pytest.mark.parametrize(
    "change",
    [
        "os.unlink('out')",
        "os.remove('out')",
        "call('remove', b'out')",
        "os.unlink('out', dir_fd=os.open('.', 0))",
        "os.rename('out', 'mine')",
        "os.link('out', 'mine')",
        "os.truncate('out', 1)",
        "call('truncate64', b'out', 1)",
    ],
)
def test_a_consumers_change_waits_until_the_file_is_final(stage: Stage, change: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    taker.blocks(change, WaitKind.COMMITTED)
    maker(f"os.write({out}, b'whole')")
    maker(f"os.close({out})")
    assert taker.answer() in (None, 0)
    if "unlink" in change or "remove" in change:
        assert not (stage.root / "out").exists()


def test_removal_is_published(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker(f"os.close(os.open('out', {MAKE}))")
    maker("os.unlink('out')")
    assert stage.has("out", Flag.REMOVED)
    maker(f"os.write(os.open('out', {MAKE}), b'again')")
    assert stage.has("out", Flag.BORN)
    assert stage.info("out").solid == 5


@pytest.mark.parametrize(
    "make", ["os.mkdir('made')", "os.mkdir('made', dir_fd=os.open('.', 0))", "os.makedirs('made/x')"]
)
def test_a_consumer_waits_for_a_directory(stage: Stage, make: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("os.chdir('made')", WaitKind.BORN)
    maker(make)
    assert taker.answer() is None


def test_a_consumers_mkdir_finds_the_producers_directory(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("os.makedirs('made', exist_ok=True)", WaitKind.BORN)
    maker("os.mkdir('made')")  # fails if the consumer was first
    assert taker.answer() is None
    with pytest.raises(OSError) as caught:
        maker("os.mkdir('made')")
    assert caught.value.errno == errno.EEXIST


def test_a_pipe_in_the_directory_is_the_kernels(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.send("open('out.pipe').read()")
    stage.await_wait(taker.pid, WaitKind.BORN)
    maker("os.mkfifo('out.pipe')")
    maker("open('out.pipe', 'w').write('through')")
    assert taker.answer() == "through"


def test_subdirectories_move_with_their_files(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker("os.makedirs('tmp/a')")
    maker("open('tmp/a/f', 'w').write('deep') and None")
    maker("os.rename('tmp', 'out')")
    assert taker("open('out/a/f').read()") == "deep"


def test_only_names_that_others_may_have_listed_are_missed(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker("os.close(os.open('scratch', os.O_WRONLY|os.O_CREAT))")
    taker("os.remove('scratch')")
    assert not stage.has("scratch", Flag.WARNED)  # nobody comes after the taker
    maker("os.close(os.open('out1', os.O_WRONLY|os.O_CREAT))")
    maker("os.remove('out1')")
    assert stage.has("out1", Flag.WARNED)


@pytest.mark.parametrize("link", ["b'/proc/self/fd/%d' % {fd}, -100, b'out', 0x400", "b'', -100, b'out', 0x1000"])
def test_a_nameless_file_that_got_its_name_is_written_on(stage: Stage, link: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    fd = maker("os.open('.', os.O_TMPFILE|os.O_RDWR, 0o600)")
    maker(f"os.write({fd}, b'first')")
    folder = fd if link.startswith("b''") else -100
    assert maker(f"call('linkat', {folder}, {link.format(fd=fd)})") == 0
    reader = taker("os.open('out', os.O_RDONLY)")
    assert taker(f"os.read({reader}, 5)") == b"first"
    taker.blocks(f"os.read({reader}, 6)", WaitKind.RANGE)
    maker(f"os.write({fd}, b'second')")
    assert taker.answer() == b"second"
    assert not stage.has("out", Flag.COMMITTED)
    maker(f"os.close({fd})")
    assert stage.has("out", Flag.COMMITTED)
