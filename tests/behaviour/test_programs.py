"""External programs as tasks: what they are given, what they give, and how their failures read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import only_workers

import penstock
from penstock import (
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    INOUT,
    DefinitionError,
    DependencyFailed,
    ProgramFailed,
    TaskCancelled,
    TaskTimeout,
    barrier,
    constraint,
    io,
    open_file,
    program,
    task,
    wait_on,
)
from penstock.errors import TaskError
from penstock.executors.command_lines import command_line, parse

pytestmark = pytest.mark.usefixtures("runtime")


@program("sort {table} > {out}", table=FILE_IN, out=FILE_OUT)
def sort(table: str, out: str) -> None: ...


@program("echo {words}", returns=str)
def echo(words: Any) -> None: ...


@program(["printf", "%s|", "{words}", "n={number}"], returns=str)
def show(words: Any, number: float = 3) -> None:
    """Prints its arguments."""


@program("cat", stdin=FILE_IN, stdout=FILE_OUT)
def copy(stdin: str, stdout: str) -> None: ...


@program("echo added >> {path}", path=FILE_INOUT)
def append(path: Path) -> None: ...


@program("echo out; echo one >&2; echo two >&2; exit {status}")
def fail(status: int) -> None: ...


@task(path=FILE_OUT)
def write(path: str, text: str) -> None:
    Path(path).write_text(text)


@task
def word() -> str:
    return "a future"


def left_in(folder: Path) -> list[str]:
    """The names in a folder, once private copies that nobody reads any more are gone."""
    deadline = time.monotonic() + 60
    while any(path.name.startswith(".penstock") for path in folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(path.name for path in folder.iterdir())


def test_programs_and_functions_follow_each_other(in_folder: Path) -> None:
    write("table", "b\na\n")
    sort("table", "sorted")
    append(Path("sorted"))
    copy("sorted", Path("copied"))
    with open_file("copied") as file:
        assert file.read() == "a\nb\nadded\n"
    assert left_in(in_folder) == ["copied", "sorted", "table"]


def test_what_a_program_gives(in_folder: Path) -> None:
    @program("echo hello; echo oh >&2", returns=subprocess.CompletedProcess)
    def both() -> None: ...

    @program("printf 'a\\377'", returns=bytes)
    def raw() -> None: ...

    @program("exit 1", success=(0, 1))
    def grep() -> None: ...

    done = wait_on(both())
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "oh")
    assert wait_on(raw(), grep()) == [b"a\xff", 1]
    assert wait_on(copy("/dev/null", "empty")) == 0


SHELL = ["$(touch evil)", "`touch evil`", "; touch evil", "${1}", "*", "-n"]
WORDS = ["a b", "", "'", '"', "\\", "\n", "é", "{x}", *SHELL]


@pytest.mark.parametrize("words", [[one] for one in WORDS] + [WORDS], ids=repr)
def test_arguments_are_words_whatever_they_hold(words: list[str]) -> None:
    """Held against a shell that prints its arguments between brackets."""
    lines = [
        "printf [%s] {words}",
        "printf [%s] {words} > /dev/stdout",
        'x=$(printf [%s] {words}; echo .); printf %s "${{x%?}}"',
    ]
    for line in lines:
        arguments = command_line(parse(line, "show"), {"words": words}, "show")
        found = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True, cwd="/").stdout
        assert found.rstrip(".\n") == "".join(f"[{word}]" for word in words).rstrip(".\n")
    assert not os.path.exists("/evil")


def test_a_place_inside_of_double_quotes_and_inside_of_a_word() -> None:
    for line in ('echo "<{x}>" | cat', "echo x={x} | cat", 'echo "$(echo {x})" | cat', "echo x={x}"):
        arguments = command_line(parse(line, "t"), {"x": "a  $b"}, "t")
        assert "a  $b" in subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_arguments_of_all_kinds(in_folder: Path) -> None:
    assert wait_on(show(["a", Path("b"), 3, 2.5, b"c"], number=None)) == "a|b|3|2.5|c|n=|"
    assert wait_on(show([])) == "n=3|"
    assert wait_on(show(word())) == "a future|n=3|"
    assert wait_on(echo([["x", "y"], "z"])) == "x y z\n"
    with pytest.raises(TaskError, match="argument 'words' of program show is a dict, which cannot stand in a command"):
        wait_on(show({"a": 1}))
    with pytest.raises(TaskError, match="holds 2 words, but its place is inside of one"):
        wait_on(show("a", number=[1, 2]))  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="zero byte"):
        wait_on(show("a\0b"))


def test_a_failure_shows_command_status_and_last_lines() -> None:
    with pytest.raises(ProgramFailed) as caught:
        wait_on(fail(3))
    assert str(caught.value) == (
        "program fail exited with status 3; its command line: echo out; echo one >&2; echo two >&2; exit 3\n"
        "its last lines on stderr:\n    one\n    two"
    )
    assert (caught.value.returncode, caught.value.stderr) == (3, "one\ntwo")
    assert "task fail#" in str(caught.value.__cause__)


def test_other_failures(in_folder: Path) -> None:
    @program("kill -SEGV $$")
    def crash() -> None: ...

    @program("false | cat")
    def broken_pipe() -> None: ...

    @program("false; echo went on > {out}", out=FILE_OUT)
    def goes_on(out: str) -> None: ...

    @program("no-such-program-anywhere {x}")
    def missing(x: int) -> None: ...

    @program("true", out=FILE_OUT)
    def writes_nothing(out: str) -> None: ...

    @program("yes | head -1 > /dev/null")
    def early_end() -> None: ...

    @program("sh -c {script}", stderr=FILE_OUT)
    def noted(script: str, stderr: str) -> None: ...

    with pytest.raises(ProgramFailed, match=r"(?s)was killed by SIGSEGV; its command line: kill -SEGV \$\$"):
        wait_on(crash())
    with pytest.raises(ProgramFailed, match="status 1; its command line: false | cat"):
        wait_on(broken_pipe())
    with pytest.raises(ProgramFailed, match="status 1"):
        wait_on(goes_on("never"))
    with pytest.raises(ProgramFailed, match="'no-such-program-anywhere' cannot be started: No such file or directory"):
        wait_on(missing(1))
    with pytest.raises(TaskError, match=r"task .*writes_nothing declares argument 'out' as a file .*did not create"):
        wait_on(writes_nothing("nothing"))
    with pytest.raises(ProgramFailed, match="SIGPIPE"):
        wait_on(early_end())
    with pytest.raises(ProgramFailed, match=r"(?s)its last lines on stderr:\n    to a file"):
        wait_on(noted("echo to a file >&2; exit 1", "errors"))
    assert left_in(in_folder) == []


def test_consumers_of_a_failed_program_name_it(in_folder: Path) -> None:
    @program("exit 4; {out}", out=FILE_OUT)
    def make(out: str) -> None: ...

    @task(path=FILE_IN)
    def read(path: str) -> str:
        return Path(path).read_text()

    make("data")
    with pytest.raises(DependencyFailed, match=r"make#\d+.*status 4"):
        wait_on(read("data"))


def test_a_program_is_tried_again(in_folder: Path) -> None:
    @program("mkdir {mark} 2> /dev/null && exit 1; echo twice > {out}", retries=1, out=FILE_OUT)
    def second_time(mark: str, out: str) -> None: ...

    second_time(str(in_folder / "mark"), "out")
    with open_file("out") as file:
        assert file.read() == "twice\n"


#: seconds that nobody else sleeps, so that these tests can be run side by side
LONG = 1_000_000 + 10 * os.getpid()


def asleep(seconds: int) -> bool:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == b"sleep\0%d\0" % seconds:
                return True
        except OSError:
            continue
    return False


def await_sleep(seconds: int, *, runs: bool) -> None:
    deadline = time.monotonic() + 60
    while asleep(seconds) is not runs:
        assert time.monotonic() < deadline, f"sleep {seconds} {'never ran' if runs else 'still runs'}"
        time.sleep(0.01)


def test_nothing_is_left_when_a_program_ends() -> None:
    @program("sleep {one} & sleep {other} & echo done", returns=str)
    def leaves(one: int, other: int) -> None: ...

    assert leaves(LONG, LONG + 1).result(timeout=60) == "done\n"
    await_sleep(LONG, runs=False)
    await_sleep(LONG + 1, runs=False)


@only_workers
def test_a_timeout_and_a_cancellation_end_all_of_it() -> None:
    @program("sleep {one} | sleep {other}", timeout=0.3)
    def late(one: int, other: int) -> None: ...

    @program("sleep {one} | (setsid sleep {other}; true)")
    def cancelled(one: int, other: int) -> None: ...

    with pytest.raises(TaskTimeout):
        late(LONG + 2, LONG + 3).result(timeout=60)
    future = cancelled(LONG + 4, LONG + 5)
    try:
        await_sleep(LONG + 5, runs=True)
    finally:
        penstock.cancel(future)
    with pytest.raises(TaskCancelled):
        future.result(timeout=60)
    for seconds in range(LONG + 2, LONG + 6):
        await_sleep(seconds, runs=False)


def test_constraints_and_io(in_folder: Path, mode: str) -> None:
    @constraint(computing_units=2)
    @program("echo $OMP_NUM_THREADS", returns=str)
    def threads() -> None: ...

    @io
    @program("cp {source} {target}", source=FILE_IN, target=FILE_OUT)
    def stage(source: str, target: str) -> None: ...

    assert wait_on(threads()).strip() == ("2" if mode == "workers" else os.environ.get("OMP_NUM_THREADS", ""))
    write("a", "text")
    stage("a", "b")
    barrier()
    assert Path("b").read_text() == "text"


def test_inside_a_task(in_folder: Path) -> None:
    @task(out=FILE_OUT)
    def outer(out: str) -> str:
        return str(wait_on(sort(str(in_folder / "table"), out))) + str(wait_on(echo("x")))

    (in_folder / "table").write_text("2\n1\n")
    assert wait_on(outer("sorted")) == "0x\n"
    assert (in_folder / "sorted").read_text() == "1\n2\n"


def test_it_looks_like_a_task() -> None:
    assert show.__doc__ == "Prints its arguments."
    assert repr(show) == "<task show>"
    assert wait_on(list(echo.map(["a", "b"]))) == ["a\n", "b\n"]


def test_output_that_nobody_takes_is_shown(in_folder: Path) -> None:
    script = (
        "from penstock import program, wait_on\n"
        "@program('echo to stdout; echo to stderr >&2')\n"
        "def talk(): ...\n"
        "print(wait_on(talk()))\n"
    )
    (in_folder / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True)
    assert "to stdout" in done.stdout
    assert "to stderr" in done.stderr


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unknown place": ("cat {tabel}", {"table": FILE_IN}, r"no such parameter; did you mean 'table'\?"),
    "no place": ("ls", {}, r"the command has no place \{table\}"),
    "braces": ("awk '{print $1}' {table}", {}, r"'\{print \$1\}' .* write \{\{ and \}\} for braces"),
    "a variable": ("echo ${table} {table}", {}, r"write \$\{\{table\}\} for the variable"),
    "single quotes": ("echo 'x {table}' | cat", {}, "stands between single quotes"),
    "empty": ("  ", {}, "the command is empty"),
    "open quote": ("echo {table} 'x", {}, "cannot be split into words"),
    "no text": (17, {}, "neither text nor a list of words"),
    "no list of text": (["a", 1], {}, "neither text nor a list of words"),
    "here": ("cat << EOF {table}", {}, "here-document"),
    "an object": ("echo {table}", {"table": INOUT}, "a program changes only files"),
    "returns": ("echo {table}", {"returns": list}, "must be int"),
    "success": ("echo {table}", {"success": "0"}, "must be an exit status"),
    "sizes": ("echo {table}", {"sizes": "never"}, "must be"),
    "no option": ("echo {table}", {"retires": 2}, "did you mean 'retries'"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case: str) -> None:
    command, options, message = BAD[case]

    def work(table: str) -> None: ...

    with pytest.raises(DefinitionError, match=message):
        program(command, **options)(work)


def test_bodies_and_redirections_that_are_refused() -> None:
    def does_something(x: int) -> int:
        return x

    def redirected(stdout: str) -> None: ...

    def starred(**words: str) -> None: ...

    with pytest.raises(DefinitionError, match="the program runs, not the function's body"):
        program("echo {x}")(does_something)
    with pytest.raises(DefinitionError, match="declare stdout=FILE_OUT"):
        program("ls")(redirected)
    with pytest.raises(DefinitionError, match="stdout goes to a file"):
        program("ls", stdout=FILE_OUT, returns=str)(redirected)
    with pytest.raises(DefinitionError, match="cannot be given to a command"):
        program("echo {words}")(starred)
    with pytest.raises(DefinitionError, match="needs the command"):
        program(redirected)
    with pytest.raises(DefinitionError, match="is a task already"):
        program("ls")(echo)


@only_workers
def test_signals_of_the_shell_are_as_usual() -> None:
    """A worker ignores Ctrl-C; what it starts must not."""

    @program("kill -INT $$; echo survived", returns=str)
    def interrupted() -> None: ...

    with pytest.raises(ProgramFailed, match=f"was killed by {signal.SIGINT.name}"):
        wait_on(interrupted())
