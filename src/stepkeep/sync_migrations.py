"""Migration of live runs for programs without an event loop: the methods of `migrations`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from typing import Any

from stepkeep.migrations import AsyncMigrations
from stepkeep.sync_administration import Call


class Migrations:
    """Live runs that go on under another version: what has settled is adopted, and nothing that began is lost.

    >>> _ = engine.run(hello, {"name": "Ada"})
    >>> engine.migrations.preview_all("hello", 1)["examined"]
    0
    """

    def __init__(self, core: AsyncMigrations, call: Call) -> None:
        self._core, self._call = core, call

    def migrate(self, run_id: str, to: int, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """End a live run, and go on with it as a new run under version `to`, in one transaction.

        `new_run_id` of the answer is that run. It has the business key, and adopts what had settled with its undo.
        A run that cannot be migrated is refused with every reason, and goes on as it was.
        """
        return self._call(self._core.migrate(run_id, to, reason=reason, by=by))

    def preview(self, run_id: str, to: int, *, by: str | None = None) -> dict[str, Any]:
        """What a migration would adopt and run, or every reason why the run stays. It writes nothing."""
        return self._call(self._core.preview(run_id, to, by=by))

    def migrate_all(
        self, workflow: str, to: int, *, of: int | None = None, reason: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """Add a job that migrates the live runs of a workflow; with `of`, only those of that version.

        Workers carry it out, run by run. `engine.jobs.show(job)` counts the runs that were migrated (`done`) and that
        stay (`refused`); `engine.jobs.runs(job)` names each with its new run, or with the reason why it stays.

        >>> _ = engine.publish(hello)
        >>> engine.migrations.migrate_all("hello", 1)["runs"]
        0
        """
        return self._call(self._core.migrate_all(workflow, to, of=of, reason=reason, by=by))

    def preview_all(self, workflow: str, to: int, *, of: int | None = None, by: str | None = None) -> dict[str, Any]:
        """Which live runs a migration concerns, by state and version, which would stay, and why. It writes nothing."""
        return self._call(self._core.preview_all(workflow, to, of=of, by=by))
