"""Tasks whose functions are written with ``async``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.behaviour.modes import MODES

import penstock
from penstock import INOUT, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task(returns=1)
async def double(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


@task(returns=2)
async def both(x: int) -> tuple[int, int]:
    first, second = await asyncio.gather(_later(x), _later(x + 1))
    return first, second


async def _later(x: int) -> int:
    await asyncio.sleep(0)
    return x


@task(returns=1)
async def fail() -> None:
    await asyncio.sleep(0)
    raise LookupError("lost")


@task(items=INOUT)
async def append(items: list[int], item: int) -> None:
    await asyncio.sleep(0)
    items.append(item)


@task
async def count(n: int) -> AsyncIterator[int]:
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@task(returns=1)
async def nested(x: int) -> int:
    return int(await double(await double(x)))


@task(returns=1)
async def outlives() -> str:
    asyncio.get_running_loop().create_task(asyncio.sleep(3600))
    return "over"


def test_the_result_is_that_of_the_coroutine() -> None:
    assert double(4).result() == 8
    assert [part.result() for part in both(1)] == [1, 2]
    assert wait_on(double(double(3))) == 12
    assert double.map(range(3)).results() == [0, 2, 4]


def test_its_exception_comes_back_with_the_traceback_of_the_body() -> None:
    with pytest.raises(LookupError, match="lost") as caught:
        fail().result()
    told = str(caught.value.__cause__)
    assert 'raise LookupError("lost")' in told
    assert "asyncio" not in told.replace("await asyncio", "")


def test_it_updates_objects() -> None:
    items = [1]
    append(items, 2)
    append(items, 3)
    assert wait_on(items) == [1, 2, 3]


def test_what_it_yields_is_a_stream() -> None:
    assert [future.result() for future in count(4)] == [0, 1, 2, 3]


def test_tasks_inside_it_can_be_awaited() -> None:
    assert nested(3).result() == 12


def test_what_it_leaves_running_ends_with_it() -> None:
    assert outlives().result() == "over"


def test_a_program_that_runs_in_an_event_loop() -> None:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        values = [await double(1), *await asyncio.gather(*(asyncio.wrap_future(double(i)) for i in range(3)))]
        values += [future.result() for future in count(2)]
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        return values

    assert asyncio.run(main()) == [2, 0, 2, 4, 0, 1]


def test_the_loop_of_the_program_stays_its_own() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        assert double(2).result() == 4
        assert asyncio.get_event_loop_policy().get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_executors_take_them(mode: str) -> None:
    with penstock.Executor(**MODES[mode]) as executor:
        assert executor.submit(_later, 3).result() == 3
        assert list(executor.map(_later, range(4), chunksize=2)) == [0, 1, 2, 3]
