"""Streaming by the rules gives each reader what running the apps one by one gives, and nobody waits for ever."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.streamed_world import Run, Workflow

from penstock.streaming.filestate import Answer, Commit, Files, Fire, NameRules, Rule
from penstock.streaming.written import Written


def in_batch(workflow: Workflow) -> Run:
    run = Run(workflow, None)
    for app in range(workflow.count):
        while not run.ended(app):
            assert run.step(app)
    return run


def streamed(workflow: Workflow, order: Random) -> Run:
    run = Run(workflow, Files(workflow.rules_of, workflow.before))
    while running := [app for app in range(workflow.count) if not run.ended(app)]:
        favourite = order.choice(running)
        order.shuffle(running)
        assert any(run.step(app) for app in (favourite, *running)), f"apps {running} wait for ever"
    return run


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_observation_is_that_of_batch(seed: int) -> None:
    random = Random(seed)
    workflow = Workflow(random)
    batch, stream = in_batch(workflow), streamed(workflow, random)
    assert stream.seen == batch.seen
    assert stream.disk.files == batch.disk.files
    assert stream.files is not None
    assert all(state.committed for state in stream.files if state.born)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.booleans()), max_size=40), st.integers(0, 70))
def test_written_bytes_are_a_set(events: list[tuple[int, int, bool]], length: int) -> None:
    written, model = Written(), set[int]()
    for start, bytes_, cuts in events:
        if cuts:
            written.cut(start)
            model = {byte for byte in model if byte < start}
        else:
            written.add(start, start + bytes_)
            model |= set(range(start, start + bytes_))
        assert {byte for begin, end in written.ranges for byte in range(begin, end)} == model
        assert all(stop < begin for (_, stop), (begin, _) in zip(written.ranges, written.ranges[1:], strict=False))
        assert written.covers(start, start + length) == (set(range(start, start + length)) <= model) or not length
        assert written.high == max(model, default=-1) + 1
        assert set(range(written.solid)) <= model and written.solid not in model


def one_file(rule: Rule, producers: int = 0b01) -> Files:
    return Files(lambda name: NameRules(file=rule, producers=producers, makers=producers), [0, 1, 1])


def test_the_six_ways_of_a_read() -> None:
    """First byte and end of file, for each pair of commit and firing rule."""
    for commit in (Commit.ON_TERMINATION, Commit.ON_CLOSE, Commit.ON_FILE):
        for fire in Fire:
            files = Files(
                lambda name, commit=commit, fire=fire: NameRules(  # type: ignore[misc]
                    file=Rule(commit, fire, 1, ("m",) if commit is Commit.ON_FILE else ())
                    if name == "f"
                    else Rule(Commit.ON_CLOSE),
                    producers=1,
                    makers=1,
                ),
                [0, 1],
            )
            assert files.may_open("f", 1) is Answer.WAIT
            holding = files.open_writer("f", 0)
            early = Answer.GO if fire is Fire.NO_UPDATE else Answer.WAIT
            assert holding and files.is_born("f", 1) is Answer.GO and files.may_open("f", 1) is early
            files.write(holding, 0, 10)
            assert files.may_read("f", 1, 0, 10) is early
            assert files.may_read("f", 1, 5, 11) is Answer.WAIT
            files.close(holding)
            files.settle()
            assert files.may_read("f", 1, 5, 11) is (Answer.GO if commit is Commit.ON_CLOSE else Answer.WAIT)
            marker = files.open_writer("m", 0)
            assert marker
            files.close(marker)
            files.settle()
            assert files.may_read("f", 1, 5, 11) is (Answer.WAIT if commit is Commit.ON_TERMINATION else Answer.GO)
            files.app_over(0)
            files.settle()
            assert files.is_final("f", 1) is Answer.GO


def test_ten_closes_and_the_fallback() -> None:
    files = one_file(Rule(Commit.ON_CLOSE, Fire.UPDATE, 10))
    for cycle in range(9):
        holding = files.open_writer("f", 0, truncated=not cycle)
        look = files.open_writer("f", 0, truncated=False)
        assert holding and look
        files.write(holding, cycle, cycle + 1)
        files.close(holding)
        files.close(look)
    assert files["f"].closes == 9
    assert files.is_final("f", 1) is Answer.WAIT
    files.app_over(0)
    files.settle()
    assert files["f"].committed


def test_a_failed_producer_fails_its_readers_and_commits_nothing() -> None:
    files = one_file(Rule(Commit.ON_TERMINATION, Fire.NO_UPDATE))
    holding = files.open_writer("f", 0)
    assert holding
    files.write(holding, 0, 10)
    files.vanish(holding)
    files.app_over(0, failed=True)
    files.settle()
    assert files.may_read("f", 1, 0, 10) is Answer.GO
    assert files.may_read("f", 1, 0, 11) is Answer.FAIL
    assert files.may_open("other", 1) is Answer.FAIL
    assert not files["f"].committed


def test_an_app_that_updates_in_place_waits_only_for_those_upstream() -> None:
    files = Files(lambda name: NameRules(producers=0b011, makers=0b011), [0, 0b001, 0b011])
    files.open_writer("f", 0)
    assert files.is_final("f", 0) is Answer.GO  # nobody is upstream of it
    assert files.is_final("f", 1) is Answer.WAIT
    files.app_over(0)
    assert files.is_final("f", 1) is Answer.GO
    assert files.is_final("f", 2) is Answer.WAIT
