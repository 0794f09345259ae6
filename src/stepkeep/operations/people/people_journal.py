"""Changes of people, each with its entry in the tenant's journal: read the head, decide, and write at the time of the
transaction that writes; again if another change came first. `evidence.people` reads the journal and verifies it.
`principals` and `keys` make the changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.answers import Answer, Moment, Next
from stepkeep.operations.instants import instant
from stepkeep.operations.people.audit import REQUEST, detail_of
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MembershipRow,
    PeopleChange,
    PeopleEntry,
    Principal,
    SealedPeopleEntry,
    SessionRow,
    TenantRow,
    open_people_entry,
    seal_people_entry,
)
from stepkeep.store.protocol import Store


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision about people writes. `subject` is the person, group or tenant that it is about."""

    event: str
    subject: str
    detail: Mapping[str, Any] = {}
    tenants: tuple[TenantRow, ...] = ()
    principals: tuple[Principal, ...] = ()
    memberships: tuple[MembershipRow, ...] = ()
    delegations: tuple[DelegationRow, ...] = ()
    keys: tuple[ApiKey, ...] = ()
    sessions: tuple[SessionRow, ...] = ()


class HistoryEntry(Answer, kw_only=True):
    """A change of people. One that cannot be read has no details."""

    seq: int
    at: Moment
    event: str
    subject: str
    by: str
    vouched_by: str | UnsetType | None = UNSET
    detail: dict[str, Any] | UnsetType = UNSET
    hash: str | UnsetType = UNSET


class PeopleChain(Answer, kw_only=True):
    """Whether the chain over all changes of people holds, and where the rows differ from them."""

    entries: int
    is_intact: bool
    broken_at: int | None
    differences: list[str]


class History(Answer, kw_only=True):
    """The record of changes of people, with its hash chain."""

    history: list[HistoryEntry]
    chain: PeopleChain
    next: Next


MakeAt = Callable[[int], Change]
"""The change as it is at a time; pure."""


async def record(store: Store, caller: Caller, decide: Callable[[int], Awaitable[MakeAt]]) -> tuple[Change, int]:
    """Decide at the present time and write the change with its entry; returns it and its time.

    The rows that `decide` reads are read after the head, so that any change to them makes the write conflict. What it
    returns is dated by the transaction that writes: a vote until then counts, so the change must not be earlier.
    """

    origin = _origin(caller)

    async def once() -> tuple[Change, int]:
        head = await store.people.read_head(caller.tenant)
        earliest = 0 if head is None else head.at
        make = await decide(max(await store.now(), earliest))
        made: list[tuple[Change, int]] = []

        def change_at(now: int) -> PeopleChange:
            at = max(now, earliest)
            change = make(at)
            made.append((change, at))
            return _sealed(caller, change, at, head, origin)

        await store.people.write(caller.tenant, change_at)
        return made[-1]

    return await again_if_contended(once)


def _origin(caller: Caller) -> Mapping[str, str | None]:
    """What an entry says about where its change comes from: the key, and the HTTP request."""
    found = {} if caller.key is None else {"key": caller.key}
    asked = REQUEST.get()
    return found if asked is None else {**found, "request": asked.request_id, "address": asked.address}


def _sealed(
    caller: Caller, change: Change, at: int, head: SealedPeopleEntry | None, origin: Mapping[str, Any]
) -> PeopleChange:
    entry = PeopleEntry(
        tenant=caller.tenant,
        seq=1 if head is None else head.seq + 1,
        at=at,
        event=change.event,
        subject=change.subject,
        actor=caller.actor,
        detail={**change.detail, **origin},
        vouched_by=caller.vouched_by,
    )
    return PeopleChange(
        entry=seal_people_entry(entry, head),
        tenants=change.tenants,
        principals=change.principals,
        memberships=change.memberships,
        delegations=change.delegations,
        keys=change.keys,
        sessions=change.sessions,
    )


def entry_view(one: SealedPeopleEntry) -> HistoryEntry:
    """An entry as answers tell it."""
    try:
        entry = open_people_entry(one)
    except msgspec.MsgspecError:
        return HistoryEntry(seq=one.seq, at=instant(one.at), event="(unreadable)", subject=one.subject, by="")
    return HistoryEntry(
        seq=entry.seq,
        at=instant(entry.at),
        event=entry.event,
        subject=entry.subject,
        by=entry.actor,
        vouched_by=entry.vouched_by,
        detail=detail_of(entry),
        hash=one.hash.hex(),
    )
