"""Settings: defaults, then a file, then ``PENSTOCK_…`` variables, then keyword arguments or command-line flags.

``load_config`` is called once by each start of a runtime. It remembers where every value came from, which is what
``penstock config`` shows. A name it does not know is an error that suggests the nearest one: a setting that is
silently ignored costs its user an afternoon.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.runtime import readers
from penstock.runtime.readers import nearest

if TYPE_CHECKING:
    from penstock.runtime.layers import DescribedLayer, NodeKind

__all__ = ["SETTINGS", "Config", "Loaded", "Setting", "load_config", "working_directory"]

KeepRunDir = Literal["always", "failed", "never"]
IoScheduler = Literal["fcfs", "priority", "backfilling"]
Tuner = Literal["adaptive", "published"]
TuningCounts = Literal["cluster", "node"]


class Config(Struct, frozen=True, kw_only=True):
    """Every setting of a runtime. ``None`` means: find out, as the comment says."""

    #: computing units to use; ``None``: those this process may use
    cpus: int | None = None
    #: bytes of main memory that tasks may reserve; ``None``: what this process may use
    memory: int | None = None
    #: how many there are of what tasks may only count, besides GPUs that are found; ask ``Machine.countable``
    countable: tuple[tuple[str, int], ...] = ()
    #: ``inline`` runs each task in the calling thread, at the call; ``simulated`` runs none, on virtual time
    mode: Literal["parallel", "inline", "simulated"] = "parallel"
    #: report a task that changes an ``IN`` argument
    strict: bool = False
    #: called once in each worker process before its first task: a function, or ``module:name``; ``None``: nothing is
    setup: Callable[[], object] | str | None = None
    #: tasks after which a worker process is replaced by another; ``None``: it lives as long as the run
    tasks_per_worker: int | None = None
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
    #: seconds without a task that begins, ends or runs, after which it is told why those that are pending wait;
    #: ``None``: never
    stall: float | None = 30.0
    #: refuse to write a file that another program of this user is writing
    file_locks: bool = True
    #: seconds before the second attempt of tasks that do not say; ``None``: 1 after what looks like an outage, else 0
    retry_delay: float | None = None
    #: absolute path of the directory for shared memory; ``None``: /dev/shm. Ask ``directories.memory_parent``.
    memory_dir: str | None = None
    #: bytes of shared memory for large objects; ``None``: half of what is free there
    store_capacity: int | None = None
    #: absolute path of the directory for objects that do not fit in; ``None``: layers, or the run directory
    spill_dir: str | None = None
    #: bytes of memory for turning objects to bytes and back, over all processes; ``None``: a quarter of what is free
    serialization_memory: int | None = None
    #: bytes of objects that each worker keeps because the next tasks may read them too
    read_cache: int = 0
    #: address of the store of persistent objects; ``None``: a folder ``penstock-store`` where the program is started
    store: str | None = None
    #: I/O tasks at a time
    io_executors: int = 16
    #: how I/O tasks are placed on storage layers
    io_scheduler: IoScheduler = "fcfs"
    #: move data that nobody will read to lower layers while no I/O runs
    data_movement: bool = False
    #: seconds after which a waiting I/O task goes before those with larger constraints; ``None``: never
    io_ageing: float | None = 60.0
    #: how constraints are learned: by what devices deliver, or in the epochs of the published algorithm
    tuner: Tuner = "adaptive"
    #: absolute path of the registry of learned constraints; ``"off"``: none is kept; ``None``: in the user's cache
    tuning: str | None = None
    #: absolute path of the file of function's durations; ``"off"``: none is kept; ``None``: in the user's cache
    profiles: str | None = None
    #: bytes per second that no learned constraint exceeds; ``None``: no such limit
    tuning_ceiling: float | None = None
    #: published algorithm: values whose estimated times differ by less than this part are equally good
    tuning_tolerance: float = 0.02
    #: published algorithm: tasks at a time are counted for all nodes together, or for one
    tuning_counts: TuningCounts = "cluster"
    #: absolute path of a resources file in the form of COMPSs, whose storage layers are used; ``None``: there is none
    resources_file: str | None = None
    #: storage layers as described, unchecked against this machine; ``None``: found out. Ask ``layers.layers``.
    storage: tuple[DescribedLayer, ...] | None = None
    #: kinds of node as described, for simulated machines. Ask ``layers.nodes``.
    node: tuple[NodeKind, ...] = ()
    #: constraints of tasks by name, in the place of those their decorators give
    constraints: Mapping[str, Mapping[str, Any]] = {}

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
    #: ``None`` for tables, whose reader is in another module and names the place of a mistake itself
    read: readers.Reader | None = None

    def variable(self, name: str) -> str:
        """The environment variable for the setting ``name``."""
        return "PENSTOCK_" + name.upper()


SETTINGS: dict[str, Setting] = {
    "cpus": Setting("resources", readers.read_count),
    "memory": Setting("resources", readers.read_size),
    "countable": Setting("resources", readers.read_countable),
    "mode": Setting("runtime", readers.read_one_of("parallel", "inline", "simulated")),
    "strict": Setting("runtime", readers.read_switch),
    "setup": Setting("runtime", readers.read_function),
    "tasks_per_worker": Setting("runtime", readers.read_count),
    "scheduler": Setting("runtime", readers.read_name),
    "run_dir": Setting("runtime", readers.read_path),
    "keep_run_dir": Setting("runtime", readers.read_one_of("always", "failed", "never")),
    "log": Setting("runtime", readers.read_switch),
    "progress": Setting("runtime", readers.read_switch),
    "window": Setting("runtime", readers.read_count),
    "stall": Setting("runtime", readers.read_ageing),
    "file_locks": Setting("runtime", readers.read_switch),
    "retry_delay": Setting("runtime", readers.read_delay),
    "memory_dir": Setting("runtime", readers.read_path),
    "store_capacity": Setting("runtime", readers.read_size),
    "spill_dir": Setting("runtime", readers.read_path),
    "serialization_memory": Setting("runtime", readers.read_size),
    "read_cache": Setting("runtime", readers.read_size_or_off),
    "store": Setting("runtime", readers.read_store),
    "io_executors": Setting("resources", readers.read_count),
    "io_scheduler": Setting("runtime", readers.read_io_scheduler),
    "data_movement": Setting("runtime", readers.read_switch),
    "io_ageing": Setting("runtime", readers.read_ageing),
    "tuner": Setting("runtime", readers.read_one_of("adaptive", "published")),
    "tuning": Setting("runtime", readers.read_registry),
    "profiles": Setting("runtime", readers.read_registry),
    "tuning_ceiling": Setting("runtime", readers.read_ceiling),
    "tuning_tolerance": Setting("runtime", readers.read_tolerance),
    "tuning_counts": Setting("runtime", readers.read_one_of("cluster", "node")),
    "resources_file": Setting("resources", readers.read_path),
    "storage": Setting("resources"),
    "node": Setting("resources"),
    "constraints": Setting("constraints"),
}

_TABLES = ("resources", "runtime", "constraints")
#: settings whose default is found out, so that a file or variable may say "auto" to overrule an outer one
_DETECTED = frozenset(
    {
        *("cpus", "memory", "log", "progress", "memory_dir", "store_capacity", "run_dir", "spill_dir"),
        *("serialization_memory", "store", "retry_delay", "setup", "tasks_per_worker"),
        *("tuning", "profiles", "resources_file", "storage"),
    }
)
#: two ways to describe the same; the one that comes from the stronger source wins
_RIVALS = {"storage": "resources_file", "resources_file": "storage"}
#: how variables begin that are no settings: those of streamed workflows and of MPI tasks, which may themselves run
#: programs that use us, and those that a runtime sets for its own processes
_NOT_SETTINGS = ("PENSTOCK_INTERNAL_", "PENSTOCK_STREAM_", "PENSTOCK_HOSTNAMES", "PENSTOCK_NUM_NODES")


def working_directory() -> str:
    """Where the program is; if somebody has removed that, a path below which there is nothing either."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/proc/self/cwd"


def load_config(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None, cwd: str | None = None
) -> Loaded:
    """Combine all sources of settings, the later ones winning. A flag of ``None`` counts as not given."""
    here = cwd or working_directory()
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")

    def take(name: str, value: object, base: str, origin: str, shown: str) -> None:
        taken = _read(name, value, base, shown)
        rival = _RIVALS.get(name, "")
        if taken is not None and values.get(rival) is not None:
            if origins[rival] == origin:
                raise ConfigError(f"{origin}: storage layers are described twice, by {name} and by {rival}; keep one")
            values[rival], origins[rival] = None, "default"
        values[name] = taken
        origins[name] = origin

    path, tables = _find_file(here)
    for table, settings in tables.items():
        if table == "constraints":  # its keys are names of tasks
            take(table, settings, os.path.dirname(path), path, f"{path}: [{table}]")
            continue
        for name, value in settings.items():
            shown = f"[{table}] {name} = {value!r}" if SETTINGS[name].read else f"[[{table}.{name}]]"
            take(name, value, os.path.dirname(path), path, f"{path}: {shown}")
    for name, value in _from_environment(os.environ if environ is None else environ).items():
        variable = SETTINGS[name].variable(name)
        take(name, value, here, variable, f"{variable}={value}")
    for name, value in flags.items():
        if name not in SETTINGS:
            raise ConfigError(f"there is no setting {name!r}{nearest(name, SETTINGS)}")
        if value is not None:
            take(name, value, here, "argument", f"{name}={value!r}" if SETTINGS[name].read else name)

    # A directory that the user named is the user's; a temporary one is ours to remove.
    if "keep_run_dir" not in values and values.get("run_dir") is not None:
        values["keep_run_dir"] = "always"
    return Loaded(Config(**values), origins)


def _read(name: str, value: object, base: str, shown: str) -> object:
    if name in _DETECTED and value == "auto":
        return None
    reader = SETTINGS[name].read
    if name == "constraints":
        from penstock.runtime.constraints import of_tasks

        return of_tasks(value, shown)
    if reader is None:
        from penstock.runtime.layers import read_layers, read_nodes  # only those who describe a machine need it

        return read_layers(value, base, shown) if name == "storage" else read_nodes(value, base, shown)
    try:
        return reader(value, base)
    except ValueError as error:
        raise ConfigError(f"{shown}: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    variables = {setting.variable(name): name for name, setting in SETTINGS.items()}
    found = {}
    for variable, value in environ.items():
        if not variable.startswith("PENSTOCK_") or variable.startswith(_NOT_SETTINGS):
            continue
        if variable not in variables:
            raise ConfigError(f"the environment sets {variable}, which means nothing{nearest(variable, variables)}")
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
        if table in SETTINGS and table not in _TABLES:
            raise ConfigError(f"{path}: {table} belongs into the table [{prefix}{SETTINGS[table].table}]")
        if table not in _TABLES:
            raise ConfigError(f"{path}: there is no table [{prefix}{table}]{nearest(table, _TABLES)}")
        if not isinstance(settings, dict):
            raise ConfigError(f"{path}: {prefix}{table} must be a table")
        if table != "constraints":
            for name in settings:
                _check_place(name, table, path, prefix)
    return content


def _check_place(name: str, table: str, path: str, prefix: str) -> None:
    if name not in SETTINGS:
        known = [other for other, setting in SETTINGS.items() if setting.table == table]
        raise ConfigError(f"{path}: there is no setting {name!r} in [{prefix}{table}]{nearest(name, known)}")
    if SETTINGS[name].table != table:
        raise ConfigError(f"{path}: {name} belongs into [{prefix}{SETTINGS[name].table}], not [{prefix}{table}]")
