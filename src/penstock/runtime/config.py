"""Settings: defaults, then a file, then ``PENSTOCK_…`` variables, then keyword arguments or command-line flags.

``load_config`` is called once by each start of a runtime. It remembers where every value came from, which is what
``penstock config`` shows. A name it does not know is an error that suggests the nearest one: a setting that is
silently ignored costs its user an afternoon.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.units import parse_size

__all__ = ["SETTINGS", "Config", "Loaded", "Setting", "load_config"]

KeepRunDir = Literal["always", "failed", "never"]


class Config(Struct, frozen=True, kw_only=True):
    """Every setting of a runtime. ``None`` means: find out, as the comment says."""

    #: computing units to use; ``None``: those this process may use
    cpus: int | None = None
    #: bytes of main memory that tasks may reserve; ``None``: what this process may use
    memory: int | None = None
    #: ``inline`` runs each task in the calling thread, at the call
    mode: Literal["parallel", "inline"] = "parallel"
    #: report a task that changes an ``IN`` argument
    strict: bool = False
    #: name of a scheduling policy
    scheduler: str = "fifo"
    #: absolute path of the run directory; ``None``: a temporary one
    run_dir: str | None = None
    #: what becomes of the run directory at the end
    keep_run_dir: KeepRunDir = "never"
    #: write the event log; ``None``: when ``run_dir`` is set
    log: bool | None = None
    #: show progress; ``None``: under ``penstock run`` only
    progress: bool | None = None
    #: pending tasks at which the submitting program starts to wait
    window: int = 100_000
    #: bytes of shared memory for large objects; ``None``: half of what is free in /dev/shm
    store_capacity: int | None = None
    #: absolute path of the directory for objects that do not fit there; ``None``: inside the run directory
    spill_dir: str | None = None

    @property
    def writes_log(self) -> bool:
        """Whether the run leaves an event log: as told, else when the run directory is the user's own."""
        return self.run_dir is not None if self.log is None else self.log


class Loaded(Struct, frozen=True):
    """A configuration, and for each setting where its value came from."""

    config: Config
    #: setting to ``"default"``, the path of a file, the name of a variable, or ``"argument"``
    origins: dict[str, str]


class Setting(Struct, frozen=True):
    """How one setting is written: its table in the file, and how to read a value."""

    table: str
    #: gets the value as written and the directory that relative paths start from; raises ValueError
    read: Callable[[object, str], object]

    def variable(self, name: str) -> str:
        """The environment variable for the setting ``name``."""
        return "PENSTOCK_" + name.upper()


def _count(value: object, base: str) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("expected a whole number above zero")
    return value


def _size(value: object, base: str) -> int:
    if not isinstance(value, (int, float, str)):
        raise ValueError('expected a size such as "8GB", or a number of MB')
    size = parse_size(value)
    if size < 1:
        raise ValueError("expected a size above zero")
    return size


_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _switch(value: object, base: str) -> bool:
    if isinstance(value, bool):
        return value
    switch = _WORDS.get(str(value).strip().lower())
    if switch is None:
        raise ValueError("expected true or false")
    return switch


def _name(value: object, base: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("expected a name")
    return value.strip()


def _path(value: object, base: str) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError("expected a path")
    path = os.fspath(value)
    if not isinstance(path, str) or not path:
        raise ValueError("expected a path")
    return os.path.normpath(os.path.join(base, os.path.expanduser(path)))


def _one_of(*choices: str) -> Callable[[object, str], str]:
    def read(value: object, base: str) -> str:
        if value not in choices:
            raise ValueError("expected " + " or ".join(f'"{choice}"' for choice in choices))
        return str(value)

    return read


SETTINGS: dict[str, Setting] = {
    "cpus": Setting("resources", _count),
    "memory": Setting("resources", _size),
    "mode": Setting("runtime", _one_of("parallel", "inline")),
    "strict": Setting("runtime", _switch),
    "scheduler": Setting("runtime", _name),
    "run_dir": Setting("runtime", _path),
    "keep_run_dir": Setting("runtime", _one_of("always", "failed", "never")),
    "log": Setting("runtime", _switch),
    "progress": Setting("runtime", _switch),
    "window": Setting("runtime", _count),
    "store_capacity": Setting("runtime", _size),
    "spill_dir": Setting("runtime", _path),
}

_TABLES = ("resources", "runtime")
#: settings whose default is found out, so that a file or variable may say "auto" to overrule an outer one
_DETECTED = frozenset({"cpus", "memory", "log", "progress", "store_capacity", "run_dir", "spill_dir"})
#: parts of the description of a machine that other commands read
_DESCRIPTION = frozenset({"storage", "node", "io_executors"})
#: variables that a runtime sets for its own processes
_INTERNAL = "PENSTOCK_INTERNAL_"


def load_config(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None, cwd: str | None = None
) -> Loaded:
    """Combine all sources of settings, the later ones winning. A flag of ``None`` counts as not given."""
    here = cwd or os.getcwd()
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")

    def take(name: str, value: object, base: str, origin: str, shown: str) -> None:
        values[name] = _read(name, value, base, shown)
        origins[name] = origin

    path, tables = _find_file(here)
    for table, settings in tables.items():
        for name, value in settings.items():
            if name not in _DESCRIPTION:
                take(name, value, os.path.dirname(path), path, f"{path}: [{table}] {name} = {value!r}")
    for name, value in _from_environment(os.environ if environ is None else environ).items():
        variable = SETTINGS[name].variable(name)
        take(name, value, here, variable, f"{variable}={value}")
    for name, value in flags.items():
        if name not in SETTINGS:
            raise ConfigError(f"there is no setting {name!r}{_nearest(name, SETTINGS)}")
        if value is not None:
            take(name, value, here, "argument", f"{name}={value!r}")

    # A directory that the user named is the user's; a temporary one is ours to remove.
    if "keep_run_dir" not in values and values.get("run_dir") is not None:
        values["keep_run_dir"] = "always"
    return Loaded(Config(**values), origins)


def _read(name: str, value: object, base: str, shown: str) -> object:
    if name in _DETECTED and value == "auto":
        return None
    try:
        return SETTINGS[name].read(value, base)
    except ValueError as error:
        raise ConfigError(f"{shown}: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    variables = {setting.variable(name): name for name, setting in SETTINGS.items()}
    found = {}
    for variable, value in environ.items():
        if not variable.startswith("PENSTOCK_") or variable.startswith(_INTERNAL):
            continue
        if variable not in variables:
            raise ConfigError(f"the environment sets {variable}, which means nothing{_nearest(variable, variables)}")
        if value:  # a variable set to nothing is the shell's way of not setting it
            found[variables[variable]] = value
    return found


def _find_file(here: str) -> tuple[str, dict[str, dict[str, object]]]:
    """The nearest file with settings, upwards from ``here``, and its tables."""
    folder = os.path.abspath(here)
    while True:
        path = os.path.join(folder, "penstock.toml")
        if os.path.isfile(path):
            return path, _check_tables(_parse(path, _read_file(path)), path, "")
        path = os.path.join(folder, "pyproject.toml")
        if os.path.isfile(path):
            text = _read_file(path)
            # Most projects do not configure us there: spare them the import of a parser.
            if "penstock" in text:
                ours = _parse(path, text).get("tool", {}).get("penstock")
                if isinstance(ours, dict):
                    return path, _check_tables(ours, path, "tool.penstock.")
        parent = os.path.dirname(folder)
        if parent == folder:
            return "", {}
        folder = parent


def _read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def _parse(path: str, text: str) -> dict[str, Any]:
    import tomllib  # costs 13 ms, which only those who have a file should pay

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _check_tables(content: dict[str, Any], path: str, prefix: str) -> dict[str, dict[str, object]]:
    for table, settings in content.items():
        if table in SETTINGS:
            raise ConfigError(f"{path}: {table} belongs into the table [{prefix}{SETTINGS[table].table}]")
        if table not in _TABLES:
            raise ConfigError(f"{path}: there is no table [{prefix}{table}]{_nearest(table, _TABLES)}")
        if not isinstance(settings, dict):
            raise ConfigError(f"{path}: {prefix}{table} must be a table")
        for name in settings:
            _check_place(name, table, path, prefix)
    return content


def _check_place(name: str, table: str, path: str, prefix: str) -> None:
    if table == "resources" and name in _DESCRIPTION:
        return
    if name not in SETTINGS:
        known = [other for other, setting in SETTINGS.items() if setting.table == table]
        raise ConfigError(f"{path}: there is no setting {name!r} in [{prefix}{table}]{_nearest(name, known)}")
    if SETTINGS[name].table != table:
        raise ConfigError(f"{path}: {name} belongs into [{prefix}{SETTINGS[name].table}], not [{prefix}{table}]")


def _nearest(name: str, known: Any) -> str:
    import difflib  # only errors need it

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
