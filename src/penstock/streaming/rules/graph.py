"""The graph of steps: who reads what whom may make. Pure.

An edge says that a pattern of one step's outputs and one of another's inputs have a name in common. Patterns promise
more than programs do, so an edge that closes a circle is worth a warning, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.streaming.language.model import Step
from penstock.streaming.rules.sets import NameSet, meetings

__all__ = ["Edge", "before_each", "circle", "edges", "in_order", "meet", "upstream"]


class Edge(Struct, frozen=True):
    """One step may make what another reads."""

    producer: str
    consumer: str
    #: pairs of an output pattern and an input pattern that meet
    through: tuple[tuple[str, str], ...]


def meet(one: str, other: str) -> str | None:
    """A name that two entries of lists have in common, or None."""
    sets = (NameSet((pattern,), subtrees=True) for pattern in (one, other))
    return next((name for _, _, name in meetings(*sets, directories=True)), None)


def edges(steps: Sequence[Step]) -> list[Edge]:
    """All of them, by consumer; a step that reads what it makes itself has no edge for that."""
    found = []
    outputs = {step.name: NameSet(step.output, subtrees=True) for step in steps}
    for consumer in steps:
        inputs = NameSet(consumer.input, subtrees=True)
        for producer in steps:
            if producer.name == consumer.name:
                continue
            met = meetings(outputs[producer.name], inputs, directories=True)
            through = tuple(dict.fromkeys((out, into) for out, into, _ in met))
            if through:
                found.append(Edge(producer.name, consumer.name, through))
    return found


def upstream(steps: Sequence[Step]) -> dict[str, frozenset[str]]:
    """The steps that come before each; one on a circle comes before itself."""
    direct: dict[str, set[str]] = {step.name: set() for step in steps}
    for edge in edges(steps):
        direct[edge.consumer].add(edge.producer)
    before = {}
    for name, producers in direct.items():
        reached: set[str] = set()
        waiting = list(producers)
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached.add(one)
                waiting.extend(direct[one])
        before[name] = frozenset(reached)
    return before


def before_each(steps: Sequence[Step]) -> dict[str, frozenset[str]]:
    """The steps that come before each and not after it as well: on a circle nobody is first."""
    reached = upstream(steps)
    return {name: frozenset(one for one in above if name not in reached[one]) for name, above in reached.items()}


def circle(steps: Sequence[Step]) -> tuple[str, ...]:
    """Steps each of which reads what the one before it makes, the first again at the end; empty if there are none."""
    direct: dict[str, list[str]] = {step.name: [] for step in steps}
    for edge in edges(steps):
        direct[edge.producer].append(edge.consumer)
    before = upstream(steps)
    start = next((name for name in direct if name in before[name]), None)
    if start is None:
        return ()
    way: dict[str, tuple[str, ...]] = {start: (start,)}
    waiting = [start]
    while waiting:
        one = waiting.pop(0)
        for following in direct[one]:
            if following == start:
                return (*way[one], start)
            if following not in way:
                way[following] = (*way[one], following)
                waiting.append(following)
    return ()


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Producers before consumers, otherwise as in the file: the order in which steps run one after the other.

    Steps on a circle keep the order of the file among themselves.
    """
    before = upstream(steps)
    left = list(steps)
    ordered: list[Step] = []
    while left:
        names = {step.name for step in left}
        ready = next((step for step in left if not (before[step.name] - {step.name}) & names), None)
        if ready is None:  # a circle: the first of those that wait only for each other
            ready = next(
                (step for step in left if all(step.name in before[one] for one in before[step.name] & names)), left[0]
            )
        ordered.append(ready)
        left.remove(ready)
    return ordered
