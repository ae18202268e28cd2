"""The runs that use a Redis server or cluster: each has a lease there that its processes renew, and a hash of notes.

    penstock:runs            all runs
    penstock:run:<run>       the lease: goes away by itself, by the server's clock, when nobody renews it
    penstock:notes:<run>     token → note

The lease says which process the run ends with. Whoever is on the same machine, and in the same container, sees whether
that process lives and need not wait for the lease to run out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from penstock.errors import StorageError
from penstock.own_threads import OwnThread
from penstock.persistent.runs import Note, Runs, decode_note, encode_note, proof_of_life, proves_death

__all__ = ["RedisRuns"]

#: seconds for which a lease holds, and after which it is renewed: a program that was stopped for less loses nothing
LEASE, RENEWAL = 120, 20
_RUNS = "penstock:runs"


def _lease(run: str) -> str:
    return f"penstock:run:{run}"


def _notes(run: str) -> str:
    return f"penstock:notes:{run}"


class RedisRuns(Runs):
    """Runs by keys that expire."""

    def __init__(self, pipeline: Callable[[], Any], explained: Callable[[], AbstractContextManager[None]]) -> None:
        self._pipeline = pipeline
        self._explained = explained
        #: what this process renews, and whether the run ends with it
        self._held: dict[str, bool] = {}
        self._over: threading.Event | None = None
        self._turn = threading.Lock()

    def hold(self, run: str, *, owner: bool) -> None:
        if run in self._held and self._held[run] >= owner:
            return
        with self._turn:
            self._held[run] = owner
            if self._over is None:  # before the first try: whoever is away then may come back
                self._over = threading.Event()
                OwnThread("lease", self._keep_on, self._over).start()
            self._renew()

    def _renew(self) -> None:
        proof = proof_of_life()
        with self._explained():
            pipeline = self._pipeline()
            for run, owner in self._held.items():
                if owner:
                    pipeline.set(_lease(run), proof, ex=LEASE)
                else:
                    pipeline.set(_lease(run), "", ex=LEASE, nx=True)
                    pipeline.expire(_lease(run), LEASE)
                pipeline.sadd(_RUNS, run)
            pipeline.execute()

    def _keep_on(self, over: threading.Event) -> None:
        while not over.wait(RENEWAL):
            with contextlib.suppress(StorageError), self._turn:  # a server that is away for a while may come back
                self._renew()

    def let_go(self) -> None:
        with self._turn:
            held = list(self._held)
            owned = [run for run in held if self._held[run]]
            self._held.clear()
            if self._over is not None:
                self._over.set()
                self._over = None
        if owned:
            with self._explained():
                pipeline = self._pipeline()
                for run in owned:
                    pipeline.delete(_lease(run))
                pipeline.execute()

    def abandon(self) -> None:
        self._turn = threading.Lock()
        self._held.clear()
        self._over = None

    def note(self, run: str, notes: Sequence[Note]) -> None:
        with self._explained():
            pipeline = self._pipeline()
            for one in notes:
                pipeline.hset(_notes(run), one.entry.token, encode_note(one))
            pipeline.execute()

    def strike(self, run: str, tokens: Iterable[str]) -> None:
        with self._explained():
            pipeline = self._pipeline()
            pipeline.hdel(_notes(run), *tokens)
            pipeline.execute()

    def notes(self, run: str) -> list[Note]:
        found = self._ask("hvals", _notes(run))
        return [one for one in map(decode_note, found) if one is not None]

    def known(self) -> list[str]:
        return sorted(run.decode() for run in self._ask("smembers", _RUNS))

    @contextlib.contextmanager
    def ended(self, run: str) -> Iterator[bool]:
        lease = self._ask("get", _lease(run))
        yield lease is None or proves_death(lease.decode())

    def remove(self, run: str) -> None:
        with self._explained():
            pipeline = self._pipeline()
            pipeline.delete(_lease(run))
            pipeline.delete(_notes(run))
            pipeline.srem(_RUNS, run)
            pipeline.execute()

    def _ask(self, command: str, key: str) -> Any:
        with self._explained():
            pipeline = self._pipeline()
            getattr(pipeline, command)(key)
            return pipeline.execute()[0]
