"""Settings: which source wins, where a value came from, and what a mistake is answered with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.runtime.config import SETTINGS, Config, Loaded, load_config


def load(cwd: Path, environ: dict[str, str] | None = None, **flags: object) -> Loaded:
    return load_config(flags, environ or {}, str(cwd))


def test_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.config == Config()
    assert loaded.origins == dict.fromkeys(SETTINGS, "default")


def test_every_setting_is_a_field_and_every_field_a_setting() -> None:
    assert tuple(SETTINGS) == Config.__struct_fields__


def test_each_source_overrules_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[resources]\ncpus = 3\nmemory = "2GiB"\n[runtime]\nwindow = 7\nscheduler = "lifo"\n')
    loaded = load(tmp_path, {"PENSTOCK_CPUS": "4", "PENSTOCK_WINDOW": "8"}, window=9)
    assert (loaded.config.cpus, loaded.config.memory, loaded.config.window) == (4, 2 << 30, 9)
    assert loaded.config.scheduler == "lifo"
    assert loaded.origins["cpus"] == "PENSTOCK_CPUS"
    assert loaded.origins["memory"] == loaded.origins["scheduler"] == str(file)
    assert loaded.origins["window"] == "argument"
    assert loaded.origins["mode"] == "default"


def test_the_nearest_file_upwards_is_the_one(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "penstock.toml").write_text("[resources]\ncpus = 1\n")
    assert load(inner).config.cpus == 1
    (tmp_path / "a" / "penstock.toml").write_text("[resources]\ncpus = 2\n")
    assert load(inner).config.cpus == 2


def test_pyproject_counts_only_with_our_table(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.penstock.resources]\ncpus = 5\n")
    (inner / "pyproject.toml").write_text('[project]\ndependencies = ["penstock"]\n')
    assert load(inner).config.cpus == 5
    (tmp_path / "penstock.toml").write_text("[resources]\ncpus = 6\n")
    assert load(inner).config.cpus == 6


def test_the_description_of_a_machine_stands_beside_its_settings(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        "[resources]\ncpus = 2\nio_executors = 225\n"
        '[[resources.storage]]\nname = "ssd"\nmount = "/no/such/scratch"\nbandwidth = 450\n'
        '[[resources.node]]\nname = "fat"\ncount = 2\n'
    )
    config = load(tmp_path).config  # whether mounts are there is asked when a run starts
    assert (config.cpus, config.io_executors) == (2, 225)
    assert config.storage is not None
    assert [described.layer.name for described in config.storage] == ["ssd"]
    assert [(kind.name, kind.count) for kind in config.node] == [("fat", 2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[resources]\ncpu = 3", r"no setting 'cpu' in \[resources\]; did you mean cpus\?"),
        ("[resource]\ncpus = 3", r"no table \[resource\]; did you mean resources\?"),
        ("cpus = 3", r"cpus belongs into the table \[resources\]"),
        ("[runtime]\ncpus = 3", r"cpus belongs into \[resources\], not \[runtime\]"),
        ("[runtime]\nstorage = 3", r"storage belongs into \[resources\], not \[runtime\]"),
        ("[resources]\nstorage = 3", r"\[\[resources.storage\]\]: expected a list of tables"),
        ("[resources.storage]\nname = 'ssd'", r"write \[\[resources.storage\]\], with two brackets"),
        ("[resources]\nio_executors = 0", "io_executors = 0: expected a whole number above zero"),
        ("[runtime]\nio_executors = 4", r"io_executors belongs into \[resources\]"),
        ("[runtime]\nio_scheduler = 'lifo'", 'expected "fcfs" or "priority" or "backfilling"'),
        ("[runtime]\nio_ageing = 0", 'expected a duration above zero, or "off"'),
        ("[runtime]\nio_ageing = true", 'expected a duration such as "60s", or "off"'),
        ("[runtime]\nio_ageing = 'soon'", "cannot read 'soon' as a duration"),
        ("[runtime]\nretry_delay = true", 'expected a duration such as "5s"'),
        ("[runtime]\ntuning_ceiling = '40MB'", "cannot read '40MB' as a rate"),
        ("[runtime]\ntuning_ceiling = 0", "expected a rate above zero"),
        ("[runtime]\ntuning_tolerance = 1", "expected a share from 0 to below 1"),
        ("[runtime]\ntuning_tolerance = -0.1", "expected a share from 0 to below 1"),
        ("[runtime]\ntuning_tolerance = 'nan'", "expected a share from 0 to below 1"),
        ("[runtime]\ntuning_tolerance = 'two'", "expected a share from 0 to below 1"),
        ("[runtime]\ntuning_tolerance = true", "expected a share from 0 to below 1"),
        ("[runtime]\ntuning_counts = 'nodes'", 'expected "cluster" or "node"'),
        ("resources = 3", "must be a table"),
        ("[resources]\ncpus = 0", r"\[resources\] cpus = 0: expected a whole number above zero"),
        ("[resources]\ncpus = true", "expected a whole number above zero"),
        ("[resources]\nmemory = true", "cannot read True as a size"),
        ("[runtime]\nmode = 'serial'", 'expected "parallel" or "inline"'),
        ("[runtime]\nstrict = 'perhaps'", "expected true or false"),
        ("[runtime\n", "is not valid TOML"),
    ],
)
def test_mistakes_in_the_file_name_file_and_remedy(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "penstock.toml").write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path)
    assert str(tmp_path / "penstock.toml") in str(caught.value)


def test_an_unknown_variable_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PENSTOCK_CPU\b.*did you mean PENSTOCK_CPUS\?"):
        load(tmp_path, {"PENSTOCK_CPU": "3"})


def test_an_unknown_flag_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no setting 'sheduler'; did you mean scheduler\?"):
        load(tmp_path, sheduler="fifo")


def test_a_bad_variable_is_quoted_as_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^PENSTOCK_CPUS=many: expected a whole number above zero$"):
        load(tmp_path, {"PENSTOCK_CPUS": "many"})


def test_our_own_and_empty_variables_and_absent_flags_are_passed_over(tmp_path: Path) -> None:
    ours = {"PENSTOCK_INTERNAL_LANE": "3", "PENSTOCK_STREAM_APP": "step", "PENSTOCK_NUM_NODES": "1"}
    loaded = load(tmp_path, {**ours, "PENSTOCK_CPUS": "", "PENSTOCKS": "x"}, memory=None)
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}


@pytest.mark.parametrize(("word", "value"), [("1", True), ("yes", True), ("TRUE", True), ("0", False), ("off", False)])
def test_switches(tmp_path: Path, word: str, value: bool) -> None:
    assert load(tmp_path, {"PENSTOCK_STRICT": word}).config.strict is value


def test_auto_takes_an_outer_value_back(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[resources]\ncpus = 3\n")
    loaded = load(tmp_path, {"PENSTOCK_CPUS": "auto"})
    assert loaded.config.cpus is None
    assert loaded.origins["cpus"] == "PENSTOCK_CPUS"


def test_auto_is_no_value_where_nothing_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(tmp_path, {"PENSTOCK_WINDOW": "auto"})


def test_numbers_without_a_unit_are_megabytes(tmp_path: Path) -> None:
    assert load(tmp_path, memory=500).config.memory == 500_000_000


def test_paths_start_where_they_are_written(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "penstock.toml").write_text('[runtime]\nrun_dir = "runs/now"\n')
    assert load(inner).config.run_dir == str(tmp_path / "runs/now")
    assert load(inner, {"PENSTOCK_RUN_DIR": "runs"}).config.run_dir == str(inner / "runs")
    assert load(inner, run_dir=Path("~")).config.run_dir == os.path.expanduser("~")


def test_a_named_run_directory_is_kept_and_logged_unless_told_otherwise(tmp_path: Path) -> None:
    assert not load(tmp_path).config.writes_log
    named = load(tmp_path, run_dir="here").config
    assert named.keep_run_dir == "always"
    assert named.writes_log
    told = load(tmp_path, run_dir="here", keep_run_dir="failed", log=False).config
    assert told.keep_run_dir == "failed"
    assert not told.writes_log


def test_storage_settings_have_the_defaults_of_the_manual(tmp_path: Path) -> None:
    config = load(tmp_path).config
    assert (config.io_executors, config.io_scheduler, config.data_movement) == (16, "fcfs", False)
    assert (config.io_ageing, config.tuning, config.tuning_ceiling) == (60.0, None, None)
    assert (config.resources_file, config.storage, config.node) == (None, None, ())


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("fcfs", "fcfs"),
        ("FcfsScheduler", "fcfs"),
        ("IOPriorityScheduler", "priority"),
        ("iobackfillingscheduler", "backfilling"),
        (" Backfilling ", "backfilling"),
        ("some.package.of.IOBackfillingScheduler", "backfilling"),
    ],
)
def test_io_schedulers_are_known_by_their_long_names_too(tmp_path: Path, word: str, name: str) -> None:
    assert load(tmp_path, io_scheduler=word).config.io_scheduler == name


@pytest.mark.parametrize(("value", "seconds"), [("off", None), (False, None), ("90s", 90.0), (5, 5.0), ("1m30s", 90.0)])
def test_ageing_is_a_duration_or_off(tmp_path: Path, value: object, seconds: float | None) -> None:
    assert load(tmp_path, io_ageing=value).config.io_ageing == seconds


def test_the_registry_is_a_path_or_off_or_left_open(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[runtime]\ntuning = "learned.json"\ntuning_ceiling = "64MB/s"\n')
    loaded = load(tmp_path).config
    assert (loaded.tuning, loaded.tuning_ceiling) == (str(tmp_path / "learned.json"), 64e6)
    assert load(tmp_path, {"PENSTOCK_TUNING": "off", "PENSTOCK_TUNING_CEILING": "off"}).config.tuning == "off"
    assert load(tmp_path, {"PENSTOCK_TUNING_CEILING": "off"}).config.tuning_ceiling is None
    assert load(tmp_path, tuning="auto").config.tuning is None


LAYER = {"name": "ssd", "mount": "/scratch", "bandwidth": 450}


def test_of_two_descriptions_of_the_layers_the_stronger_source_wins(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[[resources.storage]]\nname = "ssd"\nmount = "/scratch"\nbandwidth = 450\n'
    )
    loaded = load(tmp_path, {"PENSTOCK_RESOURCES_FILE": "resources.xml"})
    assert loaded.config.resources_file == str(tmp_path / "resources.xml")
    assert (loaded.config.storage, loaded.origins["storage"]) == (None, "default")
    loaded = load(tmp_path, {"PENSTOCK_RESOURCES_FILE": "resources.xml"}, storage=[LAYER])
    assert (loaded.config.resources_file, loaded.origins["storage"]) == (None, "argument")
    assert loaded.config.storage is not None
    taken_back = load(tmp_path, {"PENSTOCK_RESOURCES_FILE": "auto"}).config
    assert taken_back.storage is not None, "a file that is not given replaces nothing"
    with pytest.raises(ConfigError, match="described twice, by resources_file and by storage"):
        load(tmp_path, storage=[LAYER], resources_file="resources.xml")


def test_layers_have_no_room_in_a_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^PENSTOCK_STORAGE=/scratch: expected a list of tables"):
        load(tmp_path, {"PENSTOCK_STORAGE": "/scratch"})
    assert load(tmp_path, {"PENSTOCK_STORAGE": "auto"}).config.storage is None


def test_the_import_brings_no_parser_that_is_not_needed(tmp_path: Path) -> None:
    program = (
        "import sys; from penstock.runtime.config import load_config; "
        "load_config({}, {}, sys.argv[1]); print(*(name in sys.modules for name in sys.argv[2:]))"
    )
    names = ("tomllib", "difflib", "xml.etree.ElementTree", "penstock.runtime.layers")
    command = [sys.executable, "-c", program, str(tmp_path), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * len(names)


def test_how_near_estimates_are_equal_and_where_tasks_are_counted(tmp_path: Path) -> None:
    config = load(tmp_path, {}).config
    assert (config.tuning_tolerance, config.tuning_counts) == (0.02, "cluster")
    for written, share in (("5%", 0.05), ("0.1", 0.1), ("off", 0.0), ("0", 0.0)):
        config = load(tmp_path, {"PENSTOCK_TUNING_TOLERANCE": written, "PENSTOCK_TUNING_COUNTS": "node"}).config
        assert (config.tuning_tolerance, config.tuning_counts) == (share, "node")
