"""Tenants, users, keys and the audit log, as the engine offers them: `engine.tenants`, `.users`, `.keys`, `.audit`.

Each method checks its arguments and calls one operation. `sync_administration` has the same methods for programs
without an event loop. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import structs

from stepkeep.definition import arguments
from stepkeep.engine_arguments import duration, moment, optional_key
from stepkeep.errors import InvalidInput, NotAllowed
from stepkeep.kernel.authority import MembershipKind
from stepkeep.operations import audit, keys, principals, quotas, run_webhooks, validate
from stepkeep.operations.access import Access, Acting, guarded
from stepkeep.store.audit_rows import AuditFilter, Outcome
from stepkeep.store.protocol import Store

MOST_LISTED = 10_000


class _Administration:
    """What these have in common: the database and its caller."""

    def __init__(self, store: Store, access: Access) -> None:
        self._store, self.access = store, access

    @property
    def _tenant(self) -> str:
        return self.access.tenant

    def _acting(self, by: str | None) -> Acting:
        return self.access.acting(optional_key("by", by))


def _quotas(what: str, given: Mapping[str, object]) -> quotas.Quotas:
    known = quotas.Quotas.__struct_fields__
    if unknown := [name for name in given if name not in known]:
        raise InvalidInput(f"{what}: there is no quota {unknown[0]!a}. There are: {', '.join(known)}.")
    return quotas.Quotas(**{name: quotas.read_quota(f"{what}: {name}", one) for name, one in given.items()})


@guarded("tenants.")
class AsyncTenants(_Administration):
    """Tenants that have settings. A tenant needs none: it then allows that programs vouch for persons."""

    async def create(self, name: str, *, vouching: str = "allowed", by: str | None = None) -> dict[str, Any]:
        """Give a tenant settings: whether programs without a key may name persons (`"allowed"` or `"refused"`)."""
        return await principals.create_tenant(
            self._store, self.access, name, vouching=vouching, acting=self._acting(by)
        )

    async def set_vouching(self, name: str, vouching: str, *, by: str | None = None) -> dict[str, Any]:
        """Allow or refuse that programs without a key name persons. `"refused"` needs a key with the scope admin."""
        return await principals.set_vouching(self._store, self.access, name, vouching, acting=self._acting(by))

    async def set_quotas(
        self,
        name: str,
        *,
        max_concurrent_runs: int | None = None,
        max_requests_per_min: int | None = None,
        by: str | None = None,
        **limits: int | None,
    ) -> dict[str, Any]:
        """Limit what all keys of a tenant use together: unfinished runs, requests a minute of each process, and what
        is stored (`max_triggers=…`); docs/access.md has all of them."""
        own = principals.own_tenant(self.access, name)
        if self.access.key is not None:
            raise NotAllowed(
                "the quotas of a tenant are the operator's: set them without a key, with access to the database.",
                "operator_only",
                self.access.actor,
            )
        own_two = {"max_concurrent_runs": max_concurrent_runs, "max_requests_per_min": max_requests_per_min}
        wanted = _quotas("tenants.set_quotas", {**own_two, **limits})
        return await quotas.set_tenant_quotas(self._store, own, wanted, actor=self._acting(by)["actor"])

    async def quotas(self, name: str) -> dict[str, Any]:
        """The limits of a tenant."""
        own = principals.own_tenant(self.access, name)
        return {"tenant": own, "quotas": structs.asdict(await quotas.tenant_quotas(self._store, own))}

    async def set_signing(self, name: str, secrets: Iterable[str], *, by: str | None = None) -> dict[str, Any]:
        """Let starts name these secrets of the workers, and no others, to sign the webhooks of their runs."""
        own = principals.own_tenant(self.access, name)
        return await run_webhooks.release_secrets(self._store, own, secrets, actor=self._acting(by)["actor"])

    async def signing(self, name: str) -> dict[str, Any]:
        """The secrets that starts may name to sign the webhooks of their runs."""
        return await run_webhooks.released_secrets(self._store, principals.own_tenant(self.access, name))

    async def list(self) -> dict[str, Any]:
        """The tenants that have settings; with a key, its own alone."""
        return await principals.list_tenants(self._store, self.access)


@guarded("users.")
class AsyncUsers(_Administration):
    """Users and services of the tenant: their roles, groups and delegations, and the record of every change."""

    async def create(
        self, name: str, *, kind: str = "user", display: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """Register a user or a service (`kind="service"`). A name that looks like a registered one is refused."""
        return await principals.create_user(
            self._store, self._tenant, name, kind=kind, display=display, acting=self._acting(by)
        )

    async def disable(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Refuse a principal in every decision from now on, and revoke its keys."""
        return await principals.disable_user(self._store, self._tenant, name, acting=self._acting(by))

    async def enable(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a disabled principal act again; its revoked keys stay revoked."""
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
        """Give a person a role or a group, within dates if given; with `to_group`, give a group a role."""
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
        """Take a role or a group away; with `from_group`, take a role from a group."""
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
        """Let `to` decide on behalf of `delegator`: until `valid_to`, or `open_ended`."""
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
        """End a delegation before its date."""
        return await principals.undelegate(
            self._store, self._tenant, self.access, delegator, to, acting=self._acting(by)
        )

    async def delegations(self) -> dict[str, Any]:
        """The delegations that have not ended."""
        return await principals.list_delegations(self._store, self._tenant)

    async def show(self, name: str) -> dict[str, Any]:
        """A principal with what it has now, what it was ever given, its delegations and its keys."""
        return await principals.show_user(self._store, self._tenant, name)

    async def history(self, name: str | None = None, *, after: int = 0, limit: int = 1000) -> dict[str, Any]:
        """The record of changes of people, in order, with its hash chain; of one person, group or tenant if named."""
        from stepkeep.evidence.people import history

        return await history(
            self._store,
            self._tenant,
            optional_key("the name", name),
            after=arguments.whole("history: after", after, 0, 2**43),
            limit=arguments.whole("history: limit", limit, 1, MOST_LISTED),
        )

    async def list(self, *, after: str = "", limit: int = 1000) -> dict[str, Any]:
        """A page of principals by name; `after` is the last name of the page before."""
        return await principals.list_users(
            self._store,
            self._tenant,
            after=validate.words("list: after", after, validate.MAX_KEY),
            limit=arguments.whole("list: limit", limit, 1, MOST_LISTED),
        )


@guarded("keys.")
class AsyncKeys(_Administration):
    """API keys of the tenant. Each has an owner, who is the actor of everything done with it."""

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
        """Make a key for a principal. `secret` of the answer is the whole key: it is shown once and kept nowhere."""
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
        this moment on."""
        return await keys.revoke_key(self._store, self._tenant, self.access, key_id, acting=self._acting(by))

    async def list(self, *, owner: str | None = None) -> dict[str, Any]:
        """Keys without their secrets, newest first; with `owner`, those of one principal."""
        return await keys.list_keys(self._store, self._tenant, optional_key("the owner", owner))


def _membership(what: str, role: str | None, group: str | None) -> tuple[MembershipKind, str]:
    if (role is None) is (group is None):
        raise InvalidInput(f"{what}: name a role or a group, one of the two.")
    if role is not None:
        return MembershipKind.ROLE, role
    assert group is not None
    return MembershipKind.GROUP, group


@guarded("audit.")
class AsyncAudit(_Administration):
    """The audit log: what was asked for with keys and through the service, every refusal, every change of people."""

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
        """Entries that match everything given, newest first; `next` of the answer is the cursor of the next page."""
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
