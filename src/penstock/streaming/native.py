"""Where the native half is: the library that programs preload, the supervisor of programs that cannot be preloaded, and
the library that Python loads.

They lie beside this module: in a wheel they were put there by its build, in a source folder by ``make``.
"""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path

from penstock.errors import ConfigError

__all__ = ["interposer_path", "table_library", "why_not_supervised"]

#: seconds that the supervisor may take to try itself out
_TRIAL = 30


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


@cache
def why_not_supervised() -> str:
    """Why programs that cannot be preloaded cannot be supervised here either; empty if they can."""
    try:
        supervisor = str(_beside("penstock_supervisor"))
        tried = subprocess.run([supervisor, "check"], capture_output=True, text=True, timeout=_TRIAL, check=False)
    except ConfigError:
        return "this penstock was built without its supervisor"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its supervisor does not run: {error}"
    return tried.stdout.strip() or f"its supervisor ended with {tried.returncode}" if tried.returncode else ""
