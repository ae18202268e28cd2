"""What in a workflow is allowed and still deserves a second look.

Each function looks for one thing and yields remarks: a *warning* where the result or the speed will likely surprise, a
*note* where something is only good to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from penstock.errors import did_you_mean
from penstock.streaming.language.check_words import listed
from penstock.streaming.language.model import Commit, Fire, Rule, Step, Target, Workflow
from penstock.streaming.rules.blob import MOST_STEPS
from penstock.streaming.rules.graph import circle, edges
from penstock.streaming.rules.patterns import is_literal
from penstock.streaming.rules.sets import NameSet, meetings

__all__ = ["Remark", "remarks"]

_MANY = 200


class Remark(Struct, frozen=True):
    """One thing to look at."""

    #: a short word for the kind, stable for programs that read it
    kind: str
    message: str
    warning: bool = True


def remarks(workflow: Workflow) -> Iterator[Remark]:
    """All remarks, the ones from reading the file first."""
    yield from (Remark("language", text) for text in workflow.warnings)
    yield from _circles(workflow)
    yield from _too_many_steps(workflow)
    for step in workflow.steps:
        yield from _foreign_outputs(workflow, step)
        yield from _rules_without_output(step)
        yield from _no_overlap(workflow, step)
        yield from _unmade_inputs(workflow, step)
        yield from _own_inputs(step)
        yield from _excluded_outputs(workflow, step)
        yield from _idle(workflow, step)
        for rule in step.rules:
            yield from _unmade_dependencies(workflow, rule)
            yield from _too_few_closes(workflow, rule)
    yield from _unused_lists(workflow)
    yield from _unknown_processes(workflow)


def _listed(patterns: tuple[str, ...]) -> NameSet:
    return NameSet(patterns, subtrees=True)


def _outputs(workflow: Workflow) -> NameSet:
    return _listed(tuple(pattern for step in workflow.steps for pattern in step.output))


def _meet(one: tuple[str, ...], other: NameSet) -> Iterator[tuple[str, str, str]]:
    return meetings(_listed(one), other, directories=True)


def _nearest(pattern: str, known: tuple[str, ...]) -> str:
    """A hint, unless there are so many names that looking through them takes longer than reading them."""
    return did_you_mean(pattern, known) if len(known) <= _MANY else ""


# --- the graph --------------------------------------------------------------------------------------------------------


def _circles(workflow: Workflow) -> Iterator[Remark]:
    around = circle(workflow.steps)
    if around:
        yield Remark(
            "circle",
            f"the steps form a circle: {' → '.join(around)}. There is no order for --batch, and they may wait for each "
            "other; perhaps a pattern is too wide",
        )


def _foreign_outputs(workflow: Workflow, step: Step) -> Iterator[Remark]:
    """Two patterns that are equal are meant to be; one that also takes in another's output seldom is."""
    wild = tuple(pattern for pattern in step.output if not is_literal(pattern))
    for other in workflow.steps:
        if other.name == step.name:
            continue
        for pattern, theirs, name in islice(_meet(wild, _listed(other.output)), _MANY):
            # Of two that overlap, the first says so.
            if pattern not in other.output and (is_literal(theirs) or step.name < other.name):
                by = "" if name == theirs else f" ({theirs!r})"
                yield Remark(
                    "foreign-output",
                    f"the output {pattern!r} of {step.name} also matches {name!r}, an output of {other.name}{by}: "
                    f"{step.name} counts as a producer of it, and its readers wait for {step.name} too",
                )


def _own_inputs(step: Step) -> Iterator[Remark]:
    for output, given, name in islice(_meet(step.output, _listed(step.input)), 1):
        yield Remark(
            "own-input",
            f"{step.name} reads ({given!r}) what it makes itself ({output!r}), for instance {name!r}; it never waits "
            "for itself, only for those that come before it",
            warning=False,
        )


def _too_many_steps(workflow: Workflow) -> Iterator[Remark]:
    if len(workflow.steps) > MOST_STEPS:
        yield Remark(
            "too-many-steps",
            f"{len(workflow.steps)} steps, of which at most {MOST_STEPS} can stream to each other: only --batch runs "
            "them. Steps that are alike can be one with `instances`",
        )


def _idle(workflow: Workflow, step: Step) -> Iterator[Remark]:
    if not step.input and not step.output:
        yield Remark("idle", f"{step.name} declares no input and no output; it takes no part in streaming")
    if workflow.form == "toml" and step.command is None:
        yield Remark(
            "no-command",
            f"{step.name} has no command; `penstock stream run` cannot start it, only `serve` and `exec` can be used",
            warning=False,
        )


# --- rules ------------------------------------------------------------------------------------------------------------


def _rules_without_output(step: Step) -> Iterator[Remark]:
    outputs = _listed(step.output)
    for rule in step.rules:
        directories = rule.target is Target.DIRECTORIES
        for pattern in () if rule.implied else rule.patterns:
            if not any(meetings(NameSet((pattern,), subtrees=directories), outputs, directories=directories)):
                yield Remark(
                    "rule-without-output",
                    f"{rule.place}: {pattern!r} is none of the outputs of {step.name} ({listed(step.output)})"
                    f"{_nearest(pattern, step.output)}",
                )


def _no_overlap(workflow: Workflow, step: Step) -> Iterator[Remark]:
    """Outputs that others read, under the rule that is batch by another name."""
    readers = sorted({edge.consumer for edge in edges(workflow.steps) if edge.producer == step.name})
    if not readers:
        return
    of_files = [rule for rule in workflow.rules if rule.target is Target.FILES]
    for rule in of_files:
        if rule.step == step.name and rule.commit is Commit.ON_TERMINATION and rule.fire is Fire.UPDATE:
            yield Remark("no-overlap", f"{rule.place}: {_batch(listed(rule.patterns), step.name)}")
        elif (
            rule.step == step.name and rule.commit is Commit.ON_TERMINATION and not all(map(is_literal, rule.patterns))
        ):
            yield Remark(
                "first-file-only",
                f"{rule.place}: {listed(rule.patterns)} end only when {step.name} has ended, so of several files read "
                "one after the other only the first is streamed; on_close ends each of them",
                warning=False,
            )
    ruled = [NameSet(rule.patterns, subtrees=False) for rule in of_files]
    inputs = _listed(tuple(pattern for one in workflow.steps if one.name in readers for pattern in one.input))
    bare = [pattern for pattern in step.output if _is_bare(pattern, ruled) and any(_meet((pattern,), inputs))]
    if bare:
        yield Remark("no-overlap", f"{step.name}: no rule covers {_batch(listed(bare), step.name)}")


def _is_bare(pattern: str, ruled: list[NameSet]) -> bool:
    return not any(any(meetings(_listed((pattern,)), names, directories=False)) for names in ruled)


def _batch(names: str, step: str) -> str:
    return f"{names}: on_termination / update, so readers wait until {step} has ended and nothing overlaps"


def _unmade_dependencies(workflow: Workflow, rule: Rule) -> Iterator[Remark]:
    outputs = _outputs(workflow)
    for pattern in rule.after:
        if not any(_meet((pattern,), outputs)):
            yield Remark(
                "unknown-dependency",
                f"{rule.place}: on_file waits for {pattern!r}, which is no output of any step"
                f"{_nearest(pattern, outputs.patterns)}; it counts as committed only if it is there before",
            )


def _too_few_closes(workflow: Workflow, rule: Rule) -> Iterator[Remark]:
    if rule.commit is not Commit.ON_CLOSE:
        return
    outputs = {step.name: _listed(step.output) for step in workflow.steps}
    for pattern in rule.patterns:
        makers = [step for step, names in outputs.items() if is_literal(pattern) and pattern in names]
        if len(makers) > rule.count:
            yield Remark(
                "too-few-closes",
                f"{rule.place}: {pattern!r} is made by {listed(makers)}, but committed after {rule.count} "
                f"close{'s' if rule.count > 1 else ''}; if each closes it once, write on_close:{len(makers)}",
            )


# --- lists ------------------------------------------------------------------------------------------------------------


def _unmade_inputs(workflow: Workflow, step: Step) -> Iterator[Remark]:
    others = _listed(tuple(pattern for one in workflow.steps if one.name != step.name for pattern in one.output))
    for pattern in step.input:
        if not any(_meet((pattern,), others)):
            hint = _nearest(pattern, others.patterns)
            told = f"{step.name} reads {pattern!r}, which no other step makes{hint}"
            yield Remark("unmade-input", told if hint else f"{told}; it is read as it is on disk", warning=bool(hint))


def _excluded_outputs(workflow: Workflow, step: Step) -> Iterator[Remark]:
    excluded = _listed(workflow.exclude)
    for pattern in step.output:
        if pattern in workflow.exclude or (is_literal(pattern) and pattern in excluded):
            yield Remark("excluded-output", f"the output {pattern!r} of {step.name} is excluded; it is not streamed")


def _unused_lists(workflow: Workflow) -> Iterator[Remark]:
    outputs = _outputs(workflow)
    for word, patterns in (("permanent", workflow.permanent), ("temporary", workflow.temporary)):
        for pattern in patterns:
            if not any(_meet((pattern,), outputs)):
                yield Remark(
                    "unused-list",
                    f"{word}: {pattern!r} is no declared output of any step{_nearest(pattern, outputs.patterns)}",
                    warning=False,
                )


def _unknown_processes(workflow: Workflow) -> Iterator[Remark]:
    for home in workflow.homes.manual:
        step = workflow.step(home.step)
        if workflow.form == "toml" and step is not None and (home.instance or 0) >= step.instances:
            yield Remark(
                "unknown-process",
                f"{home.place}: there is no process {home.step}:{home.instance}; {home.step} has {step.instances}, "
                "numbered from 0",
            )
