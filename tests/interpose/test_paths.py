"""Names: every spelling of a path is the same name, and no name is too strange."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.interpose.stage import RULES, Stage, staged

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"


@pytest.mark.parametrize(
    "name",
    [
        "out with spaces",
        "out\nwith\nnewlines",
        "out'\"\\`$(quotes)",
        "out*?[a]",
        "outäöü€𝄞",
        "out\udcff\udcfe not utf-8",
        "out" + "x" * 252,
        "out..",
        "out/.hidden",
        "out/...",
        "out/" + "/".join(["d" * 200] * 18) + "/" + "f" * 250,  # about 4,000 bytes with the root
    ],
)
def test_no_name_is_too_strange(stage: Stage, name: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    folder = os.path.dirname(name)
    if folder:
        maker(f"os.makedirs({folder!r})")
    taker.blocks(f"os.open({name!r}, os.O_RDONLY)", WaitKind.BORN)
    maker(f"!out = os.open({name!r}, {MAKE})")
    fd = taker.answer()
    taker.blocks(f"os.read({fd}, 4)", WaitKind.RANGE)
    maker("os.write(out, b'data') and os.close(out)")
    assert taker.answer() == b"data"
    assert taker(f"os.stat({name!r}).st_size") == 4


@pytest.mark.parametrize(
    "path",
    [
        "out",
        "./out",
        ".//out",
        "x/../out",
        "x/./../out",
        "x/y/../../out",
        "{root}/out",
        "{root}//out",
        "{root}/./out",
        "{root}/x/../out",
        "{parent}/root/out",
        "{parent}/../{grandparent}/root/out",
        "/../{root}/out",
        "//{root}/out",
        "../root/out",
        "../../{grandparent}/root/out",
    ],
)
def test_every_spelling_is_the_same_name(stage: Stage, path: str) -> None:
    (stage.root / "x" / "y").mkdir(parents=True)
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    parent = str(stage.root.parent)
    spelled = path.format(root=str(stage.root), parent=parent, grandparent=stage.root.parent.name)
    taker.blocks(f"os.open({spelled!r}, os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.close(os.open('out', {MAKE}))")
    assert taker.answer() > 2


def test_relative_to_the_working_directory(stage: Stage) -> None:
    (stage.root / "x").mkdir()
    maker, taker = stage.puppet("maker"), stage.puppet("taker", cwd=stage.root.parent)
    taker.blocks("os.open('root/out', os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.close(os.open('out', {MAKE}))")
    taker.answer()
    taker("os.chdir('root/x')")
    taker.blocks("os.open('../out.2', os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.close(os.open('out.2', {MAKE}))")
    taker.answer()
    taker("os.chdir('/')")
    relative = str(stage.root / "out.3").lstrip("/")
    taker.blocks(f"os.open({relative!r}, os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.close(os.open('out.3', {MAKE}))")
    taker.answer()
    taker(f"os.fchdir(os.open({str(stage.root)!r}, os.O_RDONLY))")
    taker.blocks("os.open('out.4', os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.close(os.open('out.4', {MAKE}))")
    assert taker.answer() > 2


@pytest.mark.parametrize("base", ["{root}", "{root}/x", "{parent}", "/"])
def test_relative_to_a_descriptor(stage: Stage, base: str) -> None:
    (stage.root / "x").mkdir()
    maker, taker = stage.puppet("maker"), stage.puppet("taker", cwd="/")
    folder = base.format(root=stage.root, parent=stage.root.parent)
    relative = os.path.relpath(stage.root / "out", folder)
    fd = taker(f"os.open({folder!r}, os.O_RDONLY)")
    taker.blocks(f"os.open({relative!r}, os.O_RDONLY, dir_fd={fd})", WaitKind.BORN)
    maker(f"os.close(os.open('out', {MAKE}))")
    assert taker.answer() > 2


def test_neighbours_of_the_directory_are_not_ours(stage: Stage) -> None:
    taker = stage.puppet("taker")
    beside = stage.root.parent / "rooted"
    beside.mkdir()
    for path in (beside / "out", stage.root.parent / "out", Path("/out-of-penstock")):
        with pytest.raises(FileNotFoundError):
            taker(f"os.open({str(path)!r}, os.O_RDONLY)")
    taker(f"open({str(beside / 'out')!r}, 'w').write('plain') and None")
    assert not stage.table.iterate(Flag.BORN)


def test_excluded_names_touch_the_kernel_only(tmp_path: Path) -> None:
    rules = 'exclude = ["out.log", "scratch"]\n' + RULES
    with staged(tmp_path / "root", rules) as stage:
        taker = stage.puppet("taker")
        with pytest.raises(FileNotFoundError):
            taker("os.stat('out.log')")
        taker("!os.mkdir('scratch')\nopen('scratch/out', 'w').write('x')\nopen('out.log', 'w').write('y')")
        taker("os.rename('out.log', 'scratch/log')")
        assert sorted(taker("os.listdir('scratch')")) == ["log", "out"]
        assert not [info.name for info in stage.table.iterate(Flag.BORN) if info.name != "."]


def test_a_directory_behind_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "memory", tmp_path / "root"
    real.mkdir()
    link.symlink_to(real)
    with staged(link, RULES, roots=[str(real), str(link)]) as stage:
        maker, taker = stage.puppet("maker", cwd=real), stage.puppet("taker", cwd="/")
        taker.blocks(f"os.open({str(link / 'out')!r}, os.O_RDONLY)", WaitKind.BORN)
        maker(f"!out = os.open('out', {MAKE})")
        assert taker.answer() > 2
        taker(f"os.chdir({str(link)!r})")
        taker.blocks("os.stat('out').st_size", WaitKind.COMMITTED)
        maker("os.close(out)")
        assert taker.answer() == 0
