"""Blocked matrix product: C = A·B, one task per block product, and one block of C updated in place by each."""

import numpy as np

from penstock import COLLECTION_IN, INOUT, constraint, task, wait_on

BLOCKS, SIZE = 4, 256


@task
def random_block(seed):
    return np.random.default_rng(seed).standard_normal((SIZE, SIZE))


@constraint(computing_units=1, memory_size="100MB")
@task(c=INOUT)
def multiply(c, a, b):
    # a and b are mapped from shared memory, read-only; c is changed where it lies, because nobody else reads it.
    c += a @ b


@task(row=COLLECTION_IN)
def row_norm(row):
    return float(sum(np.sum(block * block) for block in row))


A = [[random_block([1, i, j]) for j in range(BLOCKS)] for i in range(BLOCKS)]
B = [[random_block([2, i, j]) for j in range(BLOCKS)] for i in range(BLOCKS)]
C = [[np.zeros((SIZE, SIZE)) for j in range(BLOCKS)] for i in range(BLOCKS)]

for i in range(BLOCKS):
    for j in range(BLOCKS):
        for k in range(BLOCKS):
            # Products for one block of C follow one another; the sixteen blocks do not wait for each other.
            multiply(C[i][j], A[i][k], B[k][j])

# A task that reads a collection waits for all its elements, here for a row of blocks that other tasks still change.
norms = [row_norm(row) for row in C]

# wait_on reaches into containers: it takes the futures in A and B, and brings the arrays in C up to date.
a, b, c = (np.block(wait_on(matrix)) for matrix in (A, B, C))
print(f"{BLOCKS}×{BLOCKS} blocks of {SIZE}×{SIZE}: {BLOCKS**3} products")
print(f"equal to numpy's A @ B: {np.allclose(c, a @ b)}")
print(f"norm of C: {np.sqrt(sum(wait_on(norms))):.2f}")
