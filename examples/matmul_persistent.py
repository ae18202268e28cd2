"""Blocked matrix product with blocks in a store and with plain arrays: the same tasks, the same result.

Operands are persistent objects, of which only ids are sent; blocks of the product are plain arrays that tasks update.
N³ tasks in N² chains of N: each adds one product of blocks to its block of C.
"""

import tempfile

import numpy as np

from penstock import INOUT, PersistentObject, Runtime, barrier, task, wait_on

BLOCKS, INNER, COLUMNS, SIZE = 3, 4, 2, 96


class Block(PersistentObject):
    """A block of a matrix."""

    def __init__(self, block):
        self.block = block


@task(c=INOUT)
def multiply(a, b, c):
    # In the store or not, a block is read where it lies.
    c += (a.block if isinstance(a, Block) else a) @ (b.block if isinstance(b, Block) else b)


def dot(a, b, c, set_barrier=False):
    """C += A·B. The inner index runs over the columns of A, which are the rows of B."""
    for i in range(len(a)):
        for j in range(len(b[0])):
            for k in range(len(b)):
                multiply(a[i][k], b[k][j], c[i][j])
    if set_barrier:
        barrier()


def blocks(rows, columns, make):
    return [[make(i, j) for j in range(columns)] for i in range(rows)]


def random_block(i, j):
    return np.random.default_rng([i, j]).standard_normal((SIZE, SIZE))


def product(a, b):
    c = blocks(BLOCKS, COLUMNS, lambda i, j: np.zeros((SIZE, SIZE)))
    dot(a, b, c)
    return np.block(wait_on(c))


a, b = blocks(BLOCKS, INNER, random_block), blocks(INNER, COLUMNS, random_block)
with tempfile.TemporaryDirectory() as folder, Runtime(store=f"local:{folder}"):
    stored_a = [[Block(block).make_persistent() for block in row] for row in a]
    stored_b = [[Block(block).make_persistent() for block in row] for row in b]
    with_store = product(stored_a, stored_b)
    without = product(a, b)

print(f"{BLOCKS}×{INNER} by {INNER}×{COLUMNS} blocks of {SIZE}×{SIZE}: {BLOCKS * INNER * COLUMNS} products")
print(f"equal to numpy's: {np.allclose(with_store, np.block(a) @ np.block(b))}")
print(f"with the store and without it the same: {np.array_equal(with_store, without)}")
