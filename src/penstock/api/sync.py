"""Synchronisation: bring values and files of tasks back to the main program."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import itertools
import os
from collections import deque
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from penstock.errors import CallError
from penstock.executors.inside import inside_task
from penstock.executors.nested import DoneStream
from penstock.persistent.where import is_stored
from penstock.runtime import session
from penstock.runtime.file_access import bring_home, claim, deleting, drop_copies, ensure_not_missing, wait_for_file
from penstock.runtime.files import as_path
from penstock.runtime.futures import Future
from penstock.runtime.maps import Mapped
from penstock.runtime.neighbours import await_files, living, others
from penstock.runtime.reverting import Placed
from penstock.runtime.simple_arguments import is_immutable
from penstock.runtime.streams import Stream

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
    try:
        values = [_value(obj, runtime) for obj in objects]
    except BaseException:
        for obj in objects:
            _note_failures(obj)
        raise
    return values[0] if len(values) == 1 else values


def _await(obj: Any) -> None:
    """Block for the last futures first: by then the others are done, and each costs no wake-up of its own."""
    if type(obj) in (list, tuple):
        for part in reversed(obj):
            if isinstance(part, Future) and not part.done():
                part.exception() if not part.cancelled() else None
                return


def _note_failures(obj: Any) -> None:
    """The program hears of the first failure and thereby knows of the others that it waited for."""
    if isinstance(obj, Future | Stream):
        obj.look()
    elif isinstance(obj, list | tuple | set | dict):
        for part in obj.values() if isinstance(obj, dict) else obj:
            _note_failures(part)


def _value(obj: Any, runtime: Runtime | None) -> Any:
    if isinstance(obj, concurrent.futures.Future):
        value = obj.result()
        # The program may have given the object itself to tasks since it first asked for it.
        given = runtime is not None and not is_immutable(value) and runtime.has_given(value)
        return _value(value, runtime) if given else value
    if isinstance(obj, Mapped):
        return obj.results()
    if isinstance(obj, Stream | DoneStream):
        return obj.result()
    if is_stored(obj):
        if runtime is not None:
            runtime.objects.bring_up_to_date(obj)
        return obj
    if runtime is not None:
        if runtime.memories.used:
            runtime.memories.await_buffer(obj)
        datum = runtime.identity.find(obj)
        if datum is not None and not datum.shared:
            return runtime.newest(obj, "wait_on")
    if len(living) > (runtime is not None):
        for other in others(runtime):
            other.memories.await_buffer(obj)
            datum = other.identity.find(obj)
            if datum is not None and not datum.shared:
                return other.newest(obj, "wait_on")
    if isinstance(obj, dict):
        return _with_values(obj, [(key, part, _value(part, runtime)) for key, part in obj.items()], runtime)
    if isinstance(obj, list | deque):
        return _with_values(obj, [(i, part, _value(part, runtime)) for i, part in enumerate(obj)], runtime)
    if isinstance(obj, tuple):
        parts = [_value(part, runtime) for part in obj]
        if all(a is b for a, b in zip(parts, obj, strict=True)):
            return obj
        return type(obj)(*parts) if hasattr(obj, "_fields") else type(obj)(parts)
    if isinstance(obj, set | frozenset) and any(isinstance(part, concurrent.futures.Future) for part in obj):
        return type(obj)(_value(part, runtime) for part in obj)
    if type(obj).__name__ == "ndarray" and obj.dtype == object:
        return _with_values(obj, [(i, obj[i], _value(obj[i], runtime)) for i in _places(obj)], runtime)
    return obj


def _with_values(container: Any, parts: list[tuple[Any, Any, Any]], runtime: Runtime | None) -> Any:
    """The container with values for futures and for elements that tasks replaced.

    It is the container itself where tasks have changed it, and we put the futures there; else a copy if there are any.
    """
    changed = [(key, old, new) for key, old, new in parts if old is not new]
    if not changed:
        return container
    if not _changed_by_tasks([old for _, old, _ in changed], runtime):
        container = copy.copy(container)
    for key, _, new in changed:
        container[key] = new
    return container


def _changed_by_tasks(elements: list[Any], runtime: Runtime | None) -> bool:
    """Whether tasks have put something else where elements are: a number, or an object that one could not become."""
    if any(isinstance(element, Placed) for element in elements):
        return True
    data = None if runtime is None or not runtime.identity.by_address else runtime.identity
    return data is not None and any(data.find(element) is not None for element in elements)


def _places(array: Any) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, array.shape))


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
    writing = any(letter in mode for letter in "wax+")
    runtime = session.running()
    if len(living) > (runtime is not None):
        await_files(runtime)
    if runtime is None:
        files = session.files()
        return open(path, mode, **options) if files is None else files.open(path, mode, options)
    name = as_path(path, "the file")
    if writing:
        claim(runtime, {name: ("open_file()", False)})
    wait_for_file(runtime, name, alone=writing)
    if writing:
        bring_home(runtime, name)
    else:
        ensure_not_missing(runtime, name)
    return runtime.files.open(path, mode, options)


def delete_file(path: Any) -> None:
    """Remove a file once every task that uses it is done."""
    runtime = session.running()
    if len(living) > (runtime is not None):
        await_files(runtime)
    name = as_path(path, "the file")
    if runtime is None:
        files = session.files()
        if files is None:
            os.unlink(path)
        else:
            files.remove(path)
        return
    claim(runtime, {name: ("delete_file()", False)})
    wait_for_file(runtime, name, alone=True)
    with deleting(runtime, name):
        runtime.files.remove(path)
        drop_copies(runtime, name)
    if not runtime.simulated:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)  # a move that was under way gave the file its name again


def cancel(*futures: Any) -> bool:
    """Give tasks up, also those that run; their consumers are cancelled with them. True if all were still pending."""
    outcomes = []
    for future in futures:
        if isinstance(future, Mapped):
            future.cancel()
            outcomes.append(True)
        elif isinstance(future, Future | Stream):
            outcomes.append(session.current().cancel(future.task_id, kill=True))
        else:
            raise CallError(f"cancel() takes futures and maps of tasks, not {type(future).__name__} {future!r:.60}")
    return all(outcomes)
