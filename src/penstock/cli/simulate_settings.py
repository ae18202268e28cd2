"""The settings of ``penstock simulate``: how each is written, and the machine that follows from them.

    flags, one combination of a sweep ──▶ read_settings ──▶ Settings ──▶ machine(base) ──▶ Machine

The base is what a recorded run was made on, or what penstock.toml describes; settings change parts of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.engine.state import StorageRules
from penstock.errors import ConfigError
from penstock.model.resources import Node, StorageLayer
from penstock.runtime import readers
from penstock.runtime.policies import ready_set
from penstock.sim.network import Network
from penstock.units import parse_duration, parse_rate

__all__ = ["SWEPT", "LayerChange", "Machine", "Settings", "machine", "read_settings", "split_sweep"]


class LayerChange(Struct, frozen=True):
    """A storage layer as it is to be, on every node that has it."""

    layer: str
    what: Literal["bandwidth", "capacity"]
    value: float


class Settings(Struct, frozen=True, kw_only=True):
    """What was asked for; None is as in the base."""

    nodes: int | None = None
    cores: int | None = None
    memory: int | None = None
    io_executors: int | None = None
    scheduler: str | None = None
    io_scheduler: str | None = None
    data_movement: bool | None = None
    network: Network | None = None
    seed: int = 0
    decision_cost: float | Literal["measured"] = 0.0
    layers: tuple[LayerChange, ...] = ()


class Machine(Struct, frozen=True):
    """What is simulated."""

    nodes: list[Node]
    scheduler: str
    rules: StorageRules
    #: the nodes were described by the user, not taken from this machine
    described: bool = True


# --- how values are written -------------------------------------------------------------------------------------------


def _seed(value: object, base: str) -> int:
    text = str(value).strip()
    if not text.removeprefix("-").isdecimal():
        raise ValueError("expected a whole number")
    return int(text)


def _scheduler(value: object, base: str) -> str:
    name = readers.read_name(value, base)
    ready_set(name)
    return name


def _network(value: object, base: str) -> Network:
    """``10GB/s``, ``10GB/s,50us`` or, where commas part values of a sweep, ``10GB/s:50us``."""
    bandwidth, _, latency = str(value).replace(":", ",").partition(",")
    return Network(parse_rate(bandwidth), parse_duration(latency) if latency else 0.0)


def _decision_cost(value: object, base: str) -> float | str:
    if str(value).strip() == "measured":
        return "measured"
    seconds = parse_duration(str(value))
    if not isfinite(seconds):
        raise ValueError('expected a duration such as "50us", or "measured"')
    return seconds


#: settings that may be swept, and how a value is read
SWEPT: dict[str, Callable[[object, str], object]] = {
    "nodes": readers.read_count,
    "cores": readers.read_count,
    "memory": readers.read_size,
    "io_executors": readers.read_count,
    "scheduler": _scheduler,
    "io_scheduler": readers.read_io_scheduler,
    "data_movement": readers.read_switch,
    "network": _network,
    "seed": _seed,
    "decision_cost": _decision_cost,
}
_LAYER_READERS: dict[str, Callable[[object, str], object]] = {
    "bandwidth": readers.read_rate,
    "capacity": readers.read_size,
}


def read_settings(given: Mapping[str, str]) -> Settings:
    """Read values as they were written; names are those of ``SWEPT``, or ``layer.NAME.bandwidth`` and ``.capacity``."""
    values: dict[str, Any] = {}
    changes = []
    for name, text in given.items():
        if name.startswith("layer."):
            changes.append(_layer_change(name, text))
        else:
            values[name] = _read(name, text, SWEPT[_known(name)])
    return Settings(**values, layers=tuple(changes))


def split_sweep(text: str) -> tuple[str, list[str]]:
    """``nodes=10,50,100`` as a name and its values, each of which can be read."""
    name, equals, listed = text.partition("=")
    name = name.strip().replace("-", "_")
    values = [value.strip() for value in listed.split(",")]
    if not equals or not all(values):
        raise ConfigError(f"--sweep {text}: expected a setting and its values, such as nodes=10,50,100")
    for value in values:
        read_settings({name: value})
    return name, values


def _known(name: str) -> str:
    if name not in SWEPT:
        known = [*SWEPT, "layer.NAME.bandwidth", "layer.NAME.capacity"]
        raise ConfigError(f"there is no setting {name!r} of a simulation{readers.nearest(name, known)}")
    return name


def _layer_change(name: str, text: str) -> LayerChange:
    layer, _, what = name.removeprefix("layer.").rpartition(".")
    if not layer or what not in _LAYER_READERS:
        raise ConfigError(f"{name}={text}: expected layer.NAME.bandwidth or layer.NAME.capacity")
    value: Any = _read(name, text, _LAYER_READERS[what])
    return LayerChange(layer, what, value)  # type: ignore[arg-type]


def _read(name: str, text: str, read: Callable[[object, str], object]) -> object:
    try:
        return read(text, "")
    except ValueError as error:
        raise ConfigError(f"{name}={text}: {error}") from None


# --- the machine ------------------------------------------------------------------------------------------------------


def machine(base: Machine, settings: Settings) -> Machine:
    """The base with what was asked to be otherwise."""
    nodes = [_changed(node, settings) for node in _counted(base.nodes, settings.nodes)]
    _check_layers(nodes, settings.layers)
    rules = base.rules
    if settings.io_scheduler is not None:
        rules = msgspec.structs.replace(rules, scheduler=settings.io_scheduler)
    if settings.data_movement is not None:
        rules = msgspec.structs.replace(rules, data_movement=settings.data_movement)
    return Machine(nodes, settings.scheduler or base.scheduler, rules)


def _counted(nodes: list[Node], count: int | None) -> list[Node]:
    """As many nodes as wanted; where there are more than in the base, its kinds take turns."""
    if count is None:
        return nodes
    if count <= len(nodes):
        return nodes[:count]
    return [msgspec.structs.replace(nodes[i % len(nodes)], name=f"node-{i + 1}") for i in range(count)]


def _changed(node: Node, settings: Settings) -> Node:
    values = {
        "cpus": settings.cores,
        "memory": settings.memory,
        "io_executors": settings.io_executors,
        "storage": tuple(_changed_layer(layer, settings.layers) for layer in node.storage),
    }
    return msgspec.structs.replace(node, **{name: value for name, value in values.items() if value is not None})


def _changed_layer(layer: StorageLayer, changes: Iterable[LayerChange]) -> StorageLayer:
    for change in changes:
        if change.layer != layer.name:
            continue
        if change.what == "capacity":
            layer = msgspec.structs.replace(layer, capacity=int(change.value))
        else:
            # Another device of the same kind: it bears congestion as this one does, at its own speed.
            factor = change.value / layer.bandwidth
            curve, measured = (
                tuple((streams, rate * factor) for streams, rate in rates) for rates in (layer.curve, layer.measured)
            )
            layer = msgspec.structs.replace(layer, bandwidth=change.value, curve=curve, measured=measured)
    return layer


def _check_layers(nodes: list[Node], changes: Iterable[LayerChange]) -> None:
    known = list(dict.fromkeys(layer.name for node in nodes for layer in node.storage))
    for change in changes:
        if change.layer not in known:
            there = f"there are {', '.join(known)}" if known else "no layer is described"
            raise ConfigError(f"layer.{change.layer}.{change.what}: no node has a layer {change.layer!r}; {there}")
