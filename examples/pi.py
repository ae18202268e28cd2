"""Pi by throwing darts: map() calls one function on many seeds, far cheaper than as many single calls."""

import random

from penstock import task

DARTS, SEEDS = 10_000, 200


@task
def hits(seed):
    # Seeding inside the task makes every run give the same digits, however the calls are spread over workers.
    chance = random.Random(seed)
    return sum(chance.random() ** 2 + chance.random() ** 2 <= 1.0 for _ in range(DARTS))


inside = hits.map(range(SEEDS))

# The first elements are futures like any other, ready long before the last ones.
for n in (1, 10, 100):
    some = sum(future.result() for future in inside[:n])
    print(f"{n * DARTS:>9,} darts: pi is about {4 * some / (n * DARTS):.4f}")

print(f"{SEEDS * DARTS:>9,} darts: pi is about {4 * sum(inside.results()) / (SEEDS * DARTS):.4f}")
