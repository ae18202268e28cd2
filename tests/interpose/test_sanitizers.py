"""The library under the compiler's sanitizers and under valgrind: every family, and a reader beside its writer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interpose.stage import Stage, staged
from tests.interpose.test_agreement import FAMILIES

NATIVE = Path(__file__).parents[2] / "native"
# A second build of the library, and programs several times slower: for `make test-long`.
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


def words(name: str) -> list[str]:
    return (NATIVE / name).read_text().split()


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library with address and undefined-behaviour sanitizers."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) here: the library is NOT tested under sanitizers")
    target = tmp_path_factory.mktemp("sanitized") / "libpenstock_interpose.so"
    sources = [str(NATIVE / source) for source in words("interpose.sources") + words("table.sources")]
    flags = [*words("flags"), "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    subprocess.run([compiler, *flags, "-shared", "-o", str(target), *sources, "-ldl"], check=True)
    return str(target)


@pytest.fixture
def strict(tmp_path: Path, sanitized: str) -> Iterator[Stage]:
    with staged(tmp_path / "root", library=sanitized) as stage:
        yield stage


def sanitizer() -> dict[str, str]:
    """What goes before the library: the runtime must be the first of all."""
    found = [
        subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {"preload": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0", "PENSTOCK_TEST_CHECKED": "1"}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_under_sanitizers(strict: Stage, program: Callable[..., str], family: str) -> None:
    assert strict.run("maker", [program(family)], env=sanitizer())


@pytest.mark.parametrize("name", ["forks_in_threads", "writes_in_handlers"])
def test_threads_and_handlers_under_sanitizers(strict: Stage, program: Callable[..., str], name: str) -> None:
    assert strict.run("maker", [program(name)], env=sanitizer())


def test_a_reader_beside_its_writer_under_sanitizers(strict: Stage, program: Callable[..., str]) -> None:
    reader = strict.start("taker", [program("lines"), "out"], stdout=subprocess.PIPE, env=sanitizer())
    strict.run("maker", f"{program('prints')} > out", env=sanitizer())
    lines = reader.communicate(timeout=60)[0].decode().splitlines()
    assert lines == [f"line {number}" for number in range(10)] + ["end of file"]


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "process"])
def test_every_family_under_valgrind(stage: Stage, program: Callable[..., str], family: str) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind here: the library is NOT tested under it")
    command = ["valgrind", "-q", "--error-exitcode=99", program(family)]
    assert stage.run("maker", command, env={"PENSTOCK_TEST_CHECKED": "1"})
