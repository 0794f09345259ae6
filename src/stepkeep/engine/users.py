"""Users and services, and the API keys that they own: `engine.users` and `engine.keys`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from stepkeep.engine.arguments import duration, moment, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.people.authority import MembershipKind
from stepkeep.operations import validate
from stepkeep.operations.access import ADMINISTER, OWN, READ, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Actor, Cursor, Limit, Name, Time, Words, group, operation
from stepkeep.operations.people import keys, principals
from stepkeep.operations.people.keys import KeyList, MadeKey, RevokedKey
from stepkeep.operations.people.people_journal import History
from stepkeep.operations.people.principals import (
    DelegationList,
    DelegationView,
    DisabledUser,
    MembershipView,
    UserDetailsView,
    UserList,
    UserView,
)
from stepkeep.operations.people.quotas import Quota, Quotas
from stepkeep.operations.typed import InPython

Display = Annotated[str, Meta(max_length=255)]
UserName = Annotated[Name, Meta(description="The name of a user or service.", examples=["ann"])]


@group("users", "People")
class AsyncUsers(AsyncGroup):
    """Users and services of the tenant: their roles, groups and delegations, and the record of every change.

    >>> _ = engine.users.create("ann", display="Ann Lee")
    >>> _ = engine.users.grant("ann", role="finance")
    >>> engine.users.show("ann").user.roles
    ['finance']
    """

    @operation(
        ADMINISTER,
        "POST /users",
        "create_user",
        "Register a user or a service",
        status=201,
        example={"name": "bob", "display": "Bob"},
        repeatable=False,
    )
    async def create(
        self, name: Name, *, kind: Literal["user", "service"] = "user", display: Display = "", by: Actor = None
    ) -> UserView:
        """Register a user or a service (`kind="service"`). A name that looks like a registered one is refused.

        Names are case-sensitive, but no two differ by case or look-alike letters alone: one person could pass for two.

        >>> print(engine.users.create("portal", kind="service").user.kind)
        service
        """
        return await principals.create_user(self._store, name, kind=kind, display=display, caller=self._caller(by))

    @operation(ADMINISTER, "POST /users/{name:path}/disable", "disable_user", "Disable a user", ends_access=True)
    async def disable(self, name: UserName, *, by: Actor = None) -> DisabledUser:
        """Refuse a principal in every decision from now on, and revoke its keys.

        >>> _ = engine.users.create("ann")
        >>> engine.users.disable("ann").revoked_keys
        []
        """
        return await principals.disable_user(self._store, name, caller=self._caller(by))

    @operation(ADMINISTER, "POST /users/{name:path}/enable", "enable_user", "Enable a disabled user")
    async def enable(self, name: UserName, *, by: Actor = None) -> UserView:
        """Let a disabled principal act again; its revoked keys stay revoked.

        >>> _ = engine.users.create("ann"), engine.users.disable("ann")
        >>> print(engine.users.enable("ann").user.disabled_at)
        None
        """
        return await principals.enable_user(self._store, name, caller=self._caller(by))

    @operation(
        ADMINISTER,
        "POST /users/{name:path}/grant",
        "grant_membership",
        "Give a role or a group",
        example={"role": "finance"},
        repeatable=False,
    )
    async def grant(
        self,
        name: UserName,
        *,
        role: Name | None = None,
        group: Name | None = None,
        to_group: Annotated[bool, says("The name is that of a group, which gets the role.")] = False,
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        by: Actor = None,
    ) -> MembershipView:
        """Give a person a role or a group, within dates if given; with `to_group`, give a group a role.

        >>> _ = engine.users.create("ann")
        >>> _ = engine.users.grant("ann", group="accounting")
        >>> _ = engine.users.grant("accounting", role="finance", to_group=True)
        >>> engine.users.show("ann").user.roles
        ['finance']
        """
        return await principals.grant(
            self._store,
            name,
            *_membership("grant", role, group),
            to_group=to_group,
            valid_from=moment("valid_from", valid_from),
            valid_to=moment("valid_to", valid_to),
            caller=self._caller(by),
        )

    @operation(
        ADMINISTER,
        "POST /users/{name:path}/revoke",
        "revoke_membership",
        "Take a role or a group away",
        example={"role": "finance"},
        repeatable=False,
    )
    async def revoke(
        self,
        name: UserName,
        *,
        role: Name | None = None,
        group: Name | None = None,
        from_group: bool = False,
        by: Actor = None,
    ) -> MembershipView:
        """Take a role or a group away; with `from_group`, take a role from a group.

        >>> _ = engine.users.create("ann"), engine.users.grant("ann", role="finance")
        >>> engine.users.revoke("ann", role="finance").membership.role
        'finance'
        """
        what = _membership("revoke", role, group)
        caller = self._caller(by)
        return await principals.revoke(self._store, name, *what, from_group=from_group, caller=caller)

    @operation(
        OWN,
        "POST /delegations",
        "create_delegation",
        "Delegate decisions",
        status=201,
        done="Delegated",
        example={"delegator": "ann", "to": "bob", "open_ended": True},
        repeatable=False,
    )
    async def delegate(
        self,
        delegator: Name,
        to: Name,
        *,
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        open_ended: bool = False,
        reason: Words = "",
        by: Actor = None,
    ) -> DelegationView:
        """Let `to` decide on behalf of `delegator`: until `valid_to`, or `open_ended`.

        With a key, a person delegates for themselves; for another person the key needs the scope admin.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> engine.users.delegate("ann", "bea", open_ended=True, reason="on leave").delegation.delegate
        'bea'
        """
        if open_ended is (valid_to is not None):
            raise InvalidInput("a delegation has an end, or none on purpose: give valid_to or open_ended=True.")
        return await principals.delegate(
            self._store,
            self.access,
            delegator,
            to,
            reason=reason,
            valid_from=moment("valid_from", valid_from),
            valid_to=moment("valid_to", valid_to),
            caller=self._caller(by),
        )

    @operation(
        OWN,
        "POST /delegations/end",
        "end_delegation",
        "End a delegation",
        example={"delegator": "ann", "to": "bob"},
        repeatable=False,
    )
    async def undelegate(self, delegator: Name, to: Name, *, by: Actor = None) -> DelegationView:
        """End a delegation before its date.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> _ = engine.users.delegate("ann", "bea", open_ended=True)
        >>> engine.users.undelegate("ann", "bea").delegation.revoked_at is None
        False
        """
        return await principals.undelegate(self._store, self.access, delegator, to, caller=self._caller(by))

    @operation(READ, "GET /delegations", "list_delegations", "List delegations", pages="delegations", page_key="id")
    async def delegations(self) -> DelegationList:
        """The delegations that have not ended.

        >>> engine.users.delegations().delegations
        []
        """
        return await principals.list_delegations(self._store, self._tenant)

    @operation(READ, "GET /users/{name:path}", "get_user", "Show a user or service")
    async def show(self, name: UserName) -> UserDetailsView:
        """A principal with what it has now, what it was ever given, its delegations and its keys.

        >>> _ = engine.users.create("ann")
        >>> engine.users.show("ann").user.groups
        []
        """
        return await principals.show_user(self._store, self._tenant, name)

    @operation(READ, "GET /history", "get_history", "The record of changes of people", pages="history", page_size=100)
    async def history(
        self,
        name: Annotated[Name | None, says("Of one person, group or tenant.")] = None,
        *,
        after: Annotated[int, Meta(ge=0, le=2**43, description="The `seq` of the last entry that is known.")] = 0,
        limit: Limit = 1000,
    ) -> History:
        """The record of changes of people, in order, with its hash chain; of one person, group or tenant if named.

        >>> _ = engine.users.create("ann"), engine.users.grant("ann", role="finance")
        >>> [entry.event for entry in engine.users.history("ann").history]
        ['user_created', 'granted']
        >>> engine.users.history().chain.is_intact
        True
        """
        from stepkeep.evidence.people import history

        return await history(self._store, self._tenant, optional_key("the name", name), after=after, limit=limit)

    @operation(READ, "GET /users", "list_users", "List users and services", names={"after": "cursor"}, pages="users")
    async def list(self, *, after: Cursor = None, limit: Limit = 1000) -> UserList:
        """A page of principals by name; `after` is the last name of the page before.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> [user.name for user in engine.users.list().users]
        ['ann', 'bea']
        """
        begin = validate.words("after", after or "")
        return await principals.list_users(self._store, self._tenant, after=begin, limit=limit)


class Users(Blocking[AsyncUsers]):
    create, disable, enable = blocking(AsyncUsers.create), blocking(AsyncUsers.disable), blocking(AsyncUsers.enable)
    grant, revoke, delegate = blocking(AsyncUsers.grant), blocking(AsyncUsers.revoke), blocking(AsyncUsers.delegate)
    undelegate, delegations = blocking(AsyncUsers.undelegate), blocking(AsyncUsers.delegations)
    show, history, list = blocking(AsyncUsers.show), blocking(AsyncUsers.history), blocking(AsyncUsers.list)


def _membership(what: str, role: str | None, group: str | None) -> tuple[MembershipKind, str]:
    if (role is None) is (group is None):
        raise InvalidInput(f"{what}: name a role or a group, one of the two.")
    if role is not None:
        return MembershipKind.ROLE, role
    assert group is not None
    return MembershipKind.GROUP, group


KeyId = Annotated[str, Meta(max_length=255, description="The public id of a key.", examples=["0123456789abcdef"])]
Scopes = Annotated[Iterable[str], InPython(Annotated[list[Scope], Meta(min_length=1, max_length=20)])]
Short = Annotated[str, Meta(max_length=255)]
Queues = Annotated[
    Iterable[str] | None,
    InPython(Annotated[list[Short], Meta(min_length=1, max_length=100)] | None),
    says('The queues that it may work on; the default one is "".'),
]
Handlers = Annotated[
    Iterable[str] | None,
    InPython(Annotated[list[Short], Meta(min_length=1, max_length=1000)] | None),
    says("The handlers that it may work on."),
]
Lifetime = Annotated[str, Meta(max_length=100, examples=["90d"])]


@group("keys", "API keys")
class AsyncKeys(AsyncGroup):
    """API keys of the tenant. Each has an owner, who is the actor of everything done with it.

    >>> _ = engine.users.create("ann")
    >>> made = engine.keys.create("ann", scopes=["read", "decide"], expires_in="90d")
    >>> made.secret.startswith("sk_" + made.key.id)
    True
    """

    @operation(
        ADMINISTER,
        "POST /api-keys",
        "create_key",
        "Make a key",
        status=201,
        done="Made",
        example={"owner": "ann", "scopes": ["read", "start"]},
        repeatable=False,
    )
    async def create(
        self,
        owner: Name,
        *,
        scopes: Scopes,
        expires_at: Time | None = None,
        expires_in: Lifetime | None = None,
        max_concurrent_runs: Annotated[Quota | None, says("Unfinished runs.")] = None,
        max_requests_per_min: Annotated[Quota | None, says("Of each process.")] = None,
        queues: Queues = None,
        handlers: Handlers = None,
        by: Actor = None,
    ) -> MadeKey:
        """Make a key for a principal. `secret` of the answer is the whole key: it is shown once and kept nowhere.

        Open the database with it: `sk.open(url, key=...)`. Scopes: read, start, decide, complete, operate, work, admin,
        vouch. The quotas limit its unfinished runs and its requests a minute. A key with `queues` or `handlers`
        works on steps of these alone; the default queue is "".

        >>> _ = engine.users.create("ann")
        >>> engine.keys.create("ann", scopes=["read"]).key.scopes
        ['read']
        """
        return await keys.create_key(
            self._store,
            owner,
            scopes=scopes,
            expires_at=moment("expires_at", expires_at),
            expires_in=None if expires_in is None else duration("expires_in", expires_in),
            quotas=Quotas(max_concurrent_runs=max_concurrent_runs, max_requests_per_min=max_requests_per_min),
            limits=keys.read_limits(queues, handlers),
            access=self.access,
            caller=self._caller(by),
        )

    @operation(
        OWN,
        "POST /api-keys/{key_id}/rotate",
        "rotate_key",
        "Replace a key",
        status=201,
        done="Made",
        repeatable=False,
        ends_access=True,
    )
    async def rotate(
        self, key_id: KeyId, *, overlap: Annotated[str, Meta(max_length=100)] = "1d", by: Actor = None
    ) -> MadeKey:
        """Make a new key with the same owner and scopes; the old one ends after `overlap`.

        The new key ends when the old one would have. One that an administrator makes has the same lifetime anew. A key
        with other scopes than those of the caller, and the key of a session, is refused.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"]).key
        >>> engine.keys.rotate(old.id, overlap="1h").key.replaces == old.id
        True
        """
        return await keys.rotate_key(
            self._store, self.access, key_id, overlap=duration("overlap", overlap), caller=self._caller(by)
        )

    @operation(OWN, "DELETE /api-keys/{key_id}", "revoke_key", "End a key", ends_access=True)
    async def revoke(self, key_id: KeyId, *, by: Actor = None) -> RevokedKey:
        """End a key now, with the keys that replaced it (`successors`) and their sessions; decisions refuse them from
        this moment on. Other processes of a service learn of it within a second. Every owner may.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"]).key
        >>> engine.keys.revoke(old.id).key.state
        'revoked'
        """
        return await keys.revoke_key(self._store, self.access, key_id, caller=self._caller(by))

    @operation(READ, "GET /api-keys", "list_keys", "List keys", pages="keys", page_key="id")
    async def list(self, *, owner: Annotated[Name | None, says("Only the keys of this person.")] = None) -> KeyList:
        """Keys without their secrets, newest first; with `owner`, those of one principal.

        >>> engine.keys.list().keys
        []
        """
        return await keys.list_keys(self._store, self._tenant, optional_key("the owner", owner))


class Keys(Blocking[AsyncKeys]):
    create, rotate, revoke = blocking(AsyncKeys.create), blocking(AsyncKeys.rotate), blocking(AsyncKeys.revoke)
    list = blocking(AsyncKeys.list)
