"""Programs with early outputs at the published scale: the smaller of the published cases, and what bounds them all."""

from __future__ import annotations

import pytest
from benchmarks.papers import eager_alignment, eager_decomposition, eager_messages, eager_warc
from benchmarks.papers.early import FREE, HandOver, both, machine

from penstock.model.resources import Node
from penstock.sim.workloads import Workload


def test_the_last_rank_takes_the_records_that_are_left_over() -> None:
    archive = eager_warc.Archive(6_000, spread=0.0)
    read = archive.read(archive.lengths())
    assert len(read) == 6_000
    assert read[:20] == [float(number) for number in range(1, 21)], "the first rank reads 20"
    assert max(read) == 260.0, "6,000 of 288 are 20 each, and 240 are left over"


@pytest.mark.parametrize("records", [750, 1_500])
def test_an_archive_takes_no_less_than_reading_it_and_no_more_than_with_late_outputs(records: int) -> None:
    archive = eager_warc.Archive(records)
    run = eager_warc.measure(archive, 6, 8)
    assert max(archive.read(archive.lengths())) <= run.early < run.late


def test_alignment_gains_more_with_more_parts() -> None:
    def saved(parts: int) -> float:
        nodes = machine(1)
        read, aligns = 250 / 48 * eager_alignment.ALIGN, 250
        programs = (eager_alignment.stream, eager_alignment.out_of_core)
        streamed, in_parts = (eager_alignment.seconds(program(parts, read, aligns), nodes) for program in programs)
        return 1 - streamed / in_parts

    one, two, four = saved(1), saved(2), saved(4)
    assert 0.4 < one < two < four < 0.55


def test_alignment_has_as_many_tasks_as_was_published() -> None:
    assert len(eager_alignment.stream(4).jobs) == 8_001
    assert len(eager_alignment.out_of_core(4).jobs) == 8_004


def test_decomposition_gains_with_sub_domains_and_hardly_where_cores_are_left() -> None:
    few, some, many = (eager_decomposition.measure(4, parts, 8).saved for parts in (24, 200, 400))
    assert few < 5 < some < many < 50


def test_decomposition_gains_with_nodes() -> None:
    two, four, eight = (eager_decomposition.measure(5, 200, nodes, FREE).saved for nodes in (2, 4, 8))
    assert two < four < eight


def test_the_master_hears_of_early_outputs_later_the_more_generators_there_are() -> None:
    one, some, many = (eager_messages.measure(generators, early=True).seconds for generators in (1, 10, 40))
    assert one == pytest.approx(0.0, abs=1e-9), "a master that keeps up hears at once"
    assert one < some < many
    assert eager_messages.measure(40, early=False).seconds < many


def test_both_ways_are_the_same_program() -> None:
    """One producer of ten outputs, one a second; each is used for two seconds by one of two cores."""
    made: list[Workload] = []

    def program(hand_over: HandOver) -> Workload:
        workload = Workload()
        ready = hand_over(list(range(1, 11)), 10.0)
        producer = workload.task("produce", seconds=10.0, ready=ready)
        for index in range(10):
            workload.task("consume", seconds=2.0, after=[producer[index]])
        made.append(workload)
        return workload

    run = both(program, [Node("two", 2, 10**9)])
    assert (run.early, run.late) == (16.0, 20.0)
    assert [job.seconds for job in made[0].jobs] == [job.seconds for job in made[1].jobs]
