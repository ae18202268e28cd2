"""Simulated tasks that hand over outputs early: makespans that can be computed by hand."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.model import events
from penstock.model.resources import Node
from penstock.model.tasks import OnFailure
from penstock.sim.network import Network
from penstock.sim.simulation import Outcome, Simulation
from penstock.sim.workloads import Workload


def one_to_many(outputs: int, *, cpus: int, eager: bool, fails_first: int = 0) -> Outcome:
    """A producer that makes one output per second, and a consumer of two seconds for each."""
    workload = Workload()
    ready = [float(second) for second in range(1, outputs + 1)]
    options = {"fails_first": fails_first, "retries": 1, "on_failure": OnFailure.RETRY} if fails_first else {}
    producer = workload.task(
        "produce", seconds=float(outputs), ready=ready if eager else [float(outputs)] * outputs, **options
    )
    for index in range(outputs):
        workload.task("consume", seconds=2.0, after=[producer[index]])
    return Simulation([Node("n", cpus, 10**9)], workload, record=True).run()


def test_eager_against_lazy_on_many_units() -> None:
    # Lazy: all consumers start when the producer ends. Eager: consumer i starts at i, the last at 10.
    assert one_to_many(10, cpus=11, eager=False).makespan == 12.0
    assert one_to_many(10, cpus=11, eager=True).makespan == 12.0


def test_eager_against_lazy_on_two_units() -> None:
    # Lazy: ten consumers of 2 s on two units after 10 s. Eager: the second unit takes consumers at 1, 3, 5, 7 and 9 s
    # while the producer runs; five are left at 10 s. The first unit takes three, until 16 s; the second takes two more
    # after 11 s, until 15 s.
    assert one_to_many(10, cpus=2, eager=False).makespan == 20.0
    assert one_to_many(10, cpus=2, eager=True).makespan == 16.0


def test_one_unit_runs_the_consumers_after_the_producer() -> None:
    assert one_to_many(4, cpus=1, eager=True).makespan == 12.0


def test_a_consumer_of_all_waits_for_the_last() -> None:
    workload = Workload()
    producer = workload.task("produce", seconds=5.0, ready=[1.0, 4.0])
    workload.task("consume", seconds=1.0, after=[producer[0]])
    workload.task("reduce", seconds=1.0, after=[producer])
    outcome = Simulation([Node("n", 2, 10**9)], workload).run()
    assert outcome.makespan == 5.0  # from 4 to 5 on the second unit


def test_outputs_handed_over_before_a_failure_stay() -> None:
    # The first attempt hands over all and fails at its end; the second computes again, and its outputs count no more.
    outcome = one_to_many(3, cpus=4, eager=True, fails_first=1)
    assert outcome.makespan == 6.0
    handed = [event for _, event in outcome.log if isinstance(event, events.OutputReady)]
    assert [(one.attempt, one.index) for one in handed] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]


def test_an_output_travels_as_soon_as_it_is_there() -> None:
    workload = Workload()
    producer = workload.task("produce", seconds=10.0, ready=[2.0, 10.0], makes=200)
    consumer = workload.task("consume", seconds=1.0, after=[producer[0]], memory=5)
    assert consumer.call.slots == (producer.results[0],)
    # The consumer fits only on the other node: 100 bytes at 100 B/s come first, from 2 to 3.
    nodes = [Node("small", 1, 1), Node("large", 1, 10)]
    workload_end = workload.task("after", seconds=1.0, after=[consumer], memory=5)
    assert workload_end.call.reads == consumer.results
    outcome = Simulation(nodes, workload, network=Network(100.0), record=True).run()
    ends = [at for at, event in outcome.log if isinstance(event, events.Finished)]
    assert outcome.makespan == 10.0
    assert ends[0] == pytest.approx(4.0)


@pytest.mark.parametrize("ready", [[-1.0], [3.0], [0.5, 2.5]])
def test_outputs_come_while_the_task_computes(ready: list[float]) -> None:
    with pytest.raises(ConfigError, match="an output is ready after"):
        Workload().task("produce", seconds=2.0, ready=ready)
