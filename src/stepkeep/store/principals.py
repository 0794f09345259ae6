"""The rows of people: tenants, principals, memberships, delegations, API keys, sessions, and their journal.

`PeopleStore` is the part of a store that reads and writes them. A change is one entry and the rows it adds or ends; it
is refused with Contended if the journal has grown since it was read. It decides nothing; `operations.people.principals`
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from stepkeep.kernel.machine.bounds import Moment, Quota, Seq
from stepkeep.kernel.machine.journal import GENESIS, chain
from stepkeep.kernel.people.authority import (
    Authority,
    Caller,
    Delegation,
    KeyUsed,
    Membership,
    MembershipKind,
    WorkLimits,
)

Person = tuple[str, str]
"""(tenant, name)."""


class Vouching(StrEnum):
    """Whether a program without a key may name a person."""

    ALLOWED = "allowed"
    REFUSED = "refused"


class PrincipalKind(StrEnum):
    USER = "user"
    SERVICE = "service"


class SubjectKind(StrEnum):
    """What has a membership: a person, or a group whose members share it."""

    PERSON = "person"
    GROUP = "group"


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a tenant. A tenant without a row allows vouching."""

    name: str
    vouching: Vouching
    created_at: Moment
    created_by: str


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a service. `folded` is the name without case and look-alike letters, by the rule of the
    release that registered it; it is unique in the tenant."""

    tenant: str
    name: str
    kind: PrincipalKind
    display: str
    folded: str
    created_at: Moment
    created_by: str
    disabled_at: Moment | None = None
    disabled_by: str | None = None


class MembershipRow(msgspec.Struct, frozen=True, kw_only=True):
    """A role or a group that a person was given, or a role that a group was given."""

    tenant: str
    id: str
    subject: str
    subject_kind: SubjectKind
    kind: MembershipKind
    name: str
    granted_at: Moment
    granted_by: str
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    revoked_at: Moment | None = None
    revoked_by: str | None = None


class DelegationRow(msgspec.Struct, frozen=True, kw_only=True):
    """The right of `delegate` to decide on behalf of `delegator`."""

    tenant: str
    id: str
    delegator: str
    delegate: str
    granted_at: Moment
    granted_by: str
    reason: str
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    revoked_at: Moment | None = None
    revoked_by: str | None = None


NO_SECRET = "0" * 64
"""In place of the hash of a secret: none has this one. As long as a hash, so that comparing it takes the same time."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a principal. Only the SHA-256 of its secret is kept; the key of a session has none.

    A key with `queues` or `handlers` works on these alone. `replaces` is the key that a rotation ended, and
    `lineage` the first key that it replaces through others."""

    tenant: str
    id: str
    owner: str
    secret_hash: str
    scopes: tuple[str, ...]
    created_at: Moment
    created_by: str
    expires_at: Moment | None = None
    revoked_at: Moment | None = None
    revoked_by: str | None = None
    replaces: str | None = None
    max_concurrent_runs: Quota | None = None
    max_requests_per_min: Quota | None = None
    queues: tuple[str, ...] | None = None
    handlers: tuple[str, ...] | None = None
    lineage: str | None = None

    @property
    def line(self) -> str:
        """What all keys share that replace each other: the id of the first one. Keys of sessions share the owner."""
        return self.lineage or self.id


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is open in a browser. Only the SHA-256 of the secret in the cookie is kept."""

    tenant: str
    id: str
    owner: str
    key: str
    secret_hash: str
    created_at: Moment
    expires_at: Moment
    ended_at: Moment | None = None


class PeopleEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of an entry: what changed of `subject`, and the actor of the change."""

    tenant: str
    seq: int
    at: int
    event: str
    subject: str
    actor: str
    detail: Mapping[str, Any] = {}
    vouched_by: str | None = None


class SealedPeopleEntry(msgspec.Struct, frozen=True):
    """An entry as it is stored: its body and its hash, which covers the hash before it."""

    tenant: str
    seq: Seq
    at: Moment
    subject: str
    body: bytes
    hash: bytes


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(PeopleEntry).decode


def seal_people_entry(entry: PeopleEntry, head: SealedPeopleEntry | None) -> SealedPeopleEntry:
    """Append this entry to the chain that ends in `head`."""
    body = _encode(entry)
    before = GENESIS if head is None else head.hash
    return SealedPeopleEntry(entry.tenant, entry.seq, entry.at, entry.subject, body, chain(before, body))


def open_people_entry(sealed: SealedPeopleEntry) -> PeopleEntry:
    return _decode(sealed.body)


class PeopleChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change: its entry, and the new values of the rows that it adds or ends."""

    entry: SealedPeopleEntry
    tenants: tuple[TenantRow, ...] = ()
    principals: tuple[Principal, ...] = ()
    memberships: tuple[MembershipRow, ...] = ()
    delegations: tuple[DelegationRow, ...] = ()
    keys: tuple[ApiKey, ...] = ()
    sessions: tuple[SessionRow, ...] = ()

    def rows(self) -> Iterable[msgspec.Struct]:
        """All rows that it writes, in an order that is the same everywhere."""
        return (
            *self.tenants,
            *self.principals,
            *self.memberships,
            *self.delegations,
            *self.keys,
            *self.sessions,
        )


MakeChange = Callable[[int], PeopleChange]
"""The change as it is at a time; pure, called inside the transaction that writes it."""


class Standing(NamedTuple):
    """What is known of a name: whether it is registered, disabled, a service; and the setting of its tenant."""

    registered: bool
    disabled: bool
    is_service: bool
    vouching: str | None


def authorities_from(
    callers: Iterable[Caller],
    standing: Mapping[Person, Standing],
    memberships: Iterable[MembershipRow],
    delegations: Iterable[DelegationRow],
    keys: Iterable[ApiKey],
) -> dict[Caller, Authority]:
    """The authority of each caller, from the rows of the callers and of the persons who delegated to them."""
    own: dict[Person, list[MembershipRow]] = {}
    shared: dict[Person, list[MembershipRow]] = {}
    for row in memberships:
        found = own if row.subject_kind is SubjectKind.PERSON else shared
        found.setdefault((row.tenant, row.subject), []).append(row)
    held = {person: _expanded(rows, shared) for person, rows in own.items()}
    received: dict[Person, list[Delegation]] = {}
    for one in delegations:
        delegator = (one.tenant, one.delegator)
        known = standing.get(delegator, UNKNOWN)
        received.setdefault((one.tenant, one.delegate), []).append(
            Delegation(
                id=one.id,
                delegator=one.delegator,
                granted_at=one.granted_at,
                valid_from=one.valid_from,
                valid_to=one.valid_to,
                revoked_at=one.revoked_at,
                memberships=held.get(delegator, ()),
                enabled=known.registered and not known.disabled and not known.is_service,
            )
        )
    used = {(key.tenant, key.id): key_used(key) for key in keys}
    return {
        caller: Authority(
            person=caller.actor,
            registered=(known := standing.get(caller[:2], UNKNOWN)).registered,
            disabled=known.disabled,
            is_service=known.is_service,
            vouching_allowed=known.vouching != Vouching.REFUSED,
            memberships=held.get(caller[:2], ()),
            delegations=tuple(received.get(caller[:2], ())),
            key=None if caller.key is None else used.get((caller.tenant, caller.key)),
        )
        for caller in callers
    }


UNKNOWN = Standing(False, False, False, None)


def key_used(key: ApiKey) -> KeyUsed:
    return KeyUsed(
        id=key.id,
        owner=key.owner,
        scopes=frozenset(key.scopes),
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        is_session=key.secret_hash == NO_SECRET,
        limits=WorkLimits(queues=key.queues, handlers=key.handlers),
    )


def _expanded(rows: Iterable[MembershipRow], shared: Mapping[Person, list[MembershipRow]]) -> tuple[Membership, ...]:
    """What a person has: in their own name, and the roles of their groups while they are members."""
    found = []
    for row in rows:
        direct = _membership(row)
        found.append(direct)
        if row.kind is MembershipKind.GROUP:
            found += [_within(_membership(role), direct) for role in shared.get((row.tenant, row.name), ())]
    return tuple(found)


def _membership(row: MembershipRow) -> Membership:
    return Membership(
        kind=row.kind,
        name=row.name,
        granted_at=row.granted_at,
        valid_from=row.valid_from,
        valid_to=row.valid_to,
        revoked_at=row.revoked_at,
    )


def _within(role: Membership, group: Membership) -> Membership:
    """A role of a group, as its member has it: at the moments at which both hold."""
    return msgspec.structs.replace(
        role,
        granted_at=max(role.granted_at, group.granted_at),
        valid_from=max((one.valid_from for one in (role, group) if one.valid_from is not None), default=None),
        valid_to=min((one.valid_to for one in (role, group) if one.valid_to is not None), default=None),
        revoked_at=min((one.revoked_at for one in (role, group) if one.revoked_at is not None), default=None),
    )
