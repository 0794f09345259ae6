"""The engine for host programs: open a database, publish, start, run, decide, read.

It calls operations and the worker, nothing else. `sync_engine.Engine` has the same methods for programs without an
event loop; each of its methods calls one here.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, Unpack

import msgspec
from msgspec.structs import replace

from stepkeep.administration import AsyncAudit, AsyncKeys, AsyncTenants, AsyncUsers
from stepkeep.continuations import AsyncContinuations
from stepkeep.definition import arguments
from stepkeep.definition.bounds import MAX_VERSION, MESSAGE_TTL, START_DELAY
from stepkeep.definition.handlers import registry_of
from stepkeep.definition.hooks import Decision, ToSend, ToStart
from stepkeep.definition.missing_outputs import may_skip
from stepkeep.definition.registry import Registry, default_registry
from stepkeep.definition.retry import Duration, microseconds
from stepkeep.dialects.registry import load_file
from stepkeep.engine_arguments import (
    LARGEST_PAYLOAD_BYTES,
    current_user,
    duration,
    encode_labels,
    encode_payload,
    looks_like_a_file,
    moment,
    optional_key,
    run_states,
)
from stepkeep.errors import (
    Conflict,
    ConnectionLost,
    InvalidInput,
    NotFound,
    Unreachable,
)
from stepkeep.execution_slots import AsyncSlots
from stepkeep.hosted import AsyncHostedWorker, WorkerOptions
from stepkeep.interventions import AsyncInterventions
from stepkeep.jobs import AsyncJobs
from stepkeep.kernel.authority import Caller
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.states import RUN_TERMINAL, RunState
from stepkeep.messages import AsyncMailbox, goes_with_key, one_target
from stepkeep.metrics.embedded import exposition_of
from stepkeep.migrations import AsyncMigrations
from stepkeep.operations import (
    approvals,
    diagnosis,
    pausing,
    people,
    plans,
    policies,
    projected,
    retention,
    rollback,
    validate,
    views,
)
from stepkeep.operations import quarantine as quarantines
from stepkeep.operations.access import Access, Acting, Credential, Scope, guarded, parse_key
from stepkeep.operations.audit import AuditLog
from stepkeep.operations.by_key import KeySender
from stepkeep.operations.codec import PayloadCodec, mark_sealed
from stepkeep.operations.correlation import correlated_run
from stepkeep.operations.lines import encode_line
from stepkeep.operations.log import export_run
from stepkeep.operations.own_run import OwnRun, lacking_of, leased_elsewhere
from stepkeep.operations.payloads import MAX_PAYLOAD_BYTES, PayloadStore
from stepkeep.operations.publish import Newest, as_draft, find_plan, is_published, list_published, publish
from stepkeep.operations.quotas import QuotaKeeper
from stepkeep.operations.rerun import rerun
from stepkeep.operations.results import RunResult
from stepkeep.operations.run_differences import compare_runs
from stepkeep.operations.run_webhooks import require_released
from stepkeep.operations.schemas import list_schemas, publish_schema, resolve_schemas, show_schema
from stepkeep.operations.search import Terms, search_runs
from stepkeep.operations.spans import find_spans
from stepkeep.operations.start import Started, StartedHere, Starter, StartRequest, start_idle
from stepkeep.operations.statistics import read_statistics
from stepkeep.operations.status import list_workers, read_status
from stepkeep.operations.successors import successor_of
from stepkeep.operations.transact import Transactor
from stepkeep.operations.triggers.firing import Firer
from stepkeep.operations.triggers.manage import install
from stepkeep.operations.versions import compare_versions
from stepkeep.operations.waiting import RunWaiter
from stepkeep.outside import AsyncHooks, AsyncNetwork
from stepkeep.pauses import AsyncPauses
from stepkeep.result import Result, settled_states
from stepkeep.run_workers import Ability, Begin, RunWorkers
from stepkeep.safe_text import type_name
from stepkeep.sending import AsyncOutbox, AsyncSinks
from stepkeep.step_resources import AsyncResources
from stepkeep.store.callers import callers_transaction
from stepkeep.store.change import ANY_CALLER
from stepkeep.store.connect import connect
from stepkeep.store.migrations import require_migrated
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter
from stepkeep.triggers import AsyncTriggers
from stepkeep.versions import AsyncVersions
from stepkeep.worker.outage import Outage
from stepkeep.worker.pools.handler_loop import HandlerLoop, Lifespan, handler_loop
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.secrets import Given, SecretReader, Secrets, as_secrets
from stepkeep.worker.settings import Settings as WorkerSettings
from stepkeep.worker.shared import NO_RUN

if TYPE_CHECKING:
    from stepkeep.conformance.certificate import Certificate
    from stepkeep.definition.python import Workflow
    from stepkeep.metrics.exposition import Exposition
    from stepkeep.worker.executors.command import CommandPolicy
    from stepkeep.worker.executors.http import HttpPolicy
    from stepkeep.worker.loop import Worker

log = logging.getLogger("stepkeep.engine")

MOST_AT_ONCE = 10_000
MOST_KNOWN_PLANS = 1_000
BEFORE = "Call engine.publish(workflow) before the transaction begins."
LONGEST_WAIT = 10 * 365 * 86_400

Runnable: TypeAlias = "Workflow | Definition | Plan | Newest | str | Path"
"""What can be started: a workflow object, a definition, the path of a definition file, a published name, or the
result of `publish`, which is fastest for many runs of the same workflow."""


def _names_version(workflow: Runnable) -> bool:
    """Whether the caller says which version is started; a name alone stands for the newest."""
    return not isinstance(workflow, Newest) and not (isinstance(workflow, str) and not looks_like_a_file(workflow))


@guarded(free=("open", "close", "stop_workers"))
class AsyncEngine:
    """A database and everything one can do with it, for programs that have an event loop.

    Async handlers run on one event loop for the life of the engine: in a thread of its own, or with `loop="mine"` on
    the loop of the program. `lifespan` opens what they share (`ctx.shared`), once, before the first step.

    `http`, `commands` and `process_memory_bytes` say what steps may do that this engine's own workers run, and
    `secrets` where those workers find the values of secrets: a mapping, a function, or a `Secrets`. With
    `wait_for_database`, opening waits for a server that does not answer yet, as a running worker does.

    An SQLite file is migrated when it is opened, unless `auto_migrate` is False. A PostgreSQL database that lacks a
    migration is refused, unless `auto_migrate` is True: for tests and demos, where the role owns the schema.

    With `dev`, a changed workflow is published under the next version by itself: for notebooks, where a cell is
    changed and run again.

    With a `key`, the owner of the key is the actor and the tenant is the key's. Without one, the program vouches for
    the names that it gives (`actor`, `by=`).
    """

    policies: dict[str, Any] = {}  # noqa: RUF012 - never changed; for engines over a store that is there already
    _hosted: Sequence[AsyncHostedWorker] = ()
    _exposition: Exposition | None = None
    _home: HandlerLoop | None = None
    _lifespan: Lifespan | None = None
    _loop: Literal["own", "mine"] = "own"
    _waits = False
    _auto_migrate: bool | None = None
    _dev = False
    _credential: Credential | None = None
    _key_scope: str | None = None

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        tenant: str = "default",
        actor: str | None = None,
        key: str | None = None,
        registry: Registry | None = None,
        http: HttpPolicy | None = None,
        commands: CommandPolicy | None = None,
        process_memory_bytes: int | None = None,
        secrets: Secrets | Given | None = None,
        payload_store: PayloadStore | None = None,
        payload_codec: PayloadCodec | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        wait_for_database: bool = False,
        auto_migrate: bool | None = None,
        dev: bool = False,
        lifespan: Lifespan | None = None,
        loop: Literal["own", "mine"] = "own",
    ) -> None:
        self._waits = arguments.flag("wait_for_database", wait_for_database)
        self._auto_migrate = None if auto_migrate is None else arguments.flag("auto_migrate", auto_migrate)
        self._dev = arguments.flag("dev", dev)
        policies = {
            "http": http,
            "commands": commands,
            "process_memory_bytes": process_memory_bytes,
            "secrets": None if secrets is None else as_secrets(secrets),
        }
        self.policies = {name: value for name, value in policies.items() if value is not None}
        self._lifespan, self._loop = lifespan, loop
        handler_loop(Registry(), lifespan)
        arguments.choice("loop", loop, ("own", "mine"))
        WorkerSettings(**self.policies)  # refuse invalid policies before a worker is needed
        if key is not None and actor is not None:
            raise InvalidInput("the actor is the owner of the key: give a key or an actor, not both.")
        self._credential = None if key is None else parse_key(key)
        self.tenant = validate.key("the tenant", tenant)
        self.actor = validate.key("the actor", current_user() if actor is None else actor)
        self.registry = default_registry if registry is None else registry_of(registry)
        self._work_on(connect(url))
        arguments.whole("max_payload_bytes", max_payload_bytes, 1, LARGEST_PAYLOAD_BYTES)
        if payload_store is not None and not isinstance(payload_store, PayloadStore):
            raise InvalidInput(
                f"payload_store has `put` and `get`; a value of type {type_name(payload_store)} has not."
            )
        self.transactor.payloads.external = payload_store
        if payload_codec is not None:
            self.transactor.payloads.seal.use(payload_codec)
        self.transactor.payloads.max_bytes = max_payload_bytes

    def _work_on(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.access = Access(store, self.tenant, self.actor, self._credential, monotonic)
        self.access.audit_log = AuditLog(store, monotonic)
        self.transactor = Transactor(store, monotonic=monotonic)
        self._starter = Starter(self.transactor)
        self._firer = Firer(self.transactor, self._starter)
        self._installed: set[int] = set()
        self._plans: dict[int, tuple[Definition, Plan]] = {}
        self._key_sender = KeySender(self.transactor, self._starter)
        self._waiting = RunWaiter(self.transactor)
        self._own = RunWorkers(
            lambda able: self.worker(concurrency=able.concurrency, capabilities=able.capabilities, only_run=NO_RUN),
            lambda: self.registry.version,
        )

    def _acting_for(self, tenant: str) -> Self:
        """The same engine for another tenant, where the database keeps its role to one tenant at a time: its batches,
        plans and waiters are its own. The service makes one per tenant."""
        store = self.store.for_tenant(tenant)
        if store is self.store:
            return self
        other = copy.copy(self)
        other.tenant, other._credential = tenant, None
        other._work_on(store)
        other.transactor.payloads.use_settings_of(self.transactor.payloads)
        other.transactor.measures = self.transactor.measures
        other.transactor.spans = find_spans(store, other.transactor.plans)
        other.quotas.default = self.quotas.default
        return other

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        """Connect to the database now.

        `async with` does so, too.
        """
        outage, tries = Outage(Runtime()), 0
        while True:
            try:
                await self._open()
            except (Unreachable, ConnectionLost) as problem:
                if not self._waits:
                    raise
                outage.met(problem)
                await outage.pause(tries)
                tries += 1
            else:
                outage.over()
                return

    async def _open(self) -> None:
        await self.store.open()
        try:
            if self.store.is_embedded if self._auto_migrate is None else self._auto_migrate:
                await self.store.migrate()
            else:
                require_migrated(await self.store.status(), is_embedded=self.store.is_embedded)
            self.store.confine_to(self.tenant)
            await self.access.open()
            self.tenant, self.actor = self.access.tenant, self.access.actor
            self.store.confine_to(self.tenant)
            self.transactor.spans = find_spans(self.store, self.transactor.plans)
            if self.transactor.payloads.seal.is_on:
                await mark_sealed(self.store, self.tenant)
        except BaseException:
            await self.store.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(grace=None if kind is None else 0)

    async def close(self, *, grace: float | None = None) -> None:
        """Stop the workers that this engine started, then close the database.

        Running handlers may finish within `grace` seconds; by default within the grace period of their worker.
        """
        await self.stop_workers(grace)
        await self._own.close(grace)
        home, self._home = self._home, None
        if home is not None:
            await home.aclose()
        if self._exposition is not None:
            await self._exposition.close()
        await self._finish()
        await self.store.close()

    async def _finish(self) -> None:
        """Stop waiting for runs, and write what waits to be written."""
        await self._waiting.close()
        if self.transactor.spans is not None:
            await self.transactor.spans.written()
        if self.access.audit_log is not None:
            await self.access.audit_log.close()

    # -- definitions -------------------------------------------------------------------------------------------------
    @property
    def tenants(self) -> AsyncTenants:
        """Tenants and their settings."""
        return AsyncTenants(self.store, self.access)

    @property
    def users(self) -> AsyncUsers:
        """Users and services: their roles, groups and delegations."""
        return AsyncUsers(self.store, self.access)

    @property
    def keys(self) -> AsyncKeys:
        """API keys."""
        return AsyncKeys(self.store, self.access)

    @property
    def quotas(self) -> QuotaKeeper:
        """The quotas that this process knows. For the service."""
        return self._starter.quotas

    @property
    def audit(self) -> AsyncAudit:
        """What was asked for, by whom, and what came of it."""
        return AsyncAudit(self.store, self.access)

    @property
    def network(self) -> AsyncNetwork:
        """What HTTP steps of the tenant may reach on the internal network."""
        return AsyncNetwork(self.store, self.access)

    @property
    def interventions(self) -> AsyncInterventions:
        """What people do to a run besides deciding: request changes, escalate, freeze, annotate."""
        return AsyncInterventions(self.transactor, self.access)

    @property
    def slots(self) -> AsyncSlots:
        """Limits on running runs, of the tenant and of workflows."""
        return AsyncSlots(self.store, self.access, self._starter.limits)

    @property
    def resources(self) -> AsyncResources:
        """What steps hold while they run, and the sizes of pools."""
        return AsyncResources(self.store, self.access)

    @property
    def pauses(self) -> AsyncPauses:
        """Pauses of queues, of workflows and of the whole tenant."""
        return AsyncPauses(self.store, self.access, self._starter.pauses)

    @property
    def hooks(self) -> AsyncHooks:
        """Inbound webhooks that become messages or starts of runs."""
        reader = SecretReader(self.policies.get("secrets", Secrets()))

        async def secret(name: str) -> str:
            return (await reader.read([name]))[name]

        return AsyncHooks(self.store, self.access, secret, self._deliver)

    async def _deliver(self, decision: Decision, by: str | None) -> dict[str, Any]:
        """Do what a delivery to a hook asks for; the same delivery again changes nothing, also with another API key."""
        shared = copy.copy(self)
        shared._key_scope = ANY_CALLER
        if isinstance(decision, ToSend):
            starts: dict[str, Any] = {}
            if decision.start is not None:
                plan = await self._plan_of_hook(decision.start)
                starts = {"start": plan, "idempotency_key": decision.id, "input": decision.input}
            return await shared.send(
                None, decision.name, decision.payload, key=decision.key, message_id=decision.id, by=by, **starts
            )
        assert isinstance(decision, ToStart)
        started = await shared.start(
            Newest(await self._plan_of_hook(decision.workflow)),
            decision.input,
            idempotency_key=decision.id,
            business_key=decision.business_key,
            by=by,
        )
        return {"run_id": started.run_id, "created": started.created}

    async def _plan_of_hook(self, workflow: str) -> Plan:
        """The newest version of a published workflow. A name that looks like a file is never read as one."""
        try:
            return await find_plan(self.transactor, workflow, None, tenant=self.tenant)
        except NotFound:
            raise Conflict(f"the workflow {workflow} of this hook is not published.") from None

    @property
    def mailbox(self) -> AsyncMailbox:
        """Messages that are kept for runs that do not exist yet."""
        return AsyncMailbox(self.transactor, self.access)

    @property
    def sinks(self) -> AsyncSinks:
        """Where events go."""
        return AsyncSinks(self.transactor, self.access)

    @property
    def outbox(self) -> AsyncOutbox:
        """Events that are not delivered yet."""
        return AsyncOutbox(self.transactor, self.access)

    @property
    def continuations(self) -> AsyncContinuations:
        """New runs that go on with finished ones: retry, rerun from a step, fork."""
        return AsyncContinuations(self.transactor, self._starter, self.access)

    @property
    def migrations(self) -> AsyncMigrations:
        """Live runs that go on under another version of their workflow."""
        return AsyncMigrations(self.transactor, self._starter, self.access)

    @property
    def jobs(self) -> AsyncJobs:
        """Actions on many runs at once, and backfills."""
        return AsyncJobs(self.transactor, self.access, self.runs)

    @property
    def triggers(self) -> AsyncTriggers:
        """What starts runs by itself: schedules, events, and the ends of other runs."""
        return AsyncTriggers(self._firer, self.access)

    @property
    def versions(self) -> AsyncVersions:
        """Withdraws published versions of workflows, and restores them."""
        return AsyncVersions(self.transactor, self.access, self._starter.withdrawals)

    async def publish(self, workflow: Runnable) -> Plan:
        """Publish a workflow, or return the published one; a plain name finds the highest published version."""
        return await self._publish(workflow)

    async def _plan(self, workflow: Runnable) -> Plan:
        """The plan of what is started. A key that may not publish starts what is published already."""
        if self.access.may(Scope.OPERATE):
            return await self._publish(workflow)
        return await self._published(workflow, "This key lacks the scope operate, which publish needs.")

    async def _publish(self, workflow: Runnable) -> Plan:
        found = await self._definition(workflow)
        if isinstance(found, Plan):
            return found
        if (known := self._plans.get(id(found))) is not None:
            return known[1]
        definition = await self._draft(found) if self._dev else found
        plan = await publish(self.transactor, definition, tenant=self.tenant, actor=self.actor)
        if plan.definition_id not in self._installed:
            await install(self._firer, plan.definition, tenant=self.tenant, actor=self.actor)
            self._installed.add(plan.definition_id)
        if len(self._plans) >= MOST_KNOWN_PLANS:
            self._plans.clear()
        # An unchanged Workflow gives the same definition again, which is kept so that its id stays its own.
        self._plans[id(found)] = found, plan
        return plan

    async def _draft(self, definition: Definition) -> Definition:
        """The definition under a version of its own, if its content was changed since it was published."""
        draft = await as_draft(self.transactor, definition, tenant=self.tenant)
        if draft.version != definition.version:
            log.warning("the workflow has changed: it runs as version %d of %s", draft.version, draft.name)
        return draft

    async def publish_schema(self, ref: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Publish a JSON Schema, to which definitions refer with `{ref: NAME}`. A published schema never changes."""
        return await publish_schema(self.transactor, ref, schema, tenant=self.tenant, actor=self.actor)

    async def schemas(self) -> dict[str, Any]:
        """Published schemas by reference."""
        return await list_schemas(self.transactor, tenant=self.tenant)

    async def schema(self, ref: str) -> dict[str, Any]:
        """One published schema with its document."""
        return await show_schema(self.transactor, ref, tenant=self.tenant)

    async def _definition(self, workflow: Runnable) -> Definition | Plan:
        """The definition of what can be started, or the plan of a published one."""
        if isinstance(workflow, Plan | Newest):
            return workflow if isinstance(workflow, Plan) else workflow.plan
        # A caller with a Workflow has imported it; a worker without one need not.
        from stepkeep.definition.python import Workflow

        if isinstance(workflow, Workflow):
            workflow = workflow.definition()
        elif isinstance(workflow, Path) or (isinstance(workflow, str) and looks_like_a_file(workflow)):
            workflow = load_file(Path(workflow), self.registry)
        if isinstance(workflow, str):
            name = validate.key("the name of a workflow", workflow)
            return await find_plan(self.transactor, name, None, tenant=self.tenant)
        if not isinstance(workflow, Definition):
            raise InvalidInput(
                f"a {type(workflow).__name__} is no workflow. Pass a Workflow, a file or a published name."
            )
        return workflow

    # -- runs --------------------------------------------------------------------------------------------------------
    async def start(
        self,
        workflow: Runnable,
        input: Any = None,  # noqa: A002 - the word users know
        *,
        idempotency_key: str | None = None,
        business_key: str | None = None,
        correlation_id: str | None = None,
        priority: int | None = None,
        start_now: bool = True,
        labels: dict[str, str] | None = None,
        by: str | None = None,
        connection: Any = None,
        at: datetime | None = None,
        delay: Duration | None = None,
        webhook_url: str | None = None,
        webhook_secret: str | None = None,
    ) -> Started:
        """Create a run and, unless `start_now` is False, start it: now, `at` a moment or after a `delay`."""
        await require_released(self.store, self.access, webhook_secret)
        request = self._request(
            workflow,
            await (self._plan(workflow) if connection is None else self._published(workflow)),
            input,
            idempotency_key=idempotency_key,
            business_key=business_key,
            correlation_id=correlation_id,
            priority=priority,
            start_now=start_now,
            labels=labels,
            by=by,
            at=at,
            delay=delay,
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
        )
        if connection is None:
            return await self._starter.start(request)
        return await self._in_callers_transaction(connection, await self._starter.reduced(request))

    async def _prepare_start(self, workflow: Runnable, given: Any, options: dict[str, Any]) -> StartRequest:
        """What `start` does before it uses the caller's connection, for a thread without an event loop."""

        async def prepare() -> StartRequest:
            await require_released(self.store, self.access, options.get("webhook_secret"))
            return await self._starter.reduced(
                self._request(workflow, await self._published(workflow), given, **options)
            )

        return await self.access.admitted("start", (workflow, given), options, prepare)

    def _request(
        self,
        workflow: Runnable,
        plan: Plan,
        given: Any,
        *,
        idempotency_key: str | None,
        business_key: str | None,
        correlation_id: str | None,
        priority: int | None,
        start_now: bool,
        labels: dict[str, str] | None,
        by: str | None,
        at: datetime | None = None,
        delay: Duration | None = None,
        webhook_url: str | None = None,
        webhook_secret: str | None = None,
    ) -> StartRequest:
        request = StartRequest(
            plan=plan,
            names_version=_names_version(workflow),
            tenant=self.tenant,
            **self._acting(by),
            input=encode_payload({} if given is None else given),
            idempotency_key=optional_key("the idempotency key", idempotency_key),
            scope=self._scope(),
            business_key=optional_key("the business key", business_key),
            correlation_id=optional_key("the correlation id", correlation_id),
            priority=priority,
            start_now=arguments.flag("start: start_now", start_now),
            labels=None if labels is None else encode_labels(labels),
            start_at=moment("start: at", at),
            start_delay=None if delay is None else microseconds(delay, what="start: delay", bounds=START_DELAY),
        )
        if webhook_url is None and webhook_secret is None:
            return request
        return msgspec.structs.replace(request, webhook_url=webhook_url, webhook_secret=webhook_secret)

    async def _in_callers_transaction(self, connection: Any, request: StartRequest) -> Started:
        return await self._starter.start_in(await callers_transaction(self.store, connection), request)

    async def _published(self, workflow: Runnable, hint: str = BEFORE) -> Plan:
        """The plan of a workflow that was published before. Nothing is written: the caller may hold a lock."""
        definition = await self._definition(workflow)
        if not isinstance(definition, Definition):
            return definition
        definition = await resolve_schemas(self.transactor, definition, tenant=self.tenant)
        stored = await self.store.read_definition(self.tenant, definition.name, definition.version)
        if stored is None or not is_published(stored, definition):
            raise InvalidInput(f"{definition.name} is not published yet. {hint}")
        return self.transactor.plans.add(stored)

    async def start_idle(self, run_id: str, *, by: str | None = None) -> dict[str, Any]:
        """Start a run that was created idle."""
        return await start_idle(self.transactor, validate.run_id(run_id), tenant=self.tenant, **self._acting(by))

    async def run(
        self,
        workflow: Runnable,
        input: Any = None,  # noqa: A002 - the word users know
        *,
        idempotency_key: str | None = None,
        business_key: str | None = None,
        correlation_id: str | None = None,
        priority: int | None = None,
        start_now: bool = True,
        labels: dict[str, str] | None = None,
        by: str | None = None,
        check: bool = False,
        capabilities: Iterable[str] = (),
    ) -> Result:
        """Start a run and work on it here until it ends, or until only people or messages can change it.

        If a flow continues as new, so does the work, and the result is that of the last run.

        A step that needs a capability runs here only if `capabilities` has it. `lacking` of the result has the others.
        """
        arguments.flag("run: check", check)
        has = tuple(sorted(validate.names("capabilities", capabilities)))
        request = self._request(
            workflow,
            await self._plan(workflow),
            input,
            idempotency_key=idempotency_key,
            business_key=business_key,
            correlation_id=correlation_id,
            priority=priority,
            start_now=start_now,
            labels=labels,
            by=by,
        )
        if lacking_of(request.plan, has):
            started = await self._starter.start(request)
            await retention.require_kept(self.store, started, tenant=self.tenant)
            result = await self._followed(await self._be_worker(started.run_id, capabilities=has), has)
            return result.raise_for_state() if check else result
        request = await self._starter.reduced(request)

        async def begin(worker: Worker) -> StartedHere:
            async with self._starter.quotas.place(request.tenant, request.key, request.run_id) as created:
                begun = await self._starter.start_here(request, worker.first_claimer(), worker.note_unconfirmed)
                created(begun.started.run_id)
            await retention.require_kept(self.store, begun.started, tenant=self.tenant)
            return begun

        result = await self._execute(begin, settled_states(until_blocked=True), request.plan, capabilities=has)
        result = await self._followed(result, has)
        return result.raise_for_state() if check else result

    async def _followed(self, result: Result, capabilities: tuple[str, ...]) -> Result:
        """The result of the last run of a flow that continued as new, each of which is executed here."""
        while (following := await self._successor(result.run_id, result.output, starts=True)) is not None:
            result = await self.work_on(following, capabilities=capabilities)
        return result

    async def _successor(self, run_id: str, output: Any, *, starts: bool = False) -> str | None:
        return await successor_of(self.transactor, self.tenant, run_id, output, starts=starts)

    async def work_on(
        self,
        run_id: str,
        *,
        concurrency: int = 16,
        until_blocked: bool = True,
        serve_all: bool = False,
        capabilities: Iterable[str] = (),
    ) -> Result:
        """Work on this run until it has ended (or, with `until_blocked`, is blocked, or needs other capabilities).

        Steps of other runs are left alone, unless `serve_all` says to execute them here too. A step that needs a
        capability runs here only if `capabilities` has it; `lacking` of the result says which do not.
        """
        has = tuple(sorted(validate.names("capabilities", capabilities)))
        settled = settled_states(until_blocked=arguments.flag("until_blocked", until_blocked))
        run_id = validate.run_id(run_id)
        plan = await plans.plan_of(self.transactor, self.tenant, run_id)
        if arguments.flag("serve_all", serve_all) or lacking_of(plan, has):
            return await self._be_worker(
                run_id, concurrency=concurrency, until_blocked=until_blocked, serve_all=serve_all, capabilities=has
            )

        async def begin(worker: Worker) -> StartedHere:
            return StartedHere(Started(run_id, created=False))

        return await self._execute(begin, settled, plan, concurrency=concurrency, capabilities=has)

    async def _be_worker(
        self,
        run_id: str,
        *,
        concurrency: int = 16,
        until_blocked: bool = True,
        serve_all: bool = False,
        capabilities: tuple[str, ...],
    ) -> Result:
        """Work on a run with a worker that serves other runs too, or that lacks a capability for this one."""
        own = OwnRun(
            self.transactor,
            self.tenant,
            run_id,
            capabilities=capabilities,
            until_blocked=until_blocked,
            tell=lambda said: log.warning(
                "run %s: %s. Pass capabilities=, or start a worker that has it", run_id, said
            ),
        )
        only = None if serve_all else run_id
        await self._tell_leases(run_id)
        await self.worker(concurrency=concurrency, only_run=only, capabilities=capabilities).run_until(own.is_over)
        return replace(await self.result(run_id), lacking=tuple(map(str, own.stranded)))

    async def _execute(
        self,
        begin: Begin,
        settled: frozenset[RunState],
        plan: Plan,
        *,
        concurrency: int = 16,
        capabilities: tuple[str, ...],
    ) -> Result:
        """Execute a run here until its state is one of these."""

        async def telling(worker: Worker) -> StartedHere:
            begun = await begin(worker)
            if not begun.started.created:
                await self._tell_leases(begun.started.run_id)
            return begun

        def expecting(begun: StartedHere) -> AbstractContextManager[asyncio.Future[RunResult]]:
            # A run with a claimed step has not settled.
            return self._waiting.expecting(
                self.tenant, begun.started.run_id, settled, polls_first=begun.has_more or not begun.claims
            )

        run_id, found = await self._own.execute(telling, expecting, Ability(concurrency, capabilities))
        if found.state is not RunState.SUCCEEDED or any(may_skip(step) for step in plan.definition.steps):
            return await self.result(run_id)
        return Result(run_id=run_id, state=found.state, output=found.output)

    async def _tell_leases(self, run_id: str) -> None:
        """Log what a run that was there before waits for, so that a wait after a crash does not look like a hang."""
        own = [one.id for one in (*self._hosted, *self._own.all)]
        for said in await leased_elsewhere(self.transactor, self.tenant, run_id, own):
            log.warning("run %s: %s", run_id, said)

    async def wait(self, run_id: str, *, seconds: float | None = None, until_blocked: bool = False) -> Result:
        """Wait until a run has ended (or, with `until_blocked`, is blocked). Any worker may run it.

        A run that only sleeps is not blocked. After `seconds`, the current state is returned: check `finished`. If a
        flow continued as new, the result is that of the last run so far: its `run_id` is another one.
        """
        settled = settled_states(until_blocked=arguments.flag("until_blocked", until_blocked))
        if seconds is not None:
            seconds = arguments.number("wait: seconds", seconds, 0, LONGEST_WAIT)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    found = await self._waiting.until(self.tenant, validate.run_id(run_id), settled)
                    if found.state not in RUN_TERMINAL:
                        break
                    following = await self._successor(run_id, found.output)
                    if following is None:
                        return Result(run_id=run_id, state=found.state, output=found.output, error=found.error)
                    run_id = following
        return await self.result(run_id)

    def worker(self, *, concurrency: int = 16, app: str = "stepkeep", **options: Any) -> Worker:
        """A worker in this process, for this engine's database and handlers, under its policies."""
        from stepkeep.worker.loop import Worker  # here, because most programs only start and look

        options = {"owner": self.access.owner, "limits": self.access.limits, **self.policies, **options}
        if "lifespan" not in options and "loop" not in options:
            if self._home is None:
                self._home = handler_loop(self.registry, self._lifespan, self._loop)
            options["home"] = self._home
        return Worker(self.transactor, self.registry, app=app, concurrency=concurrency, tenant=self.tenant, **options)

    async def start_worker(self, **options: Unpack[WorkerOptions]) -> AsyncHostedWorker:
        """Start a worker in this process and return once it has registered; `close` stops it.

        It also archives ended runs of workflows that declare it.
        """
        from stepkeep.worker.archives import archiving

        hosted = AsyncHostedWorker(self.worker(**options), archiving(self.transactor, tenant=self.tenant))
        await hosted.begin()
        self._hosted = [*(one for one in self._hosted if one.is_running), hosted]
        return hosted

    async def stop_workers(self, grace: float | None = None) -> None:
        """Stop the workers that `start_worker` has started, and wait until they have ended."""
        if grace is not None:
            grace = arguments.number("grace", grace, 0, LONGEST_WAIT)
        hosted, self._hosted = self._hosted, ()
        await asyncio.gather(*(one.stop(grace) for one in hosted), return_exceptions=True)

    async def serve(self, *, signals: bool = True, **options: Unpack[WorkerOptions]) -> None:
        """Be a worker until SIGTERM or SIGINT arrives (with `signals`), then drain and return."""
        await self.worker(**options).serve(signals=arguments.flag("serve: signals", signals))

    async def result(self, run_id: str) -> Result:
        """The current state of a run."""
        view = await self.show(run_id)
        run = view["run"]
        return Result(run_id=run_id, state=run["state"], output=run["output"], error=run["error"], loaded=view)

    async def show(
        self, run_id: str, *, as_: str | None = None, step: str | None = None, at: int | datetime | None = None
    ) -> dict[str, Any]:
        """Everything about a run, in canonical names or in the shape of a dialect.

        With `step`, that step alone, with the evidence of its attempts: traceback, inputs given, log lines. With `at`,
        the run as it stood after that entry of its journal, or at that time, told from the journal alone.
        """
        run_id = validate.run_id(run_id)
        if at is not None:
            return await self._show_past(run_id, at, alone=as_ is None and step is None)
        if step is not None and as_ is not None:
            raise InvalidInput("show: give a step or a dialect, not both.")
        if step is not None:
            step = validate.key("the name of a step", step)
            return await views.describe_step(self.transactor, run_id, step, tenant=self.tenant)
        if as_ is not None:
            return await projected.describe_run_as(self.transactor, run_id, as_, tenant=self.tenant)
        return await views.describe_run(self.transactor, run_id, tenant=self.tenant)

    async def _show_past(self, run_id: str, at: int | datetime, *, alone: bool) -> dict[str, Any]:
        from stepkeep.evidence.past import show_past

        if not alone:
            raise InvalidInput("show: `at` goes with neither a step nor a dialect.")
        if isinstance(at, datetime):
            return await show_past(self.transactor, run_id, tenant=self.tenant, at=moment("show: at", at))
        seq = arguments.whole("show: at, the number of an entry", at, 1, 2**31)
        return await show_past(self.transactor, run_id, tenant=self.tenant, seq=seq)

    async def explain(self, what: str, step: str | None = None) -> dict[str, Any]:
        """Why a run (or one of its steps), a queue or a worker does not move, and the command that moves it.

        `causes` is the chain, most urgent first: each has a `code`, a `sentence`, `since`, `until` and a `command`.
        `stuck` is True only where no transition is enabled at all.
        """
        step = None if step is None else validate.key("the name of a step", step)
        what = validate.words("what to explain", what)
        return diagnosis.view(
            await diagnosis.explain(self.transactor, what, step, tenant=self.tenant, access=self.access)
        )

    async def approvals(
        self,
        *,
        mine: bool = False,
        late: bool = False,
        after: str | None = None,
        limit: int = 50,
        by: str | None = None,
    ) -> dict[str, Any]:
        """A page of open gates, oldest run first: what is asked, by whom, what is shown, who has decided, until when.

        `may_decide` says whether this person (`by`, the actor by default) may approve; `refusal` says why not. With
        `mine`, only those that they may; with `late`, only those that were not decided in time: their deadline has
        passed, or they were escalated. `after` is the `next` of the page before.
        """
        acting = self.access.acting(optional_key("by", by))
        asking = approvals.Asking(
            caller=Caller(self.tenant, acting["actor"], acting["key"]),
            mine=arguments.flag("approvals: mine", mine),
            late=arguments.flag("approvals: late", late),
            barred=self.access.lacks(Scope.DECIDE, operation="approve"),
        )
        return await approvals.list_approvals(self.transactor, asking, after=after, limit=limit)

    async def status(self, *, window: str = "1h") -> dict[str, Any]:
        """The whole system in numbers: runs by state, queues, failures by category, workers, late timers.

        Runs are counted by state up to 200,000; of more, the parts are estimated from a sample (`is_estimate`). A
        total without `is_complete` is a lower bound. `window` says how far back failures and recent runs are counted.
        `problems` lists in sentences what needs attention.
        """
        return await read_status(self.transactor, tenant=self.tenant, window=duration("status: window", window))

    async def statistics(self, *, window: str = "24h") -> dict[str, Any]:
        """How the newest runs went: how many over time, how long they took, failures, slow steps, the backlog's age.

        Of more than 5,000 runs within `window`, a sample is looked at, and its numbers are scaled (`is_estimate`).
        """
        taken = duration("statistics: window", window)
        return await read_statistics(self.transactor, tenant=self.tenant, window=taken)

    async def metrics(self) -> str:
        """The metrics of this process in the text format of Prometheus, for an endpoint of the host program.

        Counting begins with the first call. It needs the extra `server`; docs/observing.md has every name.
        """
        if self._exposition is None:
            self._exposition = exposition_of(self.transactor, self.tenant, lambda: self._hosted)
        body, _ = await self._exposition.text()
        return body.decode()

    async def definitions(self, *, name: str | None = None) -> dict[str, Any]:
        """Published workflows with their versions, by name and version."""
        wanted = optional_key("the name of a workflow", name)
        return await list_published(self.transactor, wanted, tenant=self.tenant)

    async def compare_versions(self, workflow: str, old: int, new: int, *, live: bool = False) -> dict[str, Any]:
        """What differs between two versions of a workflow, and what it means for runs of the old one.

        With `live`, also how many of its live runs could continue under the new version, and why others could not.
        """
        name = validate.key("the name of a workflow", workflow)
        was, now = [arguments.whole("compare_versions: a version", one, 1, MAX_VERSION) for one in (old, new)]
        wanted = arguments.flag("compare_versions: live", live)
        return await compare_versions(self.transactor, name, was, now, tenant=self.tenant, live=wanted)

    async def compare_runs(self, first: str, second: str) -> dict[str, Any]:
        """What differs between two runs: states, errors, outputs, attempts and costs, step by step."""
        one, other = validate.run_id(first), validate.run_id(second)
        return await compare_runs(self.transactor, one, other, tenant=self.tenant)

    async def workers(self, *, live_only: bool = True) -> dict[str, Any]:
        """What each worker serves and how much it holds."""
        return await list_workers(
            self.transactor, tenant=self.tenant, live_only=arguments.flag("workers: live_only", live_only)
        )

    async def runs(
        self,
        *,
        state: RunState | Sequence[RunState] = (),
        workflow: str | None = None,
        business_key: str | None = None,
        correlation_id: str | None = None,
        labels: dict[str, str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        text: str | None = None,
        before: str | None = None,
        limit: int = 50,
        as_: str | None = None,
    ) -> dict[str, Any]:
        """A page of runs, newest first; `before` is the id of the last run of the page before.

        `since` and `until` bound the start, `error` and `text` are found anywhere in the error, or in ids, keys, labels
        and input. `total` counts those that match from `before` on; where `is_complete` is False, there may be more.
        Labels and texts are looked for in a bounded number of runs. If there are more, the answer has `looked_at`, and
        the same call with `before=answer["next"]` goes on, until `next` is None.
        """
        which = RunFilter(
            tenant=self.tenant,
            states=run_states(state),
            workflow=optional_key("the workflow to look for", workflow),
            business_key=optional_key("the key to look for", business_key),
            correlation_id=optional_key("the id to look for", correlation_id),
            before=None if before is None else validate.run_id(before),
            limit=limit,
        )
        terms = Terms(
            labels=validate.labels({} if labels is None else labels),
            since=moment("runs: since", since),
            until=moment("runs: until", until),
            error=None if error is None else validate.words("the error to look for", error),
            text=None if text is None else validate.words("the text to look for", text),
        )
        if as_ is None:
            return await search_runs(self.transactor, which, terms)
        if not terms.is_empty:
            raise InvalidInput("runs: labels, times and texts are searched for in canonical names, without `as_`.")
        return await projected.list_runs_as(self.transactor, which, as_)

    async def log(self, run_id: str, *, as_: str | None = None) -> list[bytes]:
        """The run's exported log, in canonical names or in a dialect. Its first line holds the definition."""
        lines = export_run(self.transactor, validate.run_id(run_id), tenant=self.tenant, dialect=as_)
        return [encode_line(line) async for line in lines]

    async def certify(self, run_id: str) -> Certificate:
        """The judge's certificate of a run: its journal, its log in every dialect, its definition and payloads."""
        from stepkeep.evidence.collect import collect

        return await (await collect(self.transactor, run_id, tenant=self.tenant)).certificate()

    async def evidence(self, run_id: str, *, signing_key: str | Path | None = None, payloads: bool = True) -> bytes:
        """The evidence pack of a finished run: an archive that an auditor can verify without Stepkeep.

        `signing_key` names the file of a signing key: the head of the run and the pack are signed with it. Without
        `payloads`, inputs and outputs are left out; their digests in the journal remain.
        """
        from stepkeep.evidence.collect import collect
        from stepkeep.evidence.heads import pack_line
        from stepkeep.evidence.pack import pack_files, zipped
        from stepkeep.evidence.signing import pack_signatures, read_key
        from stepkeep.evidence.verifier import MANIFEST

        arguments.flag("evidence: payloads", payloads)
        if signing_key is not None and not isinstance(signing_key, str | os.PathLike):
            raise InvalidInput(f"evidence: signing_key is the path of a file, not a {type_name(signing_key)}.")
        key = None if signing_key is None else read_key(Path(signing_key))
        found = await collect(self.transactor, run_id, tenant=self.tenant)
        made = pack_files(await found.contents(payloads=payloads))
        now = await self.store.now()
        signatures = [] if key is None else pack_signatures(key, found.whole.record.run, made[MANIFEST], now)
        kept = await self.store.read_signed_heads(self.tenant, found.whole.record.run.id)
        return zipped(made, [*signatures, *(pack_line(one) for one in kept)])

    async def sign_heads(self, signing_key: str | Path, *, limit: int = 10_000) -> dict[str, Any]:
        """Sign the end of the journal of each finished run that the key has not signed; a pack has these signatures.

        It is called on a timer, soon after runs end, where only operators have the key. No run waits for it.
        """
        from stepkeep.evidence.heads import sign_heads
        from stepkeep.evidence.signing import read_key

        if not isinstance(signing_key, str | os.PathLike):
            raise InvalidInput(f"sign_heads: signing_key is the path of a file, not a {type_name(signing_key)}.")
        arguments.whole("sign_heads: limit", limit, 1, 10**9)
        return await sign_heads(self.transactor, read_key(Path(signing_key)), tenant=self.tenant, limit=limit)

    async def prune(
        self,
        *,
        archive: str | Path | None,
        older_than: str | None = None,
        keep: int | None = None,
        workflow: str | None = None,
        forget_keys: str | None = None,
        forget_audit: str | None = None,
        forget_firings: str | None = None,
        forget_jobs: str | None = None,
        dry_run: bool = False,
        batch: int = retention.BATCH,
        told: retention.Told | None = None,
    ) -> retention.Pruned:
        """Archive finished runs, then delete them: those that ended long enough ago and are not among the newest.

        `archive` names a folder; None deletes without a trace. Durations are written as in definitions: "30d".
        """
        policy = retention.Policy(
            older_than=None if older_than is None else duration("older_than", older_than),
            keep=keep,
            workflow=workflow,
            forget_keys=None if forget_keys is None else duration("forget_keys", forget_keys),
            forget_audit=None if forget_audit is None else duration("forget_audit", forget_audit),
            forget_firings=None if forget_firings is None else duration("forget_firings", forget_firings),
            forget_jobs=None if forget_jobs is None else duration("forget_jobs", forget_jobs),
        )
        if archive is not None and not isinstance(archive, str | os.PathLike):
            raise InvalidInput(f"prune: archive is the path of a folder, not a value of type {type_name(archive)}.")
        if told is not None and not callable(told):
            raise InvalidInput(f"prune: told is a function, not a value of type {type_name(told)}.")
        arguments.flag("prune: dry_run", dry_run)
        folder = None if archive is None else Path(archive)
        size = arguments.whole("prune: batch", batch, 1, MOST_AT_ONCE)
        return await retention.prune(
            self.transactor,
            policy,
            tenant=self.tenant,
            folder=folder,
            dry_run=dry_run,
            batch=size,
            told=told or (lambda pruned: None),
        )

    # -- decisions ---------------------------------------------------------------------------------------------------
    async def approve(
        self,
        run_id: str,
        step: str | None = None,
        *,
        comment: str = "",
        evidence: Sequence[str] = (),
        for_: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Approve an open gate; `step` may be left out when exactly one is open.

        A gate with a quorum counts the decision: `counted` and `needs` of the answer say how it stands. `for_` names
        the person who delegated the decision; `evidence` are references that are kept with it.
        """
        return await self._decide(run_id, step, comment, evidence, for_, by, approve=True)

    async def reject(
        self,
        run_id: str,
        step: str | None = None,
        *,
        comment: str = "",
        evidence: Sequence[str] = (),
        for_: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Reject an open gate; `step` may be left out when exactly one is open.

        A gate with a quorum counts the decision: `counted` and `needs` of the answer say how it stands. `for_` names
        the person who delegated the decision; `evidence` are references that are kept with it.
        """
        return await self._decide(run_id, step, comment, evidence, for_, by, approve=False)

    async def _decide(
        self,
        run_id: str,
        step: str | None,
        comment: str,
        evidence: Sequence[str],
        for_: str | None,
        by: str | None,
        *,
        approve: bool,
    ) -> dict[str, Any]:
        accepted = await people.decide_gate(
            self.transactor,
            validate.run_id(run_id),
            approve=approve,
            tenant=self.tenant,
            **self._acting(by),
            step=step,
            comment=comment,
            on_behalf_of=for_,
            evidence=tuple(arguments.items("evidence", evidence)),
        )
        return people.record_of(accepted)

    async def decide(
        self, run_id: str, step: str, choice: str, *, reason: str = "", output: Any = None, by: str | None = None
    ) -> dict[str, Any]:
        """Decide about a step that is stuck: `"retry"`, `"skip"`, `"fail"` or `"complete"`, which takes an `output`.

        It holds because no attempt is left, or it waits for its next attempt, a worker or a message. Only a step that
        holds by its definition needs no reason.
        """
        accepted = await people.decide_hold(
            self.transactor,
            validate.run_id(run_id),
            step,
            choice,
            tenant=self.tenant,
            **self._acting(by),
            reason=reason,
            output=None if output is None else encode_payload(output),
        )
        return people.record_of(accepted)

    async def complete(
        self,
        run_id: str,
        step: str,
        *,
        token: str,
        outcome: str = "Succeeded",
        output: Any = None,
        notes: str = "",
        evidence: Sequence[str] = (),
        claim: Mapping[str, Any] | None = None,
        for_: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Complete a manual step by hand, with the token that was issued for it.

        `claim` is what the signal says about itself (`actorUserId`, `completedAtIso`): kept and shown, never trusted.
        """
        accepted = await people.complete(
            self.transactor,
            validate.run_id(run_id),
            step,
            token=token,
            outcome=outcome,
            tenant=self.tenant,
            **self._acting(by),
            output=None if output is None else encode_payload(output),
            notes=notes,
            evidence=tuple(arguments.items("complete: evidence", evidence)),
            claim=None if claim is None else encode_payload(dict(arguments.mapping("complete: claim", claim))),
            on_behalf_of=for_,
        )
        return people.record_of(accepted)

    async def reissue_token(self, run_id: str, step: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Give a manual step a new completion token in place of a lost one; the old one is useless from then on.

        `token` of the answer is the new one. It is shown once and kept nowhere. The deadline of the step stays.
        """
        token = Runtime().token()
        accepted = await people.reissue_token(
            self.transactor,
            validate.run_id(run_id),
            step,
            token=token,
            reason=reason,
            tenant=self.tenant,
            **self._acting(by),
        )
        return {**people.record_of(accepted), "token": token}

    async def send(
        self,
        run_id: str | None = None,
        name: str = "",
        payload: Any = None,
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        start: Runnable | None = None,
        input: Any = None,  # noqa: A002 - the word users know
        idempotency_key: str | None = None,
        ttl: Duration | None = None,
        message_id: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Send a message to a run: by its id, its business key or its correlation id. It is kept until a step waits
        for it; one by business key also until a run has the key. With `start`, a run is started if none has it."""
        one_target(run_id, key, correlation_id)
        goes_with_key(key, start=start, ttl=ttl)
        if start is None and (input is not None or idempotency_key is not None):
            raise InvalidInput("send: input and idempotency_key go with start=, the workflow to start.")
        if key is not None:
            return await self._send_by_key(key, name, payload, start, input, idempotency_key, ttl, message_id, by)
        if correlation_id is not None:
            run_id = await correlated_run(self.store, correlation_id, tenant=self.tenant)
        accepted = await people.send(
            self.transactor,
            validate.run_id(run_id),
            name,
            encode_payload(payload),
            tenant=self.tenant,
            **self._acting(by),
            message_id=message_id,
        )
        return await self._sent({**people.record_of(accepted), "run_id": run_id})

    async def _send_by_key(
        self,
        key: str,
        name: str,
        payload: Any,
        start: Runnable | None,
        given: Any,
        idempotency_key: str | None,
        ttl: Duration | None,
        message_id: str | None,
        by: str | None,
    ) -> dict[str, Any]:
        request = None
        acting = self._acting(by)
        if start is not None:
            self.access.require(Scope.START, operation="send with start")
            request = StartRequest(
                plan=await self._plan(start),
                names_version=_names_version(start),
                tenant=self.tenant,
                **acting,
                input=encode_payload({} if given is None else given),
                business_key=validate.key("the business key", key),
                idempotency_key=optional_key("the idempotency key", idempotency_key),
                scope=self._scope(),
            )
        sent = await self._key_sender.send(
            key,
            name,
            encode_payload(payload),
            tenant=self.tenant,
            actor=acting["actor"],
            vouched_by=acting["vouched_by"],
            api_key=acting["key"],
            message_id=message_id,
            ttl=None if ttl is None else microseconds(ttl, what="send: ttl", bounds=MESSAGE_TTL),
            start=request,
        )
        return await self._sent(sent.record())

    async def _sent(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record of a message, with the name of the step that took it."""
        if record.get("consumed_by") is not None:
            plan = await plans.plan_of(self.transactor, self.tenant, record["run_id"])
            record["consumed_by"] = plan.at(record["consumed_by"]).name
        return record

    async def cancel(
        self, run_id: str, *, compensate: bool = False, reason: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """End a run; with `compensate`, what it did is undone first."""
        accepted = await people.cancel(
            self.transactor,
            validate.run_id(run_id),
            tenant=self.tenant,
            **self._acting(by),
            compensate=arguments.flag("cancel: compensate", compensate),
            reason=reason,
        )
        return people.record_of(accepted)

    async def pause(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more of a run until it is resumed. What is in flight settles; deadlines and the timeout of the
        run go on."""
        accepted = await pausing.pause_run(
            self.transactor, validate.run_id(run_id), tenant=self.tenant, **self._acting(by), reason=reason
        )
        return people.record_of(accepted)

    async def resume(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Go on with a paused run."""
        accepted = await pausing.resume_run(
            self.transactor, validate.run_id(run_id), tenant=self.tenant, **self._acting(by), reason=reason
        )
        return people.record_of(accepted)

    async def rollback_preview(self, run_id: str) -> dict[str, Any]:
        """What a cancel with `compensate` would undo now, in which order, and what it cannot undo and why."""
        return await rollback.rollback_preview(self.transactor, validate.run_id(run_id), tenant=self.tenant)

    async def quarantine(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Quarantine a run, readable or not: nothing claims, changes or deletes it until it is released. A reason is
        required."""
        return await quarantines.quarantine(
            self.transactor, run_id, tenant=self.tenant, actor=self._actor(by), reason=reason
        )

    async def release(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """End a run's quarantine; it continues where it was."""
        return await quarantines.release(
            self.transactor, run_id, tenant=self.tenant, actor=self._actor(by), reason=reason
        )

    async def quarantined(self, *, history: bool = False) -> dict[str, Any]:
        """The quarantined runs; with `history` every quarantine, ended ones included."""
        return await quarantines.quarantined(
            self.transactor, tenant=self.tenant, history=arguments.flag("quarantined: history", history)
        )

    async def publish_policy(self, policy: str | Path | Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Publish a policy, a file or a mapping, as the next revision of the tenant. Its cases must hold."""
        from stepkeep.definition.policy import publishable_policy

        document = publishable_policy(policy)
        return await policies.publish_policy(self.transactor, document, tenant=self.tenant, actor=self._actor(by))

    async def policy_off(self, *, by: str | None = None) -> dict[str, Any]:
        """Publish a revision without rules: only the rules of definitions count from then on."""
        return await policies.publish_policy(self.transactor, policies.OFF, tenant=self.tenant, actor=self._actor(by))

    async def list_policies(self) -> dict[str, Any]:
        """The revisions of the tenant's policy, newest first."""
        return await policies.list_policies(self.transactor, tenant=self.tenant)

    async def show_policy(self, revision: int | None = None) -> dict[str, Any]:
        """A revision of the tenant's policy with its rules; without a number, the newest."""
        return await policies.show_policy(self.transactor, revision, tenant=self.tenant)

    async def replay_policy(self, run_id: str) -> dict[str, Any]:
        """Evaluate every verdict of a run again, by the facts and the revisions on record."""
        return await policies.replay_policy(self.transactor, validate.run_id(run_id), tenant=self.tenant)

    async def rerun(
        self,
        run_id: str,
        *,
        input: Any = None,  # noqa: A002 - the word users know
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Started:
        """A new run of the same definition and input (or another input) that names the old one."""
        return await rerun(
            self.transactor,
            self._starter,
            validate.run_id(run_id),
            tenant=self.tenant,
            **self._acting(by),
            given=None if input is None else encode_payload(input),
            idempotency_key=optional_key("the idempotency key", idempotency_key),
            scope=self._scope(),
        )

    def _scope(self) -> str:
        """Whose idempotency keys this engine uses."""
        return self.access.key_scope if self._key_scope is None else self._key_scope

    def _acting(self, by: str | None) -> Acting:
        """The actor, and this engine's own one where it vouches for another."""
        return self.access.acting(optional_key("by", by))

    def _actor(self, by: str | None) -> str:
        """The name on record: the person that the host program names, or the engine's own actor."""
        return self._acting(by)["actor"]
