"""Programs with persistent objects, run as a user runs them: across runs, with settings, simulated."""

from __future__ import annotations

from tests.behaviour.conftest import Script

TWO_RUNS = """
import sys
import penstock
from penstock import task, INOUT, PersistentObject

class Counter(PersistentObject):
    def __init__(self):
        self.value = 0

@task(counter=INOUT)
def increase(counter):
    assert isinstance(counter, Counter)
    counter.value += 1

if len(sys.argv) > 1:
    counter = Counter().make_persistent("counter")
else:
    counter = Counter.get_by_id("counter")
for _ in range(3):
    increase(counter)
print(penstock.wait_on(counter).value, counter.locations() != [])
"""


def test_an_object_of_a_script_outlives_its_run(script: Script) -> None:
    assert script(TWO_RUNS, "new").stdout == "3 True\n"
    assert (script.folder / "penstock-store").is_dir()
    assert script(TWO_RUNS).stdout == "6 True\n"
    assert script(TWO_RUNS, PENSTOCK_MODE="inline").stdout == "9 True\n"


def test_the_store_is_a_setting(script: Script) -> None:
    (script.folder / "penstock.toml").write_text('[runtime]\nstore = "local:here"\n')
    assert script(TWO_RUNS, "new").stdout == "3 True\n"
    assert (script.folder / "here").is_dir()
    assert "expected an address" in script(TWO_RUNS, PENSTOCK_STORE="mysql://x", status=1).stderr


def test_the_runtime_starts_a_store_and_stops_it(script: Script) -> None:
    assert script(TWO_RUNS, "new", PENSTOCK_STORE="redis-start:").stdout == "3 True\n"


SIMULATED = """
import penstock
from penstock import task, INOUT, PersistentObject

class Counter(PersistentObject):
    def __init__(self):
        self.value = 0

@task(counter=INOUT, duration=2)
def increase(counter): ...

@task(duration=1)
def look(counter): ...

with penstock.Runtime(mode="simulated") as runtime:
    counter = Counter().make_persistent("counter")
    again = Counter.get_by_id("counter")
    look(counter), increase(counter), increase(again)
    look(again)
    penstock.wait_on(counter)
    print(runtime.now, counter.value)
    penstock.barrier()
    print(runtime.now)
"""


def test_a_simulated_program_has_its_objects_in_memory_and_tasks_that_take_turns(script: Script) -> None:
    assert script(SIMULATED).stdout == "4.0 0\n5.0\n"
    assert not (script.folder / "penstock-store").exists()


def test_strict_mode_reports_a_change_that_is_not_declared(script: Script) -> None:
    program = """
import penstock
class Node(penstock.PersistentObject):
    def __init__(self): self.value = 0
@penstock.task()
def change(node): node.value = 1
with penstock.Runtime(strict=True, cpus=1):
    node = Node().make_persistent()
    try:
        change(node).result()
    except penstock.ArgumentChanged as error:
        print("told", "Node" in str(error))
    print(Node.get_by_id(node.get_id()).value)
"""
    assert script(program).stdout == "told True\n0\n"


def test_importing_penstock_imports_no_store(script: Script) -> None:
    program = (
        "import sys; from penstock import task, wait_on; "
        "print([m for m in sys.modules if m.startswith(('redis', 'penstock.persistent.'))])"
    )
    assert script(program).stdout == "['penstock.persistent.where']\n"


CHANGED_CLASS = """
import sys
from penstock import task, INOUT, PersistentObject, wait_on

class Rule(PersistentObject):
    def apply(self):
        return "WHAT"

@task
def ask(rule):
    return rule.apply()

@task(rule=INOUT)
def ask_and_update(rule):
    return rule.apply()

if "WHAT" == "as it was":
    rule = Rule().make_persistent("rule")
else:
    rule = Rule.get_by_id("rule")
print(rule.apply(), ask(rule).result(), ask_and_update(rule).result(), ask(Rule().make_persistent()).result(), sep=", ")
"""


def test_tasks_use_the_class_of_the_program_not_that_of_the_store(script: Script) -> None:
    script(CHANGED_CLASS.replace("WHAT", "as it was"))
    assert script(CHANGED_CLASS.replace("WHAT", "corrected")).stdout == ", ".join(["corrected"] * 4) + "\n"
