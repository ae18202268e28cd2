"""Exceptions of MPI as ones that the main program can hold, which has no MPI.

To unpickle an ``MPI.Exception`` there would load the library and start it, and its text is known only where it was
raised. So a rank puts an ordinary exception in its place: an OSError for files, which also tells of a full disk.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import Any

__all__ = ["with_plain_errors"]

#: what the classes of MPI's errors with files are called in the operating system
_OF_FILES = {
    "ERR_ACCESS": errno.EACCES,
    "ERR_BAD_FILE": errno.EINVAL,
    "ERR_FILE": errno.EBADF,
    "ERR_FILE_EXISTS": errno.EEXIST,
    "ERR_FILE_IN_USE": errno.EBUSY,
    "ERR_IO": errno.EIO,
    "ERR_NO_SPACE": errno.ENOSPC,
    "ERR_NO_SUCH_FILE": errno.ENOENT,
    "ERR_QUOTA": errno.EDQUOT,
    "ERR_READ_ONLY": errno.EROFS,
}


def with_plain_errors(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body of a task, raising an ordinary exception where it would raise one of MPI."""
    from mpi4py import MPI

    numbers = {getattr(MPI, name): number for name, number in _OF_FILES.items()}

    @functools.wraps(body)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return body(*args, **kwargs)
        except MPI.Exception as error:
            plain = _plain(str(error), numbers.get(error.Get_error_class()))
            # In its place, not in addition: the lines of the traceback are the same.
            raise plain.with_traceback(error.__traceback__) from None

    return call


def _plain(words: str, number: int | None) -> Exception:
    if number is None:
        return RuntimeError(f"MPI: {words}")
    if number == errno.EIO:
        # "Any other error", of which the last words are those of the operating system.
        said = words.rstrip()
        number = next((known for known in errno.errorcode if said.endswith(f" {os.strerror(known)}")), number)
    return OSError(number, f"MPI: {words}")
