"""Several nodes, the parts that need no second one: homes, lists of nodes, names off the network, what to fetch."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.stream_launch import NodesRequest, Request, launch_serve
from penstock.errors import ConfigError
from penstock.streaming.copies import CopyList, remove_copies
from penstock.streaming.language.workflow import parse_workflow
from penstock.streaming.nodes.fetching import Final, Source
from penstock.streaming.nodes.homes import hashed_node, home_of
from penstock.streaming.nodes.http_wire import HttpError, answer_bytes, read_answer, read_head, request_bytes
from penstock.streaming.nodes.peers import Node, chosen_node, read_nodes, read_token, split_address
from penstock.streaming.nodes.pulling import Pulling
from penstock.streaming.nodes.records import Born, decode, encode, quoted, unquoted
from penstock.streaming.nodes.remote_file import RemoteFile
from penstock.streaming.nodes.replicas import Replicas, is_proper_name
from penstock.streaming.rules.coverage import Rules
from penstock.streaming.table import Table

# --- homes ------------------------------------------------------------------------------------------------------------

DEPLOYMENT = """
    {"name": "deployment",
     "IO_Graph": [
       {"name": "S", "output_stream": ["file1.dat", "file2.dat", "file3.dat", "file5.dat"]},
       {"name": "W", "input_stream": ["file1.dat"], "output_stream": ["file4.dat"]},
       {"name": "X", "input_stream": ["file2.dat", "file4.dat"]},
       {"name": "Z", "input_stream": ["file3.dat"], "output_stream": ["file6.dat"]},
       {"name": "Y", "input_stream": ["file6.dat"], "output_stream": ["file-out.dat"]}],
     "home_node_policy": {
       "create": ["file1.dat"],
       "manual": [
         {"name": ["file2.dat", "file4.dat"], "app_node": "X"},
         {"name": ["file5.dat"], "app_node": "W:1"},
         {"name": ["file3.dat", "file6.dat"], "app_node": "Z"},
         {"name": ["file-out.dat"], "app_node": "Y"}]}}
"""


def test_the_deployment_of_the_language_s_description() -> None:
    rules = Rules(parse_workflow(DEPLOYMENT, "deployment.json"))
    nodes = ("node0", "node1", "node2")
    placed: dict[tuple[str, int | None], str] = {("W", 0): "node0", ("W", 1): "node1", ("W", None): "node0"}
    placed |= {("S", None): "node0", ("X", None): "node1", ("Z", None): "node2", ("Y", None): "node2"}
    homes = {
        name: home_of(name, rules.file(name).home, "node0", nodes, placed)
        for name in ("file1.dat", "file2.dat", "file3.dat", "file4.dat", "file5.dat", "file6.dat", "file-out.dat")
    }
    assert homes == {
        "file1.dat": "node0",
        "file2.dat": "node1",
        "file3.dat": "node2",
        "file4.dat": "node1",
        "file5.dat": "node1",
        "file6.dat": "node2",
        "file-out.dat": "node2",
    }
    # Before W:1 has come, its files are with their maker.
    assert home_of("file5.dat", rules.file("file5.dat").home, "node0", nodes, {}) == "node0"


def test_hashing_agrees_between_processes_and_spreads_names() -> None:
    nodes = ["a", "b", "c"]
    names = [f"tile-{number}" for number in range(300)]
    program = (
        "import sys; from penstock.streaming.nodes.homes import hashed_node;"
        "print(''.join(hashed_node(f'tile-{n}', ['a', 'b', 'c']) for n in range(300)))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    here = "".join(hashed_node(name, nodes) for name in names)
    assert told == {here}
    assert all(60 <= here.count(node) <= 140 for node in nodes)


# --- lists and tokens -------------------------------------------------------------------------------------------------


def test_a_list_of_nodes_in_a_file_or_in_one_line(tmp_path: Path) -> None:
    listed = tmp_path / "nodes"
    listed.write_text("# all of them\nn1 10.0.0.1:7100\n\nn2   # as it is called\nn3 [fe80::1]:80\n")
    expected = (Node("n1", "10.0.0.1", 7100), Node("n2", "n2", 7077), Node("n3", "fe80::1", 80))
    assert read_nodes(str(listed)) == expected
    assert read_nodes("n1=10.0.0.1:7100,n2=n2,n3=[fe80::1]:80") == expected
    assert chosen_node(expected, "n2") == expected[1]


@pytest.mark.parametrize(
    ("given_list", "said"),
    [
        ("a=x:1,a=y:2", "the same name"),
        ("a=x:1,b=x:1", "the same host and port"),
        ("a=x:99999", "not HOST or HOST:PORT"),
        ("a=x:y", "not HOST or HOST:PORT"),
        ("a=x 1 2", "not NAME or NAME HOST:PORT"),
        ("/nowhere", "neither a readable file nor a list"),
    ],
)
def test_a_wrong_list_is_refused(given_list: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_nodes(given_list)


def test_a_node_that_is_not_in_the_list() -> None:
    with pytest.raises(ConfigError, match="--node z is not in the list of nodes: a, b"):
        chosen_node(read_nodes("a=x:1,b=y:1"), "z")
    with pytest.raises(ConfigError, match="say which with --node"):
        chosen_node(read_nodes("a=x:1,b=y:1"), None)
    with pytest.raises(ConfigError, match="--listen: 'here:there'"):
        split_address("here:there", "--listen")


def test_a_token_that_others_could_read_or_guess_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o600)
    assert read_token(str(path)) == "0123456789abcdef"
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(str(path))
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(ConfigError, match="at least 16 characters"):
        read_token(str(path))
    with pytest.raises(ConfigError, match="cannot read the token"):
        read_token(str(tmp_path / "none"))


# --- copies and what is left of them ---------------------------------------------------------------------------------


def test_what_a_killed_server_has_listed_is_removed_unless_it_is_kept_or_another_file(tmp_path: Path) -> None:
    root, listed = tmp_path / "work", str(tmp_path / "copies")
    root.mkdir()
    replicas = Replicas(str(root), CopyList(listed, str(root)))
    for name in ("gone", "kept", "replaced", "folder/moved", "folder/with spaces\n"):
        os.close(replicas.make_placeholder(name, 0o644))
    replicas.make_link("link", "nowhere")
    replicas.keep("kept")
    replicas.rename("folder", "renamed")
    replicas.rename("gone", "gone elsewhere")
    (root / "own").write_text("own")
    os.rename(root / "own", root / "replaced")
    with open(listed, "ab") as file:
        file.write(b"+1 ke")  # killed within an entry
    remove_copies(listed, str(root))
    assert sorted(path.name for path in root.rglob("*")) == ["kept", "replaced"]
    assert not os.path.exists(listed)
    remove_copies(listed, str(root))


# --- names off the network --------------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name))
def test_any_name_survives_the_journey(raw: bytes) -> None:
    name = os.fsdecode(raw)
    record = decode(encode(Born(quoted(name), 0, 1, 0o644)))
    assert isinstance(record, Born) and unquoted(record.name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a\0b"])
def test_improper_names_never_become_paths(name: str, tmp_path: Path) -> None:
    assert not is_proper_name(name)
    with pytest.raises(ValueError):
        Replicas(str(tmp_path)).path(name)


def test_a_link_does_not_lead_out_of_the_directory(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (work / "way").symlink_to(outside)
    (work / "file").symlink_to(outside / "secret")
    replicas = Replicas(str(work))
    for attempt in (replicas.open_for_reading, lambda name: replicas.make_placeholder(name, 0o644)):
        with pytest.raises(ValueError, match="leads out"):
            attempt("way/secret")
    with pytest.raises(OSError):
        replicas.open_for_reading("file")
    os.close(replicas.make_placeholder("file", 0o644))  # takes the place of the link, not of what it leads to
    assert (outside / "secret").read_text() == "secret"


def test_copies_are_cleared_and_what_was_there_before_is_not(tmp_path: Path) -> None:
    (tmp_path / "before").write_text("x")
    replicas = Replicas(str(tmp_path))
    for name in ("one", "deep/er/two", "kept"):
        os.close(replicas.make_placeholder(name, 0o600))
    replicas.make_folder("empty", 0o755)
    replicas.rename("one", "moved")
    replicas.keep("kept")
    replicas.clear()
    assert sorted(os.listdir(tmp_path)) == ["before", "kept"]


# --- what to fetch ----------------------------------------------------------------------------------------------------


class _Bytes(RemoteFile):
    """A remote file without a local copy."""

    def __init__(self) -> None:
        super().__init__("f", 0, "a", -1, 0o644)
        self.descriptors = []


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=8),
    st.integers(0, 70),
    st.integers(1, 30),
    st.none() | st.integers(0, 80),
)
def test_gaps_are_exactly_what_is_missing(
    pieces: list[tuple[int, int]], start: int, length: int, size: int | None
) -> None:
    file = _Bytes()
    here: set[int] = set()
    for at, count in pieces:
        file.have.add(at, at + count)
        here.update(range(at, at + count))
    file.size = size
    end = start + length
    missing = {at for low, high in file.gaps(start, end) for at in range(low, high)}
    assert missing == {at for at in range(start, end if size is None else min(end, size)) if at not in here}
    assert file.complete == (size is not None and here >= set(range(size)))


def test_the_pump_stays_as_far_ahead_as_it_is_told() -> None:
    file = _Bytes()
    file.front, file.position = 100, 200
    assert file.gap_ahead(50) == (100, 250)
    file.have.add(100, 250)
    assert file.gap_ahead(50) is None
    file.position = 230
    assert file.gap_ahead(50) == (250, 280)
    file.size = 260
    assert file.gap_ahead(50) == (250, 260)
    file.whole = True
    assert file.gap_ahead(0) == (0, 100)


def test_what_is_on_its_way_is_not_asked_for_and_what_lies_after_it_once_its_end_is_known() -> None:
    file = _Bytes()
    file.whole = True
    first = file.ask(0, 1)
    assert file.gap_ahead(0) is None
    first.comes_to(100, goes_on=True)
    assert file.gap_ahead(0) == (100, 1 << 62)
    file.have.add(0, 40)
    assert file.gap_ahead(0) == (100, 1 << 62)
    second = file.ask(100, 101)
    assert file.gap_ahead(0) is None
    second.comes_to(150, goes_on=False)  # the end of a file that is final
    assert file.gap_ahead(0) is None
    file.asked.discard(first)  # it broke off
    assert file.gap_ahead(0) == (40, 1 << 62)


class _SlowSource:
    """Another node whose answers begin at once and come to an end when they are told to."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[int, asyncio.Event]] = asyncio.Queue()

    async def fetch(
        self,
        name: str,
        start: int,
        least: int,
        end: int,
        heard: dict[str, str],
        put: Callable[[int, memoryview], None],
        comes_to: Callable[[int, bool], None],
    ) -> tuple[int, Final | None]:
        comes_to(start + 10, True)
        may_end = asyncio.Event()
        self.asked.put_nowait((start, may_end))
        await may_end.wait()
        put(start, memoryview(bytes(10)))
        return start + 10, None


def test_the_next_request_is_made_while_the_last_one_is_answered() -> None:
    async def scenario() -> None:
        source, table = _SlowSource(), MagicMock(spec=Table, code=MagicMock())
        table.waits.return_value = []
        table.info.return_value = None
        sources = [cast(Source, source)]
        pulling = Pulling(table, 0, lambda file: sources, lambda file: None, lambda file, why: None, lambda file: {})
        file = _Bytes()
        pulling.add(file)
        pulling.want_all(file, kept=False)
        (first, first_may_end), (second, _) = await source.asked.get(), await source.asked.get()
        assert (first, second) == (0, 10) and not file.have.ranges
        assert len(file.asked) == 2 and source.asked.empty()
        first_may_end.set()
        third, _ = await source.asked.get()
        assert third == 20 and file.have.ranges == [(0, 10)]
        pulling.close()

    asyncio.run(scenario())


# --- HTTP -------------------------------------------------------------------------------------------------------------


def _reader(text: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(text)
    reader.feed_eof()
    return reader


def test_heads_are_read_as_they_are_written() -> None:
    async def check() -> None:
        reader = _reader(request_bytes("host", "/files/a%20b", "secret", {"Range": "bytes=0-9"}) * 2)
        for _ in range(2):
            head = await read_head(reader)
            assert head is not None
            assert (head.method, head.target) == ("GET", "/files/a%20b")
            assert head.fields["authorization"] == "Bearer secret" and head.fields["range"] == "bytes=0-9"
        assert await read_head(reader) is None
        answer = await read_answer(_reader(answer_bytes(206, {"Content-Length": "5"})))
        assert answer.status == 206 and answer.fields == {"content-length": "5"}

    asyncio.run(check())


@pytest.mark.parametrize(
    "text",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nno field\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nbroken",
        b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_spoken_here_is_refused(text: bytes) -> None:
    async def check() -> None:
        with pytest.raises(HttpError):
            await read_head(_reader(text))

    asyncio.run(check())


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("among", "said"),
    [
        (NodesRequest(node="a"), "name them all with --nodes"),
        (NodesRequest("a=x:1,b=y:1", "z"), "--node z is not in the list of nodes: a, b"),
        (NodesRequest("a=x:1,b=y:1", "a"), "say --token-file FILE"),
        (NodesRequest(lost_after="9s"), "name them all with --nodes"),
        (NodesRequest("a=x:1,b=y:1", "a", lost_after="1s"), "give it 2s at least"),
        (NodesRequest("a=x:1,b=y:1", "a", None, "/nowhere"), "cannot read the token in /nowhere"),
    ],
)
def test_what_is_wrong_with_options_is_said(
    among: NodesRequest, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flow.toml").write_text('name = "f"\n[[step]]\nname = "s"\n')
    request = Request(str(tmp_path / "flow.toml"), str(tmp_path), None, False, None, "30s", False, among)
    assert launch_serve(request) == 2
    assert said in capsys.readouterr().err
