"""``penstock store``: what it says of a store, what it removes, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.persistent_store import content
from tests.own_place import user_environment

from penstock.persistent.local import LocalStore


def penstock_store(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", "store", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=user_environment(COLUMNS="200"),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    store = LocalStore(str(tmp_path / "penstock-store"))
    store.put("thirds", [content(1, 50_000)], "Block")
    store.put("with [brackets]", [b"small"], "Note")
    yield store
    store.close()


def test_objects_are_listed(store: LocalStore, tmp_path: Path) -> None:
    listed = penstock_store("list", store.folder, folder=tmp_path)
    assert listed.returncode == 0 and not listed.stderr
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [
        ["thirds", "Block"],
        ["with", "[brackets]"],
    ]
    plain = json.loads(penstock_store("list", "--json", folder=tmp_path).stdout)  # the folder is that of the settings
    assert [(one["id"], one["bytes"], one["damaged"]) for one in plain] == [
        ("thirds", 50_000, False),
        ("with [brackets]", 5, False),
    ]


def test_a_store_in_order(store: LocalStore, tmp_path: Path) -> None:
    checked = penstock_store("check", f"local:{store.folder}", folder=tmp_path)
    assert checked.returncode == 0 and "objects" in checked.stdout


def test_what_is_wrong_is_counted_and_removed(store: LocalStore, tmp_path: Path) -> None:
    dead = LocalStore(store.folder)
    dead.put("thirds", [content(2, 60_000)], "Block", keep=True)
    dead.runs.let_go()
    orphan = store.stage("nobody", [content(3, 90_000)], "Block")
    store._settled([orphan.entry])
    store._erase([("lost", store.put("lost", [content(4, 70_000)], "Block"))])
    for arguments in (["check"], ["clean", "--dry-run"], ["check"]):
        found = penstock_store(*arguments, store.folder, "--json", folder=tmp_path)
        assert found.returncode == 1, found.stderr
        said = json.loads(found.stdout)
        assert said["states_that_dead_programs_left"] == {"count": 1, "bytes": 50_000}
        assert said["blocks_of_no_object"] == {"count": 1, "bytes": 90_000}
        assert said["damaged"] == ["lost"] and not said["fine"]
    cleaned = penstock_store("clean", store.folder, folder=tmp_path)
    assert cleaned.returncode == 1 and "lost: lost (Block)" in cleaned.stdout and cleaned.stdout.count("removed") == 3
    assert penstock_store("clean", "--damaged", store.folder, folder=tmp_path).returncode == 0
    checked = penstock_store("check", store.folder, folder=tmp_path)
    assert checked.returncode == 0 and not store.exists("lost") and store.exists("thirds")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("verb", "address", "words"),
    [
        ("list", "nowhere", "the folder nowhere does not exist"),
        ("clean", "local:.", "is no store of persistent objects"),
        ("check", "mysql://x", "expected local:FOLDER"),
        ("check", "redis://127.0.0.1:1", "Is it running?"),
        ("list", "redis-start:", "as long as its program"),
    ],
)
def test_an_address_that_is_no_store_is_one_line_and_status_2(
    verb: str, address: str, words: str, tmp_path: Path
) -> None:
    found = penstock_store(verb, address, folder=tmp_path)
    assert found.returncode == 2 and not found.stdout
    assert words in found.stderr and found.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
