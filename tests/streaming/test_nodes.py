"""Several nodes: files stream from the node that makes them to those that read them, with the bytes of batch order."""

from __future__ import annotations

import hashlib
import http.client
import json
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from tests.own_place import memory_dir
from tests.patience import eventually
from tests.streaming.several_nodes import (
    Cluster,
    ended,
    fetched,
    free_ports,
    in_namespaces,
    namespaces_work,
    on_loopback,
    relay,
)

from penstock.streaming.nodes.homes import hashed_node

Start = Callable[[str, int], Cluster]
_WHERE: dict[str, Callable[[Path, int], AbstractContextManager[Cluster]]] = {
    "loopback": on_loopback,
    "namespaces": in_namespaces,
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Makes nodes that are gone afterwards."""
    with ExitStack() as stack:

        def begin(where: str, count: int) -> Cluster:
            if where == "namespaces" and (reason := namespaces_work()):
                pytest.skip(reason)
            return stack.enter_context(_WHERE[where](tmp_path, count))

        yield begin


#: a step that makes files, and two that read them
FLOW = """
    name = "several"
    [[step]]
    name = "make"
    output = ["part-*", "log"]
    [[step.stream]]
    files = ["part-*"]
    commit = "on_close"
    fire = "no_update"
    [[step]]
    name = "early"
    input = ["part-*"]
    sizes = "so_far"
    [[step]]
    name = "late"
    input = ["part-*", "log"]
"""
POLICIES = {
    "create": '[homes]\ncreate = ["part-*"]\n',
    "hashing": '[homes]\nhashing = ["part-*"]\n',
    "manual": '[[homes.manual]]\nfiles = ["part-*"]\nstep = "late"\n',
}
MAKE = "for i in 1 2 3 4 5 6; do seq $i 200000 > part-$i; done; echo done > log"
READ = "for i in 1 2 3 4 5 6; do sha256sum < part-$i; done"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("where", "count", "policy"),
    [
        ("loopback", 3, "create"),
        ("loopback", 3, "hashing"),
        ("loopback", 3, "manual"),
        ("namespaces", 2, "create"),
        ("namespaces", 2, "manual"),
        ("namespaces", 3, "hashing"),
    ],
)
def test_readers_before_and_after_the_data_get_the_bytes_of_batch(
    start: Start, where: str, count: int, policy: str
) -> None:
    cluster = start(where, count).serve(FLOW + POLICIES[policy])
    last = cluster["b" if count == 2 else "c"]
    early = cluster["b"].program("early", READ)
    made = cluster["a"].run("make", MAKE).expect()
    late = last.run("late", READ + "; cat log").expect()
    expected = "".join(
        hashlib.sha256("".join(f"{n}\n" for n in range(i, 200001)).encode()).hexdigest() + "  -\n" for i in range(1, 7)
    )
    assert ended(early).expect().out == expected, made.err
    assert late.out == expected + "done\n"
    for told in cluster.finish().values():
        told.expect()
    for i in range(1, 7):
        name = f"part-{i}"
        homes = {"create": "a", "hashing": hashed_node(name, list(cluster.nodes)), "manual": last.name}
        holders = {node.name for node in cluster.nodes.values() if node.holds(name)}
        assert holders == {"a", homes[policy]}, name
        for node in holders:
            assert cluster[node].bytes_of(name) == cluster["a"].bytes_of(name)


def test_a_reader_gets_bytes_while_the_file_is_still_written_on_another_node(start: Start, tmp_path: Path) -> None:
    cluster = start("loopback", 2).serve(FLOW)
    seen = tmp_path / "seen"
    reader = cluster["b"].program(
        "early", f"exec < part-1; dd bs=6 count=1 status=none > {seen}.new; mv {seen}.new {seen}; cat"
    )
    writer = cluster["a"].program(
        "make", f"exec > part-1; /bin/echo first; while [ ! -e {seen} ]; do sleep 0.01; done; /bin/echo second"
    )
    ended(writer).expect()
    assert ended(reader).expect().out == "second\n"
    assert seen.read_text() == "first\n"


@pytest.mark.parametrize(("prefetch", "least", "most"), [("0", 1000, 1000), ("1MiB", 1 << 20, (1 << 20) + 5000)])
def test_prefetch_is_how_far_bytes_come_ahead_of_the_reader(start: Start, prefetch: str, least: int, most: int) -> None:
    cluster = start("loopback", 2).serve(FLOW, prefetch=prefetch)
    cluster["a"].run("make", "head -c 8000000 /dev/zero | tr '\\0' x > part-1").expect()
    read = cluster["b"].run("early", "dd if=part-1 bs=1000 count=1 status=none | sha256sum").expect()
    assert read.out.split()[0] == hashlib.sha256(b"x" * 1000).hexdigest()
    eventually(lambda: (cluster["b"].work / "part-1").stat().st_size >= least)
    bytes_fetched, requests = fetched(cluster.finish()["b"])
    assert least <= bytes_fetched <= most
    assert prefetch != "0" or requests == 1


def test_a_file_comes_once_for_all_readers_of_a_node(start: Start) -> None:
    cluster = start("loopback", 2).serve(FLOW)
    readers = [cluster["b"].program("early", "sha256sum < part-1") for _ in range(3)]
    cluster["a"].run("make", "seq 1 300000 > part-1").expect()
    expected = hashlib.sha256(cluster["a"].bytes_of("part-1")).hexdigest() + "  -\n"
    assert [ended(reader).expect().out for reader in readers] == [expected] * 3
    assert cluster["b"].run("late", "sha256sum < part-1").expect().out == expected
    size = len(cluster["a"].bytes_of("part-1"))
    told = cluster.finish()
    assert fetched(told["b"])[0] == size
    assert f"sent {size} bytes" in told["a"].out


def test_a_directory_is_listed_with_the_entries_of_all_nodes(start: Start) -> None:
    cluster = start("loopback", 3).serve("""
        name = "gather"
        [[step]]
        name = "part"
        output = ["parts/*"]
        instances = 2
        [[step.stream]]
        directories = ["parts"]
        commit = "n_files:6"
        fire = "no_update"
        [[step.stream]]
        files = ["parts/*"]
        commit = "on_close"
        [[step]]
        name = "merge"
        input = ["parts/*"]
    """)
    merge = cluster["c"].program("merge", "for f in parts/*; do echo $f $(cat $f); done | sort")
    for node, numbers in (("a", "1 2 3"), ("b", "4 5 6")):
        cluster[node].run("part", f"mkdir -p parts; for i in {numbers}; do echo {node}$i > parts/$i; done").expect()
    assert ended(merge).expect().out == "".join(
        f"parts/{i} {node}{i}\n" for node, numbers in (("a", (1, 2, 3)), ("b", (4, 5, 6))) for i in numbers
    )


def test_a_step_on_two_nodes_is_over_when_it_is_over_on_both(start: Start, tmp_path: Path) -> None:
    cluster = start("loopback", 3).serve("""
        name = "both"
        [[step]]
        name = "make"
        output = ["x-*"]
        instances = 2
        [[step]]
        name = "read"
        input = ["x-*"]
    """)
    go = tmp_path / "go"
    reader = cluster["c"].program("read", f"cat x-a x-b; [ -e {go} ] && echo in order; cat x-none")
    first = cluster["a"].program("make:0", "echo one > x-a")
    second = cluster["b"].program("make:1", f"echo two > x-b; while [ ! -e {go} ]; do sleep 0.01; done")
    ended(first).expect()
    eventually(lambda: cluster["c"].holds("x-b"))
    assert reader.poll() is None
    go.touch()
    ended(second).expect()
    told = ended(reader)
    assert told.out == "one\ntwo\nin order\n"
    assert "x-none: No such file or directory" in told.err


def test_names_sizes_modes_times_and_links_are_those_of_the_maker(start: Start) -> None:
    cluster = start("loopback", 2).serve(FLOW)
    make = """
        echo hello > log.new; chmod 640 log.new; touch -d 2020-02-02 log.new; mv log.new log
        mkdir deep; head -c 100000 /dev/zero > 'deep/part-ä b'; ln -s 'part-ä b' deep/link; : > part-empty
        echo gone > scratch; rm scratch
    """
    look = "stat -c '%n %s %a %Y' log; ls; ls deep; wc -c < 'deep/part-ä b'; wc -c < deep/link; cat part-empty"
    maker = cluster["a"].run("make", make).expect()
    eventually(lambda: cluster["b"].holds("part-empty") and not cluster["b"].holds("scratch"))
    there = cluster["b"].run("late", look).expect()
    here = cluster["a"].run("late", look).expect()
    assert there.out == here.out, maker.err
    assert "log 6 640 1580" in there.out


@pytest.mark.one_in(2)
@pytest.mark.parametrize("where", ["loopback", "namespaces"])
def test_a_node_that_is_killed_is_named_to_its_readers_and_the_others_end(start: Start, where: str) -> None:
    cluster = start(where, 3).serve(FLOW, lost_after="")
    writer = cluster["a"].program("make", "exec > part-1; /bin/echo something; exec sleep 60")
    reader = cluster["b"].program("late", "cat part-1")
    other = cluster["c"].program("early", "cat part-7")
    eventually(lambda: cluster["b"].holds("part-1") and cluster["c"].holds("part-1"))
    server = cluster["a"].server
    assert server is not None
    server.kill()
    told = ended(reader)
    assert told.status != 0
    assert "'part-1' is not complete and never will be: its producer 'make' ran on node a (" in told.err
    assert "which is gone" in told.err
    assert ended(other).status != 0
    for name in ("b", "c"):
        process = cluster[name].server
        assert process is not None
        end = ended(process)
        assert end.status == 1
        assert "node a (" in end.err and "is gone; the workflow cannot go on without it" in end.err
        assert not cluster[name].holds("part-1")
    writer.send_signal(signal.SIGKILL)
    ended(writer)
    server.communicate()
    # What a killed server leaves is removed by the next one; here there is none.
    for left in cluster["a"].runtime.glob("*/stream-*/server.json"):
        _remove_remains(left)


def _remove_remains(state: Path) -> None:
    memory = json.loads(state.read_text())["memory"]
    assert memory.startswith(f"{memory_dir()}/penstock-")
    shutil.rmtree(memory)


def test_a_producer_that_fails_is_told_to_readers_elsewhere(start: Start) -> None:
    cluster = start("loopback", 2).serve(FLOW)
    reader = cluster["b"].program("late", "cat log")
    node = cluster["a"]
    assert node.table
    command = [sys.executable, "-m", "penstock.cli", "stream", "exec", "--app", "make", "--"]
    writer = node.start([*command, "bash", "-c", "echo half > log; exit 3"])
    assert ended(writer).status == 3
    told = ended(reader)
    assert told.status != 0
    assert "its producer 'make' exited with status 3 on node a" in told.err


def test_what_a_node_delivers_before_it_leaves_is_not_missed_by_another(start: Start) -> None:
    """The other has a placeholder of the file, whose bytes nobody there asked for."""
    cluster = start("loopback", 2).serve('permanent = ["part-*"]' + FLOW, memory=True)
    cluster["a"].run("make", "echo kept > part-1").expect()
    maker, other = cluster["a"].server, cluster["b"].server
    assert maker is not None and other is not None and cluster["b"].table
    cluster["b"].run("another", "test -r part-1").expect()
    maker.send_signal(signal.SIGTERM)
    ended(maker).expect()
    assert cluster["a"].bytes_of("part-1") == b"kept\n"
    told = cluster.finish()["b"]
    assert "not brought home" not in told.out + told.err
    assert not cluster["b"].holds("part-1")


def test_permanent_files_in_memory_are_delivered_by_their_home(start: Start) -> None:
    cluster = start("loopback", 2).serve(
        json.dumps(
            {
                "name": "kept",
                "IO_Graph": [
                    {"name": "make", "output_stream": ["big", "small"], "streaming": [{"name": ["big", "small"]}]},
                    {"name": "use", "input_stream": ["big", "small"]},
                ],
                "permanent": ["big"],
                "home_node_policy": {"manual": [{"name": ["big"], "app_node": "use"}]},
            }
        ),
        form="json",
        memory=True,
    )
    use = cluster["b"].program("use", "cat big small | sha256sum")
    cluster["a"].run("make", "seq 100000 > big; echo x > small").expect()
    text = "".join(f"{n}\n" for n in range(1, 100001)).encode()
    assert ended(use).expect().out.split()[0] == hashlib.sha256(text + b"x\n").hexdigest()
    for told in cluster.finish().values():
        told.expect()
    for node in cluster.nodes.values():
        assert node.bytes_of("big") == text
        assert not node.holds("small")


# --- who may ask, and for what ----------------------------------------------------------------------------------------


def _get(cluster: Cluster, path: str, token: str | None = None, span: str = "bytes=0-99") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(cluster["a"].address, timeout=60)
    given = cluster.token.read_text() if token is None else token
    try:
        connection.putrequest("GET", path, skip_accept_encoding=True)
        connection.putheader("Authorization", f"Bearer {given}")
        connection.putheader("Range", span)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_only_files_of_the_workflow_are_served_and_only_with_the_token(start: Start) -> None:
    cluster = start("loopback", 1).serve(FLOW)
    (cluster["a"].work / "own").write_text("not of the workflow")
    cluster["a"].run("make", "echo something > part-1; ln -s /etc/passwd part-2; mkdir part-3").expect()
    eventually(lambda: _get(cluster, "/files/part-1")[0] == 206)
    assert _get(cluster, "/files/part-1") == (206, b"something\n")
    assert _get(cluster, "/files/part-1", span="bytes=4-6") == (206, b"thi")
    assert _get(cluster, "/files/part-1", span="bytes=10-20")[0] == 416
    assert _get(cluster, "/files/part-1", token="wrong" * 8)[0] == 401
    assert _get(cluster, "/feed", token="")[0] == 401
    for path in (
        *("/files/own", "/files/part-2", "/files/part-3", "/files/part-9", "/files/.", "/files/", "/other"),
        *("/files/../../etc/passwd", "/files/%2e%2e/%2e%2e/etc/passwd", "/files//etc/passwd", "/files/%2fetc%2fpasswd"),
        *("/files/part-1%00", "/files/./part-1", "/files/part-3/../part-1"),
    ):
        assert _get(cluster, path)[0] == 404, path
    for span in ("", "bytes=-5", "bytes=5-1", "bytes=a-b", "lines=0-5"):
        assert _get(cluster, "/files/part-1", span=span)[0] == 400, span
    cluster.finish()["a"].expect()


def test_nodes_that_do_not_agree_do_not_start(start: Start) -> None:
    cluster = start("loopback", 2).serve(FLOW)
    assert cluster["a"].table and cluster["b"].table
    cluster.finish()
    one, other = cluster.nodes.values()
    config = cluster.folder / "flow.toml"
    one.server = cluster.server_of(one, config)
    changed = cluster.folder / "changed.toml"
    changed.write_text(config.read_text().replace("on_close", "on_termination"))
    other.server = cluster.server_of(other, changed)
    for node in (one, other):
        told = ended(node.server)
        assert told.status == 1
        assert "serves another coordination file" in told.err


def test_nodes_that_share_a_directory_do_not_start_and_touch_nothing(start: Start) -> None:
    cluster = start("loopback", 2)
    one, other = cluster.nodes.values()
    (one.work / "part-1").write_text("of an earlier run")
    other.work = one.work
    cluster.serve(FLOW)
    for node in (one, other):
        assert node.server is not None
        told = ended(node.server)
        assert told.status == 1
        assert "uses the same directory as" in told.err
    assert [path.name for path in one.work.iterdir()] == ["part-1"]
    assert one.bytes_of("part-1") == b"of an earlier run"


def test_on_file_waits_for_a_file_of_another_node(start: Start) -> None:
    cluster = start("loopback", 2).serve("""
        name = "chain"
        [[step]]
        name = "first"
        output = ["mark"]
        [[step.stream]]
        files = ["mark"]
        commit = "on_close"
        [[step]]
        name = "second"
        output = ["data"]
        [[step.stream]]
        files = ["data"]
        commit = "on_file"
        after = ["mark"]
        [[step]]
        name = "read"
        input = ["data"]
    """)
    writer = cluster["b"].program("second", "echo half > data; echo all > data; exec sleep 60")
    reader = cluster["b"].program("read", "cat data")
    eventually(lambda: cluster["a"].holds("data"))
    assert reader.poll() is None
    cluster["a"].run("first", "echo now > mark").expect()
    try:
        assert ended(reader).expect().out == "all\n"
    finally:
        writer.kill()
        ended(writer)


def test_a_file_that_two_nodes_write_ends_the_workflow_with_both_names(start: Start) -> None:
    cluster = start("loopback", 2).serve(FLOW.replace('name = "make"', 'name = "make"\n    instances = 2'))
    cluster["a"].run("make:0", "echo one > part-1").expect()
    eventually(lambda: cluster["b"].holds("part-1"))
    cluster["b"].run("make:1", "echo two >> part-1")
    server = cluster["b"].server
    assert server is not None
    told = ended(server)
    assert told.status == 1
    assert "part-1 is written on two nodes, a and b; its writers have to run on one" in told.err


def test_a_copy_that_does_not_fit_is_told_to_its_reader(start: Start) -> None:
    """Ended by the limit on the size of files, as a full disk would."""
    cluster = start("loopback", 2).serve(FLOW)
    server = cluster["b"].server
    assert cluster["b"].table and server is not None
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    reader = cluster["b"].program("early", "cat part-1 | wc -c")
    cluster["a"].run("make", "head -c 3000000 /dev/zero > part-1").expect()
    told = ended(reader)
    assert "its producer 'make' made it, but it cannot be stored on this node: File too large" in told.err


def test_ranges_written_in_any_order_are_read_in_any_order(start: Start, tmp_path: Path) -> None:
    """Parallel writers fill a file from all sides; readers elsewhere take its ranges in orders of their own."""
    cluster = start("loopback", 2).serve(FLOW, prefetch="100000B")
    write = """
        import os, random, sys
        blocks = list(range(400)); random.Random(1).shuffle(blocks)
        fd = os.open("part-1", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for block in blocks:
            os.pwrite(fd, (b"%07d\\n" % block) * 500, block * 4000)
        os.close(fd)
    """
    read = """
        import os, random, sys
        blocks = list(range(400)); random.Random(int(sys.argv[1])).shuffle(blocks)
        fd = os.open("part-1", os.O_RDONLY)
        for block in blocks:
            got = os.pread(fd, 4000, block * 4000)
            assert got == (b"%07d\\n" % block) * 500, (block, len(got), got[:20])
        assert os.pread(fd, 10, 1600000) == b""
        print(os.fstat(fd).st_size)
    """
    for name, text in (("write.py", write), ("read.py", read)):
        (tmp_path / name).write_text(textwrap.dedent(text).replace("\\\\", "\\"))
    readers = [cluster["b"].program("early", f"{sys.executable} {tmp_path}/read.py {seed}") for seed in (2, 3)]
    cluster["a"].run("make", f"{sys.executable} {tmp_path}/write.py").expect()
    for reader in readers:
        assert ended(reader).expect().out == "1600000\n"


#: a reader that says that it is there, and reads once it is told to
LATE = "touch {here}; while [ ! -e {go} ]; do sleep 0.01; done; cat part-1 log"


def test_a_server_that_is_asked_to_end_serves_others_until_they_are_done(start: Start, tmp_path: Path) -> None:
    cluster = start("loopback", 2).serve(FLOW)
    here, go = tmp_path / "here", tmp_path / "go"
    reader = cluster["b"].program("late", LATE.format(here=here, go=go))
    eventually(here.exists)
    cluster["a"].run("make", "seq 500000 > part-1; echo done > log").expect()
    eventually(lambda: cluster["b"].holds("log"))
    first, second = cluster["a"].server, cluster["b"].server
    assert first is not None and second is not None
    first.send_signal(signal.SIGTERM)
    go.touch()
    assert ended(reader).expect().out == "".join(f"{n}\n" for n in range(1, 500001)) + "done\n"
    ended(first).expect()
    assert second.poll() is None
    cluster.finish()["b"].expect()


def test_a_server_that_is_asked_to_end_asks_those_who_have_not_said_yet_what_they_need(
    start: Start, tmp_path: Path
) -> None:
    """The reader comes while its server does not get to run, as on a busy machine."""
    cluster = start("loopback", 2).serve(FLOW)
    here, go = tmp_path / "here", tmp_path / "go"
    cluster["a"].run("make", "seq 500000 > part-1; echo done > log").expect()
    eventually(lambda: cluster["b"].holds("log"))
    first, second = cluster["a"].server, cluster["b"].server
    assert first is not None and second is not None
    second.send_signal(signal.SIGSTOP)
    reader = cluster["b"].program("late", LATE.format(here=here, go=go))
    eventually(here.exists)
    first.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(1)
    second.send_signal(signal.SIGCONT)
    go.touch()
    assert ended(reader).expect().out == "".join(f"{n}\n" for n in range(1, 500001)) + "done\n"
    ended(first).expect()
    cluster.finish()["b"].expect()


def test_a_server_that_is_asked_to_end_waits_for_those_who_know_it_before_it_knows_them(
    start: Start, tmp_path: Path
) -> None:
    """One follows the other, which has not reached it yet."""
    cluster = start("loopback", 2)
    listed, real = int(cluster["b"].address.rpartition(":")[2]), free_ports(1)[0]
    cluster.serve(FLOW, listen={"b": f"127.0.0.1:{real}"})
    here, go = tmp_path / "here", tmp_path / "go"
    reader = cluster["b"].program("late", LATE.format(here=here, go=go))
    eventually(here.exists)
    cluster["a"].run("make", "seq 500000 > part-1; echo done > log").expect()
    eventually(lambda: cluster["b"].holds("log"))
    first = cluster["a"].server
    assert first is not None
    first.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(1)
    with relay(listed, real):
        go.touch()
        assert ended(reader).expect().out == "".join(f"{n}\n" for n in range(1, 500001)) + "done\n"
        ended(first).expect()
        cluster.finish()["b"].expect()
