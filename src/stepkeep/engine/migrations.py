"""Migration of live runs as the engine offers it: `engine.migrations`. Each method calls one operation.

It decides nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stepkeep.definition import arguments
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import jobs, migrating, validate
from stepkeep.operations.access import guarded
from stepkeep.store.bounds import MAX_VERSION
from stepkeep.store.job_rows import JobAction


@guarded("migrations.")
class AsyncMigrations(AsyncGroup):
    """Live runs that go on under another version: what has settled is adopted, and nothing that began is lost.

    >>> _ = engine.run(hello, {"name": "Ada"})
    >>> engine.migrations.preview_all("hello", 1)["examined"]
    0
    """

    async def migrate(self, run_id: str, to: int, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """End a live run, and go on with it as a new run under version `to`, in one transaction.

        `new_run_id` of the answer is that run. It has the business key, and adopts what had settled with its undo.
        A run that cannot be migrated is refused with every reason (`error.winner["reasons"]`), and goes on as it was.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> newer = sk.Workflow("hello", version=2)
        >>> _ = newer.step("greet", greet, timeout="5s")
        >>> _ = engine.publish(newer)
        >>> engine.migrations.migrate(started.run_id, 2, reason="greet is limited", by="bea")["version"]
        2
        """
        done = await migrating.migrate(
            self._transactor,
            self._starter,
            validate.run_id(run_id),
            _version(to),
            tenant=self._tenant,
            acting=self._acting(by),
            reason=reason,
        )
        told: dict[str, Any] = msgspec.to_builtins(done)
        return told

    async def preview(self, run_id: str, to: int, *, by: str | None = None) -> dict[str, Any]:
        """What a migration would adopt and run, or every reason why the run stays. It writes nothing.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> newer = sk.Workflow("hello", version=2)
        >>> _ = newer.step("greet", greet, timeout="5s")
        >>> _ = engine.publish(newer)
        >>> engine.migrations.preview(started.run_id, 2)["runs"]
        ['greet']
        """
        acting = self._acting(by)
        return await migrating.preview(
            self._transactor, validate.run_id(run_id), _version(to), tenant=self._tenant, actor=acting["actor"]
        )

    async def migrate_all(
        self, workflow: str, to: int, *, of: int | None = None, reason: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """Add a job that migrates the live runs of a workflow; with `of`, only those of that version.

        Workers carry it out, run by run. `engine.jobs.show(job)` counts the runs that were migrated (`done`) and that
        stay (`refused`); `engine.jobs.runs(job)` names each with its new run, or with the reason why it stays.

        >>> _ = engine.publish(hello)
        >>> engine.migrations.migrate_all("hello", 1)["runs"]
        0
        """
        name, version = validate.key("the workflow", workflow), _version(to)
        wanted = None if of is None else _version(of)
        acting = self._acting(by)
        options = {"workflow": name, "to": version, "of": wanted, "reason": validate.words("the reason", reason)}
        found = await migrating.live_runs(self._transactor, name, version, tenant=self._tenant, of=wanted)
        return await jobs.add_job(
            self._transactor,
            JobAction.MIGRATE,
            sorted(found),
            options,
            tenant=self._tenant,
            acting=acting,
            idempotency_key=None,
            digest=jobs.digest_of(JobAction.MIGRATE, options),
        )

    async def preview_all(
        self, workflow: str, to: int, *, of: int | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Which live runs a migration concerns, by state and version, which would stay, and why. It writes nothing.

        >>> _ = engine.publish(hello)
        >>> engine.migrations.preview_all("hello", 1)["could_migrate"]
        0
        """
        acting = self._acting(by)
        return await migrating.preview_all(
            self._transactor,
            validate.key("the workflow", workflow),
            _version(to),
            of=None if of is None else _version(of),
            tenant=self._tenant,
            actor=acting["actor"],
        )


class Migrations(Blocking[AsyncMigrations]):
    migrate = blocking(AsyncMigrations.migrate)
    preview = blocking(AsyncMigrations.preview)
    migrate_all = blocking(AsyncMigrations.migrate_all)
    preview_all = blocking(AsyncMigrations.preview_all)


def _version(given: object) -> int:
    return arguments.whole("the version", given, 1, MAX_VERSION)
