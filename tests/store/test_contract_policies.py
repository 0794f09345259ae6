"""Policies on every store: revisions that are only added, and the newest one beside the rows of a decision."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.values import TENANT

from stepkeep.errors import Contended, InvalidInput
from stepkeep.store.change import Loaded, More, StoredPolicy, Write
from stepkeep.store.protocol import Store

OTHER = "another tenant"


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
