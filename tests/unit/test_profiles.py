"""How long functions take: measured, merged over runs, kept in a file, and used from the start of the next run."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import FILE_OUT, constraint, io, task
from penstock.engine.profiles import Times
from penstock.model.profiles import Profile
from penstock.runtime.profiles import load, profile_cache

seconds = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=50)


def profile(values: list[float]) -> Profile:
    times = Times()
    for value in values:
        times.add(value)
    return times.profile("app:f", "ssd")


@given(seconds)
def test_mean_and_spread_are_those_of_the_measurements(values: list[float]) -> None:
    found = profile(values)
    assert found.count == len(values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.deviation == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-6 * max(values))


@given(seconds, seconds)
def test_two_runs_make_the_profile_of_both(first: list[float], second: list[float]) -> None:
    merged = profile(first).with_newer(profile(second))
    together = profile(first + second)
    assert merged.count == together.count
    assert merged.mean == pytest.approx(together.mean)
    assert merged.deviation == pytest.approx(together.deviation, rel=1e-6, abs=1e-6 * max(first + second))


def test_a_long_history_does_not_drown_what_is_new() -> None:
    old = Profile("f", "", 10_000_000, 1.0, 0.0)
    assert old.with_newer(Profile("f", "", 1000, 3.0, 0.0)).mean == pytest.approx(2.0)


def test_the_recent_mean_follows_a_change() -> None:
    times = Times()
    for value in [1.0] * 100 + [5.0] * 20:
        times.add(value)
    assert times.mean < 2.0
    assert times.recent > 4.9


@task
def nap() -> None:
    """Takes no time to speak of."""


@task
def other(x: int) -> int:
    return x


def test_a_run_keeps_what_it_measured_and_the_next_one_begins_with_it(tmp_path: Path) -> None:
    file = str(tmp_path / "profiles.json")
    with penstock.Runtime(profiles=file, cpus=1) as runtime:
        penstock.wait([nap() for _ in range(20)])
        assert runtime.functions.duration(runtime.functions.spec(nap.declaration)) is not None
        assert runtime.functions.duration(runtime.functions.spec(other.declaration)) is None
    known = load(file)
    assert set(known) == {(f"{__name__}:nap", "")}
    assert known[f"{__name__}:nap", ""].count == 20
    with penstock.Runtime(profiles=file, cpus=1) as runtime:
        assert runtime.functions.duration(runtime.functions.spec(nap.declaration)) == known[f"{__name__}:nap", ""].mean
        nap().result()
        other(1).result()
    known = load(file)
    assert {key: one.count for key, one in known.items()} == {(f"{__name__}:nap", ""): 21, (f"{__name__}:other", ""): 1}


def test_a_map_counts_its_calls(tmp_path: Path) -> None:
    file = str(tmp_path / "profiles.json")
    with penstock.Runtime(profiles=file, cpus=1):
        assert penstock.wait_on(other.map(range(1000))) == list(range(1000))
    assert load(file)[f"{__name__}:other", ""].mean < 0.01


@constraint(storage_size="1MB")
@io
@task(path=FILE_OUT)
def write(path: str) -> None:
    Path(path).write_text("x")


def test_an_io_task_has_a_profile_for_each_layer_and_devices_know_it_from_the_start(tmp_path: Path) -> None:
    file = str(tmp_path / "profiles.json")
    (tmp_path / "fast").mkdir()
    storage = [{"name": "fast", "mount": str(tmp_path / "fast"), "bandwidth": "100MB/s", "capacity": "1GB"}]
    with penstock.Runtime(profiles=file, cpus=1, storage=storage):
        write(str(tmp_path / "a")).result()
    name = f"{__name__}:write"
    known = load(file)
    assert set(known) == {(name, ""), (name, "fast")}
    with penstock.Runtime(profiles=file, cpus=1, storage=storage) as runtime:
        started = write(str(tmp_path / "b"))
        (device,) = runtime.driver.engine.state.ledger.devices()
        function = runtime.functions.spec(write.declaration).function
        assert device.seconds(function) == pytest.approx(known[name, "fast"].mean) or started.done()
        started.result()


def test_off_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with penstock.Runtime(profiles="off", cpus=1):
        nap().result()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_does_not_stop_a_run(tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text("{")
    with penstock.Runtime(profiles=str(file), cpus=1):
        nap().result()
    assert profile_cache(str(file)).load()[f"{__name__}:nap", ""].count == 1
