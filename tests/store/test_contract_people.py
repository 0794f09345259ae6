"""People on every store: changes with their journal entry, and what a decision reads of them under the run's lock."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace
from tests.store.people import change, delegation, key, membership, principal, session
from tests.store.values import TENANT, new_run, ready, save, want

from stepkeep.kernel.errors import Contended, InvalidInput, InvariantBroken
from stepkeep.kernel.machine.journal import chain
from stepkeep.kernel.people.authority import Authority, Caller, KeyUsed, MembershipKind
from stepkeep.store.bounds import INTEGERS
from stepkeep.store.change import Loaded, More, Write
from stepkeep.store.principals import (
    PeopleChange,
    PeopleEntry,
    SealedPeopleEntry,
    SubjectKind,
    TenantRow,
    Vouching,
    open_people_entry,
    seal_people_entry,
)
from stepkeep.store.protocol import Store

ROLE, GROUP = MembershipKind.ROLE, MembershipKind.GROUP
PERSON = SubjectKind.PERSON
OTHER = "another tenant"


async def decided_with(store: Store, *callers: Caller) -> dict[Caller, Authority]:
    """What a decision about run 1 is given."""
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> Write:
        seen.append(loaded)
        return Write()

    await store.change([replace(want(1), people=callers)], decide)
    return seen[-1].authorities


def changed(entry: SealedPeopleEntry, name: str, now: int) -> PeopleChange:
    return PeopleChange(entry=entry, principals=(principal(name),))


async def test_the_journal_of_people_is_a_chain_that_one_change_at_a_time_extends(store: Store, other: Store) -> None:
    assert await store.people.read_head(TENANT) is None
    await change(store, subject="ann", principals=[principal("ann")])
    await change(store, subject="bea", principals=[principal("bea")])
    entries = await store.people.read_journal(TENANT)
    assert [(one.seq, one.subject) for one in entries] == [(1, "ann"), (2, "bea")]
    head = b""
    for one in entries:
        head = chain(head, one.body)
        assert one.hash == head
    assert open_people_entry(entries[0]).detail == {"a": [2], "b": 1}
    assert [one.seq for one in await store.people.read_journal(TENANT, "bea")] == [2]
    assert [one.seq for one in await store.people.read_journal(TENANT, after=1)] == [2]
    assert await store.people.read_journal(OTHER) == []
    with pytest.raises(Contended):
        await other.people.write(TENANT, lambda now: PeopleChange(entry=entries[1], principals=(principal("cyd"),)))
    assert [one.name for one in await store.people.list_principals(TENANT)] == ["ann", "bea"]


async def test_of_changes_on_the_same_head_one_is_written(store: Store, other: Store) -> None:
    entry = seal_people_entry(PeopleEntry(TENANT, 1, 1, "changed", "x", "root"), None)
    done = await asyncio.gather(
        *(
            one.people.write(TENANT, partial(changed, entry, f"p{place}"))
            for place, one in enumerate([store, other] * 3)
        ),
        return_exceptions=True,
    )
    assert sum(one is None for one in done) == 1
    assert all(one is None or isinstance(one, Contended) for one in done), done
    assert len(await store.people.list_principals(TENANT)) == 1


async def test_a_change_of_people_waits_for_decisions_that_have_read_them(store: Store, other: Store) -> None:
    """So a decision by a right is never later than the end of that right, however long the two take."""
    await save(store, new_run(1))
    entry = seal_people_entry(PeopleEntry(TENANT, 1, 1, "disabled", "ann", "root"), None)
    loop, ends, decided, changes = asyncio.get_running_loop(), list[int](), list[int](), list[asyncio.Task[None]]()

    def end_at(now: int) -> PeopleChange:
        ends.append(now)
        return PeopleChange(entry=entry, principals=(principal("ann", disabled_at=now, disabled_by="root"),))

    def begin() -> None:
        changes.append(loop.create_task(other.people.write(TENANT, end_at)))

    def decide(loaded: Loaded) -> More | Write:
        if not decided:
            loop.call_soon_threadsafe(begin)
        assert not ends, "the change was made under a decision that had read what was before it"
        decided.append(loaded.now)
        return More(wants=(want(1),)) if len(decided) < 50 else Write()

    await store.change([replace(want(1), people=(Caller(TENANT, "ann"),))], decide)
    await asyncio.gather(*changes)
    assert max(decided) <= ends[0]
    assert decided == sorted(decided)


async def test_changes_of_people_of_another_tenant_wait_for_nothing(store: Store, other: Store) -> None:
    """Where decisions on one tenant's runs do not hold up all writes, as one database file does."""
    if not store.url.startswith("postgres"):
        return
    await save(store, new_run(1))
    entry = seal_people_entry(PeopleEntry(OTHER, 1, 1, "changed", "x", "root"), None)
    changes: list[asyncio.Task[None]] = []

    def decide(loaded: Loaded) -> More | Write:
        if not changes:
            work = other.people.write(OTHER, lambda now: PeopleChange(entry=entry))
            changes.append(asyncio.get_running_loop().create_task(work))
        return Write() if changes[0].done() else More(wants=(want(1),))

    await store.change([replace(want(1), people=(Caller(TENANT, "ann"),))], decide)
    assert await other.people.read_head(OTHER) is not None


async def test_every_row_of_people_is_read_as_it_was_written(store: Store) -> None:
    tenant = TenantRow(name=TENANT, vouching=Vouching.REFUSED, created_at=1, created_by="root")
    ann = principal("ann", display="Ann", disabled_at=7, disabled_by="root")
    mine = membership(1, "ann", ROLE, "payer", valid_from=3, valid_to=9, revoked_at=8, revoked_by="root")
    given = delegation(2, "ann", "bea", valid_from=3, valid_to=9)
    keys = [key("k1", "ann"), key("k2", "ann", created_at=6, expires_at=None, replaces="k1", lineage="k1")]
    opened, live = session("s1", "k1", "ann", ended_at=8), session("s2", "k1", "ann")
    await change(store, tenants=[tenant], principals=[ann], memberships=[mine], delegations=[given], keys=keys)
    await change(store, sessions=[opened, live])
    people = store.people
    assert await people.list_tenants() == [tenant]
    assert await people.read_tenant(TENANT) == tenant
    assert await people.read_tenant(OTHER) is None
    assert await people.list_principals(TENANT) == [ann]
    assert await people.find_principal(TENANT, "ann") == ann
    assert await people.find_principal(OTHER, "ann") is None
    assert await people.read_memberships(TENANT, PERSON, "ann") == [mine]
    assert await people.read_memberships(TENANT, SubjectKind.GROUP, "ann") == []
    assert await people.read_members(TENANT, ROLE, "payer") == [mine]
    assert await people.read_delegations(TENANT, "bea") == [given] == await people.read_delegations(TENANT, "ann")
    assert await people.list_delegations(TENANT) == [given]
    assert mine in await people.list_memberships(TENANT)
    assert await people.list_keys(TENANT) == keys[::-1]
    assert await people.find_key("k1") == keys[0]
    assert await people.find_key("nothing") is None
    assert await people.find_session("s1") == opened
    assert await people.find_session("nothing") is None
    assert await people.list_sessions(TENANT, "k1") == [live]
    assert await people.list_sessions(TENANT, "nothing") == [] == await people.list_sessions(OTHER, "k1")


async def test_lists_of_people_have_pages_and_stay_in_their_tenant(store: Store) -> None:
    await change(store, principals=[principal(name) for name in ("cyd", "ann", "bea")])
    await change(store, tenant=OTHER, principals=[principal("zoe", OTHER)])
    assert [one.name for one in await store.people.list_principals(TENANT, limit=2)] == ["ann", "bea"]
    assert [one.name for one in await store.people.list_principals(TENANT, after="bea")] == ["cyd"]
    rows = [TenantRow(name=name, vouching=Vouching.ALLOWED, created_at=1, created_by="r") for name in ("b", "a")]
    await change(store, tenants=rows)
    assert [one.name for one in await store.people.list_tenants(after="a")] == ["b"]


async def test_what_was_revoked_never_changes(store: Store) -> None:
    ended = {"revoked_at": 9, "revoked_by": "root"}
    rows = {
        "memberships": membership(1, "ann", ROLE, "payer"),
        "delegations": delegation(2, "ann", "bea"),
        "keys": key("k1", "ann"),
    }
    await change(store, **{name: [row] for name, row in rows.items()})
    for name, row in rows.items():
        await change(store, **{name: [replace(row, **ended)]})
        with pytest.raises(InvariantBroken):
            await change(store, **{name: [replace(row, revoked_at=None, revoked_by=None)]})
    with pytest.raises(InvariantBroken):
        await change(store, delegations=[delegation(3, "ann", "ann")])
    assert await store.people.list_delegations(TENANT) == []
    ended = await store.people.list_delegations(TENANT, ended=True)
    assert [one.revoked_at is not None for one in ended] == [True], "those that were revoked are listed on demand"


async def test_a_session_ends_once_and_keeps_its_key_and_its_limit(store: Store) -> None:
    opened = session("s1", "k1", "ann")
    await change(store, sessions=[opened])
    assert await store.people.find_session("s1") == opened
    await change(store, sessions=[replace(opened, ended_at=7)])
    assert await store.people.list_sessions(TENANT, "k1") == []
    with pytest.raises(InvariantBroken):
        await change(store, sessions=[replace(opened, ended_at=None)])
    assert await store.people.find_session("s1") == replace(opened, ended_at=7)


ROWS: dict[str, msgspec.Struct] = {
    "tenants": TenantRow(name=TENANT, vouching=Vouching.ALLOWED, created_at=1, created_by="root"),
    "principals": principal("ann", disabled_at=1, disabled_by="root"),
    "memberships": membership(1, "ann", ROLE, "payer", revoked_at=1, revoked_by="root"),
    "delegations": delegation(1, "ann", "bea", revoked_at=1, revoked_by="root"),
    "api_keys": key("k1", "ann", revoked_at=1, revoked_by="root"),
    "sessions": session("s1", "k1", "ann", ended_at=1),
}


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in ROWS for column in INTEGERS[table]], ids="-".join
)
async def test_a_moment_of_people_is_kept_up_to_its_bound_and_refused_beyond(
    store: Store, table: str, column: str
) -> None:
    high, name = INTEGERS[table][column].high, table.removeprefix("api_")
    with pytest.raises(InvalidInput, match=f"{table}.{column}"):
        await change(store, **{name: [replace(ROWS[table], **{column: high + 1})]})
    assert await store.people.read_head(TENANT) is None, "nothing was written"
    await change(store, **{name: [replace(ROWS[table], **{column: high})]})


@pytest.mark.parametrize("column", ["seq", "at"])
async def test_an_entry_of_the_journal_of_people_is_within_its_bounds(store: Store, column: str) -> None:
    entry = seal_people_entry(PeopleEntry(TENANT, 1, 1, "changed", "x", "root"), None)
    beyond = INTEGERS["people_journal"][column].high + 1
    with pytest.raises(InvalidInput, match=f"people_journal.{column}"):
        await store.people.write(TENANT, lambda now: PeopleChange(entry=replace(entry, **{column: beyond})))


async def test_two_names_that_look_the_same_are_not_both_written(store: Store) -> None:
    await change(store, principals=[principal("ann")])
    with pytest.raises(Contended):
        await change(store, principals=[principal("Ann")])
    await change(store, tenant=OTHER, principals=[principal("Ann", OTHER)])


async def test_a_name_without_a_row_is_a_person_without_roles(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]))
    ann = Caller(TENANT, "ann")
    assert await decided_with(store, ann) == {ann: Authority(person="ann")}
    assert await decided_with(store) == {}
    assert await store.people.read_authorities([]) == {}
    assert await store.people.read_authorities([ann]) == {ann: Authority(person="ann")}


async def test_a_decision_reads_roles_in_own_name_and_through_groups(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]))
    await change(
        store,
        tenants=[TenantRow(name=TENANT, vouching=Vouching.REFUSED, created_at=1, created_by="root")],
        principals=[principal("ann"), principal("bea", disabled_at=3, disabled_by="root")],
        memberships=[
            membership(10, "ann", ROLE, "payer", valid_to=500),
            membership(20, "ann", GROUP, "finance", valid_from=100, valid_to=300),
            membership(15, "finance", ROLE, "auditor", SubjectKind.GROUP, valid_from=50, valid_to=400),
            membership(16, "sales", ROLE, "seller", SubjectKind.GROUP),
            membership(17, "bea", ROLE, "boss"),
        ],
    )
    ann, bea = Caller(TENANT, "ann"), Caller(TENANT, "bea")
    found = await decided_with(store, ann, bea)
    assert (found[ann].registered, found[ann].disabled, found[ann].vouching_allowed) == (True, False, False)
    assert found[bea].disabled
    times = {
        (ROLE, "payer"): (10, 499),
        (GROUP, "finance"): (100, 299),
        (ROLE, "auditor"): (100, 299),
    }
    assert {(one.kind, one.name) for one in found[ann].memberships} == set(times)
    for (kind, name), (first, last) in times.items():
        held = [found[ann].has(kind, name, at) for at in (first - 1, first, last, last + 1)]
        assert held == [False, True, True, False], name
    assert await store.people.read_authorities([ann, bea]) == found
    assert (await decided_with(store, Caller(OTHER, "ann")))[Caller(OTHER, "ann")] == Authority(person="ann")


async def test_a_decision_reads_delegations_with_what_the_delegator_has(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]))
    await change(
        store,
        principals=[principal("ann"), principal("bea"), principal("cyd", disabled_at=3, disabled_by="root")],
        memberships=[membership(1, "ann", ROLE, "payer"), membership(2, "cyd", ROLE, "boss")],
        delegations=[
            delegation(3, "ann", "bea", valid_from=10, valid_to=20),
            delegation(4, "cyd", "bea"),
            delegation(5, "bea", "ann"),
            delegation(6, "nobody", "bea", revoked_at=9, revoked_by="root"),
        ],
    )
    bea = Caller(TENANT, "bea")
    found = (await decided_with(store, bea))[bea]
    assert found.memberships == ()
    told = [(one.id, one.delegator, one.enabled, one.valid_to, one.revoked_at) for one in found.delegations]
    assert told == [("d3", "ann", True, 20, None), ("d4", "cyd", False, None, None), ("d6", "nobody", False, None, 9)]
    assert [one.name for one in found.delegations[0].memberships] == ["payer"]


async def test_a_decision_reads_the_key_that_was_used(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]))
    await change(store, principals=[principal("ann")], keys=[key("k1", "ann")])
    await change(store, tenant=OTHER, keys=[key("k2", "ann", OTHER)])
    mine, strange, foreign = (Caller(TENANT, "ann", one) for one in ("k1", "k9", "k2"))
    found = await decided_with(store, mine, strange, foreign)
    assert found[mine].key == KeyUsed(id="k1", owner="ann", scopes=frozenset({"decide", "read"}), expires_at=900)
    assert found[strange].key is None
    assert found[foreign].key is None, "a key of another tenant is no key"


async def test_a_revocation_before_the_decision_is_seen_by_it(store: Store, other: Store) -> None:
    """The rows are read in the transaction that decides, so what was committed before it counts."""
    await save(store, new_run(1, [ready(1)]))
    mine = membership(1, "ann", ROLE, "payer")
    await change(store, principals=[principal("ann")], memberships=[mine])
    ann = Caller(TENANT, "ann")
    assert (await decided_with(store, ann))[ann].has(ROLE, "payer", 50)
    await change(other, memberships=[replace(mine, revoked_at=40, revoked_by="root")])
    assert not (await decided_with(store, ann))[ann].has(ROLE, "payer", 50)
