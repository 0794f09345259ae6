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
    from stepkeep.client.opening import open as open  # noqa: A004 - sk.open reads best
    from stepkeep.definition.added import output_of
    from stepkeep.definition.expression_objects import Expr
    from stepkeep.definition.flows import flow
    from stepkeep.definition.handlers import Retry, agent, lifespan, step
    from stepkeep.definition.listeners import hook, on
    from stepkeep.definition.python import Workflow
    from stepkeep.definition.registry import Registry
    from stepkeep.definition.secrets import secret
    from stepkeep.dialects.registry import load_file
    from stepkeep.engine import AsyncEngine, Engine
    from stepkeep.engine.administration import (
        AsyncAudit,
        AsyncKeys,
        AsyncTenants,
        AsyncUsers,
        Audit,
        Keys,
        Tenants,
        Users,
    )
    from stepkeep.engine.continuations import AsyncContinuations, Continuations
    from stepkeep.engine.hosted import AsyncHostedWorker, HostedWorker
    from stepkeep.engine.messages import AsyncMailbox, Mailbox
    from stepkeep.engine.migrations import AsyncMigrations, Migrations
    from stepkeep.engine.outside import AsyncHooks, AsyncNetwork, Hooks, Network
    from stepkeep.engine.result import Result
    from stepkeep.engine.sending import AsyncOutbox, AsyncSinks, Outbox, Sinks, Taken
    from stepkeep.engine.triggers import AsyncTriggers, Triggers
    from stepkeep.engine.versions import AsyncVersions, Versions
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
    from stepkeep.kernel.states import Category, RunState, StepState
    from stepkeep.operations.codec import PayloadCodec
    from stepkeep.operations.payloads import DirectoryStore, PayloadStore
    from stepkeep.operations.start import Started
    from stepkeep.sinks.event import OutgoingEvent
    from stepkeep.sinks.interface import Sink, SinkFailed
    from stepkeep.worker.answers import StepError, fail, retry_in, then, wait_for
    from stepkeep.worker.context import Context
    from stepkeep.worker.executors.command import CommandPolicy
    from stepkeep.worker.executors.http import HttpPolicy
    from stepkeep.worker.flows.calls import CallFailed, NonDeterministic
    from stepkeep.worker.flows.context import FlowContext
    from stepkeep.worker.secrets import Secrets

__version__ = "0.1.0"

_HOMES = {
    "AsyncAudit": "stepkeep.engine.administration",
    "AsyncContinuations": "stepkeep.engine.continuations",
    "AsyncMigrations": "stepkeep.engine.migrations",
    "Migrations": "stepkeep.engine.migrations",
    "AsyncEngine": "stepkeep.engine.engine",
    "AsyncHooks": "stepkeep.engine.outside",
    "AsyncHostedWorker": "stepkeep.engine.hosted",
    "AsyncKeys": "stepkeep.engine.administration",
    "AsyncMailbox": "stepkeep.engine.messages",
    "AsyncNetwork": "stepkeep.engine.outside",
    "AsyncOutbox": "stepkeep.engine.sending",
    "AsyncSinks": "stepkeep.engine.sending",
    "AsyncTriggers": "stepkeep.engine.triggers",
    "AsyncVersions": "stepkeep.engine.versions",
    "AsyncTenants": "stepkeep.engine.administration",
    "AsyncUsers": "stepkeep.engine.administration",
    "Audit": "stepkeep.engine.administration",
    "CallFailed": "stepkeep.worker.flows.calls",
    "Category": "stepkeep.kernel.states",
    "CommandPolicy": "stepkeep.worker.executors.command",
    "Conflict": "stepkeep.errors",
    "Context": "stepkeep.worker.context",
    "Continuations": "stepkeep.engine.continuations",
    "DefinitionError": "stepkeep.errors",
    "DirectoryStore": "stepkeep.operations.payloads",
    "Engine": "stepkeep.engine.engine",
    "Expr": "stepkeep.definition.expression_objects",
    "ExpressionError": "stepkeep.errors",
    "FlowContext": "stepkeep.worker.flows.context",
    "Hooks": "stepkeep.engine.outside",
    "HostedWorker": "stepkeep.engine.hosted",
    "HttpPolicy": "stepkeep.worker.executors.http",
    "InvalidInput": "stepkeep.errors",
    "KeyReused": "stepkeep.errors",
    "QuotaExceeded": "stepkeep.errors",
    "Keys": "stepkeep.engine.administration",
    "Mailbox": "stepkeep.engine.messages",
    "Network": "stepkeep.engine.outside",
    "Triggers": "stepkeep.engine.triggers",
    "Versions": "stepkeep.engine.versions",
    "NonDeterministic": "stepkeep.worker.flows.calls",
    "NotAllowed": "stepkeep.errors",
    "NotFound": "stepkeep.errors",
    "Outbox": "stepkeep.engine.sending",
    "OutgoingEvent": "stepkeep.sinks.event",
    "PayloadCodec": "stepkeep.operations.codec",
    "PayloadSealed": "stepkeep.errors",
    "PayloadStore": "stepkeep.operations.payloads",
    "Refused": "stepkeep.errors",
    "Registry": "stepkeep.definition.registry",
    "Result": "stepkeep.engine.result",
    "Retry": "stepkeep.definition.handlers",
    "RunNotSucceeded": "stepkeep.errors",
    "RunState": "stepkeep.kernel.states",
    "Secrets": "stepkeep.worker.secrets",
    "Sink": "stepkeep.sinks.interface",
    "SinkFailed": "stepkeep.sinks.interface",
    "Sinks": "stepkeep.engine.sending",
    "Started": "stepkeep.operations.start",
    "StepError": "stepkeep.worker.answers",
    "StepState": "stepkeep.kernel.states",
    "StepkeepError": "stepkeep.errors",
    "StoreError": "stepkeep.errors",
    "StoreUnavailable": "stepkeep.errors",
    "Taken": "stepkeep.engine.sending",
    "Tenants": "stepkeep.engine.administration",
    "Users": "stepkeep.engine.administration",
    "Workflow": "stepkeep.definition.python",
    "agent": "stepkeep.definition.handlers",
    "fail": "stepkeep.worker.answers",
    "flow": "stepkeep.definition.flows",
    "lifespan": "stepkeep.definition.handlers",
    "load_file": "stepkeep.dialects.registry",
    "hook": "stepkeep.definition.listeners",
    "on": "stepkeep.definition.listeners",
    "open": "stepkeep.client.opening",
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
