"""Pairwise alignment as a stream: reads are aligned while the rest of the file is still being read.

The reader yields chunks of reads and is held back when the aligners cannot keep up, so a file of any size goes through
little memory. The aligner is a real one, small: the best place of a read in a reference, with mismatches and gaps.
"""

import os
import tempfile

import numpy as np

from penstock import task, wait_on

LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
MATCH, MISMATCH, GAP = 2, -3, 4


def write_reads(path, reference, count, length, seed=0):
    """A FASTQ file of reads from known places, one letter in fifty changed; the place is part of a read's name."""
    chance = np.random.default_rng(seed)
    with open(path, "wb") as file:
        for place in chance.integers(0, len(reference) - length, count):
            read = reference[place : place + length].copy()
            changed = chance.random(length) < 0.02
            read[changed] = LETTERS[chance.integers(0, 4, changed.sum())]
            file.write(b"@read:%d\n%s\n+\n%s\n" % (place, read.tobytes(), b"I" * length))


def records(path):
    """Name, letters and quality of each read of a FASTQ file, checked."""
    with open(path, "rb") as file:
        while header := file.readline():
            letters, plus, quality = file.readline().strip(), file.readline(), file.readline().strip()
            if header[:1] != b"@" or plus[:1] != b"+" or len(letters) != len(quality):
                raise ValueError(f"{path}: no FASTQ record at {header!r}")
            yield header[1:].strip().decode(), letters, sum(quality) / len(quality) - 33


@task(returns=..., ahead=8)
def get_reads(path, chunk):
    """The reads of good quality, chunk by chunk."""
    reads = []
    for name, letters, quality in records(path):
        if quality >= 20:
            reads.append((name, letters))
        if len(reads) == chunk:
            yield reads
            reads = []
    if reads:
        yield reads


def best_place(read, reference):
    """Score of the best alignment of a whole read to any part of the reference, and where that part ends."""
    steps = GAP * np.arange(len(reference) + 1)
    scores = np.zeros(len(reference) + 1, dtype=np.int64)  # a read may begin anywhere
    for position, letter in enumerate(np.frombuffer(read, dtype=np.uint8), start=1):
        diagonal = scores[:-1] + np.where(reference == letter, MATCH, MISMATCH)
        best = np.concatenate(([-GAP * position], np.maximum(diagonal, scores[1:] - GAP)))
        # A gap in the read is a step to the right, any number of times: the best so far, less the steps.
        scores = np.maximum.accumulate(best + steps) - steps
    end = int(scores.argmax())
    return int(scores[end]), end


@task(returns=1)
def align(reads, reference):
    """For each read of a chunk: its name, its score, and where it seems to begin."""
    placed = []
    for name, letters in reads:
        score, end = best_place(letters, reference)
        placed.append((name, score, end - len(letters)))
    return placed


if __name__ == "__main__":
    reference = LETTERS[np.random.default_rng(1).integers(0, 4, 5_000)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "reads.fastq")
        write_reads(path, reference, count=200, length=50)
        # Each chunk is aligned as soon as it was read; the stream ends when the file does.
        aligned = [align(chunk, reference) for chunk in get_reads(path, 20)]
        placed = [one for chunk in wait_on(aligned) for one in chunk]

    right = sum(abs(int(name.split(":")[1]) - place) <= 2 for name, _, place in placed)
    mean = sum(score for _, score, _ in placed) / len(placed)
    print(f"{len(placed)} reads in {len(aligned)} chunks, {right} at their true place, mean score {mean:.1f} of 100")
