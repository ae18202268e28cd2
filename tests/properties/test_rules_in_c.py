"""The rules as the C library reads them give the answers of ``Rules``."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.own_place import memory_dir

from penstock.errors import ConfigError
from penstock.streaming.language.model import Commit, Fire, Rule, Step, Target, Workflow
from penstock.streaming.rules.coverage import Coverage, Rules
from penstock.streaming.rules.patterns import could_lie_below, matches
from penstock.streaming.table import Table, library, name_words
from penstock.streaming.table_records import CClass, CRule

# Few letters, so that patterns and names meet; one of two bytes, and a byte that is part of no character.
letters = st.sampled_from(["a", "b", "ü", "\udcc3", "\udca9", "é"])
parts = st.text(letters, min_size=1, max_size=3)
names = st.lists(parts, min_size=1, max_size=3).map("/".join).map(lambda text: os.fsdecode(os.fsencode(text)))
pieces = st.text(st.one_of(letters, st.sampled_from("*?")), min_size=1, max_size=4)
patterns = st.lists(pieces, min_size=1, max_size=3).map("/".join).map(lambda text: os.fsdecode(os.fsencode(text)))


@settings(max_examples=600, deadline=None)
@example("??", "a")
@given(patterns, names)
def test_a_pattern_matches_alike(pattern: str, name: str) -> None:
    code = library()
    assert code.ps_matches(*name_words(pattern), *name_words(name)) == matches(pattern, name)
    assert code.ps_reaches(*name_words(pattern), *name_words(name)) == could_lie_below(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*", "a/b/c", True),
        ("?", "ü", True),
        ("??", "ü", False),
        ("?", "\udcff", True),
        ("a*b*c", "aXbYbZc", True),
        ("a*b*c", "aXbYbZ", False),
        ("*" * 40 + "x", "y" * 2000, False),
        ("a?c", "a/c", True),
        ("", "a", False),
    ],
)
def test_patterns_of_note(pattern: str, name: str, expected: bool) -> None:
    assert library().ps_matches(*name_words(pattern), *name_words(name)) == expected == matches(pattern, name)


lists = st.lists(patterns, max_size=3).map(tuple)
rules_of_files = st.tuples(patterns, st.sampled_from([Commit.ON_CLOSE, Commit.ON_TERMINATION]), st.sampled_from(Fire))
rules_of_directories = st.tuples(
    patterns, st.sampled_from([Commit.N_FILES, Commit.ON_TERMINATION]), st.sampled_from(Fire)
)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    steps = []
    for number in range(draw(st.integers(1, 3))):
        name = f"step{number}"
        rules = [
            Rule(name, Target.FILES, (pattern,), commit, draw(st.integers(1, 4)), fire)
            for pattern, commit, fire in draw(st.lists(rules_of_files, max_size=2))
        ]
        rules += [
            Rule(name, Target.DIRECTORIES, (pattern,), commit, draw(st.integers(1, 4)), fire)
            for pattern, commit, fire in draw(st.lists(rules_of_directories, max_size=2))
        ]
        steps.append(Step(name, input=draw(lists), output=draw(lists), rules=tuple(rules)))
    return Workflow("w", tuple(steps), permanent=draw(lists), exclude=draw(lists), temporary=draw(lists))


def mask(names: Sequence[str]) -> int:
    return sum(1 << int(name[-1]) for name in names)


def same_rule(found: CRule, coverage: Coverage) -> None:
    rule, commits = coverage.rule, list(Commit)
    assert (found.serial == 0xFFFF) == coverage.by_default
    assert found.fire == (rule.fire is Fire.NO_UPDATE)
    numbered = {Commit.ON_TERMINATION: 0, Commit.ON_CLOSE: 1, Commit.ON_FILE: 2, Commit.N_FILES: 3}
    assert set(numbered) == set(commits) and found.commit == numbered[rule.commit]
    if rule.commit in (Commit.ON_CLOSE, Commit.N_FILES):
        assert found.n == rule.count


def compare(found: CClass, rules: Rules, name: str) -> None:
    assert found.excluded == rules.excluded(name)
    if found.excluded:
        return
    for target, rule, makers in (
        (rules.file, found.file, found.producers),
        (rules.directory, found.directory, found.makers),
    ):
        try:
            coverage = target(name)
        except ConfigError:
            continue  # two rules claim it: the server says so and stops the workflow
        same_rule(rule, coverage)
        assert makers == mask(coverage.producers)
        assert found.consumers == mask(coverage.consumers)
        assert found.lasting == (1 if coverage.permanent else 2 if coverage.temporary else 0)


@settings(max_examples=80, deadline=None)
@given(workflows(), st.lists(names, min_size=1, max_size=12))
def test_a_workflow_classifies_alike(workflow: Workflow, asked: list[str]) -> None:
    rules = Rules(workflow)
    table = Table.create(str(memory_dir() / "rules"), "w", ["/nonexistent"], rules.compile(), slots=64)
    try:
        for name in [".", *asked]:
            compare(table.classify(name), rules, name)
    finally:
        table.close()
