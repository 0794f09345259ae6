"""Settings of tenants, what their steps may reach, and who asked for what: `engine.tenants`, `.network`, `.audit`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from stepkeep.engine.arguments import moment, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.operations.access import ADMINISTER, READ
from stepkeep.operations.answers import says
from stepkeep.operations.delivery import run_webhooks
from stepkeep.operations.delivery.run_webhooks import MOST_SECRETS, TenantSigning
from stepkeep.operations.operation import Actor, Cursor, Limit, Name, Time, group, operation
from stepkeep.operations.operation import operation as row
from stepkeep.operations.people import audit, network, principals, quotas
from stepkeep.operations.people.audit import AuditPage
from stepkeep.operations.people.network import Allowed
from stepkeep.operations.people.principals import TenantList, TenantView
from stepkeep.operations.people.quotas import Quota, Quotas, TenantQuotas
from stepkeep.operations.typed import InPython
from stepkeep.store.rows import AuditFilter

Vouching = Literal["allowed", "refused"]
SecretName = Annotated[str, Meta(max_length=100)]
Secrets = Annotated[Iterable[str], InPython(Annotated[list[SecretName], Meta(max_length=MOST_SECRETS)])]


@group("tenants", "People")
class AsyncTenants(AsyncGroup):
    """Tenants that have settings. A tenant needs none: it then allows that programs vouch for persons.

    >>> engine.tenants.list().tenants
    []
    """

    @operation(
        ADMINISTER,
        "POST /tenants",
        "create_tenant",
        "Give the tenant of the key settings",
        status=201,
        example={"name": "default", "vouching": "allowed"},
        repeatable=False,
    )
    async def create(self, name: Name, *, vouching: Vouching = "allowed", by: Actor = None) -> TenantView:
        """Give a tenant settings: whether programs without a key may name persons (`"allowed"` or `"refused"`).

        >>> print(engine.tenants.create("acme").tenant.vouching)
        allowed
        """
        return await principals.create_tenant(
            self._store, self.access, name, vouching=vouching, caller=self._caller(by)
        )

    @operation(
        ADMINISTER,
        "PATCH /tenants/{name:path}",
        "change_tenant",
        "Change the tenant of the key",
        example={"vouching": "allowed"},
    )
    async def set_vouching(self, name: Name, vouching: Vouching, *, by: Actor = None) -> TenantView:
        """Allow or refuse that programs without a key name persons. `"refused"` needs a key with the scope admin.

        From then on, only callers with a key start, decide, complete and change anything in this tenant.

        >>> _ = engine.tenants.create("acme")
        >>> print(engine.tenants.set_vouching("acme", "allowed").tenant.vouching)
        allowed
        """
        return await principals.set_vouching(self._store, self.access, name, vouching, caller=self._caller(by))

    @operation(ADMINISTER, summary="Limit what the keys of a tenant use together")
    async def set_quotas(
        self,
        /,
        name: Name,
        *,
        max_concurrent_runs: Quota | None = None,
        max_requests_per_min: Quota | None = None,
        by: Actor = None,
        **limits: int | None,
    ) -> TenantQuotas:
        """Limit what all keys of a tenant use together: unfinished runs, requests a minute of each process, and what
        is stored (`max_triggers=…`); docs/access.md has all of them.

        Only an engine without a key may: the limits are the operator's. None takes the limit away, or sets the default.

        >>> engine.tenants.set_quotas("default", max_concurrent_runs=20).quotas.max_concurrent_runs
        20
        """
        own = principals.own_tenant(self.access, name)
        if self.access.key is not None:
            raise NotAllowed(
                "the quotas of a tenant are the operator's: set them without a key, with access to the database.",
                "operator_only",
                self.access.actor,
            )
        known = Quotas.__struct_fields__
        if unknown := [one for one in limits if one not in known]:
            raise InvalidInput(f"tenants.set_quotas: there is no quota {unknown[0]!a}. There are: {', '.join(known)}.")
        wanted = Quotas(
            max_concurrent_runs=max_concurrent_runs,
            max_requests_per_min=max_requests_per_min,
            **{one: quotas.read_quota(f"tenants.set_quotas: {one}", value) for one, value in limits.items()},
        )
        return await quotas.set_tenant_quotas(self._store, wanted, caller=self._caller(by)._replace(tenant=own))

    @operation(READ, "GET /tenants/{name:path}/quotas", "get_tenant_quotas", "The quotas of the tenant of the key")
    async def quotas(self, name: Name) -> TenantQuotas:
        """The limits of a tenant. The operator sets them, at the database.

        >>> engine.tenants.quotas("default").quotas.max_concurrent_runs is None
        True
        """
        own = principals.own_tenant(self.access, name)
        return TenantQuotas(tenant=own, quotas=await quotas.tenant_quotas(self._store, own))

    @operation(
        ADMINISTER,
        "PUT /tenants/{name:path}/signing",
        "release_signing_secrets",
        "Release secrets for signing",
        example={"secrets": ["SHOP_HOOK"]},
    )
    async def set_signing(self, name: Name, secrets: Secrets, *, by: Actor = None) -> TenantSigning:
        """Let starts name these secrets of the workers, and no others, to sign the webhooks of their runs.

        >>> engine.tenants.set_signing("default", ["SHOP_HOOK"]).secrets
        ['SHOP_HOOK']
        """
        own = principals.own_tenant(self.access, name)
        return await run_webhooks.release_secrets(self._store, secrets, caller=self._caller(by)._replace(tenant=own))

    @operation(READ, "GET /tenants/{name:path}/signing", "get_signing_secrets", "The secrets that starts may name")
    async def signing(self, name: Name) -> TenantSigning:
        """The secrets that starts may name to sign the webhooks of their runs.

        >>> engine.tenants.signing("default").secrets
        []
        """
        return await run_webhooks.released_secrets(self._store, principals.own_tenant(self.access, name))

    @operation(READ, "GET /tenants", "list_tenants", "The tenant of the key")
    async def list(self) -> TenantList:
        """The tenants that have settings; with a key, its own alone.

        >>> engine.tenants.list().tenants
        []
        """
        return await principals.list_tenants(self._store, self.access)


class Tenants(Blocking[AsyncTenants]):
    create, set_vouching = blocking(AsyncTenants.create), blocking(AsyncTenants.set_vouching)
    set_quotas, quotas = blocking(AsyncTenants.set_quotas), blocking(AsyncTenants.quotas)
    set_signing, signing = blocking(AsyncTenants.set_signing), blocking(AsyncTenants.signing)
    list = blocking(AsyncTenants.list)


@group("network", "Network")
class AsyncNetwork(AsyncGroup):
    """The allow list of the tenant: internal hosts that its HTTP steps may reach, on every worker.

    >>> engine.network.list().allow
    []
    """

    @operation(ADMINISTER)
    async def allow(self, host: str, *, by: Actor = None) -> Allowed:
        """Allow a host, an address or a network, each with a port or without (`"search.internal:9200"`).

        Only an engine without a key may: the network belongs to the operator, and a key to a member of the tenant.

        >>> engine.network.allow("10.20.0.0/16:443").allow
        ['10.20.0.0/16:443']
        """
        return await network.allow_host(self._store, host, caller=self._caller(by))

    @operation(ADMINISTER)
    async def remove(self, host: str, *, by: Actor = None) -> Allowed:
        """Remove an entry of the allow list. Steps that run are not interrupted.

        >>> _ = engine.network.allow("search.internal")
        >>> engine.network.remove("search.internal").allow
        []
        """
        return await network.disallow_host(self._store, host, caller=self._caller(by))

    @operation(
        READ, "GET /network", "list_network", "What HTTP steps may reach on the internal network", agents="reads"
    )
    async def list(self, *, history: Annotated[bool, says("With every change, newest first.")] = False) -> Allowed:
        """The entries; with `history`, also every change with its actor, newest first. The operator adds and removes
        them, who opens the database without a key (`stepkeep network`).

        >>> _ = engine.network.allow("search.internal", by="ann")
        >>> [change.by for change in engine.network.list(history=True).history]
        ['ann']
        """
        return await network.list_allowed(self._store, self._tenant, history=history)


class Network(Blocking[AsyncNetwork]):
    allow, remove, list = blocking(AsyncNetwork.allow), blocking(AsyncNetwork.remove), blocking(AsyncNetwork.list)


@group("audit", "Audit log")
class AsyncAudit(AsyncGroup):
    """The audit log: what was asked for with keys and through the service, every refusal, every change of people.

    >>> engine.audit.list().audit
    []
    """

    @row(ADMINISTER, "GET /audit", "list_audit", "Search the audit log", pages="audit")
    async def list(
        self,
        *,
        actor: Annotated[Name | None, says("Only what this person or program asked for.")] = None,
        target: Annotated[Name | None, says("Only about this run, user or other thing.")] = None,
        operation: Annotated[Name | None, says("Only this operation: `approve`.")] = None,
        outcome: Annotated[
            Literal["done", "refused", "failed"] | None, says("Done, not allowed, or not possible.")
        ] = None,
        key: Annotated[Name | None, says("Only with the key that has this id.")] = None,
        since: Annotated[Time | None, says("At or after this time.")] = None,
        until: Annotated[Time | None, says("Before this time.")] = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> AuditPage:
        """Entries that match everything given, newest first; `next` of the answer is the cursor of the next page.

        `outcome` is `"done"`, `"refused"` (not allowed) or `"failed"` (not possible); `target` is a run, a user or
        another thing that the operation names.

        >>> _ = engine.users.create("ann")
        >>> [(one.operation, one.target) for one in engine.audit.list(target="ann").audit]
        [('user_created', 'ann')]
        """
        wanted = AuditFilter(
            tenant=self._tenant,
            actor=optional_key("actor", actor),
            target=optional_key("target", target),
            operation=optional_key("operation", operation),
            key=optional_key("key", key),
            outcome=outcome,
            since=moment("since", since) or 0,
            limit=limit,
        )
        return await audit.read_audit(self._store, wanted, cursor, until=moment("until", until))


class Audit(Blocking[AsyncAudit]):
    list = blocking(AsyncAudit.list)
