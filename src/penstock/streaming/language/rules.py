"""The streaming rules of one step: which names, when committed, when readers get what is written."""

from __future__ import annotations

import re

from penstock.errors import did_you_mean
from penstock.streaming.language.forms import Form, keys_of_the_other
from penstock.streaming.language.model import Commit, Fire, Rule, Target
from penstock.streaming.language.names import Names
from penstock.streaming.language.reading import Table, Value, shown
from penstock.streaming.rules.patterns import parent_patterns

__all__ = ["read_rules"]

_COMMIT = re.compile(r"(on_termination|on_file)|(on_close)(?::([1-9][0-9]*))?|(n_files):([1-9][0-9]*)", re.ASCII)
_ALLOWED = {
    Target.FILES: "on_termination, on_close, on_close:N (N ≥ 1), on_file",
    Target.DIRECTORIES: "on_termination, on_file, n_files:N (N ≥ 1)",
}
_MOST = 2**32 - 1
_OLDER_ON_FILE = re.compile(r"on_file:(.+)", re.DOTALL)
_OLDER_NO_UPDATE = ("noupdate", "append")
# What publications call them; no value of the language, but people try.
_SHORT = {"cot": "on_termination", "coc": "on_close", "cof": "on_file", "foc": "update", "fnu": "no_update"}


def read_rules(step: Table, form: Form, names: Names, step_name: str) -> tuple[Rule, ...]:
    """The rules of a step; in the form that has them, the ones they imply for directories come last."""
    written = step.take(form.rules)
    if written is None:
        return ()
    if form.output not in step.given:
        step.report.wrong(
            step.place, f"{form.rules!r} says how outputs are streamed, so {form.output!r} must name them"
        )
    rules = [rule for item in written.items() if (rule := _read_rule(item, form, names, step_name)) is not None]
    return (*rules, *(_implied(rules) if form.implies_directories else ()))


def _read_rule(item: Value, form: Form, names: Names, step: str) -> Rule | None:
    table = item.table(form.rule_keys, keys_of_the_other(form))
    if table is None:
        return None
    files, directories = table.take(form.files), table.take(form.directories)
    if (files is None) == (directories is None):
        problem = "has both" if files else "has neither"
        table.report.wrong(table.place, f"a rule has one of {form.files!r} and {form.directories!r}; this {problem}")
    target = Target.FILES if directories is None else Target.DIRECTORIES
    written = files if target is Target.FILES else directories
    patterns = names.read(written.as_list() if written and form.lenient else written, 1)
    commit, count, dependency = _read_commit(table.take(form.commit), target, form)
    return Rule(
        step=step,
        target=target,
        patterns=patterns,
        commit=commit,
        count=count,
        fire=_read_fire(table.take(form.fire), form),
        after=_read_after(table, form, names, commit, dependency),
        place=str(table.place),
    )


def _read_commit(written: Value | None, target: Target, form: Form) -> tuple[Commit, int, Value | None]:
    """When, how often, and the file that an older spelling of on_file names with it."""
    if written is None:
        return Commit.ON_TERMINATION, 1, None
    text = written.given
    if form.lenient and isinstance(text, str) and (older := _OLDER_ON_FILE.fullmatch(text)):
        written.doubtful(f"accepted; write 'on_file', and [{shown(older[1])}] as {form.after!r}")
        return Commit.ON_FILE, 1, written.of([older[1]])
    found = _COMMIT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        hint = f"; write {_SHORT[text.lower()]!r}" if isinstance(text, str) and text.lower() in _SHORT else ""
        hint = hint or (did_you_mean(text.partition(":")[0], map(str, Commit)) if isinstance(text, str) else "")
        written.wrong(f"{shown(text)} is not a commit rule for {target}{hint} (allowed: {_ALLOWED[target]})")
        return Commit.ON_TERMINATION, 1, None
    commit = Commit(found[1] or found[2] or found[4])
    other = Commit.N_FILES if target is Target.FILES else Commit.ON_CLOSE
    if commit is other:
        written.wrong(
            f"{text!r} is for {'directories' if target is Target.FILES else 'files'}; this rule is for {target}"
            f" (allowed: {_ALLOWED[target]})"
        )
    count = int(found[3] or found[5] or 1)
    if count > _MOST:
        written.wrong(f"{text!r} counts further than {_MOST:,}", of_meaning=True)
    return commit, min(count, _MOST), None


def _read_fire(written: Value | None, form: Form) -> Fire:
    if written is None:
        return Fire.UPDATE
    text = written.given
    if form.lenient and text in _OLDER_NO_UPDATE:
        written.doubtful("accepted; write 'no_update'")
        return Fire.NO_UPDATE
    if isinstance(text, str) and text in Fire.__members__.values():
        return Fire(text)
    hint = f"; write {_SHORT[text.lower()]!r}" if isinstance(text, str) and text.lower() in _SHORT else ""
    hint = hint or (did_you_mean(text, map(str, Fire)) if isinstance(text, str) else "")
    written.wrong(f"{shown(text)} is not a firing rule{hint} (allowed: update, no_update)")
    return Fire.UPDATE


def _read_after(table: Table, form: Form, names: Names, commit: Commit, dependency: Value | None) -> tuple[str, ...]:
    written = table.take(form.after)
    if dependency is not None:
        if written is not None:
            written.wrong(f"{form.commit!r} names the file already")
        return names.read(dependency)
    if commit is Commit.ON_FILE and written is None:
        table.report.wrong(table.place, f"on_file needs {form.after!r}: the files whose commit it waits for")
    elif commit is not Commit.ON_FILE and written is not None:
        written.wrong(f"only a rule with {form.commit} = on_file has it; this one is {commit}")
    return names.read(written, 1)


def _implied(rules: list[Rule]) -> tuple[Rule, ...]:
    """One rule for all directories in which the files of the rules can stand: entries are seen as they come."""
    parents = {
        parent: None
        for rule in rules
        if rule.target is Target.FILES
        for pattern in rule.patterns
        for parent in parent_patterns(pattern)
    }
    given = {pattern for rule in rules if rule.target is Target.DIRECTORIES for pattern in rule.patterns}
    left = tuple(parent for parent in parents if parent not in given)
    if not left:
        return ()
    step, place = rules[0].step, rules[0].place.rpartition(", ")[0]
    return (Rule(step, Target.DIRECTORIES, left, fire=Fire.NO_UPDATE, implied=True, place=place),)
