"""A workflow to measure: steps with their commands and rules, as the TOML that `penstock stream run` reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

__all__ = ["CLOSE_NO_UPDATE", "CLOSE_UPDATE", "Flow", "Step", "Stream"]


@dataclass(frozen=True)
class Stream:
    """A rule for files, or for directories."""

    patterns: tuple[str, ...]
    commit: str = "on_close"
    fire: str = "no_update"
    directories: bool = False

    def toml(self) -> str:
        target = "directories" if self.directories else "files"
        return (
            f'[[step.stream]]\n{target} = {json.dumps(self.patterns)}\ncommit = "{self.commit}"\nfire = "{self.fire}"\n'
        )


CLOSE_NO_UPDATE, CLOSE_UPDATE = ("on_close", "no_update"), ("on_close", "update")


@dataclass(frozen=True)
class Step:
    """One program, or several at once where `lines` has several: they are the processes of one step."""

    name: str
    lines: tuple[str, ...]
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    streams: tuple[Stream, ...] = ()

    @property
    def command(self) -> list[str]:
        if len(self.lines) == 1:
            return self.lines[0].split()
        together = ' & ids="$ids $!"; '.join(self.lines)
        wait = ' & ids="$ids $!"; for id in $ids; do wait $id || exit 1; done'
        return ["sh", "-c", f"{together}{wait}"]

    def toml(self) -> str:
        text = f'[[step]]\nname = "{self.name}"\ncommand = {json.dumps(self.command)}\n'
        if self.input:
            text += f"input = {json.dumps(self.input)}\n"
        if self.output:
            text += f"output = {json.dumps(self.output)}\n"
        return text + "".join(stream.toml() for stream in self.streams)


@dataclass(frozen=True)
class Flow:
    """Steps, in an order in which they could run one after the other, and the files that are their results."""

    name: str
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    folders: tuple[str, ...] = field(default=())
    #: what is kept of a run in memory
    permanent: tuple[str, ...] = ()

    def toml(self) -> str:
        kept = f"permanent = {json.dumps(self.permanent)}\n" if self.permanent else ""
        return f'name = "{self.name}"\n{kept}' + "\n".join(step.toml() for step in self.steps)
