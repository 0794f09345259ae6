"""Work of user-given size: one piece of a tenant at a time, a rest after it, and no other tenant waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from stepkeep.operations.aside import RESTING, aside, rest_between
from stepkeep.operations.pipeline.group_commit import Submissions


@pytest.fixture
def endless_rest() -> Iterator[None]:
    rest_between({"wild": 1e12, "calm": 0.0}.__getitem__)
    yield
    rest_between(lambda tenant: 0.0)


@pytest.mark.usefixtures("endless_rest")
async def test_a_tenant_rests_from_its_work_and_no_other_tenant_waits_for_it() -> None:
    assert await aside("wild", sum, [1, 2]) == 3
    second = asyncio.create_task(aside("wild", sum, [3, 4]))
    assert await aside("calm", sum, [5, 6]) == 11
    assert await aside("calm", sum, [7, 8]) == 15
    assert not second.done()
    second.cancel()


async def test_without_a_service_nothing_rests() -> None:
    assert [await aside("wild", sum, [number]) for number in range(100)] == list(range(100))


async def test_a_request_rests_while_it_waits_for_a_thread_or_a_group_commit() -> None:
    resting: list[str] = []

    @asynccontextmanager
    async def rest() -> AsyncIterator[None]:
        resting.append("rests")
        yield
        resting.append("goes on")

    async def commit(items: list[int]) -> list[int]:
        assert resting == ["rests"]
        return items

    before = RESTING.set(rest)
    assert await aside("calm", lambda: list(resting)) == ["rests"]
    assert resting == ["rests", "goes on"]
    resting.clear()
    assert await Submissions(commit).put(7) == 7
    assert resting == ["rests", "goes on"]
    RESTING.reset(before)
