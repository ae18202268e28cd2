"""Races of a maker and a reader on two nodes or three: whoever reads gets all of the file, however both go about it."""

from __future__ import annotations

import os
import random
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import PATIENCE
from tests.streaming.node_races import FLOW
from tests.streaming.several_nodes import ended, on_loopback

_PROGRAM = Path(__file__).with_name("node_races.py")
_HOMES = {
    "create": '[homes]\ncreate = ["s-*", "u-*", "d-*/*"]\n',
    "hashing": '[homes]\nhashing = ["s-*", "u-*", "d-*/*"]\n',
    "manual": '[[homes.manual]]\nfiles = ["s-*", "u-*", "d-*/*"]\nstep = "read"\n',
}


def _run_races(folder: Path, homes: str, seed: int, count: int, prefetch: str = "", nodes: int = 2) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(on_loopback(folder, nodes))
        cluster.serve(FLOW + _HOMES[homes], prefetch=prefetch)
        pipe = folder / "starts"
        os.mkfifo(pipe)
        words = f"{seed} {count} {pipe}"
        reader = cluster["abc"[nodes - 1]].program("read", f"exec {sys.executable} {_PROGRAM} read {words}")
        maker = cluster["a"].program("make", f"exec {sys.executable} {_PROGRAM} make {words}")
        stack.callback(maker.kill)
        told = ended(reader, PATIENCE + count)
        made = ended(maker)
        servers = cluster.finish().values()
        said = "".join(one.out + one.err for one in (told, made, *servers))
        assert told.out == f"0 of {count} lost\n", f"seed {seed}: {said}"
        for one in (made, *servers):
            one.expect()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("homes", _HOMES)
def test_no_race_is_lost(tmp_path: Path, homes: str) -> None:
    _run_races(tmp_path, homes, seed=1, count=100)


def test_no_race_is_lost_to_a_third_node(tmp_path: Path) -> None:
    """It is the home of a part of the files, and neither makes nor reads any."""
    _run_races(tmp_path, "hashing", seed=2, count=100, nodes=3)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("prefetch", ["", "0"])
@pytest.mark.parametrize("homes", _HOMES)
def test_no_race_of_many_is_lost(tmp_path: Path, homes: str, prefetch: str) -> None:
    """Ten thousand in all."""
    _run_races(tmp_path, homes, seed=random.SystemRandom().getrandbits(32), count=1700, prefetch=prefetch)
