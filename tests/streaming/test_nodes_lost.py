"""Several nodes of which one is lost: who notices, after how long, and what is left in its directory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import eventually
from tests.streaming.several_nodes import Cluster, Node, ended, free_ports, on_loopback, relay

FLOW = """
    name = "lost"
    [[step]]
    name = "make"
    output = ["part-*", "deep/*"]
    [[step.stream]]
    files = ["part-*", "deep/*"]
    commit = "on_close"
    fire = "no_update"
    [[step]]
    name = "read"
    input = ["part-*", "deep/*"]
    [homes]
    create = ["deep/*"]
    [[homes.manual]]
    files = ["part-*"]
    step = "read"
"""


#: longer than a busy machine lets a server wait that is not to be taken for lost
LOST_AFTER = "5s"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Makes two nodes that are gone afterwards."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(on_loopback(tmp_path, 2))


def test_a_link_that_is_cut_is_noticed_after_the_time_that_is_set(start: Callable[[], Cluster]) -> None:
    cluster, cut = start(), False
    listed, real = int(cluster["a"].address.rpartition(":")[2]), free_ports(1)[0]
    with relay(listed, real, lambda node, line: cut):
        cluster.serve(FLOW, listen={"a": f"127.0.0.1:{real}"}, lost_after=LOST_AFTER)
        writer = cluster["a"].program("make", "exec > part-1; /bin/echo something; exec sleep 60")
        reader = cluster["b"].program("read", "cat part-1")
        eventually(lambda: cluster["b"].holds("part-1"))
        cut = True
        told = ended(reader)
        assert "its producer 'make' ran on node a (" in told.err and "which is gone" in told.err
        server = cluster["b"].server
        assert server is not None and ended(server).status == 1
        writer.kill()
        ended(writer)


@pytest.mark.long
def test_a_server_that_is_stopped_for_longer_than_that_takes_nobody_for_lost(start: Callable[[], Cluster]) -> None:
    """It has not heard of the others, who gave it more time than it gives them."""
    cluster = start()
    config = cluster.folder / "flow.toml"
    config.write_text(FLOW)
    for node, lost_after in ((cluster["a"], "60s"), (cluster["b"], LOST_AFTER)):
        node.server = cluster.server_of(node, config, lost_after=lost_after)
    cluster["a"].run("make", "echo first > part-1").expect()
    assert cluster["b"].run("read", "cat part-1").expect().out == "first\n"
    stopped = cluster["b"].server
    assert stopped is not None
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(5.5)  # it is the time itself that is tested
    stopped.send_signal(signal.SIGCONT)
    cluster["a"].run("make", "echo second > part-2").expect()
    eventually(lambda: cluster["b"].holds("part-2"))
    assert cluster["b"].run("read", "cat part-2").expect().out == "second\n"
    for told in cluster.finish().values():
        told.expect()


def _fill_and_kill(cluster: Cluster, *, guarded: bool) -> Node:
    """The second node has a full copy that stays, one that does not, a part of one, and a file of its own."""
    cluster.serve(FLOW)
    node, server = cluster["b"], cluster["b"].server
    (node.work / "own").write_text("of an earlier run")
    make = "mkdir deep; echo kept > part-1; echo here > deep/1; mv deep deeper; mkdir deep; mv deeper/1 deep/2"
    cluster["a"].run("make", f"{make}; ln -s 2 deep/link; head -c 5000000 /dev/zero > deep/3").expect()
    assert node.run("read", "cat part-1 deep/2 deep/link; head -c 1000 deep/3 | wc -c").expect().out == (
        "kept\nhere\nhere\n1000\n"
    )
    eventually(lambda: node.bytes_of("part-1") == b"kept\n")
    assert server is not None
    if not guarded:
        for child in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    server.kill()
    server.communicate()
    return node


def _left(node: Node) -> list[str]:
    """What is in its directory, also while that is tidied up; without the marks by which nodes tell theirs apart."""
    walk = os.walk(node.work)
    found = (os.path.join(folder, name) for folder, folders, files in walk for name in (*folders, *files))
    names = (os.path.relpath(path, node.work) for path in found)
    return sorted(name for name in names if not name.startswith("."))


def test_the_copies_of_a_killed_server_are_removed(start: Callable[[], Cluster]) -> None:
    node = _fill_and_kill(start(), guarded=True)
    eventually(lambda: _left(node) == ["own", "part-1"])
    assert node.bytes_of("own") == b"of an earlier run"
    assert node.bytes_of("part-1") == b"kept\n"


def test_the_next_server_removes_the_copies_of_one_that_was_killed_with_its_guard(
    start: Callable[[], Cluster],
) -> None:
    cluster = start()
    node = _fill_and_kill(cluster, guarded=False)
    (node.work / "other").write_text("of the user")
    (node.work / "other").rename(node.work / "deep/2")
    assert node.holds("deep/3")
    node.server = cluster.server_of(node, cluster.folder / "flow.toml")
    eventually(lambda: _left(node) == ["deep", "deep/2", "own", "part-1"])
    assert node.bytes_of("deep/2") == b"of the user"
