"""Segments vanish at random while an engine runs random programs: what is read is right, and nothing waits for ever.

The world is small: segments have contents, an attempt reads its inputs when it begins, spoils at once what it changes
in place, and delivers what follows from its inputs. Losses are told, or found out by whoever reads next. Only a version
that was lost more than three times may fail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.unit.engine_rig import Rig, call, spec, updates

from penstock.engine.lineage import OFTEN
from penstock.model.commands import Command, Free, Launch
from penstock.model.data import Piece, Value, segments_of
from penstock.model.events import Lost, SegmentsLost, Submitted
from penstock.model.tasks import Failure, FailureKind, TaskCall

SPECS = (spec("f"), spec("g", retries=1))


@dataclass
class Attempt:
    launch: Launch
    begun: bool = False


class Losses(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(lanes=3)
        self.segments: dict[int, str] = {}
        self.made = 0
        self.numbers = 0
        self.attempts: dict[int, Attempt] = {}
        #: what each version must hold
        self.expected: dict[int, str] = {}
        self.held: set[int] = set()
        self.lost: Counter[int] = Counter()

    # --- the engine's side ------------------------------------------------------------------------------------------

    def take(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Launch):
                assert command.task not in self.attempts
                self.attempts[command.task] = Attempt(command)
            elif isinstance(command, Free):
                self.segments.pop(command.segment, None)
        for report in self.rig.engine.state.reports:
            if isinstance(report, Lost):
                self.lost[report.version] += 1
        self.rig.engine.state.reports.clear()

    def submit(self, one: TaskCall, token: str, released: tuple[int, ...] = ()) -> None:
        for version in one.writes:
            self.expected[version] = f"{token}.{version}"
            self.held.add(version)
        self.held.difference_update(released)
        self.take(self.rig.tell(Submitted(one, released)))

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    # --- the program ------------------------------------------------------------------------------------------------

    @rule(returns=st.integers(1, 2), of=st.sampled_from(SPECS))
    def make(self, returns: int, of: Any) -> None:
        task = self.number()
        writes = tuple(self.number() for _ in range(returns))
        self.submit(call(task, of, writes=writes, returns=returns), f"made by {task}")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def combine(self, data: st.DataObject) -> None:
        inputs = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, max_size=3, unique=True))
        task, version = self.number(), self.number()
        token = f"{task} of {hash(tuple(self.expected[one] for one in inputs))}"
        self.submit(call(task, SPECS[0], slots=tuple(inputs), writes=(version,), returns=1), token)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), of=st.sampled_from(SPECS), times=st.integers(1, 3))
    def update(self, data: st.DataObject, of: Any, times: int) -> None:
        old = data.draw(st.sampled_from(sorted(self.held)))
        for _ in range(times):
            task, new = self.number(), self.number()
            self.submit(updates(task, old, new, of), f"{task} of {hash(self.expected[old])}", (old,))
            old = new

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.held)))
        self.held.discard(version)
        self.take(self.rig.release(version))

    # --- workers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(not attempt.begun for attempt in self.attempts.values()))
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self._begin(data.draw(st.sampled_from([n for n, one in sorted(self.attempts.items()) if not one.begun])))

    def _begin(self, task: int) -> bool:
        attempt = self.attempts[task]
        slots = dict(zip(attempt.launch.call.slots, attempt.launch.slots, strict=True))
        gone = {segment for slot in slots.values() for segment in segments_of(slot)} - self.segments.keys()
        if gone:
            del self.attempts[task]
            self.take(self.rig.fail(task, Failure(FailureKind.LOST, "gone", lost=tuple(sorted(gone)))))
            return False
        for version, slot in slots.items():
            assert isinstance(slot, Value)
            for segment in segments_of(slot):
                assert self.segments[segment] == self.expected[version]  # type: ignore[index]
            assert slot.data == self.expected[version].encode()  # type: ignore[index]
        for index in attempt.launch.in_place:
            for segment in segments_of(attempt.launch.slots[index]):
                self.segments[segment] = f"half-written by {task}"
        attempt.begun = True
        return True

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), large=st.sampled_from([True, True, False]))
    def finish(self, data: st.DataObject, large: bool) -> None:
        self._finish(data.draw(st.sampled_from(sorted(self.attempts))), large=large)

    def _finish(self, task: int, *, large: bool) -> None:
        attempt = self.attempts[task]
        if not attempt.begun and not self._begin(task):
            return
        del self.attempts[task]
        one = attempt.launch.call
        outputs = []
        for position, version in enumerate(one.writes):
            token = self.expected[version]
            slot = one.outputs[position - one.returns].slot if position >= one.returns else -1
            if slot in attempt.launch.in_place:
                old = attempt.launch.slots[slot]
                assert isinstance(old, Value)
                for segment in segments_of(old) & self.segments.keys():
                    self.segments[segment] = token
                outputs.append(Value(token.encode(), old.buffers))
            elif large or version % 3:
                self.made += 1
                self.segments[self.made] = token
                outputs.append(Value(token.encode(), (Piece(self.made, False, 0, 100),)))
            else:
                outputs.append(Value(token.encode()))
        self.take(self.rig.finish(task, *outputs))

    @precondition(lambda self: any(not one.launch.in_place for one in self.attempts.values()))
    @rule(data=st.data())
    def lose_worker(self, data: st.DataObject) -> None:
        """Seldom enough for the task to be tried again; not where its input is half changed."""
        able = [n for n, one in sorted(self.attempts.items()) if not one.launch.in_place]
        task = data.draw(st.sampled_from(able))
        if self.attempts[task].launch.attempt == 1:
            lane = self.rig.lane_of(task)
            del self.attempts[task]
            self.take(self.rig.lose_worker(lane))

    # --- losses -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.segments)
    @rule(data=st.data(), found=st.sampled_from(["told", "told", "by the program", "by whoever reads next"]))
    def lose(self, data: st.DataObject, found: str) -> None:
        gone = data.draw(st.lists(st.sampled_from(sorted(self.segments)), min_size=1, max_size=3, unique=True))
        for segment in gone:
            del self.segments[segment]
        if found == "told":
            self.take(self.rig.tell(SegmentsLost(tuple(gone), "gone")))
        elif found == "by the program":
            for version in sorted(self.held):
                self._read(version)

    @precondition(lambda self: len(self.attempts) > 1)
    @rule()
    def finish_all(self) -> None:
        for task in sorted(self.attempts):
            if task in self.attempts:
                self._finish(task, large=True)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lose_under_an_update(self, data: st.DataObject) -> None:
        """Lose what was made of something while that is changed in place: it must not be made of the half."""
        while self.attempts:
            self._finish(min(self.attempts), large=True)  # so that there are free lanes
        source = data.draw(st.sampled_from(sorted(self.held)))
        reader, made, writer, new = (self.number() for _ in range(4))
        token = f"{reader} of {hash((self.expected[source],))}"
        self.submit(call(reader, SPECS[0], slots=(source,), writes=(made,), returns=1), token)
        if reader in self.attempts:
            self._finish(reader, large=True)
        self.submit(updates(writer, source, new, SPECS[0]), f"{writer} of {hash(self.expected[source])}", (source,))
        if writer in self.attempts:
            self._begin(writer)
        outcome = self.rig.engine.state.versions[made].outcome
        if isinstance(outcome, Value):
            for segment in segments_of(outcome):
                self.segments.pop(segment, None)
            self.take(self.rig.tell(SegmentsLost(tuple(segments_of(outcome)), "gone")))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """The program loads what it holds, if it is there."""
        self._read(data.draw(st.sampled_from(sorted(self.held))))

    def _read(self, version: int) -> None:
        outcome = self.rig.engine.state.versions[version].outcome
        if isinstance(outcome, Failure):
            assert any(times > OFTEN for times in self.lost.values()), outcome
        elif isinstance(outcome, Value):
            gone = segments_of(outcome) - self.segments.keys()
            if gone:
                self.take(self.rig.tell(SegmentsLost(tuple(gone), "gone")))
                return
            assert outcome.data == self.expected[version].encode()
            assert all(self.segments[one] == self.expected[version] for one in segments_of(outcome))

    def teardown(self) -> None:
        for _ in range(10):
            while self.attempts:
                self._finish(min(self.attempts), large=True)
            assert not self.rig.engine.state.tasks, "something waits for ever"
            for version in sorted(self.held):
                self._read(version)
        assert not self.attempts
        for version in sorted(self.held):
            assert self.rig.engine.state.versions[version].outcome is not None
            self.take(self.rig.release(version))
        assert self.rig.empty


Losses.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestLosses = Losses.TestCase
