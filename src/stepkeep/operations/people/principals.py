"""Tenants, users and services, their roles and groups, and delegations: create, change, end, list.

Every change is decided on rows read after the head of the journal, and recorded there with its actor. Nothing is ever
deleted. The engine's `tenants` and `users` call it; `keys` has the API keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product
from typing import Annotated, TypedDict

from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from uuid_utils import uuid7

from stepkeep.edges.names import fold_name, look_of, same_names
from stepkeep.kernel.errors import Conflict, InvalidInput, NotAllowed, NotFound
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.operations import validate
from stepkeep.operations.access import Access, Scope
from stepkeep.operations.answers import Answer, Moment, Next, says
from stepkeep.operations.instants import instant
from stepkeep.operations.people.directory import StoreDirectory
from stepkeep.operations.people.people_journal import Change, MakeAt, record
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MembershipRow,
    Principal,
    PrincipalKind,
    SubjectKind,
    TenantRow,
    Vouching,
)
from stepkeep.store.protocol import Store

PAGE = 1000
MOST_READINGS = 64
"""Ways to read one name that `look_alikes` compares; each capital I has two."""


class Tenant(Answer, kw_only=True):
    """Settings of a tenant. `vouching`: whether programs without a key may name persons."""

    name: str
    vouching: Vouching
    created_at: Moment
    created_by: str


class TenantView(Answer, kw_only=True):
    """A tenant."""

    tenant: Tenant


class TenantList(Answer, kw_only=True):
    """Tenants that have settings; with a key, its own alone."""

    tenants: list[Tenant]


class User(Answer, kw_only=True):
    """A user or service."""

    name: str
    kind: PrincipalKind
    display: str
    created_at: Moment
    created_by: str
    disabled_at: Moment | None
    disabled_by: str | None


class UserView(Answer, kw_only=True):
    """A user or service."""

    user: User


class DisabledUser(UserView, kw_only=True):
    """A user or service that was disabled, and the ids of its keys that ended."""

    revoked_keys: list[str]


class UserList(Answer, kw_only=True):
    """A page of users and services by name."""

    users: list[User]
    is_complete: Annotated[bool | UnsetType, says("Whether no other follows.")] = UNSET  # older services lack it
    next: Next


class Membership(Answer, kw_only=True):
    """A role or a group of a person, or a role of a group."""

    id: str
    subject: str
    subject_kind: SubjectKind
    role: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    valid_from: Moment | None
    valid_to: Moment | None
    granted_at: Moment
    granted_by: str
    revoked_at: Moment | None
    revoked_by: str | None


class MembershipView(Answer, kw_only=True):
    """A role or group of a person."""

    membership: Membership


class Delegation(Answer, kw_only=True):
    """The right of one person to decide on behalf of another."""

    id: str
    delegator: str
    delegate: str
    reason: str
    valid_from: Moment | None
    valid_to: Moment | None
    granted_at: Moment
    granted_by: str
    revoked_at: Moment | None
    revoked_by: str | None


class DelegationView(Answer, kw_only=True):
    """A delegation."""

    delegation: Delegation


class DelegationList(Answer, kw_only=True):
    """Delegations that have not ended."""

    delegations: list[Delegation]
    next: Next = UNSET


class UserDetails(User, kw_only=True):
    """A user or service with what it has now (`roles`, `groups`, `keys`), and what it was ever given."""

    roles: list[str]
    groups: list[str]
    memberships: list[Membership]
    delegations: list[Delegation]
    keys: list[str]  # type: ignore[assignment]  # the method of mappings ends with 1.0


class UserDetailsView(Answer, kw_only=True):
    """A user or service with roles, groups, delegations and keys."""

    user: UserDetails


# -- tenants -----------------------------------------------------------------------------------------------------------
async def create_tenant(store: Store, access: Access, name: str, *, vouching: str, caller: Caller) -> TenantView:
    """Give a tenant a row of settings. A tenant works without one, too."""
    chosen, name = Vouching(vouching), validate.key("the tenant", name)
    _require_own(access, name)

    async def decide(now: int) -> MakeAt:
        if await store.people.read_tenant(name) is not None:
            raise Conflict(f"there is a tenant {name} already. Change it with set_vouching.")
        await _require_admin_key(store, name, chosen, now)

        def made(at: int) -> Change:
            row = TenantRow(name=name, vouching=chosen, created_at=at, created_by=caller.actor)
            return Change(event="tenant_created", subject=name, detail={"vouching": chosen}, tenants=(row,))

        return made

    change, _ = await record(store, caller._replace(tenant=name), decide)
    return TenantView(tenant=_tenant(change.tenants[0]))


async def set_vouching(store: Store, access: Access, name: str, vouching: str, *, caller: Caller) -> TenantView:
    """Allow or refuse that programs without a key name persons."""
    chosen, name = Vouching(vouching), validate.key("the tenant", name)
    _require_own(access, name)

    async def decide(now: int) -> MakeAt:
        row = await store.people.read_tenant(name)
        if row is None:
            raise NotFound(f"there is no tenant {name}. Create it first.")
        if row.vouching is Vouching.REFUSED and access.key is None:
            raise NotAllowed(
                f"tenant {name} refuses names without a key; only a key of its own with the scope admin changes that.",
                "vouching_refused",
                caller.actor,
            )
        await _require_admin_key(store, name, chosen, now)
        detail = {"vouching": chosen, "was": row.vouching}
        changed = replace(row, vouching=chosen)
        return lambda at: Change(event="tenant_changed", subject=name, detail=detail, tenants=(changed,))

    change, _ = await record(store, caller._replace(tenant=name), decide)
    return TenantView(tenant=_tenant(change.tenants[0]))


def own_tenant(access: Access, name: str) -> str:
    """The name of a tenant that this caller may look at: with a key, its own alone."""
    name = validate.key("the tenant", name)
    _require_own(access, name)
    return name


async def list_tenants(store: Store, access: Access) -> TenantList:
    """Tenants with settings; with a key, its own alone."""
    found: list[TenantRow] = []
    while page := await store.people.list_tenants(found[-1].name if found else "", PAGE):
        found += page
    return TenantList(tenants=[_tenant(row) for row in found if access.key is None or row.name == access.tenant])


def _tenant(row: TenantRow) -> Tenant:
    return Tenant(name=row.name, vouching=row.vouching, created_at=instant(row.created_at), created_by=row.created_by)


def _require_own(access: Access, name: str) -> None:
    if access.key is not None and name != access.tenant:
        raise NotAllowed(f"key {access.key.id} is of tenant {access.tenant} and changes no other.", "key_tenant")


async def _require_admin_key(store: Store, tenant: str, chosen: Vouching, now: int) -> None:
    """Refuse a setting that would leave a tenant without any caller that could change it."""
    keys = await store.people.list_keys(tenant) if chosen is Vouching.REFUSED else []
    if chosen is Vouching.REFUSED and not any(Scope.ADMIN in key.scopes and is_live(key, now) for key in keys):
        raise Conflict(f"tenant {tenant} has no key with the scope admin: with vouching refused, none could be made.")


def is_live(key: ApiKey, now: int) -> bool:
    """Whether a key counts at this time."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def revoked(key: ApiKey, at: int, by: str) -> ApiKey:
    """The key as it is from its end on."""
    return replace(key, revoked_at=at, revoked_by=by)


# -- users -------------------------------------------------------------------------------------------------------------
async def create_user(store: Store, name: str, *, kind: str, display: str, caller: Caller) -> UserView:
    """Register a user or a service under a name that no other can be mistaken for."""
    name = validate.person("the name", name)
    shown = validate.words("the display name", display, validate.MAX_KEY)
    chosen = PrincipalKind(kind)

    async def decide(now: int) -> MakeAt:
        others = same_names(await _every_name(store, caller.tenant), [name])
        if name in others:
            raise Conflict(f"there is a user or service {name} already.", {"user": name})
        if others:
            raise Conflict(
                f"{name} looks like {others[0]}, which is registered: one person could pass for two. "
                "Choose another name.",
                {"user": others[0]},
            )

        def made(at: int) -> Change:
            row = Principal(
                tenant=caller.tenant,
                name=name,
                kind=chosen,
                display=shown,
                folded=fold_name(name),
                created_at=at,
                created_by=caller.actor,
            )
            return Change(event="user_created", subject=name, detail={"kind": chosen}, principals=(row,))

        return made

    change, _ = await record(store, caller, decide)
    return UserView(user=_user(change.principals[0]))


async def disable_user(store: Store, name: str, *, caller: Caller) -> DisabledUser:
    """Let a principal act no more: it is refused in every decision from now on, and its keys are revoked."""

    async def decide(now: int) -> MakeAt:
        row = await registered(store, caller.tenant, name)
        if row.disabled_at is not None:
            raise Conflict(f"{row.name} is disabled already, by {row.disabled_by}.")
        by = caller.actor
        keys = [
            one
            for one in await store.people.list_keys(caller.tenant)
            if one.owner == row.name and one.revoked_at is None
        ]
        return lambda at: Change(
            event="user_disabled",
            subject=row.name,
            detail={"keys": [one.id for one in keys]},
            principals=(replace(row, disabled_at=at, disabled_by=by),),
            keys=tuple(revoked(one, at, by) for one in keys),
        )

    change, _ = await record(store, caller, decide)
    return DisabledUser(user=_user(change.principals[0]), revoked_keys=[one.id for one in change.keys])


async def enable_user(store: Store, name: str, *, caller: Caller) -> UserView:
    """Let a disabled principal act again. Its revoked keys stay revoked."""

    async def decide(now: int) -> MakeAt:
        row = await registered(store, caller.tenant, name)
        if row.disabled_at is None:
            raise Conflict(f"{row.name} is not disabled.")
        enabled = replace(row, disabled_at=None, disabled_by=None)
        return lambda at: Change(event="user_enabled", subject=row.name, principals=(enabled,))

    change, _ = await record(store, caller, decide)
    return UserView(user=_user(change.principals[0]))


async def list_users(store: Store, tenant: str, *, after: str, limit: int) -> UserList:
    """A page of principals by name."""
    found = await store.people.list_principals(tenant, after, limit + 1)
    is_complete = len(found) <= limit
    following = None if is_complete else found[limit - 1].name
    return UserList(users=[_user(row) for row in found[:limit]], is_complete=is_complete, next=following)


async def show_user(store: Store, tenant: str, name: str) -> UserDetailsView:
    """A principal with what it has now, what it was ever given, delegations and keys."""
    row = await registered(store, tenant, name)
    now = await store.now()
    authority = await StoreDirectory(store).authority(Caller(tenant, row.name))
    held = [one for one in authority.memberships if one.holds(now)]
    given = await store.people.read_memberships(tenant, SubjectKind.PERSON, row.name)
    keys = [one for one in await store.people.list_keys(tenant) if one.owner == row.name]
    return UserDetailsView(
        user=UserDetails(
            **dict(_user(row).items()),
            roles=sorted({one.name for one in held if one.kind is MembershipKind.ROLE}),
            groups=sorted({one.name for one in held if one.kind is MembershipKind.GROUP}),
            memberships=[_membership(one) for one in given],
            delegations=[_delegation(one) for one in await store.people.read_delegations(tenant, row.name)],
            keys=[one.id for one in keys if is_live(one, now)],
        )
    )


def _user(row: Principal) -> User:
    return User(
        name=row.name,
        kind=row.kind,
        display=row.display,
        created_at=instant(row.created_at),
        created_by=row.created_by,
        disabled_at=instant(row.disabled_at),
        disabled_by=row.disabled_by,
    )


async def registered(store: Store, tenant: str, name: str) -> Principal:
    """The principal of exactly this name."""
    name = validate.key("the name", name)
    found = await store.people.find_principal(tenant, name)
    if found is None:
        near = same_names(await _every_name(store, tenant), [name])
        said = f" There is {near[0]}." if near else ""
        raise NotFound(f"{name!a:.80} is not registered in tenant {tenant}.{said}")
    return found


async def _every_name(store: Store, tenant: str) -> list[str]:
    found: list[str] = []
    while page := await store.people.list_principals(tenant, found[-1] if found else "", PAGE):
        found += (row.name for row in page)
    return found


async def look_alikes(store: Store, tenant: str) -> list[list[str]]:
    """Registered names that look the same, together. They count as one person; an earlier release registered them."""
    by_reading: dict[tuple[str, ...], list[str]] = {}
    for name in await _every_name(store, tenant):
        for reading in islice(product(*look_of(name)), MOST_READINGS):
            by_reading.setdefault(reading, []).append(name)
    return sorted({tuple(names): names for names in by_reading.values() if len(names) > 1}.values())


async def _active(store: Store, tenant: str, name: str) -> Principal:
    row = await registered(store, tenant, name)
    if row.disabled_at is not None:
        raise Conflict(f"{row.name} is disabled. Enable the account first.")
    return row


# -- roles and groups --------------------------------------------------------------------------------------------------
async def grant(
    store: Store,
    subject: str,
    kind: MembershipKind,
    name: str,
    *,
    to_group: bool,
    valid_from: int | None,
    valid_to: int | None,
    caller: Caller,
) -> MembershipView:
    """Give a person a role or a group, or a group a role, within dates."""
    holder = SubjectKind.GROUP if to_group else SubjectKind.PERSON
    subject = _title("the group" if to_group else "the name", subject)
    name = validate.in_plain_letters(f"the {kind}", _title(f"the {kind}", name))
    if to_group and kind is MembershipKind.GROUP:
        raise InvalidInput("a group is given roles, not groups: give each member the group.")

    async def decide(now: int) -> MakeAt:
        _check_dates(valid_from, valid_to, now)
        who = subject if to_group else (await _active(store, caller.tenant, subject)).name
        for old in await store.people.read_memberships(caller.tenant, holder, who):
            if (old.kind, old.name) == (kind, name) and _is_open(old, now):
                raise Conflict(
                    f"{who} has the {kind} {name} already, from {old.granted_by}. Revoke it first to change its dates.",
                    {"membership": old.id},
                )
        new_id = str(uuid7())

        def made(at: int) -> Change:
            row = MembershipRow(
                tenant=caller.tenant,
                id=new_id,
                subject=who,
                subject_kind=holder,
                kind=kind,
                name=name,
                granted_at=at,
                granted_by=caller.actor,
                valid_from=valid_from,
                valid_to=valid_to,
            )
            return Change(event="granted", subject=who, detail=_given(row), memberships=(row,))

        return made

    change, _ = await record(store, caller, decide)
    return MembershipView(membership=_membership(change.memberships[0]))


async def revoke(
    store: Store, subject: str, kind: MembershipKind, name: str, *, from_group: bool, caller: Caller
) -> MembershipView:
    """Take a role or a group away, also one that begins later."""
    holder = SubjectKind.GROUP if from_group else SubjectKind.PERSON
    who = _title("the group" if from_group else "the name", subject)
    name = _title(f"the {kind}", name)

    async def decide(now: int) -> MakeAt:
        found = [
            old
            for old in await store.people.read_memberships(caller.tenant, holder, who)
            if (old.kind, old.name) == (kind, name) and _is_open(old, now)
        ]
        if not found:
            raise NotFound(f"{who} does not have the {kind} {name}.")

        def made(at: int) -> Change:
            ended = tuple(replace(old, revoked_at=at, revoked_by=caller.actor) for old in found)
            return Change(event="revoked", subject=who, detail=_given(ended[0]), memberships=ended)

        return made

    change, _ = await record(store, caller, decide)
    return MembershipView(membership=_membership(change.memberships[0]))


def _membership(row: MembershipRow) -> Membership:
    what = {row.kind.value: row.name}
    return Membership(id=row.id, subject=row.subject, subject_kind=row.subject_kind, **what, **_dates(row))


def _given(row: MembershipRow) -> Mapping[str, object]:
    dates = {"valid_from": row.valid_from, "valid_to": row.valid_to}
    found = {"id": row.id, "to": row.subject_kind, row.kind: row.name}
    return {**found, **{name: value for name, value in dates.items() if value is not None}}


# -- delegations -------------------------------------------------------------------------------------------------------
async def delegate(
    store: Store,
    access: Access,
    delegator: str,
    to: str,
    *,
    reason: str,
    valid_from: int | None,
    valid_to: int | None,
    caller: Caller,
) -> DelegationView:
    """Let `to` decide on behalf of `delegator`. A person delegates for themselves; others need the scope admin."""
    why = validate.words("the reason", reason)
    if same_names([validate.key("the delegator", delegator)], [validate.key("the delegate", to)]):
        raise NotAllowed(f"{delegator} cannot delegate to themselves.", "delegation_to_oneself", delegator)
    _require_self(access, delegator, caller, "users.delegate")

    async def decide(now: int) -> MakeAt:
        _check_dates(valid_from, valid_to, now)
        source, target = await _active(store, caller.tenant, delegator), await _active(store, caller.tenant, to)
        for one in (source, target):
            if one.kind is PrincipalKind.SERVICE:
                said = f"{one.name} is a service: only people delegate, and only to people."
                raise NotAllowed(said, "delegation_of_service", one.name)
        for old in await store.people.read_delegations(caller.tenant, source.name):
            if (old.delegator, old.delegate) == (source.name, target.name) and _is_open(old, now):
                raise Conflict(
                    f"{target.name} decides on behalf of {source.name} already. Undelegate first to change the dates.",
                    {"delegation": old.id},
                )
        new_id = str(uuid7())
        detail = {"id": new_id, "to": target.name, "valid_from": valid_from, "valid_to": valid_to, "reason": why}
        kept = {name: value for name, value in detail.items() if value not in (None, "")}

        def made(at: int) -> Change:
            row = DelegationRow(
                tenant=caller.tenant,
                id=new_id,
                delegator=source.name,
                delegate=target.name,
                granted_at=at,
                granted_by=caller.actor,
                reason=why,
                valid_from=valid_from,
                valid_to=valid_to,
            )
            return Change(event="delegated", subject=source.name, detail=kept, delegations=(row,))

        return made

    change, _ = await record(store, caller, decide)
    return DelegationView(delegation=_delegation(change.delegations[0]))


async def undelegate(store: Store, access: Access, delegator: str, to: str, *, caller: Caller) -> DelegationView:
    """End a delegation before its date."""
    source, target = validate.key("the delegator", delegator), validate.key("the delegate", to)
    _require_self(access, source, caller, "users.undelegate")

    async def decide(now: int) -> MakeAt:
        found = [
            old
            for old in await store.people.read_delegations(caller.tenant, source)
            if (old.delegator, old.delegate) == (source, target) and _is_open(old, now)
        ]
        if not found:
            raise NotFound(f"{target} does not decide on behalf of {source}.")

        def made(at: int) -> Change:
            ended = tuple(replace(old, revoked_at=at, revoked_by=caller.actor) for old in found)
            detail = {"id": ended[0].id, "to": target}
            return Change(event="undelegated", subject=source, detail=detail, delegations=ended)

        return made

    change, _ = await record(store, caller, decide)
    return DelegationView(delegation=_delegation(change.delegations[0]))


async def list_delegations(store: Store, tenant: str) -> DelegationList:
    """The delegations that have not ended."""
    now = await store.now()
    rows = await store.people.list_delegations(tenant)
    return DelegationList(delegations=[_delegation(row) for row in rows if _is_open(row, now)])


def _delegation(row: DelegationRow) -> Delegation:
    return Delegation(id=row.id, delegator=row.delegator, delegate=row.delegate, reason=row.reason, **_dates(row))


def _require_self(access: Access, delegator: str, caller: Caller, operation: str) -> None:
    """A key without the scope admin delegates for its own actor alone."""
    own = caller.actor == delegator
    access.require(Scope.DECIDE if own and not access.may(Scope.ADMIN) else Scope.ADMIN, operation=operation)


# -- dates -------------------------------------------------------------------------------------------------------------
def _check_dates(valid_from: int | None, valid_to: int | None, now: int) -> None:
    if valid_to is not None and valid_to <= max(now, valid_from or 0):
        raise InvalidInput("it would end before it begins: the end is after the beginning, and in the future.")


def _is_open(row: MembershipRow | DelegationRow, now: int) -> bool:
    """Whether it counts now or will."""
    return row.revoked_at is None and (row.valid_to is None or row.valid_to > now)


class _Dates(TypedDict):
    valid_from: str | None
    valid_to: str | None
    granted_at: str
    granted_by: str
    revoked_at: str | None
    revoked_by: str | None


def _dates(row: MembershipRow | DelegationRow) -> _Dates:
    return {
        "valid_from": instant(row.valid_from),
        "valid_to": instant(row.valid_to),
        "granted_at": instant(row.granted_at),
        "granted_by": row.granted_by,
        "revoked_at": instant(row.revoked_at),
        "revoked_by": row.revoked_by,
    }


def _title(what: str, value: str) -> str:
    """The name of a role or a group, as definitions have it."""
    plain = validate.key(what, value)
    if plain != plain.strip():
        raise InvalidInput(f"{what} begins or ends with a blank: {plain!a}.")
    return plain
