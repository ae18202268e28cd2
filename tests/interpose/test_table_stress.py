"""The shared table under load and under the sanitizers: threads, processes, and processes that are killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
VARIANTS = {
    "plain": [],
    "address": ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-g", "-fsanitize=thread"],
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compiles a variant when first asked for; the path of the program."""
    folder = tmp_path_factory.mktemp("stress")

    def variant_of(variant: str) -> Path:
        program = folder / variant
        if not program.exists():
            sources = [NATIVE / line for line in (NATIVE / "table.sources").read_text().split()]
            flags = (NATIVE / "flags").read_text().split()
            stress = Path(__file__).parent / "table_stress.c"
            command = [os.environ.get("CC", "cc"), *flags, *VARIANTS[variant], "-o", program, stress, *sources]
            subprocess.run(command, check=True, timeout=100)
        return program

    return variant_of


# A ThreadSanitizer knows nothing of other processes.
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
