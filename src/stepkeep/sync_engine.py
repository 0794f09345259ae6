"""The engine for programs without an event loop, and for notebooks: the methods of `AsyncEngine`, called and awaited.

Every call runs on a loop in a thread of its own, so that any thread may make it, one that runs a loop included. It has
no logic of its own: each method calls the one of the same name. `stepkeep.open` creates it.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from stepkeep.definition.retry import Duration
from stepkeep.engine import AsyncEngine, Runnable
from stepkeep.errors import InvalidInput, StoreUnavailable
from stepkeep.hosted import HostedWorker, WorkerOptions
from stepkeep.loop_thread import LoopThread, end_tasks
from stepkeep.operations import retention
from stepkeep.operations.start import Started
from stepkeep.result import Result
from stepkeep.store.callers import run_here
from stepkeep.sync_administration import Audit, Keys, Tenants, Users
from stepkeep.sync_continuations import Continuations
from stepkeep.sync_execution_slots import Slots
from stepkeep.sync_interventions import Interventions
from stepkeep.sync_jobs import Jobs
from stepkeep.sync_messages import Mailbox
from stepkeep.sync_migrations import Migrations
from stepkeep.sync_outside import Hooks, Network
from stepkeep.sync_pauses import Pauses
from stepkeep.sync_sending import Outbox, Sinks
from stepkeep.sync_step_resources import Resources

if TYPE_CHECKING:
    from stepkeep.conformance.certificate import Certificate
    from stepkeep.definition.registry import Registry
    from stepkeep.kernel.plan import Plan
    from stepkeep.kernel.states import RunState
    from stepkeep.operations.codec import PayloadCodec
    from stepkeep.operations.payloads import PayloadStore
    from stepkeep.worker.executors.command import CommandPolicy
    from stepkeep.worker.executors.http import HttpPolicy
    from stepkeep.worker.pools.handler_loop import Lifespan
    from stepkeep.worker.secrets import Given, Secrets
from stepkeep.sync_triggers import Triggers
from stepkeep.sync_versions import Versions

T = TypeVar("T")
GRACE_AT_EXIT_SECONDS = 5.0
DEFAULT_URL = "sqlite:///.stepkeep/stepkeep.db"


class EngineOptions(TypedDict, total=False):
    """The options of an engine; `AsyncEngine` describes them."""

    tenant: str
    actor: str | None
    key: str | None
    registry: Registry | None
    http: HttpPolicy | None
    commands: CommandPolicy | None
    process_memory_bytes: int | None
    secrets: Secrets | Given | None
    payload_store: PayloadStore | None
    payload_codec: PayloadCodec | None
    max_payload_bytes: int
    wait_for_database: bool
    auto_migrate: bool | None
    dev: bool
    lifespan: Lifespan | None


class Engine:
    """A database and everything one can do with it, for programs without an event loop.

    It connects when it is first used, and stays open until `close`, the end of its `with` block, or the end of the
    program. Many threads may share one. Open it after a fork, not before: the child of a fork cannot use it.

    >>> engine.run(hello, {"name": "Ada"}).output
    'Hello, Ada'
    """

    def __init__(self, url: str | os.PathLike[str] = DEFAULT_URL, **options: Unpack[EngineOptions]) -> None:
        self._core = AsyncEngine(url, **options)
        self._guard = threading.Lock()
        self._thread: LoopThread | None = None
        self._is_closed = False
        self._is_entered = False

    # -- life --------------------------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        if self._is_entered:
            raise InvalidInput("the engine is open already; every `with` needs an engine of its own")
        self.open()
        self._is_entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(grace=None if kind is None else 0)

    def open(self) -> None:
        """Connect to the database now.

        Every method does so when it is first called.

        >>> engine.open()
        """
        with self._guard:
            if self._thread is not None:
                return
            thread = LoopThread()
            try:
                thread.call(self._core.open())
            except BaseException:
                thread.end()
                raise
            self._thread, self._is_closed = thread, False
            _open_engines.add(self)

    def close(self, *, grace: float | None = None) -> None:
        """Stop the workers that this engine started, then close the database.

        Running handlers may finish within `grace` seconds; by default within the grace period of their worker.

        >>> engine.close()
        """
        with self._guard:
            thread, self._thread = self._thread, None
            self._is_closed, self._is_entered = True, False
        # In the child of a fork the connections belong to the parent process, which closes them.
        if thread is None or thread.is_inherited:
            return
        try:
            thread.call(self._core.stop_workers(grace))
            thread.call(end_tasks())
            thread.call(self._core.close())
        finally:
            thread.end()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and not thread.is_inherited:
            warnings.warn(f"the engine {self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            thread.end_after(self._core.close(grace=0))

    def __repr__(self) -> str:
        return f"<stepkeep.Engine on {self._core.store.url}>"

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        thread = self._thread
        if thread is None:
            try:
                thread = self._open_first()
            except BaseException:
                work.close()
                raise
        return thread.call(work)

    def _open_first(self) -> LoopThread:
        """Open an engine that was never open: a closed one stays closed, so that no late call opens it again."""
        if self._is_closed:
            raise StoreUnavailable("the engine is closed. Open another one: stepkeep.open(url)")
        self.open()
        thread = self._thread
        if thread is None:
            raise StoreUnavailable("the engine was closed while this call was under way")
        return thread

    # -- people ------------------------------------------------------------------------------------------------------
    @property
    def tenants(self) -> Tenants:
        """Tenants and their settings."""
        return Tenants(self._core.tenants, self._call)

    @property
    def users(self) -> Users:
        """Users and services: their roles, groups and delegations."""
        return Users(self._core.users, self._call)

    @property
    def keys(self) -> Keys:
        """API keys."""
        return Keys(self._core.keys, self._call)

    @property
    def audit(self) -> Audit:
        """What was asked for, by whom, and what came of it."""
        return Audit(self._core.audit, self._call)

    @property
    def network(self) -> Network:
        """What HTTP steps of the tenant may reach on the internal network."""
        return Network(self._core.network, self._call)

    @property
    def interventions(self) -> Interventions:
        """What people do to a run besides deciding: request changes, escalate, freeze, annotate."""
        return Interventions(self._core.interventions, self._call)

    @property
    def slots(self) -> Slots:
        """Limits on running runs, of the tenant and of workflows."""
        return Slots(self._core.slots, self._call)

    @property
    def resources(self) -> Resources:
        """What steps hold while they run, and the sizes of pools."""
        return Resources(self._core.resources, self._call)

    @property
    def pauses(self) -> Pauses:
        """Pauses of queues, of workflows and of the whole tenant."""
        return Pauses(self._core.pauses, self._call)

    @property
    def hooks(self) -> Hooks:
        """Inbound webhooks that become messages or starts of runs."""
        return Hooks(self._core.hooks, self._call)

    @property
    def continuations(self) -> Continuations:
        """New runs that go on with finished ones: retry, rerun from a step, fork."""
        return Continuations(self._core.continuations, self._call)

    @property
    def migrations(self) -> Migrations:
        """Live runs that go on under another version of their workflow."""
        return Migrations(self._core.migrations, self._call)

    @property
    def jobs(self) -> Jobs:
        """Actions on many runs at once, and backfills."""
        return Jobs(self._core.jobs, self._call)

    @property
    def mailbox(self) -> Mailbox:
        """Messages that are kept for runs that do not exist yet."""
        return Mailbox(self._core.mailbox, self._call)

    @property
    def sinks(self) -> Sinks:
        """Where events go."""
        return Sinks(self._core.sinks, self._call)

    @property
    def outbox(self) -> Outbox:
        """Events that are not delivered yet."""
        return Outbox(self._core.outbox, self._call)

    @property
    def triggers(self) -> Triggers:
        """What starts runs by itself: schedules, events, and the ends of other runs."""
        return Triggers(self._core.triggers, self._call)

    @property
    def versions(self) -> Versions:
        """Withdraws published versions of workflows, and restores them."""
        return Versions(self._core.versions, self._call)

    # -- definitions -------------------------------------------------------------------------------------------------
    def publish(self, workflow: Runnable) -> Plan:
        """Publish a workflow, or return the published one; a plain name finds the highest published version.

        >>> engine.publish(hello).definition.name
        'hello'
        """
        return self._call(self._core.publish(workflow))

    # -- runs --------------------------------------------------------------------------------------------------------
    def publish_schema(self, ref: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Publish a JSON Schema, to which definitions refer with `{ref: NAME}`. A published schema never changes.

        >>> engine.publish_schema("invoice/v1", {"type": "object", "required": ["id"]})["schema"]["ref"]
        'invoice/v1'
        """
        return self._call(self._core.publish_schema(ref, schema))

    def schemas(self) -> dict[str, Any]:
        """Published schemas by reference.

        >>> published = engine.publish_schema("order/v1", {"type": "object"})
        >>> "order/v1" in [one["ref"] for one in engine.schemas()["schemas"]]
        True
        """
        return self._call(self._core.schemas())

    def schema(self, ref: str) -> dict[str, Any]:
        """One published schema with its document.

        >>> published = engine.publish_schema("order/v1", {"type": "object"})
        >>> engine.schema("order/v1")["schema"]["document"]
        {'type': 'object'}
        """
        return self._call(self._core.schema(ref))

    def start(
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
        >>> print(engine.show(later.run_id)["run"]["state"])
        idle
        """
        options: dict[str, Any] = {
            "idempotency_key": idempotency_key,
            "business_key": business_key,
            "correlation_id": correlation_id,
            "priority": priority,
            "start_now": start_now,
            "labels": labels,
            "by": by,
            "at": at,
            "delay": delay,
            "webhook_url": webhook_url,
            "webhook_secret": webhook_secret,
        }
        if connection is None:
            return self._call(self._core.start(workflow, input, **options))
        # The engine's thread prepares the start; the caller's thread makes it, because drivers bind connections to it.
        request = self._call(self._core._prepare_start(workflow, input, options))
        return run_here(connection, self._core._in_callers_transaction(connection, request))

    def start_idle(self, run_id: str, *, by: str | None = None) -> dict[str, Any]:
        """Start a run that was created idle.

        >>> idle = engine.start(hello, {"name": "Ada"}, start_now=False)
        >>> print(engine.start_idle(idle.run_id)["state"])
        queued
        """
        return self._call(self._core.start_idle(run_id, by=by))

    def run(
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

        With an `idempotency_key`, a program that was killed goes on with the same run when it is started again: steps
        that have succeeded do not run again. With `check`, a run that has not succeeded raises RunNotSucceeded.
        A step that needs a capability runs here only if `capabilities` has it. `lacking` of the result has the others.

        >>> engine.run(hello, {"name": "Ada"}, idempotency_key="job-1", check=True).output
        'Hello, Ada'
        """
        return self._with_view(
            self._core.run(
                workflow,
                input,
                idempotency_key=idempotency_key,
                business_key=business_key,
                correlation_id=correlation_id,
                priority=priority,
                start_now=start_now,
                labels=labels,
                by=by,
                check=check,
                capabilities=capabilities,
            )
        )

    def work_on(
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
        return self._with_view(
            self._core.work_on(
                run_id,
                concurrency=concurrency,
                until_blocked=until_blocked,
                serve_all=serve_all,
                capabilities=capabilities,
            )
        )

    def wait(self, run_id: str, *, seconds: float | None = None, until_blocked: bool = False) -> Result:
        """Wait until a run has ended (or, with `until_blocked`, is blocked). Any worker may run it.

        A run that only sleeps is not blocked. After `seconds`, the current state is returned: check `finished`.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.wait(started.run_id, seconds=0).finished
        False
        """
        return self._with_view(self._core.wait(run_id, seconds=seconds, until_blocked=until_blocked))

    def _with_view(self, work: Coroutine[Any, Any, Result]) -> Result:
        """A result that reads its view when it is asked for."""
        found = self._call(work)
        return found if found.loaded is not None else replace(found, load=partial(self.show, found.run_id))

    def start_worker(self, **options: Unpack[WorkerOptions]) -> HostedWorker:
        """Start a worker in this process and return once it has registered; `close` stops it.

        It also archives ended runs of workflows that declare it.

        >>> worker = engine.start_worker(concurrency=8)
        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.wait(started.run_id).output
        'Hello, Ada'
        >>> worker.stop()
        """
        hosted = self._call(self._core.start_worker(**options))
        thread = self._thread
        if thread is None:
            raise StoreUnavailable("the engine was closed while its worker started")
        return HostedWorker(hosted, thread)

    def stop_workers(self, grace: float | None = None) -> None:
        """Stop the workers that `start_worker` has started, and wait until they have ended.

        >>> worker = engine.start_worker()
        >>> engine.stop_workers(grace=5)
        >>> worker.is_running
        False
        """
        self._call(self._core.stop_workers(grace))

    def serve(self, *, signals: bool = True, **options: Unpack[WorkerOptions]) -> None:
        """Be a worker until SIGTERM or SIGINT arrives (with `signals`), then drain and return.

        A second signal hands running steps back at once. Signals arrive in the main thread only: elsewhere pass
        `signals=False` and close the engine from another thread.

        >>> import threading
        >>> stopping = threading.Timer(0.2, engine.close)
        >>> stopping.start()
        >>> engine.serve(signals=False)
        >>> stopping.join()
        """
        if signals and threading.current_thread() is not threading.main_thread():
            raise InvalidInput(
                "serve: signals arrive in the main thread only. Call serve there, or pass signals=False."
            )
        with _StopSignals() if signals else nullcontext() as arriving:
            try:
                worker = self.start_worker(**options)
            except StoreUnavailable:
                if self._is_closed:
                    return  # closed before the worker had started
                raise
            if arriving is None:
                with worker:
                    worker.wait()
            else:
                arriving.stop(worker)
                worker.wait()

    def result(self, run_id: str) -> Result:
        """The current state of a run.

        >>> started = engine.start(order, {"amount": 10})
        >>> print(engine.work_on(started.run_id).waiting_for[0]["step"])
        sign-off
        >>> print(engine.result(started.run_id).state)
        blocked
        """
        return self._call(self._core.result(run_id))

    def show(
        self, run_id: str, *, as_: str | None = None, step: str | None = None, at: int | datetime | None = None
    ) -> dict[str, Any]:
        """Everything about a run, in canonical names or in the shape of a dialect.

        With `step`, that step alone, with the evidence of its attempts: traceback, inputs given, log lines. With `at`,
        the run as it stood after that entry of its journal, or at that time, told from the journal alone.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> for step in engine.show(done.run_id)["steps"]:
        ...     print(step["name"], step["state"])
        greet succeeded
        >>> engine.show(done.run_id, at=1)["run"]["state"]
        'queued'
        """
        return self._call(self._core.show(run_id, as_=as_, step=step, at=at))

    def explain(self, what: str, step: str | None = None) -> dict[str, Any]:
        """Why a run (or one of its steps), a queue or a worker does not move, and the command that moves it.

        `causes` is the chain, most urgent first: each has a `code`, a `sentence`, `since`, `until` and a `command`.
        `stuck` is True only where no transition is enabled at all.

        >>> started = engine.start(hello, {"name": "Ada"}, start_now=False)
        >>> engine.explain(started.run_id)["causes"][0]["code"]
        'not_started'
        """
        return self._call(self._core.explain(what, step))

    def approvals(
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

        >>> waiting = engine.run(order, {"amount": 30})
        >>> [(one["step"], one["may_decide"]) for one in engine.approvals(by="bea")["approvals"]]
        [('sign-off', True)]
        >>> engine.reject(waiting.run_id, by="bea")["decision"]
        'rejected'
        """
        return self._call(self._core.approvals(mine=mine, late=late, after=after, limit=limit, by=by))

    def status(self, *, window: str = "1h") -> dict[str, Any]:
        """The whole system in numbers: runs by state, queues, failures by category, workers, late timers.

        Runs are counted by state up to 200,000; of more, the parts are estimated from a sample (`is_estimate`). A
        total without `is_complete` is a lower bound. `window` says how far back failures and recent runs are counted.
        `problems` lists in sentences what needs attention.

        >>> engine.status()["status"]["stuck_runs"]
        []
        """
        return self._call(self._core.status(window=window))

    def statistics(self, *, window: str = "24h") -> dict[str, Any]:
        """How the newest runs went: how many over time, how long they took, failures, slow steps, the backlog's age.

        Of more than 5,000 runs within `window`, a sample is looked at, and its numbers are scaled (`is_estimate`).

        >>> engine.statistics(window="1h")["statistics"]["runs"]["is_complete"]
        True
        """
        return self._call(self._core.statistics(window=window))

    def metrics(self) -> str:
        """The metrics of this process in the text format of Prometheus, for an endpoint of the host program.

        Counting begins with the first call. It needs the extra `server`; docs/observing.md has every name.

        >>> "step_retries_total 0.0" in engine.metrics()
        True
        """
        return self._call(self._core.metrics())

    def definitions(self, *, name: str | None = None) -> dict[str, Any]:
        """Published workflows with their versions, by name and version.

        >>> _ = engine.publish(hello)
        >>> [(one["workflow"], one["version"]) for one in engine.definitions()["definitions"]]
        [('hello', 1)]
        """
        return self._call(self._core.definitions(name=name))

    def compare_versions(self, workflow: str, old: int, new: int, *, live: bool = False) -> dict[str, Any]:
        """What differs between two versions of a workflow, and what it means for runs of the old one.

        With `live`, also how many of its live runs could continue under the new version, and why others could not.

        >>> _ = engine.publish(hello)
        >>> engine.compare_versions("hello", 1, 1)["same"]
        True
        """
        return self._call(self._core.compare_versions(workflow, old, new, live=live))

    def compare_runs(self, first: str, second: str) -> dict[str, Any]:
        """What differs between two runs: states, errors, outputs, attempts and costs, step by step.

        >>> one, other = (engine.run(hello, {"name": name}).run_id for name in ("Ada", "Bea"))
        >>> [difference["field"] for difference in engine.compare_runs(one, other)["run"]]
        ['input', 'output']
        """
        return self._call(self._core.compare_runs(first, second))

    def workers(self, *, live_only: bool = True) -> dict[str, Any]:
        """What each worker serves and how much it holds.

        >>> engine.workers()
        {'workers': []}
        """
        return self._call(self._core.workers(live_only=live_only))

    def runs(
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

        >>> done = engine.run(hello, {"name": "Ada"}, correlation_id="customer-7")
        >>> [run["id"] == done.run_id for run in engine.runs(correlation_id="customer-7")["runs"]]
        [True]
        """
        return self._call(
            self._core.runs(
                state=state,
                workflow=workflow,
                business_key=business_key,
                correlation_id=correlation_id,
                labels=labels,
                since=since,
                until=until,
                error=error,
                text=text,
                before=before,
                limit=limit,
                as_=as_,
            )
        )

    def log(self, run_id: str, *, as_: str | None = None) -> list[bytes]:
        """The run's exported log, in canonical names or in a dialect. Its first line holds the definition.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> b"run_state_transition" in engine.log(done.run_id)[1]
        True
        """
        return self._call(self._core.log(run_id, as_=as_))

    def certify(self, run_id: str) -> Certificate:
        """The judge's certificate of a run: its journal, its log in every dialect, its definition and payloads.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.certify(done.run_id).ok
        True
        """
        return self._call(self._core.certify(run_id))

    def evidence(self, run_id: str, *, signing_key: str | Path | None = None, payloads: bool = True) -> bytes:
        """The evidence pack of a finished run: an archive that an auditor can verify without Stepkeep.

        `signing_key` names the file of a signing key: the head of the run and the pack are signed with it. Without
        `payloads`, inputs and outputs are left out; their digests in the journal remain.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.evidence(done.run_id)[:2]
        b'PK'
        """
        return self._call(self._core.evidence(run_id, signing_key=signing_key, payloads=payloads))

    def sign_heads(self, signing_key: str | Path, *, limit: int = 10_000) -> dict[str, Any]:
        """Sign the end of the journal of each finished run that the key has not signed; a pack has these signatures.

        It is called on a timer, soon after runs end, where only operators have the key. No run waits for it.

        >>> from stepkeep.evidence.signing import new_key, write_key
        >>> write_key(Path("heads.key"), new_key())
        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.sign_heads("heads.key")["is_complete"]
        True
        """
        return self._call(self._core.sign_heads(signing_key, limit=limit))

    def prune(
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

        >>> engine.prune(archive="archive", older_than="30d", dry_run=True).found
        0
        """
        return self._call(
            self._core.prune(
                archive=archive,
                older_than=older_than,
                keep=keep,
                workflow=workflow,
                forget_keys=forget_keys,
                forget_audit=forget_audit,
                forget_firings=forget_firings,
                forget_jobs=forget_jobs,
                dry_run=dry_run,
                batch=batch,
                told=told,
            )
        )

    # -- decisions ---------------------------------------------------------------------------------------------------
    def approve(
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

        >>> waiting = engine.run(order, {"amount": 10})
        >>> engine.approve(waiting.run_id, "sign-off", by="bea", comment="within budget")["by"]
        'bea'
        >>> engine.work_on(waiting.run_id).output
        {'receipt': 'r-10'}
        """
        return self._call(self._core.approve(run_id, step, comment=comment, evidence=evidence, for_=for_, by=by))

    def reject(
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

        >>> waiting = engine.run(order, {"amount": 10})
        >>> engine.reject(waiting.run_id, by="bea", comment="too late")["decision"]
        'rejected'
        """
        return self._call(self._core.reject(run_id, step, comment=comment, evidence=evidence, for_=for_, by=by))

    def decide(
        self, run_id: str, step: str, choice: str, *, reason: str = "", output: Any = None, by: str | None = None
    ) -> dict[str, Any]:
        """Decide about a step that is stuck: `"retry"`, `"skip"`, `"fail"` or `"complete"`, which takes an `output`.

        A step holds if its definition says `on_exhausted="hold"`. A retry gives it all its attempts again. A decision
        about a step that waits for its next attempt, a worker or a message needs a reason.

        >>> import stepkeep as sk
        >>> def unreliable():
        ...     raise ConnectionError("no route")
        >>> flow = sk.Workflow("held")
        >>> tried = flow.step("call", unreliable, retry=sk.Retry(max_attempts=1), on_exhausted="hold")
        >>> held = engine.run(flow)
        >>> held.waiting_for[0]["for"]
        'decision'
        >>> engine.decide(held.run_id, "call", "skip", by="bea", reason="not needed today")["decision"]
        'skipped'
        """
        return self._call(self._core.decide(run_id, step, choice, reason=reason, output=output, by=by))

    def complete(
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

        >>> waiting = engine.run(packing)
        >>> engine.complete(waiting.run_id, "pack", token=tokens.pop(), output={"boxes": 2}, by="bea")["by"]
        'bea'
        """
        return self._call(
            self._core.complete(
                run_id,
                step,
                token=token,
                outcome=outcome,
                output=output,
                notes=notes,
                evidence=evidence,
                claim=claim,
                for_=for_,
                by=by,
            )
        )

    def reissue_token(self, run_id: str, step: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Give a manual step a new completion token in place of a lost one; the old one is useless from then on.

        `token` of the answer is the new one. It is shown once and kept nowhere. The deadline of the step stays.

        >>> lost = engine.run(packing)
        >>> token = engine.reissue_token(lost.run_id, "pack", reason="the mail was lost", by="bea")["token"]
        >>> engine.complete(lost.run_id, "pack", token=token, by="bea")["by"]
        'bea'
        """
        return self._call(self._core.reissue_token(run_id, step, reason=reason, by=by))

    def send(
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
        for it; one by business key also until a run has the key. With `start`, a run is started if none has it.

        >>> waiting = engine.run(delivery)
        >>> engine.send(waiting.run_id, "arrived", {"door": 3}, message_id="parcel-1", by="courier")["repeated"]
        False
        >>> engine.send(key="parcel-9", name="noted", payload={"door": 3})["run_id"] is None
        True
        >>> engine.send(key="parcel-9", name="arrived", start=delivery)["started"]
        True
        """
        return self._call(
            self._core.send(
                run_id,
                name,
                payload,
                key=key,
                correlation_id=correlation_id,
                start=start,
                input=input,
                idempotency_key=idempotency_key,
                ttl=ttl,
                message_id=message_id,
                by=by,
            )
        )

    def cancel(
        self, run_id: str, *, compensate: bool = False, reason: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """End a run; with `compensate`, what it did is undone first.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.cancel(started.run_id, reason="sent twice", by="bea")["repeated"]
        False
        """
        return self._call(self._core.cancel(run_id, compensate=compensate, reason=reason, by=by))

    def pause(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more of a run until it is resumed. What is in flight settles; deadlines and the timeout of the
        run go on.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> print(engine.pause(started.run_id, reason="the shop is closed", by="bea")["state"])
        paused
        """
        return self._call(self._core.pause(run_id, reason=reason, by=by))

    def resume(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Go on with a paused run.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> _ = engine.pause(started.run_id)
        >>> print(engine.resume(started.run_id)["state"])
        queued
        """
        return self._call(self._core.resume(run_id, reason=reason, by=by))

    def rollback_preview(self, run_id: str) -> dict[str, Any]:
        """What a cancel with `compensate` would undo now, in which order, and what it cannot undo and why.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.rollback_preview(started.run_id)["undo"]
        []
        """
        return self._call(self._core.rollback_preview(run_id))

    def quarantine(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Quarantine a run, readable or not: nothing claims, changes or deletes it until it is released. A reason is
        required.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.quarantine(started.run_id, reason="under investigation", by="bea")["reason"]
        'under investigation'
        """
        return self._call(self._core.quarantine(run_id, reason=reason, by=by))

    def release(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """End a run's quarantine; it continues where it was.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> _ = engine.quarantine(started.run_id, reason="under investigation")
        >>> engine.release(started.run_id, reason="false alarm", by="bea")["released_by"]
        'bea'
        """
        return self._call(self._core.release(run_id, reason=reason, by=by))

    def quarantined(self, *, history: bool = False) -> dict[str, Any]:
        """The quarantined runs; with `history` every quarantine, ended ones included.

        >>> engine.quarantined()
        {'quarantined': []}
        """
        return self._call(self._core.quarantined(history=history))

    def publish_policy(self, policy: str | Path | Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Publish a policy, a file or a mapping, as the next revision of the tenant. Its cases must hold.

        >>> rules = [{"name": "weekend", "when": "time.weekday >= 6", "then": "deny", "workflows": ["payout"]}]
        >>> engine.publish_policy({"policy": "payouts", "rules": rules}, by="bea")["revision"]
        1
        """
        return self._call(self._core.publish_policy(policy, by=by))

    def policy_off(self, *, by: str | None = None) -> dict[str, Any]:
        """Publish a revision without rules: only the rules of definitions count from then on.

        >>> engine.policy_off(by="bea")["policy"]
        'off'
        """
        return self._call(self._core.policy_off(by=by))

    def list_policies(self) -> dict[str, Any]:
        """The revisions of the tenant's policy, newest first.

        >>> engine.list_policies()
        {'policies': []}
        """
        return self._call(self._core.list_policies())

    def show_policy(self, revision: int | None = None) -> dict[str, Any]:
        """A revision of the tenant's policy with its rules; without a number, the newest.

        >>> _ = engine.policy_off()
        >>> engine.show_policy(1)["document"]
        {'name': 'off', 'rules': []}
        """
        return self._call(self._core.show_policy(revision))

    def replay_policy(self, run_id: str) -> dict[str, Any]:
        """Evaluate every verdict of a run again, by the facts and the revisions on record.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.replay_policy(started.run_id)["ok"]
        True
        """
        return self._call(self._core.replay_policy(run_id))

    def rerun(
        self,
        run_id: str,
        *,
        input: Any = None,  # noqa: A002 - the word users know
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Started:
        """A new run of the same definition and input (or another input) that names the old one.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.work_on(engine.rerun(done.run_id, input={"name": "Bo"}).run_id).output
        'Hello, Bo'
        """
        return self._call(self._core.rerun(run_id, input=input, idempotency_key=idempotency_key, by=by))


_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _close_all() -> None:
    """Close engines that a program left open, so that their workers hand back what they hold."""
    for engine in list(_open_engines):
        engine.close(grace=GRACE_AT_EXIT_SECONDS)


# Before the thread pools of `concurrent.futures` shut down: closing a database needs one, and `atexit` comes after.
getattr(threading, "_register_atexit", atexit.register)(_close_all)


class _StopSignals:
    """Lets SIGTERM and SIGINT stop a worker: the first one gently, the second at once.

    A handler of a step may already run before the worker is known here. A SIGTERM of that time is kept for the worker;
    SIGINT and a second signal interrupt the start.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._worker: HostedWorker | None = None

    def __enter__(self) -> _StopSignals:
        self._before = {which: signal.signal(which, self._arrived) for which in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *problem: object) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    def stop(self, worker: HostedWorker) -> None:
        """From now on signals stop this worker, and one that has arrived does so at once."""
        self._worker = worker
        if self._asked:
            self._tell(worker)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._worker is not None:
            self._tell(self._worker)
        elif number == signal.SIGINT or self._asked > 1:
            raise KeyboardInterrupt

    def _tell(self, worker: HostedWorker) -> None:
        worker.ask_to_stop(None if self._asked == 1 else 0.0)
