"""``--batch``: the steps one after the other, in the order of the graph, on ordinary files."""

from __future__ import annotations

import os
import signal

import pytest
from tests.patience import eventually
from tests.streaming.flows import EXPECTED, PAIR, Flow

from penstock.errors import ConfigError
from penstock.streaming.batch import batch_order
from penstock.streaming.language.workflow import parse_workflow


def test_steps_run_after_those_whose_files_they_read(flow: Flow) -> None:
    flow.toml(
        """
        name = "backwards"
        [[step]]
        name = "third"
        command = "cat b.txt > c.txt"
        input = ["b.txt"]
        output = ["c.txt"]
        [[step]]
        name = "second"
        command = "cat a.txt a.txt > b.txt"
        input = ["a.txt"]
        output = ["b.txt"]
        [[step]]
        name = "first"
        command = "sleep 0.2; echo hello > a.txt"
        output = ["a.txt"]
        """
    )
    flow.run("--batch").expect()
    assert flow.read("c.txt") == "hello\nhello\n"


def test_the_library_has_no_part_in_it(flow: Flow) -> None:
    flow.toml('name = "plain"\n[[step]]\nname = "look"\ncommand = "cat /proc/self/maps > maps.txt; env > env.txt"\n')
    flow.run("--batch").expect()
    assert "libpenstock" not in flow.read("maps.txt")
    assert "LD_PRELOAD" not in flow.read("env.txt")
    assert "CAPIO_APP_NAME=look\n" in flow.read("env.txt")


def test_the_output_of_steps_carries_their_names(flow: Flow) -> None:
    flow.toml(PAIR)
    ended = flow.run("--batch").expect()
    assert flow.read("copy.txt") == EXPECTED
    lines = [line for line in ended.out.splitlines() if "first" in line]
    assert len(lines) == 1 and lines[0].startswith("copy")


def test_output_is_kept_in_files_where_asked(flow: Flow) -> None:
    flow.toml('name = "talk"\n[[step]]\nname = "a"\ncommand = "echo one; echo two >&2; printf three"\n')
    ended = flow.run("--batch", "--output", "said").expect()
    assert "one" not in ended.out
    assert flow.read("said/a.out") == "one\nthree\n"
    assert flow.read("said/a.err") == "two\n"


def test_a_failing_step_is_the_last_and_is_named(flow: Flow) -> None:
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", "echo begin; echo it broke >&2; exit 7"))
    ended = flow.run("--batch").expect(7)
    assert "step 'make' exited with status 7" in ended.err
    assert "it broke" in ended.err.partition("its last lines")[2]
    assert not (flow.folder / "copy.txt").exists()


def test_a_step_killed_by_a_signal_gives_the_status_of_a_shell(flow: Flow) -> None:
    flow.toml('name = "killed"\n[[step]]\nname = "a"\ncommand = "kill -SEGV $$"\n')
    ended = flow.run("--batch").expect(128 + signal.SIGSEGV)
    assert "was killed by SIGSEGV" in ended.err


def test_all_instances_of_a_step_run_together(flow: Flow) -> None:
    flow.toml(
        """
        name = "many"
        [[step]]
        name = "part"
        instances = 3
        command = "N=$CAPIO_APP_NAME; echo $N > ${N#*:}.part; while [ $(ls *.part | wc -l) -lt 3 ]; do sleep 0.01; done"
        output = ["*.part"]
        [[step]]
        name = "join"
        command = "cat *.part > all.txt"
        input = ["*.part"]
        output = ["all.txt"]
        """
    )
    flow.run("--batch").expect()
    assert flow.read("all.txt") == "part:0\npart:1\npart:2\n"


def test_a_circle_has_no_order() -> None:
    workflow = parse_workflow(
        """
        name = "round"
        [[step]]
        name = "a"
        command = "true"
        input = ["y"]
        output = ["x"]
        [[step]]
        name = "b"
        command = "true"
        input = ["x"]
        output = ["y"]
        """
    )
    with pytest.raises(ConfigError, match="a → b → a"):
        batch_order(workflow)


def test_an_interrupt_ends_everything_that_a_step_has_started(flow: Flow) -> None:
    # One child stays in the session of the step, one leaves it.
    command = "sleep 1000 & echo $! > pids; setsid sleep 1000 & echo $! >> pids; wait"
    flow.toml(f'name = "stop"\n[[step]]\nname = "a"\ncommand = "{command}"\n')
    process = flow.start("run", "flow.toml", "--batch")
    pids = flow.folder / "pids"
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    process.send_signal(signal.SIGINT)
    ended = flow.ended(process).expect(130)
    assert "SIGINT" in ended.err
    for pid in map(int, pids.read_text().split()):
        eventually(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
