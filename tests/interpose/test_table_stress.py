"""The shared table under load and under the sanitizers: threads, processes, and processes that are killed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
VARIANTS = {
    "plain": [],
    "address": ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-g", "-fsanitize=thread"],
}


def compiled(tmp_path: Path, variant: str) -> Path:
    sources = [NATIVE / line for line in (NATIVE / "table.sources").read_text().split()]
    flags = (NATIVE / "flags").read_text().split()
    program = tmp_path / "stress"
    stress = Path(__file__).parent / "table_stress.c"
    command = [os.environ.get("CC", "cc"), *flags, *VARIANTS[variant], "-o", program, stress, *sources]
    subprocess.run(command, check=True, timeout=100)
    return program


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
def test_nothing_is_seen_too_early_and_nothing_is_lost(variant: str, how: str, tmp_path: Path) -> None:
    program = compiled(tmp_path, variant)
    done = subprocess.run([program, "1", how], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert " 0 failures" in done.stdout
