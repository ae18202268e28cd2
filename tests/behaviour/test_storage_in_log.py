"""What a run leaves in its event log about storage, and what `penstock run` says of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.own_place import user_environment

import penstock
from penstock import FILE_OUT, constraint, io, task
from penstock.observe import records
from penstock.observe.log import read_log
from penstock.observe.summary import summary_lines
from penstock.observe.tally import Tally
from penstock.runtime.recorded import workload_of

MB = 1_000_000


@constraint(storage_bw="40MB/s", storage_size="1MB")
@io
@task(path=FILE_OUT)
def save(path: str, size: int) -> None:
    with open(path, "wb") as file:
        file.write(b"x" * size)


@constraint(storage_bw="40MB/s", storage_size="1MB")
@io
@task(path=FILE_OUT(temp=True))
def stage(path: str) -> None:
    Path(path).write_bytes(b"x" * 1000)


@constraint(storage_bw="auto(25,100,2)")
@io
@task(path=FILE_OUT)
def learn(path: str) -> None:
    Path(path).write_bytes(b"x" * 1000)


@task()
def compute(number: int) -> int:
    return number


class Storage:
    """Two layers below a test's folder, and runs that keep their log there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("fast", "slow", "out"):
            (folder / name).mkdir()

    def run(self, program: Callable[[], object], **settings: Any) -> list[records.Record]:
        """Run a program and return its log."""
        storage = [
            {"name": "ssd", "mount": str(self.folder / "fast"), "bandwidth": "100MB/s", "capacity": "1GB"},
            {"name": "disk", "mount": str(self.folder / "slow"), "bandwidth": "50MB/s", "capacity": "2GB"},
        ]
        run_dir = str(self.folder / "run")
        with penstock.Runtime(cpus=2, tuning="off", run_dir=run_dir, storage=storage, **settings):
            program()
            penstock.barrier()
        return list(read_log(os.path.join(run_dir, "events.jsonl")))

    def output(self, name: object) -> str:
        return str(self.folder / "out" / str(name))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def of(kind: type, log: list[records.Record]) -> list[Any]:
    return [record for record in log if type(record) is kind]


def test_bandwidth_is_told_as_it_is_taken_and_given_back(storage: Storage) -> None:
    log = storage.run(lambda: [save(storage.output(n), 1000 + n) for n in range(10)])
    (started,) = of(records.RunStarted, log)
    assert [(layer.name, layer.bandwidth, layer.capacity) for layer in started.storage] == [
        ("ssd", 100.0 * MB, 1000 * MB),
        ("disk", 50.0 * MB, 2000 * MB),
    ]
    assert all(record.io and record.cpus == 0 and not record.learned for record in of(records.Submitted, log))
    assert {record.bandwidth for record in of(records.Launched, log)} == {40.0 * MB}
    sizes = sorted(record.bytes for record in of(records.Finished, log))
    returned = sizes[0] - 1000  # what a call that returns nothing returns has a size, too
    assert returned < 10
    assert sizes == [1000 + n + returned for n in range(10)]
    held: dict[int, str] = {}
    for record in log:
        if type(record) is records.Launched:
            held[record.task] = record.layer
        elif type(record) is records.Finished:
            assert held.pop(record.task) == record.layer
        elif type(record) is records.Device:
            assert record.used == 40.0 * MB * record.running
            assert record.used <= (100 if record.layer == "ssd" else 50) * MB
    last = {record.layer: record for record in of(records.Device, log)}
    assert all(record.running == record.waiting == record.stored == 0 for record in last.values())


def test_layers_for_temporary_files_are_told_and_replayed(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(storage.folder)
    run_dir = str(storage.folder / "run")
    with penstock.Runtime(cpus=1, tuning="off", run_dir=run_dir):  # what is found; memory is one of them
        penstock.wait_on([save(storage.output(1), 1000), stage(storage.output(2))])
    path = os.path.join(run_dir, "events.jsonl")
    log = list(read_log(path))
    (started,) = of(records.RunStarted, log)
    fleeting = {layer.name for layer in started.storage if layer.temporary}
    assert "memory" in fleeting
    layer_of = {record.task: record.layer for record in of(records.Launched, log)}
    lasting = {layer.name for layer in started.storage} - fleeting
    assert layer_of[1] in (lasting or fleeting)
    assert layer_of[2] in fleeting
    replayed = workload_of(path)
    again = {job.call.task: job.call.spec.requirements.temporary for job in replayed.workload.jobs}
    assert again == {1: False, 2: True}
    assert {layer.name for node in replayed.nodes for layer in node.storage if layer.temporary} == fleeting


def test_a_plain_task_leaves_nothing_of_storage(storage: Storage) -> None:
    log = storage.run(lambda: [compute(n) for n in range(5)])
    assert not of(records.Device, log)
    lines = (storage.folder / "run" / "events.jsonl").read_text().splitlines()
    of_machine = [line for line in lines if '"run_started"' in line or '"node_joined"' in line]
    assert len(of_machine) == 2
    assert all("storage" in line for line in of_machine)
    rest = "\n".join(line for line in lines if line not in of_machine)
    assert not any(word in rest for word in ("layer", "bandwidth", '"io"', "learned"))


def test_files_that_come_home_are_told_of(storage: Storage) -> None:
    log = storage.run(lambda: [save(storage.output(n), 500) for n in range(4)])
    moves = of(records.Moved, log)
    assert sorted(move.path for move in moves) == [storage.output(n) for n in range(4)]
    assert all(move.bytes == 500 and move.layer == "" and not move.error for move in moves)
    assert all(move.source.startswith(str(storage.folder)) for move in moves)
    (draining,) = of(records.Draining, log)
    assert draining.files == 4
    assert draining.bytes == 2000
    assert type(log[-1]) is records.RunEnded


def test_learning_is_told_epoch_by_epoch(storage: Storage) -> None:
    log = storage.run(lambda: [learn(storage.output(n)) for n in range(30)], tuner="published")
    assert all(record.learned for record in of(records.Submitted, log))
    epochs = of(records.EpochEnded, log)
    # On a machine that is busy, times change, and learning begins anew after this.
    first_layer = [epoch for epoch in epochs if epoch.layer == "ssd"][:3]
    assert [epoch.constraint for epoch in first_layer] == [25.0 * MB, 50.0 * MB, 100.0 * MB]
    assert [epoch.tasks for epoch in first_layer] == [4, 2, 1]
    choices = of(records.ConstraintChosen, log)
    assert choices[0].constraint in {25.0 * MB, 50.0 * MB, 100.0 * MB}
    assert log.index(choices[0]) > log.index(first_layer[-1])


def test_the_tally_of_a_log_sums_it_up(storage: Storage) -> None:
    log = storage.run(lambda: [save(storage.output(n), 100_000) for n in range(6)])
    tally = Tally()
    tally.add(log)
    devices = tally.storage.devices.values()
    assert sum(device.written for device in devices) == pytest.approx(600_000, rel=1e-3)
    assert sum(device.flushed for device in devices) == 600_000
    assert sum(device.flushes for device in devices) == 6
    ssd = tally.storage.devices["ssd"]
    assert 0 < ssd.seconds_in_use(tally.elapsed) < tally.elapsed
    assert any(line.startswith("  ssd ") for line in summary_lines(tally))


def test_nothing_is_recorded_where_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*values: object) -> None:
        raise AssertionError("a record was made")

    for kind in ("Submitted", "Launched", "Finished", "Device"):
        monkeypatch.setattr(records, kind, refuse)
    disk = {"name": "ssd", "mount": str(tmp_path), "bandwidth": "100MB/s"}
    with penstock.Runtime(cpus=2, tuning="off", storage=[disk]):
        save(str(tmp_path / "x"), 1000)
        penstock.barrier()
    assert (tmp_path / "x").stat().st_size == 1000


PROGRAM = """
import sys
from penstock import FILE_OUT, constraint, io, start, task

start(tuning="off", storage=[{"name": "ssd", "mount": "fast", "bandwidth": "100MB/s"}])

@constraint(storage_bw="auto(25,100,2)")
@io
@task(path=FILE_OUT)
def save(path):
    with open(path, "wb") as file:
        file.write(b"x" * 1000)

for n in range(20):
    save(f"out{n}")
"""


def test_penstock_run_sums_up_storage(storage: Storage) -> None:
    (storage.folder / "app.py").write_text(PROGRAM)
    clean = user_environment()
    command = [sys.executable, "-m", "penstock.cli", "run", "--tuner", "published", "app.py"]
    done = subprocess.run(
        command,
        cwd=storage.folder,
        env=clean | {"TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("  storage "))
    assert lines[at].split() == ["storage", "written", "rate", "in", "use", "flushed"]
    assert lines[at + 1].startswith("  ssd      20.1 kB ")
    assert lines[at + 1].endswith("20 kB in 20 files")
    assert lines[at + 3].split() == ["learned", "storage_bw", "at", "a", "time", "epochs", "tasks", "in", "them"]
    assert lines[at + 4].startswith("  save on ssd ")
    # Three epochs with seven tasks, unless this machine is so busy that tasks of an epoch did not run side by side.
    epochs, tasks = map(int, lines[at + 4].split()[-2:])
    assert tasks >= epochs >= 3
