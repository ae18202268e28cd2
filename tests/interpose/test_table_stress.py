"""The shared table under load and under the sanitizers: threads, processes, and processes that are killed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
STRESS = Path(__file__).parent / "table_stress.c"
VARIANTS = {
    "plain": [],
    "address": ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-g", "-fsanitize=thread"],
}


@pytest.fixture(scope="module")
def compiled() -> Callable[[str], Path]:
    """Compiles a variant when first asked for, and keeps it until anything of it changes; the path of the program."""
    sources = [STRESS, *(NATIVE / line for line in (NATIVE / "table.sources").read_text().split())]
    flags = (NATIVE / "flags").read_text().split()
    compiler = os.environ.get("CC", "cc")

    def variant_of(variant: str) -> Path:
        command = [compiler, *flags, *VARIANTS[variant], *map(str, sources)]
        program = ROOT / "build" / f"table-stress-{variant}-{_known_by(command)}"
        if not program.exists():
            program.parent.mkdir(exist_ok=True)
            # Under another name first: another worker may be looking for it.
            made = program.with_name(f"{program.name}-{os.getpid()}")
            subprocess.run([*command, "-o", made], check=True, timeout=100)
            made.rename(program)
        return program

    return variant_of


def _known_by(command: list[str]) -> str:
    """Differs when the program would: another compiler, other words for it, other sources or headers."""
    compiler = subprocess.run([command[0], "--version"], capture_output=True, check=True, timeout=60).stdout
    files = sorted(path for path in (NATIVE / "interpose").iterdir() if path.is_file())
    text = [compiler, *map(os.fsencode, command), *(path.read_bytes() for path in [STRESS, *files])]
    return hashlib.sha256(b"\0".join(text)).hexdigest()[:16]


# A ThreadSanitizer knows nothing of other processes.
@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("variant", "how"),
    [
        ("plain", "threads"),
        ("plain", "processes"),
        ("address", "threads"),
        ("address", "processes"),
        ("thread", "threads"),
    ],
)
def test_nothing_is_seen_too_early_and_nothing_is_lost(variant: str, how: str, compiled: Callable[[str], Path]) -> None:
    done = subprocess.run([compiled(variant), "1", how], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert " 0 failures" in done.stdout
