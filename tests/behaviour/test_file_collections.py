"""Files in lists, tuples and dicts: each path is a datum of its own, wherever in an argument it stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.behaviour.modes import Gate, only_workers

from penstock import (
    COLLECTION_FILE_IN,
    COLLECTION_FILE_INOUT,
    COLLECTION_FILE_OUT,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    STREAM_IN,
    CallError,
    Depth,
    Type,
    barrier,
    program,
    ready_file,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list | tuple) else [value]


@task(path=FILE_OUT)
def write(path: Any, text: str) -> None:
    Path(path).write_text(text)


@task(paths=FILE_IN)
def read(paths: Any) -> list[str]:
    return [Path(path).read_text() for path in leaves(paths)]


@task(paths=COLLECTION_FILE_IN)
def read_collection(paths: Any) -> list[str]:
    return [Path(path).read_text() for path in leaves(paths)]


@task(paths=FILE_OUT)
def write_each(paths: Any, text: str) -> None:
    for number, path in enumerate(leaves(paths)):
        Path(path).write_text(f"{text}{number}")


@task(paths={Type: COLLECTION_FILE_OUT, Depth: 2})
def write_collection(paths: Any, text: str) -> None:
    for number, path in enumerate(leaves(paths)):
        Path(path).write_text(f"{text}{number}")


@task(paths=FILE_INOUT)
def append_each(paths: Any, text: str) -> None:
    for path in leaves(paths):
        with open(path, "a") as file:
            file.write(text)


@task(paths=COLLECTION_FILE_INOUT)
def append_collection(paths: Any, text: str) -> None:
    for path in leaves(paths):
        with open(path, "a") as file:
            file.write(text)


@task(paths=FILE_IN)
def read_args(*paths: Any) -> list[str]:
    return [Path(path).read_text() for path in paths]


@task(paths=FILE_IN)
def read_keywords(**paths: Any) -> dict[str, str]:
    return {name: Path(path).read_text() for name, path in paths.items()}


@task(paths=FILE_OUT)
def write_args(text: str, *paths: Any) -> None:
    for number, path in enumerate(leaves(paths)):
        Path(path).write_text(f"{text}{number}")


@task(paths=FILE_IN)
def kinds(paths: Any) -> Any:
    return type(paths).__name__, [type(path).__name__ for path in leaves(paths)]


SHAPES = [
    ["a", "b", "c"],
    ("a", "b", "c"),
    {"x": "a", "y": "b", "z": "c"},
    ["a", ("b", {"z": "c"})],
    {"x": [["a"]], "y": Pair("b", "c")},
    Pair("a", ["b", "c"]),
    [Path("a"), "b", Path("c")],
    [["a"], [], ["b", "c"]],
]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("reader", [read, read_collection])
def test_a_collection_of_any_shape_is_read_after_its_writers(shape: Any, reader: Any) -> None:
    for path in leaves(shape):
        Path(path).write_text("old")
        write(path, f"new {path}")
    assert wait_on(reader(shape)) == ["new a", "new b", "new c"]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize(("writer", "appender"), [(write_each, append_each), (write_collection, append_collection)])
def test_a_collection_of_any_shape_is_written_and_updated(shape: Any, writer: Any, appender: Any, folder: Path) -> None:
    writer(shape, "w")
    first = read(["b"])
    appender(shape, "+")
    append_each("a", "!")
    assert wait_on(read(shape)) == ["w0+!", "w1+", "w2+"]
    assert wait_on(first) == ["w1"]
    barrier()
    assert sorted(os.listdir(folder)) == ["a", "b", "c"]


def test_a_task_receives_what_it_was_given() -> None:
    for path in "abc":
        Path(path).touch()
    given = [wait_on(kinds(one)) for one in (["a"], ("a", Path("b")), {"x": Path("c")}, Pair("a", "b"))]
    assert given == [
        ("list", ["str"]),
        ("tuple", ["str", "PosixPath"]),
        ("dict", ["PosixPath"]),
        ("Pair", ["str", "str"]),
    ]


def test_the_programs_own_collection_stays_as_it_is() -> None:
    paths = ["a", Path("b")]
    inner = {"x": paths}
    write_each(inner, "w")
    assert inner == {"x": ["a", Path("b")]}
    assert inner["x"] is paths


def test_arguments_by_star() -> None:
    write_args("w", "a", "b", ["c"])
    assert wait_on(read_args("a", Path("b"), "c")) == ["w0", "w1", "w2"]
    assert wait_on(read_keywords(x="a", path="b", paths="c")) == {"x": "w0", "path": "w1", "paths": "w2"}


def test_an_empty_collection_has_no_files() -> None:
    assert wait_on(read([])) == []
    write_each({}, "w")
    barrier()


@only_workers
def test_files_of_one_collection_are_data_of_their_own(gate: Gate) -> None:
    @task(path=FILE_OUT)
    def write_behind_gate(path: Any, gate: Gate) -> None:
        gate.enter()
        Path(path).write_text("late")

    write_behind_gate("a", gate)
    write("b", "soon")
    both = read(["a", "b"])
    assert wait_on(read(["b"])) == ["soon"]
    gate.open()
    assert wait_on(both) == ["late", "soon"]


def test_many_files_in_one_call(folder: Path) -> None:
    paths = [f"part-{number}" for number in range(300)]
    write_each(paths, "w")
    assert wait_on(read(paths)) == [f"w{number}" for number in range(300)]
    barrier()
    assert len(os.listdir(folder)) == 300


def test_a_file_of_a_collection_can_be_handed_over_early() -> None:
    @task(paths=FILE_OUT)
    def write_and_hand_over(paths: Any) -> None:
        for path in paths:
            Path(path).write_text("early")
            ready_file(path)

    write_and_hand_over(["a", "b"])
    assert wait_on(read(["b", "a"])) == ["early", "early"]


def test_a_failing_writer_leaves_all_files_as_they_were(folder: Path) -> None:
    @task(paths=FILE_INOUT, on_failure="ignore")
    def spoil(paths: Any) -> None:
        for path in paths:
            Path(path).write_text("half")
        raise OSError("disk on fire")

    write_each(["a", "b"], "w")
    spoil(["a", "b"])
    spoil(["b", "a"])
    assert wait_on(read(["a", "b"])) == ["w0", "w1"]
    barrier()
    assert sorted(os.listdir(folder)) == ["a", "b"]


def test_a_missing_one_is_named(folder: Path) -> None:
    @task(paths=FILE_OUT)
    def forget_one(paths: Any) -> None:
        Path(paths[0]).write_text("x")

    with pytest.raises(Exception, match=r"argument 'paths'\[1\] as a file that it writes, but did not create .*/b"):
        wait_on(forget_one(["a", "b"]))
    assert os.listdir(folder) == []


# --- programs -------------------------------------------------------------------------------------------------------


@program("cat {parts} > {out}", parts=FILE_IN, out=FILE_OUT)
def join(parts: Any, out: Any) -> None: ...


@program(["cat", "{parts}"], parts=COLLECTION_FILE_IN, stdout=FILE_OUT)
def join_without_shell(parts: Any, stdout: Any) -> None: ...


@program("cat {parts} > {out}", parts=FILE_IN, out=FILE_OUT)
def join_args(out: Any, *parts: Any) -> None: ...


@program("tee {outs} < {source} > /dev/null", source=FILE_IN, outs=FILE_OUT)
def spread(source: Any, outs: Any) -> None: ...


@pytest.mark.parametrize("joining", [join, join_without_shell, lambda parts, out: join_args(out, *parts)])
def test_a_program_reads_what_tasks_write(joining: Any) -> None:
    names = ["plain", "with blank", "it's", '"quoted"', "$HOME", "-- star*"]
    for name in names:
        Path(name).write_text("old ")
        write(name, f"{name};")
    joining([names[:2], tuple(map(Path, names[2:-1])), [f"./{names[-1]}"]], "out")
    assert wait_on(read(["out"])) == ["".join(f"{name};" for name in names)]


def test_a_program_writes_several_files() -> None:
    write("source", "x")
    spread("source", ["a", "b c"])
    append_each(["a"], "!")
    assert wait_on(read(["a", "b c", "source"])) == ["x!", "x", "x"]


# --- what is refused ------------------------------------------------------------------------------------------------


def test_bad_elements_are_named_at_the_call(folder: Path) -> None:
    loop: list[Any] = ["a"]
    loop.append(loop)
    Path("a").touch()
    bad: list[tuple[Any, str]] = [
        (lambda: read(["a", 3]), r"element \[1\] of argument 'paths' of task read must be a path .* not int 3"),
        (lambda: read({"x": ["a", None]}), r"element \['x'\]\[1\] of argument .* must be a path .* not NoneType"),
        (lambda: read(["a", ""]), r"element \[1\] of .* is an empty path"),
        (lambda: read([read(["a"])]), r"element \[0\] of .* is a future; a file's path must be known at the call"),
        (lambda: read({"a"}), r"argument 'paths' of task read must be a path .* not set"),
        (lambda: read(loop), r"argument 'paths' of task read contains itself, at \[1\]"),
        (lambda: read(["a", "missing"]), r"element \[1\] of .* names the file .*/missing, which does not exist"),
        (lambda: read_collection("a"), r"is declared COLLECTION_FILE_IN, but is a str; .* or declare it FILE_IN"),
        (lambda: write_each(["a", "./a"], "x"), r"element \[1\] of .* which the call writes already, as element \[0\]"),
        (lambda: write_args("x", "a", folder / "a"), r"argument '\*paths\[1\]' .* which the call writes already"),
        (lambda: join({"x": "a"}, "out"), r"argument 'parts' of task join has a dict, whose keys have no place"),
        (lambda: join([{"x": "a"}], "out"), r"argument 'parts' of task join has a dict"),
        (lambda: join_without_shell(["a"], ["b"]), r"argument 'stdout' .* is redirected, so it is one path"),
    ]
    for call, message in bad:
        with pytest.raises(CallError, match=message):
            call()
    barrier()
    assert os.listdir(folder) == ["a"]


def test_one_file_to_read_and_to_update_in_one_call_is_refused() -> None:
    @task(source=FILE_IN, target=FILE_INOUT)
    def both(source: Any, target: Any) -> None: ...

    Path("a").touch()
    with pytest.raises(CallError, match="does not see in the one what it writes to the other; give it once"):
        both("a", "a")


def test_a_stream_is_one_path() -> None:
    @task(log=STREAM_IN)
    def follow(log: Any) -> None: ...

    Path("a").touch()
    with pytest.raises(CallError, match="is declared STREAM_IN, which is one path, but is a list"):
        follow(["a"])
