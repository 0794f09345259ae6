"""The rows of jobs that act on many runs, and the tables of them.

A worker claims a job for the time of a lease; the sequence number of the claim fences its reports. What became of a run
is recorded once. It decides nothing; `operations.continuation.jobs` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepkeep.store.columns import job_from, job_run_from, json_text, values_of
from stepkeep.store.part import Part, Rows
from stepkeep.store.reading import first
from stepkeep.store.records import FIRST_ID
from stepkeep.store.rows import Job, JobRun, RunOutcome

JobKey = tuple[str, str]
"""(tenant, id)."""

LAST_JOB = "~"
"""Behind every id, where a list begins."""


class _Lost(Exception):
    """The row is not as the statement asks: nothing is written."""


def _one_changed(found: Rows) -> None:
    if not found[0]:
        raise _Lost


class JobStore(Part):
    """The tables of jobs."""

    async def add(self, job: Job, runs: Sequence[str]) -> bool:
        """Add a job for these runs. False: there is one with its idempotency key, and nothing is written."""
        statements = [
            (self._sql.insert_job, values_of(job)),
            (self._sql.insert_job_runs, (job.tenant, job.id, json_text(list(runs)))),
        ]
        return await self._write(statements)

    async def find_due(self, limit: int) -> list[JobKey]:
        """Jobs of all tenants that run and that no worker holds, the longest due first."""
        return await self._read(lambda row: (str(row[0]), str(row[1])), self._sql.find_due_jobs, self._time(), limit)

    async def claim(self, tenant: str, job_id: str, holder: str, lease_us: int) -> Job | None:
        """Claim a job; None if another worker holds it, or it has ended."""
        [rows] = await self._transact([(self._sql.claim_job, (tenant, job_id, self._time(), lease_us, holder))])
        return job_from(rows[0]) if rows else None

    async def report(self, job: Job, runs: Sequence[JobRun], lease_us: int, *, done: bool = False) -> bool:
        """Record what became of these runs and go on for `lease_us`, or end the job. False: the claim is gone, and
        nothing is written."""
        state = "done" if done else "running"
        which = (job.tenant, job.id)
        statements: list[tuple[Any, tuple[Any, ...]]] = [
            (self._sql.report_job, (*which, job.seq, self._time(), lease_us, state))
        ]
        statements += [
            (self._sql.update_job_run, (*which, one.run_id, one.state.value, one.detail, one.new_run_id))
            for one in runs
        ]
        return await self._write(statements)

    async def stop(self, tenant: str, job_id: str) -> bool:
        """End a job early. False: it has ended, or there is none."""
        return await self._write([(self._sql.stop_job, (tenant, job_id, self._time()))])

    async def _write(self, statements: list[tuple[Any, tuple[Any, ...]]]) -> bool:
        try:
            await self._transact(statements, _one_changed)
        except _Lost:
            return False
        return True

    async def read(self, tenant: str, job_id: str) -> Job | None:
        return first(await self._read(job_from, self._sql.read_job, tenant, job_id))

    async def find_by_key(self, tenant: str, idempotency_key: str, scope: str) -> Job | None:
        """The job with an idempotency key of this scope, or else of any caller."""
        return first(await self._read(job_from, self._sql.find_job_by_key, tenant, idempotency_key, scope))

    async def list_all(self, tenant: str, before: str = LAST_JOB, limit: int = 100) -> list[Job]:
        """Jobs, newest first."""
        return await self._read(job_from, self._sql.list_jobs, tenant, before, limit)

    async def count_runs(self, tenant: str, jobs: Sequence[str]) -> dict[str, dict[RunOutcome, int]]:
        """How many runs of each job came to which end."""
        found: dict[str, dict[RunOutcome, int]] = {job: {} for job in jobs}
        for job, state, count in await self._read(tuple, self._sql.count_job_runs, tenant, json_text(list(jobs))):
            found[job][RunOutcome(state)] = count
        return found

    async def find_waiting(self, tenant: str, job_id: str, limit: int) -> list[str]:
        """Runs that the job has not come to yet."""
        return await self._read(lambda row: str(row[0]), self._sql.find_waiting_job_runs, tenant, job_id, limit)

    async def list_runs(self, tenant: str, job_id: str, after: str = FIRST_ID, limit: int = 100) -> list[JobRun]:
        return await self._read(job_run_from, self._sql.list_job_runs, tenant, job_id, after, limit)

    async def forget(self, tenant: str, before: int, limit: int) -> int:
        """Delete the oldest jobs that ended before a moment, up to a number, with what became of their runs; returns
        how many."""
        which = (tenant, before, limit)
        _, gone = await self._transact([(self._sql.forget_job_runs, which), (self._sql.forget_jobs, which)])
        return len(gone)
