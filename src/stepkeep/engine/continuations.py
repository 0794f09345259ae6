"""Runs that go on: `engine.continuations` makes new ones of finished ones, `engine.migrations` gives live ones another
version."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from stepkeep.engine.arguments import encode_payload, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.bounds import MAX_VERSION
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ, START
from stepkeep.operations.answers import says
from stepkeep.operations.continuation import going_on, jobs, migrating, previewing
from stepkeep.operations.continuation.going_on import ContinuationOptions
from stepkeep.operations.continuation.jobs import JobView
from stepkeep.operations.continuation.migrating import Migrated, MigrationPreview, MigrationsPreview
from stepkeep.operations.continuation.previewing import ContinuationPreview
from stepkeep.operations.operation import Actor, IdempotencyKey, Name, RunId, Words, group, operation
from stepkeep.operations.pipeline.start import Started
from stepkeep.store.rows import JobAction

NewerVersion = Annotated[Annotated[int, Meta(ge=1, le=MAX_VERSION)] | None, says("A newer version of the workflow.")]
From = Annotated[Name, says("The step; it and all that depends on it run again.")]
Input = Annotated[Any, says("Another input; that of the old run by default.")]


@group("continuations", "Runs")
class AsyncContinuations(AsyncGroup):
    """New runs that go on with finished ones: what was finished is adopted by reference, the rest runs again.

    >>> done = engine.run(hello, {"name": "Ada"})
    >>> engine.continuations.preview(done.run_id, "fork", start="greet").runs_again
    ['greet']
    """

    @operation(
        START,
        "POST /runs/{run_id}/retry",
        "retry_run",
        "Continue a run after a fix",
        creates="/runs/{run_id}",
        agents="changes",
    )
    async def retry(
        self, run_id: RunId, *, version: NewerVersion = None, idempotency_key: IdempotencyKey = None, by: Actor = None
    ) -> Started:
        """A new run that continues after a fix: finished steps are adopted, the others run again.

        It takes over the undo of the adopted steps. `version` is a newer version of the workflow. A run has one retry.

        >>> run = engine.start(hello, {"name": "Ada"}, start_now=False).run_id
        >>> _ = engine.cancel(run)
        >>> engine.work_on(engine.continuations.retry(run).run_id).output
        'Hello, Ada'
        """
        return await self._continue_run(run_id, _wanted(ContinuationKind.RETRY, version=version), idempotency_key, by)

    @operation(
        START,
        "POST /runs/{run_id}/rerun-from",
        "rerun_run_from",
        "Run a finished run again from a step",
        creates="/runs/{run_id}",
        agents="changes",
        example={"start": "ship"},
    )
    async def rerun(
        self,
        run_id: RunId,
        start: From,
        *,
        input: Input = None,  # noqa: A002 - the word users know
        version: NewerVersion = None,
        idempotency_key: IdempotencyKey = None,
        by: Actor = None,
    ) -> Started:
        """A new run in which the step `start` and all that depends on it run again; the others are adopted.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.work_on(engine.continuations.rerun(done.run_id, "greet").run_id).output
        'Hello, Ada'
        """
        return await self._continue_run(
            run_id, _wanted(ContinuationKind.RERUN, start, input, version), idempotency_key, by
        )

    @operation(
        START,
        "POST /runs/{run_id}/fork",
        "fork_run",
        "Take another course from a step",
        creates="/runs/{run_id}",
        example={"start": "ship", "input": {"country": "CH"}},
    )
    async def fork(
        self,
        run_id: RunId,
        start: From,
        *,
        input: Input = None,  # noqa: A002 - the word users know
        version: NewerVersion = None,
        idempotency_key: IdempotencyKey = None,
        by: Actor = None,
    ) -> Started:
        """A new run that takes another course from the step `start`, with another input if one is given.

        It has no business key, and never undoes what the earlier run did.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.work_on(engine.continuations.fork(done.run_id, "greet", input={"name": "Bo"}).run_id).output
        'Hello, Bo'
        """
        return await self._continue_run(
            run_id, _wanted(ContinuationKind.FORK, start, input, version), idempotency_key, by
        )

    @operation(
        READ,
        "POST /runs/{run_id}/continuation-preview",
        "preview_continuation",
        "What would a retry, rerun or fork do?",
        agents="reads",
        example={"how": "retry"},
    )
    async def preview(
        self,
        run_id: RunId,
        how: Literal["retry", "rerun", "fork"],
        *,
        start: Annotated[Name | None, says("The step of a rerun or a fork.")] = None,
        input: Input = None,  # noqa: A002 - the word users know
        version: NewerVersion = None,
        by: Actor = None,
    ) -> ContinuationPreview:
        """What a retry, rerun or fork (`how`) would adopt and run again, and which effects may happen twice. It writes
        nothing.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.continuations.preview(done.run_id, "rerun", start="greet").adopted
        []
        """
        wanted, caller = _wanted(ContinuationKind(how), start, input, version), self._caller(by)
        return await previewing.preview(self._transactor, validate.run_id(run_id), wanted, caller=caller)

    async def _continue_run(
        self, run_id: str, wanted: ContinuationOptions, idempotency_key: str | None, by: str | None
    ) -> Started:
        return await going_on.continue_run(
            self._transactor,
            self._starter,
            validate.run_id(run_id),
            wanted,
            idempotency_key=optional_key("the idempotency key", idempotency_key),
            scope=self.access.key_scope,
            caller=self._caller(by),
        )


class Continuations(Blocking[AsyncContinuations]):
    retry, rerun = blocking(AsyncContinuations.retry), blocking(AsyncContinuations.rerun)
    fork, preview = blocking(AsyncContinuations.fork), blocking(AsyncContinuations.preview)


def _wanted(
    how: ContinuationKind, start: str | None = None, given: Any = None, version: int | None = None
) -> ContinuationOptions:
    if how is ContinuationKind.RETRY and (start is not None or given is not None):
        raise InvalidInput("a retry has neither a step to go on from nor another input: use rerun or fork.")
    if how is not ContinuationKind.RETRY and start is None:
        raise InvalidInput(f"name the step from which to go on: a {how} needs one.")
    return ContinuationOptions(
        how=how,
        start=None if start is None else validate.key("the step", start),
        given=None if given is None else encode_payload(given),
        version=version,
    )


Version = Annotated[int, Meta(ge=1, le=MAX_VERSION)]
To = Annotated[Version, says("The version to go on under.")]
Of = Annotated[Version | None, says("Only runs of this version.")]
Workflow = Annotated[Name, says("The name of the workflow.")]


@group("migrations", "Runs")
class AsyncMigrations(AsyncGroup):
    """Live runs that go on under another version: what has settled is adopted, and nothing that began is lost.

    >>> _ = engine.run(hello, {"name": "Ada"})
    >>> engine.migrations.preview_all("hello", 1).examined
    0
    """

    @operation(
        OPERATE,
        "POST /runs/{run_id}/migrate",
        "migrate_run",
        "Go on with a live run under another version",
        example={"to": 2},
    )
    async def migrate(self, run_id: RunId, to: To, *, reason: Words = "", by: Actor = None) -> Migrated:
        """End a live run as cancelled, and go on with it as a new run under version `to`: both, or neither.

        `new_run_id` of the answer is that run. It has the business key, and adopts what had settled with its undo.
        A run that cannot be migrated is refused with every reason (`error.winner["reasons"]`), and goes on as it was.
        The same request again answers with the run that was made.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> newer = sk.Workflow("hello", version=2)
        >>> _ = newer.step("greet", greet, timeout="5s")
        >>> _ = engine.publish(newer)
        >>> engine.migrations.migrate(started.run_id, 2, reason="greet is limited", by="bea").version
        2
        """
        return await migrating.migrate(
            self._transactor, self._starter, validate.run_id(run_id), to, caller=self._caller(by), reason=reason
        )

    @operation(
        READ,
        "POST /runs/{run_id}/migration-preview",
        "preview_migration",
        "Can a run go on under another version?",
        agents="reads",
        example={"to": 2},
    )
    async def preview(self, run_id: RunId, to: To, *, by: Actor = None) -> MigrationPreview:
        """What a migration would adopt and run, or every reason why the run stays. It writes nothing.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> newer = sk.Workflow("hello", version=2)
        >>> _ = newer.step("greet", greet, timeout="5s")
        >>> _ = engine.publish(newer)
        >>> engine.migrations.preview(started.run_id, 2).runs
        ['greet']
        """
        return await migrating.preview(self._transactor, validate.run_id(run_id), to, caller=self._caller(by))

    @operation(
        OPERATE,
        "POST /migrations/{workflow}",
        "migrate_runs",
        "Add a job that migrates the live runs of a workflow",
        example={"to": 2},
    )
    async def migrate_all(
        self, workflow: Workflow, to: To, *, of: Of = None, reason: Words = "", by: Actor = None
    ) -> JobView:
        """Add a job that migrates the live runs of a workflow; with `of`, only those of that version.

        Workers carry it out, run by run. `engine.jobs.show(job)` counts the runs that were migrated (`done`) and that
        stay (`refused`); `engine.jobs.runs(job)` names each with its new run, or with the reason why it stays.

        >>> _ = engine.publish(hello)
        >>> engine.migrations.migrate_all("hello", 1).runs
        0
        """
        caller = self._caller(by)
        options = {"workflow": workflow, "to": to, "of": of, "reason": validate.words("the reason", reason)}
        found = await migrating.live_runs(self._transactor, workflow, to, tenant=self._tenant, of=of)
        return await jobs.add_job(
            self._transactor,
            JobAction.MIGRATE,
            sorted(found),
            options,
            caller=caller,
            idempotency_key=None,
            digest=jobs.digest_of(JobAction.MIGRATE, options),
        )

    @operation(
        READ,
        "POST /migrations/{workflow}/preview",
        "preview_migrations",
        "Which live runs would a migration concern?",
        agents="reads",
        example={"to": 2},
    )
    async def preview_all(self, workflow: Workflow, to: To, *, of: Of = None, by: Actor = None) -> MigrationsPreview:
        """Which live runs a migration concerns, by state and version, which would stay, and why. It writes nothing.

        >>> _ = engine.publish(hello)
        >>> engine.migrations.preview_all("hello", 1).could_migrate
        0
        """
        return await migrating.preview_all(
            self._transactor, validate.key("the workflow", workflow), to, of=of, caller=self._caller(by)
        )


class Migrations(Blocking[AsyncMigrations]):
    migrate, preview = blocking(AsyncMigrations.migrate), blocking(AsyncMigrations.preview)
    migrate_all, preview_all = blocking(AsyncMigrations.migrate_all), blocking(AsyncMigrations.preview_all)
