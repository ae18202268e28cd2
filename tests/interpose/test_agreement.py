"""Every family: a program that makes all its calls prints the same plain and preloaded, and leaves the same files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interpose.stage import Stage

FAMILIES = [
    "open",
    "read",
    "write",
    "aio",
    "seek",
    "stat",
    "attribute",
    "dir",
    "name",
    "map",
    "dup",
    "send",
    "stdio",
    "wide",
    "process",
    "syscall",
]


def tree(root: Path) -> dict[str, object]:
    """Names, kinds and bytes of everything below."""
    return {
        str(path.relative_to(root)): path.readlink() if path.is_symlink() else path.is_dir() or path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("app", ["maker", "stranger"])
def test_plain_and_preloaded_runs_agree(
    stage: Stage, program: Callable[..., str], tmp_path: Path, family: str, app: str
) -> None:
    plain_root = tmp_path / "plain"
    plain_root.mkdir()
    path = program(family)
    plain = subprocess.run([path], cwd=plain_root, capture_output=True, text=True, timeout=60, check=False)
    assert plain.returncode == 0, plain.stderr
    if app == "stranger":  # an app the rules do not know, in a workflow that is over: all plain
        stage.over("maker")
    assert stage.run(app, [path]).splitlines() == plain.stdout.splitlines()
    assert tree(stage.root) == tree(plain_root)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_library_without_a_workflow_is_no_one(
    stage: Stage, program: Callable[..., str], tmp_path: Path, family: str
) -> None:
    plain_root, inert_root = tmp_path / "plain", tmp_path / "inert"
    plain_root.mkdir()
    inert_root.mkdir()
    path = program(family)
    plain = subprocess.run([path], cwd=plain_root, capture_output=True, text=True, timeout=60, check=False)
    environment = {"LD_PRELOAD": stage.library, "PENSTOCK_TEST_EXPECTS": "1"}
    inert = subprocess.run(
        [path], cwd=inert_root, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert inert.returncode == 0, inert.stderr
    assert inert.stdout.splitlines() == plain.stdout.splitlines()
    assert tree(inert_root) == tree(plain_root)
