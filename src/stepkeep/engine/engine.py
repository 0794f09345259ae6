"""The Python interface: `AsyncEngine` for programs with an event loop, `Engine` for the others and for notebooks.

Both open a database and have the same methods. Each method of `Engine` calls one of `AsyncEngine` on a loop in a thread
of its own, so that any thread may make it, one that runs a loop included. `stepkeep.open` creates an `Engine`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from stepkeep.definition import arguments
from stepkeep.definition.python.handlers import registry_of
from stepkeep.definition.python.registry import Output, Registry, default_registry
from stepkeep.edges.safe_text import type_name
from stepkeep.engine.arguments import LARGEST_PAYLOAD_BYTES, current_user
from stepkeep.engine.blocking import blocking, like
from stepkeep.engine.groups import AsyncOperations, Groups
from stepkeep.engine.hosted import AsyncHostedWorker, HostedWorker, RunWorkers, StopSignals, WorkerOptions
from stepkeep.engine.loop_thread import LoopThread, end_tasks
from stepkeep.engine.result import Result
from stepkeep.engine.starting import LONGEST_WAIT
from stepkeep.kernel.errors import ConnectionLost, InvalidInput, StoreUnavailable, Unreachable
from stepkeep.operations import validate
from stepkeep.operations.access import Access, Credential, guarded, parse_key
from stepkeep.operations.people.quotas import QuotaKeeper
from stepkeep.operations.pipeline.codec import PayloadCodec, mark_sealed
from stepkeep.operations.pipeline.payloads import MAX_PAYLOAD_BYTES, PayloadStore
from stepkeep.operations.pipeline.start import Started
from stepkeep.operations.runs.spans import find_spans
from stepkeep.store.callers import run_here
from stepkeep.store.connect import connect
from stepkeep.store.migrations import require_migrated
from stepkeep.store.protocol import Store
from stepkeep.worker.attempts.secrets import Given, Secrets, as_secrets
from stepkeep.worker.outage import Outage
from stepkeep.worker.pools.handler_loop import HandlerLoop, Lifespan, handler_loop
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings as WorkerSettings
from stepkeep.worker.shared import NO_RUN

if TYPE_CHECKING:
    from stepkeep.metrics.exposition import Exposition
    from stepkeep.worker.executors.command import CommandPolicy
    from stepkeep.worker.executors.http import HttpPolicy
    from stepkeep.worker.loop import Worker


T = TypeVar("T")
GRACE_AT_EXIT_SECONDS = 5.0
DEFAULT_URL = "sqlite:///.stepkeep/stepkeep.db"
P = ParamSpec("P")


@guarded(free=("open", "close", "stop_workers"))
class AsyncEngine(AsyncOperations):
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

    The examples of its methods are written for `Engine`; here each call is awaited.
    """

    _home: HandlerLoop | None = None
    _lifespan: Lifespan | None = None
    _loop: Literal["own", "mine"] = "own"
    _waits = False
    _dev = False
    _hosted: Sequence[AsyncHostedWorker] = ()
    _exposition: Exposition | None = None
    policies: dict[str, Any] = {}  # noqa: RUF012 - never changed; for engines over a store that is there already
    _auto_migrate: bool | None = None
    _credential: Credential | None = None

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
        self.access = Access(store, self.tenant, self.actor, self._credential, monotonic)
        super()._work_on(store, monotonic)
        self._own = RunWorkers(
            lambda able: self.worker(concurrency=able.concurrency, capabilities=able.capabilities, only_run=NO_RUN),
            lambda: self.registry.version,
        )

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

    @property
    def quotas(self) -> QuotaKeeper:
        """The quotas that this process knows. For the service."""
        return self._starter.quotas

    def worker(self, *, concurrency: int = 16, app: str = "stepkeep", **options: Any) -> Worker:
        """A worker in this process, for this engine's database and handlers, under its policies."""
        from stepkeep.worker.loop import Worker  # here, because most programs only start and look

        options = {"owner": self.access.owner, "limits": self.access.limits, **self.policies, **options}
        if "lifespan" not in options and "loop" not in options:
            if self._home is None:
                self._home = handler_loop(self.registry, self._lifespan, self._loop)
            options["home"] = self._home
        return Worker(self.transactor, self.registry, app=app, concurrency=concurrency, tenant=self.tenant, **options)

    async def stop_workers(self, grace: float | None = None) -> None:
        """Stop the workers that `start_worker` has started, and wait until they have ended.

        >>> worker = engine.start_worker()
        >>> engine.stop_workers(grace=5)
        >>> worker.is_running
        False
        """
        if grace is not None:
            grace = arguments.number("grace", grace, 0, LONGEST_WAIT)
        hosted, self._hosted = self._hosted, ()
        await asyncio.gather(*(one.stop(grace) for one in hosted), return_exceptions=True)


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


def _with_view(method: Callable[Concatenate[Any, P], Result[Output]]) -> Callable[Concatenate[Any, P], Result[Output]]:
    """A method whose result reads its view when it is asked for."""

    @wraps(method)
    def call(self: Engine, /, *arguments: P.args, **named: P.kwargs) -> Result[Output]:
        found = method(self, *arguments, **named)
        return found if found.loaded is not None else replace(found, load=partial(self.show, found.run_id))

    return call


class Engine(Groups):
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

    # -- methods ------------------------------------------------------------------------------------------------------
    publish, publish_schema = blocking(AsyncEngine.publish), blocking(AsyncEngine.publish_schema)
    schemas, schema = blocking(AsyncEngine.schemas), blocking(AsyncEngine.schema)

    @like(AsyncEngine.start)
    def start(self, *given: Any, connection: Any = None, **options: Any) -> Started:
        if connection is None:
            return self._call(self._core.start(*given, **options))
        # The engine's thread prepares the start; the caller's thread makes it, because drivers bind connections to it.
        request = self._call(self._core._prepare_start(*given, **options))
        return run_here(connection, self._core._in_callers_transaction(connection, request))

    start_idle = blocking(AsyncEngine.start_idle)
    run = _with_view(blocking(AsyncEngine.run))
    work_on = _with_view(blocking(AsyncEngine.work_on))
    wait = _with_view(blocking(AsyncEngine.wait))

    @like(AsyncEngine.start_worker)
    def start_worker(self, **options: Unpack[WorkerOptions]) -> HostedWorker:
        hosted = self._call(self._core.start_worker(**options))
        thread = self._thread
        if thread is None:
            raise StoreUnavailable("the engine was closed while its worker started")
        return HostedWorker(hosted, thread)

    stop_workers = blocking(AsyncEngine.stop_workers)

    @like(AsyncEngine.serve)
    def serve(self, *, signals: bool = True, **options: Unpack[WorkerOptions]) -> None:
        if signals and threading.current_thread() is not threading.main_thread():
            raise InvalidInput(
                "serve: signals arrive in the main thread only. Call serve there, or pass signals=False."
            )
        with StopSignals() if signals else nullcontext() as arriving:
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

    result, show, explain = blocking(AsyncEngine.result), blocking(AsyncEngine.show), blocking(AsyncEngine.explain)
    approvals, status = blocking(AsyncEngine.approvals), blocking(AsyncEngine.status)
    statistics, metrics = blocking(AsyncEngine.statistics), blocking(AsyncEngine.metrics)
    errors = blocking(AsyncEngine.errors)
    definitions, compare_versions = blocking(AsyncEngine.definitions), blocking(AsyncEngine.compare_versions)
    unserved, compare_runs = blocking(AsyncEngine.unserved), blocking(AsyncEngine.compare_runs)
    workers, runs, log = blocking(AsyncEngine.workers), blocking(AsyncEngine.runs), blocking(AsyncEngine.log)
    certify, evidence = blocking(AsyncEngine.certify), blocking(AsyncEngine.evidence)
    sign_heads, prune = blocking(AsyncEngine.sign_heads), blocking(AsyncEngine.prune)
    approve, reject, decide = blocking(AsyncEngine.approve), blocking(AsyncEngine.reject), blocking(AsyncEngine.decide)
    complete, reissue_token = blocking(AsyncEngine.complete), blocking(AsyncEngine.reissue_token)
    send, cancel, pause = blocking(AsyncEngine.send), blocking(AsyncEngine.cancel), blocking(AsyncEngine.pause)
    resume, rollback_preview = blocking(AsyncEngine.resume), blocking(AsyncEngine.rollback_preview)
    quarantine, release = blocking(AsyncEngine.quarantine), blocking(AsyncEngine.release)
    quarantined, publish_policy = blocking(AsyncEngine.quarantined), blocking(AsyncEngine.publish_policy)
    policy_off, list_policies = blocking(AsyncEngine.policy_off), blocking(AsyncEngine.list_policies)
    show_policy, replay_policy = blocking(AsyncEngine.show_policy), blocking(AsyncEngine.replay_policy)
    rerun = blocking(AsyncEngine.rerun)


_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _close_all() -> None:
    """Close engines that a program left open, so that their workers hand back what they hold."""
    for engine in list(_open_engines):
        engine.close(grace=GRACE_AT_EXIT_SECONDS)


# Before the thread pools of `concurrent.futures` shut down: closing a database needs one, and `atexit` comes after.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
