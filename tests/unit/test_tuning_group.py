"""Several like devices that search together: on devices that answer at once, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from benchmarks.steering.scenarios import CURVES
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.curves import interpolate
from penstock.tuning.group import Group
from penstock.tuning.member import Member
from penstock.tuning.search import Phase, Search

MOST = 16
SECONDS = 0.2
Rate = Callable[[int], float]


def group_of(many: int) -> tuple[Group, list[Member]]:
    group = Group(1, MOST, 4)
    return group, [group.join() for _ in range(many)]


def answer(member: Member, rate: Rate, error: float = 0.0) -> None:
    """Its device says what it delivers; one that has left goes on by itself."""
    search = member.alone or member
    delivered = rate(search.limit)
    search.judge(delivered, error, delivered * SECONDS, SECONDS)


def rounds(members: list[Member], rate: Rate, times: int, odd: Mapping[int, Rate] | None = None) -> None:
    """So often, each device answers."""
    for _ in range(times):
        for number, member in enumerate(members):
            answer(member, (odd or {}).get(number, rate))


def unimodal(peak: int, rise: float = 0.8, fall: float = 0.8) -> Rate:
    return lambda n: 100.0 * (rise ** (peak - n) if n < peak else fall ** (n - peak))


@pytest.mark.parametrize("many", [1, 2, 4, 16])
@pytest.mark.parametrize("name", CURVES)
def test_the_best_is_found_and_held_by_all(name: str, many: int) -> None:
    group, members = group_of(many)

    def rate(streams: int) -> float:
        return interpolate(CURVES[name], streams)

    rounds(members, rate, 25)
    assert group.phase is Phase.HOLD
    assert rate(group.best) >= 0.96 * max(map(rate, range(1, MOST + 1)))
    assert sum(member.limit != group.best for member in members) <= 1


@pytest.mark.parametrize(("many", "most"), [(4, 5), (16, 5)])
def test_together_it_takes_a_part_of_the_measurements_each(many: int, most: int) -> None:
    """One alone needs eleven for this device."""
    group, members = group_of(many)
    taken = 0
    while not group.settled:
        rounds(members, unimodal(8), 1)
        taken += 1
    assert group.best == 8
    assert taken <= most


def test_each_tries_another_limit_at_the_same_time() -> None:
    group, members = group_of(4)
    rounds(members, unimodal(8), 1)
    tried = {member.limit for member in members if member.limit != group.best}
    assert len(tried) >= 2


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, MOST))
def test_the_order_in_which_they_answer_does_not_matter(seed: int, many: int, peak: int) -> None:
    chance = random.Random(seed)
    group, members = group_of(many)
    for _ in range(60 * many):
        answer(chance.choice(members), unimodal(peak))
    assert all(member.alone is None for member in members)
    assert unimodal(peak)(group.best) >= 0.93 * unimodal(peak)(peak)


@given(st.integers(2, 5), st.lists(st.tuples(st.integers(0, 4), st.floats(1.0, 1e9)), min_size=5, max_size=80))
def test_limits_keep_within_their_bounds_whatever_is_told(many: int, told: list[tuple[int, float]]) -> None:
    group, members = group_of(many)
    for number, delivered in told:
        member = members[number % many]
        search = member.alone or member
        search.judge(delivered, 0.01, delivered, SECONDS)
        assert all(1 <= (one.alone or one).limit <= MOST for one in members)
    group.bound(3, 3)
    assert all(member.limit == 3 for member in members if member.alone is None)


@pytest.mark.parametrize("slower", [0.3, 0.6])
@pytest.mark.parametrize("which", [0, 3])
def test_a_slower_device_drags_nobody_along_and_learns_for_itself(slower: float, which: int) -> None:
    group, members = group_of(4)
    own = unimodal(3)
    rounds(members, unimodal(8), 40, {which: lambda n: slower * own(n)})
    assert group.best == 8
    assert all((member.alone is None) is (number != which) for number, member in enumerate(members))
    alone = members[which].alone
    assert alone is not None and own(alone.best) >= 0.9 * own(3)


def test_one_that_becomes_slower_later_leaves_too() -> None:
    group, members = group_of(4)
    rounds(members, unimodal(8), 15)
    rounds(members, unimodal(8), 30, {2: lambda n: 0.5 * unimodal(4)(n)})
    assert [member.alone is None for member in members] == [True, True, False, True]
    assert (group.best, group.changes) == (8, 0)


def test_two_that_differ_go_their_own_ways() -> None:
    group, members = group_of(2)
    rounds(members, unimodal(8), 40, {1: lambda n: 0.4 * unimodal(3)(n)})
    bests = [(member.alone or group).best for member in members]
    assert bests[0] in (7, 8, 9) and bests[1] in (2, 3, 4)


def test_small_differences_are_reckoned_with() -> None:
    """Nobody leaves for being ten per cent slower, and the best is found all the same."""
    group, members = group_of(4)
    rounds(
        members,
        unimodal(8),
        60,
        {number: (lambda n, part=part: part * unimodal(8)(n)) for number, part in enumerate((0.93, 1.0, 1.05, 0.98))},
    )
    assert all(member.alone is None for member in members)
    assert abs(group.best - 8) <= 1


def test_when_all_change_they_search_again_together() -> None:
    group, members = group_of(4)
    rounds(members, unimodal(10), 15)
    rounds(members, lambda n: 0.5 * unimodal(3)(n), 25)
    assert group.changes == 1 and group.best == 3
    assert all(member.alone is None for member in members)


def test_at_rest_one_at_a_time_probes() -> None:
    group, members = group_of(4)
    rounds(members, unimodal(8), 15)
    probes = 0
    for _ in range(100):
        for member in members:
            assert sum(one.limit != group.best for one in members) <= 1
            probes += member.limit != group.best
            answer(member, unimodal(8))
    assert 2 <= probes <= 20


def test_one_without_work_is_not_waited_for() -> None:
    group, members = group_of(4)
    rounds(members[:3], unimodal(8), 30)
    assert group.phase is Phase.HOLD and group.best == 8


@pytest.mark.parametrize("after", range(8))
def test_one_that_is_lost_is_not_waited_for(after: int) -> None:
    group, members = group_of(3)
    rounds(members, unimodal(8), after)
    group.remove(members[1])
    rounds([members[0], members[2]], unimodal(8), 25)
    assert group.phase is Phase.HOLD and group.best == 8
    group.remove(members[0])
    rounds([members[2]], unimodal(3), 25)
    assert group.best == 3


@pytest.mark.parametrize("after", [0, 2, 30])
def test_one_that_joins_later_begins_where_the_others_are(after: int) -> None:
    search = Search(1, MOST, 4)
    for _ in range(after):
        delivered = unimodal(8)(search.limit)
        search.judge(delivered, 0.0, delivered * SECONDS, SECONDS)
    group = Group.of(search)
    members = [group.join(), group.join()]
    if after == 30:
        assert [member.limit for member in members] == [8, 8]
    rounds(members, unimodal(8), 25)
    assert group.best == 8 and all(member.limit in (7, 8, 9) for member in members)


def test_where_few_tell_nothing_all_go_to_where_others_begin() -> None:
    _, members = group_of(3)
    members[1].forget()
    members[1].skip()
    assert {member.limit for member in members} == {4}
