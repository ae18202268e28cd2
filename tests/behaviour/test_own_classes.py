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


WITHOUT_METHODS = """
import penstock
from penstock import INOUT, task

@task(items=INOUT)
def add(items, item):
    items.append(item)

def main():
    class Kept:
        items = []

    class Lost(Exception):
        items = []

    @task
    def make():
        return Kept()

    @task
    def fail():
        raise Lost

    @task
    def count():
        return len(Kept.items)

    items, others = Kept.items, Lost.items
    counts = [count()]
    assert type(make().result()) is Kept
    assert type(fail().exception()) is Lost
    items.append(1)
    others.append(1)
    counts.append(count())
    add(items, 2)
    counts.append(count())
    add(Kept.items, 3)
    counts.append(count())
    assert penstock.wait_on(counts) == [0, 1, 2, 3], counts
    assert Kept.items is items and penstock.wait_on(items) == [1, 2, 3]
    assert Lost.items is others and others == [1]

with penstock.Runtime({settings}):
    main()
"""


@pytest.mark.parametrize("settings", ["cpus=2", "mode='inline'", "cpus=2, strict=True"])
def test_local_ones_without_methods_keep_their_data(script: Any, settings: str) -> None:
    script(WITHOUT_METHODS.replace("{settings}", settings))


SLOTS = """
import abc, dataclasses
import penstock
from penstock import INOUT, task

@dataclasses.dataclass(slots=True)
class Point:
    x: int
    def moved(self):
        return Point(self.x + 1)

@dataclasses.dataclass(slots=True, frozen=True)
class Fixed:
    x: int

@dataclasses.dataclass(slots=True, weakref_slot=True)
class Named(Point):
    name: str = "none"

@dataclasses.dataclass(slots=True)
class Inside(abc.ABC):
    x: int
    point: Point = dataclasses.field(default_factory=lambda: Point(5))

class Plain:
    __slots__ = ("x", "__hidden")
    def __init__(self, x):
        self.x = self.__hidden = x
    def __eq__(self, other):
        return (self.x, self.__hidden) == (other.x, other.__hidden)

class Open(Plain):
    __slots__ = ("__dict__", "__weakref__", "more")

class None_:
    __slots__ = ()
    def __init__(self, x):
        pass
    def __eq__(self, other):
        return type(self) is type(other)

class One:
    __slots__ = "x"
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return self.x == other.x

@task(returns=1)
def make(kind, *args):
    return kind(*args)

@task(it=INOUT)
def replace(it, other):
    assert hasattr(it, "__dict__") == isinstance(it, Open)
    if not isinstance(it, Open):
        try:
            it.unknown = 1
        except (AttributeError, TypeError):  # the latter from frozen classes, of which the interpreter has two
            pass
        else:
            raise AssertionError("it is not as at home")
    for cls in type(it).__mro__:
        for name in getattr(cls, "__slots__", ()):
            name = f"_{cls.__name__}{name}" if name.startswith("__h") else name
            if hasattr(other, name) and name not in ("__dict__", "__weakref__"):
                object.__setattr__(it, name, getattr(other, name))

with penstock.Runtime({settings}):
    for kind in (Point, Fixed, Named, Inside, Plain, Open, One, None_):
        made = make(kind, 3).result()
        assert type(made) is kind and made == kind(3), made
        own = kind(1)
        replace(own, kind(2))
        assert penstock.wait_on(own) is own and own == kind(2), own
    opened = Open(1)
    opened.free = 4
    assert make(lambda it: it.free + it.x, opened).result() == 5
    assert make(Point.moved, Point(1)).result() == Point(2)
"""


@pytest.mark.parametrize("settings", ["cpus=2", "mode='inline'", "cpus=2, strict=True"])
def test_instances_with_slots_come_back(script: Any, settings: str) -> None:
    script(SLOTS.replace("{settings}", settings))


UNLOADABLE = """
import penstock
from penstock import INOUT, task

def back(where):
    import os
    if os.getpid() == where:
        raise ValueError("not here")
    return Odd()

class Odd:
    home = __import__("os").getpid()
    def __reduce__(self):
        return back, (self.home if hasattr(self, "touched") else 0,)

@task(it=INOUT)
def touch(it):
    it.touched = True

@task(returns=1)
def make():
    it = Odd()
    it.touched = True
    return it

with penstock.Runtime(cpus=1):
    it = Odd()
    touch(it)
    waits = {"what tasks have made of an object": lambda: penstock.wait_on(it), "task make#": make().result}
    for says, wait in waits.items():
        try:
            wait()
        except penstock.SerializationError as error:
            assert says in str(error) and "not here" in str(error) and "task 0" not in str(error), error
        else:
            raise AssertionError("it came back")
"""


def test_what_cannot_be_loaded_is_named(script: Any) -> None:
    script(UNLOADABLE)


ENUMS = """
import enum
import penstock
from penstock import task

class Planet(enum.Enum):
    MERCURY = (3.3, 2.4)
    EARTH = (5.9, 6.4)
    HOME = (5.9, 6.4)
    def __init__(self, mass, radius):
        self.mass = mass
        self.others = [self]
    def doubled(self):
        return 2 * self.mass

class Level(enum.IntEnum):
    LOW = 1, "low"
    HIGH = 2, "high"
    def __new__(cls, number, label):
        member = int.__new__(cls, number)
        member._value_ = number
        member.label = label
        return member

class Name(str, enum.Enum):
    FIRST = "a", 1
    SECOND = "b", 2
    ALIAS = "a", 1
    def __new__(cls, text, place):
        member = str.__new__(cls, text)
        member._value_ = place
        member.place = place
        return member

class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | WRITE

class Shape(enum.Enum):
    @property
    def shown(self):
        return self.name.lower()

class Round(Shape):
    CIRCLE = enum.auto()
    ELLIPSE = enum.auto()

def look():
    return [
        Planet.EARTH.mass, Planet.HOME is Planet.EARTH, Planet((3.3, 2.4)).name, Planet.MERCURY.doubled(),
        Planet.EARTH.others[0] is Planet.EARTH, list(Planet.__members__),
        Level.HIGH.label, Level.HIGH + 1, Level(1).label, Level.LOW < Level.HIGH, [*Level],
        Name.FIRST.place, Name["ALIAS"] is Name.FIRST, Name(2).upper(), list(Name.__members__),
        Right["BOTH"], Right.READ | Right.WRITE is Right.BOTH, Right.READ in Right.BOTH, [*Right],
        Round.ELLIPSE.shown, Round(1), [*Round],
    ]

looked = task(returns=1)(look)

@task(returns=1)
def same(*members):
    return members

with penstock.Runtime({settings}):
    expected = look()
    assert penstock.wait_on(looked()) == expected, (penstock.wait_on(looked()), expected)
    members = *Planet, *Level, *Name, *Right, *Round
    assert all(one is other for one, other in zip(penstock.wait_on(same(*members)), members, strict=True))
    assert look() == expected
"""


@pytest.mark.parametrize("settings", ["cpus=2", "mode='inline'", "cpus=2, strict=True"])
def test_members_of_enums_are_what_they_were_made_of(script: Any, settings: str) -> None:
    script(ENUMS.replace("{settings}", settings))
