"""Whatever is killed, and whenever: errors instead of hangs, words instead of riddles, and nothing left behind."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.own_place import memory_dir
from tests.patience import PATIENCE, eventually
from tests.streaming.flows import EXPECTED, PAIR, Ended, Flow

ENDLESS = PAIR.replace("20 0.01", "100000 0.002")


def running(process: subprocess.Popen[str], script: str) -> psutil.Process | None:
    """The process below this one that runs a script, or None."""
    try:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.cmdline()[1:2] == [script]:
                return child
    except psutil.NoSuchProcess:
        pass
    return None


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # an orphan that nobody has collected yet
    except psutil.NoSuchProcess:
        return True


def started(flow: Flow, *arguments: str) -> tuple[subprocess.Popen[str], psutil.Process, psutil.Process]:
    """A run, its producer and its consumer."""
    flow.toml(ENDLESS)
    process = flow.start("run", "flow.toml", *arguments)
    eventually(lambda: running(process, "producer.py") and running(process, "consumer.py"))
    producer, consumer = running(process, "producer.py"), running(process, "consumer.py")
    assert producer is not None and consumer is not None
    return process, producer, consumer


@pytest.mark.one_in(3)
@pytest.mark.parametrize("step", ["make", "copy"])
@pytest.mark.parametrize("seed", range(3))
def test_a_program_killed_at_any_moment_is_named_and_ends_the_workflow(flow: Flow, step: str, seed: int) -> None:
    process, producer, consumer = started(flow)
    time.sleep(random.Random(seed).random() * 0.3)
    (producer if step == "make" else consumer).kill()
    ended = flow.ended(process)
    # A shell between Penstock and the program reports the signal as a status.
    assert ended.status == 137
    assert f"step '{step}' " in ended.err


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(3))
def test_when_penstock_is_killed_everything_ends(flow: Flow, seed: int) -> None:
    process, producer, consumer = started(flow)
    time.sleep(random.Random(seed).random() * 0.3)
    process.kill()
    flow.ended(process)
    eventually(lambda: gone(producer) and gone(consumer))


def test_readers_of_a_killed_server_get_an_error_though_nobody_tidies_up(flow: Flow) -> None:
    flow.toml(PAIR)
    server = flow.start("serve", "flow.toml")
    copy = flow.start("exec", "--app", "copy", "--", sys.executable, "consumer.py", "out.txt", "copy.txt")
    eventually(lambda: running(copy, "consumer.py"))
    for guard in psutil.Process(server.pid).children():
        guard.kill()
    server.kill()
    flow.ended(server)
    ended = flow.ended(copy)
    assert ended.status != 0
    assert "server" in ended.err
    # The next start tidies up.
    flow.run().expect()
    assert flow.read("copy.txt") == EXPECTED


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("placement", ["--in-place", "--memory"])
def test_signals_end_it_in_order(flow: Flow, number: signal.Signals, placement: str) -> None:
    process, *_ = started(flow, placement)
    process.send_signal(number)
    ended = flow.ended(process)
    assert ended.status == 128 + number
    assert number.name in ended.err
    assert not flow.folder.is_symlink()


def test_a_step_that_ignores_everything_is_killed(flow: Flow) -> None:
    flow.toml(
        PAIR.replace(
            "PYTHON producer.py out.txt 20 0.01", "trap '' TERM INT HUP; touch out.txt; while :; do sleep 0.1; done"
        )
    )
    process = flow.start("run", "flow.toml")
    eventually(lambda: (flow.folder / "out.txt").exists())
    process.send_signal(signal.SIGTERM)
    flow.ended(process).expect(143)


def test_a_stopped_step_is_ended_too(flow: Flow) -> None:
    process, producer, _ = started(flow)
    producer.suspend()
    process.send_signal(signal.SIGINT)
    flow.ended(process).expect(130)


def test_signals_at_random_moments_of_start_and_end(flow: Flow) -> None:
    chance = random.Random(7)
    flow.toml(PAIR.replace('name = "pair"', 'name = "pair"\npermanent = ["copy.txt"]', 1))
    for _ in range(6):
        process = flow.start("run", "flow.toml", "--memory", "--no-log")
        time.sleep(0.2 + chance.random())
        process.send_signal(signal.SIGINT)
        ended = flow.ended(process)
        # Python has a status of its own for an interrupt that comes before it has found our code.
        is_too_early = ended.status == 1 and "KeyboardInterrupt" in ended.err and "penstock" not in ended.err
        assert ended.status in (0, 130, -signal.SIGINT) or is_too_early, ended.err
        eventually(lambda: not flow.folder.is_symlink())
        assert (flow.folder / "consumer.py").exists()


def test_a_full_disk_is_an_error_of_the_step_that_meets_it(flow: Flow, tmp_path: Path) -> None:
    """In a memory of its own, which is small."""
    flow.write(
        "fills.py",
        """
        with open("big", "wb", buffering=0) as file:
            while True:
                if file.write(bytes(1 << 16)) < 1 << 16:
                    raise OSError(28, "No space left on device")
        """,
    )
    flow.toml(
        """
        name = "full"
        permanent = ["small"]
        [[step]]
        name = "fill"
        command = "echo kept > small; PYTHON fills.py"
        output = ["big", "small"]
        [[step.stream]]
        files = ["small"]
        commit = "on_close"
        """
    )
    run = f"exec {sys.executable} -m penstock.cli stream run flow.toml --memory"
    script = f"mount -t tmpfs -o size=64m tmpfs {memory_dir()} && {run}"
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        cwd=flow.folder,
        env=flow.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if "ermission" in ended.stderr or "not permitted" in ended.stderr:
        pytest.skip("no right to mount")
    result = Ended(ended.returncode, ended.stdout, ended.stderr).expect(1)
    assert "step 'fill' exited with status 1" in result.err and "No space left on device" in result.err
    assert flow.read("small") == "kept\n"
    assert not (flow.folder / "big").exists()
