"""How many different words do many files hold? One sketch per file (HyperLogLog), and one task that joins them all.

    python distinct_count.py                          # makes files of its own, and knows the true number
    python distinct_count.py *.txt --buckets 12 --collections

A sketch keeps, for each of 2^buckets registers, the largest number of zeros that a hash began with. The sketches reach
the joining task as one collection, or as a parameter each.
"""

import argparse
import hashlib
import tempfile
import time
from pathlib import Path

import numpy as np

from penstock import COLLECTION_IN, FILE_IN, barrier, task

FILES, WORDS, ALL_WORDS = 40, 5_000, 100_000


def hashes(words, bits):
    """The low bits of each word's SHA-256."""
    digests = b"".join(hashlib.sha256(word.encode()).digest()[-8:] for word in words)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64) & np.uint64(2**bits - 1)


def sketch(words, bits, buckets):
    """Of each register, one more than the longest run of zeros; 0 where no word fell."""
    numbers = hashes(words, bits)
    rest_bits = bits - buckets
    registers = (numbers >> np.uint64(rest_bits)).astype(np.int64)
    rest = numbers & np.uint64(2**rest_bits - 1)
    used = np.zeros(len(rest), dtype=np.int64)  # bits that the rest needs, found exactly, half by half
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >= np.uint64(2**step)
        rest = np.where(high, rest >> np.uint64(step), rest)
        used += step * high
    used += rest > 0
    ranks = np.zeros(2**buckets, dtype=np.uint8)
    np.maximum.at(ranks, registers, (rest_bits - used + 1).astype(np.uint8))
    return ranks


def estimate(ranks):
    """The number of words: a harmonic mean, corrected for its bias; few words are told by the registers left empty."""
    m = len(ranks)
    found = 0.7213 / (1 + 1.079 / m) * m * m / np.sum(0.5 ** ranks.astype(float))
    empty = int((ranks == 0).sum())
    return float(m * np.log(m / empty) if found <= 2.5 * m and empty else found)


@task(filename=FILE_IN)
def count_distinct(filename, bits, buckets):
    return sketch(set(Path(filename).read_text().split()), bits, buckets)


@task(sketches=COLLECTION_IN)
def join_collection(sketches):
    return np.maximum.reduce(list(sketches))


@task
def join_varargs(*sketches):
    return np.maximum.reduce(sketches)


def joined(sketches, collections):
    """The joined sketch, and how long it took to call the task and to have its result."""
    began = time.perf_counter()
    future = join_collection(sketches) if collections else join_varargs(*sketches)
    called = time.perf_counter() - began
    return future.result(), called, time.perf_counter() - began


def write_files(folder):
    """Files of words of which many are in several files; gives their names, and how many words there are."""
    chance, names, words = np.random.default_rng(7), [], set()
    for number in range(FILES):
        drawn = [f"word{i}" for i in chance.integers(ALL_WORDS, size=WORDS)]
        words.update(drawn)
        names.append(Path(folder) / f"words-{number}.txt")
        names[-1].write_text(" ".join(drawn))
    return names, len(words)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("files", nargs="*")
    options.add_argument("--bits", type=int, default=64)
    options.add_argument("--buckets", type=int, default=11)
    options.add_argument("--collections", action="store_true", help="join them by a collection only")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files, truth = (given.files, None) if given.files else write_files(folder)
        sketches = [count_distinct(file, given.bits, given.buckets) for file in files]
        barrier()  # so that joining is timed alone
    found = {way: joined(sketches, way) for way in ([True] if given.collections else [True, False])}
    ranks, called, done = found[True]
    print(f"{len(files)} files, {len(ranks)} registers: about {estimate(ranks):,.0f} different words")
    if truth is None:
        print(f"joined in {done * 1e3:.1f} ms, of which the call took {called * 1e3:.1f} ms")
    else:
        print(f"there are {truth:,}: off by {abs(estimate(ranks) / truth - 1):.1%}, and 2.3% is usual")
        print(f"as a collection and as varargs the same: {np.array_equal(ranks, found[False][0])}")


if __name__ == "__main__":
    main()
