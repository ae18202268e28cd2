"""`penstock recover` after runs that were killed: everything comes home, nothing is lost, what lives is let alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.layers import assert_home, folder_in_memory, names_in, remains, small_disk
from tests.faults.programs import Program, gone, surroundings
from tests.faults.storage_tasks import content
from tests.own_place import memory_dir

from penstock.executors.disposable import sweep

pytestmark = pytest.mark.timeout(180)

FILES = 3

SOURCE = """
from pathlib import Path
from tests.faults.storage_tasks import write, write_temp

home = {home!r}
penstock.start(cpus=2, tuning="off", mode={mode!r}, storage=[
    {{"name": "fast", "mount": {layer!r}, "bandwidth": "100MB/s", "capacity": "1MB"}}])

def wait_in_the_copy():
    # The first file on its way home is copied, and has not got its name, for as long as there is no file "go".
    real = os.fsync
    def fsync(descriptor):
        os.fsync = real
        arrive("copied")
        while not os.path.exists({folder!r} + "/go"):
            time.sleep(0.01)
        real(descriptor)
    os.fsync = fsync

futures = [write(home + f"/{{number}}", number) for number in range({files})]
futures.append(write_temp(home + "/temp", 9))
penstock.wait(futures)
penstock.barrier()
"""
IN_THE_RUN = "arrive('written')\nsignal.pause()\n"
IN_THE_DRAIN = "wait_in_the_copy()\npenstock.stop()\n"


class Place:
    """Where programs work: their home, their layer, and the user's cache."""

    def __init__(self, folder: Path, layer: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.layer = layer
        self.environ = {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200", "TERM": "dumb"}
        self.programs = 0

    def program(self, ending: str, mode: str = "parallel") -> Program:
        self.programs += 1
        folder = self.folder / f"program-{self.programs}"
        folder.mkdir()
        values = {"home": str(self.home), "layer": str(self.layer), "folder": str(self.folder)}
        source = SOURCE.format(**values, mode=mode, files=FILES) if "SOURCE" not in ending else ""
        return Program(folder, source + ending.replace("SOURCE", ""), self.environ)

    def kill(self, ending: str, mode: str = "parallel") -> None:
        """Have a program killed."""
        with self.program(ending, mode) as program:
            program.arrival()
            family = program.family()
            program.signal(signal.SIGKILL)
            program.ends()
            if mode == "inline":  # there is no guardian: the next run removes what is left
                sweep([str(memory_dir())])
            gone(family, program)

    def penstock(self, *arguments: str, status: int = 0) -> str:
        done = self.run(*arguments)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli", *arguments],
            cwd=self.home,
            env=surroundings(**self.environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def traces(self) -> list[str]:
        folder = self.folder / "cache" / "penstock" / "layers"
        return sorted(os.listdir(folder)) if folder.exists() else []

    def assert_all_home(self) -> None:
        """Every file is home, and nothing else is anywhere."""
        assert names_in(self.home) == [str(number) for number in range(FILES)]
        for number in range(FILES):
            assert_home(self.home / f"{number}", number)
        assert remains(self.layer) == []
        assert self.traces() == []


def lasting_names(home: Path) -> list[str]:
    """The names of files that are not temporary: those go at any moment of the end."""
    return [name for name in names_in(home) if name != "temp"]


def files_on(mount: Path) -> list[str]:
    """What lies on a layer, but for the table of the programs that share it, which comes and goes with use."""
    return [path for path in remains(mount) if not Path(path).name.startswith(".penstock-u")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with folder_in_memory() as layer:
        yield Place(tmp_path, layer)


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_a_run_that_was_killed_is_brought_home(place: Place, mode: str) -> None:
    place.kill(IN_THE_RUN, mode)
    assert all((place.home / f"{number}").is_symlink() for number in range(FILES))
    told = place.penstock("recover")
    for number in range(FILES):
        assert f"home     {place.home}/{number}  (1 kB from {place.layer})" in told
    assert f"removed  {place.home}/temp  (the name of a temporary file that is gone)" in told
    assert place.penstock("recover") == "nothing to recover\n"
    place.assert_all_home()


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_a_run_that_was_killed_on_the_way_home_leaves_no_hidden_copy(place: Place, mode: str) -> None:
    place.kill(IN_THE_DRAIN, mode)
    hidden = [name for name in names_in(place.home) if name.startswith(".penstock-")]
    assert len(hidden) == 1
    told = place.penstock("recover", str(place.folder))
    assert f"removed  {place.home / hidden[0]}  (a copy that was not finished)" in told
    place.assert_all_home()


DELIVERY = """
import os, sys, threading
from penstock.streaming import drain
os.fsync = lambda descriptor: print("copied", flush=True) or threading.Event().wait()
one = drain.Drain(sys.argv[1], sys.argv[2], lambda name, size: None)
one.submit("a")
one.finish()
"""


def test_a_workflow_that_was_killed_while_it_delivered_leaves_no_hidden_copy(place: Place, tmp_path: Path) -> None:
    (place.layer / "a").write_bytes(content(1))
    command = [sys.executable, "-c", DELIVERY, str(place.layer), str(place.home)]
    with subprocess.Popen(command, env=surroundings(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "copied\n"
        [hidden] = names_in(place.home)
        assert place.penstock("recover") == "nothing to recover\n"
        process.kill()
    assert f"removed  {place.home / hidden}  (a copy that was not finished)" in place.penstock("recover")
    assert names_in(place.home) == []


def test_names_are_found_from_wherever_it_is_asked(place: Place, tmp_path: Path) -> None:
    place.kill(IN_THE_DRAIN)
    (tmp_path / "elsewhere").mkdir()
    place.penstock("recover", str(tmp_path / "elsewhere"))
    place.assert_all_home()


@pytest.mark.parametrize("mode", ["parallel", "inline"])
@pytest.mark.parametrize("ending", [IN_THE_RUN, IN_THE_DRAIN], ids=["in the run", "on the way home"])
def test_what_a_living_run_uses_is_not_touched(place: Place, ending: str, mode: str) -> None:
    with place.program(ending, mode) as program:
        program.arrival()
        before = lasting_names(place.home), files_on(place.layer)
        assert place.penstock("recover") == "nothing to recover\n"
        assert (lasting_names(place.home), files_on(place.layer)) == before
        assert "leftover" not in place.penstock("doctor")
        (place.folder / "go").touch()
        if ending == IN_THE_RUN:
            program.interrupt_group()
        program.ends()
        gone([], program)
    place.assert_all_home()


def test_the_doctor_and_the_next_run_point_there_until_it_is_done(place: Place) -> None:
    place.kill(IN_THE_RUN)
    told = place.penstock("doctor")
    assert f"! leftover       {place.layer}/penstock-" in told
    assert "`penstock recover` brings home what is in it" in told
    hint = f"penstock: an earlier run has left 3 files (3 kB) on {place.layer}: `penstock recover` brings home"
    with place.program("") as program:
        assert program.ends()[2].count(hint) == 1
    script = place.folder / f"program-{place.programs}" / "app.py"
    done = place.run("run", "--no-log", str(script))
    assert (done.returncode, done.stderr.count(hint)) == (0, 1), done.stderr
    place.penstock("recover")
    assert "leftover" not in place.penstock("doctor")
    with place.program("") as program:
        status, _, errors = program.ends()
        assert (status, errors) == (0, "")


def test_a_name_that_is_another_file_now_is_not_overwritten(place: Place) -> None:
    place.kill(IN_THE_RUN)
    mine = place.home / "1"
    mine.unlink()
    mine.write_text("mine, and newer")
    for _ in range(2):
        told = place.penstock("recover", status=1)
        assert f"{mine} is another file now, and stays" in told
        assert mine.read_text() == "mine, and newer"
    kept = [Path(path) for path in remains(place.layer) if Path(path).name == "1"]
    assert [path.read_bytes() for path in kept] == [content(1)]
    assert_home(place.home / "0", 0)
    mine.unlink()
    place.penstock("recover")
    place.assert_all_home()


def test_what_the_next_run_has_written_anew_may_be_dropped(place: Place) -> None:
    place.kill(IN_THE_RUN)
    for number in range(FILES):
        (place.home / f"{number}").unlink()
        (place.home / f"{number}").write_bytes(content(number + 10))
    os.utime(place.home / "0", (1, 1))
    told = place.penstock("recover", "--drop-replaced", status=1)
    assert f"{place.home}/0 is another file now, and stays" in told
    assert [Path(path).name for path in remains(place.layer) if "/kept/" in path and Path(path).is_file()] == ["0"]
    for number in range(FILES):
        assert_home(place.home / f"{number}", number + 10)


def test_names_that_the_program_has_changed_are_found(place: Place) -> None:
    place.kill(IN_THE_RUN)
    (place.home / "deep").mkdir()
    (place.home / "0").rename(place.home / "deep" / "zero")
    (place.home / "1").rename(place.home / "one")
    os.link(place.home / "2", place.home / "two", follow_symlinks=False)
    place.penstock("recover")
    assert_home(place.home / "deep" / "zero", 0)
    assert_home(place.home / "one", 1)
    assert_home(place.home / "2", 2)
    assert os.path.samefile(place.home / "2", place.home / "two")
    assert not (place.home / "two").is_symlink()
    assert remains(place.layer) == []


def test_where_there_is_no_room_it_stays_and_is_named(place: Place, tmp_path: Path) -> None:
    with small_disk(place.home, size="64k"):
        place.kill("SOURCE" + SOURCE_LARGE.format(home=str(place.home), layer=str(place.layer)))
        told = place.penstock("recover", status=1)
        assert f"{place.home}/large cannot be written: No space left on device" in told
        assert names_in(place.home) == ["large"]
        assert (place.home / "large").read_bytes() == content(7, 500_000)


SOURCE_LARGE = """
from tests.faults.storage_tasks import write
penstock.start(cpus=1, tuning="off", storage=[
    {{"name": "fast", "mount": {layer!r}, "bandwidth": "100MB/s", "capacity": "1MB"}}])
write({home!r} + "/large", 7, 500_000).result()
arrive("written")
signal.pause()
"""


START = """SOURCE
from tests.faults.storage_tasks import write
from penstock import constraint, io
home = {home!r}
runtime = penstock.start(cpus=1, tuning="off", storage=[
    {{"name": "fast", "mount": {layer!r}, "bandwidth": "100MB/s", "capacity": "1MB"}}])
"""


def test_files_of_a_killed_run_take_room_until_they_are_home(place: Place) -> None:
    """The layer has room for 1 MB, and 900 kB of it are taken."""
    start = START.format(layer=str(place.layer), home=str(place.home))
    show = start + "print(runtime.layers[0].capacity, runtime.layers[0].taken)\n"
    place.kill(start + "write(home + '/large', 7, 900_000).result()\narrive('written')\nsignal.pause()\n")
    with place.program(show) as program:
        assert program.ends()[1].strip() == "1000000 900000"
    place.penstock("recover")
    with place.program(show) as program:
        assert program.ends()[1].strip() == "1000000 0"


def test_a_run_that_waits_for_room_notices_that_they_are_home(place: Place) -> None:
    start = START.format(layer=str(place.layer), home=str(place.home))
    place.kill(start + "write(home + '/large', 7, 900_000).result()\narrive('written')\nsignal.pause()\n")
    wait = f"""
@constraint(storage_size="500kB")
@io
@task(path=FILE_OUT)
def fill(path):
    open(path, "wb").write(bytes(500_000))

arrive("started")
while not os.path.exists({str(place.folder / "go")!r}):
    time.sleep(0.01)
fill(home + "/more").result()
"""
    with place.program(start + wait) as program:
        program.arrival()
        place.penstock("recover")
        (place.folder / "go").touch()
        status, _, errors = program.ends()
        assert status == 0, errors
    assert (place.home / "more").stat().st_size == 500_000


def test_a_layer_that_is_not_there_is_named(place: Place) -> None:
    place.kill(IN_THE_RUN)
    aside = place.layer.with_name("aside")
    place.layer.rename(aside)
    try:
        told = place.penstock("recover", status=1)
        assert f"left     {place.home}/0: it leads to the storage layer {place.layer}, which is not there" in told
        assert f"{place.layer}, a layer that a run used, is not there" in place.penstock("doctor")
    finally:
        aside.rename(place.layer)
    place.penstock("recover")
    place.assert_all_home()


def test_two_at_a_time_do_no_harm(place: Place) -> None:
    place.kill(IN_THE_DRAIN)
    command = [sys.executable, "-m", "penstock.cli", "recover"]
    both = [subprocess.Popen(command, cwd=place.home, env=surroundings(**place.environ)) for _ in range(2)]
    for one in both:
        one.wait(60)
    place.assert_all_home()
