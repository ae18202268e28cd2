"""Asynchronous I/O, by libc or the kernel: requests of a consumer wait, results of a producer are published."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interpose.stage import PATIENCE, Stage, aged

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
OLD = "0ld bytes of an earlier run"


BY_KERNEL = ["submit", "submit_vector", "submit_by_name"]


@pytest.fixture(autouse=True)
def has_kernels_own(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Some containers have none."""
    if "submit" in request.node.name:
        (tmp_path / "some").write_text("some text")
        asked = [request.getfixturevalue("program")("aio"), "submit", str(tmp_path / "some"), "4"]
        if "absent" in subprocess.run(asked, capture_output=True, text=True, check=True).stdout:
            pytest.skip("the kernel's own asynchronous I/O cannot be had here")


@pytest.mark.parametrize("second_run", [False, True])
@pytest.mark.parametrize("way", ["read", "read64", "list", "list64", *BY_KERNEL])
def test_a_request_to_read_waits_for_its_bytes(
    stage: Stage, program: Callable[..., str], way: str, second_run: bool
) -> None:
    if second_run:
        (stage.root / "out").write_text(OLD)
        aged(stage.root / "out")
    maker = stage.puppet("maker")
    reader = stage.start("taker", [program("aio"), way, "out", "4"], stdout=subprocess.PIPE, text=True)
    stage.await_wait(reader.pid, WaitKind.BORN)
    out = maker(f"os.open('out', {MAKE})")
    maker(f"os.write({out}, b'012')")
    stage.await_wait(reader.pid, WaitKind.RANGE)
    maker(f"os.write({out}, b'345')")
    assert reader.communicate(timeout=PATIENCE)[0].splitlines()[-1] == "got 4: 2345"


@pytest.mark.parametrize("way", ["read", "list", *BY_KERNEL])
def test_the_end_of_a_file_is_believed_when_it_is_final(stage: Stage, program: Callable[..., str], way: str) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    maker(f"os.write({out}, b'012')")
    reader = stage.start("taker", [program("aio"), way, "out", "9"], stdout=subprocess.PIPE, text=True)
    stage.await_wait(reader.pid, WaitKind.RANGE)
    maker(f"os.write({out}, b'34') and os.close({out})")
    assert reader.communicate(timeout=PATIENCE)[0].splitlines()[-1] == "got 3: 234"


def test_what_was_written_is_published_with_its_result(stage: Stage, program: Callable[..., str]) -> None:
    taker = stage.puppet("taker")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writer = stage.start("maker", [program("aio"), "write", "out"], **pipes)
    assert writer.stdout is not None
    assert [writer.stdout.readline(), writer.stdout.readline()] == ["aio_write(&request) = 0\n", "got 8: by aio!\n"]
    assert stage.info("out").solid == 8
    assert not stage.has("out", Flag.COMMITTED)
    assert taker("os.read(os.open('out', os.O_RDONLY), 8)") == b"by aio!\n"
    writer.communicate("\n", timeout=PATIENCE)
    assert stage.has("out", Flag.COMMITTED)
