"""k-means: each task finds the means of its own points, weighted by how many there are; the program joins them."""

import numpy as np

from penstock import share, task, wait_on

CENTERS = np.array([[1.0, 1.0], [6.0, 1.0], [2.0, 7.0], [8.0, 8.0]])
POINTS, PARTS, ROUNDS = 200_000, 8, 6


def nearest_means(points, means):
    """Sum and number of the points nearest to each mean."""
    distances = ((points[:, None, :] - means) ** 2).sum(axis=2)
    labels = distances.argmin(axis=1)
    weights = np.bincount(labels, minlength=len(means))
    sums = np.stack([np.bincount(labels, points[:, axis], len(means)) for axis in range(points.shape[1])], axis=1)
    return sums, weights


@task(returns=2)
def partial_means(points, means):
    return nearest_means(points, means)


def joined(sums, weights):
    return sum(sums) / sum(weights)[:, None]


chance = np.random.default_rng(2026)
points = CENTERS[chance.integers(len(CENTERS), size=POINTS)] + chance.standard_normal((POINTS, 2))
means = start = points[:4].copy()

# The points are read in every round and never change: shared, they go to the store once and cost nothing per call.
parts = [share(part) for part in np.array_split(points, PARTS)]

for number in range(1, ROUNDS + 1):
    # returns=2 gives two futures per call, so that sums and weights can go different ways.
    sums, weights = zip(*[partial_means(part, means) for part in parts], strict=True)
    sums, weights = wait_on(sums, weights)
    before, means = means, joined(sums, weights)
    moved = np.abs(means - before).max()
    print(f"round {number}: the farthest mean moved by {moved:.4f}")

alone = start
for _ in range(ROUNDS):
    alone = joined(*([part] for part in nearest_means(points, alone)))

for (x, y), weight in sorted(zip(means.tolist(), sum(weights).tolist(), strict=True)):
    print(f"{weight:>6,} points around ({x:.2f}, {y:.2f})")
print(f"equal to a sequential run: {np.allclose(means, alone)}")
