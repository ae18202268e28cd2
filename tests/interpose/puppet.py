"""A program on strings: it evaluates the expressions that a test sends, one line each, and answers with the value.

It runs preloaded, so that every call goes through the wrappers, by Python's own functions or by name through ``libc``.
"""

import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
for name in ("fopen", "fdopen", "freopen", "popen", "opendir", "mmap", "fdopendir"):
    getattr(libc, name).restype = ctypes.c_void_p
for name in ("read", "write", "pread", "pwrite", "lseek", "sendfile", "splice", "copy_file_range", "readv", "preadv2"):
    getattr(libc, name).restype = ctypes.c_ssize_t


def call(name, *words):
    """A libc call by name: its result, or OSError with its errno if it is -1."""
    ctypes.set_errno(0)
    result = getattr(libc, name)(*words)
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def main():
    requests, answers = os.fdopen(int(sys.argv[1]), "r"), int(sys.argv[2])
    world = {**globals(), "keep": {}}
    for line in requests:
        try:
            text = bytes.fromhex(line.strip()).decode("utf-8", "surrogateescape")
            value = eval(text, world) if not text.startswith("!") else exec(text[1:], world)
            answer = f"= {value!r}"
        except OSError as error:
            answer = f"E {error.errno}"
        except BaseException as error:
            answer = f"X {error!r}"
        os.write(answers, answer.encode("utf-8", "surrogateescape").hex().encode() + b"\n")


main()
