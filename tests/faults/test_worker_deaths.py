"""Workers that die, hang or are given up: what becomes of their task, of those behind it and of those that need it."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from tests.faults.hangs import HANGS, hang, hang_deaf_to_signals
from tests.faults.programs import Gate, Tally, TaskSide, alive, empties, takes_less_than
from tests.patience import Leap, eventually

import penstock
from penstock import FILE_INOUT, INOUT, DependencyFailed, TaskCancelled, TaskTimeout, WorkerDied, cancel, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

LARGE = 200_000  # numbers in an array that lives in the shared-memory store


@task
def increase(number: Any) -> int:
    return int(number) + 1


@task
def worker_pid() -> int:
    return os.getpid()


def die_by(how: str) -> None:
    """End this process, the real way."""
    if how == "null pointer":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(7)
    elif how == "abort":
        os.abort()
    else:
        os.kill(os.getpid(), getattr(signal, how, None) or int(how))
        signal.pause()


DEATHS = {
    "SIGKILL": "SIGKILL",
    "SIGTERM": "SIGTERM",
    "null pointer": "SIGSEGV",
    "abort": "SIGABRT",
    "exit": "status 7",
    "40": "40",  # a real-time signal, which has no name
}


# --- death and retries --------------------------------------------------------------------------------------------


@task
def die(how: str, tally: Tally) -> None:
    print("last words", flush=True)
    tally.mark()
    die_by(how)


@task
def die_first(how: str, tally: Tally) -> int:
    if tally.mark() == 1:
        die_by(how)
    return tally.count()


@pytest.mark.one_in(6)
@pytest.mark.parametrize("how", DEATHS)
def test_killed_worker_has_its_task_retried(runtime: Runtime, tally: Tally, how: str) -> None:
    assert die_first(how, tally).result() == 2


@pytest.mark.one_in(6)
@pytest.mark.parametrize("how", DEATHS)
def test_task_that_always_kills_its_worker_fails_after_three_attempts_and_says_how(
    runtime: Runtime, tally: Tally, how: str
) -> None:
    with pytest.raises(WorkerDied) as caught:
        die(how, tally).result()
    text = str(caught.value)
    assert DEATHS[how] in text
    assert "die#1" in text
    assert "attempt 3" in text
    assert "last words" in text
    assert tally.count() == 3
    assert increase(1).result() == 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("cpus", [1, 2])
def test_tasks_that_kill_their_workers_do_not_use_up_the_machine(tally: Tally, cpus: int) -> None:
    penstock.start(cpus=cpus)
    futures = [die("SIGKILL", tally) for _ in range(4)]
    innocent = [increase(number) for number in range(20)]
    for future in futures:
        assert isinstance(future.exception(), WorkerDied)
    assert wait_on(innocent) == list(range(1, 21))
    assert tally.count() == 12
    assert increase(1).result() == 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("retries", [0, 1, 4])
def test_number_of_retries_after_a_death_is_exact(runtime: Runtime, tally: Tally, retries: int) -> None:
    @task(retries=retries)
    def die_again(tally: Tally) -> None:
        tally.mark()
        os._exit(1)

    assert isinstance(die_again(tally).exception(), WorkerDied)
    assert tally.count() == retries + 1


def test_consumers_of_a_task_whose_worker_died_name_it(runtime: Runtime, tally: Tally) -> None:
    root = die("SIGKILL", tally)
    with pytest.raises(DependencyFailed) as caught:
        increase(increase(root)).result()
    assert "die#1" in str(caught.value)
    assert "SIGKILL" in str(caught.value)
    assert isinstance(root.exception(), WorkerDied)


def test_death_that_is_ignored_gives_none(runtime: Runtime) -> None:
    @task(on_failure="ignore", retries=0)
    def die_unnoticed() -> int:
        os._exit(1)

    @task
    def is_none(value: Any) -> bool:
        return value is None

    assert is_none(die_unnoticed()).result() is True


def test_death_cancels_successors_where_asked_for(runtime: Runtime) -> None:
    @task(on_failure="cancel_successors", retries=0)
    def die_and_cancel() -> int:
        os._exit(1)

    root = die_and_cancel()
    with pytest.raises(TaskCancelled, match="die_and_cancel"):
        increase(root).result()
    assert isinstance(root.exception(), WorkerDied)


def test_worker_killed_between_tasks_is_replaced_without_a_word(runtime: Runtime) -> None:
    for _ in range(5):
        pid = worker_pid().result()
        os.kill(pid, signal.SIGKILL)
        assert [future.result() for future in [increase(number) for number in range(10)]] == list(range(1, 11))
    assert alive(psutil.Process(worker_pid().result()))


def test_short_tasks_behind_a_dying_one_are_all_done(runtime: Runtime, tally: Tally) -> None:
    @task
    def maybe_die(number: int, tally: Tally) -> int:
        if number == 300 and tally.mark() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    wait_on([maybe_die(0, tally) for _ in range(200)])
    assert wait_on([maybe_die(number, tally) for number in range(600)]) == list(range(600))
    assert tally.count() == 2


def test_map_survives_a_killed_worker(runtime: Runtime, tally: Tally) -> None:
    @task
    def maybe_die(number: int) -> int:
        if number == 500 and tally.mark() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * 2

    assert maybe_die.map(range(1000)).results() == [number * 2 for number in range(1000)]
    assert tally.count() == 2


def test_element_of_a_map_that_always_kills_its_worker_spares_the_others(runtime: Runtime) -> None:
    @task
    def die_at_seven(number: int) -> int:
        if number == 7:
            os._exit(1)
        return number

    mapped = die_at_seven.map(range(40))
    assert isinstance(mapped[7].exception(timeout=60), WorkerDied)
    assert [mapped[n].result(timeout=60) for n in range(40) if n != 7] == [n for n in range(40) if n != 7]


def test_element_of_a_map_that_hangs_is_ended_by_the_timeout_and_spares_the_others(
    runtime: Runtime, gate: Gate, leap: Leap
) -> None:
    @task(timeout=600)
    def hang_at_seven(number: int) -> int:
        if number == 7:
            gate.reach()
            signal.pause()
        return number

    mapped = hang_at_seven.map(range(40))
    gate.wait_reached()
    assert [mapped[n].result(timeout=60) for n in range(40) if n != 7] == [n for n in range(40) if n != 7]
    leap(600)
    assert isinstance(mapped[7].exception(timeout=60), TaskTimeout)


def test_timeout_of_a_map_is_for_each_element(runtime: Runtime, gate: Gate, tmp_path: Path, leap: Leap) -> None:
    @task(timeout=600)
    def slow(number: int) -> int:
        gate.reach()
        while not (tmp_path / f"turn {number // 2}").exists():
            time.sleep(0.005)
        return number

    mapped = slow.map(range(6))
    for turn in range(3):
        gate.wait_reached(2)  # one on each lane
        leap(400)
        (tmp_path / f"turn {turn}").touch()
    assert mapped.results(timeout=60) == list(range(6))


def test_failures_of_a_map_are_retried_or_ignored_as_declared(runtime: Runtime, tally: Tally) -> None:
    @task(retries=2)
    def fail_twice(number: int) -> int:
        if number == 3 and tally.mark() < 3:
            raise ValueError("not yet")
        return number

    @task(on_failure="ignore")
    def fail_at_three(number: int) -> int:
        if number == 3:
            raise ValueError("who cares")
        return number

    assert fail_twice.map(range(6)).results() == [0, 1, 2, 3, 4, 5]
    assert tally.count() == 3
    assert fail_at_three.map(range(6)).results() == [0, 1, 2, None, 4, 5]


def test_memory_limit_of_the_process_is_an_ordinary_memory_error(runtime: Runtime) -> None:
    @task
    def take_too_much() -> int:
        limit = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, limit[1]))
        try:
            return len(bytearray(1 << 40))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limit)

    with pytest.raises(MemoryError):
        take_too_much().result()
    assert increase(1).result() == 2


# --- data of killed tasks -----------------------------------------------------------------------------------------


@task(array=INOUT)
def change_and_die(array: Any, tally: Tally) -> None:
    array[: LARGE // 2] += 1
    if tally.mark() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    array[LARGE // 2 :] += 1


@task(array=INOUT, retries=1)
def change_and_die_on_a_copy(array: Any, tally: Tally) -> None:
    array[: LARGE // 2] += 1
    if tally.mark() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    array[LARGE // 2 :] += 1


@task(array=INOUT)
def add(array: Any, number: int) -> None:
    array += number


@task
def total(array: Any) -> float:
    return float(array.sum())


def test_change_in_place_that_was_cut_short_is_not_retried_and_says_why(runtime: Runtime, tally: Tally) -> None:
    array = np.zeros(LARGE)
    add(array, 1)
    change_and_die(array, tally)
    with pytest.raises(WorkerDied, match="in place") as caught:
        wait_on(array)
    assert "retries=1" in str(caught.value)
    assert tally.count() == 1


def test_change_with_retries_is_made_on_a_copy_and_comes_out_right(runtime: Runtime, tally: Tally) -> None:
    array = np.zeros(LARGE)
    add(array, 1)
    change_and_die_on_a_copy(array, tally)
    result = total(array)
    assert result.result() == 2 * LARGE
    assert np.array_equal(wait_on(array), np.full(LARGE, 2.0))
    assert tally.count() == 2


def test_killed_reader_does_not_harm_what_it_read(runtime: Runtime, tally: Tally) -> None:
    array = penstock.share(np.arange(LARGE))

    @task
    def read_and_die(array: Any, tally: Tally) -> float:
        if tally.mark() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(array.sum())

    expected = float(array.sum())
    assert wait_on([read_and_die(array, tally) for _ in range(4)]) == [expected] * 4


@task(path=FILE_INOUT, retries=2)
def append_and_die(path: str, tally: Tally) -> None:
    with open(path, "a") as file:
        file.write("more\n")
        file.flush()
        if tally.mark() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_file_of_a_killed_task_is_whole_after_its_retry_and_nothing_lies_beside_it(
    runtime: Runtime, tally: Tally, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "log.txt").write_text("first\n")
    append_and_die(str(folder / "log.txt"), tally)
    penstock.barrier()
    with penstock.open_file(folder / "log.txt") as file:
        assert file.read() == "first\nmore\n"
    penstock.stop()
    assert [path.name for path in folder.iterdir()] == ["log.txt"]


def test_store_is_empty_after_tasks_that_died_with_large_results(runtime: Runtime, tally: Tally) -> None:
    @task(returns=2)
    def make_two(tally: Tally) -> Any:
        class DiesInPickle:
            def __reduce__(self) -> Any:
                tally.mark()
                os.kill(os.getpid(), signal.SIGKILL)

        return np.ones(LARGE), DiesInPickle()

    both: Any = make_two(tally)
    first, second = both
    assert isinstance(first.exception(), WorkerDied)
    assert isinstance(second.exception(), WorkerDied)
    assert tally.count() == 3
    del both, first, second
    gc.collect()
    assert increase(1).result() == 2
    assert empties(runtime.segments.memory_dir)


# --- hanging ------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(6)
@pytest.mark.parametrize("how", HANGS)
def test_task_that_hangs_is_ended_by_its_timeout(
    runtime: Runtime, tally: Tally, leap: Leap, how: Callable[[], None]
) -> None:
    future = hang(how, tally)
    eventually(tally.count)
    time.sleep(0.1)  # it hangs: nothing tells when it has begun to
    leap(600)
    with pytest.raises(TaskTimeout) as caught:
        future.result(timeout=60)
    text = str(caught.value)
    assert "600 s" in text
    assert "hang#1" in text
    assert "hanging" in text
    assert isinstance(caught.value, TimeoutError)
    assert tally.count() == 1  # a timeout is not a death: it is not retried unless asked for
    assert increase(1).result() == 2


def test_timeout_is_retried_where_asked_for(runtime: Runtime, tally: Tally, leap: Leap) -> None:
    @task(timeout=600, on_failure="retry")
    def hang_twice(tally: Tally) -> int:
        if tally.mark() < 3:
            hang_deaf_to_signals()
        return tally.count()

    future = hang_twice(tally)
    for times in (1, 2):
        eventually(lambda times=times: tally.count() == times)  # type: ignore[misc]
        leap(600)
    assert future.result(timeout=60) == 3


def test_timeout_counts_the_time_of_the_task_and_not_its_wait(runtime: Runtime, gate: Gate, leap: Leap) -> None:
    @task
    def occupy(gate: TaskSide) -> None:
        gate.hold()

    @task(timeout=600)
    def quick() -> int:
        return 1

    held = [occupy(gate), occupy(gate)]
    gate.wait_reached(2)
    waiting = [quick() for _ in range(3)]
    leap(1000)
    gate.release()
    assert wait_on(waiting) == [1, 1, 1]
    wait_on(held)


def test_consumers_of_a_timed_out_task_name_it(runtime: Runtime, tally: Tally, leap: Leap) -> None:
    root = hang(hang_deaf_to_signals, tally)
    consumer = increase(root)
    eventually(tally.count)
    leap(600)
    with pytest.raises(DependencyFailed, match="hang#1") as caught:
        consumer.result()
    assert "timeout" in str(caught.value)
    assert isinstance(root.exception(), TaskTimeout)


def test_short_tasks_do_not_wait_behind_a_surprisingly_long_one(runtime: Runtime, gate: Gate) -> None:
    @task
    def usually_short(number: int, gate: TaskSide) -> int:
        if number == 200:
            gate.hold()
        return number

    wait_on([usually_short(0, gate) for _ in range(500)])
    futures = [usually_short(number, gate) for number in range(1000)]
    with takes_less_than(60):
        gate.wait_reached()
        others = [future for number, future in enumerate(futures) if number != 200]
        with takes_less_than(60):
            wait_on(others)
        assert not futures[200].done()
    gate.release()
    assert wait_on(futures) == list(range(1000))


# --- giving up ----------------------------------------------------------------------------------------------------


@task
def hold(gate: TaskSide) -> int:
    gate.hold()
    return 1


@task
def consume(value: Any, tally: Tally) -> Any:
    tally.mark()
    return value


def test_cancel_of_a_running_task_ends_its_process_and_cancels_its_consumers(
    runtime: Runtime, gate: Gate, tally: Tally
) -> None:
    running = hold(gate)
    consumer = consume(running, tally)
    gate.wait_reached()
    with takes_less_than(60):
        assert cancel(running) is True
        for future in (running, consumer):
            with pytest.raises(TaskCancelled):
                future.result()
            assert future.cancelled()
    assert tally.count() == 0
    assert increase(1).result() == 2


def test_cancel_of_a_waiting_task_spares_its_producer(runtime: Runtime, gate: Gate, tally: Tally) -> None:
    running = hold(gate)
    waiting = consume(running, tally)
    last = consume(waiting, tally)
    gate.wait_reached()
    assert waiting.cancel() is True
    for future in (waiting, last):
        with pytest.raises(TaskCancelled, match="consume"):
            future.result()
    gate.release()
    assert running.result() == 1
    assert tally.count() == 0


def test_cancel_of_a_task_that_waits_for_a_lane(runtime: Runtime, gate: Gate, tally: Tally) -> None:
    running = [hold(gate), hold(gate)]
    gate.wait_reached(2)
    queued = consume(1, tally)
    consumer = consume(queued, tally)
    assert not queued.running()
    assert queued.cancel() is True
    assert queued.cancelled() and consumer.cancelled()
    gate.release()
    assert wait_on(running) == [1, 1]
    assert tally.count() == 0


def test_cancel_of_tasks_sent_ahead_to_a_busy_lane(gate: Gate, tally: Tally) -> None:
    penstock.start(cpus=1)

    @task
    def usually_short(number: int, gate: TaskSide, tally: Tally) -> int:
        if number == 1:
            gate.hold()
        elif number > 1:
            tally.mark()
        return number

    wait_on([usually_short(0, gate, tally) for _ in range(500)])
    futures = [usually_short(number, gate, tally) for number in range(100)]
    gate.wait_reached()
    cancel(*futures[2:])
    for future in futures[2:]:
        with pytest.raises(TaskCancelled):
            future.result(timeout=60)
    gate.release()
    assert futures[1].result() == 1
    penstock.barrier()
    assert tally.count() == 0
    assert usually_short(5, gate, tally).result() == 5


def test_future_cancel_spares_a_running_task_as_the_standard_library_does(runtime: Runtime, gate: Gate) -> None:
    running = hold(gate)
    gate.wait_reached()
    assert running.running()
    assert running.cancel() is False
    gate.release()
    assert running.result() == 1
    assert running.cancel() is False
    assert cancel(running) is False


def test_cancel_of_one_running_task_spares_its_neighbour(runtime: Runtime, gate: Gate) -> None:
    first, second = hold(gate), hold(gate)
    gate.wait_reached(2)
    cancel(first)
    with pytest.raises(TaskCancelled):
        first.result()
    gate.release()
    assert second.result() == 1


def test_object_has_its_value_from_before_a_change_that_was_cancelled_in_the_middle(
    runtime: Runtime, gate: Gate
) -> None:
    @task(array=INOUT)
    def change(array: Any, gate: TaskSide) -> int:
        array[: LARGE // 2] = 5
        gate.hold()
        return 1

    array = np.zeros(LARGE)
    running = change(array, gate)
    gate.wait_reached()
    cancel(running)
    with pytest.raises(TaskCancelled):
        running.result()
    assert total(array).result() == 0.0
    assert not wait_on(array).any()


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_file_of_a_task_given_up_stays_as_it_was_and_nothing_lies_beside_it(
    runtime: Runtime, gate: Gate, leap: Leap, tmp_path: Path, how: str
) -> None:
    @task(path=FILE_INOUT, timeout=600)
    def rewrite(path: str, gate: TaskSide) -> None:
        Path(path).write_text("half")
        gate.hold()

    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / "file.txt"
    path.write_text("old")
    future = rewrite(str(path), gate)
    gate.wait_reached()
    if how == "cancelled":
        cancel(future)
    else:
        leap(600)
    penstock.wait([future], timeout=60)
    with pytest.raises((TaskCancelled, TaskTimeout)):
        future.result()
    assert path.read_text() == "old"
    penstock.stop(abort=True)
    assert [found.name for found in folder.iterdir()] == ["file.txt"]


def test_cancel_of_a_map_stops_it(runtime: Runtime, tally: Tally) -> None:
    @task
    def slow(number: int) -> int:
        tally.mark()
        time.sleep(0.05)
        return number

    mapped = slow.map(range(1000))
    assert mapped[0].result() == 0
    cancel(mapped)
    with takes_less_than(60):
        for number in (500, 999):
            with pytest.raises(TaskCancelled):
                mapped[number].result()
    penstock.barrier()
    assert tally.count() < 500


# --- what tasks do to their process -------------------------------------------------------------------------------


def test_task_that_closes_every_descriptor_is_reported_as_a_death(runtime: Runtime) -> None:
    @task(retries=0)
    def close_all() -> None:
        os.closerange(3, 256)

    with pytest.raises(WorkerDied):
        close_all().result(timeout=60)
    assert increase(1).result() == 2


def test_task_that_scribbles_on_every_descriptor_cannot_upset_the_program(runtime: Runtime) -> None:
    @task(retries=0)
    def scribble() -> None:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"\xff\x00garbage" * 50)
            except OSError:
                continue

    error = scribble().exception(timeout=60)
    assert isinstance(error, WorkerDied)
    assert [future.result(timeout=60) for future in [increase(n) for n in range(50)]] == list(range(1, 51))


def test_task_that_closes_its_standard_streams_still_works(runtime: Runtime) -> None:
    @task
    def close_streams() -> int:
        for stream in (sys.stdout, sys.stderr):
            stream.close()
        os.closerange(0, 3)
        return 1

    assert close_streams().result(timeout=60) == 1
    assert wait_on([increase(n) for n in range(50)]) == list(range(1, 51))


def test_what_a_task_does_to_its_process_stays_inside_the_worker(runtime: Runtime, tmp_path: Path) -> None:
    @task
    def disturb(folder: Path) -> int:
        os.chdir(folder)
        os.environ.clear()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        sys.stdout = open(os.devnull, "w")
        os.umask(0o777)
        return os.getpid()

    here, environ = os.getcwd(), dict(os.environ)
    pids = {disturb(tmp_path).result() for _ in range(4)}
    assert os.getpid() not in pids
    assert (os.getcwd(), dict(os.environ)) == (here, environ)
    assert wait_on([increase(n) for n in range(50)]) == list(range(1, 51))
    assert float(total(np.ones(LARGE)).result()) == LARGE


def test_fork_inside_a_task_that_returns_twice_gives_one_result(runtime: Runtime) -> None:
    @task
    def fork_and_return(number: int) -> tuple[int, int]:
        os.fork()
        return number, os.getpid()

    results = [future.result(timeout=60) for future in [fork_and_return(number) for number in range(20)]]
    assert [number for number, _ in results] == list(range(20))
    assert wait_on([increase(number) for number in range(200)]) == list(range(1, 201))
    with takes_less_than(60):
        penstock.stop()


@task
def print_much(megabytes: int) -> int:
    for _ in range(megabytes):
        os.write(1, b"\xff\xfe\x00garbage\x1b[31m" * 65536)
    return megabytes


def test_garbage_and_floods_on_the_output_reach_the_result(runtime: Runtime, capfd: pytest.CaptureFixture[str]) -> None:
    assert print_much(4).result(timeout=60) == 4
    assert increase(1).result() == 2


@task
def start_grandchild(how: str) -> int:
    if how == "in its own session":
        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
    if how == "abandoned":
        starter = (
            "import subprocess as s; print(s.Popen(['sleep', '1000'], stdout=s.DEVNULL, start_new_session=True).pid)"
        )
        return int(subprocess.check_output([sys.executable, "-c", starter]))
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["in its own session", "abandoned", "forked"])
@pytest.mark.parametrize("end", ["stop", "abort", "worker killed"])
def test_grandchildren_do_not_outlive_their_run(runtime: Runtime, how: str, end: str) -> None:
    grandchild = psutil.Process(start_grandchild(how).result())
    assert alive(grandchild)
    if end == "worker killed":
        for pid in {worker_pid().result() for _ in range(20)}:
            os.kill(pid, signal.SIGKILL)
        # Both lanes have new processes once they answer.
        wait_on([increase(n) for n in range(50)])
    penstock.stop(abort=end == "abort")
    eventually(lambda: not alive(grandchild))


# --- the fork server ----------------------------------------------------------------------------------------------


def fork_server(killed: Collection[psutil.Process] = ()) -> psutil.Process:
    """The fork server of this process, other than those killed already."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process().children():
            if child not in killed and alive(child) and "forkserver" in " ".join(child.cmdline()):
                return child
        time.sleep(0.005)
    raise AssertionError("there is no fork server")


def test_run_recovers_from_a_killed_fork_server(runtime: Runtime, gate: Gate, tally: Tally) -> None:
    @task
    def hold_once(gate: TaskSide, tally: Tally) -> int:
        if tally.mark() <= 2:
            gate.hold()
        return tally.count()

    held = [hold_once(gate, tally), hold_once(gate, tally)]
    gate.wait_reached(2)
    array = penstock.share(np.ones(LARGE))
    waiting = [increase(number) for number in range(100)]
    fork_server().kill()
    assert [future.result(timeout=60) for future in waiting] == list(range(1, 101))
    assert [future.result(timeout=60) for future in held]
    assert tally.count() == 4  # both were held, lost and tried again
    assert total(array).result(timeout=60) == LARGE  # the store outlives the fork server


def test_fork_server_killed_while_nothing_runs(runtime: Runtime) -> None:
    assert increase(1).result() == 2
    killed: set[psutil.Process] = set()
    for _ in range(3):
        server = fork_server(killed)
        server.kill()
        killed.add(server)
        assert wait_on([increase(number) for number in range(20)]) == list(range(1, 21))
