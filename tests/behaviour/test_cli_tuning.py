"""``penstock tuning``, as a user meets it: what was learned, what would be chosen, and why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.own_place import user_environment

from penstock.model.profiles import Profile
from penstock.model.resources import Auto
from penstock.runtime.profiles import profile_cache
from penstock.runtime.tuning_cache import tuning_cache
from penstock.tuning.registry import Learned, Measure

MB = 1e6
HMMER = Learned(
    "hmmer.checkpoint_frag",
    "ssd",
    450 * MB,
    225,
    Auto(),
    (
        Measure(2 * MB, 341.0, 225, 225),
        Measure(4 * MB, 103.0, 112, 112),
        Measure(8 * MB, 45.7, 56, 56),
    ),
)
CENTRES = Learned(
    "kmeans.checkpoint[centres]",
    "gpfs",
    100 * MB,
    16,
    Auto(10 * MB, 20 * MB, 2.0),
    (Measure(10 * MB, 10.0, 10, 10), Measure(20 * MB, 5.05, 3, 3, partial=True)),
    ceiling=30 * MB,
)
TIED = Learned("t.f", "ssd", 100 * MB, 16, Auto(), (Measure(10 * MB, 10.0, 10, 10), Measure(20 * MB, 5.05, 5, 5)))


class Command:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = str(folder / "penstock" / "tuning.json")

    def __call__(self, *arguments: str, status: int = 0, columns: int = 100) -> str:
        environ = user_environment()
        environ |= {"XDG_CACHE_HOME": str(self.folder), "COLUMNS": str(columns), "TERM": "dumb"}
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "tuning", *arguments],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self("--json", *arguments))


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def rows(text: str) -> list[list[str]]:
    """The cells of the lines that carry a rate in their first columns."""
    return [line.split() for line in text.splitlines() if "MB/s " in line and not line.startswith(("→", "auto"))]


def test_an_empty_registry_says_so_and_what_to_do(command: Command) -> None:
    text = command()
    assert "Nothing was learned yet" in text
    assert '@constraint(storage_bw="auto")' in text
    assert command.json() == []


def test_the_table_shows_what_was_tried_and_marks_the_choice(command: Command) -> None:
    tuning_cache(command.file).save([HMMER])
    text = command("--tasks", "2304", columns=150)
    assert "hmmer.checkpoint_frag on ssd" in text
    assert "450 MB/s, 225 I/O executors" in text
    assert rows(text) == [
        ["2", "MB/s", "225", "225", "5m", "41s", "57m", "36s"],
        ["4", "MB/s", "112", "112", "1m", "43s", "36m", "03s"],
        ["▸", "8", "MB/s", "56", "56", "45.7", "s", "31m", "59s"],
    ]
    assert "→ 8 MB/s for 2,304 tasks: 41 groups of 56, 45.7 s each; 8 left over, 45.7 s." in text
    assert "No other value is as quick" in text


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ("1", "8 MB/s for 1 task: 1 at a time, 45.7 s."),
        ("56", "8 MB/s for 56 tasks: a group of 56, 45.7 s."),
        ("60", "8 MB/s for 60 tasks: a group of 56, 45.7 s; 4 left over, 45.7 s."),
    ],
)
def test_the_reason_counts_groups_and_what_is_left_over(command: Command, tasks: str, reason: str) -> None:
    tuning_cache(command.file).save([HMMER])
    (one,) = command.json("--tasks", tasks)
    assert one["why"].startswith(reason)


def test_partial_epochs_ceilings_and_odd_names_are_shown(command: Command) -> None:
    tuning_cache(command.file).save([CENTRES])
    text = command()
    assert "kmeans.checkpoint[centres] on gpfs" in text
    assert "auto(10 MB/s, 20 MB/s, 2), at most 30 MB/s" in text
    assert ["20", "MB/s", "3", "3", "5.05", "s", "2m", "52s", "partial"] in rows(text)


def test_a_tie_is_explained(command: Command) -> None:
    tuning_cache(command.file).save([TIED])
    text = " ".join(command().split())
    assert "→ 20 MB/s for 100 tasks: 20 groups of 5, 5.05 s each" in text
    assert "10 MB/s is estimated at 1m 40s, within 2%: of equals the highest constraint is taken" in text


def test_the_configured_tolerance_decides_as_it_does_in_a_run(command: Command) -> None:
    tuning_cache(command.file).save([TIED])
    settings = command.folder / "penstock.toml"
    settings.write_text('[runtime]\ntuning_tolerance = "off"\n')
    [one] = command.json()
    assert one["why"].startswith("10 MB/s for 100 tasks")
    settings.write_text('[runtime]\ntuning_tolerance = "12.5%"\n')
    [one] = command.json()
    assert "within 12.5%: of equals" in one["why"]


def test_filters(command: Command) -> None:
    tuning_cache(command.file).save([HMMER, CENTRES])
    assert {one["layer"] for one in command.json()} == {"ssd", "gpfs"}
    assert [one["function"] for one in command.json("--function", "checkpoint_frag")] == [HMMER.function]
    assert [one["function"] for one in command.json("--layer", "gpfs")] == [CENTRES.function]
    text = command("--function", "nobody")
    assert "Nothing was learned for that" in text
    assert "hmmer.checkpoint_frag on ssd" in text


def test_json_carries_numbers_in_bytes_and_seconds(command: Command) -> None:
    tuning_cache(command.file).save([HMMER])
    (one,) = command.json("--tasks", "2304")
    assert (one["bandwidth"], one["executors"], one["constraint"], one["chosen"]) == (450e6, 225, "auto", 8e6)
    assert one["measures"][2] == {
        "constraint": 8e6,
        "seconds": 45.7,
        "concurrency": 56,
        "tasks": 56,
        "partial": False,
        "estimate": pytest.approx(42 * 45.7),
        "chosen": True,
    }
    assert one["learned"].endswith("Z")


def test_clear_forgets_what_is_asked(command: Command) -> None:
    tuning_cache(command.file).save([HMMER, CENTRES, TIED])
    assert command("--clear", "--layer", "gpfs") == f"forgot 1 entry of {command.file}\n"
    assert len(tuning_cache(command.file).load()) == 2
    assert command.json("--clear") == {"cleared": 2}
    assert tuning_cache(command.file).load() == {}
    assert command("--clear") == f"forgot 0 entries of {command.file}\n"


def test_another_file(command: Command, tmp_path: Path) -> None:
    other = str(tmp_path / "other.json")
    tuning_cache(other).save([TIED])
    assert [one["function"] for one in command.json("--file", other)] == ["t.f"]
    assert command.json() == []


def test_the_configured_file(command: Command, tmp_path: Path) -> None:
    tuning_cache(str(tmp_path / "here.json")).save([TIED])
    tuning_cache(command.file).save([HMMER])
    settings = tmp_path / "penstock.toml"
    settings.write_text('[runtime]\ntuning = "here.json"\n')
    assert [one["function"] for one in command.json()] == ["t.f"]
    settings.write_text('[runtime]\ntuning = "off"\n')
    assert [one["function"] for one in command.json()] == [HMMER.function]
    settings.write_text("[runtime]\ntunning = 3\n")
    assert "tunning" in command(status=2)


def test_a_file_that_cannot_be_cleared_is_an_error(command: Command, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "cannot clear" in command("--clear", "--file", str(tmp_path / "folder"), status=1)


def test_a_narrow_terminal_keeps_the_numbers_whole(command: Command) -> None:
    tuning_cache(command.file).save([HMMER])
    text = command(columns=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    assert len(rows(text)) == 3


def test_profiles_are_shown_slowest_first_and_cleared(command: Command, tmp_path: Path) -> None:
    file = str(tmp_path / "profiles.json")
    profiles = [Profile("app:quick", "", 1000, 1e-5, 2e-6), Profile("app:write", "ssd", 5, 2.5, 0.5)]
    profile_cache(file).save(profiles)
    text = command("--profiles", "--file", file)
    assert [line.split()[0] for line in text.splitlines()] == ["function", "app:write", "app:quick"]
    assert "2.5 s" in text
    assert "± 500 ms" in text
    assert [one["function"] for one in command.json("--profiles", "--file", file, "--layer", "ssd")] == ["app:write"]
    assert command("--profiles", "--file", file, "--function", "other").startswith("no such function")
    assert command("--profiles", "--file", file, "--clear").startswith("forgot 2 entries")
    assert command("--profiles", "--file", file).startswith("nothing was measured yet")
