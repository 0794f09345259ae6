"""Actions on many runs at once: `engine.jobs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from stepkeep.definition import arguments
from stepkeep.engine.arguments import optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.engine.reading import AsyncReading
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.continuation import jobs
from stepkeep.operations.continuation.jobs import JobList, JobRuns, JobView
from stepkeep.operations.operation import RUN_ID, Actor, Cursor, IdempotencyKey, Limit, Time, Words, group, operation
from stepkeep.operations.typed import InPython
from stepkeep.store.rows import JobAction

Text = Annotated[str, Meta(max_length=255)]
JobId = Annotated[str, Meta(max_length=255, description="The id of a job.", examples=[RUN_ID])]


class Where(TypedDict, total=False):
    """Which runs: the filters of `GET /runs`."""

    state: Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(max_length=20)] | None
    workflow: Text | None
    business_key: Text | None
    correlation_id: Text | None
    labels: dict[str, str] | None
    since: Time | None
    until: Time | None
    error: Text | None
    text: Text | None
    roots: bool | None


Runs = Annotated[list[Text], Meta(max_length=10_000)]
PAGE = 1000
STATES: dict[JobAction, tuple[RunState, ...]] = {
    JobAction.CANCEL: tuple(state for state in RunState if state not in RUN_TERMINAL),
    JobAction.RERUN: (RunState.FAILED, RunState.CANCELLED, RunState.ROLLED_BACK),
    JobAction.PAUSE: (RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED),
    JobAction.RESUME: (RunState.PAUSED,),
}
"""The states of the runs that a job is about, if none are named."""
NEEDS = {
    JobAction.CANCEL: Scope.OPERATE,
    JobAction.RERUN: Scope.START,
    JobAction.PAUSE: Scope.OPERATE,
    JobAction.RESUME: Scope.OPERATE,
}


@group("jobs", "Jobs")
class AsyncJobs(AsyncGroup):
    """Jobs that cancel, pause or resume many runs or run them again, carried out by workers; and backfills of triggers.

    >>> for name in ("Ada", "Bea"):
    ...     _ = engine.start(hello, {"name": name}, labels={"batch": "7"})
    >>> engine.jobs.start("cancel", where={"labels": {"batch": "7"}}, dry_run=True).runs
    2
    """

    def __init__(self, engine: AsyncReading) -> None:
        super().__init__(engine)
        self._find = engine.runs

    @operation(
        READ,
        "POST /runs/bulk",
        "start_job",
        "Cancel many runs, or run them again",
        creates="/jobs/{job}",
        example={"action": "cancel", "where": {"workflow": "hello"}, "dry_run": True},
    )
    async def start(
        self,
        action: Literal["cancel", "rerun", "pause", "resume"],
        *,
        where: Annotated[Mapping[str, Any] | None, InPython(Where | None), says("Which runs; or else `runs`.")] = None,
        runs: Annotated[Iterable[str] | None, InPython(Runs | None), says("The ids of the runs.")] = None,
        compensate: Annotated[bool, says("With cancel: undo first what the runs did.")] = False,
        unfinished: Annotated[bool, says("With rerun: do only what did not finish, and adopt the rest.")] = False,
        reason: Annotated[Words, says("With cancel, pause and resume.")] = "",
        dry_run: Annotated[bool, says("Write nothing, and say which runs they are.")] = False,
        idempotency_key: IdempotencyKey = None,
        by: Actor = None,
    ) -> JobView:
        """Cancel, pause or resume the runs that `where` finds, or run them again (`action` is `cancel`, `pause`,
        `resume` or `rerun`).

        `where` has the filters of `engine.runs`; `runs` names runs instead. Without a state, `cancel` is about runs
        that have not ended, `rerun` about those that did not succeed, `pause` about those that are queued, running or
        blocked, and `resume` about paused ones. A job is for at most 100,000 runs, which are chosen now; workers act on
        them in small batches. A rerun begins anew, or with `unfinished` goes on like `continuations.retry`. `rerun`
        needs the scope start, everything else the scope operate. A dry run only says which runs they are.

        >>> run = engine.start(hello, {"name": "Ada"}, business_key="order-9").run_id
        >>> job = engine.jobs.start("cancel", where={"business_key": "order-9"}, reason="sent twice")
        >>> print(job.state, job.runs)
        running 1
        """
        what = JobAction(action)
        self.access.require(NEEDS[what], operation=f"jobs.start {what}")
        filters, named = self._wanted(where, runs)
        said = {"compensate": compensate, "reason": validate.words("the reason", reason)}
        if what is JobAction.RERUN and any(said.values()):
            raise InvalidInput("compensate and reason go with cancel: a rerun has neither.")
        if what in (JobAction.PAUSE, JobAction.RESUME) and said.pop("compensate"):
            raise InvalidInput(f"compensate goes with cancel: a job that is to {what} undoes nothing.")
        if unfinished and what is not JobAction.RERUN:
            raise InvalidInput(f"unfinished goes with rerun: a job that is to {what} starts no run.")
        ways = {"unfinished": True} if unfinished else {}
        options: dict[str, Any] = {"where": _shown(filters), **(ways if what is JobAction.RERUN else said)}
        key = optional_key("the idempotency key", idempotency_key)
        caller = self._caller(by)
        digest = jobs.digest_of(what, {**options, "runs": named})
        if key is not None and not dry_run:
            scope = self.access.key_scope
            there = await jobs.known_job(self._transactor, key, scope, digest, tenant=self._tenant)
            if there is not None:
                return there
        found = named if named is not None else await self._found(what, filters)
        if dry_run:
            first = found[: jobs.SHOWN_FIRST]
            return JobView(action=action, dry_run=True, **options, runs=len(found), first=first)
        return await jobs.add_job(
            self._transactor,
            what,
            found,
            options,
            caller=caller,
            idempotency_key=key,
            scope=self.access.key_scope,
            digest=digest,
        )

    def _wanted(
        self, where: Mapping[str, Any] | None, runs: Iterable[str] | None
    ) -> tuple[dict[str, Any], list[str] | None]:
        filters = arguments.mapping("where", {} if where is None else where)
        if unknown := sorted(set(filters) - set(Where.__annotations__)):
            raise InvalidInput(f"where has no {unknown[0]!a}. It has: {', '.join(Where.__annotations__)}.")
        filters = {name: value for name, value in filters.items() if value is not None and not _is_empty(value)}
        # All runs without a parent are as many as all.
        if not filters.keys() - {"roots"} if runs is None else filters:
            raise InvalidInput("say which runs: by where, or by their ids (runs), and not by both. All is no choice.")
        if runs is None:
            return filters, None
        named = sorted({jobs.named_run("one of runs", one) for one in arguments.items("runs", runs)})
        if not named:
            raise InvalidInput("runs is empty: name the runs, or say which ones by where.")
        if len(named) > jobs.MOST_RUNS:
            raise jobs.too_many("name")
        return {}, named

    async def _found(self, action: JobAction, filters: Mapping[str, Any]) -> list[str]:
        wanted = {"state": STATES[action], **filters}
        found: list[str] = []
        before = None
        while True:
            answer = await self._find(**wanted, before=before, limit=PAGE)
            found += (str(one["id"]) for one in answer["runs"])
            if len(found) > jobs.MOST_RUNS:
                raise jobs.too_many(action)
            before = answer["next"]
            if before is None:
                return sorted(found)

    @operation(READ, "GET /jobs", "list_jobs", "List jobs", pages="jobs", names={"before": "cursor"}, agents="reads")
    async def list(self, *, before: Cursor = None, limit: Limit = 50) -> JobList:
        """Jobs and backfills of the tenant, newest first; `next` is the `before` of the next page.

        >>> engine.jobs.list(limit=10).next is None
        True
        """
        return await jobs.list_jobs(self._transactor, tenant=self._tenant, before=before, limit=limit)

    @operation(READ, "GET /jobs/{job_id}", "get_job", "Show a job", agents="reads")
    async def show(self, job_id: JobId) -> JobView:
        """A job: how many of its runs are done, were as asked for before, were refused, or wait.

        >>> job = engine.jobs.start("rerun", where={"workflow": "no-such-workflow"})
        >>> print(engine.jobs.show(job.job).state)
        done
        """
        return await jobs.show_job(self._transactor, job_id, tenant=self._tenant)

    @operation(
        READ,
        "GET /jobs/{job_id}/runs",
        "list_job_runs",
        "What became of each run of a job",
        pages="runs",
        page_size=100,
        names={"after": "cursor"},
    )
    async def runs(self, job_id: JobId, *, after: Cursor = None, limit: Limit = 100) -> JobRuns:
        """The runs of a job with what became of each; `next` is the `after` of the next page.

        >>> job = engine.jobs.start("rerun", where={"workflow": "no-such-workflow"})
        >>> engine.jobs.runs(job.job).runs
        []
        """
        return await jobs.list_job_runs(self._transactor, job_id, tenant=self._tenant, after=after, limit=limit)

    @operation(OPERATE, "POST /jobs/{job_id}/stop", "stop_job", "End a job early", repeatable=False)
    async def stop(self, job_id: JobId, *, by: Actor = None) -> JobView:
        """End a job early. What it has done stays. A backfill is ended at its trigger.

        >>> run = engine.start(hello, {"name": "Ada"}, business_key="order-10").run_id
        >>> job = engine.jobs.start("cancel", runs=[run])
        >>> print(engine.jobs.stop(job.job).state)
        stopped
        """
        self._caller(by)
        return await jobs.stop_job(self._transactor, job_id, tenant=self._tenant)


class Jobs(Blocking[AsyncJobs]):
    start, list, show = blocking(AsyncJobs.start), blocking(AsyncJobs.list), blocking(AsyncJobs.show)
    runs, stop = blocking(AsyncJobs.runs), blocking(AsyncJobs.stop)


def _is_empty(value: object) -> bool:
    return value is False or (isinstance(value, str | Sequence | Mapping) and len(value) == 0)


def _shown(filters: Mapping[str, Any]) -> Mapping[str, object]:
    """The filters as plain JSON."""
    return {
        name: value.isoformat()
        if isinstance(value, datetime)
        else value
        if isinstance(value, str | dict | bool)
        else [*value]
        for name, value in filters.items()
    }
