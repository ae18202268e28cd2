"""How long functions took in earlier runs, kept in the user's cache directory.

A run looks a function up when it is first called, so that short tasks are sent in batches, I/O schedulers estimate and
the fastest implementation is chosen from the start. It saves what it measured when it ends. Simulations take
durations from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.model.profiles import Profile
from penstock.runtime.cache_file import CacheFile, default_path

if TYPE_CHECKING:
    from penstock.engine.state import State

__all__ = ["Profiles", "load", "profile_cache"]


def profile_cache(path: str | None = None) -> CacheFile[Profile]:
    """The file at this path, or the user's."""
    return CacheFile(path or default_path("profiles.json"), Profile, "how long functions take")


def load(path: str | None = None) -> dict[tuple[str, str], Profile]:
    """What earlier runs know, by function's identity and layer (an empty name: on none)."""
    return profile_cache(path).load()


class Profiles:
    """The profiles as one run sees them. ``path`` is that of the file, ``None`` the user's, ``"off"`` none."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known: dict[str, dict[str, Profile]] | None = None
        #: identity of each function by its number in this run
        self._identities: dict[int, str] = {}

    def of(self, function: int, identity: str) -> tuple[Profile, ...]:
        """What is known of a function that is called for the first time in this run."""
        if self._path == "off" or identity.startswith("__main__:"):
            return ()  # what was typed into an interpreter is another function the next time
        self._identities[function] = identity
        if self._known is None:
            self._known = {}
            for profile in load(self._path).values():
                self._known.setdefault(profile.function, {})[profile.layer] = profile
        return tuple(self._known.get(identity, {}).values())

    def save(self, state: State) -> None:
        """Keep what this run measured."""
        if self._identities:
            profile_cache(self._path).save(self._measured(state), Profile.with_newer)

    def _measured(self, state: State) -> Iterable[Profile]:
        found: dict[tuple[str, str], Profile] = {}
        measured = [(function, "", times) for function, times in state.times.items()]
        measured += [(function, layer, times) for (function, layer), times in state.times_on.items()]
        for function, layer, times in measured:
            identity = self._identities.get(function)
            if identity is not None:
                profile = times.profile(identity, layer)
                # A function that was sent anew, because what it refers to changed, has several numbers.
                older = found.get((identity, layer))
                found[identity, layer] = profile if older is None else older.with_newer(profile)
        return found.values()
