"""The registry of schemas on every store: published once, the same forever, and of one tenant."""

import pytest
from tests.store.values import TENANT

from stepkeep.store.protocol import Store

FIRST, SECOND = "1" * 64, "2" * 64


async def test_a_schema_is_kept_as_it_was_published_first(store: Store) -> None:
    first = await store.publish_schema(TENANT, "invoice/v1", FIRST, b'{"type":"object"}', "ann")
    assert (first.ref, first.digest, first.document) == ("invoice/v1", FIRST, b'{"type":"object"}')
    assert (first.tenant, first.published_by) == (TENANT, "ann")
    assert first.published_at > 0
    assert await store.publish_schema(TENANT, "invoice/v1", SECOND, b"{}", "bea") == first
    assert await store.read_schema(TENANT, "invoice/v1") == first


async def test_a_schema_belongs_to_its_tenant(store: Store) -> None:
    mine = await store.publish_schema(TENANT, "invoice/v1", FIRST, b"{}", "ann")
    theirs = await store.publish_schema("another", "invoice/v1", SECOND, b'{"a":1}', "bea")
    assert await store.list_schemas(TENANT) == [mine]
    assert await store.list_schemas("another") == [theirs]
    assert await store.read_schema("a third", "invoice/v1") is None


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_schemas_are_listed_by_reference_and_by_page(store: Store, limit: int) -> None:
    for ref in ("b", "a", "c", "Z"):
        await store.publish_schema(TENANT, ref, FIRST, b"{}", "ann")
    found: list[str] = []
    while page := await store.list_schemas(TENANT, after=found[-1] if found else "", limit=limit):
        assert len(page) <= limit
        found += [one.ref for one in page]
    assert found == ["Z", "a", "b", "c"]
