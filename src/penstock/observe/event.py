"""What all records of the event log have in common."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Event"]


def _snake_case(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


# Records hold no cycles and there may be millions: keep them out of the garbage collector's rounds.
class Event(Struct, tag_field="event", tag=_snake_case, gc=False, omit_defaults=True):
    """Something happened, ``t`` seconds after the start of the run."""

    t: float
