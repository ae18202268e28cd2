"""The coordination file: what is accepted, what it means, and what is said about mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit import streaming_listings as listings
from tests.unit.streaming_listings import changed, text

from penstock.errors import ConfigError
from penstock.streaming.language import check_warnings
from penstock.streaming.language.check import explain
from penstock.streaming.language.forms import JSON, TOML
from penstock.streaming.language.limits import parse_limit
from penstock.streaming.language.model import Commit, Fire, Rule, Sizes, Step, Target, Workflow
from penstock.streaming.language.workflow import examine, parse_workflow, read_workflow
from penstock.streaming.rules.patterns import normalised


def of_json(document: dict[str, Any]) -> Workflow:
    return parse_workflow(text(document), "workflow.json")


def step(workflow: Workflow, name: str) -> Step:
    found = workflow.step(name)
    assert found is not None
    return found


def mistakes(document: dict[str, Any] | str) -> list[str]:
    """What is wrong with a document: a dict in the JSON form, a text in the TOML form."""
    if isinstance(document, str):
        return [str(problem) for problem in examine(document, "w.toml").problems]
    return [str(problem) for problem in examine(text(document), "w.json").problems]


# --- the JSON form ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", listings.LISTINGS.values(), ids=listings.LISTINGS)
def test_the_listings_of_the_specification_are_accepted_unchanged(document: dict[str, Any]) -> None:
    workflow = of_json(document)
    assert workflow.name == document["name"]
    assert [one.name for one in workflow.steps] == [one["name"] for one in document["IO_Graph"]]
    assert all(one.command is None for one in workflow.steps)


def test_genomes() -> None:
    workflow = of_json(listings.GENOMES)
    directory, files = step(workflow, "individuals").rules
    assert (directory.target, directory.patterns) == (Target.DIRECTORIES, ("chr1-*",))
    assert (directory.commit, directory.count, directory.fire) == (Commit.N_FILES, 2504, Fire.NO_UPDATE)
    assert (files.target, files.patterns) == (Target.FILES, ("chr1-*/*",))
    assert (files.commit, files.count, files.fire) == (Commit.ON_CLOSE, 1, Fire.NO_UPDATE)
    assert step(workflow, "frequency").rules == ()
    assert workflow.permanent == ("mutations.tar.gz", "frequency.tar.gz")


def test_weather_names_the_working_directory() -> None:
    directory, files = step(of_json(listings.WEATHER), "wrf").rules
    assert directory.patterns == (".",)
    assert (directory.commit, directory.fire) == (Commit.ON_TERMINATION, Fire.NO_UPDATE)
    assert files.patterns == ("*",)
    assert (files.commit, files.fire) == (Commit.ON_CLOSE, Fire.UPDATE)


def test_on_close_counts_beyond_nine() -> None:
    (rule,) = step(of_json(listings.TEN_CLOSES), "writer").rules
    assert (rule.commit, rule.count) == (Commit.ON_CLOSE, 10)


def test_a_rule_has_defaults() -> None:
    document = changed(listings.SYNTHETIC, "IO_Graph", 0, "streaming", to=[{"name": ["file*.dat"]}])
    (rule,) = step(of_json(document), "S").rules
    assert (rule.commit, rule.count, rule.fire, rule.after) == (Commit.ON_TERMINATION, 1, Fire.UPDATE, ())


def test_the_json_form_implies_no_rules_for_directories() -> None:
    assert all(rule.target is Target.FILES for rule in of_json(listings.SYNTHETIC).rules)


def test_dependencies() -> None:
    _, dependent = step(of_json(listings.DEPENDENT), "writer").rules
    assert (dependent.commit, dependent.after) == (Commit.ON_FILE, ("file1.dat",))


def test_homes_name_any_declared_application() -> None:
    homes = of_json(listings.DEPLOYMENT).homes
    assert homes.create == ("file1.dat",)
    assert [(one.patterns, one.step, one.instance) for one in homes.manual] == [
        (("file2.dat", "file4.dat"), "X", None),
        (("file5.dat",), "W", 1),
        (("file3.dat", "file6.dat"), "Z", None),
        (("file-out.dat",), "Y", None),
    ]


@pytest.mark.parametrize("key", ["home-node-policy", "home_nodes"])
def test_other_spellings_of_the_homes_are_accepted_with_a_warning(key: str) -> None:
    policy = listings.DEPLOYMENT["home_node_policy"]
    document = changed(changed(listings.DEPLOYMENT, "home_node_policy", to=...), key, to=policy)
    workflow = of_json(document)
    usual = of_json(listings.DEPLOYMENT).homes
    assert workflow.homes.create == usual.create
    assert [(one.patterns, one.step) for one in workflow.homes.manual] == [
        (one.patterns, one.step) for one in usual.manual
    ]
    assert [warning for warning in workflow.warnings if key in warning and "'home_node_policy'" in warning]
    assert not [warning for warning in of_json(listings.DEPLOYMENT).warnings if "home_node" in warning]


def test_aliases_are_expanded_wherever_a_list_is_expected() -> None:
    workflow = of_json(listings.MAPREDUCE)
    assert step(workflow, "split").output == tuple(f"piece{number}" for number in range(20))
    assert step(workflow, "mapreduce").rules[0].patterns == tuple(f"result{number}" for number in range(9))
    assert len(workflow.homes.hashing) == 20 + 9 + 1
    assert workflow.warnings == ()


def test_aliases_work_in_every_list() -> None:
    aliases = [{"group_name": "both", "files": ["file1.dat", "file2.dat"]}]
    document = changed(listings.DEPENDENT, "aliases", to=[*aliases, {"group_name": "one", "files": ["file1.dat"]}])
    document = changed(document, "IO_Graph", 0, "output_stream", to=["both"])
    document = changed(document, "IO_Graph", 0, "streaming", 1, "files_deps", to=["one"])
    document = changed(document, "IO_Graph", 1, "input_stream", to=["both", "more"])
    document = changed(document, "permanent", to=["both"])
    document = changed(document, "exclude", to=["one"])
    document = changed(document, "home_node_policy", to={"hashing": ["both"]})
    workflow = of_json(document)
    assert step(workflow, "writer").output == workflow.permanent == workflow.homes.hashing == ("file1.dat", "file2.dat")
    assert step(workflow, "reader").input == ("file1.dat", "file2.dat", "more")
    assert workflow.exclude == workflow.rules[1].after == ("file1.dat",)


def test_an_alias_that_nobody_uses_is_mentioned() -> None:
    document = changed(listings.SYNTHETIC, "aliases", to=[{"group_name": "spare", "files": ["x"]}])
    assert [warning for warning in of_json(document).warnings if "'spare'" in warning]


@pytest.mark.parametrize(
    ("aliases", "chain"),
    [
        ({"a": ["a"]}, "a → a"),
        ({"a": ["x", "b"], "b": ["c"], "c": ["y", "a"]}, "a → b → c → a"),
        ({"z": ["b"], "b": ["c"], "c": ["b"]}, "b → c → b"),
    ],
)
def test_an_alias_cannot_stand_for_itself(aliases: dict[str, list[str]], chain: str) -> None:
    written = [{"group_name": name, "files": files} for name, files in aliases.items()]
    found = mistakes(changed(listings.SYNTHETIC, "aliases", to=written))
    assert len(found) == 1 and chain in found[0]


# --- the TOML form ----------------------------------------------------------------------------------------------------


def test_all_of_the_toml_form(tmp_path: Path) -> None:
    file = tmp_path / "weather.toml"
    file.write_text(listings.FULL_TOML)
    workflow = read_workflow(str(file))
    assert (workflow.name, workflow.form, workflow.source) == ("weather", "toml", str(file))
    assert workflow.directory == str(tmp_path / "work")
    assert workflow.limit == 256_000_000
    assert (workflow.permanent, workflow.exclude, workflow.temporary) == (("*.png",), ("logs",), ("scratch",))
    simulate, plot = workflow.steps
    assert simulate.command == "./wrf.exe"
    assert simulate.output == ("wrfout_*", "wrfrst_*")
    assert (simulate.cwd, simulate.env) == ("run", (("OMP_NUM_THREADS", "4"),))
    assert (simulate.sizes, simulate.instances) == (Sizes.AT_COMMIT, 1)
    assert plot.command == ("python", "plot.py", "out/")
    assert (plot.sizes, plot.instances) == (Sizes.SO_FAR, 2)
    written = [rule for rule in workflow.rules if not rule.implied]
    assert [(rule.step, rule.spelled) for rule in written] == [
        ("simulate", "on_close / update"),
        ("plot", "n_files:24 / no_update"),
        ("plot", "on_file (wrfout_last) / update"),
    ]
    assert (workflow.homes.create, workflow.homes.hashing) == (("wrfrst_*",), ("out",))
    assert (workflow.homes.manual[0].step, workflow.homes.manual[0].instance) == ("plot", 1)


def test_the_forms_say_the_same() -> None:
    toml = """
        name = "one-to-one"
        [[step]]
        name = "S"
        output = ["file*.dat"]
        stream = [{ files = ["file*.dat"], commit = "on_close", fire = "no_update" }]
        [[step]]
        name = "Q"
        input = ["file*.dat"]
    """
    one, other = parse_workflow(toml), of_json(listings.SYNTHETIC)
    assert [(step.name, step.input, step.output) for step in one.steps] == [
        (step.name, step.input, step.output) for step in other.steps
    ]
    assert [rule.semantics for rule in one.rules if not rule.implied] == [rule.semantics for rule in other.rules]


def implied(*streams: str) -> list[Rule]:
    header = 'name = "w"\n[[step]]\nname = "s"\noutput = ["*"]\n'
    workflow = parse_workflow(header + "".join(f"[[step.stream]]\n{stream}\n" for stream in streams))
    return [rule for rule in workflow.rules if rule.implied]


@pytest.mark.parametrize(
    ("pattern", "parents"),
    [
        ("plain.txt", (".",)),
        ("wrfout_*", (".", "wrfout_*")),
        ("out/plain.txt", ("out",)),
        ("out/day?/hour*.nc", ("out/day?", "out/day?/hour*")),
        ("a*/b", ("a*",)),
    ],
)
def test_a_rule_for_files_implies_one_for_their_directories(pattern: str, parents: tuple[str, ...]) -> None:
    (rule,) = implied(f'files = ["{pattern}"]\ncommit = "on_close"')
    assert (rule.target, rule.patterns) == (Target.DIRECTORIES, parents)
    assert (rule.commit, rule.fire) == (Commit.ON_TERMINATION, Fire.NO_UPDATE)


def test_a_given_rule_for_the_directory_comes_first() -> None:
    assert implied('files = ["out/a"]', 'directories = ["out"]\nfire = "update"') == []
    (rule,) = implied('files = ["out/a", "b"]', 'directories = ["out"]\nfire = "update"')
    assert rule.patterns == (".",)


def test_the_directory_is_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text('name = "w"\n[[step]]\nname = "s"\n')
    assert read_workflow(str(file)).directory == str(tmp_path)
    assert parse_workflow(file.read_text(), str(file), root="/elsewhere").directory == "/elsewhere"


def test_absolute_names_below_the_directory_are_understood() -> None:
    document = '{{"name": "w", "IO_Graph": [{{"name": "s", "output_stream": ["{0}/out/x", "{0}"]}}]}}'
    assert parse_workflow(document.format("/data"), "w.json", root="/data").steps[0].output == ("out/x", ".")
    for root in ("", "/dat"):
        with pytest.raises(ConfigError, match="absolute"):
            parse_workflow(document.format("/data"), "w.json", root=root)


@pytest.mark.parametrize(("written", "limit"), [('"2GiB"', 2 << 30), ("64", 64_000_000), ('"off"', 0)])
def test_limits(written: str, limit: int) -> None:
    assert parse_workflow(f'name = "w"\nlimit = {written}\n[[step]]\nname = "s"\n').limit == limit
    assert parse_limit(written.strip('"')) == limit  # as the command line has it


@pytest.mark.parametrize("written", ["0", "-1", "0.01", '"4095B"', '"much"', "1e30", "true", '""'])
def test_limits_that_cannot_be_kept_are_refused_with_what_to_write(written: str) -> None:
    with pytest.raises(ConfigError, match='"off"|KiB or more'):
        parse_workflow(f'name = "w"\nlimit = {written}\n[[step]]\nname = "s"\n')


def test_a_file_with_another_ending_is_recognised_by_how_it_begins() -> None:
    assert parse_workflow("  " + text(listings.SYNTHETIC), "workflow").form == "json"
    assert parse_workflow('name = "w"\n[[step]]\nname = "s"\n', "workflow.conf").form == "toml"


# --- patterns as written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("a", "a"),
        ("./a", "a"),
        ("././a/./b//c/", "a/b/c"),
        (".", "."),
        ("./", "."),
        ("./*", "*"),
        ("a/../b", "b"),
        ("a/..", "."),
        ("a**b***", "a*b*"),
        (" a b\nc", " a b\nc"),
        ("...", "..."),
        ("[ab]{c}", "[ab]{c}"),
    ],
)
def test_patterns_are_normalised(written: str, normal: str) -> None:
    assert normalised(written) == normal


@pytest.mark.parametrize("written", ["", "..", "../a", "a/../../b", "*/../b", "/a", "a\0b", "x" * 4096])
def test_patterns_that_cannot_be(written: str) -> None:
    with pytest.raises(ValueError):
        normalised(written)


# --- mistakes ---------------------------------------------------------------------------------------------------------

S = ("IO_Graph", 0)
RULE = (*S, "streaming", 0)

WRONG: list[tuple[dict[str, Any], str, str]] = [
    (changed(listings.SYNTHETIC, "name", to=...), "", "'name' is missing"),
    (changed(listings.SYNTHETIC, "name", to=3), "name", "3 (a number)"),
    (changed(listings.SYNTHETIC, "IO_Graph", to={}), "IO_Graph", "expected an array"),
    (changed(listings.SYNTHETIC, "IO_graph", to=[]), "", "unknown key 'IO_graph'; did you mean 'IO_Graph'?"),
    (changed(listings.SYNTHETIC, "permanent", to="x"), "permanent", 'write ["x"]'),
    (changed(listings.SYNTHETIC, "exclude", to=["a", 1]), "exclude[1]", "expected a text"),
    (changed(listings.SYNTHETIC, "exclude", to=[""]), "exclude[0]", "empty"),
    (changed(listings.SYNTHETIC, "exclude", to=["../a"]), "exclude[0]", "out of the workflow's directory"),
    (changed(listings.SYNTHETIC, *S, "name", to=...), "IO_Graph[0]", "'name' is missing"),
    (changed(listings.SYNTHETIC, *S, "name", to="S:1"), "IO_Graph[0].name", "no ':'"),
    (changed(listings.SYNTHETIC, *S, "name", to="Q"), "IO_Graph[1] (Q)", "already that of IO_Graph[0] (Q)"),
    (changed(listings.SYNTHETIC, *S, "output_stream", to=...), "IO_Graph[0] (S)", "'output_stream' must name"),
    (changed(listings.SYNTHETIC, *S, "output", to=[]), "IO_Graph[0]", "here it is called 'output_stream'"),
    (changed(listings.SYNTHETIC, *RULE, "name", to=[]), "streaming[0].name", "empty"),
    (changed(listings.SYNTHETIC, *RULE, "name", to=...), "IO_Graph[0] (S).streaming[0]", "neither"),
    (changed(listings.SYNTHETIC, *RULE, "dirname", to=["d"]), "IO_Graph[0] (S).streaming[0]", "both"),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="on_closed"), "streaming[0].committed", "'on_close'?"),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="CoC"), "streaming[0].committed", "write 'on_close'"),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="on_close:0"), "streaming[0].committed", "N ≥ 1"),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="on_close:1x"), "streaming[0].committed", '"on_close:1x"'),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="my_on_file"), "streaming[0].committed", '"my_on_file"'),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="n_files"), "streaming[0].committed", '"n_files"'),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="n_files:3"), "streaming[0].committed", "for directories"),
    (changed(listings.SYNTHETIC, *RULE, to={"dirname": ["d"], "committed": "on_close"}), "committed", "for files"),
    (changed(listings.SYNTHETIC, *RULE, "mode", to="no-update"), "streaming[0].mode", "did you mean 'no_update'?"),
    (changed(listings.SYNTHETIC, *RULE, "committed", to="on_file"), "streaming[0]", "needs 'files_deps'"),
    (changed(listings.SYNTHETIC, *RULE, "files_deps", to=["a"]), "streaming[0].files_deps", "on_file"),
    (
        changed(listings.DEPLOYMENT, "home_node_policy", "manual", 0, "app_node", to="V"),
        "app_node",
        "no application 'V'",
    ),
    (changed(listings.DEPLOYMENT, "home_node_policy", "manual", 0, "app_node", to="X:a"), "app_node", "'X:a'"),
    (changed(listings.DEPLOYMENT, "home_node_policy", "manual", 0, "name", to=...), "manual[0]", "'name' is missing"),
    (changed(listings.DEPLOYMENT, "home_node_policy", "hashed", to=[]), "home_node_policy", "did you mean 'hashing'?"),
    (changed(listings.MAPREDUCE, "aliases", 0, "name", to="x"), "aliases[0]", "unknown key 'name'"),
    (changed(listings.MAPREDUCE, "aliases", 1, "group_name", to="pieces"), "aliases[1].group_name", "two aliases"),
]


@pytest.mark.parametrize(("document", "place", "message"), WRONG, ids=range(len(WRONG)))
def test_a_mistake_is_told_with_its_place(document: dict[str, Any], place: str, message: str) -> None:
    found = mistakes(document)
    assert [one for one in found if message in one and place in one.partition(": ")[0]], found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("command = 3", '[[step]] 1 "s", command: expected a line for the shell'),
        ('command = " "', '[[step]] 1 "s", command: the command is empty'),
        ("instances = 0", '[[step]] 1 "s", instances: expected a whole number from 1 to 65,535, not 0'),
        ("instances = 1_000_000", "instances: expected a whole number"),
        ('command = "a\\u0000b"', "command: 'a\\x00b' holds what no name or argument can hold"),
        ('command = ["a", "\\u0000"]', "command[1]: "),
        ('cwd = "\\u0000"', "cwd: "),
        ('[step.env]\nA = "\\u0000"', "[step.env], A: "),
        ('sizes = "sofar"', "did you mean 'so_far'?"),
        ("env = { A = 1 }", '[[step]] 1 "s", [step.env], A: expected a text'),
        ('comand = "x"', "[[step]] 1: unknown key 'comand'; did you mean 'command'?"),
        ('input_stream = ["x"]', "here it is called 'input'"),
        ('[[step.stream]]\nfiles = ["x"]', "'output' must name"),
        ('output = ["x"]\n[[step.stream]]\nfiles = ["x"]\ncommitted = "on_close"', "here it is called 'commit'"),
        (
            'output = ["x"]\n[[step.stream]]\nfile = ["x"]',
            "[[step.stream]] 1: unknown key 'file'; did you mean 'files'?",
        ),
        ('[homes]\nhashing = ["../x"]', "[homes], hashing[0]:"),
        ('[[homes.manual]]\nfiles = ["x"]\nstep = "t"', "[[homes.manual]] 1, step: there is no step 't'"),
        ('[aliases]\na = "x"', '[aliases], a: expected an array, not "x"'),
        ('[step.env]\n"A=B" = "x"', "'A=B' cannot be the name of a variable"),
    ],
)
def test_a_mistake_in_the_toml_form_names_its_table(line: str, message: str) -> None:
    found = mistakes(f'name = "w"\n[[step]]\nname = "s"\n{line}\n')
    assert [one for one in found if message in one], found


def test_all_mistakes_are_told_at_once() -> None:
    document = changed(changed(listings.SYNTHETIC, *RULE, "mode", to="x"), "IO_Graph", 1, "nam", to="y")
    document = changed(document, "permanent", to=[""])
    with pytest.raises(ConfigError) as raised:
        parse_workflow(text(document), "some/where.json")
    lines = str(raised.value).splitlines()
    assert lines[0] == "some/where.json: 3 mistakes"
    assert len(lines) == 4


def test_one_mistake_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^w\.json: permanent\[0\]: it is empty[^\n]*$"):
        parse_workflow(text(changed(listings.SYNTHETIC, "permanent", to=[""])), "w.json")


def test_what_configurations_of_capio_have_besides_is_understood() -> None:
    assert parse_workflow('{"name": "w", "IO_Graph": [], "permanent": [], "exclude": []}', "w.json").steps == ()
    rules = [
        {"name": "a", "committed": "on_close", "mode": "noupdate"},
        {"name": "b", "committed": "on_close", "mode": "append"},
        {"name": ["c"], "committed": "on_file:a"},
    ]
    steps = [{"name": "s", "output_stream": ["a", "b", "c"], "streaming": rules}, {"name": "t", "streaming": []}]
    steps[1]["output_stream"] = []
    document = {"$schema": "https://example.org/schema.json", "name": "w", "IO_Graph": steps}
    workflow = parse_workflow(json.dumps({**document, "home_node_policy": {"manual": []}}), "w.json")
    found = [(rule.patterns, str(rule.commit), str(rule.fire), rule.after) for rule in workflow.rules]
    assert found == [
        (("a",), "on_close", "no_update", ()),
        (("b",), "on_close", "no_update", ()),
        (("c",), "on_file", "update", ("a",)),
    ]
    assert [warning.partition(": ")[2] for warning in workflow.warnings] == [
        "accepted; write 'no_update'",
        "accepted; write 'no_update'",
        "accepted; write 'on_file', and [\"a\"] as 'files_deps'",
    ]


def test_a_key_that_is_given_twice_is_a_mistake() -> None:
    found = examine('{"name": "w", "name": "v", "IO_Graph": [{"name": "s"}]}', "w.json").problems
    assert [str(problem) for problem in found] == ["the key 'name' is given more than once"]


@pytest.mark.parametrize(
    ("content", "source"),
    [
        ('{"name": ', "w.json"),
        ("name = ", "w.toml"),
        ("", "w.json"),
        ("[1, 2]", "w.json"),
        ("[" * 100_000, "w.json"),
        ("null", "w.json"),
    ],
)
def test_what_is_no_document_at_all(content: str, source: str) -> None:
    with pytest.raises(ConfigError, match="not JSON|not TOML|expected an object"):
        parse_workflow(content, source)


def test_half_a_character_is_no_name() -> None:
    document = '{"name": "w", "IO_Graph": [{"name": "\\ud800", "output_stream": ["a\\ud800", "b\\udce9"]}]}'
    found = examine(document, "w.json").problems
    assert [problem.place for problem in found] == ["IO_Graph[0].name", "IO_Graph[0].output_stream[0]"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_workflow(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="directory"):
        read_workflow(str(tmp_path))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_workflow(str(tmp_path / "latin.toml"))


# --- contradictions ---------------------------------------------------------------------------------------------------


def two_rules(one: dict[str, Any], other: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
    return {"name": "w", "IO_Graph": [{"name": "s", "output_stream": outputs, "streaming": [one, other]}]}


CLOSED = {"name": ["file*"], "committed": "on_close"}
ENDED = {"name": ["*.dat"], "committed": "on_termination"}


def test_two_rules_for_a_name_that_is_spelled_out_are_a_mistake() -> None:
    (found,) = mistakes(two_rules(CLOSED, ENDED, ["file1.dat", "file2"]))
    assert "'file1.dat'" in found
    assert "IO_Graph[0] (s).streaming[0]: 'file*' is on_close / update" in found
    assert "IO_Graph[0] (s).streaming[1]: '*.dat' is on_termination / update" in found


def test_two_rules_that_could_meet_are_a_warning_with_an_example() -> None:
    workflow = of_json(two_rules(CLOSED, ENDED, ["out*"]))
    (warning,) = workflow.warnings
    assert "'file.dat' would be covered by two rules" in warning
    assert "streaming[0]" in warning and "streaming[1]" in warning


def test_rules_of_two_applications_can_contradict_each_other_too() -> None:
    graph = [
        {"name": "a", "output_stream": ["x"], "streaming": [{"name": ["x"], "committed": "on_close"}]},
        {"name": "b", "output_stream": ["x"], "streaming": [{"name": ["x"], "mode": "no_update"}]},
    ]
    (found,) = mistakes({"name": "w", "IO_Graph": graph})
    assert "IO_Graph[0] (a).streaming[0]" in found and "IO_Graph[1] (b).streaming[0]" in found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CLOSED, {**CLOSED, "name": ["*.dat"]}),
        ({"name": ["chr1-*"]}, {"dirname": ["chr1-*"], "committed": "n_files:3"}),
        ({"name": ["a*"], "mode": "no_update"}, {"name": ["b*"]}),
    ],
    ids=["identical semantics", "files and directories", "nothing in common"],
)
def test_rules_that_can_coexist(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert of_json(two_rules(one, other, ["file1.dat"])).warnings == ()


def test_a_name_has_one_home() -> None:
    document = changed(listings.DEPLOYMENT, "home_node_policy", "hashing", to=["file?.dat"])
    found = mistakes(document)
    assert [one for one in found if "'file1.dat' has two homes" in one and "create" in one and "hashing" in one]
    document = changed(listings.DEPLOYMENT, "home_node_policy", to={"hashing": ["a*"], "create": ["*b"]})
    assert [one for one in of_json(document).warnings if "'ab' would have two homes" in one]


def dependent(*rules: tuple[list[str], list[str]]) -> dict[str, Any]:
    streaming = [{"name": names, "committed": "on_file", "files_deps": after} for names, after in rules]
    return {"name": "w", "IO_Graph": [{"name": "s", "output_stream": ["*"], "streaming": streaming}]}


@pytest.mark.parametrize(
    "rules",
    [
        [(["a"], ["a"])],
        [(["out/*"], ["out/DONE"])],
        [(["a"], ["b"]), (["b"], ["a"])],
        [(["a"], ["b"]), (["b"], ["c"]), (["c"], ["x", "a"])],
    ],
)
def test_on_file_cannot_wait_for_itself(rules: list[tuple[list[str], list[str]]]) -> None:
    (found,) = mistakes(dependent(*rules))
    assert "on_file waits for itself" in found
    assert all(f"streaming[{number}]" in found for number in range(len(rules)))


def test_chains_of_on_file_are_fine_and_patterns_get_a_warning() -> None:
    assert of_json(dependent((["a"], ["b"]), (["b"], ["c"]))).warnings == ()
    (warning,) = of_json(dependent((["*.idx"], ["part*"]))).warnings
    assert "may wait for itself" in warning


def test_permanent_and_temporary_exclude_each_other() -> None:
    header = 'permanent = ["*.png"]\nname = "w"\n'
    assert parse_workflow(f'{header}temporary = ["*"]\n[[step]]\nname = "s"\n').temporary == ("*",)
    (found,) = mistakes(f'{header}temporary = ["*.png"]\n[[step]]\nname = "s"\n')
    assert "both permanent and temporary" in found


def test_long_lists_are_read_in_no_time() -> None:
    names = [f"data/part{number:05}.bin" for number in range(10_000)]
    document = changed(listings.SYNTHETIC, "aliases", to=[{"group_name": "parts", "files": names}])
    document = json.loads(text(document).replace("file*.dat", "parts"))
    assert len(of_json(document).steps[1].input) == 10_000


# --- the page about it ------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "streaming-language.md").read_text()


@pytest.mark.parametrize("form", ["toml", "json"])
def test_the_files_on_the_page_are_right(form: str) -> None:
    written = re.findall(rf"^```{form}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert written
    for one in written:
        workflow = parse_workflow(one, f"w.{form}")
        assert [remark.message for remark in explain(workflow).remarks if remark.kind == "language"] == []


def test_the_page_names_every_key_and_every_kind_of_remark() -> None:
    for form in (JSON, TOML):
        for key in {*form.top_keys, *form.step_keys, *form.rule_keys, *form.homes_too}:
            assert re.search(rf"`(\[*(step\.)?)?{re.escape(key)}(\]*)`", PAGE), key
    source = Path(check_warnings.__file__).read_text()
    kinds = set(re.findall(r'Remark\(\s*"([a-z-]+)"', source))
    assert len(kinds) > 10
    for kind in kinds:
        assert f"| `{kind}` |" in PAGE, kind
