"""Rules in words: what a reader of a file, or a lister of a directory, will wait for."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.streaming.language.model import Commit, Fire, Rule, Target

__all__ = ["listed", "waits"]


def waits(rule: Rule, producers: Sequence[str]) -> str:
    """What somebody who reads something covered by this rule waits for."""
    end = _end(rule, producers)
    if rule.target is Target.FILES:
        if rule.fire is Fire.UPDATE:
            return f"readers wait until {end}"
        return f"bytes are read as they are written; the file ends once {end}"
    if rule.fire is Fire.UPDATE:
        return f"a listing waits until {end}"
    return f"entries are listed as they come; the listing ends once {end}"


def _end(rule: Rule, producers: Sequence[str]) -> str:
    if rule.commit is Commit.ON_CLOSE:
        return "it is closed" if rule.count == 1 else f"it was closed {rule.count:,} times"
    if rule.commit is Commit.N_FILES:
        return "there is 1 file in it" if rule.count == 1 else f"there are {rule.count:,} files in it"
    if rule.commit is Commit.ON_FILE:
        return f"{listed(rule.after)} {'is' if len(rule.after) == 1 else 'are'} committed"
    if not producers:
        return "whoever wrote it has ended"
    return f"{listed(producers)} {'has' if len(producers) == 1 else 'have'} ended"


def listed(names: Sequence[str], most: int = 4) -> str:
    """``a``, ``a and b``, ``a, b and 3 more``."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1:,} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
