"""Files as arguments: one path per real file, versions of files, nothing half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, CallError, delete_file, open_file, task, wait_on
from penstock.runtime.session import current

pytestmark = pytest.mark.usefixtures("runtime")


@task(path=FILE_OUT)
def write(path: Any, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@task(path=FILE_INOUT)
def append(path: Any, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


@task(path=FILE_IN, returns=1)
def read(path: Any) -> str:
    with open(path) as file:
        return file.read()


@task(path=FILE_OUT)
def write_half_and_fail(path: Any) -> None:
    with open(path, "w") as file:
        file.write("half")
    raise OSError("disk on fire")


@task(path=FILE_INOUT)
def append_half_and_fail(path: Any) -> None:
    with open(path, "a") as file:
        file.write("half")
    raise OSError("disk on fire")


@task(path=FILE_OUT)
def forget_to_write(path: Any) -> None:
    pass


@task(path=FILE_OUT)
def write_behind_gate(path: Any, text: str, gate: Gate) -> None:
    gate.enter()
    Path(path).write_text(text)


@task(path=FILE_IN, returns=1)
def read_behind_gate(path: Any, arrived: Gate, leave: Gate) -> tuple[str, str]:
    before = Path(path).read_text()
    arrived.enter()
    leave.enter()
    return before, Path(path).read_text()


KINDS = pytest.mark.parametrize("kind", [str, Path], ids=["str", "Path"])


# --- chains -------------------------------------------------------------------------------------------------------


@KINDS
def test_a_chain_of_writers_and_readers(tmp_path: Path, kind: Any) -> None:
    path = kind(tmp_path / "a.txt")
    write(path, "1")
    first = read(path)
    append(path, "2")
    second = read(path)
    append(path, "3")
    third = read(path)
    write(path, "new")
    fourth = read(path)
    assert wait_on(first, second, third, fourth) == ["1", "12", "123", "new"]
    penstock.barrier()
    assert (tmp_path / "a.txt").read_text() == "new"


@KINDS
def test_a_task_receives_the_kind_of_path_it_was_given(tmp_path: Path, kind: Any) -> None:
    @task(path=FILE_IN, other=FILE_OUT, returns=1)
    def kinds(path: Any, other: Any) -> tuple[bool, bool]:
        Path(other).touch()
        return isinstance(path, Path), isinstance(other, Path)

    (tmp_path / "a").touch()
    expected = kind is Path
    assert kinds(kind(tmp_path / "a"), kind(tmp_path / "b")).result() == (expected, expected)


def test_relative_and_absolute_paths_name_one_file(in_folder: Path) -> None:
    write("a.txt", "1")
    append(in_folder / "a.txt", "2")
    append(str(in_folder / "a.txt"), "3")
    append(Path("a.txt"), "4")
    assert read("./a.txt").result() == "1234"
    assert (in_folder / "a.txt").read_text() == "1234"


def test_detours_name_one_file(in_folder: Path) -> None:
    Path("a").mkdir()
    write("b", "1")
    append("./a/../b", "2")
    append(f"{in_folder}//b", "3")
    assert read(in_folder / "a" / ".." / "b").result() == "123"


def test_links_name_the_file_they_point_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("0")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder_link").symlink_to("folder")
    append(tmp_path / "link", "1")
    append(tmp_path / "real", "2")
    assert read(tmp_path / "link").result() == "012"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "012"
    write(tmp_path / "folder_link" / "x", "1")
    append(tmp_path / "folder" / "x", "2")
    assert read(tmp_path / "folder_link" / "x").result() == "12"


def test_a_task_finds_a_relative_path_where_the_program_meant_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    monkeypatch.chdir(tmp_path / "one")
    first = read("x")
    monkeypatch.chdir(tmp_path / "two")
    second = read("x")
    assert wait_on(first, second) == ["one", "two"]


def test_a_file_the_program_wrote_and_changed_between_calls(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    assert read(path).result() == "1"
    path.write_text("2")
    assert read(path).result() == "2"
    append(path, "3")
    assert read(path).result() == "23"
    with open_file(path, "w") as file:
        file.write("mine")
    assert read(path).result() == "mine"


def test_a_new_file_in_an_empty_folder_appears_with_its_name_only(tmp_path: Path) -> None:
    write(tmp_path / "a", "1")
    append(tmp_path / "a", "2")
    penstock.barrier()
    assert os.listdir(tmp_path) == ["a"]


def test_many_files_at_once(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.txt" for i in range(30)]
    for i, path in enumerate(paths):
        write(path, str(i))
    assert wait_on([read(path) for path in paths]) == [str(i) for i in range(30)]
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in paths)


def test_two_outputs_of_one_task(tmp_path: Path) -> None:
    @task(left=FILE_OUT, right=FILE_OUT)
    def split(text: str, left: Any, right: Any) -> None:
        Path(left).write_text(text[:2])
        Path(right).write_text(text[2:])

    split("abcd", tmp_path / "l", tmp_path / "r")
    assert wait_on(read(tmp_path / "l"), read(tmp_path / "r")) == ["ab", "cd"]


def test_a_binary_file_arrives_whole(tmp_path: Path) -> None:
    @task(path=FILE_OUT)
    def dump(path: Any, count: int) -> None:
        Path(path).write_bytes(bytes(range(256)) * count)

    dump(tmp_path / "b", 5000)
    with open_file(tmp_path / "b", "rb") as file:
        assert file.read() == bytes(range(256)) * 5000


def test_a_file_and_its_mode_survive_an_update(tmp_path: Path) -> None:
    path = tmp_path / "script.sh"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o750)
    append(path, "true\n")
    penstock.barrier()
    assert path.read_text() == "#!/bin/sh\ntrue\n"
    assert path.stat().st_mode & 0o777 == 0o750


def test_a_new_file_has_the_mode_an_ordinary_program_would_give_it(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write(tmp_path / "a", "1")
    penstock.barrier()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_files_with_odd_names(tmp_path: Path) -> None:
    for name in ("with space", "naïve-ü", "semi;colon", ".hidden", "a" * 200):
        write(tmp_path / name, name)
        assert read(tmp_path / name).result() == name


@pytest.mark.one_in(2)
def test_writers_follow_each_other_at_full_speed(tmp_path: Path) -> None:
    """A file is published and its version freed while the next call on it is made."""
    for i in range(300):
        path = tmp_path / f"{i % 3}"
        write(path, "x")
        append(path, "y")
        if i % 7 == 0:
            penstock.barrier()
    penstock.barrier()
    assert [file.read_text() for file in sorted(tmp_path.iterdir())] == ["xy"] * 3


# --- old versions -------------------------------------------------------------------------------------------------


@only_workers
def test_a_reader_of_the_old_version_keeps_it_while_a_new_one_is_written(
    tmp_path: Path, gate: Gate, second_gate: Gate
) -> None:
    path = tmp_path / "a"
    write(path, "old")
    slow = read_behind_gate(path, gate, second_gate)
    gate.open()
    write(path, "new")
    assert read(path).result(60) == "new"
    assert not slow.done()
    second_gate.open()
    assert slow.result() == ("old", "old")
    with penstock.open_file(path) as file:
        assert file.read() == "new"


@only_workers
def test_a_reader_that_has_not_started_still_gets_the_old_version(tmp_path: Path, gate: Gate) -> None:
    @task(path=FILE_IN, returns=1)
    def read_after(path: Any, signal: Any) -> str:
        return Path(path).read_text()

    @task(returns=1)
    def pass_gate(gate: Gate) -> int:
        gate.enter()
        return 1

    path = tmp_path / "a"
    write(path, "old")
    late = read_after(path, pass_gate(gate))
    append(path, " and new")
    assert read(path).result(60) == "old and new"
    gate.open()
    assert late.result() == "old"


@only_workers
def test_a_reader_of_the_programs_own_file_keeps_it_while_a_new_one_is_written(
    tmp_path: Path, gate: Gate, second_gate: Gate
) -> None:
    path = tmp_path / "a"
    path.write_text("mine")
    slow = read_behind_gate(path, gate, second_gate)
    gate.open()
    write(path, "theirs")
    assert read(path).result(60) == "theirs"
    second_gate.open()
    assert slow.result() == ("mine", "mine")
    penstock.barrier()
    assert path.read_text() == "theirs"


@only_workers
def test_an_older_writer_that_ends_later_does_not_win(tmp_path: Path, gate: Gate) -> None:
    path = tmp_path / "a"
    write_behind_gate(path, "old", gate)
    old = read(path)
    write(path, "new")
    assert read(path).result(60) == "new"
    gate.open()
    assert old.result() == "old"
    assert read(path).result() == "new"
    penstock.barrier()
    assert path.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["a", "gate"]


@only_workers
def test_the_old_file_is_whole_until_the_new_one_is(tmp_path: Path, gate: Gate) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    write_behind_gate(path, "new", gate)
    assert path.read_text() == "old"
    gate.open()
    penstock.barrier()
    assert path.read_text() == "new"


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", [write_half_and_fail, append_half_and_fail])
def test_a_failing_writer_leaves_the_old_file_and_no_litter(tmp_path: Path, writer: Any) -> None:
    path = tmp_path / "a"
    path.write_text("precious")
    writer(path)
    with pytest.raises(OSError, match="disk on fire"):
        penstock.barrier()
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["a"]


def test_a_failing_writer_of_a_new_file_leaves_nothing(tmp_path: Path) -> None:
    write_half_and_fail(tmp_path / "a")
    with pytest.raises(OSError, match="disk on fire"):
        penstock.barrier()
    assert os.listdir(tmp_path) == []


def test_the_reader_of_a_failed_writer_fails_with_the_root_cause(tmp_path: Path) -> None:
    write_half_and_fail(tmp_path / "a")
    reader = read(tmp_path / "a")
    with pytest.raises(penstock.DependencyFailed, match="disk on fire") as caught:
        reader.result()
    assert "write_half_and_fail" in str(caught.value)


def test_a_file_can_be_written_again_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_half_and_fail(path)
    with pytest.raises(OSError):
        penstock.barrier()
    write(path, "good")
    assert read(path).result() == "good"


@only_workers
def test_after_a_known_failure_a_file_is_what_earlier_calls_make_of_it(tmp_path: Path, gate: Gate) -> None:
    path = tmp_path / "data.txt"
    path.write_text("old")
    write_behind_gate(path, "new", gate)
    for _ in range(2):
        assert isinstance(write_half_and_fail(path).exception(), OSError)
    first = read(path)
    append(path, "er")
    second = read(path)
    gate.open()
    assert wait_on(first, second) == ["new", "newer"]
    assert path.read_text() == "newer"
    penstock.barrier()
    current().driver.house.finish()
    assert set(os.listdir(tmp_path)) == {"data.txt", "gate"}


@only_workers
def test_after_a_known_failure_a_version_that_waits_for_its_name_counts(tmp_path: Path, gate: Gate) -> None:
    path, arrived = tmp_path / "data.txt", Gate(tmp_path / "arrived")
    path.write_text("old")
    held = read_behind_gate(path, arrived, gate)
    arrived.open()
    write(path, "new")
    wait_on(write_half_and_fail.with_options(on_failure="ignore")(path))
    assert isinstance(write_half_and_fail(path).exception(), OSError)
    assert wait_on(read(path)) == "new"
    gate.open()
    assert held.result() == ("old", "old")
    with open_file(path) as file:
        assert file.read() == "new"


def test_the_program_opens_and_deletes_a_file_whose_writer_failed_to_its_knowledge(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    write(path, "old")
    assert isinstance(append_half_and_fail(path).exception(), OSError)
    with open_file(path) as file:
        assert file.read() == "old"
    with pytest.raises(OSError, match="disk on fire"):
        wait_on(write_half_and_fail(path))
    delete_file(path)
    assert os.listdir(tmp_path) == []


def test_a_task_that_does_not_write_its_file_is_an_error_that_names_both(tmp_path: Path) -> None:
    future = forget_to_write(tmp_path / "promised.txt")
    with pytest.raises(penstock.TaskError) as caught:
        future.result()
    message = str(caught.value)
    assert "forget_to_write" in message and "'path'" in message and "promised.txt" in message
    with pytest.raises(penstock.TaskError):
        open_file(tmp_path / "promised.txt")


def test_a_missing_input_that_no_task_makes_is_an_error_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(CallError) as caught:
        read(tmp_path / "missing.txt")
    message = str(caught.value)
    assert "missing.txt" in message and "path" in message and "read" in message
    with pytest.raises(CallError, match=r"missing\.txt"):
        append(tmp_path / "missing.txt", "x")


def test_an_input_that_a_task_will_make_need_not_exist(tmp_path: Path) -> None:
    write(tmp_path / "later", "x")
    assert read(tmp_path / "later").result() == "x"


def test_something_that_is_no_path_is_an_error_at_the_call() -> None:
    for wrong in (5, None, {"a"}, object()):
        with pytest.raises(TypeError, match="path"):
            write(wrong, "x")


def test_a_folder_cannot_be_written_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="directory"):
        write(tmp_path, "x")


@pytest.mark.parametrize("writer", [write, append])
def test_no_file_takes_the_place_of_what_is_none(tmp_path: Path, writer: Any) -> None:
    pipe, link, loop = tmp_path / "pipe", tmp_path / "link", tmp_path / "loop"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    loop.symlink_to(loop)
    for path in (pipe, link):
        with pytest.raises(CallError, match=r"names .*/pipe, which is no ordinary file but a pipe"):
            writer(path, "x")
    with pytest.raises(CallError, match="leads back to itself"):
        writer(loop, "x")
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link", "loop", "pipe"]


def test_a_folder_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises((OSError, penstock.PenstockError), match="no_such_folder"):
        wait_on(write(tmp_path / "no_such_folder" / "a", "x"))


# --- open_file and delete_file ------------------------------------------------------------------------------------


@KINDS
def test_open_file_waits_for_the_last_writer(tmp_path: Path, kind: Any) -> None:
    path = kind(tmp_path / "a")
    write(path, "1")
    append(path, "2")
    with open_file(path) as file:
        assert file.read() == "12"


@only_workers
def test_open_file_really_waits(tmp_path: Path, gate: Gate) -> None:
    import threading

    write_behind_gate(tmp_path / "a", "text", gate)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(open_file(tmp_path / "a").read()))
    reader.start()
    reader.join(0.05)
    assert reader.is_alive() and not found
    gate.open()
    reader.join(60)
    assert found == ["text"]


def test_open_file_of_an_ordinary_file_and_of_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("ü", encoding="utf-8")
    with open_file(tmp_path / "mine", encoding="utf-8") as file:
        assert file.read() == "ü"
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none")


def test_open_file_for_a_file_whose_writer_failed_raises(tmp_path: Path) -> None:
    write_half_and_fail(tmp_path / "a")
    with pytest.raises((OSError, penstock.TaskError), match="disk on fire"):
        open_file(tmp_path / "a")


def test_what_the_program_writes_with_open_file_reaches_the_next_task(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, "1")
    with open_file(path, "a") as file:
        file.write("2")
    assert read(path).result() == "12"


def test_delete_file_after_its_users(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, "1")
    reader = read(path)
    delete_file(path)
    assert not path.exists()
    assert reader.result() == "1"
    with pytest.raises(CallError, match="does not exist"):
        read(path)
    write(path, "again")
    assert read(path).result() == "again"


def test_delete_file_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        delete_file(tmp_path / "none")


def test_a_default_path_is_a_file_too(in_folder: Path) -> None:
    @task(path=FILE_OUT)
    def write_default(text: str, path: str = "default.txt") -> None:
        Path(path).write_text(text)

    write_default("d")
    assert read("default.txt").result() == "d"
    assert (in_folder / "default.txt").read_text() == "d"
