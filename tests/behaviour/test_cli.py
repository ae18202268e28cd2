"""The command line, as a user meets it: in a process of its own, with a real program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mpi_here import needs_mpi
from tests.own_place import user_environment

from penstock.cli import quick
from penstock.cli.app import app_for
from penstock.observe import records
from penstock.observe.log import read_log

SQUARES = """
from penstock import task, wait_on

@task(returns=1)
def square(number):
    return number * number

print(sum(wait_on([square(number) for number in range(10)])))
"""


class Shell:
    """Runs ``penstock`` in a folder, with no settings from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = user_environment()
        self.environ |= {"COLUMNS": "200", "TERM": "dumb"}

    def file(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli", *arguments]

    def run(self, *arguments: str, status: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ | environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob(".penstock/*/events.jsonl"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


# --- run -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("scheduler=foo", "'foo'.*fifo"),
        ("run_dir=/proc/none", "run_dir.*/proc/none"),
        ("run_dir=/etc/hostname", "run_dir.*/etc/hostname"),
        ("memory_dir=/none", "memory_dir.*/none"),
        ("spill_dir=/etc/hostname", "spill_dir.*/etc/hostname"),
        ("resources_file=/none.xml", "/none.xml"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told_in_one_line(shell: Shell, setting: str, said: str) -> None:
    """Also where only the start of a runtime, by the program's first call, finds that out."""
    shell.file("squares.py", SQUARES)
    name, _, value = setting.partition("=")
    done = shell.run("run", "squares.py", status=2, **{f"PENSTOCK_{name.upper()}": value})
    assert re.fullmatch(f"penstock: .*{said}.*\n", done.stderr)
    assert not shell.logs()


def test_an_unknown_scheduler_is_told_in_one_line(shell: Shell) -> None:
    shell.file("squares.py", SQUARES)
    done = shell.run("run", "--scheduler", "fife", "squares.py", status=2)
    assert re.fullmatch("penstock: .*'fife'.*did you mean 'fifo'.*\n", done.stderr)


def test_a_mistake_of_the_program_itself_is_shown_where_it_is(shell: Shell) -> None:
    shell.file("app.py", "import penstock\npenstock.start(scheduler='foo')\n")
    done = shell.run("run", "app.py", status=1)
    assert "line 2" in done.stderr
    assert "ConfigError" in done.stderr


def test_a_program_runs_is_summed_up_and_leaves_its_log(shell: Shell) -> None:
    shell.file("squares.py", SQUARES)
    done = shell.run("run", "--cpus", "2", "squares.py")
    assert done.stdout == "285\n"
    assert re.search(r"^penstock: 10 tasks done in .*2 CPUs", done.stderr, re.MULTILINE)
    assert re.search(r"^  square +10 +0 ", done.stderr, re.MULTILINE)
    (log,) = shell.logs()
    assert re.fullmatch(r"squares-\d{8}-\d{6}", log.parent.name)
    assert f"event log: {log.relative_to(shell.folder)}" in done.stderr
    events = list(read_log(str(log)))
    first, last = events[0], events[-1]
    assert isinstance(first, records.RunStarted)
    assert first.cpus == 2
    assert isinstance(last, records.RunEnded)
    assert (last.ok, last.done, last.failed) == (True, 10, 0)
    assert sum(record.count for record in events if isinstance(record, records.Submitted)) == 10
    assert (shell.folder / ".penstock" / ".gitignore").read_text() == "*\n"


def test_two_runs_in_one_second_have_two_directories(shell: Shell) -> None:
    shell.file("squares.py", SQUARES)
    program = "import time; time.strftime = lambda form: '20261115-120000'; from penstock.cli import main; main()"
    for _ in range(2):
        command = [sys.executable, "-c", program, "run", "squares.py"]
        subprocess.run(command, cwd=shell.folder, env=shell.environ, check=True, capture_output=True, timeout=60)
    assert [log.parent.name for log in shell.logs()] == ["squares-20261115-120000", "squares-20261115-120000-2"]


def test_no_log_leaves_nothing(shell: Shell) -> None:
    shell.file("squares.py", SQUARES)
    done = shell.run("run", "--no-log", "squares.py")
    assert done.stdout == "285\n"
    assert "event log" not in done.stderr
    assert [path.name for path in shell.folder.iterdir()] == ["squares.py"]


def test_a_named_run_directory_is_used(shell: Shell) -> None:
    shell.file("squares.py", SQUARES)
    shell.run("run", "--run-dir", "here", "squares.py")
    assert (shell.folder / "here" / "events.jsonl").exists()
    assert not (shell.folder / ".penstock").exists()
    shell.run("run", "squares.py", PENSTOCK_RUN_DIR="there")
    assert (shell.folder / "there" / "events.jsonl").exists()


def test_a_program_without_tasks_is_just_run(shell: Shell) -> None:
    shell.file("plain.py", "print('plain')")
    done = shell.run("run", "plain.py")
    assert (done.stdout, done.stderr) == ("plain\n", "")
    assert shell.logs() == []
    assert list((shell.folder / ".penstock").glob("plain*")) == []


def test_inline_mode_gives_the_same(shell: Shell) -> None:
    shell.file("squares.py", SQUARES)
    assert shell.run("run", "--mode", "inline", "squares.py").stdout == "285\n"


def test_the_program_sees_what_python_would_show_it(shell: Shell) -> None:
    shell.file("sub/beside.py", "WHERE = 'beside'")
    shell.file(
        "sub/app.py",
        "import pickle, sys, os, beside\n"
        "class Thing: pass\n"
        "assert type(pickle.loads(pickle.dumps(Thing()))) is Thing\n"
        "assert sys.modules['__main__'].Thing is Thing\n"
        "assert __name__ == '__main__' and __spec__ is None and __package__ is None\n"
        "print(sys.argv, __file__, os.path.samefile(sys.path[0], 'sub'), beside.WHERE)\n",
    )
    done = shell.run("run", "--cpus", "2", "sub/app.py", "--cpus", "-x", "7")
    assert done.stdout == "['sub/app.py', '--cpus', '-x', '7'] sub/app.py True beside\n"


def test_a_module_runs_by_name(shell: Shell) -> None:
    shell.file("pack/__init__.py", "")
    shell.file("pack/near.py", "VALUE = 5")
    shell.file("pack/__main__.py", "from . import near; import sys; print(near.VALUE, sys.argv[1:], __name__)")
    shell.file("pack/tool.py", "from .near import VALUE; print('tool', VALUE, __spec__.name)")
    assert shell.run("run", "-m", "pack", "a", "-m").stdout == "5 ['a', '-m'] __main__\n"
    assert shell.run("run", "-m", "pack.tool").stdout == "tool 5 pack.tool\n"


@pytest.mark.parametrize(
    ("statement", "status", "error"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no more')", 1, "no more\n"),
        ("raise SystemExit(True)", 1, ""),
    ],
)
def test_the_exit_status_is_the_programs(shell: Shell, statement: str, status: int, error: str) -> None:
    shell.file("app.py", f"import sys\n{statement}\n")
    assert shell.run("run", "app.py", status=status).stderr == error


def test_an_exception_is_shown_as_python_shows_it(shell: Shell) -> None:
    app = shell.file("app.py", "def inner():\n    raise ValueError('boom')\n\ninner()\n")
    ours = shell.run("run", "app.py", status=1).stderr
    plain = subprocess.run(
        [sys.executable, app.name], cwd=shell.folder, env=shell.environ, capture_output=True, text=True, check=False
    ).stderr.replace(str(app), "app.py")
    assert ours == plain


def test_a_syntax_error_is_shown_as_python_shows_it(shell: Shell) -> None:
    shell.file("app.py", "print('never')\ndef f(:\n")
    done = shell.run("run", "app.py", status=1)
    assert done.stdout == ""
    assert done.stderr.startswith('  File "app.py", line 2\n    def f(:\n')
    assert "penstock" not in done.stderr


def test_the_programs_own_exception_hook_is_asked(shell: Shell) -> None:
    shell.file("app.py", "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', error)\n1 / 0\n")
    assert shell.run("run", "app.py", status=1).stdout == "hook division by zero\n"


def test_tasks_that_failed_are_named_in_the_summary(shell: Shell) -> None:
    shell.file(
        "app.py",
        "from penstock import task, wait_on\n"
        "@task(returns=1)\n"
        "def halve(number):\n"
        "    if number % 2: raise ValueError(f'{number} is odd')\n"
        "    return number // 2\n"
        "futures = [halve(number) for number in (2, 3, 4)]\n"
        "print(wait_on(futures[0]), wait_on(futures[2]))\n"
        "try:\n"
        "    wait_on(futures[1])\n"
        "except ValueError as error:\n"
        "    print(error)\n",
    )
    done = shell.run("run", "app.py")
    assert done.stdout == "1 2\n3 is odd\n"
    assert re.search(r"^penstock: 2 tasks done, 1 failed", done.stderr, re.MULTILINE)
    assert re.search(r"^  failed: halve \(task \d+\): .*3 is odd", done.stderr, re.MULTILINE)


def test_ctrl_c_ends_it_with_130(shell: Shell) -> None:
    shell.file(
        "app.py",
        "import time\nfrom penstock import task, wait_on\n"
        "@task(returns=1)\ndef nap(seconds):\n    time.sleep(seconds)\n"
        "first = nap(0); wait_on(first)\nprint('started', flush=True)\nwait_on([nap(60) for _ in range(4)])\n",
    )
    with subprocess.Popen(
        shell.command("run", "app.py"),
        cwd=shell.folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to everybody
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "penstock: interrupted" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.py"), "penstock: cannot open missing.py: No such file or directory"),
        (("run", "."), "is a directory; give a Python file, or a module with -m"),
        (("run", "-m", "no_such_module_here"), "there is no module no_such_module_here"),
        (("run", "-m", "no_such.module_here"), "cannot find the module no_such.module_here"),
        (("run", "--cpus", "many", "app.py"), "penstock: cpus='many': expected a whole number above zero"),
        (("run", "--cpu", "2", "app.py"), "No such option: --cpu"),
        (("run",), "Missing argument 'APP'"),
        (("walk",), "No such command 'walk'"),
    ],
)
def test_mistakes_are_answered_in_a_line(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    shell.file("app.py", "print('never')")
    done = shell.run(*arguments, status=2)
    assert message in done.stderr
    assert done.stdout == ""
    assert not (shell.folder / ".penstock").exists()


def test_a_folder_that_cannot_be_written_in_costs_the_log_only(shell: Shell) -> None:
    shell.file("squares.py", SQUARES)
    shell.file(".penstock", "in the way")
    done = shell.run("run", "squares.py")
    assert done.stdout == "285\n"
    assert "penstock: no event log is kept" in done.stderr


# --- the quick way to run equals typer's -----------------------------------------------------------------------------

WORDS = st.sampled_from(
    [*quick._VALUES, *quick._SWITCHES, "-m", "--module", "--cpus=3", "--log=1", "--nope", "--", "-", "app.py", "3", ""]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=6))
def test_what_the_quick_parser_understands_typer_understands_alike(arguments: list[str]) -> None:
    understood = quick.parse_run(arguments)
    if understood is None:
        return
    seen: list[quick.RunRequest] = []

    def launch(request: quick.RunRequest) -> int:
        seen.append(request)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.cli.launch.launch", launch)
        with pytest.raises(SystemExit):
            app_for(["run"])(["run", *arguments], prog_name="penstock")
    assert seen == [understood]


def test_the_quick_parser_knows_every_option_of_run() -> None:
    group: Any = typer.main.get_command(app_for(["run"]))
    options = {
        option
        for parameter in group.commands["run"].params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("-")
    }
    assert options - {"--help", "-h"} == {*quick._VALUES, *quick._SWITCHES, "-m", "--module"}


@pytest.mark.parametrize("words", [["run"], ["doctor"], ["store", "list"], ["stream", "check"]], ids=" ".join)
def test_typer_reads_only_the_verb_that_was_asked_for(words: list[str]) -> None:
    command: Any = typer.main.get_command(app_for(words))
    for word in words:
        assert list(command.commands) == [word]
        command = command.commands[word]


@pytest.mark.parametrize("words", [[], ["--help"], ["rnu"], ["stream"], ["stream", "-h"], ["stream", "rnu"]], ids=str)
def test_help_and_mistakes_know_every_verb(words: list[str]) -> None:
    command: Any = typer.main.get_command(app_for(words))
    if words[:1] == ["stream"]:
        command = command.commands["stream"]
    assert len(command.commands) > 5


def test_the_quick_way_imports_neither_typer_nor_rich(shell: Shell) -> None:
    shell.file("app.py", "import sys; print([name for name in ('typer', 'rich', 'psutil') if name in sys.modules])")
    assert shell.run("run", "app.py").stdout == "[]\n"


# --- the other verbs -----------------------------------------------------------------------------------------------


def test_help_names_the_verbs_and_options(shell: Shell) -> None:
    text = shell.run("--help").stdout
    assert all(verb in text for verb in ("run", "doctor", "config"))
    text = shell.run("run", "--help").stdout
    assert all(option in text for option in (*quick._VALUES, *quick._SWITCHES))


def test_version(shell: Shell) -> None:
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\S*\n", shell.run("--version").stdout)


def test_config_shows_values_and_origins(shell: Shell) -> None:
    shell.file("penstock.toml", '[resources]\nmemory = "2GB"\n')
    lines = shell.run("config", PENSTOCK_CPUS="3").stdout.splitlines()
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    assert ["cpus", "3", "PENSTOCK_CPUS"] in rows
    assert ["memory", "2 GB", str(shell.folder / "penstock.toml")] in rows
    assert ["window", "100000", "default"] in rows


def test_config_reports_a_mistake(shell: Shell) -> None:
    done = shell.run("config", status=2, PENSTOCK_CPU="3")
    assert "did you mean PENSTOCK_CPUS?" in done.stderr


def test_doctor_finds_this_machine_fit(shell: Shell) -> None:
    text = shell.run("doctor").stdout
    assert "✗" not in text
    for subject in ("Python", "CPUs", "memory", "shared memory", "Unix sockets", "open files", "a task"):
        assert re.search(rf"^[✓!] {subject} ", text, re.MULTILINE), subject


@needs_mpi
def test_doctor_starts_ranks(shell: Shell) -> None:
    assert re.search(
        r"^✓ MPI .*mpi4py \d.*mpiexec, two ranks after .*s, then ", shell.run("doctor").stdout, re.MULTILINE
    )


def test_doctor_says_what_is_wrong_and_fails(shell: Shell) -> None:
    done = shell.run("doctor", status=1, PENSTOCK_CPU="3")
    assert re.search(r"^✗ settings .*PENSTOCK_CPU\b", done.stdout, re.MULTILINE)
    assert "→" in done.stdout


# --- storage ---------------------------------------------------------------------------------------------------------

SHOW_SETTINGS = """
import os
from penstock.runtime import session
flags = {name: value for name, value in session._flags.items() if name != "run_dir"}
from penstock.runtime.config import load_config
config = load_config(flags).config
print(config.io_executors, config.io_scheduler, config.data_movement, config.io_ageing, config.tuning_ceiling)
print(config.resources_file and os.path.basename(config.resources_file))
"""


@pytest.mark.parametrize(
    "flags",
    [
        ("--io-executors", "225", "--io-scheduler", "backfilling", "--data-movement"),
        ("--io_executors=225", "--io_scheduler=IOBackfillingScheduler", "--data_movement=true"),
        ("--io_executors", "225", "--io_scheduler", "backfilling", "--data_movement", "true"),
    ],
)
def test_flags_for_storage_in_both_spellings(shell: Shell, flags: tuple[str, ...]) -> None:
    shell.file("app.py", SHOW_SETTINGS)
    more = ("--io-ageing", "off", "--tuning-ceiling", "64MB/s", "--resources", "there.xml")
    done = shell.run("run", *flags, *more, "app.py", PENSTOCK_IO_EXECUTORS="3", PENSTOCK_DATA_MOVEMENT="off")
    assert done.stdout == "225 backfilling True None 64000000.0\nthere.xml\n"


def test_data_movement_can_be_switched_off_in_both_spellings(shell: Shell) -> None:
    shell.file("app.py", SHOW_SETTINGS)
    for flag in ("--no-data-movement", "--data_movement=false"):
        done = shell.run("run", flag, "app.py", PENSTOCK_DATA_MOVEMENT="on")
        assert done.stdout.startswith("16 fcfs False 60.0 None\n")
    done = shell.run("run", "--data_movement=false", "--data-movement", "app.py", status=2)
    assert "give one of --data-movement and --data_movement" in done.stderr


def table_rows(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_config_shows_described_layers_fastest_first(shell: Shell) -> None:
    (shell.folder / "a").mkdir()
    (shell.folder / "b").mkdir()
    shell.file(
        "penstock.toml",
        '[[resources.storage]]\nname = "slow"\nmount = "a"\nbandwidth = 150\ncapacity = "1MB"\nshared = true\n'
        '[[resources.storage]]\nname = "fast"\nmount = "b"\nbandwidth = "1.5GB/s"\ncapacity = "2MB"\nenforced = true\n',
    )
    rows = table_rows(shell.run("config").stdout)
    assert rows[-2:] == [
        ["fast", str(shell.folder / "b"), "1.5 GB/s", "2 MB", "no", "described, enforced"],
        ["slow", str(shell.folder / "a"), "150 MB/s", "1 MB", "yes", "described"],
    ]
    assert ["storage", "slow, fast", str(shell.folder / "penstock.toml")] in rows
    assert ["io_ageing", "1m 00s", "default"] in rows


def test_config_and_doctor_show_layers_that_were_found_and_guessed(shell: Shell) -> None:
    shell.environ["TMPDIR"] = str(shell.folder)
    text = shell.run("config").stdout
    assert re.search(rf"^work +{shell.folder} .*/s .*found: .*, guessed", text, re.M)
    assert "guessed: run `penstock probe DIR` to measure" in text
    assert re.search(r"^memory .*found: memory, guessed, temporary files only", text, re.M)
    text = shell.run("doctor").stdout
    assert re.search(rf"^✓ storage +work: {shell.folder}, .*/s, .*, found \(", text, re.M)
    assert re.search(r"^✓ storage +memory: .*, temporary files only, found \(", text, re.M)
    assert "→ bandwidths are guessed: run `penstock probe DIR` to measure" in text


def test_a_layer_that_cannot_be_used_is_reported(shell: Shell) -> None:
    shell.file("penstock.toml", '[[resources.storage]]\nname = "ssd"\nmount = "gone"\nbandwidth = 450\n')
    message = f'[[resources.storage]] 1 "ssd": mount = {str(shell.folder / "gone")!r} does not exist'
    assert message in shell.run("config", status=2).stderr
    assert re.search(rf"^✗ storage +.*{re.escape(message)}", shell.run("doctor", status=1).stdout, re.M)


def test_doctor_finds_what_dead_runs_left_on_a_layer(shell: Shell) -> None:
    shell.file("penstock.toml", '[[resources.storage]]\nname = "ssd"\nmount = "."\nbandwidth = 450\n')
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    dead = f"penstock-{os.getuid()}-{process.pid}-0a1b2c3d-layer"
    shell.file(f"{dead}/deep/file", "x" * 1500)
    shell.file(f"penstock-{os.getuid()}-{os.getpid()}-0a1b2c3d-layer/file", "of a run that lives")
    shell.file(f"penstock-{os.getuid() + 1}-{process.pid}-0a1b2c3d-layer/file", "of somebody else")
    shell.file("penstock-notes/file", "of the user")
    text = shell.run("doctor").stdout
    leftovers = re.findall(r"^! leftover +(.*)$", text, re.M)
    assert leftovers == [f"{shell.folder / dead}, 1.5 kB, of a run that is gone"]
    assert "`penstock recover` brings home what is in it" in text
    assert (shell.folder / dead / "deep" / "file").exists()
