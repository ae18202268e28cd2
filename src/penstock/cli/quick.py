"""The shortest way from ``penstock run APP`` to the program.

Typer needs some 150 ms to get there, a third of all the time a cold run may take. So the plain forms of the command
are understood here, and everything else (help, mistakes, rare spellings) is left to typer by answering None. A test
holds the two to the same answers.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RunRequest", "parse_run"]


class RunRequest(NamedTuple):
    """What ``penstock run`` was asked to do."""

    app: str
    args: list[str]
    as_module: bool
    #: settings given as flags
    flags: dict[str, object]


_VALUES = {
    "--" + name.replace("_", "-"): name
    for name in (
        *("cpus", "memory", "countable", "scheduler", "run_dir", "mode", "window"),
        *("io_executors", "io_scheduler", "io_ageing", "tuner", "tuning_ceiling"),
        *("tuning_tolerance", "tuning_counts"),
    )
} | {
    "--resources": "resources_file",
    # as PyCOMPSs spells them
    "--io_executors": "io_executors",
    "--io_scheduler": "io_scheduler",
    "--data_movement": "data_movement",
}
_SWITCHES = {
    prefix + name.replace("_", "-"): (name, prefix == "--")
    for name in ("log", "progress", "strict", "data_movement")
    for prefix in ("--", "--no-")
}


def parse_run(arguments: list[str]) -> RunRequest | None:
    """Understand what follows ``penstock run``, or leave it to others."""
    flags: dict[str, object] = {}
    as_module = False
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            return RunRequest(argument, list(rest), as_module, flags)
        if name in _VALUES:
            given = value if equals else next(rest, None)
            setting = _VALUES[name]
            # One that was also given as a switch is a question of which one counts.
            if given is None or isinstance(flags.get(setting), bool):
                return None
            flags[setting] = given
        elif argument in _SWITCHES:
            setting, on = _SWITCHES[argument]
            if isinstance(flags.get(setting), str):
                return None
            flags[setting] = on
        elif argument in ("-m", "--module"):
            as_module = True
        else:
            return None
    return None
