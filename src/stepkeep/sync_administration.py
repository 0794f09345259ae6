"""Tenants, users, keys and the audit log for programs without an event loop: `administration`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the objects.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from stepkeep.administration import AsyncAudit, AsyncKeys, AsyncTenants, AsyncUsers

T = TypeVar("T")


class Call(Protocol):
    """Run a coroutine on the engine's loop and return its result."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class Tenants:
    """Tenants that have settings. A tenant needs none: it then allows that programs vouch for persons.

    >>> engine.tenants.list()["tenants"]
    []
    """

    def __init__(self, core: AsyncTenants, call: Call) -> None:
        self._core, self._call = core, call

    def create(self, name: str, *, vouching: str = "allowed", by: str | None = None) -> dict[str, Any]:
        """Give a tenant settings: whether programs without a key may name persons (`"allowed"` or `"refused"`).

        >>> engine.tenants.create("acme")["tenant"]["vouching"]
        'allowed'
        """
        return self._call(self._core.create(name, vouching=vouching, by=by))

    def set_vouching(self, name: str, vouching: str, *, by: str | None = None) -> dict[str, Any]:
        """Allow or refuse that programs without a key name persons. `"refused"` needs a key with the scope admin.

        From then on, only callers with a key start, decide, complete and change anything in this tenant.

        >>> _ = engine.tenants.create("acme")
        >>> engine.tenants.set_vouching("acme", "allowed")["tenant"]["vouching"]
        'allowed'
        """
        return self._call(self._core.set_vouching(name, vouching, by=by))

    def set_quotas(
        self,
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
        return self._call(
            self._core.set_quotas(
                name,
                max_concurrent_runs=max_concurrent_runs,
                max_requests_per_min=max_requests_per_min,
                by=by,
                **limits,
            )
        )

    def quotas(self, name: str) -> dict[str, Any]:
        """The limits of a tenant.

        >>> engine.tenants.quotas("default")["quotas"]["max_concurrent_runs"] is None
        True
        """
        return self._call(self._core.quotas(name))

    def set_signing(self, name: str, secrets: Iterable[str], *, by: str | None = None) -> dict[str, Any]:
        """Let starts name these secrets of the workers, and no others, to sign the webhooks of their runs.

        >>> engine.tenants.set_signing("default", ["SHOP_HOOK"])["secrets"]
        ['SHOP_HOOK']
        """
        return self._call(self._core.set_signing(name, secrets, by=by))

    def signing(self, name: str) -> dict[str, Any]:
        """The secrets that starts may name to sign the webhooks of their runs.

        >>> engine.tenants.signing("default")["secrets"]
        []
        """
        return self._call(self._core.signing(name))

    def list(self) -> dict[str, Any]:
        """The tenants that have settings; with a key, its own alone.

        >>> engine.tenants.list()["tenants"]
        []
        """
        return self._call(self._core.list())


class Users:
    """Users and services of the tenant: their roles, groups and delegations, and the record of every change.

    >>> _ = engine.users.create("ann", display="Ann Lee")
    >>> _ = engine.users.grant("ann", role="finance")
    >>> engine.users.show("ann")["user"]["roles"]
    ['finance']
    """

    def __init__(self, core: AsyncUsers, call: Call) -> None:
        self._core, self._call = core, call

    def create(self, name: str, *, kind: str = "user", display: str = "", by: str | None = None) -> dict[str, Any]:
        """Register a user or a service (`kind="service"`). A name that looks like a registered one is refused.

        Names are case-sensitive, but no two differ by case or look-alike letters alone: one person could pass for two.

        >>> engine.users.create("portal", kind="service")["user"]["kind"]
        'service'
        """
        return self._call(self._core.create(name, kind=kind, display=display, by=by))

    def disable(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Refuse a principal in every decision from now on, and revoke its keys.

        >>> _ = engine.users.create("ann")
        >>> engine.users.disable("ann")["revoked_keys"]
        []
        """
        return self._call(self._core.disable(name, by=by))

    def enable(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a disabled principal act again; its revoked keys stay revoked.

        >>> _ = engine.users.create("ann"), engine.users.disable("ann")
        >>> print(engine.users.enable("ann")["user"]["disabled_at"])
        None
        """
        return self._call(self._core.enable(name, by=by))

    def grant(
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
        return self._call(
            self._core.grant(
                name, role=role, group=group, to_group=to_group, valid_from=valid_from, valid_to=valid_to, by=by
            )
        )

    def revoke(
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
        return self._call(self._core.revoke(name, role=role, group=group, from_group=from_group, by=by))

    def delegate(
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
        return self._call(
            self._core.delegate(
                delegator,
                to,
                valid_from=valid_from,
                valid_to=valid_to,
                open_ended=open_ended,
                reason=reason,
                by=by,
            )
        )

    def undelegate(self, delegator: str, to: str, *, by: str | None = None) -> dict[str, Any]:
        """End a delegation before its date.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> _ = engine.users.delegate("ann", "bea", open_ended=True)
        >>> engine.users.undelegate("ann", "bea")["delegation"]["revoked_at"] is None
        False
        """
        return self._call(self._core.undelegate(delegator, to, by=by))

    def delegations(self) -> dict[str, Any]:
        """The delegations that have not ended.

        >>> engine.users.delegations()["delegations"]
        []
        """
        return self._call(self._core.delegations())

    def show(self, name: str) -> dict[str, Any]:
        """A principal with what it has now, what it was ever given, its delegations and its keys.

        >>> _ = engine.users.create("ann")
        >>> engine.users.show("ann")["user"]["groups"]
        []
        """
        return self._call(self._core.show(name))

    def history(self, name: str | None = None, *, after: int = 0, limit: int = 1000) -> dict[str, Any]:
        """The record of changes of people, in order, with its hash chain; of one person, group or tenant if named.

        >>> _ = engine.users.create("ann"), engine.users.grant("ann", role="finance")
        >>> [entry["event"] for entry in engine.users.history("ann")["history"]]
        ['user_created', 'granted']
        >>> engine.users.history()["chain"]["is_intact"]
        True
        """
        return self._call(self._core.history(name, after=after, limit=limit))

    def list(self, *, after: str = "", limit: int = 1000) -> dict[str, Any]:
        """A page of principals by name; `after` is the last name of the page before.

        >>> _ = engine.users.create("ann"), engine.users.create("bea")
        >>> [user["name"] for user in engine.users.list()["users"]]
        ['ann', 'bea']
        """
        return self._call(self._core.list(after=after, limit=limit))


class Keys:
    """API keys of the tenant. Each has an owner, who is the actor of everything done with it.

    >>> _ = engine.users.create("ann")
    >>> made = engine.keys.create("ann", scopes=["read", "decide"], expires_in="90d")
    >>> made["secret"].startswith("sk_" + made["key"]["id"])
    True
    """

    def __init__(self, core: AsyncKeys, call: Call) -> None:
        self._core, self._call = core, call

    def create(
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
        return self._call(
            self._core.create(
                owner,
                scopes=scopes,
                expires_at=expires_at,
                expires_in=expires_in,
                max_concurrent_runs=max_concurrent_runs,
                max_requests_per_min=max_requests_per_min,
                queues=queues,
                handlers=handlers,
                by=by,
            )
        )

    def rotate(self, key_id: str, *, overlap: str = "1d", by: str | None = None) -> dict[str, Any]:
        """Make a new key with the same owner and scopes; the old one ends after `overlap`.

        The new key ends when the old one would have. One that an administrator makes has the same lifetime anew. A key
        with other scopes than those of the caller, and the key of a session, is refused.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"])["key"]
        >>> engine.keys.rotate(old["id"], overlap="1h")["key"]["replaces"] == old["id"]
        True
        """
        return self._call(self._core.rotate(key_id, overlap=overlap, by=by))

    def revoke(self, key_id: str, *, by: str | None = None) -> dict[str, Any]:
        """End a key now, with the keys that replaced it (`successors`) and their sessions; decisions refuse them from
        this moment on.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"])["key"]
        >>> engine.keys.revoke(old["id"])["key"]["state"]
        'revoked'
        """
        return self._call(self._core.revoke(key_id, by=by))

    def list(self, *, owner: str | None = None) -> dict[str, Any]:
        """Keys without their secrets, newest first; with `owner`, those of one principal.

        >>> engine.keys.list()["keys"]
        []
        """
        return self._call(self._core.list(owner=owner))


class Audit:
    """The audit log: what was asked for with keys and through the service, every refusal, every change of people.

    >>> engine.audit.list()["audit"]
    []
    """

    def __init__(self, core: AsyncAudit, call: Call) -> None:
        self._core, self._call = core, call

    def list(
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
        return self._call(
            self._core.list(
                actor=actor,
                target=target,
                operation=operation,
                outcome=outcome,
                key=key,
                since=since,
                until=until,
                cursor=cursor,
                limit=limit,
            )
        )
