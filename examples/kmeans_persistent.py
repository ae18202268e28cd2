"""k-means on fragments that live in a store: tasks are given their ids, and the points are never sent.

Each task labels the points of its fragment and returns, per centre, their sum and their number. The sums are divided
by the numbers of all fragments together: a mean of means would be wrong, and drawn to zero by fragments without points.
"""

import tempfile

import numpy as np

from penstock import INOUT, PersistentObject, Runtime, task, wait_on

FRAGMENTS, POINTS, DIMENSIONS, CENTRES = 4, 20_000, 3, 5


class Fragment(PersistentObject):
    """Some of the points."""

    def __init__(self, mat):
        self.mat = mat


def distances(points, centres, norm):
    """Of every point to every centre, as a sum over the coordinates."""
    apart = np.abs(points[:, None, :] - centres)
    return apart.sum(axis=2) if norm == "l1" else (apart**2).sum(axis=2)


def sums_and_counts(points, labels, count):
    counts = np.bincount(labels, minlength=count)
    sums = np.stack([np.bincount(labels, column, count) for column in points.T], axis=1)
    return sums, counts


@task(labels=INOUT, returns=2)
def cluster_and_partial_sums(fragment, labels, centres, norm):
    labels[:] = distances(fragment.mat, centres, norm).argmin(axis=1)
    return sums_and_counts(fragment.mat, labels, len(centres))


def moved(centres, sums, counts):
    """The new centres; one that has no points stays where it is."""
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)


def kmeans_frag(fragments, centres, iterations=30, epsilon=1e-3, norm="l2"):
    labels = [np.zeros(POINTS, dtype=np.int64) for _ in fragments]
    rounds = 0
    shift = epsilon
    while shift >= epsilon and rounds < iterations:
        partial = [cluster_and_partial_sums(*pair, centres, norm) for pair in zip(fragments, labels, strict=True)]
        sums, counts = (sum(parts) for parts in zip(*wait_on(partial), strict=True))
        before, centres = centres, moved(centres, sums, counts)
        shift = np.abs(centres - before).sum(axis=1).max()
        rounds += 1
    return centres, wait_on(labels), rounds


def sequential(points, centres, iterations):
    for _ in range(iterations):
        labels = distances(points, centres, "l2").argmin(axis=1)
        centres = moved(centres, *sums_and_counts(points, labels, len(centres)))
    return centres, labels


chance = np.random.default_rng(3)
middles = chance.uniform(0, 20, (CENTRES, DIMENSIONS))
# Fragments of different make: in the last ones some clusters hardly occur.
weights = chance.dirichlet(np.full(CENTRES, 0.7), FRAGMENTS)
parts = [middles[chance.choice(CENTRES, POINTS, p=share)] + chance.standard_normal((POINTS, 3)) for share in weights]
start = middles + chance.standard_normal(middles.shape)

with tempfile.TemporaryDirectory() as folder, Runtime(store=f"local:{folder}"):
    fragments = [Fragment(part).make_persistent(f"points-{number}") for number, part in enumerate(parts)]
    centres, labels, rounds = kmeans_frag(fragments, start)
    for fragment in fragments:
        fragment.delete_persistent()

alone, alone_labels = sequential(np.concatenate(parts), start, rounds)
print(f"{FRAGMENTS} fragments of {POINTS:,} points, {rounds} rounds")
for centre, number in zip(centres, np.bincount(np.concatenate(labels)), strict=True):
    print(f"{number:>6,} points around ({', '.join(f'{x:.2f}' for x in centre)})")
print(f"centres as in a sequential run: {np.allclose(centres, alone)}")
print(f"labels too: {np.array_equal(np.concatenate(labels), alone_labels)}")
