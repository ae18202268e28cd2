"""The main program ends while files are on layers or on their way home: complete, under their names, whatever ends it.

Programs run as processes of their own. Their layer is in shared memory, so that a copy home really is one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.layers import assert_home, folder_in_memory, names_in, remains
from tests.faults.programs import Program, gone
from tests.faults.storage_tasks import content
from tests.own_place import memory_dir

from penstock.cli import launch
from penstock.executors.disposable import sweep
from penstock.runtime import late_signals

FILES = 3

SOURCE = """
from pathlib import Path
from tests.faults.storage_tasks import hold_half, read, write, write_temp
from penstock import FILE_IN
from penstock.runtime import housekeeping

home, notes = {home!r}, {notes!r}
penstock.start(cpus=2, tuning="off", mode={mode!r}, storage=[
    {{"name": "fast", "mount": {layer!r}, "bandwidth": "100MB/s", "capacity": "1GB"}}])

@task(path=FILE_IN)
def read_for_ever(path):
    arrive("reading")
    signal.pause()

def moves_until_interrupted(at, number=signal.SIGINT):
    # The {{at}}-th file says that it is under way, and is that until Ctrl-C (or another signal) has come.
    interrupted, interrupt = threading.Event(), signal.getsignal(number)
    def note(*args):
        interrupted.set()
        interrupt(*args)
    signal.signal(number, note)
    moves, real = [], housekeeping.relocate
    def relocate(*args, **kwargs):
        moves.append(args)
        if len(moves) == at:
            arrive("moving")
            while not interrupted.wait(0.1):  # inline, this is in the main thread, which is to notice
                pass
        real(*args, **kwargs)
    housekeeping.relocate = relocate

futures = [write(home + f"/{{number}}", number) for number in range({files})]
futures.append(write_temp(home + "/temp", 9))
penstock.wait(futures)
penstock.barrier()
"""


class Place:
    """Where a program works: its home and its layer."""

    def __init__(self, folder: Path, layer: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.layer = layer

    def program(self, ending: str, mode: str = "parallel", *, interpreter: tuple[str, ...] = ()) -> Program:
        values = {"home": str(self.home), "layer": str(self.layer), "notes": str(self.folder / "notes")}
        source = SOURCE.format(**values, mode=mode, files=FILES) + ending
        return Program(self.folder, source, interpreter=interpreter)

    def assert_all_home(self) -> None:
        """Every file is home, and nothing else is anywhere."""
        assert names_in(self.home) == [str(number) for number in range(FILES)]
        for number in range(FILES):
            assert_home(self.home / f"{number}", number)
        assert remains(self.layer) == []

    def assert_home_or_linked(self) -> list[str]:
        """Every file is complete under its name; those that are links, by name."""
        linked = []
        for number in range(FILES):
            path = self.home / f"{number}"
            assert path.read_bytes() == content(number)
            if path.is_symlink():
                linked.append(path.name)
                assert Path(os.readlink(path)).is_relative_to(self.layer)
        kept = [Path(path).name for path in remains(self.layer) if "/kept/" in path and Path(path).is_file()]
        assert set(linked) <= set(kept)
        return linked


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with folder_in_memory() as layer:
        yield Place(tmp_path, layer)


# --- during the run -----------------------------------------------------------------------------------------------

READING = """
read_for_ever(home + "/0")
barrier()
"""
WRITING = """
class Here:
    def hold(self):
        arrive("writing")
        signal.pause()

hold_half(home + "/half", 5, notes, Here())
barrier()
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("during", [READING, WRITING], ids=["reading", "writing"])
def test_ctrl_c_brings_finished_files_home(place: Place, during: str) -> None:
    with place.program(during) as program:
        program.arrival()
        family = program.family()
        program.interrupt_group()
        status, _, errors = program.ends()
        assert status in (130, 1, -signal.SIGINT)
        assert "nterrupt" in errors
        gone(family, program)
    place.assert_all_home()


def test_exception_in_the_main_program_brings_finished_files_home(place: Place) -> None:
    ending = """
read_for_ever(home + "/0")
arrive("raising")
raise ValueError("of the program's own")
"""
    with place.program(ending) as program:
        program.arrival()
        family = program.family()
        status, _, errors = program.ends()
        assert status == 1
        assert "of the program's own" in errors
        gone(family, program)
    place.assert_all_home()


def test_exit_of_the_main_program_brings_finished_files_home(place: Place) -> None:
    with place.program("sys.exit(7)") as program:
        status, _, errors = program.ends()
        assert status == 7, errors
        gone([], program)
    place.assert_all_home()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("during", [READING, WRITING], ids=["reading", "writing"])
def test_signal_that_ends_the_program_leaves_every_file_home_or_linked(
    place: Place, number: signal.Signals, during: str
) -> None:
    with place.program(during) as program:
        program.arrival()
        family = program.family()
        program.signal(number)
        status, _, _ = program.ends()
        assert status == -number
        gone(family, program)
    place.assert_home_or_linked()
    assert not (place.home / "half").exists()
    assert [path for path in remains(place.layer) if "/work/" in path] == []
    assert not [path for path in remains(place.layer) if Path(path).name in ("half", "temp")]


def test_next_run_reads_and_replaces_what_a_killed_one_left(place: Place, tmp_path: Path) -> None:
    with place.program(READING) as program:
        program.arrival()
        program.signal(signal.SIGKILL)
        program.ends()
    assert place.assert_home_or_linked()
    again = tmp_path / "again"
    again.mkdir()
    source = f"""
from tests.faults.storage_tasks import content, read, write
home = {str(place.home)!r}
penstock.start(cpus=1, tuning="off", storage=[
    {{"name": "fast", "mount": {str(place.layer)!r}, "bandwidth": "100MB/s", "capacity": "1GB"}}])
assert read(home + "/0").result() == content(0)
write(home + "/1", 11)
assert read(home + "/1").result() == content(11)
"""
    with Program(again, source) as program:
        status, _, errors = program.ends()
        assert status == 0, errors
    assert (place.home / "0").read_bytes() == content(0)
    assert_home(place.home / "1", 11)
    assert (place.home / "2").read_bytes() == content(2)


# --- on the way home ----------------------------------------------------------------------------------------------

AT_ITS_END = "moves_until_interrupted({at})\n"
IN_STOP = "moves_until_interrupted({at})\npenstock.stop()\n"
IN_A_TRY = "moves_until_interrupted({at})\ntry:\n    penstock.stop()\nfinally:\n    print('went on')\n"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(
    ("mode", "ending"),
    [("parallel", AT_ITS_END), ("parallel", IN_STOP), ("parallel", IN_A_TRY), ("inline", AT_ITS_END)],
    ids=["at its end", "in stop", "in a try", "inline"],
)
def test_ctrl_c_on_the_way_home_ends_soon_and_loses_nothing(place: Place, mode: str, ending: str, at: int) -> None:
    with place.program(ending.format(at=at), mode) as program:
        assert program.arrival() == "moving"
        family = program.family()
        program.interrupt_group()
        status, _, errors = program.ends()
        assert status in (130, 1, -signal.SIGINT)
        assert "nterrupt" in errors
        gone(family, program)
    linked = place.assert_home_or_linked()
    assert names_in(place.home) == [str(number) for number in range(FILES)]  # and nothing half-copied
    kept = [Path(path).name for path in remains(place.layer) if "/kept/" in path and Path(path).is_file()]
    assert sorted(kept) == sorted(linked)
    if linked:
        assert str(place.layer) in errors or any(str(place.home / name) in errors for name in linked), errors


def test_ctrl_c_twice_on_the_way_home_loses_nothing(place: Place) -> None:
    with place.program(AT_ITS_END.format(at=1)) as program:
        assert program.arrival() == "moving"
        program.interrupt_group()
        program.interrupt_group()
        status, _, _ = program.ends()
        assert status != 0
        gone([], program)
    place.assert_home_or_linked()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_signal_on_the_way_home_leaves_every_file_home_or_linked(
    place: Place, number: signal.Signals, mode: str
) -> None:
    with place.program(AT_ITS_END.format(at=2), mode) as program:
        assert program.arrival() == "moving"
        family = program.family()
        program.signal(number)
        status, _, _ = program.ends()
        assert status == -number
        if mode == "inline":  # there is no guardian: the next run removes what is left
            sweep([str(memory_dir())])
        gone(family, program)
    assert len(place.assert_home_or_linked()) == FILES - 1


COMMAND = ("-c", "import sys; sys.argv[0] = 'penstock'; from penstock.cli import main; sys.exit(main())", "run")
#: however long this machine stands still between two signals, they are one request
TERMINATED = """
from penstock.cli import launch
launch._ONE_REQUEST = float("inf")
moves_until_interrupted(1, signal.SIGTERM)
"""
IN_A_BLOCK = TERMINATED + "penstock.stop()\nprint('went on')\n"
RAISING = TERMINATED + "raise ValueError('of its own')\n"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["parallel", "inline"])
@pytest.mark.parametrize("ending", [TERMINATED, IN_A_BLOCK, RAISING], ids=["at its end", "in stop", "raising"])
def test_sigterm_on_the_way_home_waits_under_the_command(place: Place, mode: str, ending: str) -> None:
    """It comes once more right away, as from ``timeout``, which tells a process and then its group."""
    with place.program(ending, mode, interpreter=COMMAND) as program:
        assert program.arrival() == "moving"
        family = program.family()
        program.signal(signal.SIGTERM)
        program.signal(signal.SIGTERM)
        status, output, errors = program.ends()
        assert status == 143, errors
        assert "went on" not in output
        assert ("of its own" if ending is RAISING else "penstock: terminated") in errors
        assert "InternalError" not in errors and "_Terminated" not in errors
        gone(family, program)
    place.assert_all_home()


def test_a_signal_that_comes_while_the_first_is_noted_is_the_same_request(monkeypatch: pytest.MonkeyPatch) -> None:
    put_off, calls = late_signals.put_off, []

    def interrupted(action: Callable[[], None]) -> bool:
        calls.append(action)
        noted = put_off(action)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGTERM)
        return noted

    monkeypatch.setattr(late_signals, "put_off", interrupted)
    monkeypatch.setattr(launch, "_ONE_REQUEST", float("inf"))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    went_on = False
    try:
        launch._heed_termination()
        with pytest.raises(launch._Terminated), late_signals.nothing_cut_short():
            signal.raise_signal(signal.SIGTERM)
            went_on = True
    finally:
        signal.signal(signal.SIGTERM, before)
    assert went_on


def test_sigterm_again_on_the_way_home_leaves_files_there_under_the_command(place: Place) -> None:
    """Each is a request of its own here, however soon it comes."""
    ending = """
from penstock.cli import launch
launch._ONE_REQUEST = 0.0
moves_until_interrupted(1)  # which does not come: the file is under way until the run is given up
heed = signal.getsignal(signal.SIGTERM)
def note(*args):
    arrive("noted")
    heed(*args)
signal.signal(signal.SIGTERM, note)
"""
    with place.program(ending, interpreter=COMMAND) as program:
        assert program.arrival() == "moving"
        for _ in range(2):
            program.signal(signal.SIGTERM)
            assert program.arrival() == "noted"
        program.signal(signal.SIGINT)  # lets the file go on its way
        status, _, errors = program.ends()
        assert status in (143, 130), errors
        assert "still on their storage layers" in errors
        gone([], program)
    assert place.assert_home_or_linked()


def test_ctrl_c_that_the_program_catches_during_the_run_does_not_keep_files_on_the_layer(place: Place) -> None:
    ending = """
reader = read_for_ever(home + "/0")
try:
    arrive("waiting")  # only from here on is the interrupt caught
    barrier()
except KeyboardInterrupt:
    penstock.cancel(reader)
print(len(read(home + "/1").result()))
"""
    with place.program(ending) as program:
        assert {program.arrival(), program.arrival()} == {"reading", "waiting"}
        program.interrupt_group()
        status, output, errors = program.ends()
        assert (status, output.strip()) == (0, "1000"), errors
        gone([], program)
    place.assert_all_home()
