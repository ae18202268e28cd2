"""``penstock stream status``, the bars of ``run``; ``exec`` and ``serve``; ``doctor PROGRAM``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.patience import eventually
from tests.streaming.flows import EXPECTED, PAIR, Ended, Flow, once

from penstock.cli.stream_view import edge_table, status_tables, summary_lines
from penstock.streaming.flow import EdgeStatus
from penstock.streaming.status import FileStatus, Status, StepStatus


def ask(flow: Flow, *arguments: str) -> Ended:
    return flow.ended(flow.start("status", *arguments))


def test_without_a_workflow_it_says_so(flow: Flow) -> None:
    assert "no workflow streams now" in ask(flow).expect(1).out


def test_status_shows_steps_files_bytes_and_waits(flow: Flow) -> None:
    command = "PYTHON producer.py out.txt 20 0; while [ ! -e go ]; do sleep 0.05; done"
    toml = PAIR.replace("PYTHON producer.py out.txt 20 0.01", command)
    flow.toml(toml.replace('"on_close"', '"on_termination"'))
    process = flow.start("run", "flow.toml")
    eventually(lambda: (flow.folder / "copy.txt").exists())
    try:

        def waits() -> bool:
            ended = ask(flow, "--json")
            return ended.status == 0 and bool(json.loads(ended.out)["waits"])

        eventually(waits)
        status = json.loads(ask(flow, "pair", "--json").expect().out)
        assert {step["name"]: step["state"] for step in status["steps"]} == {"make": "runs", "copy": "runs"}
        assert all(step["processes"] for step in status["steps"])
        waits = {step["name"]: step["waits"] for step in status["steps"]}
        assert not waits["make"] and "out.txt" in waits["copy"][0]
        files = {file["name"]: file for file in status["files"]}
        assert files["out.txt"]["written"] == len(EXPECTED) and files["out.txt"]["producers"] == ["make"]
        (edge,) = status["edges"]
        assert (edge["producer"], edge["consumer"], edge["written"]) == ("make", "copy", len(EXPECTED))
        text = ask(flow).expect().out
        for word in ("pair", "in place", "make", "copy", "out.txt", "has waited", "on_termination / no_update"):
            assert word in text
        assert ask(flow, "another").status == 1
    finally:
        (flow.folder / "go").touch()
        flow.ended(process).expect()


def test_watching_ends_with_the_workflow(flow: Flow, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    flow.toml(PAIR.replace("out.txt 20 0.01", f"out.txt 20 0; {once(seen)}"))
    process = flow.start("run", "flow.toml")
    eventually(lambda: ask(flow, "--json").status == 0)
    watch = flow.start("status", "--watch")
    assert watch.stdout is not None and any("make → copy" in line for line in watch.stdout)
    seen.touch()
    flow.ended(watch).expect()
    flow.ended(process).expect()


STATUS = Status(
    name="weather",
    root="/work",
    placement="in memory",
    pid=7,
    elapsed=65.0,
    steps=[
        StepStatus("simulate", "runs", [11, 12]),
        StepStatus("plot", "failed", [], "was killed by SIGSEGV", ["wrfout_3 to be made, 12s"]),
    ],
    edges=[EdgeStatus("simulate", "plot", files=3, written=40_000_000, read=10_000_000)],
    files=[
        FileStatus("wrfout_1", ["simulate"], 30_000_000, 10_000_000, True, 0, 0, "on_close / update"),
        FileStatus("wrfout_2 [bold]", ["simulate"], 10_000_000, 0, False, 1, 2),
    ],
    born=30,
    committed=1,
    written=40_000_000,
    in_flight=30_000_000,
)


def drawn(*tables: object) -> str:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))
    with console.capture() as capture:
        for table in tables:
            console.print(table)
    console.file.close()
    return capture.get()


def test_each_edge_has_a_bar() -> None:
    text = drawn(edge_table(STATUS))
    assert "simulate → plot" in text and "━" in text
    assert "40 MB written" in text and "10 MB read" in text and "3 files" in text
    assert "30 MB in flight" in text and "1 of 30 files final" in text


def test_the_bars_of_the_end_are_plain_text() -> None:
    assert summary_lines(STATUS, None) == [
        "penstock: weather: 2 steps in 1m 05s, 30 files of 40 MB",
        f"  simulate → plot  {'━' * 6}{'╌' * 18}  10 MB of 40 MB read, 3 files",
    ]


def test_an_edge_on_which_nothing_flowed_has_an_empty_bar() -> None:
    status = msgspec.structs.replace(STATUS, edges=[EdgeStatus("a", "b", files=1)])
    assert summary_lines(status, None)[1] == f"  a → b  {'╌' * 24}  0 B of 0 B read, 1 file"


def test_tables_show_names_as_they_are_and_count_what_they_leave_out() -> None:
    text = drawn(*status_tables(STATUS, most=2))
    assert "failed was killed by SIGSEGV" in text and "wrfout_3 to be made, 12s" in text
    assert "wrfout_2 [bold]" in text and "written to, 2 waiting" in text
    assert "and 28 more" in text


def test_bars_are_drawn_on_a_terminal(flow: Flow) -> None:
    import os
    import pty

    flow.toml(PAIR.replace("20 0.01", "20 0.1"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "stream", "run", "flow.toml"],
        cwd=flow.folder,
        env={**flow.environment, "TERM": "xterm-256color"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    assert process.wait(60) == 0
    assert b"make" in text and "→".encode() in text and b"read" in text


# --- serve and exec ---------------------------------------------------------------------------------------------------


def test_programs_started_by_a_script(flow: Flow) -> None:
    flow.toml(PAIR)
    server = flow.start("serve", "flow.toml")
    copy = flow.start("exec", "--app", "copy", "--", sys.executable, "consumer.py", "out.txt", "copy.txt")
    make = flow.start("exec", "--app", "make", "--", sys.executable, "producer.py", "out.txt", "20", "0.01")
    flow.ended(make).expect()
    flow.ended(copy).expect()
    again = flow.ended(flow.start("exec", "--app", "make", "--", "true")).expect(2)
    assert "make is over" in again.err
    unknown = flow.ended(flow.start("exec", "--app", "nobody", "--", "true")).expect(2)
    assert "it has make, copy" in unknown.err
    server.send_signal(signal.SIGINT)
    flow.ended(server).expect()
    assert flow.read("copy.txt") == EXPECTED


def test_exec_ends_with_the_status_of_its_program_and_fails_its_readers(flow: Flow) -> None:
    flow.toml(PAIR)
    server = flow.start("serve", "flow.toml")
    copy = flow.start("exec", "--app", "copy", "--", sys.executable, "consumer.py", "out.txt", "copy.txt")
    flow.ended(flow.start("exec", "--app", "make", "--", "sh", "-c", "echo x > out.txt; kill -TERM $$")).expect(143)
    ended = flow.ended(copy)
    assert ended.status != 0 or flow.read("copy.txt") == "x\n"
    server.send_signal(signal.SIGTERM)
    flow.ended(server).expect()


def test_an_exec_that_is_killed_takes_its_program_with_it(flow: Flow) -> None:
    flow.toml(PAIR.replace('"on_close"', '"on_termination"'))
    server = flow.start("serve", "flow.toml")
    copy = flow.start("exec", "--app", "copy", "--", sys.executable, "consumer.py", "out.txt", "copy.txt")
    make = flow.start("exec", "--app", "make", "--", sys.executable, "producer.py", "out.txt", "100000", "0.01")
    eventually(lambda: (flow.folder / "copy.txt").exists())
    make.kill()
    flow.ended(make)
    ended = flow.ended(copy)
    assert ended.status == 1 and "make" in ended.err
    server.send_signal(signal.SIGTERM)
    flow.ended(server).expect()


def test_exec_without_a_server_says_what_to_do(flow: Flow) -> None:
    ended = flow.ended(flow.start("exec", "--app", "a", "--wait", "0.1s", "--", "true")).expect(2)
    assert "penstock stream serve" in ended.err
    ended = flow.ended(flow.start("exec", "--wait", "0.1s", "--", "true")).expect(2)
    assert "CAPIO_APP_NAME" in ended.err


# --- doctor -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("program", "status", "words"), [("cat", 0, "can be streamed"), ("no-such", 1, "no program")])
def test_the_doctor_judges_a_program(program: str, status: int, words: str) -> None:
    command = [sys.executable, "-m", "penstock.cli", "doctor", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == status and words in ended.stdout
