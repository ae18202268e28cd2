"""A million calls from a loop, in bounded memory: the program waits when too many are pending."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from penstock import Runtime, task

@task
def touch(i):
    return i

with Runtime(cpus=2, window=20_000) as runtime:
    for i in range(20_000):
        touch(i)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most = 0
    for i in range(1_000_000):
        touch(i)
        most = max(most, runtime.driver.engine.unfinished)
    last = touch(-1).result()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
done = runtime.driver.engine.state.done
print(done, last, most <= 20_000, (after - before) // 1024)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_million_tasks_in_bounded_memory() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=500, check=True)
    count, last, bounded, growth = done.stdout.split()
    assert (int(count), int(last), bounded) == (1_020_001, -1, "True")
    assert int(growth) < 100  # MB
