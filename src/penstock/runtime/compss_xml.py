"""Reads a machine's description in the form of COMPSs: ``resources.xml``.

ResourcesList/ComputeNode[@Name] with Processor/ComputingUnits, Memory/Size (GB) and Storage[@Name]; a Storage has Type,
Bandwidth (MB/s), MountPoint, Capacity (MB) or Size (GB), CPUAffinity and Shared. All else that COMPSs keeps there
(adaptors, images, prices) is passed over. The outcome is what the tables of ``penstock.toml`` become.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.runtime.layers import DescribedLayer, NodeKind, check_distinct, ordered, read_layer
from penstock.runtime.readers import nearest, read_count
from penstock.units import parse_size

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

__all__ = ["DescribedNode", "layers_of_this_host", "read_compss_xml"]

#: tags of a Storage, in lower case, and the keys of our tables
_KEYS = {
    "bandwidth": "bandwidth",
    "mountpoint": "mount",
    "capacity": "capacity",
    "cpuaffinity": "cpus",
    "shared": "shared",
}
#: how the tags are written, for messages
_TAGS = {
    "bandwidth": "Bandwidth",
    "mount": "MountPoint",
    "capacity": "Capacity",
    "cpus": "CPUAffinity",
    "shared": "Shared",
    "name": "Name",
}
_KNOWN = ("type", "size", *_KEYS)
_THIS_HOST = ("localhost", "127.0.0.1")


class DescribedNode(Struct, frozen=True):
    """A ComputeNode: as a kind of node, and its layers with the places where they are described."""

    kind: NodeKind
    storage: tuple[DescribedLayer, ...]


def layers_of_this_host(path: str, host: str | None = None) -> tuple[DescribedLayer, ...]:
    """The layers of the ComputeNode that bears this host's name, or is called localhost, or is the only one."""
    host = host or os.uname().nodename
    nodes = read_compss_xml(path)
    by_name = {node.kind.name: node for node in nodes}
    # The file may have the full name where the host knows its short one, and the other way round.
    short = {name.partition(".")[0]: node for name, node in by_name.items() if not name[:1].isdecimal()}
    for candidate in (by_name.get(host), short.get(host.partition(".")[0]), *map(by_name.get, _THIS_HOST)):
        if candidate is not None:
            return candidate.storage
    if len(nodes) == 1:
        return nodes[0].storage
    raise ConfigError(f"{path}: no ComputeNode is called {host!r}, as this host is, or localhost; {_listed(by_name)}")


def read_compss_xml(path: str) -> tuple[DescribedNode, ...]:
    """All ComputeNodes of the file, in its order."""
    root = _parse(path)
    if _tag(root) != "resourceslist":
        hint = "; that is a project file, the layers are in resources.xml" if _tag(root) == "project" else ""
        raise ConfigError(f"{path}: expected <ResourcesList>, found <{root.tag}>{hint}")
    nodes = tuple(_node(element, path) for element in _children(root, "computenode"))
    if not nodes:
        raise ConfigError(f"{path}: there is no ComputeNode in it")
    check_distinct("Name", ((node.kind.name, f"{path}: a ComputeNode") for node in nodes))
    return nodes


def _parse(path: str) -> Element:
    from xml.etree import ElementTree

    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    # Entities, internal or from elsewhere, are declared there: without it none can swell or reach out.
    if "<!DOCTYPE" in text:
        raise ConfigError(f"{path}: a resources file needs no DOCTYPE, and we read none; take it out")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ConfigError(f"{path} is not valid XML: {error}") from None


def _node(element: Element, path: str) -> DescribedNode:
    name = _name(element)
    if not name:
        raise ConfigError(f"{path}: a ComputeNode has no Name")
    place = f'{path}: ComputeNode "{name}"'
    storage = tuple(_layer(child, path, place) for child in _children(element, "storage"))
    check_distinct("Name", ((one.layer.name, one.place) for one in storage))
    check_distinct("MountPoint", ((one.layer.mount, one.place) for one in storage))
    kind = NodeKind(
        name,
        cpus=_computing_units(element, place),
        memory=_memory(element, place),
        storage=ordered(one.layer for one in storage),
    )
    return DescribedNode(kind, storage)


def _layer(element: Element, path: str, place: str) -> DescribedLayer:
    texts = {_tag(child): (child.text or "").strip() for child in element}
    kind = texts.pop("type", "").lower()
    name = _name(element) or kind
    place = f'{place}, Storage "{name}"'
    table: dict[str, object] = {"name": name}
    if kind == "pfs":
        table["shared"] = True
    if (size := texts.pop("size", None)) is not None:
        table["capacity"] = f"{_gigabytes(size, f'{place}: Size')}B"
    for tag, text in texts.items():
        if tag not in _KEYS:
            raise ConfigError(f"{place}: there is no tag <{tag}> (= {text!r}){nearest(tag, _KNOWN)}")
        table[_KEYS[tag]] = text
    return read_layer(table, os.path.dirname(path), place, _TAGS)


def _computing_units(element: Element, place: str) -> int | None:
    total = 0
    for processor in _children(element, "processor"):
        for units in _children(processor, "computingunits"):
            try:
                total += read_count(units.text, "")
            except ValueError as error:
                raise ConfigError(f"{place}: ComputingUnits = {units.text!r}: {error}") from None
    return total or None


def _memory(element: Element, place: str) -> int | None:
    for memory in _children(element, "memory"):
        for size in _children(memory, "size"):
            return _gigabytes(size.text or "", f"{place}: Memory Size")
    return None


def _gigabytes(text: str, place: str) -> int:
    """The bytes of a size that counts GB unless it has a unit."""
    try:
        size = parse_size(text, default_unit="GB")
    except ConfigError as error:
        raise ConfigError(f"{place} = {text!r}: {error}") from None
    if size < 1:
        raise ConfigError(f"{place} = {text!r}: expected a size above zero")
    return size


def _children(element: Element, tag: str) -> Iterator[Element]:
    return (child for child in element if _tag(child) == tag)


def _tag(element: Element) -> str:
    """Its tag in lower case, without a namespace."""
    return str(element.tag).rpartition("}")[2].lower()


def _name(element: Element) -> str:
    return next((value.strip() for key, value in element.items() if key.lower() == "name"), "")


def _listed(names: dict[str, DescribedNode]) -> str:
    shown = ", ".join(list(names)[:8])
    return f"there are {shown}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
