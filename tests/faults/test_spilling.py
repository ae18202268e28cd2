"""Programs that need more memory than the store may use: layers that fill up, break or are busy, and ends of runs."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.layers import assert_sums, devices, layer, remains, start
from tests.faults.programs import Program, gone, segments_in
from tests.faults.test_store_full import needs_mounts
from tests.patience import eventually

import penstock
from penstock import INOUT, constraint, io, task, wait_on

NUMBERS = 62_500  # half a megabyte
SIZE = 8 * NUMBERS
MODES = pytest.mark.parametrize("mode", ["parallel", "inline"])


@task
def make(value: float) -> Any:
    return np.full(NUMBERS, float(value))


@task
def plus(array: Any, number: float) -> Any:
    return array + number


@task(array=INOUT)
def add(array: Any, number: float) -> None:
    array += number


@task
def total(*arrays: Any) -> float:
    return float(sum(array.sum() for array in arrays))


def size(count: int) -> str:
    """A number of bytes as a setting."""
    return f"{count}B"


def settled(runtime: penstock.Runtime) -> bool:
    """Whether no segment moves, and memory holds no more than it may."""
    penstock.barrier()
    store = runtime.driver.engine.state.store
    assert store is not None
    return not store.is_pressed and not store.spills and not store.restores


@MODES
def test_dozens_of_arrays_and_chains_in_the_room_of_four(tmp_path: Path, mode: str) -> None:
    layers = layer("fast", tmp_path / "fast", capacity=size(6 * SIZE)), layer("slow", tmp_path / "slow")
    runtime = start(*layers, store_capacity=size(4 * SIZE), mode=mode)
    made = [make(number) for number in range(24)]
    chains = list(made)
    for step in range(3):
        chains = [plus(array, step) for array in chains]
    updated = [np.zeros(NUMBERS) for _ in range(8)]
    for step in range(3):
        for index, array in enumerate(updated):
            add(array, index + step)
    assert wait_on([total(array) for array in chains]) == [(number + 3.0) * NUMBERS for number in range(24)]
    assert [float(wait_on(array)[7]) for array in updated] == [3.0 * index + 3 for index in range(8)]
    assert [float(array.result()[3]) for array in made] == [float(number) for number in range(24)]
    eventually(lambda: settled(runtime))
    assert_sums(runtime)
    assert devices(runtime)["fast"].stored <= 6 * SIZE
    assert mode == "inline" or len(segments_in(runtime.segments.memory_dir)) <= 4
    on_layers = [path for path in remains(tmp_path / "fast", tmp_path / "slow") if "/spilled/s" in path]
    assert len(on_layers) >= 20
    penstock.stop()
    assert remains(tmp_path / "fast", tmp_path / "slow") == []


@MODES
def test_inputs_that_exceed_the_capacity_together_and_alone(tmp_path: Path, mode: str) -> None:
    runtime = start(layer("disk", tmp_path / "disk"), store_capacity=size(SIZE // 2), mode=mode)
    arrays = [make(number) for number in range(10)]
    assert total(*arrays).result() == 45.0 * NUMBERS
    assert total(arrays[4]).result() == 4.0 * NUMBERS
    array = np.zeros(NUMBERS)
    add(array, 1)
    add(array, 2)
    assert float(wait_on(array)[5]) == 3.0
    eventually(lambda: settled(runtime))
    assert_sums(runtime)
    penstock.stop()
    assert remains(tmp_path / "disk") == []


def test_a_place_named_by_the_user_on_a_layer_counts_as_that_layer(tmp_path: Path) -> None:
    disk = layer("disk", tmp_path / "disk")
    (tmp_path / "disk" / "mine").mkdir()
    runtime = start(disk, store_capacity=size(2 * SIZE), spill_dir=tmp_path / "disk" / "mine")
    arrays = [make(number) for number in range(6)]
    penstock.wait(arrays)
    eventually(lambda: settled(runtime))
    assert devices(runtime)["disk"].stored == 4 * SIZE
    assert len(segments_in(runtime.segments.spill_dir)) == 4
    assert total(*arrays).result() == 15.0 * NUMBERS
    del arrays
    gc.collect()
    eventually(lambda: settled(runtime) and devices(runtime)["disk"].stored == 0)


def test_a_layer_without_room_is_passed_over(tmp_path: Path) -> None:
    runtime = start(layer("tiny", tmp_path / "tiny", capacity=size(SIZE // 2)), store_capacity=size(2 * SIZE))
    arrays = [make(number) for number in range(6)]
    penstock.wait(arrays)
    eventually(lambda: settled(runtime))
    assert devices(runtime)["tiny"].stored == 0
    assert len(segments_in(runtime.segments.spill_dir)) == 4
    assert wait_on([total(array) for array in arrays]) == [number * 1.0 * NUMBERS for number in range(6)]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write where nobody else may")
def test_a_place_that_cannot_be_written_keeps_everything_in_memory(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    runtime = start(layer("disk", tmp_path / "disk"), store_capacity=size(2 * SIZE), spill_dir=tmp_path / "spill")
    os.chmod(runtime.segments.spill_dir, 0o500)
    arrays = [make(number) for number in range(3)]
    assert wait_on([total(array) for array in arrays]) == [number * 1.0 * NUMBERS for number in range(3)]
    os.chmod(runtime.segments.spill_dir, 0o700)


@io
@constraint(storage_bw="1GB/s")
@task
def occupy(path: str) -> int:
    deadline = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.005)
    return 1


def test_moves_wait_while_io_tasks_hold_the_whole_device(tmp_path: Path) -> None:
    disk = layer("disk", tmp_path / "disk", bandwidth="1GB/s")
    runtime = start(disk, store_capacity=size(2 * SIZE))
    busy = occupy(str(tmp_path / "go"))
    eventually(lambda: devices(runtime)["disk"].free_bandwidth == 0)
    arrays = [make(number) for number in range(3)]
    penstock.wait(arrays)
    assert not devices(runtime)["disk"].moves
    assert len(segments_in(runtime.segments.memory_dir)) == 3
    (tmp_path / "go").touch()
    assert busy.result() == 1
    eventually(lambda: settled(runtime))
    assert len(segments_in(runtime.segments.memory_dir)) == 2
    assert devices(runtime)["disk"].free_bandwidth + devices(runtime)["disk"].others == 1e9


@task
def end_this_process_once(array: Any, marker: str) -> float:
    if not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return float(array.sum())


def test_a_worker_killed_over_restored_data_is_replaced_and_the_task_repeated(tmp_path: Path) -> None:
    runtime = start(layer("disk", tmp_path / "disk"), store_capacity=size(SIZE))
    arrays = [make(number) for number in range(4)]
    penstock.wait(arrays)
    eventually(lambda: settled(runtime))
    futures = [end_this_process_once(array, str(tmp_path / f"m{n}")) for n, array in enumerate(arrays)]
    assert wait_on(futures) == [number * 1.0 * NUMBERS for number in range(4)]
    eventually(lambda: settled(runtime))
    assert_sums(runtime)


def test_a_task_cancelled_while_it_waits_for_a_slow_restore(tmp_path: Path) -> None:
    slow = layer("slow", tmp_path / "slow", curve=[[1, size(4 * SIZE) + "/s"]])
    runtime = start(slow, store_capacity=size(SIZE))
    first, second = make(1), make(2)
    penstock.wait([first, second])
    eventually(lambda: settled(runtime))
    waiting = [total(first), total(second)]
    assert any(future.cancel() for future in waiting)
    assert [future.cancelled() or future.result() > 0 for future in waiting] == [True, True]
    assert total(first, second).result() == 3.0 * NUMBERS
    eventually(lambda: settled(runtime))
    assert_sums(runtime)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("abort", [True, False])
def test_a_run_that_ends_in_the_middle_of_a_spill_leaves_nothing(
    tmp_path: Path, abort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.spills._STEP", 512)  # which takes less than a second
    slow = layer("slow", tmp_path / "slow", curve=[[1, size(SIZE // 600) + "/s"]])  # ten minutes each
    runtime = start(slow, store_capacity=size(2 * SIZE))
    arrays = [make(number) for number in range(8)]
    penstock.wait(arrays)
    eventually(lambda: devices(runtime)["slow"].moves)
    runtime.stop(abort=abort)
    assert [float(array.result()[0]) for array in arrays] == [float(number) for number in range(8)]
    assert remains(tmp_path / "slow") == []
    assert not os.path.exists(runtime.segments.memory_dir)


def test_a_killed_program_leaves_nothing_on_layers(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    source = f"""
import numpy as np

disk = {{"name": "disk", "mount": {str(tmp_path / "disk")!r}, "bandwidth": "1GB/s"}}
runtime = penstock.start(cpus=2, store_capacity="{2 * SIZE}B", storage=[disk], tuning="off")

@task
def make(value):
    return np.full({NUMBERS}, value)

futures = [make(number) for number in range(8)]
barrier()
folder = runtime.segments.layer_dirs["disk"]
while not os.path.isdir(folder) or len(os.listdir(folder)) < 3:
    time.sleep(0.01)
arrive("spilled")
signal.pause()
"""
    with Program(tmp_path, source) as program:
        assert program.arrival() == "spilled"
        program.process.kill()
        program.ends()
        gone([], program)
        eventually(lambda: not os.listdir(tmp_path / "disk"))


def test_what_moved_is_in_the_log(tmp_path: Path) -> None:
    from penstock.observe.log import read_log

    run = tmp_path / "run"
    runtime = start(layer("disk", tmp_path / "disk"), store_capacity=size(2 * SIZE), run_dir=run, keep_run_dir="always")
    arrays = [make(number) for number in range(6)]
    penstock.wait(arrays)
    eventually(lambda: settled(runtime))
    assert [total(array).result() for array in arrays] == [number * SIZE / 8 for number in range(6)]
    penstock.stop()
    kinds = [(type(record).__name__, getattr(record, "layer", "")) for record in read_log(str(run / "events.jsonl"))]
    assert kinds.count(("Spilled", "disk")) >= 4
    assert kinds.count(("Restored", "disk")) >= 1


@pytest.mark.one_in(2)
@MODES
@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_what_cannot_be_restored_is_computed_again(tmp_path: Path, mode: str, damage: str) -> None:
    runtime = start(layer("disk", tmp_path / "disk"), store_capacity=size(2 * SIZE), mode=mode)
    arrays = [make(number) for number in range(6)]
    sums = [plus(array, 1) for array in arrays]
    penstock.wait(sums)
    eventually(lambda: settled(runtime))
    folders = [Path(folder) for folder in runtime.segments.spill_dirs]
    spilled = [path for folder in folders if folder.exists() for path in folder.glob("s*")]
    assert len(spilled) == 10
    for path in spilled:
        if damage == "gone":
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
    assert wait_on([total(array) for array in sums]) == [(number + 1.0) * NUMBERS for number in range(6)]
    assert [float(array.result()[0]) for array in arrays] == [float(number) for number in range(6)]
    eventually(lambda: settled(runtime))
    assert_sums(runtime)


@needs_mounts
def test_a_disk_that_is_really_full_leaves_the_rest_in_memory(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    source = f"""
import numpy as np

runtime = penstock.start(cpus=2, store_capacity="{2 * SIZE}B", spill_dir={str(tmp_path / "small")!r}, tuning="off")

@task
def make(value):
    return np.full({NUMBERS}, float(value))

@task
def total(array):
    return float(array.sum())

futures = [make(number) for number in range(3)]
penstock.wait(futures)
store = runtime.driver.engine.state.store
futures += [make(number) for number in range(3, 5)]
assert wait_on([total(future) for future in futures]) == [number * {NUMBERS}.0 for number in range(5)]
deadline = time.monotonic() + 60
while not store.refused and time.monotonic() < deadline:
    time.sleep(0.01)
print("refused", list(store.refused))
penstock.stop()
print("left", os.listdir({str(tmp_path / "small")!r}))
"""
    script = f'mount -t tmpfs -o size={SIZE + 100_000} none {tmp_path / "small"} && exec "$@"'
    mapped = [] if os.getuid() == 0 else ["--map-root-user"]
    with Program(tmp_path, source, prefix=("unshare", *mapped, "--mount", "sh", "-c", script, "sh")) as program:
        status, output, errors = program.ends()
        assert status == 0, errors
        assert "refused [" in output  # or nothing was full
        assert "refused []" not in output
        assert "left []" in output
