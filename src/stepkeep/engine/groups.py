"""All operations of an engine and of a client: its own parts, and groups of methods such as `engine.slots`.

One row per group and form. With a `remote`, the operations of a group are sent to a service. `AsyncEngine`, `Engine`
and `AsyncClient` inherit them. `ActingEngine` has them in the name of a caller that the service has authenticated,
without a copy of the engine: it has the caller, and asks the engine for everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepkeep.engine.base import AsyncBase, part
from stepkeep.engine.blocking import blocking_group
from stepkeep.engine.continuations import AsyncContinuations, AsyncMigrations, Continuations, Migrations
from stepkeep.engine.conversations import AsyncConversations, Conversations
from stepkeep.engine.definitions import AsyncVersions, Versions
from stepkeep.engine.hooks import AsyncHooks, Hooks
from stepkeep.engine.interventions import AsyncInterventions, Interventions
from stepkeep.engine.jobs import AsyncJobs, Jobs
from stepkeep.engine.limits import (
    AsyncLimits,
    AsyncPauses,
    AsyncResources,
    AsyncSlots,
    Limits,
    Pauses,
    Resources,
    Slots,
)
from stepkeep.engine.messages import AsyncMailbox, AsyncMessages, Mailbox
from stepkeep.engine.outbox import AsyncOutbox, Outbox
from stepkeep.engine.policies import AsyncPolicies
from stepkeep.engine.run_actions import AsyncRunActions
from stepkeep.engine.sinks import AsyncSinks, Sinks
from stepkeep.engine.starting import AsyncStarting
from stepkeep.engine.streams import AsyncStreams, AsyncTailing, Streams, Tailing
from stepkeep.engine.tenants import AsyncAudit, AsyncNetwork, AsyncTenants, Audit, Network, Tenants
from stepkeep.engine.triggers import AsyncTriggers, Triggers
from stepkeep.engine.users import AsyncKeys, AsyncUsers, Keys, Users
from stepkeep.operations.access import Access, guarded
from stepkeep.operations.people.quotas import QuotaKeeper
from stepkeep.operations.runs.spans import find_spans
from stepkeep.store.protocol import Store


class AsyncGroups(AsyncBase):
    """The groups, for programs that have an event loop."""

    tenants = part(AsyncTenants, "Tenants and their settings.")
    users = part(AsyncUsers, "Users and services: their roles, groups and delegations.")
    keys = part(AsyncKeys, "API keys.")
    audit = part(AsyncAudit, "What was asked for, by whom, and what came of it.")
    network = part(AsyncNetwork, "What HTTP steps of the tenant may reach on the internal network.")
    interventions = part(
        AsyncInterventions, "What people do to a run besides deciding: request changes, escalate, freeze, annotate."
    )
    slots = part(AsyncSlots, "Limits on running runs, of the tenant and of workflows.")
    resources = part(AsyncResources, "What steps hold while they run, and the sizes of pools.")
    limits = part(AsyncLimits, "Limits on steps by key: how many run at once, and how fast they begin.")
    pauses = part(AsyncPauses, "Pauses of queues, of workflows and of the whole tenant.")
    streams = part(AsyncStreams, "Durable streams of runs: what they have, and their chunks.")
    hooks = part(AsyncHooks, "Inbound webhooks that become messages or starts of runs.")
    continuations = part(AsyncContinuations, "New runs that go on with finished ones: retry, rerun from a step, fork.")
    migrations = part(AsyncMigrations, "Live runs that go on under another version of their workflow.")
    jobs = part(AsyncJobs, "Actions on many runs at once, and backfills.")
    conversations = part(AsyncConversations, "What agents keep beyond a run: turns of sessions, states of graphs.")
    mailbox = part(AsyncMailbox, "Messages that are kept for runs that do not exist yet.")
    sinks = part(AsyncSinks, "Where events go.")
    outbox = part(AsyncOutbox, "Events that are not delivered yet.")
    triggers = part(AsyncTriggers, "What starts runs by itself: schedules, events, and the ends of other runs.")
    versions = part(AsyncVersions, "Shows published versions of workflows, withdraws them, and restores them.")


@guarded()
class AsyncOperations(AsyncStarting, AsyncMessages, AsyncRunActions, AsyncPolicies, AsyncTailing, AsyncGroups):
    """Everything one can do with a database or a service."""


class Groups(Tailing):
    """The groups, for programs without an event loop."""

    tenants, users = blocking_group(Tenants, AsyncGroups.tenants), blocking_group(Users, AsyncGroups.users)
    keys, audit = blocking_group(Keys, AsyncGroups.keys), blocking_group(Audit, AsyncGroups.audit)
    network = blocking_group(Network, AsyncGroups.network)
    interventions = blocking_group(Interventions, AsyncGroups.interventions)
    slots, resources = blocking_group(Slots, AsyncGroups.slots), blocking_group(Resources, AsyncGroups.resources)
    limits = blocking_group(Limits, AsyncGroups.limits)
    pauses, hooks = blocking_group(Pauses, AsyncGroups.pauses), blocking_group(Hooks, AsyncGroups.hooks)
    continuations = blocking_group(Continuations, AsyncGroups.continuations)
    migrations, jobs = blocking_group(Migrations, AsyncGroups.migrations), blocking_group(Jobs, AsyncGroups.jobs)
    mailbox, sinks = blocking_group(Mailbox, AsyncGroups.mailbox), blocking_group(Sinks, AsyncGroups.sinks)
    streams = blocking_group(Streams, AsyncGroups.streams)
    outbox, triggers = blocking_group(Outbox, AsyncGroups.outbox), blocking_group(Triggers, AsyncGroups.triggers)
    versions = blocking_group(Versions, AsyncGroups.versions)
    conversations = blocking_group(Conversations, AsyncGroups.conversations)


class ActingEngine(AsyncOperations):
    """The operations of an engine for one caller. `admitted` names the operation that the caller was admitted to."""

    def __init__(
        self, engine: AsyncBase, access: Access, *, admitted: str | None = None, key_scope: str | None = None
    ) -> None:
        self._engine, self.access, self.admitted, self._key_scope = engine, access, admitted, key_scope
        self.tenant, self.actor = access.tenant, access.actor

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._engine, name)

    @property
    def quotas(self) -> QuotaKeeper:
        """The quotas that this process knows."""
        return self._starter.quotas


class TenantEngine(ActingEngine):
    """The engine of one tenant on a store of its own: its batches, plans and waiters are not those of others."""

    def __init__(self, engine: AsyncBase, store: Store, tenant: str) -> None:
        super().__init__(engine, Access(store, tenant, engine.actor))
        self._work_on(store)
        self.transactor.payloads.use_settings_of(engine.transactor.payloads)
        self.transactor.measures = engine.transactor.measures
        self.transactor.spans = find_spans(store, self.transactor.plans)
        self.quotas.default = engine._starter.quotas.default
