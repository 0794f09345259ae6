"""The engine's part that starts runs, works on them here and waits for them.

It calls operations and workers of this process, and decides nothing. `AsyncEngine` inherits it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from stepkeep.definition import arguments
from stepkeep.definition.bounds import START_DELAY
from stepkeep.definition.native.lint import may_skip
from stepkeep.definition.python.registry import Output
from stepkeep.definition.python.retry import Duration, microseconds
from stepkeep.engine.arguments import encode_labels, encode_payload, moment, optional_key
from stepkeep.engine.definitions import AsyncDefinitions, Runnable, names_version
from stepkeep.engine.hosted import Ability, AsyncHostedWorker, Begin, WorkerOptions
from stepkeep.engine.reading import AsyncReading
from stepkeep.engine.result import Result, settled_states, typed
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.access import START
from stepkeep.operations.answers import says
from stepkeep.operations.continuation.going_on import rerun
from stepkeep.operations.continuation.successors import successor_of
from stepkeep.operations.delivery.run_webhooks import require_released
from stepkeep.operations.logs import retention
from stepkeep.operations.operation import Actor, IdempotencyKey, RunId, group, operation
from stepkeep.operations.pipeline import plans
from stepkeep.operations.pipeline.start import IdleStarted, Started, StartedHere, StartRequest, start_idle
from stepkeep.operations.runs.own_run import OwnRun, lacking_of, leased_elsewhere
from stepkeep.operations.runs.waiting import RunResult
from stepkeep.store.callers import callers_transaction

if TYPE_CHECKING:
    from stepkeep.worker.loop import Worker

log = logging.getLogger("stepkeep.engine")

LONGEST_WAIT = 10 * 365 * 86_400


OtherInput = Annotated[Any, says("Another input; that of the old run by default.")]


class RunOptions(TypedDict, total=False):
    """What a new run may have besides its input; `start` describes it."""

    idempotency_key: str | None
    business_key: str | None
    correlation_id: str | None
    priority: int | None
    start_now: bool
    labels: dict[str, str] | None
    by: str | None


class StartOptions(RunOptions, total=False):
    """And when it starts."""

    at: datetime | None
    delay: Duration | None


@group("", "Runs")
class AsyncStarting(AsyncDefinitions, AsyncReading):
    """Starting runs, working on them here, and waiting for them."""

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
        """Create a run and, unless `start_now` is False, start it: now, `at` a moment or after a `delay`.

        Workers do the rest. A run that starts later is idle until then; it can be cancelled, and `start_idle` starts it
        at once. Its timeout counts from its start.

        The same `idempotency_key` again returns the same run. At most one live run has a `business_key`. `by` names
        the person in whose name the program starts it; the engine's `actor` is on record without it.

        With `connection`, the run starts in the caller's own transaction: both are committed, or neither. It is an open
        connection to the engine's database: of apsw on SQLite, of psycopg or SQLAlchemy on PostgreSQL, and in an
        AsyncEngine also of asyncpg. Publish the workflow before the transaction begins.

        When the run has ended, workers post `{run_id, status, finished_at}` to `webhook_url`, at least once.
        `webhook_secret` names the secret of the workers whose HMAC-SHA256 is in `X-Signature`.

        >>> first = engine.start(hello, {"name": "Ada"}, idempotency_key="greeting-1", by="bea")
        >>> again = engine.start(hello, {"name": "Ada"}, idempotency_key="greeting-1")
        >>> (first.created, again.created, first.run_id == again.run_id)
        (True, False, True)
        >>> later = engine.start(hello, {"name": "Ada"}, delay="2h")
        >>> print(engine.show(later.run_id).run.state)
        idle
        """
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

    async def _prepare_start(
        self,
        workflow: Runnable,
        input: Any = None,  # noqa: A002 - the word users know
        **options: Any,
    ) -> StartRequest:
        """What `start` does before it uses the caller's connection, for a thread without an event loop."""

        async def prepare() -> StartRequest:
            await require_released(self.store, self.access, options.get("webhook_secret"))
            return await self._starter.reduced(
                self._request(workflow, await self._published(workflow), input, **options)
            )

        return await self.access.admitted("start", (workflow, input), options, prepare)

    def _request(
        self,
        workflow: Runnable,
        plan: Plan,
        given: Any,
        webhook_url: str | None = None,
        webhook_secret: str | None = None,
        **options: Unpack[StartOptions],
    ) -> StartRequest:
        labels, at, delay = options.get("labels"), options.get("at"), options.get("delay")
        request = StartRequest(
            plan=plan,
            names_version=names_version(workflow),
            caller=self._caller(options.get("by")),
            input=encode_payload({} if given is None else given),
            idempotency_key=optional_key("the idempotency key", options.get("idempotency_key")),
            scope=self._scope(),
            business_key=optional_key("the business key", options.get("business_key")),
            correlation_id=optional_key("the correlation id", options.get("correlation_id")),
            priority=options.get("priority"),
            start_now=arguments.flag("start: start_now", options.get("start_now", True)),
            labels=None if labels is None else encode_labels(labels),
            start_at=moment("start: at", at),
            start_delay=None if delay is None else microseconds(delay, what="start: delay", bounds=START_DELAY),
        )
        if webhook_url is None and webhook_secret is None:
            return request
        return msgspec.structs.replace(request, webhook_url=webhook_url, webhook_secret=webhook_secret)

    async def _in_callers_transaction(self, connection: Any, request: StartRequest) -> Started:
        return await self._starter.start_in(await callers_transaction(self.store, connection), request)

    @operation(START, "POST /runs/{run_id}/start", "start_run", "Start an idle run")
    async def start_idle(self, run_id: RunId, *, by: Actor = None) -> IdleStarted:
        """Start a run that was created idle.

        >>> idle = engine.start(hello, {"name": "Ada"}, start_now=False)
        >>> print(engine.start_idle(idle.run_id).state)
        queued
        """
        return await start_idle(self.transactor, validate.run_id(run_id), caller=self._caller(by))

    async def run(
        self,
        workflow: Runnable[Output],
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
    ) -> Result[Output]:
        """Start a run and work on it here until it ends, or until only people or messages can change it.

        With an `idempotency_key`, a program that was killed goes on with the same run when it is started again: steps
        that have succeeded do not run again. With `check`, a run that has not succeeded raises RunNotSucceeded.
        A step that needs a capability runs here only if `capabilities` has it. `lacking` of the result has the others.
        If a flow continues as new, so does the work, and the result is that of the last run.

        >>> engine.run(hello, {"name": "Ada"}, idempotency_key="job-1", check=True).output
        'Hello, Ada'
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
            result = typed(await self._followed(await self._be_worker(started.run_id, capabilities=has), has), workflow)
            return result.raise_for_state() if check else result
        request = await self._starter.reduced(request)

        async def begin(worker: Worker) -> StartedHere:
            async with self._starter.quotas.reserve(request.caller, request.run_id) as created:
                begun = await self._starter.start_here(request, worker.first_claimer(), worker.note_unconfirmed)
                created(begun.started.run_id)
            await retention.require_kept(self.store, begun.started, tenant=self.tenant)
            return begun

        result = await self._execute(begin, settled_states(until_blocked=True), request.plan, capabilities=has)
        result = typed(await self._followed(result, has), workflow)
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

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> print(engine.work_on(started.run_id).state)
        succeeded
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
            report=lambda said: log.warning(
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

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.wait(started.run_id, seconds=0).finished
        False
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

    async def start_worker(self, **options: Unpack[WorkerOptions]) -> AsyncHostedWorker:
        """Start a worker in this process and return once it has registered; `close` stops it.

        It also archives ended runs of workflows that declare it.

        >>> worker = engine.start_worker(concurrency=8)
        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.wait(started.run_id).output
        'Hello, Ada'
        >>> worker.stop()
        """
        from stepkeep.worker.chores.archives import archiving

        hosted = AsyncHostedWorker(self.worker(**options), archiving(self.transactor, tenant=self.tenant))
        await hosted.begin()
        self._hosted = [*(one for one in self._hosted if one.is_running), hosted]
        return hosted

    async def serve(self, *, signals: bool = True, **options: Unpack[WorkerOptions]) -> None:
        """Be a worker until SIGTERM or SIGINT arrives (with `signals`), then drain and return.

        A second signal hands running steps back at once. Signals arrive in the main thread only: elsewhere pass
        `signals=False` and close the engine from another thread.

        >>> import threading
        >>> stopping = threading.Timer(0.2, engine.close)
        >>> stopping.start()
        >>> engine.serve(signals=False)
        >>> stopping.join()
        """
        await self.worker(**options).serve(signals=arguments.flag("serve: signals", signals))

    @operation(
        START,
        "POST /runs/{run_id}/rerun",
        "rerun_run",
        "Run a finished run again",
        creates="/runs/{run_id}",
        agents="changes",
    )
    async def rerun(
        self,
        run_id: RunId,
        *,
        input: OtherInput = None,  # noqa: A002 - the word users know
        idempotency_key: IdempotencyKey = None,
        by: Actor = None,
    ) -> Started:
        """A new run of the same definition and input, or of another input, that names the old one (`rerun_of`).

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.work_on(engine.rerun(done.run_id, input={"name": "Bo"}).run_id).output
        'Hello, Bo'
        """
        return await rerun(
            self.transactor,
            self._starter,
            validate.run_id(run_id),
            caller=self._caller(by),
            given=None if input is None else encode_payload(input),
            idempotency_key=optional_key("the idempotency key", idempotency_key),
            scope=self._scope(),
        )
