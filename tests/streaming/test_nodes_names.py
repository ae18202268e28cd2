"""Several nodes, and files that get their names late: what is read elsewhere are the bytes of the file, by any name."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import becomes, eventually
from tests.streaming.several_nodes import Cluster, ended, fetched, news_through, on_loopback

FLOW = """
    name = "names"
    [[step]]
    name = "make"
    output = ["part-*", "log", "parts/*"]
    [[step.stream]]
    files = ["part-*", "parts/*"]
    commit = "on_close"
    fire = "no_update"
    [[step]]
    name = "read"
    input = ["part-*", "log", "parts/*"]
"""
TEXT = "".join(f"{n}\n" for n in range(1, 1001))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Makes two nodes that are gone afterwards."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(on_loopback(tmp_path, 2))


def test_who_opens_a_file_before_its_new_name_has_come_all_the_way_reads_all_of_it(
    start: Callable[[], Cluster], tmp_path: Path
) -> None:
    """Whatever is told of the new name before the change of names must not be taken for a file of its own."""
    cluster, opened = start(), tmp_path / "opened"

    def holds_back(node: str, line: bytes) -> bool:
        if b'"moved"' in line:
            becomes(opened.exists, 1)
        return False

    with news_through(cluster, FLOW, holds_back):
        reader = cluster["b"].program("read", f"exec < part-1; touch {opened}; cat")
        cluster["a"].run("make", "seq 1000 > new; mv new part-1").expect()
        assert ended(reader).expect().out == TEXT
        assert cluster["b"].run("read", "wc -l < part-1").expect().out == "1000\n"


def test_what_is_fetched_by_the_old_name_comes_by_the_new_one(start: Callable[[], Cluster], tmp_path: Path) -> None:
    """The file has its new name where it is made, but the reader's node has not heard of it yet."""
    cluster, seen, go = start(), tmp_path / "seen", tmp_path / "go"

    with news_through(cluster, FLOW, lambda node, line: b'"moved"' in line and not go.exists()):
        reader = cluster["b"].program("read", f"exec < part-1; dd bs=6 count=1 status=none; touch {seen}; cat")
        writer = cluster["a"].program(
            "make",
            f"exec > part-1; /bin/echo first; while [ ! -e {seen} ]; do sleep 0.01; done; mv part-1 part-2; seq 1000",
        )
        ended(writer).expect()
        assert not becomes(lambda: reader.poll() is not None, 0.5)
        go.touch()
        assert ended(reader).expect().out == "first\n" + TEXT


#: how a file gets its name: a script of the maker, and of the reader, who prints `text`
WAYS = {
    "rename": ("seq 1000 > new; mv new part-1", "cat part-1"),
    "rename of what shows when it is final": ("seq 1000 > new; mv new log", "cat log"),
    "rename twice": ("seq 1000 > new; mv new newer; mv newer part-1", "cat part-1"),
    "rename of a final file": ("seq 1000 > part-0; mv part-0 part-1", "cat part-1"),
    "rename, cut before": ("seq 2000 > new; : > new; seq 1000 >> new; mv new part-1", "cat part-1"),
    "rename over another": ("exec 3> log; seq 1000 > new; mv new log", "cat log"),
    "exchange": ("exec 3> log; seq 1000 > new; {exchange} new log", "cat log"),
    "removal and rename": ("echo old > log; rm log; seq 1000 > new; mv new log", "cat log"),
    "hard link": ("seq 1000 > new; ln new part-1; rm new", "cat part-1"),
    "symbolic link": ("seq 1000 > part-0; ln -s part-0 new; mv new part-1", "cat part-1"),
    "symbolic link over another": (
        "seq 1000 > part-0; ln -s . part-1; ln -s part-0 new; mv -T new part-1",
        "cat part-1",
    ),
    "directory": ("mkdir new; seq 1000 > new/1; mv new parts", "cat parts/1"),
    "directory, listed": ("mkdir new; seq 1000 > new/1; mv new parts", "cat parts/*"),
    "directory in a directory": ("mkdir -p new/deep; seq 1000 > new/deep/1; mv new parts", "cat parts/deep/1"),
    "size": ("seq 1000 > new; mv new part-1", "[ $(stat -c %s part-1) = 3893 ] && seq 1000"),
}
EXCHANGE = """
import ctypes, sys
raise SystemExit(-ctypes.CDLL(None).renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2))
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", WAYS)
def test_a_reader_who_waits_gets_the_file_however_it_gets_its_name(
    start: Callable[[], Cluster], tmp_path: Path, way: str
) -> None:
    """The maker is done before its server has looked, so that all is told at once."""
    make, read = WAYS[way]
    (tmp_path / "exchange.py").write_text(EXCHANGE)
    make = make.replace("{exchange}", f"{sys.executable} {tmp_path}/exchange.py")
    cluster = start().serve(FLOW)
    first = cluster["a"].server
    assert cluster["a"].table and first is not None
    reader = cluster["b"].program("read", read)
    first.send_signal(signal.SIGSTOP)
    try:
        cluster["a"].run("make", make).expect()
    finally:
        first.send_signal(signal.SIGCONT)
    assert ended(reader).expect().out == TEXT
    assert cluster["b"].run("read", read).expect().out == TEXT
    for told in cluster.finish().values():
        told.expect()


def test_a_final_file_that_is_replaced_is_read_old_or_new_and_never_empty(start: Callable[[], Cluster]) -> None:
    cluster = start().serve(FLOW)
    cluster["a"].run("make", "echo old > part-1").expect()
    assert cluster["b"].run("read", "cat part-1").expect().out == "old\n"
    for new in ("newer\n", "and newer again\n"):
        cluster["a"].run("make", f"echo -n '{new}' > new; mv new part-1").expect()
        seen = {"old\n", "newer\n"}
        eventually(lambda: seen.add(cluster["b"].run("read", "cat part-1").expect().out) or new in seen)  # noqa: B023
        assert seen <= {"old\n", "newer\n", new}


def test_a_file_that_is_removed_and_made_again_is_read_old_or_new(start: Callable[[], Cluster]) -> None:
    cluster = start().serve(FLOW)
    cluster["a"].run("make", "echo old > part-1").expect()
    assert cluster["b"].run("read", "cat part-1").expect().out == "old\n"
    cluster["a"].run("make", "rm part-1; seq 1000 > part-1").expect()
    seen: set[str] = set()
    eventually(lambda: seen.add(cluster["b"].run("read", "cat part-1 || echo gone").expect().out) or TEXT in seen)
    assert seen <= {"old\n", "gone\n", TEXT}


def test_who_has_opened_a_file_that_never_came_reads_the_one_in_its_place(
    start: Callable[[], Cluster], tmp_path: Path
) -> None:
    cluster, opened = start().serve(FLOW), tmp_path / "opened"
    reader = cluster["b"].program("read", f"exec < part-1; touch {opened}; cat")
    cluster["a"].run(
        "make", f"exec 3> part-1; while [ ! -e {opened} ]; do sleep 0.01; done; seq 1000 > new; mv new part-1"
    ).expect()
    assert ended(reader).expect().out == TEXT


def test_a_complete_copy_that_gets_another_name_does_not_come_again(start: Callable[[], Cluster]) -> None:
    cluster = start().serve(FLOW)
    cluster["a"].run("make", "seq 1000 > part-1").expect()
    assert cluster["b"].run("read", "cat part-1").expect().out == TEXT
    cluster["a"].run("make", "mv part-1 part-2").expect()
    eventually(lambda: cluster["b"].holds("part-2"))  # the step was over before: nobody waits for it any more
    assert cluster["b"].run("read", "cat part-2").expect().out == TEXT
    assert fetched(cluster.finish()["b"]) == (len(TEXT), 1)
    assert cluster["a"].bytes_of("part-2") == TEXT.encode()
    assert not cluster["b"].holds("part-2")


def test_a_reader_may_rename_what_it_has_read(start: Callable[[], Cluster]) -> None:
    cluster = start().serve(FLOW)
    cluster["a"].run("make", "seq 1000 > part-1").expect()
    assert cluster["b"].run("read", "cat part-1; mv part-1 mine; cat mine").expect().out == TEXT + TEXT
    eventually(lambda: cluster["a"].holds("mine"))
    for told in cluster.finish().values():
        told.expect()
    assert cluster["a"].bytes_of("mine") == TEXT.encode()
    assert not cluster["a"].holds("part-1") and not cluster["b"].holds("mine")


def test_a_reader_may_put_a_file_of_its_own_in_the_place_of_one_that_it_removes(start: Callable[[], Cluster]) -> None:
    cluster = start().serve(FLOW)
    cluster["a"].run("make", "echo theirs > scratch").expect()
    eventually(lambda: cluster["b"].holds("scratch"))
    assert cluster["b"].run("read", "cat scratch; rm scratch; seq 1000 > scratch").expect().out == "theirs\n"
    seen: set[str] = set()
    eventually(lambda: seen.add(cluster["a"].run("late", "cat scratch || echo gone").expect().out) or TEXT in seen)
    assert seen <= {"theirs\n", "gone\n", TEXT}
    for told in cluster.finish().values():
        told.expect()
    assert cluster["b"].bytes_of("scratch") == TEXT.encode()
    assert not cluster["a"].holds("scratch")


def test_a_new_name_that_is_heard_before_the_birth_of_the_file_counts_all_the_same(tmp_path: Path) -> None:
    """One node makes a file, another one renames it, and a third hears of that first."""
    held = True
    with (
        on_loopback(tmp_path, 3) as cluster,
        news_through(cluster, FLOW, lambda node, line: held and node == "c" and b'"part-1"' in line),
    ):
        cluster["a"].run("make", "seq 1000 > part-1").expect()
        eventually(lambda: cluster["b"].holds("part-1"))
        cluster["b"].run("read", "mv part-1 mine; echo > told").expect()
        eventually(lambda: cluster["c"].holds("told"))
        held = False
        eventually(lambda: cluster["c"].holds("mine"))
        assert not cluster["c"].holds("part-1")
        assert cluster["c"].run("read", "cat mine").expect().out == TEXT


def test_a_directory_that_is_renamed_joins_that_of_another_node(start: Callable[[], Cluster]) -> None:
    flow = FLOW.replace('name = "make"', 'name = "make"\n    instances = 2', 1)
    cluster = start()
    held = True
    with news_through(cluster, flow, lambda node, line: held and b'"moved"' in line):
        cluster["a"].run("make:0", "mkdir new; seq 1000 > new/a; mv new parts").expect()
        cluster["b"].run("make:1", "mkdir parts; echo b > parts/b").expect()
        held = False
        eventually(lambda: cluster["a"].holds("parts/b") and cluster["b"].holds("parts/a"))
        assert cluster["b"].run("read", "cat parts/b parts/a").expect().out == "b\n" + TEXT
        assert cluster["a"].run("read", "cat parts/b parts/a").expect().out == "b\n" + TEXT
        for told in cluster.finish().values():
            told.expect()
