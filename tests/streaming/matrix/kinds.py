"""What the matrix knows of a program: how it is told to write or to read, what it needs, the rules it may stream under.

A line is what a person would type. ``{out}`` is the file to write, ``{source}`` the file to read, ``{seed}`` a text
that is there from the start, ``{bin}`` the folder of compiled programs, ``{here}`` that of scripts, ``{musl}`` that of
programs linked against musl. A rule is left out where the program breaks its promise: one that comes back to bytes it
has written is not streamed by ``no_update``.
"""

from __future__ import annotations

import dataclasses

__all__ = [
    "CLOSE_UPDATE",
    "ONCE",
    "REWRITTEN",
    "STREAMED",
    "TERMINATION_NO_UPDATE",
    "TERMINATION_UPDATE",
    "Program",
    "Rule",
    "all_rules",
    "by_name",
    "in_groups",
    "one_rule",
]


@dataclasses.dataclass(frozen=True)
class Rule:
    commit: str
    fire: str

    @property
    def name(self) -> str:
        return f"{self.commit.replace(':', '_')}-{self.fire}"


CLOSE_UPDATE = Rule("on_close", "update")
CLOSE_NO_UPDATE = Rule("on_close", "no_update")
TERMINATION_UPDATE = Rule("on_termination", "update")
TERMINATION_NO_UPDATE = Rule("on_termination", "no_update")

STREAMED = (CLOSE_UPDATE, CLOSE_NO_UPDATE, TERMINATION_NO_UPDATE)
REWRITTEN = (CLOSE_UPDATE, TERMINATION_UPDATE)
# Enough for programs that start slowly, and for those that differ little from another one here.
ONCE = (CLOSE_NO_UPDATE,)

# Three rules and two steps each: not more than a workflow may have.
TOGETHER = 10


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    line: str
    #: programs, and after "python:" modules, without which it cannot run
    needs: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = STREAMED
    #: what a producer makes; a consumer reads all of it, in this order
    files: tuple[str, ...] = ("data",)
    #: the producer that feeds a consumer
    fed_by: str = "drip"


def by_name(*programs: Program) -> dict[str, Program]:
    return {program.name: program for program in programs}


def all_rules(program: Program) -> tuple[Rule, ...]:
    return program.rules


def one_rule(program: Program) -> tuple[Rule, ...]:
    """Another one for each program, the same in every run."""
    return (program.rules[sum(program.name.encode()) % len(program.rules)],)


def in_groups(programs: dict[str, Program]) -> dict[str, list[Program]]:
    """Programs that are run together, in one workflow: starting one costs more than most programs do."""
    found = list(programs.values())
    groups = [found[start : start + TOGETHER] for start in range(0, len(found), TOGETHER)]
    return {f"{group[0].name} to {group[-1].name}": group for group in groups}
