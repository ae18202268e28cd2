"""Which node is the home of a file, by the three policies of the language. Pure.

The home holds the file from early on, and the other nodes fetch it from there: ``create`` is the node that made it,
``hashing`` one that all nodes work out from its name, ``manual`` the one where a given process of a step runs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence

from penstock.streaming.language.model import HomePolicy
from penstock.streaming.rules.coverage import Home

__all__ = ["hashed_node", "home_of"]


def hashed_node(name: str, nodes: Sequence[str]) -> str:
    """The node of a name, the same on all nodes and in all runs with the same list."""
    digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
    return nodes[int.from_bytes(digest, "big") % len(nodes)]


def home_of(
    name: str, home: Home, maker: str, nodes: Sequence[str], placed: Mapping[tuple[str, int | None], str]
) -> str:
    """The home of a file that ``maker`` made; ``placed`` says which node has run which process of which step.

    A step whose process has not come yet has no node: until it comes, the maker is the home.
    """
    match home.policy:
        case HomePolicy.CREATE:
            return maker
        case HomePolicy.HASHING:
            return hashed_node(name, nodes)
        case HomePolicy.MANUAL:
            return placed.get((home.step, home.instance), maker)
