"""Where the results of ``penstock simulate`` go: a terminal, a file of JSON, a figure."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping

import msgspec
from rich.console import Console

from penstock.cli.simulate_settings import Machine
from penstock.errors import ConfigError
from penstock.observe.analysis import Analysis
from penstock.units import format_count

__all__ = ["STANDARD_OUTPUT", "check_outputs", "console", "title", "write_analysis", "write_json"]

#: a file of this name is what the command prints
STANDARD_OUTPUT = "-"
#: parts of the critical path that JSON has room for
_MOST_SEGMENTS = 1000


def check_outputs(as_json: str | None, plot: str | None) -> None:
    """Say before a long simulation what could not be written after it."""
    if as_json is not None and not os.path.isdir(os.path.dirname(as_json) or "."):
        raise ConfigError(f"--json {as_json}: there is no directory {os.path.dirname(as_json)}")
    if plot is not None:
        from penstock.observe.figures import check_figure

        check_figure(plot)


def console(*, stderr: bool = False) -> Console:
    """To print on."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")  # a terminal that knows no "µ" is no reason to fail
    return Console(stderr=stderr, highlight=False, emoji=False)


def title(given: str, machine: Machine) -> str:
    """What was simulated on what."""
    nodes = machine.nodes
    least, most = min(node.cpus for node in nodes), max(node.cpus for node in nodes)
    units = f"{least} to {most} cores" if least < most else f"{most} core" if most == 1 else f"{most} cores"
    place = f"{format_count(len(nodes))} nodes of {units}" if len(nodes) > 1 else f"1 node of {units}"
    return f"{given}, simulated on {place}, {machine.scheduler}"


def write_analysis(path: str, given: str, settings: Mapping[str, str], analysis: Analysis, error: str) -> None:
    """Write what came of one simulation; ``error`` is how the program ended, if by an exception."""
    path_ = analysis.critical_path
    if len(path_.segments) > _MOST_SEGMENTS:
        longest = sorted(path_.segments, key=lambda segment: segment.seconds, reverse=True)[:_MOST_SEGMENTS]
        kept = sorted(longest, key=lambda segment: segment.start)
        analysis = msgspec.structs.replace(analysis, critical_path=msgspec.structs.replace(path_, segments=kept))
    write_json(path, {"input": given, "settings": settings, "error": error, "analysis": analysis})


def write_json(path: str, content: object) -> None:
    """Write anything as JSON that people can read."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=1)
    if path == STANDARD_OUTPUT:
        print(text.decode(), flush=True)
        return
    try:
        with open(path, "wb") as file:
            file.write(text + b"\n")
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot write it: {error.strerror}") from None
