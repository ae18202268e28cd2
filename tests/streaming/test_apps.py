"""When a step is over: commands that end, processes that live on, instances that have yet to come."""

from __future__ import annotations

import pytest

from penstock.streaming.apps import App, State
from penstock.streaming.dependents import Dependents
from penstock.streaming.language.model import Step
from penstock.streaming.language.workflow import parse_workflow


def app(instances: int = 1) -> App:
    return App(Step("a", instances=instances), 0)


def test_a_step_is_over_when_its_command_is_and_nothing_of_it_lives() -> None:
    one = app()
    one.command_began("a")
    one.process_came((10, 1))
    one.process_came((11, 1))
    assert one.state is State.RUNS
    one.command_ended("a", 0, "")
    assert not one.judge()  # something it left in the background still writes
    one.process_gone((11, 1), killed=False)
    assert not one.judge()
    one.process_gone((10, 1), killed=False)
    assert one.judge() and one.state is State.OVER
    assert not one.judge()  # once


def test_between_two_programs_of_a_script_it_is_not_over() -> None:
    one = app()
    one.command_began("a")
    one.process_came((10, 1))
    one.process_gone((10, 1), killed=False)
    assert not one.judge()


def test_the_first_bad_end_is_what_counts() -> None:
    one = app(2)
    one.command_began("a:0")
    one.command_began("a:1")
    one.command_ended("a:1", 3, "exited with status 3")
    assert not one.judge()
    one.command_ended("a:0", -9, "was killed by SIGKILL")
    assert one.judge() and one.state is State.FAILED
    assert one.how == "exited with status 3" and one.status == 3


def test_all_instances_must_have_come() -> None:
    one = app(2)
    one.command_began("a:0")
    one.command_ended("a:0", 0, "")
    assert not one.judge()
    one.command_began("a:1")
    one.command_ended("a:1", 0, "")
    assert one.judge()


def test_one_that_users_start_is_over_when_its_program_is_gone() -> None:
    one = app()
    assert not one.judge()
    one.program_came()
    one.process_came((10, 1))
    assert not one.judge()
    one.process_gone((10, 1), killed=False)
    assert one.judge() and one.state is State.OVER


def test_one_that_users_start_fails_when_it_is_killed() -> None:
    one = app()
    one.program_came()
    one.process_came((10, 1))
    one.process_gone((10, 1), killed=True)
    assert one.judge() and one.state is State.FAILED


def test_a_killed_child_is_the_business_of_the_command_that_started_it() -> None:
    one = app()
    one.command_began("a")
    one.process_came((10, 1))
    one.process_gone((10, 1), killed=True)
    one.command_ended("a", 0, "")
    assert one.judge() and one.state is State.OVER


def test_at_the_last_call_only_the_living_count() -> None:
    late, running = app(3), app()
    running.process_came((10, 1))
    assert late.judge(last_call=True) and late.state is State.OVER
    assert not running.judge(last_call=True)


CHAIN = """
    name = "chain"
    [[step]]
    name = "a"
    command = "true"
    output = ["done", "parts/*"]
    [[step]]
    name = "b"
    command = "true"
    output = ["x", "y"]
    [[step.stream]]
    files = ["x"]
    commit = "on_file"
    after = ["done"]
    [[step.stream]]
    files = ["y"]
    commit = "on_file"
    after = ["done", "parts/*"]
"""


@pytest.mark.parametrize(
    ("final", "over", "ready"),
    [
        (set(), set(), []),
        ({"done"}, set(), [1]),
        ({"parts/1"}, set(), []),
        ({"done"}, {"b"}, [1]),
        ({"done"}, {"a"}, [1, 2]),  # another part may come as long as its maker lives
        (set(), {"a"}, []),
    ],
)
def test_files_that_are_final_when_others_are(final: set[str], over: set[str], ready: list[int]) -> None:
    workflow = parse_workflow(CHAIN)
    dependents = Dependents(workflow)
    for slot, rule in enumerate((rule for rule in workflow.rules if not rule.implied), start=1):
        dependents.add(slot, rule)
    assert list(dependents.ready(final.__contains__, over.__contains__)) == ready
    assert list(dependents.ready(final.__contains__, over.__contains__)) == []
