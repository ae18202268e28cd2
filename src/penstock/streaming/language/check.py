"""A workflow explained: its steps and edges, which rule covers which declared name, and what is worth a second look.

``explain`` makes the explanation, ``cli/stream_check.py`` shows it. Nothing is run and no file is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from penstock.streaming.language.check_warnings import Remark, remarks
from penstock.streaming.language.check_words import waits
from penstock.streaming.language.model import Rule, Target, Workflow
from penstock.streaming.rules.coverage import Coverage, Rules
from penstock.streaming.rules.graph import Edge, edges
from penstock.streaming.rules.sets import NameSet, meetings

__all__ = ["CoveredName", "Explanation", "explain"]


class CoveredName(Struct, frozen=True):
    """A name or pattern that the file mentions, and the rule that covers it."""

    name: str
    target: Target
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    #: ``on_close / update``
    rule: str
    #: where the rule stands; empty for the default
    place: str
    implied: bool
    #: what a reader waits for, in words
    waits: str
    #: ``permanent``, ``temporary``, ``excluded`` or nothing
    kept: str = ""


class Explanation(Struct, frozen=True):
    """All of it."""

    workflow: Workflow
    edges: tuple[Edge, ...]
    names: tuple[CoveredName, ...]
    remarks: tuple[Remark, ...]


def explain(workflow: Workflow) -> Explanation:
    """Look at a workflow from all sides."""
    rules = Rules(workflow)
    return Explanation(
        workflow=workflow,
        edges=tuple(edges(workflow.steps)),
        names=tuple(_Covering(workflow, rules).names()),
        remarks=tuple(remarks(workflow)),
    )


class _Covering:
    """Finds the rules for declared names; of a pattern, those that cover some of its names."""

    def __init__(self, workflow: Workflow, rules: Rules) -> None:
        self._workflow = workflow
        self._rules = rules
        self._outputs = {step.name: NameSet(step.output, subtrees=True) for step in workflow.steps}
        self._inputs = {step.name: NameSet(step.input, subtrees=True) for step in workflow.steps}
        self._lists = {
            "excluded": NameSet(workflow.exclude, subtrees=True),
            "permanent": NameSet(workflow.permanent, subtrees=True),
            "temporary": NameSet(workflow.temporary, subtrees=True),
        }
        self._rules_for_files = [
            (rule, NameSet(rule.patterns, subtrees=False)) for rule in workflow.rules if rule.target is Target.FILES
        ]
        self._directories = {
            pattern for rule in workflow.rules if rule.target is Target.DIRECTORIES for pattern in rule.patterns
        }

    def names(self) -> Iterator[CoveredName]:
        for step in self._workflow.steps:
            written = [rule for rule in step.rules if not rule.implied]
            ruled = {pattern for rule in written for pattern in rule.patterns}
            for pattern in step.output:
                if pattern not in ruled:
                    yield from self._output(pattern)
            for rule in (*written, *(rule for rule in step.rules if rule.implied)):
                for pattern in rule.patterns:
                    yield self._covered(pattern, rule)

    def _output(self, pattern: str) -> Iterator[CoveredName]:
        """An output that no rule of its step repeats: a wider rule may cover it; else the default does.

        What narrower rules take out of it is shown with them.
        """
        if pattern in self._directories:
            return
        wider = next((rule for rule, names in self._rules_for_files if pattern in names), None)
        yield self._covered(pattern, wider or Rule("", Target.FILES, (pattern,)))

    def _covered(self, pattern: str, rule: Rule) -> CoveredName:
        producers = tuple(self._makers(pattern, rule.target))
        consumers = tuple(self._meeting(self._inputs, pattern, rule.target))
        return CoveredName(
            name=pattern,
            target=rule.target,
            producers=producers,
            consumers=consumers,
            rule=rule.spelled,
            place=rule.place,
            implied=rule.implied,
            waits=waits(rule, self._awaited(pattern, rule.target, producers, consumers)),
            kept=self._kept(pattern),
        )

    def _makers(self, pattern: str, target: Target) -> Iterator[str]:
        """Those that make all that a pattern stands for; if nobody does, those that make some of it."""
        whole = [
            step
            for step, names in self._outputs.items()
            if pattern in names or (target is Target.DIRECTORIES and names.reach_into(pattern))
        ]
        return iter(whole) if whole else self._meeting(self._outputs, pattern, target)

    def _awaited(
        self, pattern: str, target: Target, producers: tuple[str, ...], consumers: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The producers that some reader waits for: none waits for itself."""
        coverage = Coverage(pattern, target, Rule("", target, ()), by_default=True, producers=producers)
        awaited = {producer for consumer in consumers for producer in self._rules.awaited(consumer, coverage)}
        return tuple(producer for producer in producers if producer in awaited) or producers

    def _meeting(self, lists: dict[str, NameSet], pattern: str, target: Target) -> Iterator[str]:
        directories = target is Target.DIRECTORIES
        one = NameSet((pattern,), subtrees=directories)
        for step, names in lists.items():
            if any(meetings(one, names, directories=directories)):
                yield step

    def _kept(self, pattern: str) -> str:
        """The list that covers all that the pattern stands for."""
        return next((word for word, names in self._lists.items() if pattern in names), "")
