"""Persistent objects as data of a run: which version of an object is the newest, by its id.

A task that is given an object reads the version that its id stands for now, so two Python objects of one id are one
datum. The version's value is a small reference; the engine counts who may still read the state it refers to, and says
when that may leave the store. Nothing of the store itself is imported before a program has such an object.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from penstock.data.slots import current, referred_states
from penstock.errors import ArgumentChanged, CallError, StorageError, StoreUnreachable
from penstock.executors.mover import Mover
from penstock.model.data import Value, VersionId
from penstock.model.events import Provided, Released
from penstock.model.tasks import Failure
from penstock.persistent.where import close_store, current_store, is_stored, opened_store, settings, work_for
from penstock.runtime.config import working_directory
from penstock.runtime.reverting import standing

if TYPE_CHECKING:
    from penstock.persistent.servers import StartedServers
    from penstock.runtime.arguments import Arguments
    from penstock.runtime.config import Config
    from penstock.runtime.runtime import Runtime

__all__ = ["KnownObject", "PersistentData", "store_address"]


class KnownObject:
    """The newest version of an object that tasks use."""

    __slots__ = ("by_task", "version")

    def __init__(self, version: VersionId, *, by_task: bool) -> None:
        self.version = version
        #: a task makes it, and the program has not looked at it yet
        self.by_task = by_task

    def object(self) -> None:
        """A simulated task changes nothing: there is no new object."""


def store_address(config: Config) -> str:
    """The address of the store that the settings mean; of servers that are to be started, only that they are."""
    if config.mode == "simulated":
        return "memory:"
    return settings.url or config.store or f"local:{os.path.join(working_directory(), 'penstock-store')}"


class PersistentData:
    """The persistent objects that tasks of a run use."""

    def __init__(self, runtime: Runtime, address: str, folder: str | None) -> None:
        """``folder`` is one that no other run has; None: tasks are only simulated."""
        self._runtime = runtime
        work_for(folder)
        self._servers: StartedServers | None = None
        #: the address of the store
        self.store = address
        if address.startswith("redis-start:"):
            from penstock.persistent.servers import start_servers

            self._servers = start_servers(address)
            self.store = self._servers.url
        self._known: dict[str, KnownObject] = {}
        #: objects that were written in this run, of which the store may keep older states
        self._written: set[str] = set()
        #: objects that tasks of this run update
        self._updated: set[str] = set()
        #: the objects that futures gave when they were done, which are updated through them since
        self.of_futures: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._sweep_at = 1000
        #: the store does not answer
        self._lost = False
        #: the store knows that this run lives
        self._held = False
        #: speaks to the store, so that the control thread need not
        self._dropper = Mover("objects")

    # --- calls --------------------------------------------------------------------------------------------------

    def read(self, obj: Any, arguments: Arguments, where: str) -> VersionId:
        """The version that a call reads which is given an object."""
        identifier = obj._link.identifier
        known = arguments.objects.get(identifier) or self._standing(identifier)
        if obj._link.modified:
            if known is not None and known.by_task:
                raise CallError(
                    f"{where}: the program changed {obj!r} while tasks were updating it, and one of the changes would "
                    f"be lost; call wait_on() on it before changing it"
                )
            obj.update_persistent()
            known = None
        if known is None:
            known = arguments.objects[identifier] = self._provided(obj, arguments)
        return known.version

    def inside(self, obj: Any, arguments: Arguments) -> list[VersionId]:
        """The newest versions of objects that an object refers to, and that tasks update: a call reads them too."""
        if not self._updated or not obj._link.refers_to:
            return []
        from penstock.persistent.links import live

        versions: list[VersionId] = []
        seen, waiting = {obj._link.identifier}, [*obj._link.refers_to]
        while waiting:
            identifier = waiting.pop()
            if identifier in seen:
                continue
            seen.add(identifier)
            known = arguments.objects.get(identifier) or self._standing(identifier)
            if known is not None and identifier in self._updated:
                versions.append(known.version)
            part = live(identifier)
            waiting += () if part is None else part._link.refers_to
        return versions

    def of_future(self, future: Any) -> Any:
        """The object that a future has given, if it is done and that is all it has given; None otherwise."""
        outcome = getattr(future, "_outcome", None)  # a stream as a whole has none
        if outcome is None:
            return self.of_futures.get(future)
        if type(outcome) is not Value or len(outcome.states) != 1 or outcome.buffers:
            return None
        reference = _reference_in(outcome.data)
        if reference is not None:
            obj = self.of_futures[future] = self._named(*reference)
            return obj
        return None

    def _named(self, identifier: str, token: str | None, generation: int, blocks: bytes | None = None) -> Any:
        """The program's object of a reference; one that it does not have yet need not be read for that."""
        from penstock.persistent.links import live, read, resolve

        obj = live(identifier)
        if obj is not None and (
            obj._link.modified or self.is_with_tasks(identifier) or generation <= obj._link.generation
        ):
            return obj
        outside = current.unfilled
        try:
            named = resolve(identifier, token, generation, blocks)
        finally:
            current.unfilled = outside
        if obj is not None:
            read([named])  # it is newer than what the program has
            self.seen(identifier, named._link.token)
        return named

    def _standing(self, identifier: str) -> KnownObject | None:
        """What is known of an object; its state from before a task that failed, once the program knows of that."""
        known = self._known.get(identifier)
        if known is not None:
            known.version = standing(self._runtime, known.version, f"the object {identifier}")
        return known

    def _provided(self, obj: Any, arguments: Arguments) -> KnownObject:
        from penstock.persistent.links import reference

        outside = current.referring, current.referred
        current.referring, current.referred = None, []
        try:
            data = pickle.dumps(_Reference(reference(obj)), 5)
            value = Value(data, states=referred_states())
        finally:
            current.referring, current.referred = outside
        known = KnownObject(self._runtime.new_version(), by_task=False)
        arguments.before.append(Provided(known.version, value, self._bytes_at(obj)))
        arguments.effects.append(lambda: self._succeed(obj.get_id(), known, arguments))
        return known

    def write(self, obj: Any, version: VersionId, arguments: Arguments) -> None:
        """A call that is accepted makes the next version of an object."""
        self._written.add(obj.get_id())
        self._updated.add(obj.get_id())
        arguments.replaces.append((version, self._known[obj.get_id()].version))
        self._succeed(obj.get_id(), KnownObject(version, by_task=True), arguments)

    def _succeed(self, identifier: str, known: KnownObject, arguments: Arguments) -> None:
        old = self._known.get(identifier)
        if old is not None:
            arguments.released.append(old.version)
        self._known[identifier] = known
        if len(self._known) >= self._sweep_at:
            self._sweep(arguments)

    def _sweep(self, arguments: Arguments) -> None:
        """Forget objects that no unfinished task uses: the store has them."""
        versions = self._runtime.driver.engine.state.versions
        idle = []
        for identifier, known in self._known.items():
            record = versions.get(known.version)
            if not known.by_task and (record is None or (record.outcome is not None and not record.uses)):
                idle.append(identifier)
        for identifier in idle:
            arguments.released.append(self._known.pop(identifier).version)
            self._updated.discard(identifier)
        self._sweep_at = max(1000, 2 * len(self._known))

    def _bytes_at(self, obj: Any) -> dict[str, int] | None:
        """How much of an object lies on which nodes of the run, for policies that follow data."""
        entry = obj._link.entry
        here = self._runtime.machine.hostname
        hosts = [here if host in _THIS_MACHINE else host for host in current_store().locations(obj.get_id(), entry)]
        return dict.fromkeys(hosts, entry.size // len(hosts) or 1) if entry is not None and hosts else None

    # --- the program --------------------------------------------------------------------------------------------

    def bring_up_to_date(self, obj: Any) -> None:
        """Wait for tasks that write an object, stored or not, and give it the state that they made."""
        identifier = obj._link.identifier
        if identifier is None:
            self._take_back(obj)
            return
        while (known := self._standing(identifier)) is not None and known.by_task:
            if obj._link.modified and self._runtime.config.strict:
                raise ArgumentChanged(
                    f"wait_on: the program changed {obj!r} while tasks were updating it, and the change would be lost; "
                    f"call wait_on() on it first"
                )
            version = known.version
            value = self._runtime.value_of(known)
            with self._runtime.calling:
                if known.version == version:  # else another thread has called a task that changes it
                    known.by_task = False
                    self._take(obj, value)

    def _take(self, obj: Any, value: Any) -> None:
        if value is not obj and is_stored(value):
            obj.__dict__.clear()
            obj.__dict__.update(value.__dict__)
            obj._link.token, obj._link.generation, obj._link.entry = (
                *(value._link.token, value._link.generation),
                value._link.entry,
            )
            obj._link.undeclared = value._link.undeclared
            obj.mark_unmodified()

    def _take_back(self, obj: Any) -> None:
        """The same for an object that is not stored yet: so far it was a datum like any other."""

        def take(obj: Any, value: Any) -> bool:
            if is_stored(value) or type(value) is not type(obj):
                raise StorageError(f"a task has made {value!r:.80} of {obj!r}; use what wait_on() gives for it")
            obj.__dict__.clear()
            obj.__dict__.update(value.__dict__)
            return True

        self._runtime.newest(obj, "make_persistent", take)

    def settle(self, identifier: str, *, alone: bool) -> None:
        """Wait for tasks that write an object; with ``alone``, also for those that read it."""
        known = self._known.get(identifier)
        if known is None:
            return
        driver = self._runtime.driver
        versions = driver.engine.state.versions

        def done() -> bool:
            record = versions.get(known.version)
            return record is None or (record.outcome is not None and not (alone and record.uses))

        if not done():
            driver.wait_until(done)
        record = versions.get(known.version)
        if known.by_task and record is not None and isinstance(record.outcome, Failure):
            failure = record.outcome
            self.replaced(identifier)
            if not alone:
                raise self._runtime.observe(failure)

    def seen(self, identifier: str, token: str | None) -> None:
        """The program has this state of the object, the newest: the next call begins with it."""
        known = self._known.get(identifier)
        if known is None:
            return
        known.by_task = False
        record = self._runtime.driver.engine.state.versions.get(known.version)
        outcome = None if record is None else record.outcome
        if isinstance(outcome, Value) and f"{identifier}\n{token}" not in outcome.states:
            self.replaced(identifier)  # somebody else has stored it, or a task that did not say so

    def forget(self, obj: Any) -> None:
        """The program does not want to know what tasks made of an object."""
        if self._known and is_stored(obj):
            self.replaced(obj.get_id())

    def is_with_tasks(self, identifier: str) -> bool:
        """Whether tasks update the object, and the program has not looked at what they made of it."""
        known = self._known.get(identifier)
        return known is not None and known.by_task

    def is_read(self, identifier: str, token: str | None) -> bool:
        """Whether a task may still read a state of the object."""
        return identifier in self._known or f"{identifier}\n{token}" in self._runtime.driver.engine.state.object_states

    def replaced(self, identifier: str) -> None:
        """The program itself has stored a new state, or removed the object: nobody is given the old one from now on."""
        self._written.add(identifier)
        self._updated.discard(identifier)
        known = self._known.pop(identifier, None)
        if known is not None and not self._runtime.stopped:
            self._runtime.driver.post(Released((known.version,)))

    # --- the end of states ----------------------------------------------------------------------------------------

    def hold_states(self) -> None:
        """Versions refer to states: what the store keeps of them is this run's. Called under the driver's lock."""
        if not self._held:
            self._held = True
            self._dropper.do(self._hold)

    def _hold(self) -> None:
        with contextlib.suppress(StorageError):  # whoever wants to use it will be told
            current_store().hold()

    def drop_state(self, state: str) -> None:
        """No version refers to a state any more. Called under the driver's lock."""
        identifier, _, token = state.rpartition("\n")
        if not self._runtime.stopped or identifier in self._written:
            self._dropper.do(lambda: self._drop(identifier, token))

    def _drop(self, identifier: str, token: str) -> None:
        if self._lost:
            return  # asking again for each state would only hold up the end of the run
        try:
            current_store().drop(identifier, token)
        except StoreUnreachable:
            self._lost = True
        except StorageError:
            pass  # it keeps a state too many

    def close(self) -> None:
        """The run is over: the store keeps the newest state of each object. Servers of the run go with it."""
        driver = self._runtime.driver
        with driver.lock:
            for known in self._known.values():
                driver.handle(Released((known.version,)))
        self._known.clear()
        self._dropper.close()
        if not self._runtime.simulated:
            self._leave_store()
        if self._servers is not None:
            self._servers.stop()
            self.store = ""

    def _leave_store(self) -> None:
        """No task is left that could read what is kept for them."""
        store = opened_store(self.store)
        if store is not None and store.run in store.ends and not self._lost:
            from penstock.persistent.upkeep import settle

            with contextlib.suppress(StorageError):
                settle(store, store.run)
        work_for(None)
        close_store(self.store)


#: names that servers of this machine go by
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


class _Named(tuple[Any, ...]):
    """What a reference says."""


class _Names(pickle.Unpickler):
    """Finds out what a value refers to, and loads nothing."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != ("penstock.persistent.links", "resolve"):
            raise pickle.UnpicklingError("more than a reference")
        return lambda *said: _Named(said)


def _reference_in(data: Any) -> _Named | None:
    """What a value says that is a persistent object and nothing else."""
    try:
        found = _Names(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, TypeError):
        return None
    return found if type(found) is _Named else None


class _Reference:
    """Pickles as what it is given."""

    def __init__(self, reduced: tuple[Any, ...]) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced
