"""Tenants, users, keys and the audit log, as the engine offers them: `engine.tenants`, `.users`, `.keys`, `.audit`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import structs

from stepkeep.definition import arguments
from stepkeep.engine.arguments import duration, moment, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.authority import MembershipKind
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.operations import audit, keys, principals, quotas, run_webhooks, validate
from stepkeep.operations.access import guarded
from stepkeep.store.audit_rows import AuditFilter, Outcome

MOST_LISTED = 10_000


def _quotas(what: str, given: Mapping[str, object]) -> quotas.Quotas:
    known = quotas.Quotas.__struct_fields__
    if unknown := [name for name in given if name not in known]:
        raise InvalidInput(f"{what}: there is no quota {unknown[0]!a}. There are: {', '.join(known)}.")
    return quotas.Quotas(**{name: quotas.read_quota(f"{what}: {name}", one) for name, one in given.items()})


@guarded("tenants.")
class AsyncTenants(AsyncGroup):
    """Tenants that have settings. A tenant needs none: it then allows that programs vouch for persons.

    >>> engine.tenants.list()["tenants"]
    []
    """

    async def create(self, name: str, *, vouching: str = "allowed", by: str | None = None) -> dict[str, Any]:
        """Give a tenant settings: whether programs without a key may name persons (`"allowed"` or `"refused"`).

        >>> engine.tenants.create("acme")["tenant"]["vouching"]
        'allowed'
        """
        return await principals.create_tenant(
            self._store, self.access, name, vouching=vouching, acting=self._acting(by)
        )

    async def set_vouching(self, name: str, vouching: str, *, by: str | None = None) -> dict[str, Any]:
        """Allow or refuse that programs without a key name persons. `"refused"` needs a key with the scope admin.

        From then on, only callers with a key start, decide, complete and change anything in this tenant.

        >>> _ = engine.tenants.create("acme")
        >>> engine.tenants.set_vouching("acme", "allowed")["tenant"]["vouching"]
        'allowed'
        """
        return await principals.set_vouching(self._store, self.access, name, vouching, acting=self._acting(by))

    async def set_quotas(
        self,
        /,
        name: str,
        *,
        max_concurrent_runs: int | None = None,
        max_requests_per_min: int | None = None,
        by: str | None = None,
        **limits: int | None,
    ) -> dict[str, Any]:
        """Limit what all keys of a tenant use together: unfinished runs, requests a minute of each process, and what
        is stored (`max_triggers=…`); docs/access.md has all of them.

        Only an engine without a key may: the limits are the operator's. None takes the limit away, or sets the default.

        >>> engine.tenants.set_quotas("default", max_concurrent_runs=20)["quotas"]["max_concurrent_runs"]
        20
        """
        own = principals.own_tenant(self.access, name)
        if self.access.key is not None:
            raise NotAllowed(
                "the quotas of a tenant are the operator's: set them without a key, with access to the database.",
                "operator_only",
                self.access.actor,
            )
        own_two = {"max_concurrent_runs": max_concurrent_runs, "max_requests_per_min": max_requests_per_min}
        wanted = _quotas("tenants.set_quotas", {**own_two, **limits})
        return await quotas.set_tenant_quotas(self._store, own, wanted, actor=self._actor(by))

    async def quotas(self, name: str) -> dict[str, Any]:
        """The limits of a tenant.

        >>> engine.tenants.quotas("default")["quotas"]["max_concurrent_runs"] is None
        True
        """
        own = principals.own_tenant(self.access, name)
        return {"tenant": own, "quotas": structs.asdict(await quotas.tenant_quotas(self._store, own))}

    async def set_signing(self, name: str, secrets: Iterable[str], *, by: str | None = None) -> dict[str, Any]:
        """Let starts name these secrets of the workers, and no others, to sign the webhooks of their runs.

        >>> engine.tenants.set_signing("default", ["SHOP_HOOK"])["secrets"]
        ['SHOP_HOOK']
        """
        own = principals.own_tenant(self.access, name)
        return await run_webhooks.release_secrets(self._store, own, secrets, actor=self._actor(by))

    async def signing(self, name: str) -> dict[str, Any]:
        """The secrets that starts may name to sign the webhooks of their runs.

        >>> engine.tenants.signing("default")["secrets"]
        []
        """
        return await run_webhooks.released_secrets(self._store, principals.own_tenant(self.access, name))

    async def list(self) -> dict[str, Any]:
        """The tenants that have settings; with a key, its own alone.

        >>> engine.tenants.list()["tenants"]
        []
        """
        return await principals.list_tenants(self._store, self.access)


class Tenants(Blocking[AsyncTenants]):
    create = blocking(AsyncTenants.create)
    set_vouching = blocking(AsyncTenants.set_vouching)
    set_quotas = blocking(AsyncTenants.set_quotas)
    quotas = blocking(AsyncTenants.quotas)
    set_signing = blocking(AsyncTenants.set_signing)
    signing = blocking(AsyncTenants.signing)
    list = blocking(AsyncTenants.list)


@guarded("users.")
class AsyncUsers(AsyncGroup):
    """Users and services of the tenant: their roles, groups and delegations, and the record of every change.

    >>> _ = engine.users.create("ann", display="Ann Lee")
    >>> _ = engine.users.grant("ann", role="finance")
    >>> engine.users.show("ann")["user"]["roles"]
    ['finance']
    """

    async def create(
        self, name: str, *, kind: str = "user", display: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """Register a user or a service (`kind="service"`). A name that looks like a registered one is refused.

        Names are case-sensitive, but no two differ by case or look-alike letters alone: one person could pass for two.

        >>> engine.users.create("portal", kind="service")["user"]["kind"]
        'service'
        """
        return await principals.create_user(
            self._store, self._tenant, name, kind=kind, display=display, acting=self._acting(by)
        )

    async def disable(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Refuse a principal in every decision from now on, and revoke its keys.

        >>> _ = engine.users.create("ann")
        >>> engine.users.disable("ann")["revoked_keys"]
        []
        """
        return await principals.disable_user(self._store, self._tenant, name, acting=self._acting(by))

    async def enable(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a disabled principal act again; its revoked keys stay revoked.

        >>> _ = engine.users.create("ann"), engine.users.disable("ann")
        >>> print(engine.users.enable("ann")["user"]["disabled_at"])
        None
        """
        return await principals.enable_user(self._store, self._tenant, name, acting=self._acting(by))

    async def grant(
        self,
        name: str,
        *,
        role: str | None = None,
        group: str | None = None,
        to_group: bool = False,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Give a person a role or a group, within dates if given; with `to_group`, give a group a role.

        >>> _ = engine.users.create("ann")
        >>> _ = engine.users.grant("ann", group="accounting")
        >>> _ = engine.users.grant("accounting", role="finance", to_group=True)
        >>> engine.users.show("ann")["user"]["roles"]
        ['finance']
        """
        return await principals.grant(
            self._store,
            self._tenant,
            name,
            *_membership("grant", role, group),
            to_group=arguments.flag("grant: to_group", to_group),
            valid_from=moment("grant: valid_from", valid_from),
            valid_to=moment("grant: valid_to", valid_to),
            acting=self._acting(by),
        )

    async def revoke(
        self,
        name: str,
        *,
        role: str | None = None,
        group: str | None = None,
        from_group: bool = False,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Take a role or a group away; with `from_group`, take a role from a group.

        >>> _ = engine.users.create("ann"), engine.users.grant("ann", role="finance")
        >>> engine.users.revoke("ann", role="finance")["membership"]["role"]
        'finance'
        """
        return await principals.revoke(
            self._store,
            self._tenant,
            name,
            *_membership("revoke", role, group),
            from_group=arguments.flag("revoke: from_group", from_group),
            acting=self._acting(by),
        )

    async def delegate(
        self,
        delegator: str,
        to: str,
        *,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        open_ended: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> dict[str, Any]:
        """Let `to` decide on behalf of `delegator`: until `valid_to`, or `open_ended`.

        With a key, a person delegates for themselves; for another person the key needs the scope admin.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> engine.users.delegate("ann", "bea", open_ended=True, reason="on leave")["delegation"]["delegate"]
        'bea'
        """
        if arguments.flag("delegate: open_ended", open_ended) is (valid_to is not None):
            raise InvalidInput("a delegation has an end, or none on purpose: give valid_to or open_ended=True.")
        return await principals.delegate(
            self._store,
            self._tenant,
            self.access,
            delegator,
            to,
            reason=reason,
            valid_from=moment("delegate: valid_from", valid_from),
            valid_to=moment("delegate: valid_to", valid_to),
            acting=self._acting(by),
        )

    async def undelegate(self, delegator: str, to: str, *, by: str | None = None) -> dict[str, Any]:
        """End a delegation before its date.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> _ = engine.users.delegate("ann", "bea", open_ended=True)
        >>> engine.users.undelegate("ann", "bea")["delegation"]["revoked_at"] is None
        False
        """
        return await principals.undelegate(
            self._store, self._tenant, self.access, delegator, to, acting=self._acting(by)
        )

    async def delegations(self) -> dict[str, Any]:
        """The delegations that have not ended.

        >>> engine.users.delegations()["delegations"]
        []
        """
        return await principals.list_delegations(self._store, self._tenant)

    async def show(self, name: str) -> dict[str, Any]:
        """A principal with what it has now, what it was ever given, its delegations and its keys.

        >>> _ = engine.users.create("ann")
        >>> engine.users.show("ann")["user"]["groups"]
        []
        """
        return await principals.show_user(self._store, self._tenant, name)

    async def history(self, name: str | None = None, *, after: int = 0, limit: int = 1000) -> dict[str, Any]:
        """The record of changes of people, in order, with its hash chain; of one person, group or tenant if named.

        >>> _ = engine.users.create("ann"), engine.users.grant("ann", role="finance")
        >>> [entry["event"] for entry in engine.users.history("ann")["history"]]
        ['user_created', 'granted']
        >>> engine.users.history()["chain"]["is_intact"]
        True
        """
        from stepkeep.evidence.people import history

        return await history(
            self._store,
            self._tenant,
            optional_key("the name", name),
            after=arguments.whole("history: after", after, 0, 2**43),
            limit=arguments.whole("history: limit", limit, 1, MOST_LISTED),
        )

    async def list(self, *, after: str = "", limit: int = 1000) -> dict[str, Any]:
        """A page of principals by name; `after` is the last name of the page before.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> [user["name"] for user in engine.users.list()["users"]]
        ['ann', 'bea']
        """
        return await principals.list_users(
            self._store,
            self._tenant,
            after=validate.words("list: after", after, validate.MAX_KEY),
            limit=arguments.whole("list: limit", limit, 1, MOST_LISTED),
        )


class Users(Blocking[AsyncUsers]):
    create = blocking(AsyncUsers.create)
    disable = blocking(AsyncUsers.disable)
    enable = blocking(AsyncUsers.enable)
    grant = blocking(AsyncUsers.grant)
    revoke = blocking(AsyncUsers.revoke)
    delegate = blocking(AsyncUsers.delegate)
    undelegate = blocking(AsyncUsers.undelegate)
    delegations = blocking(AsyncUsers.delegations)
    show = blocking(AsyncUsers.show)
    history = blocking(AsyncUsers.history)
    list = blocking(AsyncUsers.list)


@guarded("keys.")
class AsyncKeys(AsyncGroup):
    """API keys of the tenant. Each has an owner, who is the actor of everything done with it.

    >>> _ = engine.users.create("ann")
    >>> made = engine.keys.create("ann", scopes=["read", "decide"], expires_in="90d")
    >>> made["secret"].startswith("sk_" + made["key"]["id"])
    True
    """

    async def create(
        self,
        owner: str,
        *,
        scopes: Iterable[str],
        expires_at: datetime | None = None,
        expires_in: str | None = None,
        max_concurrent_runs: int | None = None,
        max_requests_per_min: int | None = None,
        queues: Iterable[str] | None = None,
        handlers: Iterable[str] | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Make a key for a principal. `secret` of the answer is the whole key: it is shown once and kept nowhere.

        Open the database with it: `sk.open(url, key=...)`. Scopes: read, start, decide, complete, operate, work, admin,
        vouch. The quotas limit its unfinished runs and its requests a minute. A key with `queues` or `handlers`
        works on steps of these alone; the default queue is "".

        >>> _ = engine.users.create("ann")
        >>> engine.keys.create("ann", scopes=["read"])["key"]["scopes"]
        ['read']
        """
        return await keys.create_key(
            self._store,
            self._tenant,
            owner,
            scopes=scopes,
            expires_at=moment("keys: expires_at", expires_at),
            expires_in=None if expires_in is None else duration("keys: expires_in", expires_in),
            quotas=_quotas(
                "keys.create",
                {"max_concurrent_runs": max_concurrent_runs, "max_requests_per_min": max_requests_per_min},
            ),
            limits=keys.read_limits(queues, handlers),
            access=self.access,
            acting=self._acting(by),
        )

    async def rotate(self, key_id: str, *, overlap: str = "1d", by: str | None = None) -> dict[str, Any]:
        """Make a new key with the same owner and scopes; the old one ends after `overlap`.

        The new key ends when the old one would have. One that an administrator makes has the same lifetime anew. A key
        with other scopes than those of the caller, and the key of a session, is refused.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"])["key"]
        >>> engine.keys.rotate(old["id"], overlap="1h")["key"]["replaces"] == old["id"]
        True
        """
        return await keys.rotate_key(
            self._store,
            self._tenant,
            self.access,
            key_id,
            overlap=duration("keys: overlap", overlap),
            acting=self._acting(by),
        )

    async def revoke(self, key_id: str, *, by: str | None = None) -> dict[str, Any]:
        """End a key now, with the keys that replaced it (`successors`) and their sessions; decisions refuse them from
        this moment on.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"])["key"]
        >>> engine.keys.revoke(old["id"])["key"]["state"]
        'revoked'
        """
        return await keys.revoke_key(self._store, self._tenant, self.access, key_id, acting=self._acting(by))

    async def list(self, *, owner: str | None = None) -> dict[str, Any]:
        """Keys without their secrets, newest first; with `owner`, those of one principal.

        >>> engine.keys.list()["keys"]
        []
        """
        return await keys.list_keys(self._store, self._tenant, optional_key("the owner", owner))


class Keys(Blocking[AsyncKeys]):
    create = blocking(AsyncKeys.create)
    rotate = blocking(AsyncKeys.rotate)
    revoke = blocking(AsyncKeys.revoke)
    list = blocking(AsyncKeys.list)


def _membership(what: str, role: str | None, group: str | None) -> tuple[MembershipKind, str]:
    if (role is None) is (group is None):
        raise InvalidInput(f"{what}: name a role or a group, one of the two.")
    if role is not None:
        return MembershipKind.ROLE, role
    assert group is not None
    return MembershipKind.GROUP, group


@guarded("audit.")
class AsyncAudit(AsyncGroup):
    """The audit log: what was asked for with keys and through the service, every refusal, every change of people.

    >>> engine.audit.list()["audit"]
    []
    """

    async def list(
        self,
        *,
        actor: str | None = None,
        target: str | None = None,
        operation: str | None = None,
        outcome: str | None = None,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> dict[str, Any]:
        """Entries that match everything given, newest first; `next` of the answer is the cursor of the next page.

        `outcome` is `"done"`, `"refused"` (not allowed) or `"failed"` (not possible); `target` is a run, a user or
        another thing that the operation names.

        >>> _ = engine.users.create("ann")
        >>> [(one["operation"], one["target"]) for one in engine.audit.list(target="ann")["audit"]]
        [('user_created', 'ann')]
        """
        if outcome is not None:
            arguments.choice("audit.list: outcome", outcome, tuple(one.value for one in Outcome))
        begins, ends = moment("audit.list: since", since), moment("audit.list: until", until)
        wanted = AuditFilter(
            tenant=self._tenant,
            actor=optional_key("audit.list: actor", actor),
            target=optional_key("audit.list: target", target),
            operation=optional_key("audit.list: operation", operation),
            key=optional_key("audit.list: key", key),
            outcome=outcome,
            since=0 if begins is None else begins,
            limit=arguments.whole("audit.list: limit", limit, 1, MOST_LISTED),
        )
        if cursor is not None and not isinstance(cursor, str):
            raise InvalidInput("audit.list: cursor is `next` of a page.")
        return await audit.read_audit(self._store, wanted, cursor, until=ends)


class Audit(Blocking[AsyncAudit]):
    list = blocking(AsyncAudit.list)
