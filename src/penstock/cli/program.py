"""Running somebody's program as ``python`` would run it: as ``__main__``, with its own arguments and search path.

``runpy`` is not used because it takes the module away when the program ends, and tasks, pickles and exit handlers
may still need it then.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

__all__ = ["ProgramNotFound", "load_program", "print_exception", "run_program"]


class ProgramNotFound(Exception):
    """There is nothing to run; the message says why."""


def load_program(name: str, arguments: list[str], *, as_module: bool) -> CodeType:
    """Make everything ready for ``name`` to run as ``__main__``, and return its code."""
    # Python put the folder of our own command at the head of the path; the program expects its own there.
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.realpath(name))
    if as_module:
        spec = _find_module(name)
        code = _module_code(spec, name)
        path = code.co_filename
        _install_main(path, spec, spec.loader)
    else:
        path = name
        code = _script_code(path)
        _install_main(path, None, SourceFileLoader("__main__", path))
    sys.argv = [path, *arguments]
    return code


def _script_code(path: str) -> CodeType:
    try:
        with open(path, "rb") as file:
            source = file.read()
    except IsADirectoryError:
        raise ProgramNotFound(f"{path} is a directory; give a Python file, or a module with -m") from None
    except OSError as error:
        raise ProgramNotFound(f"cannot open {path}: {error.strerror}") from None
    return compile(source, path, "exec", dont_inherit=True)


def _find_module(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise ProgramNotFound(f"cannot find the module {name}: {error}") from None
    if spec is None or spec.loader is None:
        raise ProgramNotFound(f"there is no module {name} that can be run")
    return spec


def _module_code(spec: ModuleSpec, name: str) -> CodeType:
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if not isinstance(code, CodeType):
        raise ProgramNotFound(f"the module {name} has no Python code to run")
    return code


def _install_main(path: str, spec: ModuleSpec | None, loader: object) -> None:
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __spec__=spec,
        __loader__=loader,
        __package__=spec.parent if spec else None,
        __builtins__=builtins,
        __cached__=spec.cached if spec else None,
        __annotations__={},
    )
    sys.modules["__main__"] = main


def run_program(code: CodeType) -> int:
    """Run the program to its end and return its exit status; exceptions other than ``SystemExit`` pass."""
    try:
        exec(code, sys.modules["__main__"].__dict__)
    except SystemExit as request:
        return _status(request.code)
    return 0


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def print_exception(error: BaseException) -> None:
    """Show an exception that ended the program, through its own ``sys.excepthook`` and without our frames."""
    error.__traceback__ = _trim(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)


def _trim(traceback: TracebackType | None) -> TracebackType | None:
    ours = os.path.dirname(__file__)
    while traceback is not None and os.path.dirname(traceback.tb_frame.f_code.co_filename) == ours:
        traceback = traceback.tb_next
    return traceback
