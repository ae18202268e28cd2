"""The engine decides as it did: recorded runs, real and simulated, are told to it again, event by event.

A change of the house must not change a decision. One that is meant to has the runs that it concerns recorded anew,
`python -m tests.golden.decisions NAME…`, and says in its message what is decided otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from tests.golden.decisions.recorded import RECORDED, RUNS
from tests.golden.decisions.streams import read, write

from penstock.model.commands import Command
from penstock.model.events import Event

FILES = sorted(RUNS.glob("*.jsonl"), key=lambda file: file.stem)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_engine_decides_as_it_did(file: Path) -> None:
    rules, turns = read(file)
    engine = rules.engine()
    for line, turn in enumerate(turns, start=2):
        assert engine.handle(turn.event, turn.now) == turn.commands, f"{file.name}, line {line}: {turn.event}"


def test_all_that_can_happen_is_in_some_run() -> None:
    turns = [turn for file in FILES for turn in read(file)[1]]
    assert {type(turn.event) for turn in turns} == set(get_args(Event))
    assert {type(command) for turn in turns for command in turn.commands} == set(get_args(Command))


def test_each_run_says_where_it_is_from() -> None:
    assert [file.stem for file in FILES] == sorted(RECORDED)


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    for file in FILES:
        rules, turns = read(file)
        write(tmp_path / "again", rules, turns)
        assert read(tmp_path / "again")[0] == rules
        assert list(read(tmp_path / "again")[1]) == list(read(file)[1])
