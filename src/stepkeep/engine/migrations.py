"""Live runs that go on under another version of their workflow: `engine.migrations`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.machine.bounds import MAX_VERSION
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.continuation import jobs, migrating
from stepkeep.operations.continuation.jobs import JobView
from stepkeep.operations.continuation.migrating import Migrated, MigrationPreview, MigrationsPreview
from stepkeep.operations.operation import Actor, Name, RunId, Words, group, operation
from stepkeep.store.rows import JobAction

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
