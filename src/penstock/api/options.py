"""The options of ``@task``: what may be written, and what it means.

A decorator's arguments are options and directions of parameters, told apart here: a direction under the name of a
parameter is that parameter's, whatever it is called; anything else under the name of an option is the option.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from penstock.api.directions import as_direction, is_direction
from penstock.errors import DefinitionError, did_you_mean
from penstock.executors.coroutines import yields
from penstock.executors.wire import STREAM
from penstock.model.directions import IN, INOUT, Direction
from penstock.model.tasks import OnFailure
from penstock.runtime.constraints import ensure_readable, is_constraint, named
from penstock.runtime.declaration import Declaration, checked_size

__all__ = ["CallOptions", "changed", "divided", "fields"]

_OPTIONS = (
    *("returns", "ahead", "priority", "retries", "retry_delay", "timeout", "on_failure", "target_direction"),
    *("label", "duration", "size", "simulated"),
)

#: types of which no method changes an object: ``task(str.upper)``
_UNCHANGING = (str, bytes, int, bool, float, complex, tuple, frozenset, range, slice, type(None), object)


class CallOptions(TypedDict, total=False):
    """What ``with_options`` may change: what does not concern the function itself, only what is done about a call."""

    priority: bool | int
    retries: int | None
    retry_delay: float | str | None
    timeout: float | str | None
    on_failure: str | OnFailure | None
    label: str | Callable[..., Any] | None
    constraints: Mapping[str, Any]


def changed(declaration: Declaration, written: Mapping[str, Any]) -> dict[str, Any]:
    """What options of some calls say, checked: fields of the declaration."""
    name = declaration.name
    for key in written:
        if key in CallOptions.__annotations__:
            continue
        if key in _OPTIONS or key in declaration.signature.parameters:
            raise DefinitionError(f"with_options of {name}: {key} is settled where the task is defined, in @task")
        if is_constraint(key):
            raise DefinitionError(f"with_options of {name}: write constraints={{{key!r}: {written[key]!r}}}")
        hint = (
            did_you_mean(key, CallOptions.__annotations__) or f" (known are {', '.join(CallOptions.__annotations__)})"
        )
        raise DefinitionError(f"with_options of {name}: there is no option {key!r}{hint}")
    fields: dict[str, Any] = {}
    if "priority" in written:
        fields["priority"] = _priority(name, written["priority"])
    if "timeout" in written:
        fields["timeout"] = _timeout(name, written["timeout"])
    if "label" in written:
        fields["label"] = _label(name, written["label"])
    if "constraints" in written:
        fields["constraints"] = {**declaration.constraints, **_constraints(declaration, written["constraints"])}
    return fields | _about_failures(declaration, written)


def _about_failures(declaration: Declaration, written: Mapping[str, Any]) -> dict[str, Any]:
    """Who asks for retries has them also when the function raises, unless what a failure means was said."""
    if not written.keys() & {"retries", "retry_delay", "on_failure"}:
        return {}
    name = declaration.name
    retries = _retries(name, written["retries"]) if "retries" in written else declaration.retries
    delay = declaration.retry_delay
    if "retry_delay" in written:
        delay = _seconds(name, "retry_delay", written["retry_delay"])
    said = written.get("on_failure")
    if said is None and declaration.on_failure not in (OnFailure.FAIL, OnFailure.RETRY):
        said = declaration.on_failure
    return {"retries": retries, "retry_delay": delay, "on_failure": _on_failure(name, said, retries, delay)}


def _constraints(declaration: Declaration, written: Any) -> dict[str, Any]:
    if not isinstance(written, Mapping):
        raise DefinitionError(
            f"with_options of {declaration.name}: constraints={written!r:.60} must be a dict, such as "
            f'{{"computing_units": 2}}'
        )
    constraints = named(written)
    ensure_readable(constraints, declaration.name, io=declaration.io)
    return constraints


def fields(name: str, function: Any, signature: inspect.Signature, written: Mapping[str, Any]) -> dict[str, Any]:
    """What a decorator's arguments say of a task, checked: fields of its declaration."""
    values, directions = divided(name, signature, written)
    changes = getattr(function, "__objclass__", None) not in _UNCHANGING
    known = _directions(name, signature, directions, values.get("target_direction"), changes=changes)
    retries = _retries(name, values.get("retries"))
    retry_delay = _seconds(name, "retry_delay", values.get("retry_delay"))
    returns = _returns(name, values.get("returns"), generator=yields(function))
    return {
        "directions": known,
        "first_is_in": directions.get(next(iter(signature.parameters), "")) is IN,
        "returns": returns,
        "ahead": _ahead(name, values.get("ahead"), returns, known),
        "priority": _priority(name, values.get("priority", 0)),
        "retries": retries,
        "retry_delay": retry_delay,
        "timeout": _timeout(name, values.get("timeout")),
        "on_failure": _on_failure(name, values.get("on_failure"), retries, retry_delay),
        "label": _label(name, values.get("label")),
        "duration": _duration(name, values.get("duration")),
        "size": _size(name, values.get("size"), signature),
        "simulated": _simulated(name, values.get("simulated")),
    }


def divided(
    name: str, signature: inspect.Signature, written: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Direction]]:
    """The options, and the directions of parameters, that a decorator's arguments are."""
    options: dict[str, Any] = {}
    directions: dict[str, Direction] = {}
    for key, value in written.items():
        direction = is_direction(value)
        if key in signature.parameters and (direction or key not in _OPTIONS):
            directions[key] = as_direction(value, key, name)
        elif key in _OPTIONS and (not direction or key == "target_direction"):
            options[key] = value
        elif key in _OPTIONS:
            raise DefinitionError(
                f"@task of {name}: {key}={value!r} is a direction, but {name}{signature} has no parameter {key!r}"
            )
        else:
            hint = did_you_mean(key, [*signature.parameters, *_OPTIONS])
            raise DefinitionError(
                f"@task of {name}: {key!r} is neither a parameter of {name}{signature} nor an option of @task{hint}"
            )
    return options, directions


def _directions(
    name: str, signature: inspect.Signature, written: dict[str, Direction], target: Direction | None, *, changes: bool
) -> dict[str, Direction]:
    """The directions of parameters that are not plain IN, that of ``self`` included where methods change it."""
    directions = dict(written)
    first = next(iter(signature.parameters), None)
    if first == "self" and "self" not in directions:
        usual = INOUT if changes else IN
        directions["self"] = usual if target is None else as_direction(target, "target_direction", name)
    elif target is not None:
        raise DefinitionError(f"@task of {name}: target_direction is for methods, whose first parameter is self")
    for parameter, direction in directions.items():
        about = signature.parameters[parameter]
        if direction is not IN and about.kind is about.POSITIONAL_ONLY and about.default is not about.empty:
            raise DefinitionError(
                f"@task of {name}: parameter {parameter!r} is {direction!r} and has a default, but stands before the "
                f"/ in {name}{signature}, so that a default cannot be given to it by name; remove the / or the default"
            )
    return {parameter: direction for parameter, direction in directions.items() if direction is not IN}


def _returns(name: str, written: Any, *, generator: bool) -> int:
    if written is ... or (written is None and generator):
        return STREAM
    if written is None:
        return -1
    if generator and written == 0:
        raise DefinitionError(f"@task of {name}: it yields values, but returns=0 says that it has none")
    if written is True or isinstance(written, type):
        return 1
    if isinstance(written, tuple) and written and all(isinstance(part, type) for part in written):
        return len(written)
    if isinstance(written, int) and written >= 0:
        return int(written)
    if hasattr(written, "__origin__"):
        return 1  # list[int] and relatives
    raise DefinitionError(
        f"@task of {name}: returns={written!r} must be a number of values, a type, a tuple of types, True, or ..."
    )


def _ahead(name: str, written: Any, returns: int, directions: Mapping[str, Direction]) -> int:
    if written is None:
        return 0
    streamed = [parameter for parameter, direction in directions.items() if direction.stream and direction.writes]
    if streamed:
        # Held back, it would keep whoever reads the file waiting, who may be what its outputs wait for.
        raise DefinitionError(
            f"@task of {name}: ahead={written!r} holds the task back, and others read {streamed[0]!r} meanwhile; leave "
            f"ahead out, or declare {streamed[0]}=FILE_OUT"
        )
    if returns != STREAM:
        raise DefinitionError(f"@task of {name}: ahead={written!r} is for tasks that declare returns=...")
    if type(written) is not int or written < 1:
        raise DefinitionError(f"@task of {name}: ahead={written!r} must be a whole number of at least 1")
    return written


def _priority(name: str, written: Any) -> int:
    if isinstance(written, int):
        return int(written)
    raise DefinitionError(f"@task of {name}: priority={written!r} must be True, False or a whole number")


def _retries(name: str, written: Any) -> int | None:
    if written is None or (isinstance(written, int) and not isinstance(written, bool) and written >= 0):
        return written
    raise DefinitionError(f"@task of {name}: retries={written!r} must be a whole number of at least 0")


def _timeout(name: str, written: Any) -> float | None:
    seconds = _seconds(name, "timeout", written)
    if seconds is not None and seconds <= 0:
        raise DefinitionError(f"@task of {name}: timeout={written!r} must be more than 0 seconds")
    return seconds


def _seconds(name: str, option: str, written: Any) -> float | None:
    """A duration as written, if one is."""
    if written is None:
        return None
    from penstock.errors import ConfigError
    from penstock.units import parse_duration

    try:
        return parse_duration(written)
    except ConfigError as error:
        raise DefinitionError(f"@task of {name}: {option}={written!r}: {error}") from None


def _on_failure(name: str, written: Any, retries: int | None, retry_delay: float | None) -> OnFailure:
    if written is None:
        # Who asks for retries, or for pauses between them, wants them also when the function raises.
        return OnFailure.RETRY if retries or (retries is None and retry_delay is not None) else OnFailure.FAIL
    if isinstance(written, OnFailure):
        return written
    try:
        return OnFailure(str(written).lower())
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in OnFailure)
        raise DefinitionError(f"@task of {name}: on_failure={written!r} must be one of {choices}") from None


def _label(name: str, written: Any) -> str | Callable[..., Any] | None:
    if written is None or isinstance(written, str) or (callable(written) and not isinstance(written, type)):
        return written
    raise DefinitionError(
        f"@task of {name}: label={written!r:.60} must be a text, or a function of the arguments that gives one"
    )


def _duration(name: str, written: Any) -> Any:
    """Seconds; or a distribution or a function of the arguments, which only a simulated run asks."""
    if written is None or (callable(written) and not isinstance(written, type)):
        return written
    from penstock.errors import ConfigError
    from penstock.units import parse_duration

    if isinstance(written, str | int | float):
        with contextlib.suppress(ConfigError):
            return parse_duration(written)  # which needs no import of the simulator
    from penstock.runtime.simulated_durations import checked_duration

    try:
        return checked_duration(written)
    except ConfigError as error:
        raise DefinitionError(f"@task of {name}: duration={written!r:.60}: {error}") from None


def _size(name: str, written: Any, signature: inspect.Signature) -> Any:
    """Bytes; or bytes by parameter, or a function of the arguments that gives either."""
    if written is None or (callable(written) and not isinstance(written, type)):
        return written
    from penstock.errors import ConfigError

    unknown = [one for one in written if one not in (*signature.parameters, "returns")] if type(written) is dict else []
    if unknown:
        hint = did_you_mean(str(unknown[0]), [*signature.parameters, "returns"])
        raise DefinitionError(f"@task of {name}: size of {unknown[0]!r}, which is no parameter of {name}{hint}")
    try:
        return checked_size(written)
    except ConfigError as error:
        raise DefinitionError(f"@task of {name}: size={written!r:.60}: {error}") from None


def _simulated(name: str, written: Any) -> Callable[..., Any] | None:
    if written is None or callable(written):
        return written  # type: ignore[no-any-return]
    raise DefinitionError(
        f"@task of {name}: simulated={written!r:.60} must be a function of the arguments; for a value that is always "
        f"the same write simulated=lambda *args: value"
    )
