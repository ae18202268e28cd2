"""``@program``: a task whose body is an external program, given as its command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

from penstock.api.decorators import with_fields
from penstock.api.directions import is_direction
from penstock.api.task import Task, task
from penstock.errors import DefinitionError, did_you_mean
from penstock.executors.command_lines import Template, parse
from penstock.executors.programs import Program, ProgramBody, Result
from penstock.model.directions import Direction

__all__ = ["program"]

P = ParamSpec("P")

_DEFAULTS: dict[str, Any] = {"returns": int, "success": 0, "sizes": "at_commit"}
_REDIRECTIONS = {"stdin": "FILE_IN", "stdout": "FILE_OUT", "stderr": "FILE_OUT"}


def program(
    command: Any,
    /,
    *,
    returns: Any = int,
    success: int | Sequence[int] | Direction = 0,
    sizes: str | Direction = "at_commit",
    **options: Any,
) -> Callable[[Callable[P, Any]], Task[P, Any]]:
    """Make a task of an external program; the function below it only names the parameters, its body is ``...``.

    ``command``: one line, or a list of words, with the names of parameters in braces. ``<parameter>=<direction>`` is as
    in ``@task``; a parameter named ``stdin``, ``stdout`` or ``stderr`` is a file to redirect to. ``returns``: ``int``
    for the exit status, ``str`` or ``bytes`` for what the program wrote on stdout, ``subprocess.CompletedProcess`` for
    all of it. ``success``: exit statuses that are no failure. ``sizes="so_far"``: while a file that it reads as a
    stream is being written, the program is told how large it is so far, instead of waiting for its end. Other options
    are those of ``@task``.
    """
    if callable(command):
        example = '@program("sort {table} > {out}", table=FILE_IN, out=FILE_OUT)'
        raise DefinitionError(f"@program needs the command: {example}")

    own = {"returns": returns, "success": success, "sizes": sizes}
    # A direction under the name of an option is that of a parameter; @task says what to do if there is none.
    directions = {key: value for key, value in own.items() if is_direction(value)}
    own = {key: _DEFAULTS[key] if key in directions else value for key, value in own.items()}

    def apply(function: Callable[P, Any]) -> Task[P, Any]:
        if isinstance(function, Task):
            name = function.declaration.name
            raise DefinitionError(f"@program of {name}: it is a task already; write what @task says into @program")
        if not inspect.isfunction(function):
            raise DefinitionError(f"@program decorates functions, not {function!r}")
        name = function.__qualname__.replace("<locals>.", "")
        made: Task[P, Any] = task(**options, **directions)(function)
        _ensure_empty(function, name)
        declaration = made.declaration
        template = parse(_checked_command(command, name), name)
        redirected = _redirected(name, declaration.signature, declaration.directions, template)
        result = _result(name, own["returns"], redirected)
        success, so_far = _success(name, own["success"]), _so_far(name, own["sizes"])
        about = Program(template, result, success, redirected, so_far=so_far)
        body = ProgramBody(about, function, declaration.signature)
        decorated: Task[P, Any] = with_fields(made, body=body, returns=1)
        return decorated

    return apply


def _checked_command(command: Any, name: str) -> str | Sequence[str]:
    if isinstance(command, str):
        return command
    if isinstance(command, list | tuple) and command and all(isinstance(word, str) for word in command):
        return command
    raise DefinitionError(f"@program of {name}: the command {command!r} is neither text nor a list of words")


def _nothing() -> None: ...
def _only_told() -> None:
    """Says something."""


def _ensure_empty(function: Any, name: str) -> None:
    """Refuse a body that does something: it would never run."""
    if function.__code__.co_code not in (_nothing.__code__.co_code, _only_told.__code__.co_code):
        raise DefinitionError(f"@program of {name}: the program runs, not the function's body; write ... there")


def _redirected(name: str, signature: inspect.Signature, directions: Any, template: Template) -> tuple[str, ...]:
    """Which parameters are redirections; every other must have a place in the command, and every place a parameter."""
    places = template.names()
    for place in places:
        if place not in signature.parameters:
            hint = did_you_mean(place, signature.parameters)
            raise DefinitionError(
                f"@program of {name}: the command has a place {{{place}}}, but {name}{signature} has no such "
                f"parameter{hint}"
            )
    redirected = []
    for parameter, about in signature.parameters.items():
        listed = about.kind is about.VAR_POSITIONAL and parameter in places  # as many words as there are arguments
        if (about.kind in (about.VAR_POSITIONAL, about.VAR_KEYWORD) and not listed) or parameter == "self":
            raise DefinitionError(f"@program of {name}: parameter {about} cannot be given to a command")
        direction: Direction | None = directions.get(parameter)
        if direction is not None and not direction.file and direction.writes:
            raise DefinitionError(
                f"@program of {name}: parameter {parameter!r} is {direction!r}, but a program changes only files"
            )
        if parameter in places:
            continue
        if parameter in _REDIRECTIONS:
            fits = direction is not None and direction.file and direction.writes is (parameter != "stdin")
            if not fits or (direction is not None and direction.writes and direction.reads):
                raise DefinitionError(
                    f"@program of {name}: declare {parameter}={_REDIRECTIONS[parameter]}, to have it redirected"
                )
            redirected.append(parameter)
        elif direction is None or not direction.file:
            raise DefinitionError(f"@program of {name}: the command has no place {{{parameter}}}")
    return tuple(redirected)


def _result(name: str, returns: Any, redirected: tuple[str, ...]) -> Result:
    results: dict[Any, Result] = {int: "status", None: "status", str: "text", bytes: "bytes"}
    try:
        known = results.get(returns)
    except TypeError:
        known = None
    if known is None:
        import subprocess

        if returns is not subprocess.CompletedProcess:
            raise DefinitionError(
                f"@program of {name}: returns={returns!r} must be int (exit status), str or bytes (what it wrote on "
                f"stdout), or subprocess.CompletedProcess"
            )
        return "process"
    if known in ("text", "bytes") and "stdout" in redirected:
        raise DefinitionError(f"@program of {name}: stdout goes to a file, so returns={returns.__name__} has nothing")
    return known


def _success(name: str, written: Any) -> tuple[int, ...]:
    codes = (written,) if isinstance(written, int) else tuple(written) if isinstance(written, list | tuple) else ()
    if not codes or not all(type(code) is int for code in codes):
        raise DefinitionError(f"@program of {name}: success={written!r} must be an exit status, or several")
    return codes


def _so_far(name: str, written: Any) -> bool:
    if written not in ("at_commit", "so_far"):
        raise DefinitionError(f'@program of {name}: sizes={written!r} must be "at_commit" or "so_far"')
    return bool(written == "so_far")
