"""Every program as producer and as consumer: what a streamed run leaves is what running one after the other leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.streaming.matrix.consumers import CONSUMERS
from tests.streaming.matrix.kinds import Program, Rule, all_rules, in_groups, one_rule
from tests.streaming.matrix.producers import PRODUCERS
from tests.streaming.matrix.rig import Lane, batch, programs_folder, runnable, stream_run, streamed, there

COLLECT = CONSUMERS["c-raw"]
EVERY = (*PRODUCERS.values(), *CONSUMERS.values())


#: gives a test ``rules``: each program is streamed by one of the rules that it may stream under, or by all of them
SOME_RULES = pytest.mark.parametrize(
    "rules", [pytest.param(one_rule, id="one-rule"), pytest.param(all_rules, id="all-rules", marks=pytest.mark.long)]
)
Rules = Callable[[Program], tuple[Rule, ...]]


def of_producer(producer: Program, rules: Rules = all_rules) -> list[Lane]:
    return [Lane(producer, producer, COLLECT, rule) for rule in rules(producer)]


def of_consumer(consumer: Program, rules: Rules = all_rules) -> list[Lane]:
    return [Lane(consumer, PRODUCERS[consumer.fed_by], consumer, rule) for rule in rules(consumer)]


def problems(lanes: list[Lane], folder: Path) -> list[str]:
    """What is not as it should be, in words."""
    expected = batch(lanes, folder / "batch")
    for lane in lanes:
        assert any(expected[name] for name in lane.made), f"{lane.producer.name} writes nothing"
        assert any(expected[name] for name in expected if name.startswith(f"{lane.folder}/result"))
    try:
        found = streamed(lanes, folder / "streamed")
    except AssertionError as failure:
        return [str(failure)]
    return [
        f"{name}: not as in batch" for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    ]


def check(of_programs: list[list[Lane]], folder: Path) -> None:
    """Run all of them together; where something is wrong, each by itself, to see which it is."""
    found = [lanes for lanes in of_programs if runnable(*lanes)]
    if not found:
        pytest.skip("STREAMING IS NOT TESTED WITH ANY OF THEM: what they need is not there; .ci/run installs it")
    together = problems([lane for lanes in found for lane in lanes], folder / "together")
    if together:
        alone = {lanes[0].about.name: problems(lanes, folder / lanes[0].about.name) for lanes in found}
        wrong = {name: said for name, said in alone.items() if said}
        raise AssertionError(
            "\n".join(["together:", *together, f"alone, wrong are: {list(wrong)}", *map(str, wrong.values())])
        )


PRODUCER_GROUPS, CONSUMER_GROUPS = in_groups(PRODUCERS), in_groups(CONSUMERS)


@pytest.mark.one_in(3)
@SOME_RULES
@pytest.mark.parametrize("producers", PRODUCER_GROUPS.values(), ids=PRODUCER_GROUPS)
def test_what_programs_write_can_be_streamed(producers: list[Program], rules: Rules, tmp_path: Path) -> None:
    check([of_producer(producer, rules) for producer in producers], tmp_path)


@pytest.mark.one_in(3)
@SOME_RULES
@pytest.mark.parametrize("consumers", CONSUMER_GROUPS.values(), ids=CONSUMER_GROUPS)
def test_programs_read_what_is_still_being_written(consumers: list[Program], rules: Rules, tmp_path: Path) -> None:
    check([of_consumer(consumer, rules) for consumer in consumers], tmp_path)


@pytest.mark.parametrize("need", sorted({need for program in EVERY for need in program.needs}))
def test_what_programs_need_is_there(need: str) -> None:
    if not there(need):
        names = ", ".join(sorted({program.name for program in EVERY if need in program.needs}))
        pytest.skip(f"STREAMING IS NOT TESTED WITH {names}: there is no {need}; .ci/run installs it")


def test_in_memory_programs_make_the_same_and_only_what_is_permanent_stays(tmp_path: Path) -> None:
    consumers = [CONSUMERS[name] for name in ("c-stdio", "cp", "python-mapped", "tar", "grep")]
    lanes = [lane for consumer in consumers for lane in of_consumer(consumer)]
    expected = batch(lanes, tmp_path / "batch")
    found = streamed(lanes, tmp_path / "streamed", "--memory", top='permanent = ["*/result*"]')
    assert found == {name: text for name, text in expected.items() if "/result" in name}


def test_one_after_the_other_through_the_command_is_the_same_too(tmp_path: Path) -> None:
    lanes = [*of_producer(PRODUCERS["cat"]), *of_consumer(CONSUMERS["sort"])]
    assert streamed(lanes, tmp_path / "command", "--batch") == batch(lanes, tmp_path / "bash")


CHAIN = '''
name = "chain"
[[step]]
name = "total"
command = """sqlite3 -separator ' ' :memory: 'create table t (n, w)' '.import counts t' \\
  'select sum(n), count(*) from t' > total"""
input = ["counts"]
output = ["total"]
[[step]]
name = "count"
command = "gzip -dc packed | awk '{ print $4 }' | sort | uniq -c | awk '{ print $1, $2 }' > counts"
input = ["packed"]
output = ["counts"]
[[step.stream]]
files = ["counts"]
commit = "on_close"
fire = "no_update"
[[step]]
name = "pack"
command = "cat lines | gzip -nc > packed"
input = ["lines"]
output = ["packed"]
sizes = "so_far"
[[step.stream]]
files = ["packed"]
commit = "on_close"
fire = "no_update"
[[step]]
name = "write"
command = "BIN/drip - 3000 > lines"
output = ["lines"]
[[step.stream]]
files = ["lines"]
commit = "on_close"
fire = "no_update"
'''


@pytest.mark.skipif(not all(map(there, ("gcc", "sqlite3", "awk"))), reason="CHAINS ARE NOT TESTED: .ci/run installs it")
def test_a_chain_of_programs_has_the_result_of_batch(tmp_path: Path) -> None:
    found = {}
    for way in ((), ("--batch",)):
        folder = tmp_path / f"run{len(way)}"
        folder.mkdir()
        (folder / "workflow.toml").write_text(CHAIN.replace("BIN", str(programs_folder())))
        stream_run(folder, *way)
        found[way] = {name: (folder / name).read_bytes() for name in ("lines", "packed", "counts", "total")}
    assert found[()] == found["--batch",]
    assert found[()]["total"].split() == [b"3000", b"37"]
