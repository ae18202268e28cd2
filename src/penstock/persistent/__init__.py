"""Objects that live in a store beyond a task and a run.

``objects`` is what users derive from, ``stores`` what they live in, ``context`` the way between the two. Nothing here
is imported before the first persistent object: ``where`` excepted, which says which store is meant.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SCO", "PersistentObject", "StorageObject", "open_store"]


def __getattr__(name: str) -> Any:
    if name in ("PersistentObject", "StorageObject", "SCO"):
        from penstock.persistent.objects import PersistentObject

        return PersistentObject
    if name == "open_store":
        from penstock.persistent.where import open_store

        return open_store
    raise AttributeError(f"module 'penstock.persistent' has no attribute {name!r}")
