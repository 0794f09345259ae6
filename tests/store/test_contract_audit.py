"""The audit log on every store: entries are added, found in pages, and deleted when they are old."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.store.people import audited, change, principal
from tests.store.values import TENANT

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.bounds import LAST_MOMENT
from stepkeep.operations.people.audit import verify_chain
from stepkeep.store.protocol import Store
from stepkeep.store.rows import AuditFilter, Outcome

OTHER = "another tenant"


async def found(store: Store, **wanted: object) -> list[str]:
    return [row.id for row in await store.audit.read(AuditFilter(tenant=TENANT, **wanted))]  # type: ignore[arg-type]


async def test_an_entry_is_read_as_it_was_written(store: Store) -> None:
    full = audited("a", 7, key="k", vouched_by="root", code="conflict", request_id="r-1", address="127.0.0.1")
    bare = audited("b", 7, target="", outcome=Outcome.REFUSED)
    await store.audit.append([full, bare])
    assert await store.audit.read(AuditFilter(tenant=TENANT)) == [bare, full]
    assert await store.audit.read(AuditFilter(tenant=OTHER)) == []


async def test_entries_are_one_chain_for_each_tenant_also_after_the_oldest_are_deleted(store: Store) -> None:
    for at in range(6):
        await store.audit.append([audited(f"a{at}", at), audited(f"b{at}", at, tenant=OTHER)])
    chain = await store.audit.read_chain(TENANT, 0, 100)
    assert [row.seq for row in chain] == [1, 2, 3, 4, 5, 6]
    assert len({row.hash for row in chain}) == 6
    whole = {"checked": 6, "is_intact": True, "broken_at": None, "beside": 0}
    assert await verify_chain(store, TENANT) == await verify_chain(store, OTHER) == whole
    assert await store.audit.forget(TENANT, 3, 2) == 2
    assert await store.audit.forget(TENANT, 3, 2) == 1
    assert await verify_chain(store, TENANT) == whole | {"checked": 3}
    assert await verify_chain(store, TENANT, 2) == whole | {"checked": 2}
    assert await store.audit.forget(TENANT, 100, 100) == 3
    await store.audit.append([audited("c", 9)])
    assert await verify_chain(store, TENANT) == whole | {"checked": 1}


async def test_an_entry_between_older_ones_stays_until_they_can_go_without_a_gap(store: Store) -> None:
    await store.audit.append([audited("a", 1), audited("b", 50), audited("c", 2)])
    assert await store.audit.forget(TENANT, 10, 10) == 1
    assert (await verify_chain(store, TENANT))["is_intact"]
    assert await found(store) == ["b", "c"]


async def test_entries_are_found_by_everything_that_they_say(store: Store) -> None:
    await store.audit.append(
        [
            audited("a", 1, actor="ann", target="r-1"),
            audited("b", 2, actor="bob", target="r-1", operation="cancel"),
            audited("c", 3, actor="bob", target="r-2", outcome=Outcome.REFUSED, key="k1"),
            audited("d", 3, actor="bob", target="r-1", outcome=Outcome.FAILED),
            audited("e", 4, tenant=OTHER, actor="bob", target="r-1"),
        ]
    )
    assert await found(store) == ["d", "c", "b", "a"]
    assert await found(store, actor="bob") == ["d", "c", "b"]
    assert await found(store, target="r-1") == ["d", "b", "a"]
    assert await found(store, target="r-1", actor="bob", limit=1) == ["d"]
    assert await found(store, target="r-1", actor="ann", limit=1) == ["a"]
    assert await found(store, operation="cancel") == ["b"]
    assert await found(store, outcome="refused", actor="bob") == ["c"]
    assert await found(store, key="k1") == ["c"]
    assert await found(store, since=2) == ["d", "c", "b"]
    assert await found(store, limit=2) == ["d", "c"]
    assert await found(store, before=3, before_id="c") == ["b", "a"]
    assert await found(store, actor="bob", before=3, before_id="d") == ["c", "b"]


async def test_old_entries_are_deleted_oldest_first_and_up_to_a_number(store: Store) -> None:
    await store.audit.append([audited(name, at) for at, name in enumerate("abcde")])
    await store.audit.append([audited("z", 0, tenant=OTHER)])
    assert await store.audit.forget(TENANT, 4, 3) == 3
    assert await found(store) == ["e", "d"]
    assert await store.audit.forget(TENANT, 4, 3) == 1
    assert await store.audit.forget(TENANT, 4, 3) == 0
    assert len(await store.audit.read(AuditFilter(tenant=OTHER))) == 1


async def test_the_moment_of_an_entry_is_kept_up_to_its_bound_and_refused_beyond(store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"audit\.at"):
        await store.audit.append([audited("a", LAST_MOMENT + 1)])
    assert await found(store) == []
    await store.audit.append([replace(audited("a", 0), at=LAST_MOMENT)])
    assert await found(store) == ["a"]


async def test_the_journal_of_people_is_read_backwards(store: Store) -> None:
    for name in ("ann", "bea", "cyd"):
        await change(store, subject=name, principals=[principal(name)])
    entries = await store.people.read_journal_before(TENANT, 3, 3)
    assert [one.seq for one in entries] == [2, 1]
    assert [one.seq for one in await store.people.read_journal_before(TENANT, 9, 0, since=2, limit=1)] == [3]
    assert await store.people.read_journal_before(OTHER, 9, 0) == []
