"""Work of user-given size: one piece of a tenant at a time, a rest after it, and no other tenant waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stepkeep.operations.aside import aside, rest_between


@pytest.fixture
def endless_rest() -> Iterator[None]:
    rest_between(1e12)
    yield
    rest_between(0)


@pytest.mark.usefixtures("endless_rest")
async def test_a_tenant_rests_from_its_work_and_no_other_tenant_waits_for_it() -> None:
    assert await aside("wild", sum, [1, 2]) == 3
    second = asyncio.create_task(aside("wild", sum, [3, 4]))
    assert await aside("calm", sum, [5, 6]) == 11
    assert not second.done()
    second.cancel()


async def test_without_a_service_nothing_rests() -> None:
    assert [await aside("wild", sum, [number]) for number in range(100)] == list(range(100))
