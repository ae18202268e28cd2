"""Large pages under large segments: the bytes are the same with and without them, and a full memory is an error."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.data import huge_pages
from penstock.data.adoption import address
from penstock.data.huge_pages import HUGE, detach, mapped, own, prepared
from penstock.data.segments import Access, Segments
from penstock.data.spilled import write_all

MEMORY = Path("/dev/shm")


@pytest.fixture
def file() -> Iterator[int]:
    descriptor = os.memfd_create("penstock-test")
    yield descriptor
    os.close(descriptor)


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that keeps its segments on disk may have met a refusal."""
    monkeypatch.setattr(huge_pages, "_possible", True)


def granted() -> bool:
    """Whether the kernel gives large pages to a file in memory at all."""
    descriptor = os.memfd_create("penstock-test")
    try:
        return prepared(descriptor, HUGE) is not None
    finally:
        os.close(descriptor)


needs_huge_pages = pytest.mark.skipif(
    not granted(), reason="this kernel does not give large pages to files in memory (it takes Linux 6.1 or later)"
)


@needs_huge_pages
@pytest.mark.parametrize("size", [HUGE, HUGE + 1, 3 * HUGE - 1, 3 * HUGE, 5 * HUGE + 4097])
def test_what_is_written_to_the_mapping_is_in_the_file(file: int, size: int) -> None:
    view = prepared(file, size)
    assert view is not None
    assert len(view) == size // HUGE * HUGE
    view[:4] = b"head"
    view[-4:] = b"tail"
    assert os.pread(file, 4, 0) == b"head"
    assert os.pread(file, 4, len(view) - 4) == b"tail"
    assert os.fstat(file).st_size == size
    assert bytes(view[4:-4]).count(0) == len(view) - 8


@needs_huge_pages
def test_the_pages_are_large_for_writer_and_reader(file: int) -> None:
    view = prepared(file, 4 * HUGE)
    assert view is not None
    reader = mapped(file, 4 * HUGE, mmap.PROT_READ, mmap.MAP_SHARED)
    assert sum(reader[::4096]) == 0
    sizes = re.findall(r"^ShmemPmdMapped: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.MULTILINE)
    assert sum(map(int, sizes)) >= 4 * HUGE // 1024


@needs_huge_pages
@pytest.mark.parametrize("reason", [errno.EAGAIN, errno.EINVAL, errno.ENOMEM])
def test_a_page_that_is_refused_is_no_reason_to_do_without_the_others(
    file: int, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """As when somebody else just has a page in his hands. The process goes on asking, too."""
    collapse = huge_pages._collapse
    refused: set[int] = set()

    def refuse_the_second(at: int, size: int) -> bool:
        if not refused:
            refused.add(at)
        if size > HUGE or at == min(refused) + HUGE:
            ctypes.set_errno(reason)
            return False
        return collapse(at, size)

    monkeypatch.setattr(huge_pages, "_collapse", refuse_the_second)
    view = prepared(file, 4 * HUGE)
    assert view is not None
    assert huge_pages._possible
    assert os.fstat(file).st_blocks * 512 == 4 * HUGE  # all of it is there: writing cannot fail
    view[:] = bytes(range(256)) * (4 * HUGE // 256)
    assert os.pread(file, 4 * HUGE, 0) == bytes(range(256)) * (4 * HUGE // 256)


def test_what_is_small_is_left_alone(file: int) -> None:
    assert prepared(file, HUGE - 1) is None
    assert os.fstat(file).st_size == 0


def test_a_kernel_that_does_not_know_the_request_is_asked_once(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_possible", True)
    monkeypatch.setattr(huge_pages, "_MADV_COLLAPSE", 12345)
    assert prepared(file, 2 * HUGE) is None
    assert huge_pages._possible is False
    assert prepared(file, 2 * HUGE) is None


def test_a_file_on_disk_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_possible", True)
    with open(tmp_path / "file", "w+b") as on_disk:
        if os.statvfs(tmp_path).f_fsid == os.statvfs(MEMORY).f_fsid:
            pytest.skip("temporary files are in memory here")
        prepared(on_disk.fileno(), 2 * HUGE)  # granted or not, the bytes are those of the file
        assert os.pread(on_disk.fileno(), 2 * HUGE, 0) == bytes(2 * HUGE)


@pytest.mark.parametrize("offset", [0, HUGE - 1, HUGE, 2 * HUGE + 17])
def test_a_mapping_shows_the_file(file: int, offset: int) -> None:
    os.ftruncate(file, 3 * HUGE)
    os.pwrite(file, b"here", offset)
    view = mapped(file, 3 * HUGE, mmap.PROT_READ, mmap.MAP_SHARED)
    assert view.readonly
    assert bytes(view[offset : offset + 4]) == b"here"
    private = mapped(file, 3 * HUGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE)
    private[offset : offset + 4] = b"mine"
    assert bytes(view[offset : offset + 4]) == b"here"


def test_a_mapping_lives_as_long_as_its_view(file: int) -> None:
    os.ftruncate(file, HUGE)
    before = Path("/proc/self/maps").read_text().count("penstock-test")
    view = mapped(file, HUGE, mmap.PROT_READ, mmap.MAP_SHARED)
    part = view[10:20]
    del view
    assert bytes(part) == bytes(10)
    assert Path("/proc/self/maps").read_text().count("penstock-test") == before + 1
    del part
    assert Path("/proc/self/maps").read_text().count("penstock-test") == before


def test_a_file_that_cannot_be_mapped_is_an_error() -> None:
    reading, writing = os.pipe()
    with pytest.raises(OSError) as caught:
        mapped(reading, HUGE, mmap.PROT_READ, mmap.MAP_SHARED)
    assert caught.value.errno in (errno.ENODEV, errno.EACCES)
    os.close(reading)
    os.close(writing)


@needs_huge_pages
def test_full_memory_is_an_error_and_no_signal(small_memory: Path) -> None:
    """The memory has room for two large pages and is asked for eight."""
    descriptor = os.open(small_memory / "file", os.O_RDWR | os.O_CREAT)
    try:
        assert prepared(descriptor, 8 * HUGE) is None
        with pytest.raises(OSError, match="No space"):
            write_all(descriptor, memoryview(bytes(8 * HUGE)), 0)
    finally:
        os.close(descriptor)


@needs_huge_pages
def test_segment_that_is_built_in_full_memory_is_none_at_all(
    small_memory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also where there is room for the large page, and none for what is left over."""
    other = small_memory / "other"
    other.write_bytes(bytes(100_000))
    segments = Segments(str(small_memory), str(tmp_path_factory.mktemp("spilled")), writer=1)
    try:
        for size in (8 * HUGE, 2 * HUGE - 1):
            assert segments.build(size) is None
            assert not list(small_memory.glob("s*"))
        made = segments.build(HUGE + 5)
        assert made is not None and len(made[1]) == HUGE + 5
        made[1][-1] = 7
        assert segments.map(made[0], spilled=False, access=Access.READ).view[-1] == 7
    finally:
        segments.close()


@needs_huge_pages
def test_detached_range_is_apart_from_its_file(file: int) -> None:
    prepared(file, HUGE + 8192)
    os.pwrite(file, b"old", HUGE + 4096)
    view = mapped(file, HUGE + 8192, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)
    detach(address(view), len(view), file)
    view[:4] = b"mine"
    own(address(view), len(view))
    os.pwrite(file, b"new", HUGE + 4096)
    assert os.pread(file, 4, 0) == bytes(4)
    assert bytes(view[:4]) == b"mine" and bytes(view[HUGE + 4096 : HUGE + 4099]) == b"old"


@pytest.fixture
def small_memory(tmp_path: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={2 * HUGE}", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small memory file system: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)
