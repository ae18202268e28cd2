"""Where the two C libraries are: the one that programs preload and the one that Python loads.

They lie beside this module: in a wheel they were put there by its build, in a source folder by ``make``.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from penstock.errors import ConfigError

__all__ = ["interposer_path", "table_library"]


def _beside(name: str) -> Path:
    path = Path(__file__).parent / name
    if not path.is_file():
        raise ConfigError(
            f"streaming needs {name}, and this penstock was built without its native part: "
            f"run `make native` in the source folder, or install a wheel for this machine"
        )
    return path


def interposer_path() -> str:
    """What goes into ``LD_PRELOAD``."""
    path = str(_beside("libpenstock_interpose.so"))
    if " " in path or ":" in path:
        raise ConfigError(
            f"{path} cannot be preloaded: LD_PRELOAD knows no blanks or colons in a path; install elsewhere"
        )
    return path


@cache
def table_library() -> ctypes.CDLL:
    """The shared table's code, loaded once."""
    return ctypes.CDLL(str(_beside("libpenstock_table.so")), use_errno=False)
