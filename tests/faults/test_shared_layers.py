"""Programs that use one storage layer at the same time: together they stay within it, whatever becomes of any."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.own_place import user_environment
from tests.patience import PATIENCE, eventually

import penstock
from penstock.executors.layer_table import LEASE, LayerTable
from penstock.observe.log import read_log
from penstock.observe.records import LayerShared

PROGRAM = """
import os, sys, time
import penstock
from penstock import FILE_OUT, barrier, constraint, io, task

name, count, seconds, needs, layer = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *map(eval, sys.argv[4:])

@constraint(**needs)
@io
@task(path=FILE_OUT)
def write(path):
    begun = time.monotonic()
    time.sleep(seconds)
    while os.path.exists("wait"):
        time.sleep(0.01)
    with open(path, "wb") as file:
        file.write(bytes(10**6))
    with open("log", "a") as log:
        log.write(f"{name} {begun} {time.monotonic()}\\n")

penstock.start(cpus=1, io_executors=16, tuning="off", storage=[{"name": "disk", **layer}])
for index in range(count):
    write(f"{name}{index}")
barrier()
print("done", flush=True)
sys.stdin.read()  # it goes on when the test lets it
penstock.stop()
"""


class Place:
    """A folder with a layer, and the programs that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mount = folder / "disk"
        self.mount.mkdir()
        self.log = folder / "log"
        (folder / "program.py").write_text(PROGRAM)
        self.programs: list[subprocess.Popen[str]] = []

    def start(
        self,
        name: str,
        count: int,
        seconds: float,
        needs: dict[str, object],
        environment: dict[str, str] | None = None,
        **layer: object,
    ) -> subprocess.Popen[str]:
        described = {"mount": str(self.mount), "bandwidth": "40MB/s", "capacity": "1GB", **layer}
        program = subprocess.Popen(
            [sys.executable, "program.py", name, str(count), str(seconds), repr(needs), repr(described)],
            cwd=self.folder,
            env=user_environment(PYTHONPATH=str(Path(penstock.__file__).parents[1]), **(environment or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.programs.append(program)
        return program

    def attempts(self) -> list[tuple[str, float, float]]:
        if not self.log.exists():
            return []
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(name, float(begun), float(ended)) for name, begun, ended in lines]

    def meet(self, count: int) -> None:
        """Have attempts write nothing before so many programs use the layer: else one may be over first."""
        table = LayerTable(str(self.mount))

        def have_met() -> bool:
            if not os.path.exists(table.path):
                return False
            with table.held() as held:
                return len(held.others("")) == count

        eventually(have_met)
        (self.folder / "wait").unlink()

    def wait_for(self, name: str, count: int) -> None:
        """Until so many attempts of a program have ended."""
        for _ in self.going_on():
            if sum(one == name for one, _, _ in self.attempts()) >= count:
                return

    def going_on(self) -> Iterator[None]:
        """Look again and again, as long as attempts end: a disk may be slow, but not for ever."""
        ended, deadline = 0, time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            yield
            time.sleep(0.01)
            if len(self.attempts()) > ended:
                ended, deadline = len(self.attempts()), time.monotonic() + PATIENCE
        raise AssertionError(f"nothing has ended for {PATIENCE} seconds after {self.attempts()}")

    def most_together(self, rates: dict[str, float], without: tuple[str, float, float] | None = None) -> float:
        """The most that attempts held at any moment, by what each takes."""
        attempts = [one for one in self.attempts() if one != without]
        changes = [(begun, 1, rates[name]) for name, begun, _ in attempts]
        changes += [(ended, 0, -rates[name]) for name, _, ended in attempts]
        held = most = 0.0
        for _, _, change in sorted(changes):
            held += change
            most = max(most, held)
        return most


def done(program: subprocess.Popen[str]) -> None:
    """Until a program's tasks are over."""
    assert program.stdout is not None
    assert program.stdout.readline() == "done\n", program.communicate()[1]


def end(*programs: subprocess.Popen[str]) -> list[str]:
    """Let programs end, and say what they said."""
    said = []
    for program in programs:
        said.append(program.communicate(timeout=PATIENCE)[1])
        assert program.returncode == 0, said
    return said


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for program in place.programs:
        if program.poll() is None:
            program.kill()
        program.communicate()


def test_two_programs_never_hold_more_than_the_layer_and_a_newcomer_gets_its_part(place: Place) -> None:
    first = place.start("a", 1000, 0.2, {"storage_bw": 8})
    place.wait_for("a", 5)
    second = place.start("b", 20, 0.2, {"storage_bw": 8})
    done(second)
    assert sum(name == "a" for name, _, _ in place.attempts()) < 1000, "the first did not let the second in"
    [said] = end(second)
    assert "disk: shared with 1 other program: 20 MB/s of 40 MB/s here" in said
    first.kill()
    first.communicate()
    assert place.most_together({"a": 8, "b": 8}) == 40, "the layer was not used up"


def test_tasks_that_need_more_than_a_part_run_by_turns(place: Place) -> None:
    programs = [place.start(name, 4, 0.1, {"storage_bw": bw}) for name, bw in (("a", 30), ("b", 36), ("c", 4))]
    for program in programs:
        done(program)
    said = end(*programs)
    assert len(place.attempts()) == 12
    assert place.most_together({"a": 30, "b": 36, "c": 4}) <= 40, (place.attempts(), said)


def test_the_part_of_a_killed_program_comes_back(place: Place) -> None:
    first = place.start("a", 100, 0.2, {"storage_bw": 8})
    place.wait_for("a", 5)
    second = place.start("b", 60, 0.2, {"storage_bw": 40})
    place.wait_for("b", 1)
    first.kill()
    first.communicate()
    killed = time.monotonic()
    place.wait_for("b", 8)
    late = [begun for name, begun, _ in place.attempts() if name == "b" and begun > killed]
    assert len(late) > 4
    second.kill()
    second.communicate()
    third = place.start("c", 5, 0.1, {"storage_bw": 40})  # neither has left anything in its way
    done(third)
    end(third)
    assert place.most_together({"a": 8, "b": 40, "c": 40}) <= 40


def test_a_stopped_program_holds_nobody_up_for_ever_and_starts_nothing_when_it_goes_on(place: Place) -> None:
    first = place.start("a", 40, 0.2, {"storage_bw": 40})
    place.wait_for("a", 2)
    first.send_signal(signal.SIGSTOP)
    second = place.start("b", 20, 0.2, {"storage_bw": 8})
    place.wait_for("b", 5)  # when the stopped one has run out of time
    resumed = time.monotonic()
    first.send_signal(signal.SIGCONT)
    done(second)
    done(first)
    end(first, second)
    # An attempt that was decided on, and not yet on its way, when the signal came: what is under way comes on top.
    under_way = min((one for one in place.attempts() if one[0] == "a" and one[1] >= resumed), key=lambda one: one[1])
    assert place.most_together({"a": 40, "b": 8}, without=under_way) <= 40


@pytest.mark.long
def test_attempts_under_way_are_counted_while_the_disk_stands_still(place: Place) -> None:
    """Nobody can write to the table, as on a disk that answers nobody for longer than a line of it holds."""
    waits = place.folder / "wait"
    waits.touch()
    first = place.start("a", 1, 0.0, {"storage_bw": 40})
    eventually(lambda: any(path.name.endswith("-layer") for path in place.mount.iterdir()))
    [table] = [path for path in place.mount.iterdir() if path.name.startswith(".penstock-")]
    with open(table, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = place.start("b", 1, 0.0, {"storage_bw": 40})
        time.sleep(LEASE + 2)  # longer than what the first said is good for
    eventually(lambda: len(table.read_bytes().split()) > 1)  # the second has looked
    time.sleep(1)  # in which it would begin
    waits.unlink()
    for program in (first, second):
        done(program)
    end(first, second)
    assert place.most_together({"a": 40, "b": 40}) == 40


def files_on(mount: Path) -> dict[str, int]:
    """The files that programs have written to a layer, and their sizes."""
    sizes = {}
    for folder, _, names in os.walk(mount):
        for name in names:
            if name.startswith(("a", "b")):
                with contextlib.suppress(OSError):  # it goes home
                    sizes[os.path.join(folder, name)] = os.lstat(os.path.join(folder, name)).st_size
    return sizes


def test_files_of_all_programs_together_fit_on_the_layer(place: Place) -> None:
    needs: dict[str, object] = {"storage_bw": 4, "storage_size": "1MB"}
    (place.folder / "wait").touch()
    programs = [place.start(name, 20, 0.1, needs, capacity="10MB") for name in "ab"]
    place.meet(2)
    most = 0
    for _ in place.going_on():
        if len(place.attempts()) == 40:
            break
        assert not any(program.poll() for program in programs), end(*programs)
        # What is there before and after some moment was there then; one look alone takes its time.
        before, after = files_on(place.mount), files_on(place.mount)
        most = max(most, sum(min(before[path], after[path]) for path in before.keys() & after.keys()))
    for program in programs:
        done(program)
    end(*programs)
    assert 5_000_000 < most <= 10_000_000
    assert not os.listdir(place.mount)


def test_of_two_descriptions_the_smaller_counts(place: Place) -> None:
    link = place.folder / "link"
    link.symlink_to(place.mount)
    (place.folder / "wait").touch()
    first = place.start("a", 40, 0.2, {"storage_bw": 8})
    second = place.start("b", 40, 0.2, {"storage_bw": 8}, bandwidth="16MB/s", mount=str(link))
    place.meet(2)
    for program in (first, second):
        done(program)
    said = end(first, second)
    assert "another program describes" in said[0]
    assert "with 16 MB/s" in said[0]
    assert "the smaller counts" in said[0]
    assert place.most_together({"a": 0, "b": 8}) <= 16


def test_who_shares_a_layer_is_seen(place: Place) -> None:
    layer = f"[[resources.storage]]\nname = 'disk'\nmount = '{place.mount}'\nbandwidth = '40MB/s'\n"
    (place.folder / "penstock.toml").write_text(layer)
    first = place.start("a", 10_000, 0.1, {"storage_bw": 8}, {"PENSTOCK_RUN_DIR": str(place.folder / "run")})
    place.wait_for("a", 2)
    second = place.start("b", 10_000, 0.1, {"storage_bw": 8})
    parts = [f"disk: process {program.pid} has 20 MB/s" for program in (first, second)]
    doctor = [sys.executable, "-m", "penstock.cli", "doctor"]

    def sees_both() -> bool:
        asked = subprocess.run(
            doctor, cwd=place.folder, env=user_environment(), capture_output=True, text=True, check=False
        )
        return all(part in asked.stdout for part in parts)

    eventually(sees_both)
    second.kill()
    second.communicate()
    log = place.folder / "run" / "events.jsonl"

    def noted() -> list[int]:
        return [record.others for record in read_log(str(log)) if isinstance(record, LayerShared)]

    eventually(lambda: noted() == [1, 0])


def test_learned_constraints_steer_within_the_part(place: Place) -> None:
    programs = [place.start(name, 30, 0.05, {"storage_bw": "auto"}) for name in "ab"]
    for program in programs:
        done(program)
    end(*programs)
    assert len(place.attempts()) == 60


def test_garbage_in_the_table_is_no_programs_end(place: Place) -> None:
    first = place.start("a", 40, 0.1, {"storage_bw": 20})
    place.wait_for("a", 2)
    [table] = [path for path in place.mount.iterdir() if path.name.startswith(".penstock-")]
    table.write_bytes(b"\xff{" * 3000)
    second = place.start("b", 10, 0.1, {"storage_bw": 20})
    done(second)
    done(first)
    end(first, second)
    assert not os.listdir(place.mount)


def test_a_layer_that_cannot_be_shared_is_used_alone_with_a_word(place: Place) -> None:
    first = place.start("a", 1, 0.0, {"storage_bw": 8})
    done(first)
    [table] = [path for path in place.mount.iterdir() if path.name.startswith(".penstock-")]
    end(first)
    table.mkdir()
    second = place.start("b", 4, 0.0, {"storage_bw": 8})
    done(second)
    [said] = end(second)
    assert "cannot be shared with other programs, this one uses it as if alone: Is a directory" in said
    table.rmdir()
