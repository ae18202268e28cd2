"""write and its kin: what is written is published, wherever it lands; closes are counted."""

from __future__ import annotations

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_RDWR|os.O_CREAT|os.O_TRUNC"


@pytest.mark.parametrize(
    "expression",
    [
        "os.write({fd}, b'four')",
        "os.pwrite({fd}, b'four', 0)",
        "os.writev({fd}, [b'fo', b'ur'])",
        "os.pwritev({fd}, [b'fo', b'ur'], 0)",
        "os.pwritev({fd}, [b'fo', b'ur'], 0, 0)",
        "call('dprintf', {fd}, b'four')",
        "call('__dprintf_chk', {fd}, 1, b'four')",
        "call('syscall', 1 if os.uname().machine == 'x86_64' else 64, {fd}, b'four', 4)",
    ],
)
def test_every_spelling_publishes(stage: Stage, expression: str) -> None:
    maker = stage.puppet("maker")
    fd = maker(f"os.open('out', {MAKE})")
    maker(expression.format(fd=fd))
    assert stage.info("out").solid == 4
    assert (stage.root / "out").read_bytes() == b"four"


def test_append_publishes_where_the_bytes_went(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    first = maker(f"os.open('late', {MAKE})")
    second = maker("os.open('late', os.O_WRONLY|os.O_APPEND)")
    maker(f"os.write({first}, b'0123')")
    maker(f"os.write({second}, b'45')")
    maker(f"os.write({second}, b'67')")
    assert stage.info("late").solid == 8
    fd = taker("os.open('late', os.O_RDONLY)")
    assert taker(f"os.read({fd}, 8)") == b"01234567"


def test_what_is_appended_to_was_there(stage: Stage) -> None:
    (stage.root / "late").write_bytes(b"kept")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker("os.open('late', os.O_WRONLY|os.O_APPEND)")
    fd = taker("os.open('late', os.O_RDONLY)")
    assert taker(f"os.read({fd}, 4)") == b"kept"
    maker(f"os.write({out}, b'more')")
    assert taker(f"os.read({fd}, 4)") == b"more"


def test_holes_are_waited_for(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('late', {MAKE})")
    maker(f"os.pwrite({out}, b'tail', 100000)")
    fd = taker("os.open('late', os.O_RDONLY)")
    assert taker(f"os.pread({fd}, 4, 100000)") == b"tail"
    taker.blocks(f"os.read({fd}, 8)", WaitKind.RANGE)
    maker(f"os.pwrite({out}, b'headhead', 0)")
    assert taker.answer() == b"headhead"
    taker.blocks(f"os.pread({fd}, 4, 50000)", WaitKind.RANGE)
    maker.end()
    stage.over("maker")
    assert taker.answer() == b"\0" * 4  # holes that remain at commit are zeros


@pytest.mark.parametrize("grow", ["os.ftruncate({fd}, 4096)", "os.posix_fallocate({fd}, 0, 4096)", "os.fsync({fd})"])
def test_room_that_nobody_wrote_is_not_data(stage: Stage, grow: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    maker(grow.format(fd=out))
    taker.blocks(f"os.read({fd}, 4)", WaitKind.RANGE)
    maker("__import__('time').sleep(0.05)")  # the kernel is asked meanwhile, and is not believed
    assert stage.table.waits()
    maker(f"os.write({out}, b'data')")
    assert taker.answer() == b"data"


def test_ftruncate_shrinks_what_is_known(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('late', {MAKE})")
    maker(f"os.write({out}, b'0123456789')")
    maker(f"os.ftruncate({out}, 3)")
    assert stage.info("late").solid == 3
    maker("os.truncate('late', 1)")
    assert stage.info("late").solid == 1


def test_the_last_close_in_the_process_is_the_close(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    copy = maker(f"os.dup({out})")
    maker(f"os.close({out})")
    assert not stage.has("out", Flag.COMMITTED)
    maker(f"os.close({copy})")
    assert stage.has("out", Flag.COMMITTED)


@pytest.mark.parametrize("how", ["sys.exit(0)", "os._exit(0)", "call('quick_exit', 0)", "call('_Exit', 0)"])
def test_a_process_that_ends_has_closed(stage: Stage, how: str) -> None:
    maker = stage.puppet("maker")
    maker(f"os.write(os.open('out', {MAKE}), b'abc')")
    if how.startswith("sys"):
        assert maker.end() == 0
    else:
        maker.send(how)
        maker.process.wait(60)
    assert stage.has("out", Flag.COMMITTED)
    assert stage.info("out").solid == 3


def test_a_killed_process_has_closed_nothing(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker(f"os.write(os.open('out', {MAKE}), b'abc')")
    maker.process.kill()
    maker.end()
    assert not stage.has("out", Flag.COMMITTED)
    assert stage.info("out").writers == 0


def test_offsets_shared_by_fork_are_published_by_both(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('late', {MAKE})")
    maker(f"os.write({out}, b'parent')")
    maker(f"!pid = os.fork()\nif pid == 0:\n    os.write({out}, b'child')\n    os._exit(0)\nos.waitpid(pid, 0)")
    maker(f"os.write({out}, b'again')")
    assert (stage.root / "late").read_bytes() == b"parentchildagain"
    assert stage.info("late").solid == 16


def _forked(body: str, times: int = 1) -> str:
    """Children that share the maker's descriptions, all at once."""
    return (
        f"!pids = []\nfor number in range({times}):\n    pid = os.fork()\n"
        f"    if pid == 0:\n        {body}\n        os._exit(0)\n"
        "    pids.append(pid)\n[os.waitpid(pid, 0) for pid in pids]"
    )


@pytest.mark.parametrize("last", ["os.close({out})", "os.write({out}, b'parent')", "os.dup2({out}, 1)"])
def test_what_a_child_wrote_is_not_rewritten_by_its_parent(stage: Stage, last: str) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('late', {MAKE})")
    maker(_forked(f"os.write({out}, b'child')"))
    maker(last.format(out=out))
    maker.end()
    assert stage.info("late").solid == (stage.root / "late").stat().st_size
    assert not stage.has("late", Flag.WARNED)


@pytest.mark.parametrize("flags", ["", "|os.O_APPEND"])
def test_children_that_write_at_once_rewrite_nothing(stage: Stage, flags: str) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('late', {MAKE}{flags})")
    maker(_forked(f"[os.write({out}, b'12345678') for _ in range(2000)]", 4))
    assert stage.info("late").solid == 4 * 2000 * 8
    assert not stage.has("late", Flag.WARNED)


def test_a_shared_description_that_goes_back_is_noticed(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('late', {MAKE})")
    maker(_forked(f"os.write({out}, b'child')"))
    maker(f"os.lseek({out}, 2, 0)")
    maker(f"os.write({out}, b'again')")
    assert stage.info("late").solid == 7
    assert stage.has("late", Flag.WARNED)


def test_many_threads_write_one_file(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('late', {MAKE})")
    maker("!import threading")
    maker(
        f"!threads = [threading.Thread(target=lambda: [os.write({out}, b'12345678') for _ in range(500)])"
        " for _ in range(8)]\n[t.start() for t in threads]\n[t.join() for t in threads]"
    )
    assert stage.info("late").solid == 8 * 500 * 8


def test_many_threads_write_many_files(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker("!import threading")
    maker(
        "!def work(n):\n"
        "    for i in range(50):\n"
        "        with open(f'out.{n}.{i}', 'w') as f: f.write('x' * 100)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
        "[t.start() for t in threads]\n[t.join() for t in threads]"
    )
    done = [info for info in stage.table.iterate(Flag.COMMITTED) if info.name.startswith("out.")]
    assert len(done) == 400
    assert {info.solid for info in done} == {100}
    assert {info.writers for info in done} == {0}
