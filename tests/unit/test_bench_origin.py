"""What a run of the benchmarks says of itself: when, of which commit, and what it took to measure each line."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import pytest
from benchmarks import __main__ as bench
from benchmarks import harness, report
from benchmarks.origin import Origin, commit, shown
from benchmarks.papers import __main__ as papers
from benchmarks.papers import side_by_side
from benchmarks.papers.figure import Figure, Replay
from benchmarks.row import Budget, Measurement, Row
from rich.console import Console

SHARED = Measurement("rate", "more")
ROWS = [
    Row("alone", "s", Measurement("time", "less"), Budget(1)),
    Row("first of two", "/s", SHARED, Budget(10)),
    Row("second of two", "/s", SHARED, Budget(20)),
]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every measurement gives 15 and takes two seconds."""

    def take(measurement: Measurement, *_: object) -> harness.Taken:
        return harness.Taken(samples={harness.OURS: [15.0]}, seconds=2.0)

    monkeypatch.setattr(harness, "take", take)


@pytest.mark.usefixtures("measured")
def test_the_time_of_a_measurement_is_told_once_so_that_the_times_sum_up() -> None:
    records, _ = bench._measure(ROWS, [], quick=True, console=Console(quiet=True))
    assert [record.seconds for record in records] == [2.0, 2.0, 0.0]
    assert [record.met for record in records] == [False, True, False]


@pytest.mark.usefixtures("measured")
def test_the_table_says_what_each_measurement_took() -> None:
    records, _ = bench._measure(ROWS, [], quick=True, console=Console(quiet=True))
    shown_to = StringIO()
    Console(width=180, file=shown_to).print(report.table(records, "caption"))
    lines = [line for line in shown_to.getvalue().splitlines() if "alone" in line or "of two" in line]
    assert ["2 s" in line for line in lines] == [True, True, False]


@pytest.mark.usefixtures("measured")
def test_figures_are_written_with_their_date_and_what_the_run_took(tmp_path: Path) -> None:
    records, _ = bench._measure(ROWS, [], quick=True, console=Console(quiet=True))
    origin = Origin()
    report.write_json(records, origin, True, tmp_path / "build" / "bench.json")
    told = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert told["date"] == origin.date
    assert told.get("commit") == origin.commit
    assert told["quick"] is True
    assert told["seconds"] >= 0
    assert [record["name"] for record in told["records"]] == [row.name for row in ROWS]
    assert [record["seconds"] for record in told["records"]] == [2.0, 2.0, 0.0]


def test_the_commit_is_that_of_the_clone_and_says_when_files_have_changed(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    file = tmp_path / "file"
    file.write_text("one")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"], ["tag", "-am", "v", "v1.2"]):
        subprocess.run([*git, *words], check=True)
    assert commit(tmp_path) == "v1.2"
    file.write_text("two")
    assert commit(tmp_path) == "v1.2-dirty"


def test_a_folder_that_is_no_clone_has_no_commit_even_inside_one(tmp_path: Path) -> None:
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    inside = tmp_path / "unpacked"
    inside.mkdir()
    assert commit(inside) is None


def test_a_clone_that_git_cannot_read_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert commit(tmp_path) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (2_519.7, "42 min 0 s")]
)
def test_times_are_shown_as_a_person_says_them(seconds: float, text: str) -> None:
    assert shown(seconds) == text


# --- published experiments ------------------------------------------------------------------------------------------

REPLAY = Replay([Figure("time", 2.0, 2.0, "s", False, True), Figure("other", "", 1.0, "s", False, None)])


def test_a_run_of_published_experiments_says_what_each_took_and_of_what_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(papers, "EXPERIMENTS", ("one", "two"))
    monkeypatch.setattr(papers, "replayed", lambda names, jobs: [(name, "Of a paper", REPLAY, 0.1) for name in names])
    monkeypatch.setattr(papers, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["papers", "--no-charts"])
    assert papers.main() == 0
    last_words = capsys.readouterr().out.splitlines()[-2:]
    assert last_words[0] == "one 0 s; two 0 s"
    assert last_words[1].startswith("2 of 2 predicted and 0 of 0 fitted figures met, ")
    assert "taken in 0 s" in last_words[1]
    told = json.loads((tmp_path / "build" / "papers.json").read_text())
    assert told["date"] in last_words[1]
    assert set(told["took"]) == {"one", "two"}
    assert [figure["experiment"] for figure in told["figures"]] == ["one", "one", "two", "two"]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments run in threads, where what a test puts in their place is there too."""
    monkeypatch.setattr(side_by_side, "ProcessPoolExecutor", lambda jobs, *_, **__: ThreadPoolExecutor(jobs))


@pytest.mark.usefixtures("threads")
def test_experiments_come_in_order_and_those_that_measure_decisions_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    running: set[str] = set()
    beside: dict[str, set[str]] = {}
    began: list[str] = []
    lock = Lock()

    def replay(name: str) -> Replay:
        with lock:
            began.append(name)
            beside[name] = set(running)
            running.add(name)
        with lock:
            running.remove(name)
        return REPLAY

    def found(module: str) -> SimpleNamespace:
        name = module.rpartition(".")[2]
        return SimpleNamespace(TITLE=name.upper(), replay=lambda: replay(name))

    monkeypatch.setattr(side_by_side, "ALONE", ("measures", "measures too"))
    monkeypatch.setattr(side_by_side, "LONGEST", "long")
    monkeypatch.setattr(side_by_side, "import_module", found)
    names = ("brief", "measures", "other", "long", "measures too")
    outcomes = list(side_by_side.replayed(names, 2))
    assert [(name, title) for name, title, _, _ in outcomes] == [(name, name.upper()) for name in names]
    assert began[:2] == ["measures", "measures too"] and beside["measures too"] == set()
    assert "long" in began[2:4]


@pytest.mark.usefixtures("threads")
def test_an_experiment_that_fails_ends_the_run() -> None:
    with pytest.raises(ModuleNotFoundError, match="unheard_of"):
        list(side_by_side.replayed(("unheard_of",), 1))
