"""Jobs of the model database. It follows the statements of the real stores, each in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stepkeep.store.jobs import LAST_JOB, JobKey, JobStore
from stepkeep.store.records import FIRST_ID
from stepkeep.store.rows import (
    Job,
    JobRun,
    JobState,
    RunOutcome,
)
from stepkeep_lab.simulation.delivery_tables import Asking

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database


class JobRows:
    """Everything that is committed about jobs."""

    def __init__(self) -> None:
        self.jobs: dict[JobKey, Job] = {}
        self.runs: dict[tuple[str, str, str], JobRun] = {}

    def runs_of(self, key: JobKey) -> list[JobRun]:
        return [run for (*owner, _), run in sorted(self.runs.items()) if tuple(owner) == key]


class ModelJobs(JobStore):
    """`JobStore` on the model database."""

    def __init__(self, database: Database, wire: Asking, clock: Callable[[], int]) -> None:
        self._database, self._wire, self._clock = database, wire, clock

    @property
    def _rows(self) -> JobRows:
        return self._database.tables.jobs

    async def add(self, job: Job, runs: Sequence[str]) -> bool:
        def work() -> bool:
            rows = self._rows
            keys = {(one.idempotency_key, one.scope) for one in rows.jobs.values() if one.tenant == job.tenant}
            is_used = job.idempotency_key is not None and (job.idempotency_key, job.scope) in keys
            if (job.tenant, job.id) in rows.jobs or is_used:
                return False
            rows.jobs[job.tenant, job.id] = job
            for run_id in runs:
                rows.runs[job.tenant, job.id, run_id] = JobRun(
                    tenant=job.tenant, job_id=job.id, run_id=run_id, state=RunOutcome.WAITING
                )
            return True

        return await self._wire.ask("add job", work)

    async def find_due(self, limit: int) -> list[JobKey]:
        def work() -> list[JobKey]:
            due = [
                job
                for job in self._rows.jobs.values()
                if job.state is JobState.RUNNING and job.lease_until <= self._clock()
            ]
            return [(job.tenant, job.id) for job in sorted(due, key=lambda job: job.lease_until)][:limit]

        return await self._wire.ask("find due jobs", work)

    async def claim(self, tenant: str, job_id: str, holder: str, lease_us: int) -> Job | None:
        def work() -> Job | None:
            job = self._rows.jobs.get((tenant, job_id))
            if job is None or job.state is not JobState.RUNNING or job.lease_until > self._clock():
                return None
            claimed = replace(job, seq=job.seq + 1, lease_until=self._clock() + lease_us, holder=holder)
            self._rows.jobs[tenant, job_id] = claimed
            return claimed

        return await self._wire.ask("claim job", work)

    async def report(self, job: Job, runs: Sequence[JobRun], lease_us: int, *, done: bool = False) -> bool:
        def work() -> bool:
            rows, key = self._rows, (job.tenant, job.id)
            there = rows.jobs.get(key)
            if there is None or there.seq != job.seq or there.state is not JobState.RUNNING:
                return False
            now = self._clock()
            state, ended = (JobState.DONE, now) if done else (JobState.RUNNING, None)
            rows.jobs[key] = replace(there, lease_until=now + lease_us, state=state, ended_at=ended)
            for run in runs:
                if rows.runs[(*key, run.run_id)].state is RunOutcome.WAITING:
                    rows.runs[(*key, run.run_id)] = run
            return True

        return await self._wire.ask("report job", work)

    async def stop(self, tenant: str, job_id: str) -> bool:
        def work() -> bool:
            job = self._rows.jobs.get((tenant, job_id))
            if job is None or job.state is not JobState.RUNNING:
                return False
            self._rows.jobs[tenant, job_id] = replace(
                job, state=JobState.STOPPED, seq=job.seq + 1, ended_at=self._clock()
            )
            return True

        return await self._wire.ask("stop job", work)

    async def read(self, tenant: str, job_id: str) -> Job | None:
        return await self._wire.ask("read job", lambda: self._rows.jobs.get((tenant, job_id)))

    async def find_by_key(self, tenant: str, idempotency_key: str, scope: str) -> Job | None:
        def work() -> Job | None:
            mine = (job for job in self._rows.jobs.values() if job.tenant == tenant)
            fitting = [one for one in mine if one.idempotency_key == idempotency_key and one.scope in ("", scope)]
            return max(fitting, key=lambda one: one.scope, default=None)

        return await self._wire.ask("find job", work)

    async def list_all(self, tenant: str, before: str = LAST_JOB, limit: int = 100) -> list[Job]:
        def work() -> list[Job]:
            mine = [job for job in self._rows.jobs.values() if job.tenant == tenant and job.id < before]
            return sorted(mine, key=lambda job: job.id, reverse=True)[:limit]

        return await self._wire.ask("list jobs", work)

    async def count_runs(self, tenant: str, jobs: Sequence[str]) -> dict[str, dict[RunOutcome, int]]:
        def work() -> dict[str, dict[RunOutcome, int]]:
            found: dict[str, dict[RunOutcome, int]] = {job: {} for job in jobs}
            for job in jobs:
                for run in self._rows.runs_of((tenant, job)):
                    found[job][run.state] = found[job].get(run.state, 0) + 1
            return found

        return await self._wire.ask("count runs of jobs", work)

    async def find_waiting(self, tenant: str, job_id: str, limit: int) -> list[str]:
        def work() -> list[str]:
            runs = self._rows.runs_of((tenant, job_id))
            return [run.run_id for run in runs if run.state is RunOutcome.WAITING][:limit]

        return await self._wire.ask("find waiting runs of a job", work)

    async def list_runs(self, tenant: str, job_id: str, after: str = FIRST_ID, limit: int = 100) -> list[JobRun]:
        def work() -> list[JobRun]:
            return [run for run in self._rows.runs_of((tenant, job_id)) if run.run_id > after][:limit]

        return await self._wire.ask("list runs of a job", work)

    async def forget(self, tenant: str, before: int, limit: int) -> int:
        def work() -> int:
            rows = self._rows
            ended = [job for job in rows.jobs.values() if job.tenant == tenant and job.ended_at is not None]
            old = set(sorted((job.tenant, job.id) for job in ended if (job.ended_at or 0) < before)[:limit])
            rows.jobs = {key: job for key, job in rows.jobs.items() if key not in old}
            rows.runs = {key: run for key, run in rows.runs.items() if key[:2] not in old}
            return len(old)

        return await self._wire.ask("forget jobs", work)
