"""Several nodes, and news that come in any order: nobody waits for ever, or reads the bytes of another file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import becomes, eventually
from tests.streaming.several_nodes import Cluster, ended, news_through, on_loopback

FLOW = """
    name = "orders"
    [[step]]
    name = "make"
    instances = 2
    output = ["part-*", "log", "flow"]
    [[step.stream]]
    files = ["part-*"]
    commit = "on_close"
    fire = "no_update"
    [[step.stream]]
    files = ["flow"]
    fire = "no_update"
    [[step]]
    name = "read"
    input = ["part-*", "log", "flow"]
    output = ["told"]
"""
TEXT = "".join(f"{n}\n" for n in range(1, 1001))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Cluster]]:
    """Makes nodes that are gone afterwards."""
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(on_loopback(tmp_path, count))


def until(path: Path) -> str:
    """A line of a script that waits for a file outside of the workflow's directory."""
    return f"while [ ! -e {path} ]; do sleep 0.01; done"


# --- a step and what it makes itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scratch", "log", "flow"])
def test_a_step_does_not_wait_for_its_own_end_on_another_node(
    start: Callable[[int], Cluster], tmp_path: Path, name: str
) -> None:
    """On one node it reads what there is. Others wait for the end, as ever."""
    cluster, more, go, there = start(2).serve(FLOW), tmp_path / "more", tmp_path / "go", tmp_path / "there"
    maker = cluster["a"].program(
        "make:0", f"seq 1000 > {name}; touch {there}; {until(more)}; echo more >> {name}; touch {go}; {until(go)}"
    )
    eventually(lambda: there.exists() and cluster["b"].holds(name))
    reader = cluster["b"].program("read", f"cat {name}")
    own = cluster["b"].program(
        "make:1", f"cat {name}; stat -c %s {name}; touch {more}; {until(go)}; cat {name}; stat -c %s {name}"
    )
    assert ended(own).expect().out == f"{TEXT}{len(TEXT)}\n{TEXT}more\n{len(TEXT) + 5}\n"
    ended(maker).expect()
    assert ended(reader).expect().out == TEXT + "more\n"
    for told in cluster.finish().values():
        told.expect()


def test_a_file_shrinks_for_its_own_step_too(start: Callable[[int], Cluster], tmp_path: Path) -> None:
    cluster, less, go, there = start(2).serve(FLOW), tmp_path / "less", tmp_path / "go", tmp_path / "there"
    maker = cluster["a"].program(
        "make:0", f"seq 1000 > log; touch {there}; {until(less)}; echo less > log; touch {go}; {until(go)}"
    )
    eventually(lambda: there.exists() and cluster["b"].holds("log"))
    own = cluster["b"].program("make:1", f"wc -l < log; touch {less}; {until(go)}; cat log; mv log mine; cat mine")
    assert ended(own).expect().out == "1000\nless\nless\n"
    ended(maker).expect()
    assert cluster["b"].run("read", "cat mine").expect().out == "less\n"


def test_a_step_waits_for_a_close_that_makes_its_own_file_final(
    start: Callable[[int], Cluster], tmp_path: Path
) -> None:
    """A rule that says when a file is final is heeded where that does not depend on the reader."""
    cluster, go = start(2).serve(FLOW), tmp_path / "go"
    maker = cluster["a"].program("make:0", f"exec 3> part-1; {until(go)}; seq 1000 >&3; exec 3>&-; {until(go)}")
    eventually(lambda: cluster["b"].holds("part-1"))
    own = cluster["b"].program("make:1", "cat part-1")
    assert not becomes(lambda: own.poll() is not None, 0.5)
    go.touch()
    assert ended(own).expect().out == TEXT
    ended(maker).expect()


def test_programs_of_no_step_read_what_others_of_them_have_made(start: Callable[[int], Cluster]) -> None:
    cluster = start(2).serve(FLOW)
    cluster["a"].run("late", "seq 1000 > scratch").expect()
    eventually(lambda: cluster["b"].holds("scratch"))
    assert cluster["b"].run("late", "cat scratch").expect().out == TEXT


def test_a_step_reads_on_a_third_node_what_it_has_renamed_on_another(
    start: Callable[[int], Cluster], tmp_path: Path
) -> None:
    """By its new name the file is final when the step that renamed it is over, the reader included."""
    cluster, go = start(3).serve(FLOW), tmp_path / "go"
    cluster["a"].run("make:0", "seq 1000 > part-1").expect()
    cluster["a"].run("make:1", "true").expect()
    eventually(lambda: cluster["b"].holds("part-1"))
    mover = cluster["b"].program("read", f"mv part-1 mine; {until(go)}")
    eventually(lambda: cluster["c"].holds("mine"))
    reader = cluster["c"].program("read", "cat mine; stat -c %s mine")
    becomes(lambda: reader.poll() is not None)
    go.touch()
    ended(mover).expect()
    assert ended(reader).expect().out == f"{TEXT}{len(TEXT)}\n"


# --- names that another node than the maker has changed -------------------------------------------------------------


def test_that_a_file_is_final_may_be_heard_before_its_new_name(start: Callable[[int], Cluster]) -> None:
    """The maker follows a change of names, and tells that the file is final; who has changed it is heard last."""
    cluster, held = start(3), True
    with news_through(cluster, FLOW, lambda node, line: held and node == "c" and b'"moved"' in line, of="b"):
        cluster["a"].run("make", "seq 1000 > part-1").expect()
        assert cluster["c"].run("read", "cat part-1").expect().out == TEXT
        cluster["b"].run("read", "mv part-1 part-2").expect()
        eventually(lambda: cluster["a"].holds("part-2"))
        cluster["a"].run("make", "echo > mark").expect()
        eventually(lambda: cluster["c"].holds("mark"))
        held = False
        eventually(lambda: cluster["c"].holds("part-2"))
        assert cluster["c"].run("late", "cat part-2").expect().out == TEXT


@pytest.mark.parametrize("prefetch", ["", "0"])
def test_who_has_opened_the_file_before_that_reads_to_its_end(
    start: Callable[[int], Cluster], tmp_path: Path, prefetch: str
) -> None:
    cluster, seen, go, held = start(3), tmp_path / "seen", tmp_path / "go", True
    with news_through(
        cluster, FLOW, lambda node, line: held and node == "c" and b'"moved"' in line, of="b", prefetch=prefetch
    ):
        cluster["a"].run("make", "seq 1000 > part-1").expect()
        script = f"exec < part-1; dd bs=2 count=1 status=none; touch {seen}; {until(go)}; exec cat"
        reader = cluster["c"].program("read", script)
        eventually(seen.exists)
        cluster["b"].run("late", "mv part-1 part-2").expect()
        eventually(lambda: cluster["a"].holds("part-2"))
        cluster["a"].run("make", "echo > mark").expect()
        eventually(lambda: cluster["c"].holds("mark"))
        held = False
        eventually(lambda: cluster["c"].holds("part-2"))
        go.touch()
        assert ended(reader).expect().out == TEXT


def test_two_new_names_may_be_heard_before_the_birth_of_the_file(start: Callable[[int], Cluster]) -> None:
    cluster, held = start(3), True
    with news_through(cluster, FLOW, lambda node, line: held and node == "c" and b'"part-1"' in line):
        cluster["a"].run("make", "seq 1000 > part-1").expect()
        eventually(lambda: cluster["b"].holds("part-1"))
        cluster["b"].run("read", "mv part-1 part-2; mv part-2 part-3; echo > told").expect()
        eventually(lambda: cluster["c"].holds("told"))
        held = False
        eventually(lambda: cluster["c"].holds("part-3"))
        assert cluster["c"].run("late", "cat part-3").expect().out == TEXT
        assert not cluster["c"].holds("part-1") and not cluster["c"].holds("part-2")


def test_a_maker_that_has_not_heard_of_the_new_name_serves_no_other_file_by_it(start: Callable[[int], Cluster]) -> None:
    cluster, held = start(3), True
    with news_through(cluster, FLOW, lambda node, line: held and node == "a" and b'"moved"' in line, of="b"):
        cluster["a"].run("make", "echo old > part-2; seq 1000 > part-1").expect()
        cluster["b"].run("read", "cat part-1 part-2 > /dev/null; mv part-1 part-2; echo > told").expect()
        eventually(lambda: cluster["c"].holds("told"))
        reader = cluster["c"].program("late", "cat part-2")
        assert not becomes(lambda: reader.poll() is not None, 0.5)
        held = False
        assert ended(reader).expect().out == TEXT


def test_an_answer_by_an_old_name_that_stands_for_another_file_is_not_taken(
    start: Callable[[int], Cluster], tmp_path: Path
) -> None:
    cluster, opened, made, held = start(2), tmp_path / "opened", tmp_path / "made", True
    with news_through(cluster, FLOW, lambda node, line: held and b'"moved"' in line):
        reader = cluster["b"].program("read", f"exec < part-1; touch {opened}; {until(made)}; exec cat")
        maker = cluster["a"].program(
            "make",
            f"exec 3> part-1; {until(opened)}; mv part-1 part-2; echo another > part-1; touch {made}; seq 1000 >&3",
        )
        ended(maker).expect()
        # By now it has asked, and the answer waits for the news.
        assert not becomes(lambda: reader.poll() is not None, 0.5)
        held = False
        assert ended(reader).expect().out == TEXT
        assert cluster["b"].run("late", "cat part-1").expect().out == "another\n"
