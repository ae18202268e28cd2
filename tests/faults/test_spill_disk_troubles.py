"""Far above the store's capacity, with a spill disk that takes nothing: data stay in memory, and are right.

The capacity is a target. A task fails for want of room only when shared memory and the disk have none in truth.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.programs import Program
from tests.faults.test_store_full import needs_mounts

pytestmark = [pytest.mark.timeout(120), needs_mounts]

#: what befalls the disk, as a function of the program
TROUBLES = {
    "no room for a directory": "",
    "full from the beginning": "fill()",
    "full later": "",
    "a file in the place of the directory": "shutil.rmtree(spill); open(spill, 'w').close()",
    "the directory vanishes": "shutil.rmtree(spill)",
    "the disk vanishes": "subprocess.run(['umount', '-l', disk], check=True); shutil.rmtree(disk)",
    "read-only": "subprocess.run(['mount', '-o', 'remount,ro', disk], check=True)",
    "full and free again": "fill(); threading.Thread(target=come_and_go, daemon=True).start()",
}

#: one program for each way in which data come into the store
KINDS = {
    "results": """
futures = [make(number) for number in range(COUNT)]
check([total(future) for future in futures])
assert [float(future.result()[3]) for future in futures] == [float(number) for number in range(COUNT)]
""",
    "arguments": """
arrays = [np.full(NUMBERS, float(number)) for number in range(COUNT)]
check([total(array) for array in arrays])
""",
    "updates": """
arrays = [np.zeros(NUMBERS) for _ in range(COUNT)]
for number, array in enumerate(arrays):
    add(array, number)
futures = [total(array) for array in arrays]
assert [float(wait_on(array)[5]) for array in arrays] == [float(number) for number in range(COUNT)]
check(futures)
""",
    "built arrays": """
futures = [build(number) for number in range(COUNT)]
assert [float(future.result()[-1]) for future in futures] == [float(number) for number in range(COUNT)]
""",
    "map": """
mapped = make.map([float(number) for number in range(COUNT)])
assert [float(array[7]) for array in mapped.results()] == [float(number) for number in range(COUNT)]
""",
    "streams": """
parts = list(stream(COUNT))
check([total(part) for part in parts])
""",
    "shared objects": """
shared = [penstock.share(np.full(NUMBERS, float(number))) for number in range(COUNT)]
check([total(array) for array in shared])
""",
    "long pickles": """
futures = [words(number) for number in range(COUNT)]
assert [future.result()[9] for future in futures] == [f"{number} 9" for number in range(COUNT)]
assert wait_on([length(future) for future in futures]) == [60_000] * COUNT
""",
}

PROGRAM = """
import shutil, subprocess, threading
import numpy as np

NUMBERS, COUNT = 62_500, 12
disk = {disk!r}

def fill():
    name = os.path.join(disk, "filling")
    with open(name, "wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue

def come_and_go():
    while not os.path.exists(disk + ".stop"):
        time.sleep(0.02)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(disk, "filling"))
        time.sleep(0.02)
        with contextlib.suppress(OSError):
            fill()

@task
def make(value):
    return np.full(NUMBERS, float(value))

@task
def build(value):
    array = penstock.empty(300_000)
    array[:] = value
    return array

@task(returns=...)
def stream(count):
    for number in range(count):
        yield np.full(NUMBERS, float(number))

@task
def words(number):
    return [f"{{number}} {{index}}" for index in range(60_000)]

@task
def length(values):
    return len(values)

@task(array=INOUT)
def add(array, number):
    array += number

@task
def total(array):
    return float(array.sum())

def check(futures):
    assert wait_on(futures) == [number * float(NUMBERS) for number in range(COUNT)]

runtime = penstock.start(cpus=2, store_capacity="1MB", spill_dir=disk, tuning="off", {settings})
spill = runtime.segments.spill_dir
{trouble}
for source in {kinds!r}.values():
    exec(source, globals())
    {then}
open(disk + ".stop", "w").close()
print("right")
"""


@pytest.mark.one_in(9)
@pytest.mark.parametrize("mode", ["parallel", "inline"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_data_above_the_capacity_stay_in_memory_when_the_disk_takes_none(
    tmp_path: Path, trouble: str, mode: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    source = PROGRAM.format(
        disk=str(disk),
        settings=f"mode={mode!r}",
        trouble=f"os.makedirs(spill, exist_ok=True); {TROUBLES[trouble]}" if TROUBLES[trouble] else "",
        kinds=KINDS,
        then="fill()" if trouble == "full later" else "pass",
    )
    room = "nr_inodes=1" if trouble == "no room for a directory" else "size=1200000"
    script = f'mount -t tmpfs -o {room} none {disk} && exec "$@"'
    mapped = [] if os.getuid() == 0 else ["--map-root-user"]
    prefix = ("unshare", *mapped, "--mount", "sh", "-c", script, "sh")
    with Program(tmp_path, "import contextlib\n" + source, prefix=prefix) as program:
        status, output, errors = program.ends(within=100)
        assert (status, output.strip()) == (0, "right"), errors
