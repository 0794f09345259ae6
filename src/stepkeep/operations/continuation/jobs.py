"""Jobs that act on many runs: cancel, pause, resume or migrate them, or run them again. Any worker carries them out,
in small batches.

A job names its runs when it is made, so that a run is acted on once, whatever happens to the worker. A batch that is
cut off is done again: a cancel names its job, a rerun has an idempotency key of its own, and a run is migrated once.
The engine adds, lists and stops jobs; workers call `JobSweep`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from uuid_utils import uuid7

from stepkeep.edges.safe_text import exception_message, inert_line
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.errors import Conflict, InvalidInput, KeyReused, NotFound, StepkeepError, StoreError
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, Moment, Next, says
from stepkeep.operations.continuation.going_on import ContinuationOptions, continue_run, rerun
from stepkeep.operations.continuation.migrating import migrate
from stepkeep.operations.continuation.pausing import pause_run, read_pause, resume_run
from stepkeep.operations.instants import instant
from stepkeep.operations.people import people
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.operations.pipeline.start import Starter
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.triggers import views
from stepkeep.store.change import ANY_CALLER
from stepkeep.store.jobs import LAST_JOB, JobKey
from stepkeep.store.records import FIRST_ID
from stepkeep.store.rows import (
    Backfill,
    Job,
    JobAction,
    JobRun,
    JobState,
    RunOutcome,
)

MOST_RUNS = 100_000
"""How many runs one job has."""
SHOWN_FIRST = 10
BATCH = 25
BATCHES = 4
"""Between two looks of one worker at its other chores, it carries out this many batches of a job."""
JOBS_AT_ONCE = 5
LEASE_US = 30 * 1_000_000
MAX_DETAIL = 500

log = logging.getLogger(__name__)


class JobView(Answer, kw_only=True):
    """A job. Of a backfill, `trigger` and its range are there too, and of a dry run `first`, the first runs."""

    job: str | UnsetType = UNSET
    action: Literal["cancel", "rerun", "pause", "resume", "migrate", "backfill"]
    dry_run: bool | UnsetType = UNSET
    backfill: str | UnsetType = UNSET
    trigger: str | UnsetType = UNSET
    state: JobState | UnsetType = UNSET
    where: dict[str, Any] | UnsetType = UNSET
    compensate: bool | UnsetType = UNSET
    unfinished: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    workflow: str | UnsetType = UNSET
    to: int | UnsetType = UNSET
    of: int | UnsetType | None = UNSET
    since: str | UnsetType | None = UNSET
    until: str | UnsetType | None = UNSET
    reached: str | UnsetType | None = UNSET
    at_once: int | UnsetType = UNSET
    started: int | UnsetType = UNSET
    fired_before: int | UnsetType = UNSET
    runs: int | UnsetType = UNSET
    first: list[str] | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    done: int | UnsetType = UNSET
    unchanged: int | UnsetType = UNSET
    refused: int | UnsetType = UNSET
    created_at: Moment | UnsetType | None = UNSET
    created_by: str | UnsetType = UNSET
    ended_at: Moment | UnsetType | None = UNSET
    created: Annotated[bool, says("False if the idempotency key had made it before.")] | UnsetType = UNSET


class JobList(Answer, kw_only=True):
    """Jobs and backfills, newest first."""

    jobs: list[JobView]
    next: Next


class JobRunView(Answer, kw_only=True):
    """What became of a run."""

    run_id: str
    result: RunOutcome
    detail: str | None
    new_run_id: Annotated[str | None, says("The run that a rerun has made.")]


class JobRuns(Answer, kw_only=True):
    """The runs of a job, by id."""

    runs: list[JobRunView]
    next: Next


# -- what people ask for -----------------------------------------------------------------------------------------------
async def add_job(
    transactor: Transactor,
    action: JobAction,
    runs: Sequence[str],
    options: Mapping[str, Any],
    *,
    caller: Caller,
    idempotency_key: str | None,
    scope: str = ANY_CALLER,
    digest: bytes,
) -> JobView:
    """Add a job for these runs; the one that is there for the same key and request is returned as it is."""
    now = await transactor.store.now()
    job = Job(
        tenant=caller.tenant,
        id=str(uuid7()),
        action=action,
        state=JobState.RUNNING if runs else JobState.DONE,
        options=msgspec.json.encode(options, order="sorted"),
        created_at=now,
        created_by=validate.key("the actor", caller.actor),
        vouched_by=caller.vouched_by,
        api_key=caller.key,
        idempotency_key=idempotency_key,
        digest=digest,
        seq=0,
        lease_until=now,
        ended_at=None if runs else now,
        scope=scope,
    )
    if await again_if_contended(lambda: transactor.store.jobs.add(job, runs)):
        return replace(await _view(transactor, job), created=True)
    there = None
    if idempotency_key is not None:
        there = await known_job(transactor, idempotency_key, scope, digest, tenant=caller.tenant)
    if there is None:
        raise Conflict("the job was not added: its id is taken. Send it again.")
    return there


async def known_job(
    transactor: Transactor, idempotency_key: str, scope: str, digest: bytes, *, tenant: str
) -> JobView | None:
    """The job that has this idempotency key; raises KeyReused if it was asked for in other words."""
    found = await transactor.store.jobs.find_by_key(tenant, idempotency_key, scope)
    if found is None:
        return None
    if found.digest != digest:
        raise KeyReused(
            f"the idempotency key was used for job {found.id} with other runs or options. Choose another one.",
            {"job": found.id},
        )
    return replace(await _view(transactor, found), created=False)


def digest_of(action: str, request: Mapping[str, Any]) -> bytes:
    """What two requests for the same job have in common."""
    return hashlib.sha256(msgspec.json.encode([action, request], order="sorted")).digest()


async def list_jobs(transactor: Transactor, *, tenant: str, before: str | None = None, limit: int = 50) -> JobList:
    """Jobs and backfills, newest first; `next` is the `before` of the next page."""
    start = LAST_JOB if before is None else validate.key("`before`", before)
    jobs = await transactor.store.jobs.list_all(tenant, start, limit)
    backfills = await transactor.store.triggers.list_all_backfills(tenant, start, limit)
    counts = await transactor.store.jobs.count_runs(tenant, [job.id for job in jobs]) if jobs else {}
    seen = [view(job, counts[job.id]) for job in jobs] + [backfill_view(one) for one in backfills]
    listed = sorted(seen, key=lambda one: str(one.job), reverse=True)[:limit]
    more = len(seen) > limit or max(len(jobs), len(backfills)) == limit
    return JobList(jobs=listed, next=listed[-1].job if listed and more else None)


async def show_job(transactor: Transactor, job_id: str, *, tenant: str) -> JobView:
    """A job, or a backfill."""
    wanted = validate.key("the id of the job", job_id)
    job = await transactor.store.jobs.read(tenant, wanted)
    if job is not None:
        return await _view(transactor, job)
    backfill = await transactor.store.triggers.read_backfill(tenant, wanted)
    if backfill is None:
        raise _unknown(wanted)
    return backfill_view(backfill)


async def list_job_runs(
    transactor: Transactor, job_id: str, *, tenant: str, after: str | None = None, limit: int = 100
) -> JobRuns:
    """The runs of a job with what became of them; `next` is the `after` of the next page."""
    wanted = validate.key("the id of the job", job_id)
    if await transactor.store.jobs.read(tenant, wanted) is None:
        raise _unknown(wanted)
    start = FIRST_ID if after is None else named_run("`after`", after)
    found = await transactor.store.jobs.list_runs(tenant, wanted, start, limit)
    rows = [
        JobRunView(run_id=one.run_id, result=one.state, detail=one.detail, new_run_id=one.new_run_id) for one in found
    ]
    return JobRuns(runs=rows, next=found[-1].run_id if len(found) == limit else None)


def named_run(what: str, given: object) -> str:
    """The id of a run in an argument; raises InvalidInput if it is none."""
    try:
        return validate.run_id(given)
    except NotFound:
        raise InvalidInput(f"{what} is no id of a run: {validate.key(what, given)!a}") from None


async def stop_job(transactor: Transactor, job_id: str, *, tenant: str) -> JobView:
    """End a job early. What it has done stays."""
    wanted = validate.key("the id of the job", job_id)
    stopped = await again_if_contended(lambda: transactor.store.jobs.stop(tenant, wanted))
    job = await transactor.store.jobs.read(tenant, wanted)
    if job is None:
        raise _unknown(wanted)
    if not stopped:
        raise Conflict(f"the job {wanted} is {job.state} already.", {"state": job.state.value})
    return await _view(transactor, job)


async def _view(transactor: Transactor, job: Job) -> JobView:
    return view(job, (await transactor.store.jobs.count_runs(job.tenant, [job.id]))[job.id])


def view(job: Job, counts: Mapping[RunOutcome, int]) -> JobView:
    """A job as callers see it."""
    done: dict[str, Any] = {outcome.value: counts.get(outcome, 0) for outcome in RunOutcome}
    return JobView(
        job=job.id,
        action=job.action.value,
        state=job.state,
        **msgspec.json.decode(job.options),
        runs=sum(counts.values()),
        **done,
        created_at=instant(job.created_at),
        created_by=job.created_by,
        ended_at=instant(job.ended_at),
    )


def backfill_view(one: Backfill) -> JobView:
    """A backfill in the list of jobs."""
    return JobView(job=one.id, action="backfill", done=one.started, **views.backfill_view(one))


def _unknown(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}. `stepkeep jobs list` lists what there is.")


# -- what workers do ---------------------------------------------------------------------------------------------------
class JobSweep:
    """The jobs that one process carries out."""

    def __init__(self, transactor: Transactor, starter: Starter | None = None) -> None:
        self._transactor = transactor
        self._starter = starter or Starter(transactor)
        self._acts: dict[JobAction, Callable[[Job, JobRun], Awaitable[JobRun]]] = {
            JobAction.CANCEL: self._cancel,
            JobAction.RERUN: self._rerun,
            JobAction.PAUSE: self._pause,
            JobAction.RESUME: self._resume,
            JobAction.MIGRATE: self._migrate,
        }

    async def sweep(self, holder: str, limit: int = JOBS_AT_ONCE) -> int:
        """Go on with jobs that no worker holds. Returns how many runs were acted on."""
        jobs = self._transactor.store.jobs
        return sum([await self.carry_out(key, holder) for key in await jobs.find_due(limit)])

    async def carry_out(self, key: JobKey, holder: str, batches: int = BATCHES) -> int:
        """Go on with one job. Returns how many runs were acted on; 0 if another worker came first."""
        jobs, acted = self._transactor.store.jobs, 0
        job = await jobs.claim(*key, holder, LEASE_US)
        if job is None:
            return 0
        for turn in range(batches):
            waiting = await jobs.find_waiting(*key, BATCH)
            done = await asyncio.gather(*(self._act(job, run_id) for run_id in waiting))
            is_last = len(waiting) < BATCH
            # The last batch of this turn gives the job back at once: any worker may go on with it.
            lease = LEASE_US if turn < batches - 1 else 0
            if not await jobs.report(job, done, lease, done=is_last):
                return acted
            acted += len(done)
            if is_last:
                break
        return acted

    async def _act(self, job: Job, run_id: str) -> JobRun:
        """Act on one run. What it is refused for is its result; a store that is away ends the batch."""
        row = JobRun(tenant=job.tenant, job_id=job.id, run_id=run_id, state=RunOutcome.DONE)
        try:
            return await self._acts[job.action](job, row)
        except StoreError:
            raise
        except StepkeepError as problem:
            return replace(
                row,
                state=RunOutcome.REFUSED,
                detail=inert_line(exception_message(problem) or type(problem).__name__)[:MAX_DETAIL],
            )

    async def _cancel(self, job: Job, row: JobRun) -> JobRun:
        options = msgspec.json.decode(job.options)
        mark = f"(job {job.id})"
        accepted = await people.cancel(
            self._transactor,
            row.run_id,
            caller=_caller(job),
            compensate=options["compensate"],
            reason=f"{options['reason']} {mark}".strip(),
        )
        if not accepted.repeated:
            return row
        found = await self._transactor.store.read_run(job.tenant, row.run_id)
        if found is not None and (found.run.error or "").endswith(mark):
            return row  # a batch that was cut off has cancelled it
        return replace(row, state=RunOutcome.UNCHANGED, detail="it was cancelled before")

    async def _pause(self, job: Job, row: JobRun) -> JobRun:
        reason, mark = msgspec.json.decode(job.options)["reason"], f"(job {job.id})"
        said = f"{reason} {mark}".strip()
        accepted = await pause_run(self._transactor, row.run_id, caller=_caller(job), reason=said)
        if not accepted.repeated:
            return row
        found = await self._transactor.store.read_run(job.tenant, row.run_id)
        pause = None if found is None else await read_pause(self._transactor, found.run)
        if pause is not None and pause.reason.endswith(mark):
            return row  # a batch that was cut off has paused it
        return replace(row, state=RunOutcome.UNCHANGED, detail="it was paused before")

    async def _resume(self, job: Job, row: JobRun) -> JobRun:
        said = f"{msgspec.json.decode(job.options)['reason']} (job {job.id})".strip()
        accepted = await resume_run(self._transactor, row.run_id, caller=_caller(job), reason=said)
        if not accepted.repeated:
            return row
        return replace(row, state=RunOutcome.UNCHANGED, detail="it was not paused")

    async def _rerun(self, job: Job, row: JobRun) -> JobRun:
        key = f"job:{job.id}:{row.run_id}"
        if msgspec.json.decode(job.options).get("unfinished"):
            retry = ContinuationOptions(how=ContinuationKind.RETRY)
            started = await continue_run(
                self._transactor, self._starter, row.run_id, retry, caller=_caller(job), idempotency_key=key
            )
        else:
            started = await rerun(self._transactor, self._starter, row.run_id, caller=_caller(job), idempotency_key=key)
        return replace(row, new_run_id=started.run_id)

    async def _migrate(self, job: Job, row: JobRun) -> JobRun:
        options = msgspec.json.decode(job.options)
        reason = f"{options['reason']} (job {job.id})".strip()
        moved = await migrate(
            self._transactor,
            self._starter,
            row.run_id,
            options["to"],
            caller=_caller(job),
            reason=reason,
        )
        return replace(row, new_run_id=moved.new_run_id)


def _caller(job: Job) -> Caller:
    return Caller(job.tenant, job.created_by, job.api_key, job.vouched_by)


def too_many(action: str) -> InvalidInput:
    """The refusal of a job for more runs than one has."""
    return InvalidInput(
        f"more than {MOST_RUNS:,} runs fit: {action} them in parts, for example by --since and --until."
    )
