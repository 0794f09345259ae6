"""Places under quotas on every store: never more than the quota, freed by the end of a run or by time."""

from __future__ import annotations

import asyncio

from tests.store.values import TENANT, new_run, save

from stepkeep.store.protocol import Store
from stepkeep.store.quotas import Scope

KEY, WHOLE = Scope("key k1", 2), Scope("tenant", 3)


def run(number: int) -> str:
    return f"01a1e12c-57d6-75bf-abba-{number:012x}"


async def test_parallel_takes_of_several_processes_get_as_many_places_as_there_are(store: Store, other: Store) -> None:
    took = await asyncio.gather(
        *((store, other)[number % 2].quotas.take(TENANT, run(number), [WHOLE, KEY], 10, 5) for number in range(12))
    )
    assert took.count(None) == 2
    assert {one for one in took if one is not None} == {"key k1"}
    assert await store.quotas.take(TENANT, run(20), [WHOLE], 10, 5) is None
    assert await store.quotas.take(TENANT, run(21), [WHOLE], 10, 5) == "tenant"
    assert await store.quotas.take("another tenant", run(22), [WHOLE], 10, 5) is None


async def test_a_full_scope_takes_no_place_in_the_others(store: Store) -> None:
    one = Scope("key k1", 1)
    assert await store.quotas.take(TENANT, run(1), [one], 10, 5) is None
    assert await store.quotas.take(TENANT, run(2), [Scope("a key before", 1), one], 10, 5) == "key k1"
    assert await store.quotas.take(TENANT, run(3), [Scope("a key before", 1)], 10, 5) is None


async def test_a_place_is_given_back_or_free_in_time_or_with_the_end_of_its_run(store: Store) -> None:
    one = [Scope("key k1", 1)]
    assert await store.quotas.take(TENANT, run(1), one, 10, 5) is None
    assert await store.quotas.take(TENANT, run(2), one, 15, 5) == "key k1"
    assert await store.quotas.take(TENANT, run(2), one, 16, 5) is None, "no run came within the time"
    await store.quotas.drop(TENANT, run(2), one)
    made = new_run(1)
    await save(store, made)
    assert await store.quotas.take(TENANT, made.run.id, one, 17, 5) is None
    assert await store.quotas.take(TENANT, run(4), one, 1_000_000, 5) == "key k1", "a run that lives keeps its place"


async def test_the_rows_of_a_tenant_are_counted_by_kind_up_to_a_number(store: Store) -> None:
    for number in range(3):
        await store.publish_schema(TENANT, f"s{number}", f"{number:064x}", b"12345", "ann")
    assert await store.measure_use(TENANT, "definitions", 10) == (3, 15)
    assert await store.measure_use(TENANT, "definitions", 2) == (2, 10)
    for kind in ("messages", "triggers", "settings", "people", "streams"):
        assert await store.measure_use(TENANT, kind, 10) == (0, 0)
    assert await store.measure_use("another tenant", "definitions", 10) == (0, 0)
