"""Arrays that are read-only only because a task was given them so: pickled, they may be changed again.

A pickle says of each buffer whether it was read-only. That is right for an array which the program itself has made so;
but one that lies in memory of ours is read-only for the task that has it, and not for whoever is given the result.
"""

from __future__ import annotations

import ctypes
from pickle import PickleBuffer
from typing import Any

__all__ = ["changeable"]


def changeable(array: Any) -> Any:
    """A contiguous, read-only array as one that can be written, of the same bytes, if its memory is a buffer of ours.

    Only for pickling: nobody must write to it.
    """
    import numpy

    root = array
    while isinstance(root, numpy.ndarray):
        root = root.base
    if not isinstance(root, memoryview | bytes | PickleBuffer):
        return array
    if not array.nbytes:
        return numpy.empty_like(array)
    # A power of two, since ctypes keeps the type of every length for ever; the array ends where it did.
    length = 1 << (array.nbytes - 1).bit_length()
    memory: Any = (ctypes.c_char * length).from_address(array.__array_interface__["data"][0])
    memory.owner = array
    return numpy.ndarray(array.shape, array.dtype, memory, 0, array.strides)
