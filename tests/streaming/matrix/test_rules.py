"""The six pairs of commit and firing rules, with a reader that starts before, during and after its writer.

Two programs tell of their moments through empty files outside the workflow's directory, so that a test can ask what the
reader saw when, and can hold the writer at a place where only the right rule lets the reader go on.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.patience import PATIENCE
from tests.streaming.matrix.rig import SOURCES, stream_run

COMMITS, FIRES = ("on_termination", "on_close", "on_file"), ("update", "no_update")
PAIRS = [f"{commit}-{fire}" for commit, fire in itertools.product(COMMITS, FIRES)]
NO_UPDATE = [pair for pair in PAIRS if pair.endswith("no_update")]
BYTES = {
    "update": b"changed" + b"1" * 9000 + b"second " + b"2" * 9000,
    "no_update": b"first  " + b"1" * 9000 + b"second " + b"2" * 9000,
}


def write_workflow(folder: Path, pairs: list[str]) -> None:
    """A writer and a reader for each pair, all in one workflow."""
    text = 'name = "rules"\n'
    for pair in pairs:
        commit, fire = pair.split("-")
        (folder / "work" / pair).mkdir(parents=True, exist_ok=True)
        (folder / "gates" / pair).mkdir(parents=True, exist_ok=True)
        gates = folder / "gates" / pair
        after = f'after = ["{pair}/flag"]' if commit == "on_file" else ""
        text += f"""
[[step]]
name = "{pair}-read"
command = ["{sys.executable}", "{SOURCES}/paced_read.py", "{pair}/data", "{pair}/result", "{gates}"]
input = ["{pair}/data"]
output = ["{pair}/result"]
[[step]]
name = "{pair}-write"
command = ["{sys.executable}", "{SOURCES}/paced_write.py", "{pair}/data", "{pair}/flag", "{gates}", "{fire}"]
output = ["{pair}/data", "{pair}/flag"]
[[step.stream]]
files = ["{pair}/data"]
commit = "{commit}"
fire = "{fire}"
{after}
[[step.stream]]
files = ["{pair}/flag"]
commit = "on_close"
"""
    (folder / "work" / "workflow.toml").write_text(text)


def run(folder: Path, pairs: list[str], conduct: Callable[[Path], None]) -> None:
    """The workflow, while `conduct` opens and awaits the gates of each pair in a thread of its own."""
    write_workflow(folder, pairs)
    problems: list[str] = []

    def conducted(pair: str) -> None:
        try:
            conduct(folder / "gates" / pair)
        except AssertionError as problem:
            problems.append(f"{pair}: {problem}")
            for gate in ("write", "read", "go", "linger"):
                (folder / "gates" / pair / gate).touch()

    threads = [threading.Thread(target=conducted, args=(pair,), daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    stream_run(folder / "work")
    assert not problems
    for pair in pairs:
        found = (folder / "work" / pair / "result").read_bytes()
        assert found == BYTES[pair.split("-")[1]], f"{pair}: {len(found)} bytes, {found[:20]!r}"


def opened(gates: Path, *names: str) -> None:
    for name in names:
        (gates / name).touch()


def passed(gates: Path, name: str) -> None:
    until = time.monotonic() + PATIENCE
    while not (gates / name).exists():
        assert time.monotonic() < until, (
            f"gate {name!r} is never reached; reached: {sorted(g.name for g in gates.iterdir())}"
        )
        time.sleep(0.005)


def seen(folder: Path, pair: str, moment: str) -> set[str]:
    return set((folder / "gates" / pair / moment).read_text().split())


# --- same bytes, whenever the reader starts ---------------------------------------------------------------------------


def reader_before(gates: Path) -> None:
    opened(gates, "read")
    passed(gates, "reading")
    opened(gates, "write", "go", "linger")


def reader_during(gates: Path) -> None:
    opened(gates, "write")
    passed(gates, "half")
    opened(gates, "read")
    passed(gates, "reading")
    opened(gates, "go", "linger")


def reader_after(gates: Path) -> None:
    opened(gates, "write", "go", "linger")
    passed(gates, "ending")
    opened(gates, "read")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("order", [reader_before, reader_during, reader_after])
def test_the_bytes_are_those_of_batch(order: Callable[[Path], None], tmp_path: Path) -> None:
    run(tmp_path, PAIRS, order)


# --- not earlier and not later than the rule says ---------------------------------------------------------------------


def test_with_no_update_bytes_arrive_while_the_writer_is_at_work(tmp_path: Path) -> None:
    def conduct(gates: Path) -> None:
        opened(gates, "read", "write")
        passed(gates, "got")  # the writer cannot have gone on: it waits for us
        opened(gates, "go", "linger")

    run(tmp_path, NO_UPDATE, conduct)


def test_the_end_arrives_at_the_close_or_at_the_commit_of_another_file(tmp_path: Path) -> None:
    def conduct(gates: Path) -> None:
        opened(gates, "read", "write", "go")
        passed(gates, "ended")  # the writer still lives: it waits for us
        opened(gates, "linger")

    run(tmp_path, [pair for pair in PAIRS if not pair.startswith("on_termination")], conduct)


def test_nothing_is_believed_before_its_commit(tmp_path: Path) -> None:
    def conduct(gates: Path) -> None:
        opened(gates, "read", "write")
        passed(gates, "half")
        time.sleep(0.1)  # time for a mistake
        opened(gates, "go")
        passed(gates, "closed")
        time.sleep(0.1)
        opened(gates, "linger")

    run(tmp_path, PAIRS, conduct)
    before_the_end = {"on_termination": "ending", "on_close": "written", "on_file": "written"}
    for pair in PAIRS:
        commit, fire = pair.split("-")
        assert before_the_end[commit] in seen(tmp_path, pair, "end"), f"{pair}: the end came too early"
        if fire == "update":
            assert before_the_end[commit] in seen(tmp_path, pair, "first"), f"{pair}: bytes came too early"


def test_batch_runs_the_same_workflow_one_after_the_other(tmp_path: Path) -> None:
    write_workflow(tmp_path, PAIRS)
    for pair in PAIRS:
        opened(tmp_path / "gates" / pair, "read", "write", "go", "linger")
    stream_run(tmp_path / "work", "--batch")
    for pair in PAIRS:
        assert (tmp_path / "work" / pair / "result").read_bytes() == BYTES[pair.split("-")[1]]
        assert "ending" in seen(tmp_path, pair, "first"), f"{pair}: the reader ran beside its writer"


def test_a_second_run_does_not_believe_the_files_of_the_first(tmp_path: Path) -> None:
    write_workflow(tmp_path, PAIRS)
    for pair in PAIRS:
        (tmp_path / "work" / pair / "data").write_bytes(b"left by an earlier run")
        (tmp_path / "work" / pair / "flag").write_bytes(b"as well")
    run(tmp_path, PAIRS, reader_before)
