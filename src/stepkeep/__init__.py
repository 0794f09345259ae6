"""Stepkeep: a durable workflow engine. A plan of steps kept as rows, workers under leases, a record of every change.

    import stepkeep as sk

    @sk.step(retry=sk.Retry(max_attempts=5), timeout="30s")
    async def create_account(ctx: sk.Context, email: str) -> dict: ...

    onboarding = sk.Workflow("customer-onboarding", version=3)
    onboarding.step("create-account", create_account)

    with sk.open("sqlite:///app.db") as engine:
        print(engine.run(onboarding, input={"email": "a@b.c"}))

What is named here is what users may rely on. Names are loaded when they are first used, so that importing the package
costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepkeep.administration import AsyncAudit, AsyncKeys, AsyncTenants, AsyncUsers
    from stepkeep.continuations import AsyncContinuations
    from stepkeep.definition.added import output_of
    from stepkeep.definition.expression_objects import Expr
    from stepkeep.definition.flows import flow
    from stepkeep.definition.handlers import Retry, agent, lifespan, step
    from stepkeep.definition.listeners import hook, on
    from stepkeep.definition.python import Workflow
    from stepkeep.definition.registry import Registry
    from stepkeep.definition.secrets import secret
    from stepkeep.dialects.registry import load_file
    from stepkeep.engine import AsyncEngine
    from stepkeep.errors import (
        Conflict,
        DefinitionError,
        ExpressionError,
        InvalidInput,
        KeyReused,
        NotAllowed,
        NotFound,
        PayloadSealed,
        QuotaExceeded,
        Refused,
        RunNotSucceeded,
        StepkeepError,
        StoreError,
        StoreUnavailable,
    )
    from stepkeep.hosted import AsyncHostedWorker, HostedWorker
    from stepkeep.kernel.states import Category, RunState, StepState
    from stepkeep.messages import AsyncMailbox
    from stepkeep.migrations import AsyncMigrations
    from stepkeep.opening import open as open  # noqa: A004 - sk.open reads best
    from stepkeep.operations.codec import PayloadCodec
    from stepkeep.operations.payloads import DirectoryStore, PayloadStore
    from stepkeep.operations.start import Started
    from stepkeep.outside import AsyncHooks, AsyncNetwork
    from stepkeep.result import Result
    from stepkeep.sending import AsyncOutbox, AsyncSinks, Taken
    from stepkeep.sinks.event import OutgoingEvent
    from stepkeep.sinks.interface import Sink, SinkFailed
    from stepkeep.sync_administration import Audit, Keys, Tenants, Users
    from stepkeep.sync_continuations import Continuations
    from stepkeep.sync_engine import Engine
    from stepkeep.sync_messages import Mailbox
    from stepkeep.sync_migrations import Migrations
    from stepkeep.sync_outside import Hooks, Network
    from stepkeep.sync_sending import Outbox, Sinks
    from stepkeep.sync_triggers import Triggers
    from stepkeep.sync_versions import Versions
    from stepkeep.triggers import AsyncTriggers
    from stepkeep.versions import AsyncVersions
    from stepkeep.worker.answers import StepError, fail, retry_in, then, wait_for
    from stepkeep.worker.context import Context
    from stepkeep.worker.executors.command import CommandPolicy
    from stepkeep.worker.executors.http import HttpPolicy
    from stepkeep.worker.flows.calls import CallFailed, NonDeterministic
    from stepkeep.worker.flows.context import FlowContext
    from stepkeep.worker.secrets import Secrets

__version__ = "0.1.0"

_HOMES = {
    "AsyncAudit": "stepkeep.administration",
    "AsyncContinuations": "stepkeep.continuations",
    "AsyncMigrations": "stepkeep.migrations",
    "Migrations": "stepkeep.sync_migrations",
    "AsyncEngine": "stepkeep.engine",
    "AsyncHooks": "stepkeep.outside",
    "AsyncHostedWorker": "stepkeep.hosted",
    "AsyncKeys": "stepkeep.administration",
    "AsyncMailbox": "stepkeep.messages",
    "AsyncNetwork": "stepkeep.outside",
    "AsyncOutbox": "stepkeep.sending",
    "AsyncSinks": "stepkeep.sending",
    "AsyncTriggers": "stepkeep.triggers",
    "AsyncVersions": "stepkeep.versions",
    "AsyncTenants": "stepkeep.administration",
    "AsyncUsers": "stepkeep.administration",
    "Audit": "stepkeep.sync_administration",
    "CallFailed": "stepkeep.worker.flows.calls",
    "Category": "stepkeep.kernel.states",
    "CommandPolicy": "stepkeep.worker.executors.command",
    "Conflict": "stepkeep.errors",
    "Context": "stepkeep.worker.context",
    "Continuations": "stepkeep.sync_continuations",
    "DefinitionError": "stepkeep.errors",
    "DirectoryStore": "stepkeep.operations.payloads",
    "Engine": "stepkeep.sync_engine",
    "Expr": "stepkeep.definition.expression_objects",
    "ExpressionError": "stepkeep.errors",
    "FlowContext": "stepkeep.worker.flows.context",
    "Hooks": "stepkeep.sync_outside",
    "HostedWorker": "stepkeep.hosted",
    "HttpPolicy": "stepkeep.worker.executors.http",
    "InvalidInput": "stepkeep.errors",
    "KeyReused": "stepkeep.errors",
    "QuotaExceeded": "stepkeep.errors",
    "Keys": "stepkeep.sync_administration",
    "Mailbox": "stepkeep.sync_messages",
    "Network": "stepkeep.sync_outside",
    "Triggers": "stepkeep.sync_triggers",
    "Versions": "stepkeep.sync_versions",
    "NonDeterministic": "stepkeep.worker.flows.calls",
    "NotAllowed": "stepkeep.errors",
    "NotFound": "stepkeep.errors",
    "Outbox": "stepkeep.sync_sending",
    "OutgoingEvent": "stepkeep.sinks.event",
    "PayloadCodec": "stepkeep.operations.codec",
    "PayloadSealed": "stepkeep.errors",
    "PayloadStore": "stepkeep.operations.payloads",
    "Refused": "stepkeep.errors",
    "Registry": "stepkeep.definition.registry",
    "Result": "stepkeep.result",
    "Retry": "stepkeep.definition.handlers",
    "RunNotSucceeded": "stepkeep.errors",
    "RunState": "stepkeep.kernel.states",
    "Secrets": "stepkeep.worker.secrets",
    "Sink": "stepkeep.sinks.interface",
    "SinkFailed": "stepkeep.sinks.interface",
    "Sinks": "stepkeep.sync_sending",
    "Started": "stepkeep.operations.start",
    "StepError": "stepkeep.worker.answers",
    "StepState": "stepkeep.kernel.states",
    "StepkeepError": "stepkeep.errors",
    "StoreError": "stepkeep.errors",
    "StoreUnavailable": "stepkeep.errors",
    "Taken": "stepkeep.sending",
    "Tenants": "stepkeep.sync_administration",
    "Users": "stepkeep.sync_administration",
    "Workflow": "stepkeep.definition.python",
    "agent": "stepkeep.definition.handlers",
    "fail": "stepkeep.worker.answers",
    "flow": "stepkeep.definition.flows",
    "lifespan": "stepkeep.definition.handlers",
    "load_file": "stepkeep.dialects.registry",
    "hook": "stepkeep.definition.listeners",
    "on": "stepkeep.definition.listeners",
    "open": "stepkeep.opening",
    "output_of": "stepkeep.definition.added",
    "retry_in": "stepkeep.worker.answers",
    "secret": "stepkeep.definition.secrets",
    "step": "stepkeep.definition.handlers",
    "then": "stepkeep.worker.answers",
    "wait_for": "stepkeep.worker.answers",
}

# `open` is left out: `from stepkeep import *` must not replace Python's own.
__all__ = [
    "AsyncAudit",
    "AsyncContinuations",
    "AsyncEngine",
    "AsyncHooks",
    "AsyncHostedWorker",
    "AsyncKeys",
    "AsyncMailbox",
    "AsyncMigrations",
    "AsyncNetwork",
    "AsyncOutbox",
    "AsyncSinks",
    "AsyncTenants",
    "AsyncTriggers",
    "AsyncUsers",
    "AsyncVersions",
    "Audit",
    "CallFailed",
    "Category",
    "CommandPolicy",
    "Conflict",
    "Context",
    "Continuations",
    "DefinitionError",
    "DirectoryStore",
    "Engine",
    "Expr",
    "ExpressionError",
    "FlowContext",
    "Hooks",
    "HostedWorker",
    "HttpPolicy",
    "InvalidInput",
    "KeyReused",
    "Keys",
    "Mailbox",
    "Migrations",
    "Network",
    "NonDeterministic",
    "NotAllowed",
    "NotFound",
    "Outbox",
    "OutgoingEvent",
    "PayloadCodec",
    "PayloadSealed",
    "PayloadStore",
    "QuotaExceeded",
    "Refused",
    "Registry",
    "Result",
    "Retry",
    "RunNotSucceeded",
    "RunState",
    "Secrets",
    "Sink",
    "SinkFailed",
    "Sinks",
    "Started",
    "StepError",
    "StepState",
    "StepkeepError",
    "StoreError",
    "StoreUnavailable",
    "Taken",
    "Tenants",
    "Triggers",
    "Users",
    "Versions",
    "Workflow",
    "agent",
    "fail",
    "flow",
    "hook",
    "lifespan",
    "load_file",
    "on",
    "output_of",
    "retry_in",
    "secret",
    "step",
    "then",
    "wait_for",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'stepkeep' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every public name, whether it is loaded already or not."""
    return sorted({*globals(), *_HOMES})
