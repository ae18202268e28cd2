"""Files that are read while they are written, by programs and by functions: same bytes as in batch, only earlier."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import IO, Any

import pytest
from tests.behaviour.modes import Gate, only_workers
from tests.behaviour.test_programs import left_in

import penstock
from penstock import (
    FILE_IN,
    FILE_OUT,
    STREAM_IN,
    STREAM_OUT,
    DefinitionError,
    DependencyFailed,
    TaskCancelled,
    barrier,
    mpi,
    program,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


@program("{{ echo one; cat {gate}; echo two; }} > {out}", out=STREAM_OUT)
def two_lines(gate: str, out: str) -> None: ...


@task(out=STREAM_OUT)
def two_lines_of_python(gate: Gate, out: str) -> None:
    with open(out, "w") as file:
        file.write("one\n")
        file.flush()
        gate.enter()
        file.write("two\n")


@program("{{ seq 1 50000; cat {gate}; echo two; }} > {out}", out=STREAM_OUT)
def many_lines(gate: str, out: str) -> None: ...


@program("seq 1 {last} > {out}", out=STREAM_OUT)
def count_up(last: int, out: str) -> None: ...


@task(out=STREAM_OUT)
def count_up_in_python(last: int, out: Any) -> None:
    with open(out, "w") as file:
        for number in range(1, last + 1):
            file.write(f"{number}\n")


@program("cat {source} > {out}", source=STREAM_IN, out=STREAM_OUT)
def copy(source: str, out: str) -> None: ...


@program("cat {source} > {out}", source=STREAM_IN, out=STREAM_OUT, sizes="so_far")
def copy_so_far(source: str, out: str) -> None: ...


@program("sha256sum < {source}", source=STREAM_IN, returns=str)
def digest(source: str) -> None: ...


@task(source=STREAM_IN)
def read(source: IO[bytes]) -> bytes:
    return source.read()


@task(source=STREAM_IN)
def digest_in_python(source: IO[bytes]) -> str:
    return hashlib.file_digest(source, "sha256").hexdigest()


@task(source=STREAM_IN)
def read_lines(source: IO[bytes], gate: Gate | None = None) -> list[bytes]:
    """With a gate: it is opened by whoever has the first line, so a writer that waits there was not waited for."""
    first = source.readline()
    if gate is not None:
        gate.open()
    return [first, *source]


@task(path=FILE_IN)
def read_whole(path: str) -> str:
    return Path(path).read_text()


def numbers(last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(1, last + 1))


# --- together ---------------------------------------------------------------------------------------------------------


@only_workers
def test_a_function_reads_what_a_program_is_writing(in_folder: Path, gate: Gate) -> None:
    two_lines(gate.path, "out")
    assert read_lines("out", gate).result(timeout=60) == [b"one\n", b"two\n"]
    assert Path("out").read_text() == "one\ntwo\n"
    assert left_in(in_folder) == ["gate", "out"]


@only_workers
def test_a_function_reads_what_a_function_is_writing(in_folder: Path, gate: Gate) -> None:
    two_lines_of_python(gate, "out")
    assert read_lines("out", gate).result(timeout=60) == [b"one\n", b"two\n"]


@only_workers
def test_a_program_reads_what_is_being_written(in_folder: Path, gate: Gate) -> None:
    @program("head -n 1 {source}; echo > {gate}; cat {source}", source=STREAM_IN, returns=str, sizes="so_far")
    def head_first(source: str, gate: str) -> None: ...

    many_lines(gate.path, "out")
    assert head_first("out", gate.path).result(timeout=60).splitlines()[-1] == "two"


@only_workers
def test_a_chain_of_three_runs_together(in_folder: Path, gate: Gate) -> None:
    many_lines(gate.path, "first")
    penstock.io(copy_so_far)("first", "second")  # there are two computing units
    lines = read_lines("second", gate).result(timeout=60)
    assert lines[0] == b"1\n"
    assert lines[-1] == b"two\n"
    assert Path("first").read_bytes() == Path("second").read_bytes()


@only_workers
def test_several_readers_and_one_who_waits_for_the_end(in_folder: Path, gate: Gate, second_gate: Gate) -> None:
    two_lines(gate.path, "out")
    first, second, whole = read_lines("out", second_gate), penstock.io(read)("out"), read_whole("out")
    second_gate.enter()  # the first has begun
    assert not whole.done()
    gate.open()
    assert wait_on(first, second, whole) == [[b"one\n", b"two\n"], b"one\ntwo\n", "one\ntwo\n"]


# --- the same, in whatever way it runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", [count_up, count_up_in_python], ids=["program", "function"])
def test_the_bytes_are_those_of_batch(in_folder: Path, producer: Any) -> None:
    last = 300_000
    producer(last, "numbers")
    found = wait_on(digest("numbers"), digest_in_python("numbers"))
    expected = hashlib.sha256(numbers(last)).hexdigest()
    assert [text.split()[0] for text in found] == [expected] * 2
    copy("numbers", Path("copied"))
    copy_so_far(Path("copied"), "again")
    assert wait_on(read("again")) == numbers(last)
    barrier()
    assert left_in(in_folder) == ["again", "copied", "numbers"]


def test_files_that_are_there_already(in_folder: Path) -> None:
    Path("old").write_text("text")
    assert wait_on(read("old"), read(Path("old"))) == [b"text", b"text"]
    count_up(3, "new")
    barrier()
    assert wait_on(read("new"), read_whole("new")) == [b"1\n2\n3\n", "1\n2\n3\n"]


def test_versions(in_folder: Path) -> None:
    """A file that is written again while the one before it is still read."""
    futures = []
    for last in range(1, 6):
        count_up(last, "numbers")
        futures += [read("numbers"), read_whole("numbers")]
    found = wait_on(futures)
    assert found[::2] == [numbers(last) for last in range(1, 6)]
    assert found[1::2] == [numbers(last).decode() for last in range(1, 6)]
    assert Path("numbers").read_bytes() == numbers(5)
    assert left_in(in_folder) == ["numbers"]


def test_what_an_open_file_can_do(in_folder: Path) -> None:
    @task(source=STREAM_IN)
    def use(source: IO[bytes]) -> list[Any]:
        assert source.readable()
        assert source.seekable()
        assert not source.writable()
        found: list[Any] = [source.read(3), source.tell(), source.seek(0), source.readline(), source.read1(2)]
        found += [source.seek(-2, os.SEEK_END), source.read(), source.read(), source.seek(2)]
        return [*found, io.TextIOWrapper(source, "ascii").readline(), os.path.basename(source.name)]

    count_up(5, "numbers")
    assert wait_on(use("numbers")) == [b"1\n2", 3, 0, b"1\n", b"2\n", 8, b"5\n", b"", 2, "2\n", "numbers"]


@pytest.mark.parametrize(
    "command",
    [
        "seq 1 1000 | sort -n -o {out}",
        "seq 1 1000 > {out}.part; mv {out}.part {out}",
        "seq 1 500 > {out}; seq 501 1000 >> {out}",
        "seq 1 1000 | tee {out} > /dev/null",
        "seq 1 1000 | dd of={out} bs=7 status=none",
        "cd $(dirname {out}); seq 1 1000 > $(basename {out})",
        'python3 -c \'import sys; open(sys.argv[1], "w").writelines(f"{{i}}\\n" for i in range(1, 1001))\' {out}',
    ],
)
def test_ways_to_write(in_folder: Path, command: str) -> None:
    @program(command, out=STREAM_OUT)
    def make(out: str) -> None: ...

    make("numbers")
    assert wait_on(read("numbers"), read_whole("numbers")) == [numbers(1000), numbers(1000).decode()]
    barrier()
    assert left_in(in_folder) == ["numbers"]


@pytest.mark.parametrize(
    "command", ["tail -n 1 {path}", "sed -n '$p' {path}", "wc -l < {path}", "tac {path} | head -1"]
)
def test_ways_to_read(in_folder: Path, command: str) -> None:
    @program(command, path=STREAM_IN, returns=str)
    def look(path: str) -> None: ...

    if "head" in command:

        @program("tac {path} | sed -n 1p", path=STREAM_IN, returns=str)
        def look(path: str) -> None: ...

    count_up(20_000, "numbers")
    assert wait_on(look("numbers")).strip() == "20000"


def test_redirections(in_folder: Path) -> None:
    @program("seq 1 {last}", stdout=STREAM_OUT)
    def up(last: int, stdout: str) -> None: ...

    @program("cat", stdin=STREAM_IN, returns=str)
    def show(stdin: str) -> None: ...

    up(2000, "numbers")
    assert wait_on(show("numbers")).encode() == numbers(2000)


def test_an_empty_file(in_folder: Path) -> None:
    @program(": > {out}", out=STREAM_OUT)
    def nothing(out: str) -> None: ...

    nothing("out")
    assert wait_on(read("out")) == b""


def test_inside_a_task(in_folder: Path) -> None:
    @task
    def outer(folder: str) -> bytes:
        wait_on(count_up(3, f"{folder}/inner"))
        return bytes(wait_on(read(f"{folder}/inner")))

    assert wait_on(outer(str(in_folder))) == numbers(3)


@only_workers
def test_one_worker_runs_them_one_after_the_other(in_folder: Path) -> None:
    with penstock.Runtime(cpus=1):
        count_up(1000, "a")
        copy("a", "b")
        count_up_in_python(1000, "c")
        assert wait_on(read("b"), read("c"), read("a")) == [numbers(1000)] * 3


@only_workers
def test_strict_mode_and_two_runs_at_once(in_folder: Path) -> None:
    """One process has one table: the inner run hands its files over when they are complete."""
    count_up(10, "outer")
    assert wait_on(read("outer")) == numbers(10)
    with penstock.Runtime(cpus=2, strict=True):
        count_up(10, "inner")
        copy("inner", "copied")
        assert wait_on(read("copied")) == numbers(10)


@only_workers
def test_a_temporary_stream_is_not_kept(in_folder: Path) -> None:
    @program("seq 1 {last} > {out}", out=STREAM_OUT(temp=True))
    def passing(last: int, out: str) -> None: ...

    with penstock.Runtime(cpus=2):
        passing(5, "passing")
        assert wait_on(read("passing")) == numbers(5)
    assert left_in(in_folder) == []


@only_workers
def test_a_program_without_the_library_is_started_when_its_file_is_complete(in_folder: Path, tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    source = tmp_path / "copy.c"
    source.write_text("#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) != EOF) putchar(c); }\n")
    made = compiler and subprocess.run([compiler, "-static", "-o", tmp_path / "static", source], check=False)
    if not made or made.returncode:
        pytest.skip("no compiler for static programs here")

    @program([str(tmp_path / "static")], stdin=STREAM_IN, stdout=STREAM_OUT)
    def static(stdin: str, stdout: str) -> None: ...

    @program("for i in 1 2 3; do echo $i; sleep 0.05; done > {out}", out=STREAM_OUT)
    def slowly(out: str) -> None: ...

    slowly("numbers")
    static("numbers", "copied")
    assert wait_on(read("copied")) == numbers(3)


# --- misfortune -------------------------------------------------------------------------------------------------------


@only_workers
def test_the_failure_of_the_writer_reaches_who_waits_for_its_bytes(in_folder: Path) -> None:
    @program("echo one > {out}; sleep 0.3; echo no more >&2; exit 5", out=STREAM_OUT)
    def breaks(out: str) -> None: ...

    breaks("out")
    reader, program_reader = read("out"), digest("out")
    for future in (reader, program_reader):
        with pytest.raises(DependencyFailed, match=r"(?s)breaks#\d+.*status 5.*no more"):
            future.result(timeout=60)
    assert left_in(in_folder) == []
    assert wait_on(task(lambda: 1)()) == 1


@only_workers
def test_who_has_read_enough_waits_for_the_end_all_the_same(in_folder: Path, gate: Gate) -> None:
    """In batch it would not have run at all."""

    @program("echo one > {out}; cat {gate}; exit 6", out=STREAM_OUT)
    def breaks(gate: str, out: str) -> None: ...

    @task(source=STREAM_IN)
    def first_line(source: IO[bytes], gate: Gate) -> bytes:
        line = source.readline()
        gate.open()
        return line

    breaks(gate.path, "out")
    with pytest.raises(DependencyFailed, match="status 6"):
        first_line("out", gate).result(timeout=60)


@only_workers
@pytest.mark.parametrize("how", ["exit", "death"])
def test_readers_begin_again_with_the_writer(in_folder: Path, how: str) -> None:
    @program(
        "[ -d {mark} ] && echo second > {out} && exit; echo first > {out}; mkdir {mark}; sleep 0.2; exit 1",
        retries=1,
        out=STREAM_OUT,
    )
    def by_exit(mark: str, out: str) -> None: ...

    @task(out=STREAM_OUT)
    def by_death(mark: str, out: str) -> None:
        first = not os.path.exists(mark)
        Path(out).write_text("first\n" if first else "second\n")
        if first:
            os.mkdir(mark)
            time.sleep(0.2)
            os._exit(1)

    @task(source=STREAM_IN)
    def note(source: IO[bytes], log: str) -> bytes:
        line = source.readline()
        with open(log, "ab") as file:
            file.write(line)
        return line + source.read()

    {"exit": by_exit, "death": by_death}[how](str(in_folder / "mark"), "out")
    log = str(in_folder / "log")
    found = note("out", log)
    copied = copy_so_far("out", "copied")
    assert found.result(timeout=60) == b"second\n"
    wait_on(copied)
    barrier()
    assert Path("copied").read_text() == "second\n"
    assert Path(log).read_text().endswith("second\n")
    assert left_in(in_folder) == ["copied", "log", "mark", "out"]


@only_workers
@pytest.mark.parametrize(
    "command",
    [
        "echo first > {out}; cat {gate}; echo last > {out}",  # truncated
        "echo first > {out}; cat {gate}; echo longer > {out}.new; mv {out}.new {out}",  # replaced
        "echo first > {out}; cat {gate}; printf last- | dd of={out} conv=notrunc status=none",  # changed
        "echo first > {out}; cat {gate}; rm {out}; echo other > {out}",  # made anew
        "echo first > {out}; cat {gate}; echo other > {out}.new; mv {out}.new {out}",  # replaced, by one as long
    ],
)
def test_a_file_that_is_written_twice_is_read_again(in_folder: Path, gate: Gate, command: str) -> None:
    """What the reader had seen is not what the file holds."""

    @program(command, out=STREAM_OUT)
    def twice(gate: str, out: str) -> None: ...

    @task(source=STREAM_IN)
    def first_and_rest(source: IO[bytes], gate: Gate) -> bytes:
        line = source.readline()
        if line == b"first\n":
            gate.open()
        return line + source.read()

    twice(gate.path, "out")
    found = first_and_rest("out", gate).result(timeout=60)
    assert found == Path("out").read_bytes()
    assert found != b"first\n"


@only_workers
def test_cancelling_the_writer(in_folder: Path, gate: Gate) -> None:
    @program("echo one > {out}; sleep 881", out=STREAM_OUT)
    def endless(out: str) -> None: ...

    writer = endless("out")
    reader = read("out")
    while not list(in_folder.glob(".penstock*/out")):
        time.sleep(0.01)
    penstock.cancel(writer)
    for future in (writer, reader):
        with pytest.raises(TaskCancelled):
            future.result(timeout=60)
    assert left_in(in_folder) == ["gate"]


@only_workers
def test_the_failure_of_a_reader_is_its_own(in_folder: Path, gate: Gate) -> None:
    @task(source=STREAM_IN)
    def fails(source: IO[bytes], gate: Gate) -> None:
        source.readline()
        gate.open()
        raise ValueError("mine")

    written = two_lines(gate.path, "out")
    with pytest.raises(ValueError, match="mine"):
        fails("out", gate).result(timeout=60)
    assert written.result(timeout=60) == 0
    assert wait_on(read("out")) == b"one\ntwo\n"


@only_workers
def test_a_writer_that_makes_no_file(in_folder: Path) -> None:
    @program("sleep 0.1", out=STREAM_OUT)
    def nothing(out: str) -> None: ...

    nothing("out")
    with pytest.raises(DependencyFailed, match="did not create"):
        read("out").result(timeout=60)


def test_what_is_refused() -> None:
    with pytest.raises(DefinitionError, match="ranks cannot share; use FILE_OUT"):
        mpi(processes=2)(task(out=STREAM_OUT)(lambda out: None))
    with pytest.raises(DefinitionError, match="leave ahead out, or declare out=FILE_OUT"):
        task(returns=..., ahead=2, out=STREAM_OUT)(lambda out: None)
    with pytest.raises(TypeError, match="STREAM_IN cannot be temp"):
        STREAM_IN(temp=True)
    with pytest.raises(DefinitionError, match="must both be programs, or functions"):

        @penstock.implement(of=digest)
        @task(returns=1, source=STREAM_IN)
        def other(source: str) -> str:
            return ""

    assert FILE_OUT != STREAM_OUT
