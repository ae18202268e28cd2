"""The machines of a simulated run: as settings describe them, else as many as asked for that are like this one."""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.model.resources import Node, StorageLayer
from penstock.runtime.config import Config
from penstock.runtime.layers import NodeKind, layers, nodes, ordered
from penstock.runtime.machine import this_machine

__all__ = ["simulated_nodes"]


def simulated_nodes(
    config: Config, count: int | None = None, cores: int | None = None, memory: int | None = None
) -> list[Node]:
    """Nodes of the kinds in ``[[resources.node]]``, or else ``count`` of one kind; what is given goes before settings.

    ``memory`` is in bytes. What neither says is as on this machine.
    """
    kinds = nodes(config)
    if len(kinds) > 1 and not (count is None and cores is None and memory is None):
        raise ConfigError(
            f"settings describe {len(kinds)} kinds of node ({', '.join(kind.name for kind in kinds)}); how many nodes, "
            f"cores and how much memory there are is said there, and can be given for one kind only"
        )
    for number, what in ((count, "nodes"), (cores, "cores")):
        if number is not None and number < 1:
            raise ConfigError(f"{what}={number}; a simulated run needs at least one")
    if not kinds:
        counted = this_machine().countable(config.countable)
        kinds = (NodeKind("node", 1, config.cpus, config.memory, config.io_executors, _storage(config), counted),)
    return [
        node
        for kind in kinds
        for node in _alike(kind, count or kind.count, cores or kind.cpus, memory or kind.memory, config.io_executors)
    ]


def _storage(config: Config) -> tuple[StorageLayer, ...]:
    """The layers that are described, whose mounts need not be there; else those of this machine."""
    if config.storage is not None:
        return ordered(one.layer for one in config.storage)
    return layers(config)


def _alike(kind: NodeKind, count: int, cpus: int | None, memory: int | None, io_executors: int) -> list[Node]:
    machine = this_machine()
    digits = len(str(count))
    made = []
    for number in range(1, count + 1):
        name = kind.name if count == 1 else f"{kind.name}{number:0{digits}d}"
        made.append(
            Node(
                name,
                cpus or machine.cpus,
                memory or machine.memory,
                machine.properties(name),
                kind.storage or (),
                kind.io_executors or io_executors,
                kind.countable or (),
            )
        )
    return made
