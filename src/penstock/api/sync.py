"""Synchronisation: bring values and files of tasks back to the main program."""

from __future__ import annotations

import concurrent.futures
import os
from typing import IO, TYPE_CHECKING, Any

from penstock.data.refresh import refresh
from penstock.executors.execution import inside_task
from penstock.runtime import session
from penstock.runtime.files import as_path
from penstock.runtime.futures import Future
from penstock.runtime.maps import Mapped

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["barrier", "cancel", "delete_file", "delete_object", "open_file", "share", "wait_on"]


def wait_on(*objects: Any) -> Any:
    """Wait for the newest values of objects, and of everything inside lists, tuples, sets and dicts.

    An object that tasks updated is itself brought up to date where its type allows that, and returned. One argument
    gives one value, several give a list.
    """
    runtime = session.running()
    if runtime is not None and not inside_task():
        for obj in reversed(objects):
            _await(obj)
    values = [_value(obj, runtime) for obj in objects]
    return values[0] if len(values) == 1 else values


def _await(obj: Any) -> None:
    """Block for the last futures first: by then the others are done, and each costs no wake-up of its own."""
    if type(obj) in (list, tuple):
        for part in reversed(obj):
            if isinstance(part, Future) and not part.done():
                part.exception() if not part.cancelled() else None
                return


def _value(obj: Any, runtime: Runtime | None) -> Any:
    if isinstance(obj, concurrent.futures.Future):
        return obj.result()
    if isinstance(obj, Mapped):
        return obj.results()
    if runtime is not None:
        datum = runtime.identity.find(obj)
        if datum is not None and not datum.shared:
            value = runtime.value_of(datum)
            if not refresh(obj, value):
                return value
            runtime.forget(obj)
            return obj
    kind = type(obj)
    if kind is dict:
        return _replace_values(obj, {key: _value(part, runtime) for key, part in obj.items()})
    if kind is list:
        return _replace_values(obj, [_value(part, runtime) for part in obj])
    if isinstance(obj, tuple):
        parts = [_value(part, runtime) for part in obj]
        if all(a is b for a, b in zip(parts, obj, strict=True)):
            return obj
        return kind(*parts) if hasattr(obj, "_fields") else kind(parts)
    if kind in (set, frozenset):
        return kind(_value(part, runtime) for part in obj) if any(map(_is_future, obj)) else obj
    if kind.__name__ == "ndarray" and obj.dtype == object:
        for index, part in enumerate(obj.flat):
            obj.flat[index] = _value(part, runtime)
    return obj


def _is_future(obj: Any) -> bool:
    return isinstance(obj, concurrent.futures.Future)


def _replace_values(old: Any, new: Any) -> Any:
    """The container itself if nothing in it changed, else a new one."""
    pairs = zip(old.values(), new.values(), strict=True) if type(old) is dict else zip(old, new, strict=True)
    return old if all(a is b for a, b in pairs) else new


def barrier() -> None:
    """Wait for every task called so far; raises the first failure that nobody has looked at."""
    runtime = session.running()
    if runtime is not None:
        runtime.barrier()


def share(obj: Any) -> Any:
    """Promise not to change an object: it is stored once, and costs nothing per call from then on."""
    session.current().share(obj)
    return obj


def delete_object(*objects: Any) -> None:
    """Forget what tasks made of objects; their versions are freed once no task reads them."""
    runtime = session.running()
    if runtime is not None:
        for obj in objects:
            runtime.forget(obj)


def open_file(path: Any, mode: str = "r", **options: Any) -> IO[Any]:
    """Open a file that tasks write, after its last writer, or after all its users if it is opened to write."""
    _wait_for_file(path, writing=any(letter in mode for letter in "wax+"))
    return open(path, mode, **options)


def delete_file(path: Any) -> None:
    """Remove a file once every task that uses it is done."""
    _wait_for_file(path, writing=True)
    os.unlink(path)


def _wait_for_file(path: Any, *, writing: bool) -> None:
    runtime = session.running()
    name = as_path(path, "the file")
    version = None if runtime is None else runtime.files.newest.get(name)
    if runtime is None or version is None:
        return
    runtime.wait_for_file(name, version, writing=writing)


def cancel(*futures: Any) -> bool:
    """Give tasks up, also those that run; their consumers are cancelled with them. True if all were still pending."""
    outcomes = []
    for future in futures:
        if isinstance(future, Mapped):
            future.cancel()
            outcomes.append(True)
        else:
            outcomes.append(session.current().cancel(future.task_id, kill=True))
    return all(outcomes)
