"""Which exceptions look as if something that a task uses is out of order for a while, so that it pays to wait.

Asked in the process that caught the exception: only there it is more than text.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

__all__ = ["is_outage"]

_NUMBERS = frozenset(
    {
        *(errno.EIO, errno.EREMOTEIO, errno.ESTALE, errno.EAGAIN),
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.EPIPE, errno.ESHUTDOWN),
        *(errno.ETIMEDOUT, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    }
)
#: exceptions behind an exception that are looked at
_DEEPEST = 16


def is_outage(error: BaseException) -> bool:
    """Whether an exception, or one that led to it, is of a connection, of a time limit or of an ailing file system.

    Libraries raise their own classes for these (redis, requests, urllib3, httpx), while they handle one of Python's.
    """
    return any(_is_passing(one) for one in _behind(error))


def _behind(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that led to it, as a traceback would show them."""
    found: BaseException | None = error
    for _ in range(_DEEPEST):
        if found is None:
            return
        yield found
        reason = getattr(found, "reason", None)  # how urllib wraps them
        if isinstance(reason, BaseException):
            found = reason
        elif found.__cause__ is not None or found.__suppress_context__:
            found = found.__cause__
        else:
            found = found.__context__


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if not isinstance(error, OSError):
        return False
    if isinstance(error, socket.gaierror):  # whose numbers are others
        return error.errno == socket.EAI_AGAIN
    return error.errno in _NUMBERS
