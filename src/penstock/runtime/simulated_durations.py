"""How long tasks take in a simulated run, and how much they write: as given, declared or recorded.

A ``Timing`` is made when a function is first called and asked at every call. Chance is drawn per function and in the
order of calls, so a program's durations depend on its seed and on nothing that a scheduler does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite, log, sqrt
from random import Random
from typing import Any

from penstock import units
from penstock.errors import ConfigError, PenstockError
from penstock.model.profiles import Profile
from penstock.model.tasks import TaskSpec
from penstock.runtime.declaration import Declaration, Sizes, checked_size
from penstock.sim.workloads import Lognormal, Normal, Seconds, Uniform

__all__ = ["Durations", "Timing", "checked_duration", "parse_duration", "parse_given"]

_FORMS = "1.5, '250 ms', normal(mean, deviation), lognormal(median, sigma) or uniform(least, most)"
_DISTRIBUTIONS = {"normal": Normal, "lognormal": Lognormal, "uniform": Uniform}
_WRITTEN = re.compile(r"\s*([a-z]+)\s*\(([^(),]*),([^(),]*)\)\s*", re.IGNORECASE)


def parse_duration(text: str | float) -> Seconds:
    """Seconds or a distribution of them, as written on a command line: ``2``, ``"90s"``, ``lognormal(2, 0.3)``."""
    written = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    if written is None:
        try:
            return units.parse_duration(text)
        except ConfigError:
            raise ConfigError(f"cannot read {text!r} as a duration: write {_FORMS}") from None
    kind = _DISTRIBUTIONS.get(written[1].lower())
    if kind is None:
        raise ConfigError(f"cannot read {text!r}: there is no distribution {written[1]!r}; write {_FORMS}")
    first = units.parse_duration(written[2].strip())
    # A deviation of logarithms is a plain number, everything else is a time.
    second = _number(written[3], str(text)) if kind is Lognormal else units.parse_duration(written[3].strip())
    return checked_duration(kind(first, second))


def _number(text: str, shown: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"cannot read {shown!r}: {text.strip()!r} is not a number; write {_FORMS}") from None


def parse_given(text: str) -> tuple[str, Seconds]:
    """The function and the duration of ``"checkpoint=lognormal(2, 0.3)"``."""
    name, equals, duration = text.partition("=")
    if not equals or not name.strip() or not duration.strip():
        raise ConfigError(f"cannot read {text!r}: write name=duration, such as checkpoint=1.5")
    return name.strip(), parse_duration(duration)


def checked_duration(written: Any) -> Seconds:
    """A duration as a program writes it; refused if no time can last so long."""
    if isinstance(written, str | int | float):
        return parse_duration(written)
    if isinstance(written, Normal):
        sensible = written.mean >= 0 and written.deviation >= 0
    elif isinstance(written, Lognormal):
        sensible = written.median >= 0 and written.sigma >= 0
    elif isinstance(written, Uniform):
        sensible = 0 <= written.least <= written.most
    else:
        raise ConfigError(f"{written!r:.80} is no duration: give {_FORMS}")
    if not sensible or not all(isfinite(getattr(written, field)) for field in written.__struct_fields__):
        raise ConfigError(f"{written!r} is no duration: its numbers must be finite, not negative, and in order")
    return written  # type: ignore[no-any-return]


class Timing:
    """How long the calls of one function take, and what they write."""

    def __init__(self, declaration: Declaration, spec: TaskSpec, source: Any, seed: int) -> None:
        self._declaration = declaration
        #: seconds, a distribution, or a function of the arguments
        self._source = source
        self._chance = Random(f"{seed}/{declaration.name}")
        need = spec.requirements
        self._room = need.capacity if need.io else 0
        self._size = declaration.size
        #: what a call does depends on its arguments; else perhaps on chance, else all do the same
        self.asks = callable(source) or callable(self._size)
        self.fixed = isinstance(source, int | float) and not self.asks

    def seconds(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """How long a call takes."""
        source = self._source
        if callable(source):
            source = _of_arguments(source, args, kwargs, "duration", self._declaration.name, checked_duration)
        return source.draw(self._chance) if isinstance(source, Normal | Lognormal | Uniform) else float(source)

    def sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sizes:
        """Bytes of what a call makes: by parameter, or of each of its outputs; None if nobody said."""
        size = self._size
        if callable(size):
            size = _of_arguments(size, args, kwargs, "size", self._declaration.name, self._checked_size)
        return size  # type: ignore[no-any-return]

    def _checked_size(self, written: Any) -> int | dict[str, int]:
        sizes = checked_size(written)
        known = {*self._declaration.signature.parameters, "returns"}
        if isinstance(sizes, dict) and (unknown := sizes.keys() - known):
            raise ConfigError(
                f"size of task {self._declaration.name}: it has no parameter {min(unknown)!r}; there are "
                f"{', '.join(sorted(known))}"
            )
        return sizes

    def room(self, files: int) -> int:
        """Bytes of each file if nobody said more than how much room is needed: that room, in equal parts."""
        return self._room // files if files else self._room


def _of_arguments(
    source: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    what: str,
    task: str,
    read: Callable[[Any], Any],
) -> Any:
    """What a function that was given instead of a value says of a call."""
    try:
        return read(source(*args, **kwargs))
    except PenstockError as error:
        error.add_note(f"in {what}=… of task {task}, evaluated for this call")
        raise
    except Exception as error:
        error.add_note(f"in {what}=… of task {task}, evaluated for this call by the simulated run")
        raise


class Durations:
    """Where the durations of a run come from: given for the run, else declared, else recorded, else a default."""

    def __init__(self, given: Mapping[str, Any], default: Any, seed: int) -> None:
        """``given`` and ``default`` are as a program writes them."""
        self._given = {name: one if callable(one) else checked_duration(one) for name, one in given.items()}
        self._default = None if default is None else checked_duration(default)
        self._seed = seed
        self._used: set[str] = set()
        self._called: set[str] = set()

    def timing(self, declaration: Declaration, spec: TaskSpec, *, runs: bool = True) -> Timing:
        """How long the calls of a function take; one that never ``runs`` need not have a duration."""
        self._called.add(declaration.name)
        return Timing(declaration, spec, self._source(declaration, spec) if runs else 0.0, self._seed)

    def _source(self, declaration: Declaration, spec: TaskSpec) -> Any:
        name = declaration.name
        for known in (name, name.rpartition(".")[2]):
            if known in self._given:
                self._used.add(known)
                return self._given[known]
        if declaration.duration is not None:
            return declaration.duration
        if spec.requirements.io and _transfers(declaration, spec):
            return 0.0  # what it transfers takes its time; what was recorded would count that twice
        recorded = _recorded(spec.profiles)
        if recorded is not None:
            return recorded
        if self._default is not None:
            return self._default
        if declaration.body.__module__ == "penstock.api.executor":
            raise ConfigError(
                f"what Executor.submit() is given has no duration of its own, which a simulated run needs: make it a "
                f"@task(duration=1.5) and call that, or give --duration {name}=1.5 for all that is submitted"
            )
        if spec.requirements.io:
            raise ConfigError(
                f"nobody says how much I/O task {name} transfers, or how long it takes, which a simulated run needs: "
                f'declare @task(size="100MB"), a storage_size or a duration, or give --duration {name}=1.5'
            )
        raise ConfigError(
            f"task {name} has no duration, which a simulated run needs: declare @task(duration=1.5), give "
            f"--duration {name}=1.5, or run the program for real once, which records it; --default-duration is for all "
            f"tasks without one"
        )

    def unused(self) -> list[str]:
        """Names that were given and that no function had."""
        return sorted(self._given.keys() - self._used)

    def called(self) -> list[str]:
        """Functions that were called."""
        return sorted(self._called)


def _transfers(declaration: Declaration, spec: TaskSpec) -> bool:
    """Whether it is known how much an I/O task transfers: what it writes is said, or it only reads files."""
    if declaration.size is not None or spec.requirements.capacity:
        return True
    files = [direction for direction in declaration.directions.values() if direction.file]
    return bool(files) and not any(direction.writes for direction in files)


def _recorded(profiles: tuple[Profile, ...]) -> Seconds | None:
    """What earlier runs measured: a distribution of the same mean and deviation, never below zero."""
    if not profiles:
        return None
    # An I/O function is recorded per layer, and which layer it will be on is not known yet.
    recorded = max(profiles, key=lambda one: (one.layer == "", one.count))
    if recorded.mean <= 0 or recorded.deviation <= 0:
        return max(0.0, recorded.mean)
    spread = 1 + (recorded.deviation / recorded.mean) ** 2
    return Lognormal(recorded.mean / sqrt(spread), sqrt(log(spread)))
