"""Which layer a file's own name lies on: there it needs no redirection, elsewhere it does; and which may take it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from penstock.model.resources import Requirements, StorageLayer

__all__ = ["home_of", "is_below", "usable"]


class Mounted(Protocol):
    """Whatever is used through a directory."""

    @property
    def mount(self) -> str: ...


M = TypeVar("M", bound=Mounted)


def is_below(path: str, mount: str) -> bool:
    """Whether an absolute path lies under a directory."""
    return path.startswith(mount if mount.endswith("/") else mount + "/")


def home_of(path: str, layers: Iterable[M]) -> M | None:
    """The layer that a path lies on: the one with the longest mount above it; None if it lies on none of them."""
    above = [layer for layer in layers if is_below(path, layer.mount)]
    return max(above, key=lambda layer: len(layer.mount), default=None)


def usable(layers: Sequence[StorageLayer], need: Requirements) -> Sequence[StorageLayer]:
    """The layers of a node that tasks may use: not those for temporary files, unless they write such, or all are."""
    if need.temporary:
        return layers
    return [layer for layer in layers if not layer.temporary] or layers
