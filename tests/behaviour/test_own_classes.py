"""Classes of the main program stay as they are when their instances come back from tasks."""

from __future__ import annotations

from typing import Any

import pytest

PROGRAM = """
import dataclasses, enum, importlib.util, typing
import penstock
from penstock import INOUT, task

count = 0

class Known:
    names = []
    def __init_subclass__(cls):
        Known.names.append(cls.__name__)

class Counter(Known):
    total = 0
    def bump(self):
        global count
        count += 1
        Counter.total += 1

@dataclasses.dataclass
class Point:
    x: int
    drawn = 0

class Pair(typing.NamedTuple):
    left: int
    def swap(self):
        return count

class Colour(enum.Enum):
    RED = 1

class Lost(Exception):
    told = 0

def around():
    class Local:
        made = 0
        @classmethod
        def bump(cls):
            cls.made += 1
    return Local

Local = around()
spec = importlib.util.spec_from_file_location("nowhere", "hidden.py")
hidden = importlib.util.module_from_spec(spec)  # and is not put among the modules
spec.loader.exec_module(hidden)
methods = Counter.bump, Local.bump, hidden.Hidden.bump

@task(returns=1)
def make(kind, *args):
    return kind(*args)

@task(it=INOUT)
def touch(it):
    it.touched = True

@task(returns=1)
def fail():
    raise Lost("nothing there")

with penstock.Runtime({settings}):
    made = [make(hidden.Hidden), make(Counter), make(Point, 3), make(Colour, 1), make(Local), make(Pair, 2)]
    updated = Counter()
    touch(updated)
    updated = penstock.wait_on(updated)
    failed = fail()
    Counter.total, Point.drawn, Local.made, Lost.told, hidden.Hidden.total = 5, 6, 7, 8, 9
    other, counter, point, colour, local, pair = penstock.wait_on(made)
    assert type(failed.exception()) is Lost
    counter.bump()
    local.bump()
    other.bump()
    assert pair == Pair(2) and pair.swap() == count == 1
assert count == 1, count
assert (Counter.total, Point.drawn, Local.made, Lost.told) == (6, 6, 8, 8)
assert (hidden.Hidden.total, hidden.count) == (10, 1)
assert methods == (Counter.bump, Local.bump, hidden.Hidden.bump)
assert Known.names == ["Counter"], Known.names
assert Known.__subclasses__() == [Counter]
assert colour is Colour.RED and type(updated) is Counter and updated.touched
"""


#: a module that workers cannot import
HIDDEN = """
count = 0

class Hidden:
    total = 0
    def bump(self):
        global count
        count += 1
        Hidden.total += 1
"""


@pytest.mark.parametrize("settings", ["cpus=2", "mode='inline'", "cpus=2, strict=True"])
def test_they_keep_their_methods_and_data(script: Any, settings: str) -> None:
    (script.folder / "hidden.py").write_text(HIDDEN)
    script(PROGRAM.replace("{settings}", settings))
