"""Jobs for programs without an event loop: the methods of `jobs`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepkeep.jobs import AsyncJobs
from stepkeep.sync_administration import Call


class Jobs:
    """Jobs that cancel, pause or resume many runs or run them again, carried out by workers; and backfills of triggers.

    >>> for name in ("Ada", "Bea"):
    ...     _ = engine.start(hello, {"name": name}, labels={"batch": "7"})
    >>> engine.jobs.start("cancel", where={"labels": {"batch": "7"}}, dry_run=True)["runs"]
    2
    """

    def __init__(self, core: AsyncJobs, call: Call) -> None:
        self._core, self._call = core, call

    def start(
        self,
        action: str,
        *,
        where: Mapping[str, Any] | None = None,
        runs: Iterable[str] | None = None,
        compensate: bool = False,
        reason: str = "",
        dry_run: bool = False,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Cancel, pause or resume the runs that `where` finds, or run them again (`action` is `cancel`, `pause`,
        `resume` or `rerun`).

        `where` has the filters of `engine.runs`; `runs` names runs instead. Without a state, `cancel` is about runs
        that have not ended, `rerun` about those that did not succeed, `pause` about those that are queued, running or
        blocked, and `resume` about paused ones. A dry run only says which runs they are.

        >>> run = engine.start(hello, {"name": "Ada"}, business_key="order-9").run_id
        >>> job = engine.jobs.start("cancel", where={"business_key": "order-9"}, reason="sent twice")
        >>> job["state"], job["runs"]
        ('running', 1)
        """
        return self._call(
            self._core.start(
                action,
                where=where,
                runs=runs,
                compensate=compensate,
                reason=reason,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                by=by,
            )
        )

    def list(self, *, before: str | None = None, limit: int = 50) -> dict[str, Any]:
        """Jobs and backfills of the tenant, newest first; `next` is the `before` of the next page.

        >>> engine.jobs.list(limit=10)["next"] is None
        True
        """
        return self._call(self._core.list(before=before, limit=limit))

    def show(self, job_id: str) -> dict[str, Any]:
        """A job: how many of its runs are done, were as asked for before, were refused, or wait.

        >>> job = engine.jobs.start("rerun", where={"workflow": "no-such-workflow"})
        >>> engine.jobs.show(job["job"])["state"]
        'done'
        """
        return self._call(self._core.show(job_id))

    def runs(self, job_id: str, *, after: str | None = None, limit: int = 100) -> dict[str, Any]:
        """The runs of a job with what became of each; `next` is the `after` of the next page.

        >>> job = engine.jobs.start("rerun", where={"workflow": "no-such-workflow"})
        >>> engine.jobs.runs(job["job"])["runs"]
        []
        """
        return self._call(self._core.runs(job_id, after=after, limit=limit))

    def stop(self, job_id: str, *, by: str | None = None) -> dict[str, Any]:
        """End a job early. What it has done stays.

        >>> run = engine.start(hello, {"name": "Ada"}, business_key="order-10").run_id
        >>> job = engine.jobs.start("cancel", runs=[run])
        >>> engine.jobs.stop(job["job"])["state"]
        'stopped'
        """
        return self._call(self._core.stop(job_id, by=by))
