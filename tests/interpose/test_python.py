"""CPython inside the managed directory: its imports never wait, its program does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.interpose.stage import RULES, Stage, staged

from penstock.streaming.table_records import WaitKind

UPDATE = RULES.replace('fire = "no_update"\n[[step]]', 'fire = "update"\n[[step]]').replace('"made"]', '"."]')
STREAM = RULES.replace('"made"]', '"."]')

PLOT = """
import helper, json, colorsys
print("imported", flush=True)
import os
os.stat(".")
print(sorted(n for n in os.listdir(".") if n.startswith("out")), flush=True)
"""


@pytest.mark.parametrize("rules", [UPDATE, STREAM], ids=["update", "no_update"])
def test_a_script_beside_its_modules_starts_at_once(tmp_path: Path, rules: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "plot.py").write_text(PLOT)
    (root / "helper.py").write_text("value = 1\n")
    with staged(root, rules) as stage:
        maker = stage.puppet("maker")
        taker = stage.start("taker", [sys.executable, "plot.py"], stdout=subprocess.PIPE)
        assert taker.stdout is not None
        assert taker.stdout.readline() == b"imported\n"
        stage.await_wait(taker.pid, WaitKind.ENTRY, WaitKind.COMMITTED)
        maker("open('out.1', 'w').close()")
        maker.end()
        stage.over("maker")
        assert taker.stdout.readline() == b"['out.1']\n"
        assert taker.wait(60) == 0


def test_a_missing_package_is_missing_at_once(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker("!import sys, importlib.util\nsys.path.insert(0, 'made')")
    assert taker("importlib.util.find_spec('no_such_module')") is None


def test_names_that_nobody_makes_are_missing_at_once(tmp_path: Path) -> None:
    """`*.png` could match below a directory of any name; that is no reason to wait for every name."""
    rules = RULES.replace('"tmp*"]', '"tmp*", "*.png", "plots/*.svg"]', 1)
    with staged(tmp_path / "root", rules) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        assert taker("os.path.exists('matplotlibrc')") is False
        taker.blocks("os.path.isdir('plots')", WaitKind.BORN)
        maker("os.mkdir('plots')")
        assert taker.answer() is True


def test_a_module_that_a_step_names_as_its_output_is_waited_for(tmp_path: Path) -> None:
    """That of an earlier run would be imported without a word."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "config.py").write_text("value = 'old'\n")
    (root / "plot.py").write_text("import config\nprint(config.value)\n")
    rules = RULES.replace('"tmp*"]', '"tmp*", "config.py"]')
    with staged(root, rules) as stage:
        maker = stage.puppet("maker")
        taker = stage.start("taker", [sys.executable, "-B", "plot.py"], stdout=subprocess.PIPE)
        stage.await_wait(taker.pid, WaitKind.BORN)
        maker("open('config.py', 'w').write('value = 1234\\n')")
        maker.end()
        stage.over("maker")
        assert taker.communicate(timeout=60)[0] == b"1234\n"
