"""Random changes of people for differential tests: rows that are added, ended, ended twice, or contradict each other.

They are drawn from a seed of their own, so that the operations on runs stay what they were. `differential` writes each
to both stores, and compares everything that can be read of people.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MembershipRow,
    PeopleChange,
    PeopleEntry,
    Principal,
    PrincipalKind,
    SessionRow,
    SubjectKind,
    TenantRow,
    Vouching,
    seal_people_entry,
)
from stepkeep.store.protocol import Store
from stepkeep.store.rows import AuditFilter

PERSONS = ("ann", "bea", "cyd", "Ann")
GROUPS = ("g1", "g2")
ROLES = ("r1", "r2")
KINDS = ("tenants", "principals", "memberships", "delegations", "keys", "sessions")
LATEST = 4
SESSIONS = 40
"""Of the first numbers of rows, those that are sessions are read by their ids."""


class PeopleChanges:
    """Changes in the order in which one life makes them."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"people:{seed}")  # noqa: S311 - chance that must come out the same again
        self._made = 0
        self._rows: dict[tuple[str, str], list[Any]] = {}

    def draw(self, tenant: str) -> tuple[str, msgspec.Struct]:
        """A new row, or another value of one that was written before; with the name of its list."""
        random = self._random
        kind = random.choice(KINDS)
        known = self._rows.setdefault((tenant, kind), [])
        self._made += 1
        at = 1_000 + self._made
        if known and random.random() < 0.5:
            row = self._changed(random.choice(known[-LATEST:]), at)
        else:
            row = self._new(tenant, kind, at)
        known.append(row)
        return kind, row

    def _new(self, tenant: str, kind: str, at: int) -> Any:
        random = self._random
        given: dict[str, Any] = {"tenant": tenant, "id": f"{tenant}{self._made:04d}"}
        dates: dict[str, Any] = {
            "valid_from": random.choice((None, at + 5)),
            "valid_to": random.choice((None, at + 50)),
        }
        granted = {"granted_at": at, "granted_by": "root", **dates}
        if kind == "tenants":
            return TenantRow(name=tenant, vouching=random.choice(list(Vouching)), created_at=1, created_by="root")
        if kind == "principals":
            name = random.choice(PERSONS)
            return Principal(
                tenant=tenant,
                name=name,
                kind=random.choice(list(PrincipalKind)),
                display="",
                folded=name.casefold(),
                created_at=at,
                created_by="root",
            )
        if kind == "memberships":
            holder = random.choice((SubjectKind.PERSON, SubjectKind.PERSON, SubjectKind.GROUP))
            subject = random.choice(PERSONS if holder is SubjectKind.PERSON else GROUPS)
            is_group = holder is SubjectKind.PERSON and random.random() < 0.5
            what = MembershipKind.GROUP if is_group else MembershipKind.ROLE
            name = random.choice(GROUPS if is_group else ROLES)
            return MembershipRow(**given, subject=subject, subject_kind=holder, kind=what, name=name, **granted)
        if kind == "delegations":
            both = random.choice(PERSONS), random.choice(PERSONS)
            return DelegationRow(**given, delegator=both[0], delegate=both[1], reason="", **granted)
        if kind == "sessions":
            return SessionRow(
                **given,
                owner=random.choice(PERSONS),
                key="k",
                secret_hash="1" * 64,
                created_at=at,
                expires_at=at + 100,
            )
        return ApiKey(
            **given,
            owner=random.choice(PERSONS),
            secret_hash="0" * 64,
            scopes=("read",),
            created_at=at,
            created_by="root",
            expires_at=random.choice((None, at + 100)),
            queues=random.choice((None, ("", "bank"))),
        )

    def _changed(self, row: Any, at: int) -> Any:
        """The row as a change of settings, an end or a rotation would leave it."""
        if isinstance(row, TenantRow):
            return replace(row, vouching=self._random.choice(list(Vouching)))
        if isinstance(row, Principal):
            ended = row.disabled_at is None
            return replace(row, disabled_at=at if ended else None, disabled_by="root" if ended else None)
        if isinstance(row, ApiKey) and row.revoked_at is None and self._random.random() < 0.5:
            return replace(row, expires_at=at + self._random.choice((1, 500)))
        if isinstance(row, SessionRow):
            return replace(row, ended_at=at)
        return replace(row, revoked_at=at, revoked_by="root")


async def write_change(store: Store, tenant: str, kind: str, row: msgspec.Struct) -> str:
    """Write a row as the next change of the tenant's people; returns what became of it."""
    head = await store.people.read_head(tenant)
    seq = 1 if head is None else head.seq + 1
    entry = seal_people_entry(PeopleEntry(tenant, seq, 1_000 + seq, kind, "x", "root"), head)
    try:
        await store.people.write(tenant, lambda now: replace(PeopleChange(entry=entry), **{kind: (row,)}))
    except StepkeepError as refused:
        return type(refused).__name__
    return "written"


async def read_people(store: Store, tenants: tuple[str, ...]) -> dict[str, Any]:
    """Everything that can be read of people, by name."""
    people, seen = store.people, {"tenants": await store.people.list_tenants()}
    for tenant in tenants:
        keys = await people.list_keys(tenant)
        together = [Caller(tenant, PERSONS[0], one.id) for one in keys[:3]]
        found: dict[str, Any] = {
            "setting": await people.read_tenant(tenant),
            "head": await people.read_head(tenant),
            "journal": await people.read_journal(tenant),
            "journal before": await people.read_journal_before(tenant, 1_010, 10, 1_002, 5),
            "audit": await store.audit.read(AuditFilter(tenant=tenant)),
            "journal of x": await people.read_journal(tenant, "x", after=2, limit=3),
            "principals": await people.list_principals(tenant),
            "second page": await people.list_principals(tenant, after="ann", limit=1),
            "delegations": await people.list_delegations(tenant),
            "all delegations": await people.list_delegations(tenant, ended=True),
            "all memberships": await people.list_memberships(tenant),
            "keys": keys,
            "key": [await people.find_key(one.id) for one in keys[:2]],
            "sessions": [await people.find_session(f"{tenant}{number:04d}") for number in range(1, SESSIONS)],
            "sessions of k": await people.list_sessions(tenant, "k"),
            "authorities": await people.read_authorities(together),
        }
        for name in PERSONS:
            found[f"authority of {name}"] = await people.read_authorities([Caller(tenant, name)])
            found[f"principal {name}"] = await people.find_principal(tenant, name)
            found[f"memberships of {name}"] = await people.read_memberships(tenant, SubjectKind.PERSON, name)
            found[f"delegations of {name}"] = await people.read_delegations(tenant, name)
        for name in GROUPS:
            found[f"memberships of {name}"] = await people.read_memberships(tenant, SubjectKind.GROUP, name)
            found[f"members of {name}"] = await people.read_members(tenant, MembershipKind.GROUP, name)
        seen |= {f"{tenant}: {name}": there for name, there in found.items()}
    return seen
