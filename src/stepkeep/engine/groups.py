"""The groups of methods of an engine and of a client: `engine.slots`, `engine.triggers` and the others.

One row per group and form. With a `remote`, the operations of a group are sent to a service. It has no behaviour of its
own. `AsyncEngine`, `Engine` and `AsyncClient` inherit it.
"""

from __future__ import annotations

from stepkeep.engine.audit import AsyncAudit, Audit
from stepkeep.engine.base import AsyncBase, part
from stepkeep.engine.blocking import blocking_group
from stepkeep.engine.continuations import AsyncContinuations, Continuations
from stepkeep.engine.hooks import AsyncHooks, Hooks
from stepkeep.engine.interventions import AsyncInterventions, Interventions
from stepkeep.engine.jobs import AsyncJobs, Jobs
from stepkeep.engine.keys import AsyncKeys, Keys
from stepkeep.engine.mailbox import AsyncMailbox, Mailbox
from stepkeep.engine.messages import AsyncMessages
from stepkeep.engine.migrations import AsyncMigrations, Migrations
from stepkeep.engine.network import AsyncNetwork, Network
from stepkeep.engine.outbox import AsyncOutbox, Outbox
from stepkeep.engine.pauses import AsyncPauses, Pauses
from stepkeep.engine.policies import AsyncPolicies
from stepkeep.engine.quarantine import AsyncQuarantine
from stepkeep.engine.resources import AsyncResources, Resources
from stepkeep.engine.run_actions import AsyncRunActions
from stepkeep.engine.sinks import AsyncSinks, Sinks
from stepkeep.engine.slots import AsyncSlots, Slots
from stepkeep.engine.starting import AsyncStarting
from stepkeep.engine.tenants import AsyncTenants, Tenants
from stepkeep.engine.triggers import AsyncTriggers, Triggers
from stepkeep.engine.users import AsyncUsers, Users
from stepkeep.engine.versions import AsyncVersions, Versions
from stepkeep.operations.access import guarded


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
    pauses = part(AsyncPauses, "Pauses of queues, of workflows and of the whole tenant.")
    hooks = part(AsyncHooks, "Inbound webhooks that become messages or starts of runs.")
    continuations = part(AsyncContinuations, "New runs that go on with finished ones: retry, rerun from a step, fork.")
    migrations = part(AsyncMigrations, "Live runs that go on under another version of their workflow.")
    jobs = part(AsyncJobs, "Actions on many runs at once, and backfills.")
    mailbox = part(AsyncMailbox, "Messages that are kept for runs that do not exist yet.")
    sinks = part(AsyncSinks, "Where events go.")
    outbox = part(AsyncOutbox, "Events that are not delivered yet.")
    triggers = part(AsyncTriggers, "What starts runs by itself: schedules, events, and the ends of other runs.")
    versions = part(AsyncVersions, "Shows published versions of workflows, withdraws them, and restores them.")


@guarded()
class AsyncOperations(AsyncStarting, AsyncMessages, AsyncRunActions, AsyncPolicies, AsyncQuarantine, AsyncGroups):
    """Everything one can do with a database or a service."""


class Groups:
    """The groups, for programs without an event loop."""

    tenants = blocking_group(Tenants, AsyncGroups.tenants)
    users = blocking_group(Users, AsyncGroups.users)
    keys = blocking_group(Keys, AsyncGroups.keys)
    audit = blocking_group(Audit, AsyncGroups.audit)
    network = blocking_group(Network, AsyncGroups.network)
    interventions = blocking_group(Interventions, AsyncGroups.interventions)
    slots = blocking_group(Slots, AsyncGroups.slots)
    resources = blocking_group(Resources, AsyncGroups.resources)
    pauses = blocking_group(Pauses, AsyncGroups.pauses)
    hooks = blocking_group(Hooks, AsyncGroups.hooks)
    continuations = blocking_group(Continuations, AsyncGroups.continuations)
    migrations = blocking_group(Migrations, AsyncGroups.migrations)
    jobs = blocking_group(Jobs, AsyncGroups.jobs)
    mailbox = blocking_group(Mailbox, AsyncGroups.mailbox)
    sinks = blocking_group(Sinks, AsyncGroups.sinks)
    outbox = blocking_group(Outbox, AsyncGroups.outbox)
    triggers = blocking_group(Triggers, AsyncGroups.triggers)
    versions = blocking_group(Versions, AsyncGroups.versions)
