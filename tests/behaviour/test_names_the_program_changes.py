"""A file on a storage layer whose name, a link until the end, the program itself removes, renames or replaces."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import only_workers
from tests.behaviour.storage_programs import append, files_below, layer, read, run, write, write_plain

import penstock
from penstock import DIRECTORY_INOUT, FILE_OUT, barrier, constraint, delete_file, io, open_file, task
from penstock.runtime import housekeeping
from penstock.runtime.file_access import bring_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the program wants its files: on no layer."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def fast(tmp_path: Path) -> list[dict[str, Any]]:
    return [layer(tmp_path, "fast", 100)]


def contents(home: Path) -> dict[str, str]:
    """What the run has left under the names of files; none of them is a link."""
    assert not any(path.is_symlink() for path in home.iterdir())
    return {path.name: path.read_text() for path in home.iterdir()}


def kept_on(layers: list[dict[str, Any]]) -> list[str]:
    """What the files contain that the run has left on a layer."""
    found = [path for one in layers for path in sorted(Path(one["mount"]).rglob("kept/**/*"))]
    return [path.read_text() for path in found if path.is_file()]


def replace(path: Path, text: str) -> None:
    """What careful programs do to change a file."""
    new = path.with_name("new")
    new.write_text(text)
    os.replace(new, path)


def save(path: Path, text: str) -> None:
    """Have a task write a file on the layer, and wait for it."""
    write(path, text)
    barrier()
    assert path.is_symlink()


@task(folder=DIRECTORY_INOUT)
def grow(folder: Any) -> None:
    with open(os.path.join(folder, "lines"), "a") as file:
        file.write("x")


# --- replaced -----------------------------------------------------------------------------------------------------


def test_what_the_program_puts_under_the_name_stays(
    mode: str, home: Path, fast: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        replace(home / "a", "program")
    assert contents(home) == {"a": "program"}
    assert kept_on(fast) == ["task"]
    [line] = [line for line in capsys.readouterr().err.splitlines() if str(home / "a") in line]
    assert line.startswith("penstock: ") and str(fast[0]["mount"]) in line


def test_tasks_find_what_the_program_put_there(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        replace(home / "a", "program")
        assert read(home / "a").result() == "program"
        append(home / "a", "+task")
        assert read(home / "a").result() == "program+task"
    assert contents(home) == {"a": "program+task"}


def test_the_program_writes_again_what_it_removed(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        (home / "a").unlink()
        (home / "a").write_text("program")
        with open_file(home / "a", "a") as file:
            file.write("+more")
        assert read(home / "a").result() == "program+more"
    assert contents(home) == {"a": "program+more"}


@only_workers
def test_a_file_that_is_replaced_while_it_is_moved_home(
    mode: str, home: Path, fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    relocate = housekeeping.relocate

    def replace_meanwhile(source: str, target: str, name: str, progress: Any, **options: Any) -> None:
        def copied(size: int) -> None:
            progress(size)
            if Path(name).is_symlink():
                replace(Path(name), "program")

        relocate(source, target, name, copied, **options)

    monkeypatch.setattr(housekeeping, "relocate", replace_meanwhile)
    with run(mode, storage=fast):
        save(home / "a", "task")
    assert contents(home) == {"a": "program"}
    assert kept_on(fast) == ["task"]


# --- removed ------------------------------------------------------------------------------------------------------


def test_a_file_that_the_program_removes_does_not_come_back(
    mode: str, home: Path, fast: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        os.remove(home / "a")
    assert contents(home) == {}
    assert kept_on(fast) == ["task"]
    assert str(home / "a") in capsys.readouterr().err


def test_a_removed_file_is_no_argument(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        os.remove(home / "a")
        with pytest.raises(penstock.CallError, match="does not exist"):
            read(home / "a")
        write(home / "a", "again")
        assert read(home / "a").result() == "again"
    assert contents(home) == {"a": "again"}


def test_many_removed_files_are_one_line(mode: str, home: Path, fast: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with run(mode, storage=fast):
        for name in "abcde":
            write(home / name, name)
        barrier()
        for name in "abcde":
            os.remove(home / name)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "penstock" in line]
    assert "5 files" in line
    assert kept_on(fast) == list("abcde")


def test_a_temporary_file_that_the_program_removes_is_gone(
    mode: str, home: Path, fast: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    @constraint(storage_bw="1kB/s")
    @io
    @task(path=FILE_OUT(temp=True))
    def stage(path: Any) -> None:
        Path(path).write_text("stage")

    with run(mode, storage=fast):
        stage(home / "a")
        barrier()
        os.remove(home / "a")
        with pytest.raises(penstock.CallError, match="does not exist"):
            read(home / "a")
    assert contents(home) == {} and files_below(Path(fast[0]["mount"])) == []
    assert capsys.readouterr().err == ""


def test_a_file_that_moves_just_when_delete_file_has_removed_its_name_is_gone(
    mode: str, home: Path, fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run(mode, storage=fast) as runtime:
        save(home / "a", "task")
        remove = runtime.files.remove

        def remove_and_move(path: Any) -> None:
            remove(path)
            with contextlib.suppress(penstock.PenstockError):  # it cannot be moved any more
                bring_home(runtime, str(path))

        monkeypatch.setattr(runtime.files, "remove", remove_and_move)
        delete_file(home / "a")
    assert contents(home) == {} and kept_on(fast) == []


# --- renamed ------------------------------------------------------------------------------------------------------


def test_a_renamed_file_comes_home_under_its_new_name(
    mode: str, home: Path, fast: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with run(mode, storage=fast):
        save(home / "a.part", "task")
        os.rename(home / "a.part", home / "a")
    assert contents(home) == {"a": "task"}
    assert kept_on(fast) == [] and capsys.readouterr().err == ""


def test_tasks_read_and_change_a_renamed_file(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        save(home / "a.part", "task")
        os.rename(home / "a.part", home / "a")
        assert read(home / "a").result() == "task"
        append(home / "a", "+more")
        assert read(home / "a").result() == "task+more"
    assert contents(home) == {"a": "task+more"}
    assert kept_on(fast) == []


@pytest.mark.parametrize("again", [write, write_plain])
def test_a_name_that_is_written_again_after_its_file_was_renamed(mode: str, home: Path, fast: Any, again: Any) -> None:
    with run(mode, storage=fast):
        for turn in range(3):
            again(home / "log", f"{turn}")
            barrier()
            os.rename(home / "log", home / f"log.{turn}")
        again(home / "log", "last")
    assert contents(home) == {"log.0": "0", "log.1": "1", "log.2": "2", "log": "last"}
    assert kept_on(fast) == []


def test_a_file_that_is_renamed_over_another(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        write(home / "a", "old")
        save(home / "a.new", "new")
        os.replace(home / "a.new", home / "a")
        assert read(home / "a").result() == "new"
    assert contents(home) == {"a": "new"}
    assert kept_on(fast) == ["old"]


def test_deleting_a_name_that_was_written_again_leaves_the_renamed_file(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        os.rename(home / "a", home / "b")
        (home / "a").write_text("program")
        delete_file(home / "a")
        assert not (home / "a").exists()
    assert contents(home) == {"b": "task"}


def test_a_file_renamed_to_another_folder_is_kept(
    mode: str, home: Path, fast: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (home.parent / "elsewhere").mkdir()
    with run(mode, storage=fast):
        save(home / "a", "task")
        os.rename(home / "a", home.parent / "elsewhere" / "a")
    assert (home.parent / "elsewhere" / "a").read_text() == "task"
    assert str(home / "a") in capsys.readouterr().err


@only_workers
def test_a_renamed_file_is_moved_to_a_lower_layer(mode: str, home: Path, tmp_path: Path) -> None:
    layers = [layer(tmp_path, "fast", 100, capacity="1MB"), layer(tmp_path, "slow", 50)]
    dump = constraint(storage_size="600kB")(io(task(path=FILE_OUT)(_dump)))
    with run(mode, storage=layers, data_movement=True):
        dump(home / "a.part")
        barrier()
        os.rename(home / "a.part", home / "a")
        dump(home / "b")
        barrier()
        assert (home / "a").stat().st_size == 500_000
    assert sorted(path.name for path in home.iterdir()) == ["a", "b"]
    assert not (home / "a").is_symlink() and kept_on(layers) == []


def _dump(path: Any) -> None:
    Path(path).write_bytes(bytes(500_000))


# --- linked -------------------------------------------------------------------------------------------------------


def test_a_second_name_stays(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        os.link(home / "a", home / "b", follow_symlinks=False)
    assert contents(home) == {"a": "task", "b": "task"}
    assert kept_on(fast) == []


def test_a_second_name_is_what_is_left_of_a_replaced_file(mode: str, home: Path, fast: Any) -> None:
    with run(mode, storage=fast):
        save(home / "a", "task")
        os.link(home / "a", home / "backup", follow_symlinks=False)
        replace(home / "a", "program")
        assert read(home / "a").result() == "program"
    assert contents(home) == {"a": "program", "backup": "task"}


@pytest.mark.parametrize("through", ["latest", "latest of latest"])
def test_a_link_to_the_name_is_the_same_file(mode: str, home: Path, fast: Any, through: str) -> None:
    (home / "latest of latest").symlink_to("latest")
    with run(mode, storage=fast):
        save(home / "a", "one")
        (home / "latest").symlink_to("a")
        append(home / "a", "+two")
        append(home / through, "+three")
        assert read(home / "a").result() == read(home / through).result() == "one+two+three"
        append(home / "a", "+four")
        assert read(home / through).result() == "one+two+three+four"
    assert (home / "a").read_text() == (home / through).read_text() == "one+two+three+four"
    assert os.readlink(home / "latest") == "a" and kept_on(fast) == []


@pytest.mark.parametrize("target", ["data/", "data/.", "data/inner/..", "../home/data"])
def test_a_link_to_a_folder_is_that_folder_however_it_is_spelt(mode: str, home: Path, fast: Any, target: str) -> None:
    (home / "data" / "inner").mkdir(parents=True)
    (home / "link").symlink_to(target)
    with run(mode, storage=fast):
        grow(home / "data")
        grow(home / "link")
        grow(home / "data")
    assert (home / "data" / "lines").read_text() == "xxx" and (home / "link").is_symlink()


def test_a_link_that_leads_back_to_itself_is_an_error_that_says_so(mode: str, home: Path, fast: Any) -> None:
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")
    with run(mode, storage=fast), pytest.raises(penstock.CallError, match="leads back to itself"):
        write(home / "a", "task")
