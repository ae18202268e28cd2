"""What was learned outlives the run, whoever else saves and whatever the disk does."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from penstock.model.profiles import Profile
from penstock.model.resources import Auto
from penstock.runtime import cache_file
from penstock.runtime.cache_file import default_path, matches
from penstock.runtime.profiles import profile_cache
from penstock.runtime.tuning_cache import tuning_cache
from penstock.tuning.registry import Delivered, Delivery, Learned, Measure

MB = 1e6

SAVER = """
import sys
from penstock.model.resources import Auto
from penstock.runtime.tuning_cache import tuning_cache
from penstock.tuning.registry import Learned, Measure

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    entry = Learned(f"{name}.f{number}", "ssd", 4.5e8, 225, Auto(), (Measure(2e6, 1.0, 225, 225),))
    tuning_cache(path).save([entry])
"""


def entry(function: str = "app.checkpoint", layer: str = "ssd", seconds: float = 3.5) -> Learned:
    measures = (Measure(2 * MB, seconds, 225, 225), Measure(4 * MB, seconds / 3, 7, 7, partial=True))
    return Learned(function, layer, 450 * MB, 225, Auto(2 * MB, 256 * MB, 2.0), measures, ceiling=8 * MB)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "cache" / "tuning.json")


def names(path: str) -> set[tuple[str, str]]:
    return set(tuning_cache(path).load())


def test_what_is_saved_is_loaded(path: str) -> None:
    assert tuning_cache(path).load() == {}
    tuning_cache(path).save([entry(), entry(layer="gpfs", seconds=9.0)])
    assert tuning_cache(path).load() == {
        ("app.checkpoint", "ssd"): entry(),
        ("app.checkpoint", "gpfs"): entry(layer="gpfs", seconds=9.0),
    }


def test_only_the_file_and_its_lock_are_left(path: str) -> None:
    tuning_cache(path).save([entry()])
    assert sorted(os.listdir(os.path.dirname(path))) == ["tuning.json", "tuning.json.lock"]


def test_nothing_to_save_makes_no_file(path: str) -> None:
    tuning_cache(path).save([])
    assert not os.path.exists(path)


def test_a_save_replaces_its_own_and_keeps_the_others(path: str) -> None:
    tuning_cache(path).save([entry("a"), entry("b")])
    tuning_cache(path).save([entry("b", seconds=1.0), entry("c")])
    assert tuning_cache(path).load() == {
        (name, "ssd"): entry(name, seconds=1.0 if name == "b" else 3.5) for name in "abc"
    }


def test_an_entry_keeps_the_date_when_it_was_learned(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    day = 1
    monkeypatch.setattr(cache_file, "_now", lambda: datetime(2030, 1, day, tzinfo=UTC))
    tuning_cache(path).save([entry("a"), entry("b")])
    day = 2
    tuning_cache(path).save([entry("a"), entry("b", seconds=1.0)])
    assert {record.entry.function: record.learned.day for record in tuning_cache(path).records()} == {"a": 1, "b": 2}
    assert json.loads(Path(path).read_text())["entries"][0]["learned"].startswith("2030-01-01")


def test_two_processes_that_save_at_once_lose_nothing(path: str) -> None:
    savers = [
        subprocess.Popen(
            [sys.executable, "-c", SAVER, path, name, "25"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    for saver in savers:
        assert saver.stdout is not None
        assert saver.stdout.readline() == "ready\n"
    for saver in savers:
        assert saver.stdin is not None
        saver.stdin.write("go\n")
        saver.stdin.flush()
    for saver in savers:
        saver.communicate(timeout=60)
        assert saver.returncode == 0
    assert names(path) == {(f"{name}.f{number}", "ssd") for name in ("one", "two") for number in range(25)}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"entries": [{"entry": {}}]}', b'{"entries": [], "version": "x"}'],
    ids=["empty", "cut", "list", "bytes", "fields", "version"],
)
@pytest.mark.parametrize("how", ["load", "save", "clear"])
def test_a_damaged_file_is_set_aside(path: str, content: bytes, how: str, caplog: pytest.LogCaptureFixture) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(content)
    with caplog.at_level(logging.WARNING, "penstock"):
        if how == "load":
            assert tuning_cache(path).load() == {}
        elif how == "clear":
            assert tuning_cache(path).clear() == 0
        tuning_cache(path).save([entry()])
    assert tuning_cache(path).load() == {("app.checkpoint", "ssd"): entry()}
    assert Path(path + ".damaged").read_bytes() == content
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert path in caplog.text


@pytest.fixture(params=["pipe", "folder", "socket", "device", "link to a pipe"])
def no_file(path: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path of something that is not a regular file, alone in its folder or with what it leads to."""
    os.makedirs(os.path.dirname(path))
    with contextlib.ExitStack() as until_tested:
        match request.param:
            case "pipe":
                os.mkfifo(path)
            case "folder":
                os.mkdir(path)
            case "socket":
                here = os.getcwd()
                os.chdir(os.path.dirname(path))  # the name of a socket must be short
                try:
                    until_tested.enter_context(socket.socket(socket.AF_UNIX)).bind(os.path.basename(path))
                finally:
                    os.chdir(here)
            case "device":
                try:
                    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
                except PermissionError:
                    pytest.skip("only root may make a device")
            case _:
                os.mkfifo(path + ".pipe")
                os.symlink("tuning.json.pipe", path)
        yield path


def test_what_is_not_a_regular_file_is_neither_read_nor_moved_nor_replaced(
    no_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = os.path.dirname(no_file)
    before = {name: os.lstat(os.path.join(folder, name)) for name in os.listdir(folder)}
    with caplog.at_level(logging.WARNING, "penstock"):
        assert tuning_cache(no_file).load() == {}
        tuning_cache(no_file).save([entry()])
    with pytest.raises(OSError, match="regular file"):
        tuning_cache(no_file).clear()
    assert len(caplog.records) == 2
    assert no_file in caplog.text
    after = {name: os.lstat(os.path.join(folder, name)) for name in os.listdir(folder)}
    assert {name: (one.st_ino, one.st_mode) for name, one in after.items()} == {
        name: (one.st_ino, one.st_mode) for name, one in before.items()
    }


@pytest.mark.parametrize("content", [None, b"", b"{"], ids=["new", "empty", "cut"])
def test_a_link_to_the_file_stays_a_link(path: str, tmp_path: Path, content: bytes | None) -> None:
    team = tmp_path / "team" / "registry.json"
    os.makedirs(os.path.dirname(path))
    os.symlink(team, path)
    if content is not None:
        team.parent.mkdir()
        team.write_bytes(content)
    tuning_cache(path).save([entry("a")])
    tuning_cache(str(team)).save([entry("b")])
    assert os.readlink(path) == str(team)
    assert not team.is_symlink()
    assert names(path) == names(str(team)) == {("a", "ssd"), ("b", "ssd")}
    assert os.listdir(os.path.dirname(path)) == ["tuning.json"]  # the lock and what is set aside are beside the file


@pytest.mark.parametrize("content", [b'{"version": 2}', b'{"entries": [{"new": "fields"}], "version": 2}'])
def test_the_file_of_another_version_is_left_to_it(path: str, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(content)
    with caplog.at_level(logging.WARNING, "penstock"):
        assert tuning_cache(path).load() == {}
        tuning_cache(path).save([entry()])
    with pytest.raises(OSError, match="format 2, of another version"):
        tuning_cache(path).clear()
    assert Path(path).read_bytes() == content
    assert sorted(os.listdir(os.path.dirname(path))) == ["tuning.json", "tuning.json.lock"]
    assert len(caplog.records) == 2


DELIVERED = Delivered(4, 100 * MB, 0.01)
DELIVERY = Delivery("writes of 1 MB to 10 MB", "ssd", 450 * MB, 16, 4, (DELIVERED,), True, 0.02, 100)
IMPOSSIBLE = [
    *((DELIVERY, name, value) for name in ("bandwidth", "executors", "best", "attempts") for value in (0, -1, 10**300)),
    *((DELIVERY, name, value) for name, value in [("spread", -0.1), ("spread", 1e300), ("curve", [])]),
    *((DELIVERED, name, value) for name in ("concurrency", "rate") for value in (0, -1, 10**300)),
    *((DELIVERED, name, value) for name, value in [("error", -0.1), ("error", 1e300)]),
    *((entry(), name, value) for name in ("bandwidth", "executors") for value in (0, -1, 10**300)),
    *((entry(), name, value) for name, value in [("ceiling", 0), ("auto", [1, 2, 0.5]), ("auto", [2, 1, 2])]),
    *((entry(), name, value) for name, value in [("auto", [0, 0, 2]), ("auto", [1, 2, -1])]),
    *((entry().measures[0], name, value) for name in ("constraint", "concurrency", "tasks") for value in (0, -1)),
    *((entry().measures[0], name, value) for name, value in [("seconds", -1), ("seconds", 1e300), ("tasks", 10**300)]),
]


@pytest.mark.parametrize(("of", "name", "value"), IMPOSSIBLE)
def test_an_entry_that_cannot_have_been_measured_is_damage(
    path: str, of: Struct, name: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    tuning_cache(path).save([entry(), DELIVERY])
    good, changed = (msgspec.json.encode(one) for one in (of, {**msgspec.to_builtins(of), name: value}))
    content = msgspec.json.encode(msgspec.json.decode(Path(path).read_bytes()))
    assert good in content
    Path(path).write_bytes(content.replace(good, changed))
    with caplog.at_level(logging.WARNING, "penstock"):
        assert tuning_cache(path).load() == {}
    assert os.path.exists(path + ".damaged")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot have been measured" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"), [("count", 0), ("count", -1), ("mean", -1), ("mean", 1e300), ("deviation", -1)]
)
def test_a_profile_that_cannot_have_been_measured_is_damage(path: str, name: str, value: object) -> None:
    good = Profile("f", "", 3, 1.0, 0.1)
    profile_cache(path).save([good])
    assert profile_cache(path).load() == {("f", ""): good}
    record = json.loads(Path(path).read_text())
    record["entries"][0]["entry"][name] = value
    Path(path).write_text(json.dumps(record))
    profile_cache(path).save([Profile("f", "", 3, 1.0, 0.1)], Profile.with_newer)
    assert profile_cache(path).load() == {("f", ""): good}
    assert os.path.exists(path + ".damaged")


def test_a_cache_that_cannot_be_written_is_told_and_forgiven(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    path = str(tmp_path / "file" / "tuning.json")
    with caplog.at_level(logging.WARNING, "penstock"):
        tuning_cache(path).save([entry()])
        assert tuning_cache(path).load() == {}
    assert len(caplog.records) == 2


def test_a_disk_that_fails_leaves_the_old_file_and_no_rubbish(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tuning_cache(path).save([entry("a")])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING, "penstock"):
        tuning_cache(path).save([entry("b")])
    monkeypatch.undo()
    assert "No space left" in caplog.text
    assert names(path) == {("a", "ssd")}
    assert sorted(os.listdir(os.path.dirname(path))) == ["tuning.json", "tuning.json.lock"]


def test_a_lock_that_is_never_given_back_does_not_hold_up_the_end_of_a_run(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tuning_cache(path).save([entry("a")])
    monkeypatch.setattr(cache_file, "_PATIENCE", 0.05)
    with open(path + ".lock") as lock, caplog.at_level(logging.WARNING, "penstock"):
        fcntl.flock(lock, fcntl.LOCK_EX)
        tuning_cache(path).save([entry("b")])
        assert names(path) == {("a", "ssd")}
    assert "cannot keep" in caplog.text
    tuning_cache(path).save([entry("b")])
    assert names(path) == {("a", "ssd"), ("b", "ssd")}


@pytest.mark.parametrize(
    ("function", "layer", "left"),
    [
        (None, None, set()),
        ("app.f", None, {("app.g", "ssd"), ("lib.f", "ssd")}),
        ("f", None, {("app.g", "ssd")}),
        (None, "gpfs", {("app.f", "ssd"), ("app.g", "ssd"), ("lib.f", "ssd")}),
        ("app.f", "ssd", {("app.f", "gpfs"), ("app.g", "ssd"), ("lib.f", "ssd")}),
        ("p.f", None, {("app.f", "ssd"), ("app.f", "gpfs"), ("app.g", "ssd"), ("lib.f", "ssd")}),
    ],
)
def test_clearing(path: str, function: str | None, layer: str | None, left: set[tuple[str, str]]) -> None:
    everything = {("app.f", "ssd"), ("app.f", "gpfs"), ("app.g", "ssd"), ("lib.f", "ssd")}
    tuning_cache(path).save([entry(*one) for one in everything])
    assert tuning_cache(path).clear(function, layer) == len(everything - left)
    assert names(path) == left
    assert tuning_cache(path).clear(function, layer) == 0


@pytest.mark.parametrize(
    ("function", "found"),
    [
        ("/home/me/app.py:checkpoint", True),
        ("app.py:checkpoint", True),
        ("checkpoint", True),
        ("point", False),
        ("app", False),
        ("py:checkpoint", True),
    ],
)
def test_a_function_of_a_program_is_found_by_the_end_of_its_name(function: str, found: bool) -> None:
    assert matches(entry("/home/me/app.py:checkpoint"), function, None) is found


def test_a_team_that_shares_it_can_read_and_write_it(path: str) -> None:
    before = os.umask(0o002)
    try:
        tuning_cache(path).save([entry("one")])
        assert {stat.S_IMODE(os.stat(one).st_mode) for one in (path, f"{path}.lock")} == {0o664}
        os.chmod(path, 0o640)
        tuning_cache(path).save([entry("other")])
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640, "its owner has said who may read it"


def test_clearing_what_never_was_makes_nothing(path: str) -> None:
    assert tuning_cache(path).clear() == 0
    assert not os.path.exists(os.path.dirname(path))


def test_the_place_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path("tuning.json") == str(tmp_path / "penstock" / "tuning.json")
    tuning_cache().save([entry()])
    assert (
        tuning_cache().load()
        == tuning_cache(str(tmp_path / "penstock" / "tuning.json")).load()
        == {("app.checkpoint", "ssd"): entry()}
    )
    assert tuning_cache().clear() == 1
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_path("tuning.json") == str(tmp_path / "home" / ".cache" / "penstock" / "tuning.json")
