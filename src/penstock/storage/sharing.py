"""How programs that use one storage layer share what it has: its bandwidth, and likewise its room. Pure.

    claims of all programs ─▶ parts: what each should have ─▶ granted: what one of them may have now

What a program may hold is only lowered by itself, once nothing holds it any more, and raised from what no program may
hold; so whatever the order in which programs look, all of them together never hold more than there is. Parts are equal,
and what one does not want the others have. A task that needs more than an equal part is let through by turns: whose
turn it is gets what the task needs, the others share the rest, and who waits for longest is next.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

__all__ = ["Claim", "granted", "parts"]


class Claim(Struct, frozen=True):
    """One program, and bytes, or bytes per second."""

    #: what it may hold, whatever the others want
    may_hold: float = 0.0
    #: what its attempts hold
    holds: float = 0.0
    #: that, and what those want that wait
    wants: float = 0.0
    #: what the one of these needs that needs most
    need: float = 0.0
    #: when it joined, or had its last turn
    since: float = 0.0


def parts(total: float, claims: Sequence[Claim]) -> list[float]:
    """What each program should have, in whole numbers; together that is no more than there is."""
    equal = _equal(total, claims)
    starved = [
        index
        for index, (claim, part) in enumerate(zip(claims, equal, strict=True))
        if part < claim.need <= total and claim.holds <= part
    ]
    if not starved:
        return equal
    turn = min(starved, key=lambda index: (claims[index].since, index))
    need = claims[turn].need
    others = _equal(total - need, [claim for index, claim in enumerate(claims) if index != turn])
    return [*others[:turn], need, *others[turn:]]


def _equal(total: float, claims: Sequence[Claim]) -> list[float]:
    """Equal parts, but nobody gets more than it wants before all have what they want; the rest is for all who want."""
    shares = [0.0] * len(claims)
    wanting = sorted((index for index, claim in enumerate(claims) if claim.wants > 0), key=lambda i: claims[i].wants)
    left, count = float(int(total)), len(wanting)
    for place, index in enumerate(wanting):
        shares[index] = min(float(int(claims[index].wants)), left // (count - place))
        left -= shares[index]
    for index in wanting:
        shares[index] += left // count
    return shares


def granted(total: float, claims: Sequence[Claim], mine: int) -> float:
    """What a program may hold from now on, as far as it does not have to give back first."""
    others = sum(claim.may_hold for index, claim in enumerate(claims) if index != mine)
    return max(claims[mine].may_hold, min(parts(total, claims)[mine], total - others))
