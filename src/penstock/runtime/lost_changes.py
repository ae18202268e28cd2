"""Strict mode: changes of objects that would silently be lost, found when the object is used next.

The program changed an object while its newest version was with the tasks; or a task changed a part of it by itself
after another had changed it as a whole, so that there are two versions of the part and the whole has the older one.
"""

from __future__ import annotations

from penstock.errors import ArgumentChanged
from penstock.executors.strict import picture
from penstock.graph.collections import is_collection, way_to
from penstock.graph.identity import Datum, Identity

__all__ = ["refuse_lost_changes"]


def refuse_lost_changes(identity: Identity, datum: Datum, where: str) -> None:
    """Raise if a change of a datum, or of a part of it, would be lost."""
    obj = datum.object()
    kind = type(obj).__name__
    if picture(obj) != datum.picture:
        raise ArgumentChanged(
            f"{where}: the program changed this {kind} while tasks were updating it, and the change would be lost; "
            f"call wait_on() on it first"
        )

    def is_newer(part: object) -> bool:
        inner = identity.find(part)
        return inner is not None and not inner.shared and inner.version > datum.version

    part = way_to(is_newer, obj) if is_collection(obj) else ""
    if part:
        raise ArgumentChanged(
            f"{where}: a task changed this {kind} as a whole, and then another one its part {part} by itself, which "
            f"would be lost; call wait_on() on the {kind} in between, or declare it COLLECTION_INOUT"
        )
