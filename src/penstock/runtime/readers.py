"""How one written value is read, whether it stands in a file, a variable, a flag or an argument.

Each reader gets the value as written and the directory that relative paths start from, and raises ValueError (which
ConfigError is) without saying where: its caller knows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from penstock.units import parse_duration, parse_rate, parse_size

__all__ = [
    "Reader",
    "nearest",
    "read_ageing",
    "read_ceiling",
    "read_count",
    "read_countable",
    "read_delay",
    "read_function",
    "read_io_scheduler",
    "read_name",
    "read_one_of",
    "read_path",
    "read_rate",
    "read_registry",
    "read_size",
    "read_size_or_off",
    "read_store",
    "read_switch",
]

Reader = Callable[[object, str], object]

#: more than there are of anything; a slip of the finger must not make a list of a billion numbers
_MOST_COUNTED = 1_000_000
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def read_count(value: object, base: str) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("expected a whole number above zero")
    return value


def read_countable(value: object, base: str) -> tuple[tuple[str, int], ...]:
    """A table of names and numbers, or on one line ``gpus=2,licences=4``."""
    from penstock.runtime.constraints import is_constraint

    forms = "expected names and whole numbers, such as gpus=2,licences=4"
    if isinstance(value, str):
        value = {name.strip(): count for name, _, count in (part.partition("=") for part in value.split(","))}
    if not isinstance(value, Mapping):
        raise ValueError(forms)
    counted: dict[str, int] = {}
    for name, count in value.items():
        if not isinstance(name, str) or not name.isidentifier() or name.casefold() in counted:
            raise ValueError(forms)
        if is_constraint(name):
            raise ValueError(f"{name} is a constraint of its own, and not only counted")
        counted[name.casefold()] = read_count(count, base)
        if counted[name.casefold()] > _MOST_COUNTED:
            raise ValueError(f"nobody has {count} {name}: at most {_MOST_COUNTED} are counted")
    return tuple(sorted(counted.items()))


def read_function(value: object, base: str) -> object:
    """A function that is given, or the place of one; whether it is there is asked by whoever needs it."""
    if callable(value) or (isinstance(value, str) and all(value.strip().partition(":"))):
        return value
    raise ValueError("expected a function, or where it is found: module:name")


def read_size(value: object, base: str) -> int:
    if not isinstance(value, (int, float, str)):
        raise ValueError('expected a size such as "8GB", or a number of MB')
    size = parse_size(value)
    if size < 1:
        raise ValueError("expected a size above zero")
    return size


def read_size_or_off(value: object, base: str) -> int:
    """``off`` and 0 are none."""
    if value in (0, "0") or (isinstance(value, str) and value.strip().lower() == "off"):
        return 0
    return read_size(value, base)


def read_rate(value: object, base: str) -> float:
    if not isinstance(value, (int, float, str)):
        raise ValueError('expected a rate such as "450MB/s", or a number of MB/s')
    rate = parse_rate(value)
    if rate <= 0:
        raise ValueError("expected a rate above zero")
    return float(rate)


def read_switch(value: object, base: str) -> bool:
    if isinstance(value, bool):
        return value
    switch = _WORDS.get(str(value).strip().lower())
    if switch is None:
        raise ValueError("expected true or false")
    return switch


def read_name(value: object, base: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("expected a name")
    return value.strip()


def read_path(value: object, base: str) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError("expected a path")
    path = os.fspath(value)
    if not isinstance(path, str) or not path:
        raise ValueError("expected a path")
    return os.path.normpath(os.path.join(base, os.path.expanduser(path)))


#: how addresses of stores begin
_STORES = ("local:", "redis://", "rediss://", "unix://", "redis-cluster://", "redis-start:", "memory:")


def read_store(value: object, base: str) -> str:
    """An address of a store; the folder of a local one may be relative."""
    if not isinstance(value, str) or not value.strip().startswith(_STORES):
        raise ValueError("expected an address that begins with " + ", ".join(_STORES[:-2]) + f" or {_STORES[-2]}")
    address = value.strip()
    return f"local:{read_path(address[6:], base)}" if address.startswith("local:") else address


def read_one_of(*choices: str) -> Callable[[object, str], str]:
    def read(value: object, base: str) -> str:
        if value not in choices:
            raise ValueError("expected " + " or ".join(f'"{choice}"' for choice in choices))
        return str(value)

    return read


def read_io_scheduler(value: object, base: str) -> str:
    """A short name, or the class that COMPSs knows it by: ``IOBackfillingScheduler``, with its package or without."""
    if isinstance(value, str):
        value = value.strip().lower().rpartition(".")[2].removeprefix("io").removesuffix("scheduler")
    return read_one_of("fcfs", "priority", "backfilling")(value, base)


def read_ageing(value: object, base: str) -> float | None:
    """A duration, or ``"off"``, which is None."""
    if _is_off(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError('expected a duration such as "60s", or "off"')
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError('expected a duration above zero, or "off"')
    return seconds


def read_delay(value: object, base: str) -> float:
    """A duration, which may be zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError('expected a duration such as "5s"')
    return parse_duration(value)


def read_ceiling(value: object, base: str) -> float | None:
    """A rate, or ``"off"``, which is None."""
    return None if _is_off(value) else read_rate(value, base)


def read_tolerance(value: object, base: str) -> float:
    """A share below one, as a number or in per cent; ``"off"`` is none."""
    if _is_off(value):
        return 0.0
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if value is True or not 0 <= share < 1:
        raise ValueError('expected a share from 0 to below 1, such as 0.02 or "2%", or "off"')
    return share


def read_registry(value: object, base: str) -> str:
    """A path, or ``"off"``, which stays as it is."""
    return "off" if _is_off(value) else read_path(value, base)


def _is_off(value: object) -> bool:
    return value is False or (isinstance(value, str) and value.strip().lower() == "off")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known."""
    import difflib  # only errors need it

    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(names)}"
