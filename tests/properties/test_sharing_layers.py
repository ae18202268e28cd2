"""Programs that share a layer, by the rule alone: random programs come, want, work, stand still and die.

Whatever they do, in whatever order they look: they never hold more than there is, and whoever wants gets to run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.storage_rig import FAST, MB, StorageRig, io, writes

from penstock.engine.state import IOTaskRecord
from penstock.model.events import BudgetChanged, Submitted
from penstock.model.resources import Auto
from penstock.storage.sharing import Claim, granted, parts

TOTAL = 40.0


@dataclass
class Program:
    """A program with tasks that each need some of a layer, and that last some steps."""

    waiting: list[int]
    since: float
    #: what it may hold, as the others know
    may_hold: float = 0.0
    #: what its engine goes by
    part: float = 0.0
    running: list[list[int]] = field(default_factory=list)

    @property
    def holds(self) -> float:
        return float(sum(need for need, _ in self.running))

    def claim(self) -> Claim:
        wants = self.holds + sum(self.waiting)
        return Claim(self.may_hold, self.holds, min(TOTAL, wants), float(max(self.waiting, default=0)), self.since)

    def work(self, length: int) -> None:
        """Time passes: attempts end, and the first that waits begins if that fits."""
        for one in self.running:
            one[1] -= 1
        self.running = [one for one in self.running if one[1] > 0]
        while self.waiting and self.holds + self.waiting[0] <= self.part:
            self.running.append([self.waiting.pop(0), length])


def look(programs: list[Program], mine: Program, now: float) -> None:
    """What a program does when it looks: it raises what it may hold, or lowers it to what it holds."""
    index = programs.index(mine)
    claims = [program.claim() for program in programs]
    target = parts(TOTAL, claims)[index]
    if target < mine.may_hold:
        mine.part = target
        mine.may_hold = max(target, mine.holds)
    else:
        mine.part = mine.may_hold = granted(TOTAL, claims, index)
    if claims[index].holds > target:
        mine.since = now


tasks = st.lists(st.integers(1, int(TOTAL)), min_size=1, max_size=6)


@given(st.data())
def test_never_more_than_there_is_and_all_get_to_run(data: st.DataObject) -> None:
    programs = [Program(waiting, 0.0) for waiting in data.draw(st.lists(tasks, min_size=1, max_size=4))]
    now = 0.0
    for _ in range(data.draw(st.integers(0, 60))):
        now += 1
        what = data.draw(st.sampled_from(["look", "look", "work", "come", "die", "more"]))
        if what == "come" and len(programs) < 5:
            programs.append(Program(data.draw(tasks), now))
        elif programs:
            one = data.draw(st.sampled_from(programs))
            if what == "look":
                look(programs, one, now)
            elif what == "work":
                one.work(data.draw(st.integers(1, 4)))
            elif what == "more":
                one.waiting += data.draw(tasks)
            elif what == "die":
                programs = [other for other in programs if other is not one]
        assert sum(program.may_hold for program in programs) <= TOTAL
        assert all(program.holds <= program.may_hold for program in programs)
    # From now on all look and work: everything that waits gets to run, and no program is passed over for long.
    for _ in range(150):
        for program in programs:
            now += 1
            look(programs, program, now)
            assert sum(program.may_hold for program in programs) <= TOTAL
            program.work(2)
    assert not any(program.waiting for program in programs)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=5))
def test_nobody_who_wants_all_has_less_than_an_equal_part(wishes: list[tuple[int, int]]) -> None:
    claims = [Claim(wants=float(min(wants, TOTAL))) for wants, _ in wishes]
    shares = parts(TOTAL, claims)
    assert sum(shares) <= TOTAL
    greedy = [share for claim, share in zip(claims, shares, strict=True) if claim.wants == TOTAL]
    assert all(share >= TOTAL // len(claims) for share in greedy)


def test_turns_go_to_who_waits_for_longest() -> None:
    first, second = Claim(wants=40, need=30, since=1), Claim(wants=40, need=30, since=2)
    assert parts(TOTAL, [second, first]) == [10, 30]
    assert parts(TOTAL, [second, replace(first, holds=30)]) == [30, 10]


def test_a_need_beyond_the_layer_takes_no_turn() -> None:
    assert parts(TOTAL, [Claim(wants=40, need=50), Claim(wants=40, need=1)]) == [20, 20]


def test_what_one_does_not_want_the_other_has() -> None:
    assert parts(TOTAL, [Claim(wants=8), Claim(wants=40)]) == [8, 32]
    assert parts(TOTAL, [Claim(wants=8), Claim(wants=40), Claim()]) == [8, 32, 0]


WORK = [io(bw=bw) for bw in (3, 30, 100)] + [io(auto=Auto()), io(auto=Auto(20 * MB, 60 * MB, 2))]


@given(st.lists(st.tuples(st.sampled_from(["part", "call", "call", "end"]), st.integers(0, 100)), max_size=40))
def test_the_engine_keeps_within_any_part_and_its_sums_hold(steps: list[tuple[str, int]]) -> None:
    """What the rig is told is followed by a check of all invariants."""
    rig = StorageRig(FAST, executors=6)
    rig.tell(BudgetChanged("fast", 0.0, closed=True))
    state, called = rig.engine.state, 0
    [device] = state.ledger.devices()
    least = 0.0

    def end_one() -> bool:
        running = [one for one in state.tasks.values() if isinstance(one, IOTaskRecord) and one.lane is not None]
        if running:
            rig.now += 0.5
            rig.wrote(running[0].task)
        return bool(running)

    for what, number in steps:
        held = device.layer.bandwidth - device.free_bandwidth - device.others
        if what == "part":
            least = number * MB
            rig.tell(BudgetChanged("fast", least, others=number % 2))
        elif what == "call":
            called += 1
            rig.tell(Submitted(writes(called, f"/home/{called}", WORK[number % len(WORK)])))
        else:
            end_one()
        holds = device.layer.bandwidth - device.free_bandwidth - device.others
        assert holds <= max(least, held)
    rig.tell(BudgetChanged("fast", 100 * MB))
    while end_one():
        pass
    assert not rig.engine.unfinished
