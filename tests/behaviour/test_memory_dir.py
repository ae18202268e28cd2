"""Where shared memory lies: as set, in a folder that the run makes there and removes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.behaviour.conftest import Script
from tests.own_place import memory_dir, user_environment

import penstock
from penstock import ConfigError, task

pytestmark = pytest.mark.leaks


@task
def ones(count: int) -> np.ndarray:
    return np.ones(count)


def test_large_objects_lie_where_the_setting_says_and_go_with_the_run(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=1, memory_dir=tmp_path):
        future = ones(100_000)
        assert future.result().sum() == 100_000
        (folder,) = tmp_path.iterdir()
        assert any(file.stat().st_size >= 800_000 for file in folder.iterdir())
        assert not list(memory_dir().iterdir())
    assert not list(tmp_path.iterdir())


def test_the_store_takes_half_of_what_is_free_there(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=1, memory_dir=tmp_path) as runtime:
        status = os.statvfs(tmp_path)
        store = runtime.driver.engine.state.store
        assert store is not None
        assert store.rules.capacity == pytest.approx(status.f_bavail * status.f_frsize / 2, rel=0.2)


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ConfigError, match=f"memory_dir: there is no directory {tmp_path}/none; make it"):
        penstock.start(memory_dir=tmp_path / "none", mode=mode)


def test_a_file_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"memory_dir: there is no directory {tmp_path}/file"):
        penstock.start(memory_dir=tmp_path / "file")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by its permissions: they mean nothing to the root of a container, where these tests may run.
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))
    with pytest.raises(ConfigError, match=f"memory_dir: cannot write in {tmp_path}; make it writable"):
        penstock.start(memory_dir=tmp_path)


def test_a_program_takes_it_from_the_environment(script: Script, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    text = "import os, penstock\npenstock.start(cpus=1)\nprint(os.listdir('place'))\n"
    assert re.search(r"penstock-\d+-\d+-", script(text, PENSTOCK_MEMORY_DIR="place").stdout)
    assert not list(place.iterdir())


def command_line(folder: Path, *words: str, place: str) -> subprocess.CompletedProcess[str]:
    environ = user_environment(PENSTOCK_MEMORY_DIR=place, TERM="dumb", COLUMNS="500")
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_config_and_doctor_show_it(tmp_path: Path) -> None:
    rows = [line.split() for line in command_line(tmp_path, "config", place=str(tmp_path)).stdout.splitlines()]
    assert ["memory_dir", str(tmp_path), "PENSTOCK_MEMORY_DIR"] in rows
    assert next(row for row in rows if row[:1] == ["store_capacity"])[-3:] == ["of", "free", str(tmp_path)]
    examined = command_line(tmp_path, "doctor", place=f"{tmp_path}/none")
    assert examined.returncode == 1
    assert f"✗ shared memory  there is no {tmp_path}/none" in examined.stdout


def test_doctor_knows_what_a_folder_below_a_mount_stands_on(tmp_path: Path) -> None:
    assert " in /dev/shm/" in command_line(tmp_path, "doctor", place=str(memory_dir())).stdout
    if os.statvfs(memory_dir()).f_bavail * os.statvfs(memory_dir()).f_frsize > 256 << 20:
        assert "✓ shared memory" in command_line(tmp_path, "doctor", place=str(memory_dir())).stdout


def test_the_memory_that_is_found_as_a_layer_is_there() -> None:
    with penstock.Runtime(cpus=1) as runtime:
        assert [layer.mount for layer in runtime.layers if layer.name == "memory"] == [str(memory_dir())]


def test_the_table_of_a_streamed_workflow_lies_there(tmp_path: Path) -> None:
    place = memory_dir() / "m"
    place.mkdir()
    (tmp_path / "flow.toml").write_text(f'name = "a"\n[[step]]\nname = "look"\ncommand = "ls {place}/*"\n')
    ended = command_line(tmp_path, "stream", "run", "flow.toml", "--dir", ".", "--no-log", place=str(place))
    assert ended.returncode == 0, ended.stderr
    assert "table" in ended.stdout
    place.rmdir()  # which is empty


def test_a_path_that_is_too_long_for_a_socket_is_told(tmp_path: Path) -> None:
    place = tmp_path / ("long" * 30)
    place.mkdir()
    (tmp_path / "flow.toml").write_text('name = "a"\n[[step]]\nname = "b"\ncommand = "true"\n')
    ended = command_line(tmp_path, "stream", "run", "flow.toml", "--dir", ".", "--no-log", place=str(place))
    assert ended.returncode == 2
    assert "set memory_dir to a shorter path" in ended.stderr
    assert not list(place.iterdir())


def test_a_program_in_a_streamed_workflow_may_use_tasks(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import penstock\nwith penstock.Runtime(cpus=1):\n    print('it', 'runs')\n")
    (tmp_path / "flow.toml").write_text(f'name = "a"\n[[step]]\nname = "b"\ncommand = "{sys.executable} app.py"\n')
    ended = command_line(tmp_path, "stream", "run", "flow.toml", "--dir", ".", "--no-log", place=str(memory_dir()))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "it runs" in ended.stdout
