"""What the setup of workers binds or changes in globals, for the tasks that come after it.

A function that travels by value brings copies of the globals that it uses, so a setup that binds one would bind it for
itself alone. Here we see to it that functions which are loaded later find what the setup has bound or changed, in place
of what they bring: the setup knows better than the program what is in this process.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Callable
from typing import Any

from penstock.executors.used_names import ABSENT, attributes, can_change, snapshot

__all__ = ["setup_globals"]


class _SetupGlobals:
    """Of this process, which is set up once; the program itself is for each run that is inline."""

    def __init__(self) -> None:
        #: by the name of their module
        self._globals: dict[str, dict[str, Any]] = {}
        #: of functions and classes, by module and name
        self._attributes: dict[tuple[str, str], dict[str, Any]] = {}
        #: while the setup itself is loaded or looked at: the globals of its functions, and these and its classes
        self._scopes: dict[int, dict[str, Any]] | None = None
        self._made: set[Any] = set()
        self._installed = False

    def call_inline(self, function: Callable[[], object]) -> None:
        """Call a setup in the program itself. As in workers, what it binds need not be what can be pickled."""
        import cloudpickle

        self._install()
        self._scopes = {}
        with contextlib.suppress(Exception):
            cloudpickle.dumps(function)  # passes by all that it uses
        scopes, self._scopes = self._scopes, None
        before = [(scope, dict(scope)) for scope in scopes.values()]
        try:
            function()
        finally:
            for scope, earlier in before:
                bound = {name: value for name, value in scope.items() if earlier.get(name, ABSENT) is not value}
                self._globals.setdefault(scope.get("__name__", ""), {}).update(bound)

    def forget(self) -> None:
        """The run is over: functions bring what they use."""
        self._globals = {}

    def call(self, data: bytes) -> None:
        """Load a pickled setup and call it."""
        if b"cloudpickle" not in data:
            pickle.loads(data)()
            return
        self._install()
        self._scopes = {}
        try:
            function = pickle.loads(data)
        finally:
            scopes, self._scopes = self._scopes, None
            loaded, self._made = self._made, set()
        before = [(scope, _states(scope)) for scope in scopes.values()]
        made = [(one, _states(_attributes(one))) for one in loaded]
        try:
            function()
        finally:
            for scope, states in before:
                found = self._globals.setdefault(scope.get("__name__", ""), {})
                found.update(_changed({name: value for name, value in scope.items() if name[:2] != "__"}, states))
            for one, states in made:
                self._attributes[one.__module__, one.__qualname__] = _changed(_attributes(one), states)

    def _install(self) -> None:
        """Hear of every function and class that is loaded by value."""
        if self._installed:
            return
        self._installed = True
        from cloudpickle import cloudpickle

        for name in ("_function_setstate", "_class_setstate"):
            setattr(cloudpickle, name, _followed(getattr(cloudpickle, name), self._loaded))
        getstate = cloudpickle._function_getstate
        cloudpickle._function_getstate = lambda function: self._without(function, getstate(function))

    def _without(self, function: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> Any:
        """What of a function leaves this process, where the setup's globals stay: often they cannot be pickled."""
        if self._scopes is not None:
            self._scopes[id(function.__globals__)] = function.__globals__
        scope = state[1]["__globals__"]
        ours = self._globals.get(function.__globals__.get("__name__", ""), {})
        state[1]["__globals__"] = {name: value for name, value in scope.items() if ours.get(name, ABSENT) is not value}
        return state

    def _loaded(self, made: Any) -> None:
        scope = getattr(made, "__globals__", None)
        if self._scopes is not None:
            self._made.add(made)
            if scope is not None:
                self._scopes[id(scope)] = scope
        if scope is not None:
            scope.update(self._globals.get(scope.get("__name__", ""), ()))
        for name, value in self._attributes.get((made.__module__, made.__qualname__), {}).items():
            setattr(made, name, value)


setup_globals = _SetupGlobals()


def _followed(function: Callable[..., Any], then: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(function)  # so that it is pickled by the same name
    def followed(made: Any, state: Any) -> Any:
        result = function(made, state)
        then(made)
        return result

    return followed


def _attributes(made: Any) -> dict[str, Any]:
    return attributes(made) if isinstance(made, type) else vars(made)


def _states(values: dict[str, Any]) -> dict[str, tuple[Any, bytes | None]]:
    return {name: _state(value) for name, value in values.items()}


def _state(value: Any) -> tuple[Any, bytes | None]:
    return value, snapshot(value) if can_change(value) else None


def _changed(values: dict[str, Any], before: dict[str, tuple[Any, bytes | None]]) -> dict[str, Any]:
    """Those of the values that are not what they were."""
    found = {}
    for name, value in values.items():
        earlier, state = before.get(name, (ABSENT, None))
        if value is not earlier or (can_change(value) and snapshot(value) != state):
            found[name] = value
    return found
