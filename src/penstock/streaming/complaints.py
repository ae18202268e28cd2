"""What the user is warned of while a workflow runs: each thing once, many of a kind as the first and a number."""

from __future__ import annotations

from collections import Counter

from penstock.streaming.happenings import Tell, Warned
from penstock.streaming.table import Violation

__all__ = ["Complaints", "told_violation"]

_VIOLATIONS = {
    Violation.FOREIGN_WRITER: "{who} writes {file}, which is declared as an output of others only",
    Violation.WRITTEN_AFTER_COMMIT: "{who} wrote to {file} after its commit ({rule}): readers may have seen its end",
    Violation.REWRITTEN: "{who} rewrote bytes of {file} at {offset}, but it is {rule}: readers may have the old ones",
    Violation.REMOVED_ENTRY: "{who} removed {file} from a no_update directory: readers may have seen it",
    Violation.RENAMED_ENTRY: "{who} renamed {file}, which a reader had listed: its directory is no_update",
    Violation.READ_PUNCHED: "{who} came back to bytes of {file} at {offset} that were given back; it needs --limit 0",
}


def told_violation(kind: int, who: str, file: str, offset: int, rule: str) -> str:
    """A promise that a program broke, in words; empty for a kind that nobody knows."""
    known = {int(one): text for one, text in _VIOLATIONS.items()}
    return known[kind].format(who=who, file=file, offset=offset, rule=rule) if kind in known else ""


class Complaints:
    """Collects and tells them."""

    def __init__(self, tell: Tell) -> None:
        self.told: list[str] = []
        self._tell = tell
        self._counts: Counter[object] = Counter()
        self._first: dict[object, str] = {}

    def add(self, text: str) -> None:
        """Tell it, unless it was told."""
        if text not in self.told:
            self.told.append(text)
            self._tell(Warned(text))

    def add_of(self, kind: object, text: str) -> None:
        """Tell the first of its kind; the others are counted."""
        self._counts[kind] += 1
        if self._counts[kind] == 1:
            self._first[kind] = text
            self.add(text)

    def sum_up(self) -> None:
        """Tell how many more there were of each kind."""
        for kind, count in self._counts.items():
            if count > 1:
                self.add(f"{count - 1} more like this: {self._first[kind]}")
        self._counts.clear()
