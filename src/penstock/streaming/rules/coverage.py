"""Path → what covers it: its rule, who makes it, who reads it, whether it is kept, where it lives. Pure.

``Rules`` answers for one workflow. What can go wrong with a name, two rules that differ, is raised when it is first
asked for; ``conflicts`` finds beforehand what can be found. ``blob`` gives the C library the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.streaming.language.model import HomePolicy, Rule, Target, Workflow
from penstock.streaming.rules.graph import before_each
from penstock.streaming.rules.sets import NameSet

__all__ = ["Coverage", "Home", "Rules"]


class Home(Struct, frozen=True):
    """Where the master copy of a file is kept."""

    policy: HomePolicy = HomePolicy.CREATE
    #: for MANUAL, the step by whose process it is kept
    step: str = ""
    instance: int | None = None


class Coverage(Struct, frozen=True):
    """All that the workflow says about one name."""

    name: str
    target: Target
    #: the rule as written or implied, or the default one
    rule: Rule
    #: no rule covers it, so it has the default one
    by_default: bool
    #: names of steps, in the order of the file
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    permanent: bool = False
    temporary: bool = False
    excluded: bool = False
    home: Home = Home()


class Rules:
    """The rules of a workflow, by path. Names are relative to its directory and normalised; ``.`` is the directory."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self._outputs = [(step.name, _listed(step.output)) for step in workflow.steps]
        self._inputs = [(step.name, _listed(step.input)) for step in workflow.steps]
        self._permanent = _listed(workflow.permanent)
        self._temporary = _listed(workflow.temporary)
        self._excluded = _listed(workflow.exclude)
        self._rules: dict[Target, list[tuple[Rule, NameSet]]] = {target: [] for target in Target}
        for rule in workflow.rules:
            self._rules[rule.target].append((rule, NameSet(rule.patterns, subtrees=False)))
        self._defaults = {target: Rule("", target, ()) for target in Target}
        self._homes = [
            *(
                (_listed(one.patterns), Home(HomePolicy.MANUAL, one.step, one.instance))
                for one in workflow.homes.manual
            ),
            (_listed(workflow.homes.hashing), Home(HomePolicy.HASHING)),
            (_listed(workflow.homes.create), Home(HomePolicy.CREATE)),
        ]
        self._before = before_each(workflow.steps)

    # --- questions about a name ---------------------------------------------------------------------------------------

    def file(self, name: str) -> Coverage:
        """What covers a file; ConfigError if two rules claim it."""
        producers = tuple(step for step, names in self._outputs if name in names)
        return self._coverage(name, Target.FILES, producers)

    def directory(self, name: str) -> Coverage:
        """What covers a directory. Those that could make something in it, or have a rule for it, are producers too."""
        ruling = {rule.step for rule, names in self._rules[Target.DIRECTORIES] if name in names}
        producers = tuple(
            step for step, names in self._outputs if step in ruling or name in names or names.reach_into(name)
        )
        return self._coverage(name, Target.DIRECTORIES, producers)

    def excluded(self, name: str) -> bool:
        """Whether it is left to the kernel, like all below a directory that is excluded."""
        return name in self._excluded

    # --- questions about steps ----------------------------------------------------------------------------------------

    def before(self, step: str) -> frozenset[str]:
        """The steps whose outputs it reads, and theirs, all the way up; none of those that wait for it in turn."""
        return self._before.get(step, frozenset())

    def awaited(self, step: str, coverage: Coverage) -> tuple[str, ...]:
        """The producers that a step has to wait for before it may believe the end of something.

        Not itself, and not those that come after it. A step that makes it too waits only for those that come before
        it: it updates what they made, or lists a directory it also writes to.
        """
        others = [producer for producer in coverage.producers if producer != step]
        if step in coverage.producers:
            return tuple(producer for producer in others if producer in self.before(step))
        return tuple(producer for producer in others if step not in self.before(producer))

    def compile(self) -> bytes:
        """The same rules for the C library."""
        from penstock.streaming.rules.blob import compiled

        return compiled(self.workflow)

    # --- how it is found ----------------------------------------------------------------------------------------------

    def _coverage(self, name: str, target: Target, producers: tuple[str, ...]) -> Coverage:
        rule = self._rule(name, target)
        permanent = name in self._permanent
        return Coverage(
            name=name,
            target=target,
            rule=rule or self._defaults[target],
            by_default=rule is None,
            producers=producers,
            consumers=tuple(step for step, names in self._inputs if name in names),
            permanent=permanent,
            temporary=not permanent and name in self._temporary,
            excluded=self.excluded(name),
            home=self._home(name),
        )

    def _rule(self, name: str, target: Target) -> Rule | None:
        first: Rule | None = None
        for rule, names in self._rules[target]:
            if name not in names:
                continue
            if first is None:
                first = rule
            elif rule.semantics != first.semantics and not rule.implied:
                raise ConfigError(_ambiguous(name, first, rule))
        return first

    def _home(self, name: str) -> Home:
        found = [home for names, home in self._homes if name in names]
        for other in found[1:]:
            if other != found[0]:
                raise ConfigError(
                    f"{name!r} has two homes: {_told_home(found[0])}, and {_told_home(other)}; a name may have one"
                )
        return found[0] if found else Home()


def _listed(patterns: Iterable[str]) -> NameSet:
    """A list, with what lies below the directories that it names."""
    return NameSet(patterns, subtrees=True)


def _ambiguous(name: str, one: Rule, other: Rule) -> str:
    def told(rule: Rule) -> str:
        pattern = NameSet(rule.patterns, subtrees=False).pattern_for(name)
        return f"{rule.place}: {pattern!r} is {rule.spelled}"

    what = "file" if one.target is Target.FILES else "directory"
    return (
        f"the {what} {name!r} is covered by two rules that differ: {told(one)}; {told(other)}. "
        "Narrow one of the patterns, or list the names, for instance in an alias"
    )


def _told_home(home: Home) -> str:
    instance = "" if home.instance is None else f":{home.instance}"
    return f"{home.policy} {home.step}{instance}".strip()
