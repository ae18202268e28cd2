"""Files that are committed when others are (``on_file``), and who waits for which.

A dependency that is a plain name is met when that file or directory is committed, or when it was there before and no
step makes it. One with wildcards is met when all steps that could make a match are over: before that another match
may come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.streaming.language.model import Commit, Rule, Step, Workflow
from penstock.streaming.rules.graph import meet
from penstock.streaming.rules.patterns import is_literal

__all__ = ["Dependents"]


class Dependents:
    """Keeps the files that wait for others, and says which of them are ready."""

    def __init__(self, workflow: Workflow) -> None:
        self._steps = workflow.steps
        self.needed = any(rule.commit is Commit.ON_FILE for rule in workflow.rules)
        #: slot → its rule
        self._waiting: dict[int, Rule] = {}

    def add(self, slot: int, rule: Rule) -> None:
        """A file with this rule exists."""
        if rule.commit is Commit.ON_FILE:
            self._waiting[slot] = rule

    def drop(self, slot: int) -> None:
        """It is committed, or gone."""
        self._waiting.pop(slot, None)

    def ready(self, is_final: Callable[[str], bool], is_over: Callable[[str], bool]) -> Iterator[int]:
        """The slots whose dependencies are met; ``is_final`` answers for a name, ``is_over`` for a step."""
        met: dict[str, bool] = {}
        for slot, rule in list(self._waiting.items()):
            for pattern in rule.after:
                if pattern not in met:
                    met[pattern] = self._met(pattern, is_final, is_over)
            if all(met[pattern] for pattern in rule.after):
                self.drop(slot)
                yield slot

    def _met(self, pattern: str, is_final: Callable[[str], bool], is_over: Callable[[str], bool]) -> bool:
        if is_literal(pattern):
            return is_final(pattern)
        return all(is_over(step.name) for step in makers(self._steps, pattern))


def makers(steps: Sequence[Step], pattern: str) -> list[Step]:
    """The steps that could make something that a pattern matches."""
    return [step for step in steps if any(meet(output, pattern) for output in step.output)]
