"""What tasks have updated comes back to the program without its asking.

That is when its run ends in order, since nobody could ask for it afterwards, and before it goes to another runtime.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.executors.saying import say
from penstock.model.data import VersionId
from penstock.model.tasks import Failure
from penstock.own_threads import OwnThread
from penstock.runtime.reverting import datum_of

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["bring_back", "give_back"]


def give_back(runtime: Runtime) -> None:
    """No task is under way: make all objects that tasks have updated what they made of them.

    Those whose writers failed are what they were before. The failures are told of as ever.
    """
    if not runtime.identity.by_address or type(threading.current_thread()) is OwnThread:
        return  # a callback that stops the run has waited for nothing
    with runtime.driver.lock:
        objects = runtime.identity.updated()
    _tell_of_replaced([obj for obj in objects if not _is_given_back(runtime, obj)])


def bring_back(runtime: Runtime) -> None:
    """Wait for all objects and parts of arrays that tasks update, and give them back; raises what their writers did."""
    for memory in runtime.memories.all():
        runtime.memories.take_back(memory)
    if not runtime.identity.by_address:
        return
    with runtime.driver.lock:
        objects = runtime.identity.updated()
    _tell_of_replaced([obj for obj in objects if not _is_brought_back(runtime, obj)])


def _is_brought_back(runtime: Runtime, obj: Any) -> bool:
    """Bring an object up to date; False, the first time, if only another object can be what tasks have made."""
    if _version(runtime, obj) in runtime.irreplaceable or runtime.newest(obj, "a call to another runtime") is obj:
        return True
    runtime.irreplaceable.add(_version(runtime, obj))
    return False


def _version(runtime: Runtime, obj: Any) -> VersionId:
    datum = runtime.identity.find(obj)
    return 0 if datum is None else datum.version


def _tell_of_replaced(objects: list[Any]) -> None:
    for kind, count in Counter(type(obj).__qualname__ for obj in objects).items():
        _tell(f"tasks have replaced {count} {kind} as a whole; the program has the old, wait_on() gives the new")


def _is_given_back(runtime: Runtime, obj: Any) -> bool:
    """Bring an object up to date; False if only another object can be what tasks have made."""
    what = f"this {type(obj).__qualname__}"
    try:
        datum = datum_of(runtime, obj, what, ending=True)
        record = None if datum is None else runtime.driver.engine.state.versions.get(datum.version)
        if record is None or record.outcome is None or type(record.outcome) is Failure:
            return True  # it is up to date; or another thread has called a task since; or there is nothing to be had
        return runtime.newest(obj, "stop") is obj
    except Exception as error:  # also of the program's own code, or what strict mode has to say, perhaps once more
        _tell(f"{what} is not what tasks have made of it: {type(error).__name__}: {error}")
        return True


def _tell(what: str) -> None:
    from penstock.runtime.simulated_values import program_line  # seldom needed, and not small

    say(f"penstock: {program_line()}: {what}\n")
