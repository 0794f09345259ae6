"""Rows of people for tests of stores, and a change that writes them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from tests.store.values import TENANT

from stepkeep.kernel.people.authority import MembershipKind
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
    seal_people_entry,
)
from stepkeep.store.protocol import Store
from stepkeep.store.rows import AuditRow, Outcome

PERSON = SubjectKind.PERSON


def principal(name: str, tenant: str = TENANT, **changes: object) -> Principal:
    made = Principal(
        tenant=tenant,
        name=name,
        kind=PrincipalKind.USER,
        display="",
        folded=name.casefold(),
        created_at=1,
        created_by="root",
    )
    return replace(made, **changes)


def membership(
    number: int, subject: str, kind: MembershipKind, name: str, by: SubjectKind = PERSON, **changes: object
) -> MembershipRow:
    made = MembershipRow(
        tenant=TENANT,
        id=f"m{number}",
        subject=subject,
        subject_kind=by,
        kind=kind,
        name=name,
        granted_at=number,
        granted_by="root",
    )
    return replace(made, **changes)


def delegation(number: int, delegator: str, delegate: str, **changes: object) -> DelegationRow:
    made = DelegationRow(
        tenant=TENANT,
        id=f"d{number}",
        delegator=delegator,
        delegate=delegate,
        granted_at=number,
        granted_by="root",
        reason="away",
    )
    return replace(made, **changes)


def key(name: str, owner: str, tenant: str = TENANT, **changes: object) -> ApiKey:
    made = ApiKey(
        tenant=tenant,
        id=name,
        owner=owner,
        secret_hash="2" * 64,
        scopes=("decide", "read"),
        created_at=5,
        created_by="root",
        expires_at=900,
    )
    return replace(made, **changes)


def session(name: str, key: str, owner: str, tenant: str = TENANT, **changes: object) -> SessionRow:
    made = SessionRow(tenant=tenant, id=name, owner=owner, key=key, secret_hash="1" * 64, created_at=5, expires_at=900)
    return replace(made, **changes)


def audited(name: str, at: int, tenant: str = TENANT, **changes: object) -> AuditRow:
    made = AuditRow(
        tenant=tenant,
        id=name,
        at=at,
        actor="ann",
        key=None,
        vouched_by=None,
        operation="approve",
        target="r-1",
        outcome=Outcome.DONE,
        code=None,
        request_id=None,
        address=None,
    )
    return replace(made, **changes)


async def change(store: Store, *, tenant: str = TENANT, subject: str = "x", **rows: Sequence[object]) -> None:
    """Write rows as the next change of the tenant's people."""
    head = await store.people.read_head(tenant)
    seq = 1 if head is None else head.seq + 1
    entry = PeopleEntry(tenant, seq, seq, "changed", subject, "root", {"b": 1, "a": [2]})
    made = PeopleChange(entry=seal_people_entry(entry, head), **{name: tuple(some) for name, some in rows.items()})  # type: ignore[arg-type]
    await store.people.write(tenant, lambda now: made)
