"""From the description of a machine's storage to its layers, fastest first.

Tables as they stand in ``penstock.toml`` (or are passed to ``Runtime``, or were read from XML) are checked word by
word when settings are loaded: ``read_layers``, ``read_nodes``. What only the machine can tell, whether a mount is there
and how much room it has, is asked once at each start: ``layers``. Nodes described for a simulation are never looked at.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.errors import ConfigError
from penstock.model.resources import StorageLayer
from penstock.runtime.readers import (
    Reader,
    nearest,
    read_count,
    read_countable,
    read_name,
    read_path,
    read_rate,
    read_size,
    read_switch,
)
from penstock.units import format_rate

if TYPE_CHECKING:
    from penstock.runtime.config import Config

__all__ = [
    "DescribedLayer",
    "NodeKind",
    "check_distinct",
    "described_layers",
    "described_rooms",
    "layers",
    "nodes",
    "ordered",
    "precedence",
    "read_layer",
    "read_layers",
    "read_nodes",
]


class DescribedLayer(Struct, frozen=True):
    """A layer as it was described, and where, for messages: ``penstock.toml: [[resources.storage]] 2 "ssd"``."""

    layer: StorageLayer
    place: str


class NodeKind(Struct, frozen=True):
    """Nodes that are alike. ``None`` is what was left open."""

    name: str
    count: int = 1
    cpus: int | None = None
    #: bytes
    memory: int | None = None
    io_executors: int | None = None
    #: fastest first
    storage: tuple[StorageLayer, ...] | None = None
    countable: tuple[tuple[str, int], ...] | None = None


# --- what a run asks --------------------------------------------------------------------------------------------------


def layers(config: Config) -> tuple[StorageLayer, ...]:
    """The storage layers of this machine, fastest first: as described, else those that are found."""
    described = described_layers(config)
    if described is not None:
        return described
    from penstock.runtime.found_layers import find_layers

    return tuple(found.layer for found in find_layers(memory=config.memory_dir))


def described_layers(config: Config) -> tuple[StorageLayer, ...] | None:
    """The layers that settings describe, checked against this machine; None if they describe none."""
    described = _described(config)
    if described is None:
        return None
    # Links are followed: two names for one directory would promise its bandwidth twice.
    check_distinct("mount", ((os.path.realpath(one.layer.mount), one.place) for one in described))
    return ordered(_as_it_is(one) for one in described)


def nodes(config: Config) -> tuple[NodeKind, ...]:
    """The kinds of node that settings describe; what a kind leaves open is as in ``[resources]``."""
    kinds = config.node
    if config.resources_file is not None:
        from penstock.runtime.compss_xml import read_compss_xml

        kinds = tuple(node.kind for node in read_compss_xml(config.resources_file))
    common = ordered(one.layer for one in config.storage or ())
    _check_shared(kinds)
    return tuple(
        NodeKind(
            kind.name,
            kind.count,
            kind.cpus or config.cpus,
            kind.memory or config.memory,
            kind.io_executors or config.io_executors,
            common if kind.storage is None else kind.storage,
            config.countable if kind.countable is None else kind.countable,
        )
        for kind in kinds
    )


def _check_shared(kinds: Iterable[NodeKind]) -> None:
    """A shared layer has one budget, so all who list it must agree on it."""
    first: dict[str, tuple[str, float]] = {}
    for kind in kinds:
        for layer in kind.storage or ():
            if not layer.shared:
                continue
            name, bandwidth = first.setdefault(layer.name, (kind.name, layer.bandwidth))
            if bandwidth != layer.bandwidth:
                said = f"{format_rate(bandwidth)} in node {name!r} and {format_rate(layer.bandwidth)} in {kind.name!r}"
                raise ConfigError(f"the shared layer {layer.name!r} has a bandwidth of {said}; it has only one")


def ordered(unordered: Iterable[StorageLayer]) -> tuple[StorageLayer, ...]:
    """The layers, fastest first."""
    return tuple(sorted(unordered, key=precedence))


def precedence(layer: StorageLayer) -> tuple[float, float]:
    """Sorts by bandwidth, the largest first; of equals the smaller one goes first, for it is the scarcer."""
    return -layer.bandwidth, math.inf if layer.capacity is None else layer.capacity


def described_rooms(config: Config) -> dict[str, int | None]:
    """The capacity of each described layer as the settings have it, whatever room there is now."""
    return {one.layer.name: one.layer.capacity for one in _described(config) or ()}


def _described(config: Config) -> Sequence[DescribedLayer] | None:
    if config.resources_file is None:
        return config.storage
    from penstock.runtime.compss_xml import layers_of_this_host

    return layers_of_this_host(config.resources_file)


# --- against the machine ----------------------------------------------------------------------------------------------


def _as_it_is(described: DescribedLayer) -> StorageLayer:
    """The layer with the room that it has now, or the reason why it cannot be used."""
    mount, place = described.layer.mount, described.place
    if not os.path.isdir(mount):
        problem = "is not a directory" if os.path.exists(mount) else "does not exist; make it, or correct the path"
        if "$" in mount:
            problem += " (a variable in it is not set)"
        raise ConfigError(f"{place}: mount = {mount!r} {problem}")
    if not os.access(mount, os.W_OK | os.X_OK):
        raise ConfigError(f"{place}: mount = {mount!r} is not writable")
    status = os.statvfs(mount)
    free = status.f_bavail * status.f_frsize
    capacity = described.layer.capacity
    if capacity is None:
        return msgspec.structs.replace(described.layer, capacity=free)
    from penstock.runtime.left_behind import left_on  # only a run needs it; settings are read by every command

    # What earlier runs left is missing from what is free, and from what tasks may fill.
    taken = sum(left.size for left in left_on(mount))
    return msgspec.structs.replace(described.layer, capacity=min(capacity, free + taken), taken=taken)


# --- reading tables ---------------------------------------------------------------------------------------------------


def read_layers(value: object, base: str, place: str) -> tuple[DescribedLayer, ...]:
    """Read ``[[resources.storage]]`` tables or what ``Runtime(storage=[...])`` was given."""
    described = []
    for number, table in enumerate(_tables(value, place, "storage"), start=1):
        if isinstance(table, StorageLayer):
            table = _as_table(table)
        described.append(read_layer(table, base, _place_of(place, number, table)))
    check_distinct("name", ((one.layer.name, one.place) for one in described))
    check_distinct("mount", ((one.layer.mount, one.place) for one in described))
    return tuple(described)


def read_layer(
    table: object,
    base: str,
    place: str,
    spellings: Mapping[str, str] = {},
) -> DescribedLayer:
    """Read one table; ``spellings`` are its keys as its author wrote them, for messages."""
    values = _values(table, _LAYER_KEYS, ("name", "mount", "bandwidth"), base, place, spellings)
    return DescribedLayer(StorageLayer(**values), place)


def read_nodes(value: object, base: str, place: str) -> tuple[NodeKind, ...]:
    """Read ``[[resources.node]]`` tables."""
    kinds, places = [], []
    for number, table in enumerate(_tables(value, place, "node"), start=1):
        here = _place_of(place, number, table)
        values = _values(table, _NODE_KEYS, ("name",), base, here)
        if "storage" in values:
            described = read_layers(values["storage"], base, f"{here}: storage")
            values["storage"] = ordered(one.layer for one in described)
        kinds.append(NodeKind(**values))
        places.append((kinds[-1].name, here))
    check_distinct("name", places)
    return tuple(kinds)


def _tables(value: object, place: str, key: str) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Mapping):
        raise ConfigError(f"{place}: expected a list of tables; write [[resources.{key}]], with two brackets")
    raise ConfigError(f"{place}: expected a list of tables, as [[resources.{key}]] in penstock.toml")


def _place_of(place: str, number: int, table: object) -> str:
    name = table.get("name") if isinstance(table, Mapping) else None
    return f'{place} {number} "{name}"' if isinstance(name, str) else f"{place} {number}"


def _values(
    table: object,
    readers: Mapping[str, Reader],
    needed: Iterable[str],
    base: str,
    place: str,
    spellings: Mapping[str, str] = {},
) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{place}: expected a table, not {table!r}")
    values = {}
    for key, written in table.items():
        if key not in readers:
            raise ConfigError(f"{place}: there is no key {key!r} (= {written!r}){nearest(str(key), readers)}")
        try:
            values[key] = readers[key](written, base)
        except ValueError as error:
            raise ConfigError(f"{place}: {spellings.get(key, key)} = {written!r}: {error}") from None
    for key in needed:
        if key not in values:
            raise ConfigError(f"{place}: {spellings.get(key, key)} is missing")
    return values


def check_distinct(key: str, values: Iterable[tuple[str, str]]) -> None:
    """Refuse a value that stands at two places; ``values`` are pairs of value and place."""
    places: dict[str, str] = {}
    for value, place in values:
        if value in places:
            raise ConfigError(f"{place}: {key} = {value!r} is taken by {places[value]}")
        places[value] = place


def _as_table(layer: StorageLayer) -> dict[str, Any]:
    """A layer that was made in Python, in the words of a table: numbers there are MB, inside they are bytes."""
    table = {key: value for key, value in msgspec.structs.asdict(layer).items() if value not in (None, ())}
    del table["taken"]  # that is looked at anew
    table["bandwidth"] = _in_units(layer.bandwidth, "B/s")
    if layer.capacity is not None:
        table["capacity"] = _in_units(layer.capacity, "B")
    for key, points in (("curve", layer.curve), ("measured", layer.measured)):
        if points:
            table[key] = [[streams, _in_units(rate, "B/s")] for streams, rate in points]
    return table


def _in_units(number: object, unit: str) -> object:
    return f"{number!r}{unit}" if isinstance(number, (int, float)) and not isinstance(number, bool) else number


def _mount(value: object, base: str) -> str:
    return read_path(os.path.expandvars(value) if isinstance(value, (str, os.PathLike)) else value, base)


def _cpus(value: object, base: str) -> tuple[int, ...]:
    """``[0, 1, 2, 3, 8]`` or, as the kernel writes it, ``"0-3,8"``."""
    if isinstance(value, str):
        return _cpu_ranges(value)
    if not isinstance(value, (list, tuple)) or not all(type(cpu) is int and cpu >= 0 for cpu in value):
        raise ValueError('expected CPU numbers, such as [0, 1] or "0-3,8"')
    return tuple(sorted(set(value)))


def _cpu_ranges(text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or not (last.isdecimal() if dash else True):
            raise ValueError('expected CPU numbers, such as [0, 1] or "0-3,8"')
        low, high = int(first), int(last or first)
        if not low <= high < _MOST_CPUS:
            raise ValueError(f"there are no CPUs {part.strip()}")
        numbers.update(range(low, high + 1))
    return tuple(sorted(numbers))


def _measured(value: object, base: str) -> tuple[tuple[int, float], ...]:
    """As a curve, or on one line as ``penstock probe`` writes it: ``"1: 180MB/s, 4: 450MB/s"``."""
    if not isinstance(value, str):
        return _curve(value, base)
    points = [part.partition(":") for part in value.split(",")]
    if not all(streams.strip().isdecimal() for streams, _, _ in points):
        raise ValueError('expected streams and rates, such as "1: 180MB/s, 4: 450MB/s"')
    return _curve([[int(streams), rate.strip()] for streams, _, rate in points], base)


def _curve(value: object, base: str) -> tuple[tuple[int, float], ...]:
    """``[[1, "300MB/s"], [8, 450], [64, 90]]``: aggregate rate at so many streams."""
    forms = 'expected pairs of streams and rate, such as [[1, "300MB/s"], [8, 450]]'
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(forms)
    points: list[tuple[int, float]] = []
    for pair in value:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise ValueError(forms)
        streams = pair[0]
        if type(streams) is not int or streams < 1:
            raise ValueError(f"streams are whole numbers above zero, not {streams!r}")
        if points and streams <= points[-1][0]:
            raise ValueError(f"streams must grow, and {streams} follows {points[-1][0]}")
        points.append((streams, read_rate(pair[1], base)))
    return tuple(points)


#: more than any machine has; a slip of the finger must not make a tuple of a billion numbers
_MOST_CPUS = 65536
_LAYER_KEYS: dict[str, Reader] = {
    "name": read_name,
    "mount": _mount,
    "bandwidth": read_rate,
    "capacity": read_size,
    "cpus": _cpus,
    "shared": read_switch,
    "curve": _curve,
    "measured": _measured,
    "temporary": read_switch,
    "enforced": read_switch,
}
_NODE_KEYS: dict[str, Reader] = {
    "name": read_name,
    "count": read_count,
    "cpus": read_count,
    "memory": read_size,
    "io_executors": read_count,
    "countable": read_countable,
    "storage": lambda value, base: value,
}
