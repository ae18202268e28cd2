"""pytest as a worker needs it: what collects tests has nothing to do there, but would take an eighth of a second.

A worker that runs a task of a test module imports that module, and the module imports pytest. The suite starts some
thousands of workers, and many tests only a few tasks in each, so that import was most of what they did. This folder
comes first where workers look for modules (tests/conftest.py), never where pytest itself runs. Marks and fixtures do
nothing here; whoever wants more of pytest gets the real one.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Mark:
    """A mark with or without arguments: it leaves what it decorates as it is."""

    def __call__(self, *given: Any, **_named: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) else self


class _Marks:
    def __getattr__(self, name: str) -> _Mark:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Mark()


mark = _Marks()
fixture = hookimpl = _Mark()


def param(*values: Any, **_named: Any) -> Any:
    return values


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_real_pytest(), name)


def _real_pytest() -> Any:
    if sys.modules.get(__name__) is _myself:
        path = list(sys.path)
        sys.path[:] = [entry for entry in path if os.path.abspath(entry) != _HERE]
        del sys.modules[__name__]
        try:
            importlib.import_module(__name__)
        finally:
            sys.path[:] = path
    return sys.modules[__name__]


_myself = sys.modules[__name__]
