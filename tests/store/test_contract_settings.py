"""Settings on every store: revisions that are only added, and the newest one of each name."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.values import TENANT

from stepkeep.kernel.errors import Contended, InvalidInput
from stepkeep.store.change import StoredSetting
from stepkeep.store.protocol import Store

OTHER = "another tenant"


async def save(
    store: Store, revision: int, name: str = "allow", *, tenant: str = TENANT, kind: str = "network"
) -> StoredSetting:
    return await store.save_setting(tenant, kind, name, revision, b'["%d"]' % revision, "ann")


async def test_a_revision_is_read_as_it_was_saved(store: Store) -> None:
    before = await store.now()
    saved = await save(store, 1)
    assert (saved.tenant, saved.kind, saved.name, saved.revision) == (TENANT, "network", "allow", 1)
    assert (saved.document, saved.saved_by) == (b'["1"]', "ann")
    assert saved.saved_at >= before
    assert await store.read_setting(TENANT, "network", "allow", 1) == saved
    assert await store.read_setting(TENANT, "network", "allow", 2) is None
    for tenant, kind, name in ((OTHER, "network", "allow"), (TENANT, "hook", "allow"), (TENANT, "network", "other")):
        assert await store.read_setting(tenant, kind, name) is None


async def test_the_newest_revision_of_each_name_counts(store: Store, other: Store) -> None:
    assert await store.list_settings(TENANT, "network") == []
    for revision in (1, 2, 3):
        await save(store, revision)
    await save(other, 1, "b")
    await save(other, 1, "c", kind="hook")
    await save(other, 7, "allow", tenant=OTHER)
    newest = await other.read_setting(TENANT, "network", "allow")
    assert newest is not None
    assert newest.revision == 3
    found = await store.list_settings(TENANT, "network")
    assert [(one.name, one.revision) for one in found] == [("allow", 3), ("b", 1)]
    assert [one.name for one in await store.list_settings(TENANT, "network", "allow")] == ["b"]
    assert [one.name for one in await store.list_settings(TENANT, "network", limit=1)] == ["allow"]


async def test_of_two_programs_that_save_a_revision_one_must_read_again(store: Store, other: Store) -> None:
    answers = await asyncio.gather(save(store, 1), save(other, 1), return_exceptions=True)
    assert sorted(type(one).__name__ for one in answers) == ["Contended", "StoredSetting"]
    with pytest.raises(Contended):
        await save(store, 1)


@pytest.mark.parametrize("revision", [-1, 2**31])
async def test_a_revision_that_no_column_takes_is_refused(store: Store, revision: int) -> None:
    with pytest.raises(InvalidInput):
        await save(store, revision)
