"""Storage layers: where files go, who finds them there, and what is left of it when the run is over."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.conftest import Script
from tests.behaviour.modes import only_workers
from tests.behaviour.storage_programs import (
    LITTLE,
    Turnstile,
    append,
    dump,
    files_below,
    layer,
    layer_of,
    pass_and_write,
    read,
    read_and_wait,
    run,
    where_it_wrote,
    write,
    write_plain,
)

import penstock
from penstock import (
    FILE_OUT,
    ConfigError,
    Permanent,
    Temp,
    Type,
    barrier,
    constraint,
    delete_file,
    io,
    open_file,
    task,
    wait_on,
)


def sized(size: Any) -> Any:
    """A task that asks for so much room; it tells where its file really went."""
    return constraint(storage_size=size)(io(task(path=FILE_OUT, returns=1)(dump)))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the program wants its files: on no layer."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def two(tmp_path: Path, home: Path) -> list[dict[str, Any]]:
    return [layer(tmp_path, "slow", 50), layer(tmp_path, "fast", 100)]


def expect_only(home: Path, **contents: str) -> None:
    """The run is over: these files bear their names, are real, and nothing is left on any layer."""
    assert {path.name: path.read_text() for path in home.iterdir()} == contents
    assert not any(path.is_symlink() for path in home.iterdir())
    assert files_below(*(path for path in home.parent.iterdir() if path.is_dir() and path != home)) == []


# --- order --------------------------------------------------------------------------------------------------------


def test_the_layer_with_the_most_bandwidth_is_the_first_in_whatever_order_they_are_described(
    mode: str, tmp_path: Path, home: Path
) -> None:
    described = [layer(tmp_path, "ssd", "2.7GB/s"), layer(tmp_path, "nvram", 6000), layer(tmp_path, "disk", 900)]
    for turn in range(3):
        with run(mode, storage=described[turn:] + described[:turn]):
            assert layer_of(where_it_wrote(home / f"{turn}").result(), tmp_path) == "nvram"


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_equal_layers_the_smaller_is_the_first(mode: str, tmp_path: Path, home: Path, turned: bool) -> None:
    described = [layer(tmp_path, "large", 100, capacity="20MB"), layer(tmp_path, "small", 100, capacity="10MB")]
    with run(mode, storage=described[::-1] if turned else described):
        assert layer_of(where_it_wrote(home / "a").result(), tmp_path) == "small"


def test_a_task_goes_where_there_is_bandwidth_and_room_for_it(mode: str, tmp_path: Path, home: Path) -> None:
    described = [
        layer(tmp_path, "nvram", 6000, capacity="1MB"),
        layer(tmp_path, "ssd", 2700, capacity="10MB"),
        layer(tmp_path, "disk", 900, capacity="100MB"),
    ]
    expected = {(1, 1): "nvram", (6000, 1): "nvram", (1, 2): "ssd", (2700, 10): "ssd", (900, 11): "disk"}
    with run(mode, storage=described):
        for number, ((bandwidth, size), name) in enumerate(expected.items()):
            function = constraint(storage_bw=bandwidth, storage_size=size)(io(task(path=FILE_OUT, returns=1)(dump)))
            path = home / f"{number}"
            assert layer_of(function(path, 10).result(), tmp_path) == name
            delete_file(path)


# --- redirection --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path], ids=["str", "Path"])
def test_a_task_writes_on_the_layer_and_sees_the_name_it_asked_for(
    mode: str, home: Path, tmp_path: Path, two: Any, kind: Any
) -> None:
    @constraint(**LITTLE)
    @io
    @task(path=FILE_OUT, returns=1)
    def look(path: Any) -> tuple[str, str, bool]:
        Path(path).write_text("seen")
        return os.path.basename(path), os.path.realpath(path), isinstance(path, Path)

    with run(mode, storage=two):
        name, place, is_path = look(kind(home / "result.txt")).result()
        assert name == "result.txt" and layer_of(place, tmp_path) == "fast" and is_path is (kind is Path)
    expect_only(home, **{"result.txt": "seen"})


def test_relative_names(mode: str, in_folder: Path, home: Path, two: Any) -> None:
    with run(mode, storage=two):
        write("home/a", "1")
        append(home / "a", "2")
        assert read("./home/../home/a").result() == "12"
    expect_only(home, a="12")


def test_files_of_one_name_in_two_folders(mode: str, home: Path, two: Any) -> None:
    (home / "one").mkdir()
    (home / "two").mkdir()
    with run(mode, storage=two):
        for name in ("one", "two"):
            write(home / name / "same", name)
        assert wait_on([read(home / name / "same") for name in ("one", "two")]) == ["one", "two"]
    assert [(home / name / "same").read_text() for name in ("one", "two")] == ["one", "two"]


def test_a_task_with_two_outputs(mode: str, home: Path, two: Any) -> None:
    @constraint(**LITTLE)
    @io
    @task(left=FILE_OUT, right=FILE_OUT)
    def split(text: str, left: Any, right: Any) -> None:
        Path(left).write_text(text[:2])
        Path(right).write_text(text[2:])

    with run(mode, storage=two):
        split("abcd", home / "l", home / "r")
        assert wait_on(read(home / "l"), read(home / "r")) == ["ab", "cd"]
    expect_only(home, l="ab", r="cd")


def test_odd_names_and_empty_files(mode: str, home: Path, two: Any) -> None:
    names = ["with space", "naïve-ü", "semi;colon", ".hidden", "a" * 200]
    with run(mode, storage=two):
        for name in names:
            write(home / name, "")
    expect_only(home, **dict.fromkeys(names, ""))


def test_a_file_whose_name_lies_on_the_layer_is_written_there(mode: str, tmp_path: Path, home: Path, two: Any) -> None:
    with run(mode, storage=two):
        place = where_it_wrote(tmp_path / "fast" / "result").result()
        assert layer_of(place, tmp_path) == "fast"
        barrier()
        assert not (tmp_path / "fast" / "result").is_symlink()
    assert files_below(tmp_path / "fast", tmp_path / "slow") == ["fast/result"]


def test_a_new_file_has_the_mode_an_ordinary_program_would_give_it(mode: str, home: Path, two: Any) -> None:
    (home / "plain").touch()
    with run(mode, storage=two):
        write(home / "a", "1")
        assert read(home / "a").result() == "1"
        assert (home / "a").stat().st_mode == (home / "plain").stat().st_mode
    assert (home / "a").stat().st_mode == (home / "plain").stat().st_mode


def test_only_tasks_that_state_what_they_need_are_placed(mode: str, home: Path, tmp_path: Path, two: Any) -> None:
    @io
    @task(path=FILE_OUT, returns=1)
    def save(path: Any) -> str:
        Path(path).touch()
        return os.path.realpath(path)

    with run(mode, storage=two):
        assert layer_of(save(home / "a").result(), tmp_path) == "home"
        write_plain(home / "b", "")
        barrier()
        assert not (home / "a").is_symlink() and not (home / "b").is_symlink()


# --- readers ------------------------------------------------------------------------------------------------------


def test_every_reader_finds_the_file_while_it_lies_on_the_layer(
    mode: str, home: Path, tmp_path: Path, two: Any
) -> None:
    path = home / "a"
    with run(mode, storage=two):
        write(path, "text")
        assert read(path).result() == "text"
        assert io(task(path=penstock.FILE_IN, returns=1)(read_text))(path).result() == "text"
        with open_file(path) as file:
            assert file.read() == "text"
        barrier()
        assert layer_of(path, tmp_path) == "fast"
        assert path.read_text() == "text" and path.is_file() and path.stat().st_size == 4
        assert sorted(os.listdir(home)) == ["a"]
        done = subprocess.run(["cat", path], capture_output=True, text=True, check=True)
        assert done.stdout == "text"
    expect_only(home, a="text")


def read_text(path: Any) -> str:
    return Path(path).read_text()


def test_a_reader_called_before_the_writer_is_done(mode: str, home: Path, two: Any) -> None:
    with run(mode, storage=two):
        for i in range(10):
            write(home / f"{i}", f"{i}")
        assert wait_on([read(home / f"{i}") for i in range(10)]) == [f"{i}" for i in range(10)]


def test_a_result_is_there_when_wait_on_returns(mode: str, home: Path, two: Any) -> None:
    with run(mode, storage=two):
        for i in range(10):
            wait_on(where_it_wrote(home / f"{i}"))
            assert (home / f"{i}").read_text() == "here"


@only_workers
def test_a_reader_of_the_old_version_keeps_it_while_a_new_one_is_written(
    mode: str, home: Path, tmp_path: Path, two: Any
) -> None:
    path = home / "a"
    with run(storage=two), Turnstile(tmp_path) as door:
        write(path, "old")
        slow = task(path=penstock.FILE_IN, returns=1)(read_and_wait)(path, door)
        door.arrivals(1)
        write(path, "new")
        assert read(path).result(60) == "new"
        append(path, "er")
        assert read(path).result(60) == "newer"
        door.let_go()
        assert slow.result(60) == ("old", "old")
    assert path.read_text() == "newer" and not path.is_symlink()
    assert files_below(tmp_path / "fast", tmp_path / "slow") == []


# --- updates and rewrites -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layered", [True, False])
def test_an_update_of_a_placed_file(mode: str, home: Path, two: Any, layered: bool) -> None:
    @task(path=penstock.FILE_INOUT)
    def append_plain(path: Any, text: str) -> None:
        with open(path, "a") as file:
            file.write(text)

    update = append if layered else append_plain
    with run(mode, storage=two):
        write(home / "a", "1")
        first = read(home / "a")
        update(home / "a", "2")
        update(home / "a", "3")
        assert wait_on(first, read(home / "a")) == ["1", "123"]
        barrier()
        assert (home / "a").read_text() == "123"
    expect_only(home, a="123")


def test_an_update_of_a_file_the_program_wrote(mode: str, home: Path, two: Any) -> None:
    (home / "a").write_text("0")
    (home / "a").chmod(0o640)
    with run(mode, storage=two):
        append(home / "a", "1")
        assert read(home / "a").result() == "01"
    expect_only(home, a="01")
    assert (home / "a").stat().st_mode & 0o777 == 0o640


def test_one_name_written_again_and_again(mode: str, home: Path, tmp_path: Path, two: Any) -> None:
    with run(mode, storage=two):
        seen = []
        for i in range(10):
            write(home / "a", f"{i}")
            seen.append(read(home / "a"))
        assert wait_on(seen) == [f"{i}" for i in range(10)]
        barrier()
        assert len([name for name in files_below(tmp_path / "fast") if name.endswith("/a")]) <= 1, "older versions go"
    expect_only(home, a="9")


def test_a_plain_task_rewrites_a_placed_file_and_the_other_way_round(mode: str, home: Path, two: Any) -> None:
    with run(mode, storage=two):
        write(home / "a", "layer")
        write_plain(home / "a", "plain")
        assert read(home / "a").result() == "plain"
        write_plain(home / "b", "plain")
        write(home / "b", "layer")
        assert read(home / "b").result() == "layer"
    expect_only(home, a="plain", b="layer")


def test_a_link_of_the_users_own_is_followed(mode: str, home: Path, two: Any) -> None:
    (home / "real").write_text("0")
    (home / "link").symlink_to("real")
    with run(mode, storage=two):
        write(home / "link", "1")
        assert read(home / "real").result() == "1"
        assert read(home / "link").result() == "1"
    assert os.readlink(home / "link") == "real"
    assert (home / "real").read_text() == "1" and not (home / "real").is_symlink()


def test_a_failing_writer_leaves_the_old_file_and_no_litter(mode: str, home: Path, tmp_path: Path, two: Any) -> None:
    @constraint(**LITTLE)
    @io
    @task(path=FILE_OUT)
    def write_half(path: Any) -> None:
        Path(path).write_text("half")
        raise ValueError("no more")

    (home / "a").write_text("precious")
    with run(mode, storage=two):
        for name in "ab":
            with pytest.raises(ValueError, match="no more"):
                write_half(home / name).result()
        assert [name for name in files_below(tmp_path / "fast") if name.endswith(("/a", "/b"))] == []
    expect_only(home, a="precious")


def test_a_task_that_does_not_write_its_file_is_an_error_that_names_both(mode: str, home: Path, two: Any) -> None:
    @constraint(**LITTLE)
    @io
    @task(path=FILE_OUT)
    def forget(path: Any) -> None:
        pass

    with run(mode, storage=two), pytest.raises(penstock.TaskError) as caught:
        forget(home / "promised.txt").result()
    assert "forget" in str(caught.value) and "promised.txt" in str(caught.value)
    expect_only(home)


def test_a_folder_that_does_not_exist_is_an_error_that_names_it(mode: str, home: Path, two: Any) -> None:
    with pytest.raises((OSError, penstock.PenstockError), match="no_such_folder"), run(mode, storage=two):
        wait_on(where_it_wrote(home / "no_such_folder" / "a"))
        barrier()
    expect_only(home)


# --- open_file and delete_file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "expected"), [("a", "12"), ("w", "2"), ("r+", "2")])
def test_a_file_opened_to_write_comes_home(mode: str, home: Path, two: Any, how: str, expected: str) -> None:
    path = home / "a"
    with run(mode, storage=two):
        write(path, "1")
        with open_file(path, how) as file:
            file.write("2")
        assert not path.is_symlink() and path.read_text() == expected
        assert read(path).result() == expected
        append(path, "3")
        assert read(path).result() == expected + "3"
    expect_only(home, a=expected + "3")


def test_a_file_opened_to_read_stays_where_it_is(mode: str, home: Path, tmp_path: Path, two: Any) -> None:
    with run(mode, storage=two):
        write(home / "a", "1")
        with open_file(home / "a") as file:
            assert file.read() == "1"
        assert layer_of(home / "a", tmp_path) == "fast"


def test_a_deleted_file_is_gone_from_its_layer_too(mode: str, home: Path, tmp_path: Path, two: Any) -> None:
    with run(mode, storage=two):
        write(home / "a", "1")
        reader = read(home / "a")
        delete_file(home / "a")
        assert reader.result() == "1"
        assert not os.path.lexists(home / "a")
        barrier()
        assert [name for name in files_below(tmp_path / "fast") if name.endswith("/a")] == []
        write(home / "a", "again")
        assert read(home / "a").result() == "again"
        delete_file(home / "a")
    expect_only(home)


# --- room ---------------------------------------------------------------------------------------------------------


def small(tmp_path: Path) -> list[dict[str, Any]]:
    """Layers on which two, then one file of 10 kB find room, and one that holds any."""
    return [
        layer(tmp_path, "fast", 100, capacity="20kB"),
        layer(tmp_path, "middle", 50, capacity="10kB"),
        layer(tmp_path, "slow", 10),
    ]


def test_a_full_layer_overflows_to_the_next(mode: str, home: Path, tmp_path: Path) -> None:
    function = sized("10kB")
    with run(mode, storage=small(tmp_path)):
        places = [layer_of(function(home / f"{i}", 10_000).result(), tmp_path) for i in range(5)]
        assert places == ["fast", "fast", "middle", "slow", "slow"]
        barrier()
        assert [len((home / f"{i}").read_bytes()) for i in range(5)] == [10_000] * 5
    expect_only(home, **{f"{i}": "d" * 10_000 for i in range(5)})


@only_workers
def test_room_is_taken_when_a_task_starts(mode: str, home: Path, tmp_path: Path) -> None:
    function = constraint(storage_size="10kB")(io(task(path=FILE_OUT, returns=1)(pass_and_write)))
    with run(storage=small(tmp_path)), Turnstile(tmp_path) as door:
        calls = [function(door, home / f"{i}") for i in range(4)]
        door.arrivals(4)
        door.let_go(4)
        assert wait_on(calls) == ["fast", "fast", "middle", "slow"]


def test_delete_file_frees_room(mode: str, home: Path, tmp_path: Path) -> None:
    function = sized("20kB")
    with run(mode, storage=small(tmp_path)):
        for i in range(4):
            assert layer_of(function(home / f"{i}", 20_000).result(), tmp_path) == "fast"
            delete_file(home / f"{i}")
        assert layer_of(function(home / "a", 20_000).result(), tmp_path) == "fast"
        assert layer_of(function(home / "b", 20_000).result(), tmp_path) == "slow"


def test_a_failed_attempt_gives_its_room_back(mode: str, home: Path, tmp_path: Path) -> None:
    @constraint(storage_size="20kB")
    @io
    @task(path=FILE_OUT)
    def write_and_fail(path: Any) -> None:
        Path(path).write_bytes(bytes(20_000))
        raise ValueError("no more")

    with run(mode, storage=small(tmp_path)):
        for _ in range(3):
            with pytest.raises(ValueError, match="no more"):
                write_and_fail(home / "a").result()
        assert layer_of(sized("20kB")(home / "a", 20_000).result(), tmp_path) == "fast"


def test_a_file_written_again_does_not_take_its_room_twice(mode: str, home: Path, tmp_path: Path) -> None:
    function = sized("10kB")
    with run(mode, storage=small(tmp_path)):
        for _ in range(6):
            assert layer_of(function(home / "a", 10_000).result(), tmp_path) == "fast"
            barrier()


def test_when_every_layer_is_full_producers_wait_until_files_have_moved_away(
    mode: str, home: Path, tmp_path: Path
) -> None:
    function = sized("10kB")
    with run(mode, storage=[layer(tmp_path, "fast", 100, capacity="20kB")]):
        for i in range(8):
            function(home / f"{i}", 10_000)
    expect_only(home, **{f"{i}": "d" * 10_000 for i in range(8)})


def test_a_device_that_says_it_is_full_is_taken_at_its_word(mode: str, home: Path, tmp_path: Path) -> None:
    """The attempt is repeated on the next layer, and that is not one of the task's own retries."""

    @constraint(**LITTLE)
    @io
    @task(path=FILE_OUT, returns=1, retries=0)
    def save(path: Any, mount: str, text: str) -> str:
        if os.path.realpath(path).startswith(mount):
            Path(path).write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        Path(path).write_text(text)
        return os.path.realpath(path)

    mount = os.path.realpath(tmp_path / "fast")
    with run(mode, storage=small(tmp_path)):
        places = [layer_of(save(home / f"{i}", mount, f"{i}").result(60), tmp_path) for i in range(3)]
        assert "fast" not in places
    expect_only(home, **{f"{i}": f"{i}" for i in range(3)})


# --- permanent and temporary --------------------------------------------------------------------------------------

TEMPORARY = {
    "call": FILE_OUT(temp=True),
    "temp": {Type: FILE_OUT, Temp: True},
    "permanent": {Type: FILE_OUT, Permanent: False},
}


@pytest.mark.parametrize("direction", TEMPORARY.values(), ids=TEMPORARY)
def test_a_temporary_file_serves_the_run_and_vanishes(
    mode: str, home: Path, tmp_path: Path, two: Any, direction: Any
) -> None:
    function = constraint(**LITTLE)(io(task(path=direction, returns=1)(dump)))
    with run(mode, storage=two):
        assert layer_of(function(home / "a", 5).result(), tmp_path) == "fast"
        assert read(home / "a").result() == "ddddd"
        with open_file(home / "a") as file:
            assert file.read() == "ddddd"
        write(home / "kept", "1")
    expect_only(home, kept="1")


@pytest.mark.parametrize("more", [{Temp: False}, {Permanent: True}, {}])
def test_a_permanent_file_stays(mode: str, home: Path, two: Any, more: Any) -> None:
    function = constraint(**LITTLE)(io(task(path={Type: FILE_OUT} | more, returns=1)(dump)))
    with run(mode, storage=two):
        function(home / "a", 5)
    expect_only(home, a="ddddd")


def test_temporary_and_permanent_outputs_of_one_task(mode: str, home: Path, two: Any) -> None:
    @constraint(**LITTLE)
    @io
    @task(scratch=FILE_OUT(temp=True), result=FILE_OUT)
    def both(scratch: Any, result: Any) -> None:
        Path(scratch).write_text("s")
        Path(result).write_text("r")

    with run(mode, storage=two):
        both(home / "scratch", home / "result")
        assert wait_on(read(home / "scratch"), read(home / "result")) == ["s", "r"]
    expect_only(home, result="r")


def test_permanent_and_temporary_at_once_is_refused() -> None:
    with pytest.raises(penstock.DefinitionError):
        task(path={Type: FILE_OUT, Temp: True, Permanent: True})(dump)


# --- descriptions -------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from pathlib import Path
from penstock import FILE_OUT, FILE_IN, barrier, constraint, io, task

@constraint(storageBW=40, storageSize=1)
@io
@task(path=FILE_OUT, returns=1)
def save(path, text):
    Path(path).write_text(text)
    return os.path.realpath(path)

@task(path=FILE_IN, returns=1)
def load(path):
    return Path(path).read_text()

print(os.path.relpath(save("a", "1").result()).split("/")[0])
print(load("a").result(), os.path.islink("a"))
if "fail" in sys.argv:
    raise SystemError("of the program")
if "exit" in sys.argv:
    sys.exit(3)
"""
TOML = """
[[resources.storage]]
name = "slow"
mount = "slow"
bandwidth = 50
[[resources.storage]]
name = "fast"
mount = "fast"
bandwidth = "0.1GB/s"
capacity = "10MB"
"""
XML = """
<ResourcesList>
  <ComputeNode Name="localhost">
    <Storage Name="slow"><Type>PFS</Type><Bandwidth>50</Bandwidth><MountPoint>slow</MountPoint></Storage>
    <Storage Name="fast"><Bandwidth>100</Bandwidth><MountPoint>fast</MountPoint><Capacity>10MB</Capacity></Storage>
  </ComputeNode>
</ResourcesList>
"""


def expect_the_program_worked(folder: Path, output: str, place: str) -> None:
    assert output.split()[:2] == [place, "1"], output
    assert (folder / "a").read_text() == "1" and not (folder / "a").is_symlink()
    assert files_below(folder / "fast", folder / "slow") == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("argument", "status"), [("", 0), ("fail", 1), ("exit", 3)])
def test_a_program_with_a_description_of_its_machine(script: Script, argument: str, status: int) -> None:
    """However it ends: what its tasks wrote is there, and it never said a word about stopping."""
    for name in ("fast", "slow"):
        (script.folder / name).mkdir()
    (script.folder / "penstock.toml").write_text(TOML)
    done = script(PROGRAM, argument, status=status)
    expect_the_program_worked(script.folder, done.stdout, "fast")
    assert "True" in done.stdout


def test_a_program_with_a_resources_file(tmp_path: Path) -> None:
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
    (tmp_path / "resources.xml").write_text(XML)
    (tmp_path / "app.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", "--resources", "resources.xml", "app.py"],
        cwd=tmp_path,
        env=os.environ | {"TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expect_the_program_worked(tmp_path, done.stdout, "fast")


def test_a_program_on_a_machine_nobody_described(script: Script) -> None:
    done = script(PROGRAM)
    assert done.stdout.split()[1] == "1"
    assert (script.folder / "a").read_text() == "1" and not (script.folder / "a").is_symlink()
    assert sorted(path.name for path in script.folder.iterdir()) == ["a", "app.py"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"mount": "/no/such/folder"}, "/no/such/folder"),
        ({"bandwidth": 0}, "bandwidth"),
        ({"bandwidth": "10MB"}, "bandwidth"),
        ({"capacity": -1}, "capacity"),
        ({"bandwith": 10}, "bandwith"),
        ({"curve": []}, "curve"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        run(storage=[layer(tmp_path, "ssd", 10) | wrong])


def test_two_layers_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ssd"):
        run(storage=[layer(tmp_path, "ssd", 10), layer(tmp_path, "ssd", 20)])


# --- emulated devices ---------------------------------------------------------------------------------------------


def test_an_emulated_device_is_as_slow_as_its_curve_says(mode: str, home: Path, tmp_path: Path) -> None:
    """Half a megabyte at two megabytes a second, by tasks that open files as ever; elsewhere they get plain ones."""

    @constraint(**LITTLE)
    @io
    @task(path=FILE_OUT, returns=2)
    def timed(path: Any) -> tuple[float, str]:
        import time

        begun = time.monotonic()
        with open(path, "wb") as file:
            file.write(b"d" * 500_000)
        return time.monotonic() - begun, type(file.raw).__module__

    with run(mode, storage=[layer(tmp_path, "fast", 100, curve=[[1, "2MB/s"], [4, 2]])]):
        slowed, paced = wait_on(timed(home / "a"))
    with run(mode, storage=[layer(tmp_path, "fast", 100)]):
        _, plain = wait_on(timed(home / "b"))
    assert slowed > 0.22
    assert paced != plain == "_io"
    expect_only(home, a="d" * 500_000, b="d" * 500_000)


def test_files_on_an_emulated_device_are_read_and_moved_like_any_other(mode: str, home: Path, tmp_path: Path) -> None:
    emulated = layer(tmp_path, "fast", 100, capacity="20kB", curve=[[1, 100], [4, "400MB/s"], [16, 50]])
    with run(mode, storage=[emulated, layer(tmp_path, "slow", 50)]):
        function = sized("10kB")
        places = [layer_of(function(home / f"{i}", 10_000).result(), tmp_path) for i in range(3)]
        assert places == ["fast", "fast", "slow"]
        assert wait_on([read(home / f"{i}") for i in range(3)]) == ["d" * 10_000] * 3
        append(home / "0", "x")
        with open_file(home / "1", "a") as file:
            file.write("y")
        temp = constraint(**LITTLE)(io(task(path=FILE_OUT(temp=True), returns=1)(dump)))
        temp(home / "temp", 10)
    expect_only(home, **{"0": "d" * 10_000 + "x", "1": "d" * 10_000 + "y", "2": "d" * 10_000})
