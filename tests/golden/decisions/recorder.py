"""Writes down what engines decide while a test runs: a plug-in of pytest, for `python -m tests.golden.decisions`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.golden.decisions.streams import Rules, Turn, write

from penstock.engine.engine import Engine
from penstock.engine.state import StorageRules
from penstock.scheduling.ready_queues import ReadyQueues
from penstock.scheduling.reference import NaiveReadySet

#: of each engine that is made with a policy that has a name; the engines are kept, so that none gets another's address
_runs: dict[int, tuple[Engine, Rules, list[Turn]]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--decisions", type=Path, required=True, help="where runs are written: FILE.jsonl, FILE-2.jsonl …")


def pytest_configure() -> None:
    policies: dict[int, tuple[object, str]] = {}
    init, handle = Engine.__init__, Engine.handle

    def noting(begin: Any) -> Any:
        def noted(self: Any, policy: Any) -> None:
            begin(self, policy)
            policies[id(self)] = self, policy.name

        return noted

    def noted_init(self: Engine, ready: Any, **given: Any) -> None:
        init(self, ready, **given)
        if id(ready) in policies:
            rules = given.get("storage") or StorageRules()
            told = Rules(policies[id(ready)][1], given.get("elastic", False), rules, given.get("store"))
            _runs[id(self)] = self, told, []

    def noted_handle(self: Engine, event: Any, now: float) -> Any:
        answer = handle(self, event, now)
        if id(self) in _runs:
            _runs[id(self)][2].append(Turn(now, event, list(answer)))
        return answer

    for ready_set in (ReadyQueues, NaiveReadySet):
        ready_set.__init__ = noting(ready_set.__init__)  # type: ignore[method-assign]
    Engine.__init__ = noted_init  # type: ignore[method-assign]
    Engine.handle = noted_handle  # type: ignore[method-assign]


def pytest_unconfigure(config: pytest.Config) -> None:
    path: Path = config.getoption("--decisions")
    for number, (_, rules, turns) in enumerate(_runs.values()):
        write(path.with_stem(f"{path.stem}-{number + 1}") if number else path, rules, turns)
