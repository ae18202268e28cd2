"""What in a workflow contradicts itself: rules that differ for one name, two homes, circles of ``on_file``. Pure.

A contradiction about a name that the file spells out is a mistake. One that needs a name which two patterns only could
both match is a warning with an example; should a file of such a name come, ``Rules`` refuses it then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from msgspec import Struct

from penstock.streaming.language.model import Commit, HomePolicy, Rule, Target, Workflow
from penstock.streaming.language.reading import Report
from penstock.streaming.rules.patterns import is_literal
from penstock.streaming.rules.sets import NameSet, meetings

__all__ = ["Conflict", "conflicting_rules", "find_mistakes", "spelled_names"]


class Conflict(Struct, frozen=True):
    """Two rules that differ, and a name that both cover."""

    one: Rule
    one_pattern: str
    other: Rule
    other_pattern: str
    name: str
    #: the file itself says the name; otherwise it is only possible
    certain: bool

    def __str__(self) -> str:
        what = "the file" if self.one.target is Target.FILES else "the directory"
        verb = "is" if self.certain else "would be"
        return (
            f"{what} {self.name!r} {verb} covered by two rules that differ: "
            f"{self.one.place}: {self.one_pattern!r} is {self.one.spelled}; "
            f"{self.other.place}: {self.other_pattern!r} is {self.other.spelled}"
        )


_ADVICE = "narrow one of the patterns, or list the names, for instance in an alias"


def find_mistakes(workflow: Workflow, report: Report) -> None:
    """Report what cannot be, and warn of what should not."""
    for conflict in conflicting_rules(workflow):
        if conflict.certain:
            report.wrong("", f"{conflict}; {_ADVICE}", of_meaning=True)
        else:
            report.doubtful("", f"{conflict}. A file of such a name stops the workflow; {_ADVICE}")
    _find_two_homes(workflow, report)
    _find_circles(workflow, report)
    _find_kept_and_removed(workflow, report)


def spelled_names(workflow: Workflow) -> set[str]:
    """All names without wildcards that the file mentions."""
    lists: list[Iterable[str]] = [workflow.permanent, workflow.temporary, workflow.homes.create, workflow.homes.hashing]
    lists += [home.patterns for home in workflow.homes.manual]
    for step in workflow.steps:
        lists += [step.input, step.output]
        lists += [names for rule in step.rules if not rule.implied for names in (rule.patterns, rule.after)]
    return {name for names in lists for name in names if is_literal(name)}


# --- two rules for one name -------------------------------------------------------------------------------------------


def conflicting_rules(workflow: Workflow) -> Iterator[Conflict]:
    """For each pair of rules that differ and can meet, one conflict; certain ones are preferred."""
    rules = [rule for rule in workflow.rules if not rule.implied]
    sets = {id(rule): NameSet(rule.patterns, subtrees=False) for rule in rules}
    spelled = sorted(spelled_names(workflow))
    covered = {id(rule): {name for name in spelled if name in sets[id(rule)]} for rule in rules}
    for one, other in combinations(rules, 2):
        if one.target is not other.target or one.semantics == other.semantics:
            continue
        first, second = sets[id(one)], sets[id(other)]
        both = _of_kind(covered[id(one)] & covered[id(other)], workflow, one.target)
        if both:
            name = min(both)
            yield Conflict(one, first.pattern_for(name), other, second.pattern_for(name), name, True)
            continue
        for met in meetings(first, second, directories=one.target is Target.DIRECTORIES):
            yield Conflict(one, met[0], other, met[1], met[2], False)
            break


def _of_kind(names: set[str], workflow: Workflow, target: Target) -> set[str]:
    """Without names that rules of the other kind spell out: a directory is no file."""
    others = {
        pattern
        for rule in workflow.rules
        if rule.target is not target and not rule.implied
        for pattern in rule.patterns
    }
    return names - others


# --- homes ------------------------------------------------------------------------------------------------------------


def _find_two_homes(workflow: Workflow, report: Report) -> None:
    homes = workflow.homes
    entries = [(f"{HomePolicy.CREATE}", homes.create), (f"{HomePolicy.HASHING}", homes.hashing)]
    for one in homes.manual:
        process = one.step if one.instance is None else f"{one.step}:{one.instance}"
        entries.append((f"{HomePolicy.MANUAL} {process}", one.patterns))
    for (one_home, one_names), (other_home, other_names) in combinations(entries, 2):
        if one_home == other_home:
            continue
        sets = (NameSet(one_names, subtrees=True), NameSet(other_names, subtrees=True))
        found = sorted(
            meetings(*sets, directories=True), key=lambda met: not (is_literal(met[0]) or is_literal(met[1]))
        )
        for first, second, name in found[:1]:
            told = f"{name!r} has two homes, by {first!r} ({one_home}) and {second!r} ({other_home})"
            if first == second or is_literal(first) or is_literal(second):
                report.wrong("", f"{told}; a name may have one", of_meaning=True)
            else:
                told = told.replace("has two", "would have two")
                report.doubtful("", f"{told}. A file of such a name stops the workflow")


# --- on_file ----------------------------------------------------------------------------------------------------------


def _find_circles(workflow: Workflow, report: Report) -> None:
    """A file whose commit waits, by ``on_file`` rules, for its own."""
    rules = [rule for rule in workflow.rules if rule.commit is Commit.ON_FILE]
    sets = [NameSet(rule.patterns, subtrees=False) for rule in rules]
    follows: dict[int, dict[int, tuple[str, bool]]] = {number: {} for number in range(len(rules))}
    for number, rule in enumerate(rules):
        for following, names in enumerate(sets):
            for waited in rule.after:
                if is_literal(waited) and waited in names:
                    follows[number][following] = (waited, True)
                    break
                met = next(meetings(NameSet((waited,), subtrees=True), names, directories=True), None)
                if met is not None:
                    follows[number].setdefault(following, (met[2], False))
    told: set[frozenset[int]] = set()
    for number in range(len(rules)):
        way = _way_back(number, follows)
        if not way or frozenset(way) in told:
            continue
        told.add(frozenset(way))
        links = [follows[one][two] for one, two in zip(way, (*way[1:], way[0]), strict=True)]
        _report_circle([rules[one] for one in way], links, report)


def _way_back(start: int, follows: dict[int, dict[int, tuple[str, bool]]]) -> tuple[int, ...]:
    """The shortest circle through a rule, or nothing."""
    waiting: list[tuple[int, ...]] = [(start,)]
    seen: set[int] = set()
    while waiting:
        way = waiting.pop(0)
        for following in follows[way[-1]]:
            if following == start:
                return way
            if following not in seen:
                seen.add(following)
                waiting.append((*way, following))
    return ()


def _report_circle(rules: list[Rule], links: list[tuple[str, bool]], report: Report) -> None:
    way = "; ".join(
        f"{rule.place} ({', '.join(rule.patterns)}) waits for {name!r}"
        for rule, (name, _) in zip(rules, links, strict=True)
    )
    if all(certain for _, certain in links):
        report.wrong("", f"on_file waits for itself: {way}, which the first of these rules covers", of_meaning=True)
    else:
        report.doubtful("", f"on_file may wait for itself, until its producers end: {way}")


def _find_kept_and_removed(workflow: Workflow, report: Report) -> None:
    for pattern in workflow.permanent:
        if pattern in workflow.temporary:
            report.wrong("", f"{pattern!r} is both permanent and temporary; it can be one", of_meaning=True)
