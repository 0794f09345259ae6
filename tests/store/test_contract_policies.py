"""Policies on every store: revisions that are only added, and the newest one beside the rows of a decision."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.values import TENANT, a_run, details, moved, new_run, ready, run_id, save, want, writes

from stepkeep.kernel.errors import Contended, InvalidInput
from stepkeep.kernel.machine.rows import Attempt
from stepkeep.kernel.machine.states import AttemptState
from stepkeep.store.change import Loaded, More, Spent, StoredPolicy, Write
from stepkeep.store.protocol import Store

OTHER = "another tenant"
HOUR = 3_600_000_000


async def publish(store: Store, revision: int, tenant: str = TENANT, document: bytes = b"{}") -> StoredPolicy:
    return await store.publish_policy(tenant, revision, "payouts", "d" * 64, document, "ann")


async def decided_with(store: Store, *tenants: str) -> dict[str, StoredPolicy | None]:
    """What a decision that asks for the policies of these tenants is given."""
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> More | Write:
        seen.append(loaded)
        return More(policies=tenants) if len(seen) == 1 else Write()

    await store.change([], decide)
    return seen[-1].policies


async def test_a_revision_is_read_as_it_was_published(store: Store) -> None:
    before = await store.now()
    stored = await publish(store, 1, document=b'{"n":1}')
    assert (stored.tenant, stored.revision, stored.name, stored.digest) == (TENANT, 1, "payouts", "d" * 64)
    assert (stored.document, stored.published_by) == (b'{"n":1}', "ann")
    assert stored.published_at >= before
    assert await store.read_policy(TENANT, 1) == stored
    assert await store.read_policy(TENANT, 2) is None
    assert await store.read_policy(OTHER) is None


async def test_the_newest_revision_counts_and_all_are_listed(store: Store, other: Store) -> None:
    assert await store.read_policy(TENANT) is None
    assert await store.list_policies(TENANT) == []
    for revision in (1, 2, 3):
        await publish(store, revision)
    await publish(other, 1, OTHER)
    newest = await other.read_policy(TENANT)
    assert newest is not None
    assert newest.revision == 3
    assert [one.revision for one in await store.list_policies(TENANT)] == [3, 2, 1]
    assert [one.revision for one in await store.list_policies(TENANT, 2)] == [3, 2]
    found = await decided_with(store, TENANT, OTHER, "nobody's")
    assert {tenant: one and one.revision for tenant, one in found.items()} == {TENANT: 3, OTHER: 1, "nobody's": None}


async def test_of_two_programs_that_publish_a_revision_one_must_read_again(store: Store, other: Store) -> None:
    answers = await asyncio.gather(publish(store, 1), publish(other, 1), return_exceptions=True)
    assert sorted(type(one).__name__ for one in answers) == ["Contended", "StoredPolicy"]
    with pytest.raises(Contended):
        await publish(store, 1)


@pytest.mark.parametrize("revision", [-1, 2**31])
async def test_a_revision_that_no_column_takes_is_refused(store: Store, revision: int) -> None:
    with pytest.raises(InvalidInput):
        await publish(store, revision)


async def loaded_with(store: Store, more: More) -> Loaded:
    """What a decision is given that asks for this."""
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> More | Write:
        seen.append(loaded)
        return more if len(seen) == 1 else Write()

    await store.change([], decide)
    return seen[-1]


async def test_a_decision_is_given_the_revisions_that_it_names(store: Store) -> None:
    for revision in (1, 2):
        await publish(store, revision)
    found = (await loaded_with(store, More(revisions=((TENANT, 1), (TENANT, 9), (OTHER, 1))))).revisions
    assert {pin: one and one.revision for pin, one in found.items()} == {
        (TENANT, 1): 1,
        (TENANT, 9): None,
        (OTHER, 1): None,
    }


async def test_what_attempts_cost_is_summed_by_workflow_within_a_window(store: Store, other: Store) -> None:
    now = await store.now()
    costs = [b'{"usd":1.5,"tokens":10,"calls":3}', b'{"usd":2.0}', b"{}", None]
    ended = [
        Attempt(TENANT, run_id(1), 0, fence, fence, AttemptState.SUCCEEDED, 1, now - HOUR, now - HOUR, cost=cost)
        for fence, cost in enumerate(costs, 1)
    ]
    await save(store, new_run(1, [ready(1)]))
    change, entry = moved(a_run(1))
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry], attempts=ended)))
    more = More(spend=((TENANT, 2 * HOUR), (TENANT, HOUR // 2), (OTHER, 2 * HOUR)))
    found = (await loaded_with(other, more)).spend
    assert found[TENANT, 2 * HOUR] == (Spent(details(1).workflow, 3.5, 10.0, 3),)
    assert (found[TENANT, HOUR // 2], found[OTHER, 2 * HOUR]) == ((), ())
