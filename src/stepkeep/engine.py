"""The engine for host programs: open a database, publish, start, run, decide, read.

`AsyncEngine` does the work; `Engine` has the same methods for programs without an event loop and no logic of its own.
Both call operations and the worker, nothing else.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import msgspec

from stepkeep.definition import arguments
from stepkeep.definition.durations import InvalidDuration, parse_duration
from stepkeep.definition.handlers import registry_of
from stepkeep.definition.registry import Registry, default_registry
from stepkeep.dialects import registry as dialects
from stepkeep.dialects.registry import load_file
from stepkeep.errors import ConnectionLost, DefinitionChanged, InvalidInput, NotFound, Unreachable
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.states import RUN_TERMINAL, RunState
from stepkeep.loop_thread import LoopThread, end_tasks
from stepkeep.operations import decisions, projected, retention, validate, views
from stepkeep.operations import quarantine as quarantines
from stepkeep.operations.lines import encode_line
from stepkeep.operations.log import canonical_machines, export_run, export_without_names, stored_definition
from stepkeep.operations.publish import find_plan, publish
from stepkeep.operations.rerun import rerun
from stepkeep.operations.start import MAX_INPUT_BYTES, Started, Starter, StartRequest, start_idle
from stepkeep.operations.transact import Transactor
from stepkeep.operations.waiting import RunWaiter
from stepkeep.safe_text import type_name
from stepkeep.store.connect import connect
from stepkeep.store.migrations import require_migrated
from stepkeep.store.protocol import RunFilter, Store
from stepkeep.worker.loop import Worker
from stepkeep.worker.outage import Outage
from stepkeep.worker.payloads import Unstorable, encode
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings as WorkerSettings

if TYPE_CHECKING:
    from stepkeep.conformance.certificate import Certificate
    from stepkeep.definition.python import Workflow
    from stepkeep.worker.executors.command import CommandPolicy
    from stepkeep.worker.executors.http import HttpPolicy

T = TypeVar("T")
MOST_AT_ONCE = 10_000
LONGEST_WAIT = 10 * 365 * 86_400

Runnable: TypeAlias = "Workflow | Definition | Plan | str | Path"
"""What can be started: a workflow object, a definition, the path of a definition file, a published name, or the
result of `publish`, which is fastest for many runs of the same workflow."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run: `state`, its `output` once it has succeeded, and everything else in `view`."""

    id: str
    state: RunState
    output: Any
    error: str | None
    view: dict[str, Any]

    @property
    def finished(self) -> bool:
        return self.state in RUN_TERMINAL

    def __str__(self) -> str:
        said = f"run {self.id} {self.state}"
        if self.error:
            return f"{said}: {self.error}"
        return said if self.output is None else f"{said}: {msgspec.json.encode(self.output).decode()}"


class AsyncEngine:
    """A database and everything one can do with it, for programs that have an event loop.

    `http`, `commands` and `process_memory` (bytes) say what steps may do that this engine's own workers run. With
    `wait_for_database`, opening waits for a server that does not answer yet, as a running worker does.

    An SQLite file is migrated when it is opened. A PostgreSQL database that lacks a migration is refused, unless
    `auto_migrate` says to apply it: for tests and demos, where the role owns the schema.
    """

    policies: dict[str, Any] = {}  # noqa: RUF012 - never changed; for engines over a store that is there already
    _waits = False
    _auto_migrate = False

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        tenant: str = "default",
        actor: str | None = None,
        registry: Registry | None = None,
        http: HttpPolicy | None = None,
        commands: CommandPolicy | None = None,
        process_memory: int | None = None,
        wait_for_database: bool = False,
        auto_migrate: bool = False,
    ) -> None:
        self._waits = arguments.flag("wait_for_database", wait_for_database)
        self._auto_migrate = arguments.flag("auto_migrate", auto_migrate)
        policies = {"http": http, "commands": commands, "process_memory": process_memory}
        self.policies = {name: value for name, value in policies.items() if value is not None}
        WorkerSettings(**self.policies)  # refuse invalid policies before a worker is needed
        self.tenant = validate.key("the tenant", tenant)
        self.actor = validate.key("the actor", current_user() if actor is None else actor)
        self.registry = default_registry if registry is None else registry_of(registry)
        self._work_on(connect(url))

    def _work_on(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.transactor = Transactor(store, monotonic=monotonic)
        self._starter = Starter(self.transactor)
        self._waiting = RunWaiter(store)

    async def __aenter__(self) -> Self:
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
                return self

    async def _open(self) -> None:
        await self.store.open()
        try:
            if self._auto_migrate or self.store.migrates_itself:
                await self.store.migrate()
            else:
                require_migrated(await self.store.status())
        except BaseException:
            await self.store.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._waiting.close()
        await self.store.close()

    # -- definitions -------------------------------------------------------------------------------------------------
    async def publish(self, workflow: Runnable) -> Plan:
        """Publish a workflow, or return the published one; a plain name finds the highest published version."""
        if isinstance(workflow, Plan):
            return workflow
        # A caller with a Workflow has imported it; a worker without one need not.
        from stepkeep.definition.python import Workflow

        if isinstance(workflow, Workflow):
            workflow = workflow.definition()
        elif isinstance(workflow, Path) or (isinstance(workflow, str) and _looks_like_a_file(workflow)):
            workflow = load_file(Path(workflow))
        if isinstance(workflow, str):
            name = validate.key("the name of a workflow", workflow)
            return await find_plan(self.transactor, name, None, tenant=self.tenant)
        if not isinstance(workflow, Definition):
            raise InvalidInput(
                f"a {type(workflow).__name__} is no workflow. Pass a Workflow, a file or a published name."
            )
        return await publish(self.transactor, workflow, tenant=self.tenant, actor=self.actor)

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
    ) -> Started:
        """Create a run and, unless `start_now` is False, start it. Workers do the rest."""
        plan = await self.publish(workflow)
        return await self._starter.start(
            StartRequest(
                plan=plan,
                tenant=self.tenant,
                actor=self.actor,
                input=encode_payload({} if input is None else input),
                idempotency_key=_optional_key("the idempotency key", idempotency_key),
                business_key=_optional_key("the business key", business_key),
                correlation_id=_optional_key("the correlation id", correlation_id),
                priority=priority,
                start_now=arguments.flag("start: start_now", start_now),
                labels=None if labels is None else _encode_labels(labels),
            )
        )

    async def start_idle(self, run_id: str) -> dict[str, Any]:
        """Start a run that was created idle."""
        return await start_idle(self.transactor, validate.run_id(run_id), tenant=self.tenant, actor=self.actor)

    async def run(self, workflow: Runnable, input: Any = None, **options: Any) -> Result:  # noqa: A002
        """Start a run and work on it here until it ends, or until only people or messages can change it."""
        started = await self.start(workflow, input, **options)
        await retention.require_kept(self.store, started, tenant=self.tenant)
        return await self.work_on(started.run_id)

    async def work_on(self, run_id: str, *, concurrency: int = 16, until_blocked: bool = True) -> Result:
        """Work on this run until it has ended (or, with `until_blocked`, is blocked)."""
        settled = RUN_TERMINAL | (
            {RunState.BLOCKED, RunState.IDLE} if arguments.flag("until_blocked", until_blocked) else set()
        )

        async def reached() -> bool:
            found = await self.store.read_run(self.tenant, validate.run_id(run_id))
            if found is None:
                raise NotFound(f"there is no run {run_id}")
            return found.run.state in settled

        await self.worker(concurrency=concurrency).run_until(reached)
        return await self.result(run_id)

    async def wait(self, run_id: str, *, seconds: float | None = None, until_blocked: bool = False) -> Result:
        """Wait until a run has ended (or, with `until_blocked`, is blocked). Any worker may run it.

        After so many `seconds` the current state is returned: check `finished`.
        """
        settled = RUN_TERMINAL | (
            {RunState.BLOCKED, RunState.IDLE} if arguments.flag("until_blocked", until_blocked) else set()
        )
        if seconds is not None:
            seconds = arguments.number("wait: seconds", seconds, 0, LONGEST_WAIT)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._waiting.until(self.tenant, validate.run_id(run_id), settled)
        return await self.result(run_id)

    def worker(self, *, concurrency: int = 16, app: str = "stepkeep", **options: Any) -> Worker:
        """A worker in this process, for this engine's database and handlers, under its policies."""
        options = {**self.policies, **options}
        return Worker(self.transactor, self.registry, app=app, concurrency=concurrency, tenant=self.tenant, **options)

    async def result(self, run_id: str) -> Result:
        """The current state of a run."""
        view = await self.show(run_id)
        run = view["run"]
        return Result(id=run_id, state=run["state"], output=run["output"], error=run["error"], view=view)

    async def show(self, run_id: str, *, as_: str | None = None) -> dict[str, Any]:
        """Everything about a run, in canonical names or in the shape of a dialect."""
        run_id = validate.run_id(run_id)
        if as_ is not None:
            return await projected.describe_run_as(self.transactor, run_id, as_, tenant=self.tenant)
        return await views.describe_run(self.transactor, run_id, tenant=self.tenant)

    async def runs(
        self,
        *,
        states: Sequence[RunState] = (),
        workflow: str | None = None,
        business_key: str | None = None,
        correlation_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
        as_: str | None = None,
    ) -> dict[str, Any]:
        which = RunFilter(
            tenant=self.tenant,
            states=_states(states),
            workflow=_optional_key("the workflow to look for", workflow),
            business_key=_optional_key("the key to look for", business_key),
            correlation_id=_optional_key("the id to look for", correlation_id),
            before=None if before is None else validate.run_id(before),
            limit=limit,
        )
        if as_ is not None:
            return await projected.list_runs_as(self.transactor, which, as_)
        return await views.list_runs(self.transactor, which)

    async def log(self, run_id: str, *, as_: str | None = None) -> list[bytes]:
        """The run's exported log, in canonical names or in a dialect."""
        lines = export_run(self.transactor, validate.run_id(run_id), tenant=self.tenant, dialect=as_)
        return [encode_line(line) async for line in lines]

    async def certify(self, run_id: str) -> Certificate:
        """The judge's certificate of a run: its journal, its log in every dialect, and its definition."""
        from stepkeep.conformance.certificate import Published, certify

        stored = await stored_definition(self.transactor, validate.run_id(run_id), tenant=self.tenant)
        published = Published(name=stored.name, version=stored.version, digest=stored.digest, document=stored.document)
        judged = {name: dialects.judged(name) for name in dialects.names()}
        while True:
            try:
                canonical = await self.log(run_id)
            except DefinitionChanged:
                # A projection needs the definition.
                nameless = export_without_names(self.transactor, validate.run_id(run_id), tenant=self.tenant)
                log = [encode_line(line) async for line in nameless]
                return certify(log, {}, canonical_machines(), judged, published)
            tellings = {name: await self.log(run_id, as_=name) for name in judged}
            # An unfinished run may have changed between two exports: all of them must cover the same journal.
            if await self.log(run_id) == canonical:
                return certify(canonical, tellings, canonical_machines(), judged, published)

    async def prune(
        self,
        *,
        archive: str | Path | None,
        older_than: str | None = None,
        keep: int | None = None,
        workflow: str | None = None,
        forget_keys: str | None = None,
        dry_run: bool = False,
        batch: int = retention.BATCH,
        told: retention.Told = lambda pruned: None,
    ) -> retention.Pruned:
        """Archive finished runs, then delete them: those that ended long enough ago and are not among the newest.

        `archive` names a folder; None deletes without a trace. Durations are written as in definitions: "30d".
        """
        policy = retention.Policy(
            older_than=None if older_than is None else _duration("older_than", older_than),
            keep=keep,
            workflow=workflow,
            forget_keys=None if forget_keys is None else _duration("forget_keys", forget_keys),
        )
        if archive is not None and not isinstance(archive, str | os.PathLike):
            raise InvalidInput(f"prune: archive is the path of a folder, not a value of type {type_name(archive)}.")
        if not callable(told):
            raise InvalidInput(f"prune: told is a function, not a value of type {type_name(told)}.")
        arguments.flag("prune: dry_run", dry_run)
        folder = None if archive is None else Path(archive)
        size = arguments.whole("prune: batch", batch, 1, MOST_AT_ONCE)
        return await retention.prune(
            self.transactor, policy, tenant=self.tenant, folder=folder, dry_run=dry_run, batch=size, told=told
        )

    # -- decisions ---------------------------------------------------------------------------------------------------
    async def approve(self, run_id: str, step: str | None = None, *, comment: str = "") -> dict[str, Any]:
        return await self._decide(run_id, step, comment, approve=True)

    async def reject(self, run_id: str, step: str | None = None, *, comment: str = "") -> dict[str, Any]:
        return await self._decide(run_id, step, comment, approve=False)

    async def _decide(self, run_id: str, step: str | None, comment: str, *, approve: bool) -> dict[str, Any]:
        accepted = await decisions.decide_gate(
            self.transactor,
            validate.run_id(run_id),
            approve=approve,
            tenant=self.tenant,
            actor=self.actor,
            step=step,
            comment=comment,
        )
        return decisions.record_of(accepted)

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
    ) -> dict[str, Any]:
        """Complete a manual step by hand, with the token that was issued for it."""
        accepted = await decisions.complete(
            self.transactor,
            validate.run_id(run_id),
            step,
            token=token,
            outcome=outcome,
            tenant=self.tenant,
            actor=self.actor,
            output=None if output is None else encode_payload(output),
            notes=notes,
            evidence=tuple(arguments.items("complete: evidence", evidence)),
        )
        return decisions.record_of(accepted)

    async def send(
        self, run_id: str, name: str, payload: Any = None, *, message_id: str | None = None
    ) -> dict[str, Any]:
        """Put a message into a run's inbox; it is kept until a step waits for it."""
        accepted = await decisions.send(
            self.transactor,
            validate.run_id(run_id),
            name,
            encode_payload(payload),
            tenant=self.tenant,
            actor=self.actor,
            message_id=message_id,
        )
        return decisions.record_of(accepted)

    async def cancel(self, run_id: str, *, compensate: bool = False, reason: str = "") -> dict[str, Any]:
        accepted = await decisions.cancel(
            self.transactor,
            validate.run_id(run_id),
            tenant=self.tenant,
            actor=self.actor,
            compensate=arguments.flag("cancel: compensate", compensate),
            reason=reason,
        )
        return decisions.record_of(accepted)

    async def quarantine(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Quarantine a run, readable or not: nothing claims, changes or deletes it until it is released. A reason is
        required."""
        return await quarantines.quarantine(
            self.transactor, run_id, tenant=self.tenant, actor=self.actor if by is None else by, reason=reason
        )

    async def release(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """End a run's quarantine; it continues where it was."""
        return await quarantines.release(
            self.transactor, run_id, tenant=self.tenant, actor=self.actor if by is None else by, reason=reason
        )

    async def quarantined(self, *, history: bool = False) -> dict[str, Any]:
        """The quarantined runs; with `history` every quarantine, ended ones included."""
        return await quarantines.quarantined(
            self.transactor, tenant=self.tenant, history=arguments.flag("quarantined: history", history)
        )

    async def rerun(self, run_id: str, *, input: Any = None, idempotency_key: str | None = None) -> Started:  # noqa: A002
        """A new run of the same definition and input (or another input) that names the old one."""
        return await rerun(
            self.transactor,
            self._starter,
            validate.run_id(run_id),
            tenant=self.tenant,
            actor=self.actor,
            given=None if input is None else encode_payload(input),
            idempotency_key=_optional_key("the idempotency key", idempotency_key),
        )


def encode_payload(value: Any) -> bytes:
    """The JSON of a caller's value; refused if it cannot be stored."""
    try:
        return encode(value, what="what was passed", limit=MAX_INPUT_BYTES)
    except Unstorable as problem:
        raise InvalidInput(str(problem)) from problem


def current_user() -> str:
    """The operating system's name of the user of this process; a container may have no entry for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid:{os.getuid()}"


def _optional_key(what: str, value: object) -> str | None:
    return None if value is None else validate.key(what, value)


def _encode_labels(labels: object) -> bytes | None:
    checked = validate.labels(labels)
    return encode_payload(checked) if checked else None


def _duration(what: str, text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as problem:
        raise InvalidInput(f"{what}: {problem}") from None


def _states(given: object) -> tuple[RunState, ...]:
    """States by their own name; an unknown name is refused, because it would silently find nothing."""
    named = arguments.items("runs: states", given)
    for one in named:
        if not isinstance(one, str) or one not in list(RunState):
            known = ", ".join(RunState)
            raise InvalidInput(f"runs: {arguments.shown(one)} is no state of a run. Choose from {known}.")
    return tuple(RunState(one) for one in named)


def _looks_like_a_file(text: str) -> bool:
    return text.endswith((".yaml", ".yml", ".json"))


class Engine:
    """The same engine for programs without an event loop: every call is made on a loop in a thread of its own."""

    def __init__(self, url: str | os.PathLike[str], **options: Any) -> None:
        self._engine = AsyncEngine(url, **options)
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise InvalidInput("the engine is open already; every `with` needs an engine of its own")
        self._thread = LoopThread()
        try:
            self._call(self._engine.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None and self._thread.is_inherited:
            # The connections belong to the parent process, which closes them.
            return
        try:
            self._call(end_tasks())
            self._call(self._engine.__aexit__(kind, error, trace))
        finally:
            self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        thread = self._thread
        if thread is None:
            work.close()
            raise InvalidInput("the engine is not open. Use it in a `with` block: with stepkeep.open(url) as engine: …")
        return thread.call(work)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Every method of AsyncEngine, called and awaited."""
        method = getattr(AsyncEngine, name, None)
        if method is None or name.startswith("_") or not asyncio.iscoroutinefunction(method):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(method(self._engine, *args, **kwargs))

        call.__name__, call.__doc__ = name, method.__doc__
        return call

    def run(self, workflow: Runnable, input: Any = None, **options: Any) -> Result:  # noqa: A002
        """Start a run and work on it here until it ends, or until only people or messages can change it."""
        return self._call(self._engine.run(workflow, input, **options))

    def start(self, workflow: Runnable, input: Any = None, **options: Any) -> Started:  # noqa: A002
        """Create a run and start it; workers do the rest."""
        return self._call(self._engine.start(workflow, input, **options))


def open_engine(url: str | os.PathLike[str] = "sqlite:///.stepkeep/stepkeep.db", **options: Any) -> Engine:
    """Open a database: `sqlite:///file.db` needs nothing else, `postgresql://…` the extra `stepkeep[postgres]`.

    A PostgreSQL database is migrated by `stepkeep db migrate`, or here with `auto_migrate=True`.

    >>> import stepkeep
    >>> @stepkeep.step
    ... def greet(name: str) -> str:
    ...     return f"Hello, {name}"
    >>> hello = stepkeep.Workflow("hello", version=1)
    >>> _ = hello.step("greet", greet)
    >>> with stepkeep.open("sqlite:///hello.db") as engine:
    ...     print(engine.run(hello, input={"name": "Ada"}).output)
    Hello, Ada
    """
    return Engine(url, **options)
