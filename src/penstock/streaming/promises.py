"""What a step had promised and not kept when it ended, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.streaming.apps import App
from penstock.streaming.language.model import Commit, Rule, Workflow
from penstock.streaming.rules.patterns import is_literal
from penstock.streaming.rules.sets import NameSet
from penstock.streaming.table import Flag, Info

__all__ = ["final_by_default", "never_made"]


def final_by_default(
    made: Iterable[Info], rule_of: Callable[[Info], Rule | None], app: App, over: int
) -> Iterator[tuple[str, str]]:
    """Files that are final only because nobody is left to write them, although a rule promised more; by rule."""
    for info in made:
        rule = rule_of(info)
        makers = info.makers if info.flags & Flag.DIRECTORY else info.producers
        if rule is None or rule.implied or makers & ~over or not makers & app.bit:
            continue
        short = {
            Commit.ON_CLOSE: f"was closed {info.closes} times, not {rule.count}",
            Commit.N_FILES: f"has {info.entries} entries, not {rule.count}",
            Commit.ON_FILE: f"waited for {', '.join(rule.after)}",
        }
        if rule.commit in short:
            yield rule.place, f"{info.name} {short[rule.commit]}: it is final because {app.name} is over"


def never_made(
    app: App, workflow: Workflow, is_there: Callable[[str], bool], makers_left: Callable[[str], bool]
) -> Iterator[str]:
    """Files that others read and that will never come. Where there are several nodes another one may have them."""
    for name in () if app.elsewhere else filter(is_literal, app.step.output):
        if makers_left(name) or is_there(name):
            continue
        readers = [step.name for step in workflow.steps if name in NameSet(step.input, subtrees=True)]
        if readers:
            declares = f"{app.name}, which declares it as an output, has ended"
            yield f"{name}, which {' and '.join(readers)} may read, was not made: {declares}"
