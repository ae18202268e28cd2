"""Which rule covers a path, who makes it, who waits for whom. Patterns are held to definitions by trying all names."""

from __future__ import annotations

import itertools
import struct
import tempfile
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.own_place import memory_dir
from tests.unit import streaming_listings as listings
from tests.unit.streaming_listings import text

from penstock.errors import ConfigError
from penstock.streaming.language.model import Commit, Fire, HomePolicy, Target, Workflow
from penstock.streaming.language.workflow import parse_workflow
from penstock.streaming.rules.blob import compiled
from penstock.streaming.rules.coverage import Rules
from penstock.streaming.rules.graph import circle, edges, in_order, meet
from penstock.streaming.rules.patterns import (
    ROOT,
    common_name,
    could_lie_below,
    matches,
    normalised,
    parent_patterns,
    with_subtrees,
)
from penstock.streaming.rules.sets import NameSet, ancestors, meetings
from penstock.streaming.table import Table

#: other processes may be in the way
unhurried = settings(deadline=None)


def rules_of(document: dict[str, Any] | str) -> Rules:
    if isinstance(document, str):
        return Rules(parse_workflow(document, "w.toml"))
    return Rules(parse_workflow(text(document), "w.json"))


# --- patterns, against what they mean ---------------------------------------------------------------------------------


def naive_match(pattern: str, name: str) -> bool:
    """The definition."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(naive_match(pattern[1:], name[taken:]) for taken in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and naive_match(pattern[1:], name[1:])


def is_name(text: str) -> bool:
    return all(part not in ("", ".", "..") for part in text.split("/"))


ALPHABET = "a./"
#: every normalised name of up to five characters
NAMES = [
    name
    for length in range(1, 6)
    for characters in itertools.product(ALPHABET, repeat=length)
    if is_name(name := "".join(characters))
]


def _normal(written: str) -> str:
    try:
        return normalised(written)
    except ValueError:
        return "a"


patterns = st.text(ALPHABET + "*?", min_size=1, max_size=4).map(_normal)
names = st.one_of(st.sampled_from(NAMES), st.just(ROOT))


@unhurried
@given(st.text("ab/*?.[\n", max_size=8), st.text("ab/.[\n", max_size=12))
def test_matching_is_what_the_definition_says(pattern: str, name: str) -> None:
    assert matches(pattern, name) == naive_match(pattern, name)


def test_a_pattern_full_of_stars_takes_no_time() -> None:
    started = time.process_time()
    assert not matches("*a" * 40 + "b", "a" * 4000)
    assert time.process_time() - started < 10


@unhurried
@given(patterns, patterns, st.booleans())
def test_two_patterns_meet_exactly_if_a_name_matches_both(one: str, other: str, directories: bool) -> None:
    found = common_name(one, other, directories=directories)
    every = [name for name in NAMES if matches(one, name) and matches(other, name)]
    if directories and matches(one, ROOT) and matches(other, ROOT):
        every.append(ROOT)
    if found is None:
        assert not every
    else:
        assert matches(one, found) and matches(other, found)
        assert is_name(found) or (directories and found == ROOT)
        # Two patterns of four characters that meet do so in a name of at most eight.
        assert every or len(found) > 5


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ("file*", "*.dat", "file.dat"),
        ("a*", "b*", None),
        ("*/x", "x", None),
        ("*/x", "*", "x/x"),
        ("data*", "data/20130502/?", "data/20130502/x"),
        ("?", "??", None),
        ("a?c", "*b*", "abc"),
        ("..*", "*..", "..x.."),
    ],
)
def test_examples_of_names_in_common(one: str, other: str, name: str | None) -> None:
    assert (common_name(one, other) is None) == (name is None)
    assert name is None or (matches(one, name) and matches(other, name))


@unhurried
@given(patterns, names)
def test_what_could_lie_below_a_directory(pattern: str, directory: str) -> None:
    below = [name for name in NAMES if directory == ROOT or name.startswith(f"{directory}/")]
    if any(matches(pattern, name) for name in below):
        assert could_lie_below(pattern, directory)
    elif not could_lie_below(pattern, directory):
        assert not any(matches(pattern, f"{directory}/{name}") for name in NAMES[:200])


@unhurried
@given(patterns.filter(lambda pattern: "?" not in pattern))  # that it can stand for a slash is not followed
def test_parents_are_found_by_their_patterns(pattern: str) -> None:
    parents = parent_patterns(pattern)
    for name in NAMES:
        if matches(pattern, name):
            parent = name.rpartition("/")[0] or ROOT
            assert any(matches(one, parent) for one in parents), (name, parents)


@unhurried
@given(st.lists(patterns, max_size=4), names, st.booleans())
def test_a_set_of_names_is_its_patterns(listed: list[str], name: str, subtrees: bool) -> None:
    names_set = NameSet(listed, subtrees=subtrees)
    meant = [one for pattern in listed for one in (with_subtrees(pattern) if subtrees else (pattern,))]
    assert (name in names_set) == any(matches(one, name) for one in meant)
    if name in names_set:
        assert names_set.pattern_for(name) in listed


@unhurried
@given(st.lists(patterns, max_size=3), names)
def test_a_list_covers_what_lies_below_what_it_names(listed: list[str], name: str) -> None:
    above = [name, *(each for each in ancestors(name) if each != ROOT)]
    covered = ROOT in listed or any(matches(one, each) for one in listed for each in above)
    assert (name in NameSet(listed, subtrees=True)) == covered


@unhurried
@given(st.lists(patterns, max_size=3), names)
def test_sets_reach_into_directories(listed: list[str], directory: str) -> None:
    names_set = NameSet(listed, subtrees=True)
    below = [name for name in NAMES if directory == ROOT or name.startswith(f"{directory}/")]
    if any(name in names_set for name in below):
        assert names_set.reach_into(directory)


@unhurried
@given(st.lists(patterns, max_size=3), st.lists(patterns, max_size=3), st.booleans())
def test_sets_meet_exactly_if_a_pair_of_their_patterns_does(one: list[str], other: list[str], subtrees: bool) -> None:
    first, second = NameSet(one, subtrees=subtrees), NameSet(other, subtrees=subtrees)
    found = list(meetings(first, second, directories=True))
    for mine, theirs, name in found:
        assert mine in one and theirs in other
        assert name in NameSet((mine,), subtrees=subtrees) and name in NameSet((theirs,), subtrees=subtrees)
    assert bool(found) == any(
        common_name(a, b, directories=True) is not None for a in first.meant for b in second.meant
    )


# --- what covers a path -----------------------------------------------------------------------------------------------


def test_genomes_files_and_directories_have_rules_of_their_own() -> None:
    rules = rules_of(listings.GENOMES)
    directory = rules.directory("chr1-4")
    assert (directory.rule.commit, directory.rule.count) == (Commit.N_FILES, 2504)
    assert directory.producers == ("individuals",)
    assert directory.consumers == ("individuals_merge",)
    file = rules.file("chr1-4/person.txt")
    assert (file.rule.commit, file.rule.fire) == (Commit.ON_CLOSE, Fire.NO_UPDATE)
    assert (file.producers, file.consumers) == (("individuals",), ("individuals_merge",))
    assert rules.file("data/20130502/ALL.chr1.vcf").producers == ("download",)
    assert rules.file("data/20130502/ALL.chr1.vcf").rule.fire is Fire.NO_UPDATE


def test_what_no_rule_covers_has_the_default() -> None:
    found = rules_of(listings.GENOMES).file("mutations.tar.gz")
    assert found.by_default
    assert (found.rule.commit, found.rule.fire) == (Commit.ON_TERMINATION, Fire.UPDATE)
    assert found.producers == ("mutations_overlap",)
    assert found.permanent
    nobody = rules_of(listings.GENOMES).file("unheard/of")
    assert (nobody.by_default, nobody.producers, nobody.consumers, nobody.permanent) == (True, (), (), False)


def test_lists_cover_subtrees_and_rules_do_not() -> None:
    rules = rules_of(listings.WEATHER)
    assert rules.excluded("namelist.input")
    assert rules.file("images/day1/t.png").permanent
    assert rules.file("images/day1/t.png").producers == ("plot",)
    inner = rules_of(
        'name="w"\nexclude=["logs", "*.tmp"]\n[[step]]\nname="s"\noutput=["d"]\n'
        '[[step.stream]]\nfiles=["d"]\nfire="no_update"'
    )
    assert inner.file("d").rule.fire is Fire.NO_UPDATE
    assert inner.file("d/x").by_default and inner.file("d/x").producers == ("s",)
    for name, excluded in (("logs", True), ("logs/a/b", True), ("logs2", False), ("x.tmp/y", True), ("a/b.tmp", True)):
        assert inner.excluded(name) is excluded


def test_directories_have_those_as_producers_who_could_make_something_in_them() -> None:
    rules = rules_of(listings.WEATHER)
    assert rules.directory(".").producers == ("wrf", "plot")
    assert rules.directory("images/day1").producers == ("plot",)
    assert rules.directory("elsewhere").producers == ()
    assert rules.directory("wrfout_d01").producers == ("wrf",)


def test_ambiguity_is_raised_when_the_name_comes_and_names_both_rules() -> None:
    rules = rules_of(
        'name="w"\n[[step]]\nname="s"\noutput=["*"]\n'
        '[[step.stream]]\nfiles=["file*"]\ncommit="on_close"\n[[step.stream]]\nfiles=["*.dat"]\n'
    )
    assert rules.file("file1").rule.commit is Commit.ON_CLOSE
    assert rules.file("x.dat").rule.commit is Commit.ON_TERMINATION
    with pytest.raises(ConfigError) as raised:
        rules.file("file1.dat")
    for part in (
        "'file1.dat'",
        "[[step.stream]] 1: 'file*'",
        "[[step.stream]] 2: '*.dat'",
        "on_close",
        "on_termination",
    ):
        assert part in str(raised.value)
    assert rules.directory("file1.dat").rule.implied


def test_written_rules_for_directories_win_over_implied_ones_of_any_step() -> None:
    rules = rules_of(
        'name="w"\n[[step]]\nname="a"\noutput=["d/x"]\n[[step.stream]]\nfiles=["d/x"]\n'
        '[[step]]\nname="b"\noutput=["d/y"]\n[[step.stream]]\ndirectories=["d"]\ncommit="n_files:2"\n'
    )
    assert rules.directory("d").rule.commit is Commit.N_FILES
    assert rules.directory("d").producers == ("a", "b")


def test_homes() -> None:
    rules = rules_of(listings.DEPLOYMENT)
    assert rules.file("file1.dat").home.policy is HomePolicy.CREATE
    home = rules.file("file5.dat").home
    assert (home.policy, home.step, home.instance) == (HomePolicy.MANUAL, "W", 1)
    assert rules.file("anything").home.policy is HomePolicy.CREATE
    assert rules_of(listings.MAPREDUCE).file("piece3").home.policy is HomePolicy.HASHING
    two = rules_of('name="w"\n[[step]]\nname="s"\n[homes]\nhashing=["a*"]\ncreate=["*b"]\n')
    with pytest.raises(ConfigError, match="'ab' has two homes"):
        two.file("ab")


def test_permanent_wins_over_temporary() -> None:
    rules = rules_of('name="w"\npermanent=["*.png"]\ntemporary=["*"]\n[[step]]\nname="s"\n')
    found = rules.file("a.png")
    assert (found.permanent, found.temporary) == (True, False)
    assert rules.file("a.txt").temporary


# --- who waits for whom -----------------------------------------------------------------------------------------------


def graph(*steps: tuple[str, list[str], list[str]]) -> Workflow:
    listed = [{"name": name, "input_stream": reads, "output_stream": makes} for name, reads, makes in steps]
    return parse_workflow(text({"name": "w", "IO_Graph": listed}), "w.json")


def test_edges_and_order_of_the_deployment_example() -> None:
    workflow = parse_workflow(text(listings.DEPLOYMENT), "w.json")
    found = {(edge.producer, edge.consumer) for edge in edges(workflow.steps)}
    assert {("S", "W"), ("S", "X"), ("S", "Z"), ("W", "Y"), ("X", "Y"), ("Z", "Y")} <= found
    order = [step.name for step in in_order(workflow.steps)]
    assert order[0] == "S" and order[-1] == "Y"
    assert circle(workflow.steps) == ()


def test_a_circle_is_found_and_still_has_an_order() -> None:
    workflow = graph(
        ("c", ["b.out"], ["c.out"]), ("a", ["c.out"], ["a.out"]), ("b", ["a.out"], ["b.out"]), ("z", [], [])
    )
    around = circle(workflow.steps)
    assert len(around) == 4 and around[0] == around[-1] and set(around) == {"a", "b", "c"}
    assert sorted(step.name for step in in_order(workflow.steps)) == ["a", "b", "c", "z"]


def test_a_step_behind_a_circle_comes_after_it() -> None:
    workflow = graph(("last", ["b.out"], []), ("a", ["b.out"], ["a.out"]), ("b", ["a.out"], ["b.out"]))
    assert in_order(workflow.steps)[-1].name == "last"


def test_a_reader_that_also_writes_into_the_directory_waits_for_those_before_it() -> None:
    workflow = graph(("wrf", [], ["wrfout_*"]), ("plot", ["wrfout_*"], ["*.png"]), ("film", ["*.png"], ["film.mp4"]))
    rules = Rules(workflow)
    folder = rules.directory(".")
    assert folder.producers == ("wrf", "plot", "film")
    assert rules.awaited("wrf", folder) == ()
    assert rules.awaited("plot", folder) == ("wrf",)
    assert rules.awaited("film", folder) == ("wrf", "plot")
    assert rules.awaited("somebody", folder) == ("wrf", "plot", "film")


def test_a_file_that_is_updated_in_place() -> None:
    rules = Rules(graph(("make", [], ["f"]), ("update", ["f"], ["f"]), ("use", ["f"], ["g"])))
    file = rules.file("f")
    assert rules.awaited("make", file) == ()
    assert rules.awaited("update", file) == ("make",)
    assert rules.awaited("use", file) == ("make", "update")


def test_nobody_waits_for_those_that_come_after() -> None:
    rules = Rules(graph(("first", ["in"], ["a"]), ("second", ["a"], ["b"])))
    assert rules.awaited("first", rules.file("b")) == ()


def test_on_a_circle_readers_wait_for_what_they_read() -> None:
    rules = Rules(graph(("a", ["y"], ["x", "log"]), ("b", ["x"], ["y", "log"]), ("c", ["y"], ["z"])))
    assert rules.awaited("a", rules.file("y")) == ("b",)
    assert rules.awaited("b", rules.file("x")) == ("a",)
    assert rules.awaited("a", rules.file("log")) == ()  # its own, and nobody is first
    assert rules.awaited("a", rules.file("z")) == ()
    assert rules.before("c") == {"a", "b"} and rules.before("a") == frozenset()


@unhurried
@given(patterns, patterns)
def test_entries_of_lists_meet_if_they_have_a_name_in_common(one: str, other: str) -> None:
    name = meet(one, other)
    both = [NameSet((pattern,), subtrees=True) for pattern in (one, other)]
    if name is None:
        assert not any(each in both[0] and each in both[1] for each in NAMES)
    else:
        assert name in both[0] and name in both[1]


# --- the form for the library -----------------------------------------------------------------------------------------


class Blob:
    """Reads the flat form as the library does: plain matching, first rule wins."""

    def __init__(self, content: bytes) -> None:
        _, self.version, total, n_apps, n_entries, n_strings, *_ = struct.unpack_from("<8I", content)
        assert total == len(content) == 32 + 24 * n_apps + 20 * n_entries + n_strings
        strings = content[total - n_strings :]

        def string(at: int, length: int) -> str:
            return strings[at : at + length].decode()

        apps = struct.iter_unpack("<IHHIIQ", content[32 : 32 + 24 * n_apps])
        self.apps = [(string(at, length), flags, instances, before) for at, length, flags, instances, _, before in apps]
        start = 32 + 24 * n_apps
        entries = struct.iter_unpack("<4BHHIIHH", content[start : start + 20 * n_entries])
        self.entries = [(*entry[:7], string(entry[7], entry[8])) for entry in entries]

    def steps(self, kind: int, name: str) -> tuple[str, ...]:
        numbers = {entry[4] for entry in self.entries if entry[0] == kind and matches(entry[7], name)}
        return tuple(app[0] for number, app in enumerate(self.apps) if number in numbers)

    def rule(self, kind: int, name: str) -> tuple[int, int, int, int] | None:
        """Serial, commit, fire, count."""
        found = (entry for entry in self.entries if entry[0] == kind and matches(entry[7], name))
        return next(((entry[5], entry[1], entry[2], entry[6]) for entry in found), None)

    def listed(self, kind: int, name: str) -> bool:
        return any(entry[0] == kind and matches(entry[7], name) for entry in self.entries)


step_texts = st.builds(
    lambda reads, makes, rules: {"input_stream": reads, "output_stream": makes, "streaming": rules},
    st.lists(patterns, max_size=2),
    st.lists(patterns, max_size=2),
    st.lists(
        st.builds(
            lambda target, names, count, mode: {
                target: names,
                "committed": f"{'on_close' if target == 'name' else 'n_files'}:{count}",
                "mode": mode,
            },
            st.sampled_from(["name", "dirname"]),
            st.lists(patterns, min_size=1, max_size=2),
            st.integers(1, 3),
            st.sampled_from(list(Fire)),
        ),
        min_size=1,
        max_size=2,
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(step_texts, min_size=1, max_size=3), st.lists(patterns, min_size=1, max_size=2), names)
def test_the_flat_form_gives_the_same_answers(steps: list[dict[str, Any]], kept: list[str], name: str) -> None:
    document = {
        "name": "w",
        "IO_Graph": [{"name": f"s{number}", **step} for number, step in enumerate(steps)],
        "permanent": kept,
        "exclude": [f"{one}x" for one in kept if one != ROOT] or ["x"],
    }
    try:
        workflow = parse_workflow(text(document), "w.json")
        rules = Rules(workflow)
        file, directory = rules.file(name), rules.directory(name)
    except ConfigError:
        return  # two rules that differ
    blob = Blob(compiled(workflow))
    assert blob.steps(1, name) == file.producers
    assert blob.steps(2, name) == file.consumers
    assert blob.listed(5, name) == file.excluded and blob.listed(6, name) == file.permanent
    for kind, found in ((3, file), (4, directory)):
        entry = blob.rule(kind, name)
        assert (entry is None) == found.by_default
        if entry is not None:
            serial, _, fire, count = entry
            assert workflow.rules[serial].semantics == found.rule.semantics
            assert (fire == 1, count) == (found.rule.fire is Fire.NO_UPDATE, found.rule.count)


def accented(name: str) -> st.SearchStrategy[str]:
    """The name, or one with characters of two bytes, or of bytes that are none."""
    return st.sampled_from([name, name.replace("a", "é"), name.replace("a", "é", 1), name.replace("a", "\udce9", 1)])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(step_texts, min_size=1, max_size=3),
    st.lists(patterns, min_size=1, max_size=2),
    st.lists(st.sampled_from(NAMES).flatmap(accented), min_size=5, max_size=20),
)
def test_the_library_gives_the_same_answers(steps: list[dict[str, Any]], kept: list[str], asked: list[str]) -> None:
    document = {
        "name": "w",
        "IO_Graph": [{"name": f"s{number}", **step} for number, step in enumerate(steps)],
        "permanent": kept,
        "exclude": ["é*/a", "a.?"],
    }
    try:
        workflow = parse_workflow(text(document), "w.json")
    except ConfigError:
        return  # two rules that differ
    rules = Rules(workflow)
    with tempfile.TemporaryDirectory(dir=memory_dir()) as folder:
        sizes = {"slots": 64, "processes": 4, "extents": 4, "ring": 16, "names_bytes": 4096}
        table = Table.create(f"{folder}/table", "w", [folder], rules.compile(), **sizes)
        try:
            for name in (ROOT, *asked):
                compare(rules, table, name)
        finally:
            table.close()


def compare(rules: Rules, table: Table, name: str) -> None:
    try:
        file, directory = rules.file(name), rules.directory(name)
    except ConfigError:
        return
    found = table.classify(name)
    assert found.excluded == file.excluded
    if found.excluded:
        return

    def mask(steps: tuple[str, ...]) -> int:
        return sum(1 << number for number, step in enumerate(rules.workflow.steps) if step.name in steps)

    assert (found.producers, found.consumers) == (mask(file.producers), mask(file.consumers))
    assert found.makers == mask(directory.producers)
    assert (found.lasting == 1) == file.permanent
    for ruled, entry, coverage in (
        (found.file_ruled, found.file, file),
        (found.dir_ruled, found.directory, directory),
    ):
        assert ruled == (not coverage.by_default)
        if ruled:
            assert rules.workflow.rules[entry.serial].semantics == coverage.rule.semantics
            assert entry.n == coverage.rule.count


def test_the_flat_form_of_the_toml_form() -> None:
    workflow = parse_workflow(listings.FULL_TOML, "w.toml")
    blob = Blob(compiled(workflow))
    assert blob.apps == [("simulate", 0, 1, 0), ("plot", 1, 2, 0b01)]
    serial, commit, fire, count = blob.rule(4, "out") or (0, 0, 0, 0)
    assert (workflow.rules[serial].target, commit, fire, count) == (Target.DIRECTORIES, 3, 1, 24)
    assert blob.rule(3, "out/a") == (2, 2, 0, 0)
    assert blob.listed(7, "scratch/a") and not blob.listed(7, "scratches")


def test_more_steps_than_a_mask_has_bits_are_refused() -> None:
    many = graph(*((f"s{number}", [], [f"f{number}"]) for number in range(64)))
    with pytest.raises(ConfigError, match="64 steps; 63 can"):
        compiled(many)
    assert compiled(graph(*((f"s{number}", [], []) for number in range(63))))


def test_ten_thousand_names_are_asked_in_no_time() -> None:
    parts = [f"data/part{number:05}.bin" for number in range(10_000)]
    rules = Rules(graph(("a", [], parts), ("b", parts, ["sum"])))
    started = time.process_time()
    assert all(rules.file(name).consumers == ("b",) for name in parts[:2000])
    assert rules.directory("data").producers == ("a",)
    assert time.process_time() - started < 10
