"""Word count: the texts are files, one task counts each, and one total takes the counts in as they come."""

import random
import tempfile
from collections import Counter
from pathlib import Path

from penstock import FILE_IN, FILE_OUT, INOUT, task, wait_on

SAYING = "the river feeds the gate and the gate feeds the turbine while the valley sleeps below"
FILES, WORDS = 120, 60_000


@task(path=FILE_OUT)
def write(path, seed):
    # A task draws its own random numbers from a seed it is given: the result does not depend on which worker runs it.
    chance = random.Random(seed)
    Path(path).write_text(" ".join(chance.choices(SAYING.split(), k=WORDS)))


@task(path=FILE_IN)
def count(path):
    return Counter(Path(path).read_text().split())


@task(total=INOUT)
def merge(total, part):
    total.update(part)


total = Counter()
with tempfile.TemporaryDirectory() as folder:
    for number in range(FILES):
        path = Path(folder) / f"text-{number}.txt"
        write(path, seed=number)
        # count() waits for the file that write() makes, merge() for the future that count() gives: no line says so.
        merge(total, count(path))
    total = wait_on(total)  # inside the block, because the folder must outlive the tasks that use it

for word, times in sorted(total.items(), key=lambda item: (-item[1], item[0])):
    print(f"{times:>9,} {word}")
print(f"{total.total():>9,} words in {FILES} files")
