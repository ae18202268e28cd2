"""The explanation of a workflow, its warnings, and the estimate: as values, and as a user sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit import streaming_listings as listings
from tests.unit.streaming_listings import changed, text
from typer.testing import CliRunner, Result

from penstock.cli.app import app_for
from penstock.errors import ConfigError
from penstock.streaming.estimate import Pipeline, estimate
from penstock.streaming.language.check import CoveredName, Explanation, explain
from penstock.streaming.language.check_words import listed, waits
from penstock.streaming.language.model import Target
from penstock.streaming.language.workflow import parse_workflow


def explained(document: dict[str, Any] | str) -> Explanation:
    if isinstance(document, str):
        return explain(parse_workflow(document, "w.toml"))
    return explain(parse_workflow(text(document), "w.json"))


def remarks(document: dict[str, Any] | str, kind: str) -> list[str]:
    return [remark.message for remark in explained(document).remarks if remark.kind == kind]


def graph(*steps: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"name": "w", "IO_Graph": list(steps), **more}


# --- which rule covers what -------------------------------------------------------------------------------------------


def covered(explanation: Explanation, name: str, target: Target = Target.FILES) -> CoveredName:
    (found,) = (one for one in explanation.names if one.name == name and one.target is target)
    return found


def test_genomes_is_explained() -> None:
    explanation = explained(listings.GENOMES)
    found = {(edge.producer, edge.consumer) for edge in explanation.edges}
    assert found == {
        ("download", "individuals"),
        ("download", "sifting"),
        ("individuals", "individuals_merge"),
        ("individuals_merge", "mutations_overlap"),
        ("individuals_merge", "frequency"),
        ("sifting", "mutations_overlap"),
        ("sifting", "frequency"),
    }
    directory = covered(explanation, "chr1-*", Target.DIRECTORIES)
    assert directory.rule == "n_files:2504 / no_update"
    assert directory.waits == "entries are listed as they come; the listing ends once there are 2,504 files in it"
    assert (directory.producers, directory.consumers) == (("individuals",), ("individuals_merge",))
    files = covered(explanation, "chr1-*/*")
    assert files.waits == "bytes are read as they are written; the file ends once it is closed"
    kept = covered(explanation, "mutations.tar.gz")
    assert (kept.rule, kept.place, kept.kept) == ("on_termination / update", "", "permanent")


def test_an_output_below_a_wider_rule_is_shown_with_it() -> None:
    explanation = explained(listings.WEATHER)
    assert covered(explanation, "images").rule == "on_close / update"
    directory = covered(explanation, ".", Target.DIRECTORIES)
    assert directory.rule == "on_termination / no_update"
    assert directory.producers == ("wrf", "plot")
    assert directory.waits.endswith("the listing ends once wrf has ended")  # plot does not wait for itself


def test_a_pattern_is_made_by_those_who_make_all_of_it() -> None:
    assert covered(explained(listings.DEPLOYMENT), "file*.dat").producers == ("S",)
    assert covered(explained(listings.DEPLOYMENT), "file4.dat").producers == ("S", "W")


def test_names_of_directories_are_not_shown_as_files_too() -> None:
    explanation = explained(listings.GENOMES)
    assert [one.target for one in explanation.names if one.name == "chr1n"] == [Target.DIRECTORIES]


COMMITS = {
    "on_termination": "s has ended",
    "on_close": "it is closed",
    "on_close:3": "it was closed 3 times",
    "on_file": "a and b are committed",
}


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("fire", ["update", "no_update"])
def test_every_pair_of_commit_and_firing_has_its_words(commit: str, fire: str) -> None:
    rule = {"name": ["f"], "committed": commit, "mode": fire}
    if commit == "on_file":
        rule["files_deps"] = ["a", "b"]
    document = graph({"name": "s", "output_stream": ["f", "a", "b"], "streaming": [rule]})
    told = covered(explained(document), "f").waits
    before = "readers wait until " if fire == "update" else "bytes are read as they are written; the file ends once "
    assert told == before + COMMITS[commit]


def test_directories_in_words() -> None:
    (rule,) = parse_workflow(
        'name="w"\n[[step]]\nname="s"\noutput=["d"]\n[[step.stream]]\ndirectories=["d"]\ncommit="n_files:1"'
    ).rules
    assert waits(rule, ["s"]) == "a listing waits until there is 1 file in it"


def test_long_lists_are_shortened() -> None:
    assert [listed("a"), listed("ab"), listed("abcd"), listed("abcdef")] == [
        "a",
        "a and b",
        "a, b, c and d",
        "a, b, c and 3 more",
    ]


def test_ten_thousand_names_are_explained_in_a_few_lines(tmp_path: Path) -> None:
    names = [f"data/part{number:05}.bin" for number in range(10_000)]
    document = changed(listings.SYNTHETIC, "aliases", to=[{"group_name": "parts", "files": names}])
    document = json.loads(text(document).replace("file*.dat", "parts"))
    file = tmp_path / "many.json"
    file.write_text(text(changed(document, "permanent", to=["parts", "data/sum"])))
    shown = run("check", str(file)).stdout
    assert "9,997 more" in shown and len(shown.splitlines()) < 30


# --- warnings ---------------------------------------------------------------------------------------------------------


def test_a_pattern_that_takes_in_the_output_of_another() -> None:
    found = remarks(listings.DEPLOYMENT, "foreign-output")
    assert [one for one in found if "'file*.dat' of S" in one and "'file-out.dat', an output of Y" in one]
    assert remarks(listings.SYNTHETIC, "foreign-output") == []


def test_the_same_pattern_in_two_steps_is_meant() -> None:
    steps = [{"name": name, "output_stream": ["part*"]} for name in "ab"]
    assert remarks(graph(*steps), "foreign-output") == []


def test_two_patterns_that_overlap_are_told_once() -> None:
    steps = [{"name": "a", "output_stream": ["x*"]}, {"name": "b", "output_stream": ["*y"]}]
    assert len(remarks(graph(*steps), "foreign-output")) == 1
    assert len(remarks(graph(*reversed(steps)), "foreign-output")) == 1


def test_a_rule_for_no_output() -> None:
    document = changed(listings.GENOMES, "IO_Graph", 2, "output_stream", to=["chr1"])  # as in the source
    found = remarks(document, "rule-without-output")
    assert len(found) == 2 and all("chr1n" in one for one in found)
    assert remarks(listings.GENOMES, "rule-without-output") == []


def test_an_input_that_nobody_makes_but_nearly() -> None:
    document = changed(listings.GENOMES, "IO_Graph", 5, "input_stream", to=["chr1m", "reference"])
    found = {remark.message: remark.warning for remark in explained(document).remarks if remark.kind == "unmade-input"}
    assert [warning for message, warning in found.items() if "'chr1m'" in message and "did you mean" in message] == [
        True
    ]
    assert [warning for message, warning in found.items() if "'reference'" in message] == [False]


def test_what_gives_no_overlap() -> None:
    found = remarks(listings.DEPLOYMENT, "no-overlap")
    assert [one for one in found if one.startswith("S: no rule covers file*.dat")]
    assert not [one for one in found if one.startswith("Y")]  # nobody reads it
    assert remarks(listings.SYNTHETIC, "no-overlap") == []
    slow = changed(listings.SYNTHETIC, "IO_Graph", 0, "streaming", to=[{"name": ["file*.dat"]}])
    assert len(remarks(slow, "no-overlap")) == 1
    first = changed(slow, "IO_Graph", 0, "streaming", 0, "mode", to="no_update")
    assert remarks(first, "no-overlap") == [] and len(remarks(first, "first-file-only")) == 1


def test_a_dependency_that_nobody_makes() -> None:
    document = changed(listings.DEPENDENT, "IO_Graph", 0, "streaming", 1, "files_deps", to=["file3.dat"])
    (found,) = remarks(document, "unknown-dependency")
    assert "'file3.dat'" in found and "did you mean" in found
    assert remarks(listings.DEPENDENT, "unknown-dependency") == []


def test_a_circle_of_steps() -> None:
    steps = [
        {"name": "a", "input_stream": ["y"], "output_stream": ["x"]},
        {"name": "b", "input_stream": ["x"], "output_stream": ["y"]},
    ]
    (found,) = remarks(graph(*steps), "circle")
    assert "a → b → a" in found


def test_lists_that_name_nothing() -> None:
    (found,) = remarks(changed(listings.GENOMES, "permanent", to=["mutation.tar.gz"]), "unused-list")
    assert "'mutation.tar.gz'" in found and "did you mean 'mutations.tar.gz'" in found


def test_a_step_that_reads_what_it_makes() -> None:
    assert len(remarks(graph({"name": "s", "input_stream": ["d/*"], "output_stream": ["d/a"]}), "own-input")) == 1


def test_a_file_that_more_close_than_are_counted() -> None:
    rule = {"name": ["f"], "committed": "on_close"}
    steps = [{"name": name, "output_stream": ["f"], "streaming": [rule]} for name in "abc"]
    found = remarks(graph(*steps), "too-few-closes")
    assert found and all("write on_close:3" in one for one in found)


def test_an_output_that_is_excluded() -> None:
    assert len(remarks(changed(listings.SYNTHETIC, "exclude", to=["file*.dat"]), "excluded-output")) == 1


def test_steps_that_take_no_part_and_have_no_command() -> None:
    document = 'name="w"\n[[step]]\nname="s"\n'
    assert len(remarks(document, "idle")) == 1
    assert len(remarks(document, "no-command")) == 1
    assert remarks(graph({"name": "s"}), "no-command") == []


def test_a_home_by_a_process_that_is_not_started() -> None:
    header = 'name="w"\n[[step]]\nname="s"\ninstances=2\noutput=["x"]\n[[homes.manual]]\nfiles=["x"]\n'
    assert len(remarks(f'{header}step="s:2"', "unknown-process")) == 1
    assert remarks(f'{header}step="s:1"', "unknown-process") == []


def test_warnings_of_the_reader_are_among_them() -> None:
    document = changed(listings.SYNTHETIC, "aliases", to=[{"group_name": "spare", "files": ["x"]}])
    assert len(remarks(document, "language")) == 1


def test_good_files_give_no_warnings() -> None:
    for document in (listings.SYNTHETIC, listings.MAPREDUCE):
        assert [remark for remark in explained(document).remarks if remark.warning] == []


# --- the estimate -----------------------------------------------------------------------------------------------------


def test_the_example_of_the_specification() -> None:
    result = estimate(Pipeline(files=100, written=1e9, read=1e9, write_rate=1e8, read_rate=2e8))
    assert result.io_batch == pytest.approx(100 * (10 + 5))
    assert result.io_ideal == pytest.approx(1000)
    assert result.io_by_file == pytest.approx(100 * 10 + 5)
    assert result.io_gain == pytest.approx(0.33)
    assert result.by_file == result.io_by_file and result.batch == result.io_batch


@given(
    st.integers(1, 1000),
    st.floats(1, 1e9),
    st.floats(1e6, 1e9),
    st.floats(1.01, 10),
    st.floats(0, 100),
    st.floats(0, 100),
)
@settings(deadline=None)
def test_the_formulas_of_the_specification(
    count: int, size: float, rate: float, faster: float, writing: float, reading: float
) -> None:
    read_rate = rate * faster
    result = estimate(Pipeline(count, size, size, rate, read_rate, writing, reading))
    assert result.io_by_file == pytest.approx(count * size / rate + size / read_rate)
    assert result.io_gain == pytest.approx(rate * (count - 1) / (count * (read_rate + rate)), abs=1e-9)
    slack = 1 + 1e-9
    assert result.ideal <= result.by_record * slack and result.by_record <= result.by_file * slack
    assert result.by_file <= result.batch * slack
    least, most = result.bounds
    assert least <= result.batch * slack and result.batch <= most * slack


@pytest.mark.parametrize("wrong", [{"files": 0}, {"write_rate": 0.0}, {"read": -1.0}, {"record": 0.0}])
def test_estimates_of_nothing_are_refused(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"files": 1, "written": 1.0, "read": 1.0, "write_rate": 1.0, "read_rate": 1.0}
    with pytest.raises(ConfigError):
        estimate(Pipeline(**(good | wrong)))


# --- the command line -------------------------------------------------------------------------------------------------


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(
        app_for(["stream"]), ["stream", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    )
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def weather(tmp_path: Path) -> str:
    file = tmp_path / "weather.toml"
    file.write_text(listings.FULL_TOML)
    return str(file)


def test_check_shows_steps_rules_and_warnings(weather: str) -> None:
    shown = run("check", weather).stdout
    for part in (
        "simulate",
        "plot × 2",
        "python plot.py out/",
        "on_close / update",
        "n_files:24",
        "(implied)",
        "no mistakes",
    ):
        assert part in shown, shown


def test_check_tells_all_mistakes_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text('{"nam": "x", "IO_Graph": 3}')
    result = run("check", str(file), status=2)
    assert result.stdout == ""
    assert "3 mistakes" in result.stderr and "did you mean 'name'?" in result.stderr
    assert len(json.loads(run("check", "--json", str(file), status=2).stdout)["problems"]) == 3
    assert "No such file" in run("check", str(tmp_path / "none.json"), status=2).stderr


def test_check_as_json(weather: str) -> None:
    explanation = json.loads(run("check", "--json", weather).stdout)
    assert {edge["consumer"] for edge in explanation["edges"]} == {"plot"}
    assert explanation["workflow"]["limit"] == 256_000_000
    assert next(one["rule"] for one in explanation["names"] if one["name"] == "wrfout_*") == "on_close / update"


def test_check_of_one_name(weather: str) -> None:
    shown = run("check", "--name", "out/1.png", weather).stdout
    assert "on_file (wrfout_last) / update" in shown and "permanent" in shown
    assert "cannot be used" in run("check", "--name", "../x", weather, status=2).stderr
    assert len(json.loads(run("check", "--json", "--name", "a", "--name", "b", weather).stdout)) == 4


def test_check_of_an_ambiguous_name(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    rules = '[[step.stream]]\nfiles=["a*"]\ncommit="on_close"\n[[step.stream]]\nfiles=["*b"]\n'
    file.write_text(f'name="w"\n[[step]]\nname="s"\noutput=["*"]\n{rules}')
    assert "1 warning" in run("check", str(file)).stdout
    assert "two rules that differ" in run("check", "--name", "ab", str(file), status=2).stderr


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text('name="[bold]w"\n[[step]]\nname="[red]s"\noutput=["[x]"]\n')
    shown = run("check", str(file)).stdout
    assert "[bold]w" in shown and "[red]s" in shown and "[x]" in shown


def test_the_estimate_is_printed() -> None:
    shown = run("estimate", "--files", "100", "--write", "100MB/s", "--read", "200MB/s").stdout
    assert "25m 00s" in shown and "16m 45s" in shown and "33%" in shown
    asked = ("--files", "10", "--size", "1MB", "--writer-compute", "10s", "--reader-compute", "10s", "--json")
    result = json.loads(run("estimate", *asked).stdout)
    assert result["batch"] > 20 and result["by_file"] == pytest.approx(11, rel=0.01)
    assert "cannot read" in run("estimate", "--size", "1 parsec", status=2).stderr


def test_the_schema_is_printed() -> None:
    assert json.loads(run("schema", "json").stdout)["title"].endswith("JSON form")
    assert json.loads(run("schema").stdout)["title"].endswith("TOML form")
    run("schema", "xml", status=2)


def test_the_group_imports_nothing_heavy() -> None:
    code = (
        "import sys, penstock.cli.app; penstock.cli.app.app_for(['stream'])\n"
        "print([name for name in sys.modules if name.startswith(('penstock.streaming', 'rich.table'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("count", "told"), [(63, 0), (64, 1)])
def test_more_steps_than_can_stream(count: int, told: int) -> None:
    many = graph(*({"name": f"s{number}", "output_stream": [f"o{number}"]} for number in range(count)))
    assert len(remarks(many, "too-many-steps")) == told
