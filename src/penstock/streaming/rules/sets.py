"""Many patterns at once. A list of ten thousand plain names is asked as fast as one of two.

``NameSet`` is a list of names as a workflow gives it: for a rule it stands for those names, for other lists also for
all that lies below the directories among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from penstock.streaming.rules.patterns import ROOT, common_name, could_lie_below, is_literal, matches, with_subtrees

__all__ = ["NameSet", "ancestors", "meetings"]


class NameSet:
    """Names and patterns; with ``subtrees``, also what lies below them."""

    def __init__(self, patterns: Iterable[str], *, subtrees: bool) -> None:
        self.patterns = tuple(patterns)
        self.subtrees = subtrees
        self.literals = {pattern for pattern in self.patterns if is_literal(pattern)}
        self.wild = tuple(pattern for pattern in self.patterns if not is_literal(pattern))
        self._wild_closed = tuple(one for pattern in self.wild for one in self.meant_by(pattern))
        #: the directories above its literals
        self.above = {above for literal in self.literals for above in ancestors(literal)}

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def meant_by(self, pattern: str) -> tuple[str, ...]:
        """One of its patterns, with the one for its subtree where that counts."""
        return with_subtrees(pattern) if self.subtrees else (pattern,)

    @property
    def meant(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys(one for pattern in self.patterns for one in self.meant_by(pattern)))

    def __contains__(self, name: str) -> bool:
        if self.literals and self.literal_over(name) is not None:
            return True
        return any(matches(pattern, name) for pattern in self._wild_closed)

    def literal_over(self, name: str) -> str | None:
        """The name itself, or a directory above it, if that is in the set as such."""
        above = ancestors(name) if self.subtrees else ()
        return next((one for one in (name, *above) if one in self.literals), None)

    def pattern_for(self, name: str) -> str:
        """The first as written that covers a name which is in the set."""
        return next(one for one in self.patterns if any(matches(meant, name) for meant in self.meant_by(one)))

    def reach_into(self, directory: str) -> bool:
        """Whether something in this directory, or below it, could be in the set."""
        if directory in self.above or (self.subtrees and directory in self):
            return True
        return any(could_lie_below(pattern, directory) for pattern in self._wild_closed)


def ancestors(name: str) -> Iterator[str]:
    """The directories above a name, the nearest first; all are below the root, which comes last."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name
    if name != ROOT:
        yield ROOT


def meetings(one: NameSet, other: NameSet, *, directories: bool) -> Iterator[tuple[str, str, str]]:
    """Pairs of patterns, one from each set, that have a name in common, and that name."""
    for literal in one.literals:
        if (above := other.literal_over(literal)) is not None:
            yield literal, above, literal
    if one.subtrees and not one.literals.isdisjoint(other.above):
        for literal in other.literals - one.literals:
            if (above := one.literal_over(literal)) is not None:
                yield above, literal, literal
    wild_first = ((first, second) for first in one.wild for second in other.patterns)
    wild_second = ((first, second) for first in one.literals for second in other.wild)
    for first, second in chain(wild_first, wild_second):
        for names in ((a, b) for a in one.meant_by(first) for b in other.meant_by(second)):
            if (name := common_name(*names, directories=directories)) is not None:
                yield first, second, name
                break
