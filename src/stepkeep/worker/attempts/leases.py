"""The attempts that this worker holds, from claim to the reply to their report, with the clocks that bound them.

An attempt has a deadline (its timeout, by the monotonic clock), a lease (by the database clock), and the deadline of
its run. One statement renews the leases of attempts that have used a third of theirs. This module keeps account; the
lease keeper acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stepkeep.store.change import Lease, RunKey
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.utilisation import Meter

SECOND = 1_000_000
RENEWED_AFTER = 1 / 3
NEVER = float("inf")


class Review(NamedTuple):
    """Jobs past their timeout, jobs whose leases have surely expired, leases to renew, and runs past their timeout."""

    overdue: list[Job]
    expired: list[Job]
    aging: list[Job]
    late_runs: tuple[RunKey, ...]


class Leases:
    """The jobs held, and the time at which the next one needs attention."""

    def __init__(self, lease: int | None = None, meter: Meter | None = None) -> None:
        self._lease, self._meter = lease, meter
        self._jobs: dict[Job, None] = {}
        self.soonest = NEVER

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: Job) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[Job]:
        return iter(tuple(self._jobs))

    def add(self, jobs: Iterable[Job]) -> bool:
        """Hold these jobs. Returns whether one of them needs attention sooner than all others."""
        before, count = self.soonest, len(self._jobs)
        for job in jobs:
            self._jobs[job] = None
            lease = self._lease or job.claim.plan.definition.lease
            moment = min(job.attempt_deadline, job.run_deadline, job.renewed_at + lease * (RENEWED_AFTER / SECOND))
            if moment < self.soonest:
                self.soonest = moment
        if self._meter is not None:
            self._meter.took(len(self._jobs) - count)
        return self.soonest < before

    def drop(self, job: Job) -> bool:
        """Stop holding the job. Returns whether it was held."""
        was_held = self._jobs.pop(job, self) is None
        if was_held and self._meter is not None:
            self._meter.left()
        return was_held

    def lacks(self, jobs: set[Job]) -> set[Job]:
        """The jobs among these that are not held."""
        return jobs.difference(self._jobs)

    def microseconds(self, job: Job) -> int:
        return self._lease or job.claim.plan.definition.lease

    def seconds(self, job: Job) -> float:
        return self.microseconds(job) / SECOND

    def review(self, now: float) -> Review:
        """What needs attention now. The deadline of a run is told once."""
        overdue, expired, aging = [], [], []
        late_runs: dict[RunKey, None] = {}
        soonest = NEVER
        for job in self._jobs:
            lease = self.seconds(job)
            if now > job.renewed_at + lease:
                expired.append(job)
                continue
            if now >= job.attempt_deadline and not job.reported:
                overdue.append(job)
            if now >= job.run_deadline:
                late_runs[job.claim.tenant, job.claim.run_id] = None
                job.run_deadline = NEVER
            renewal = job.renewed_at + lease * RENEWED_AFTER
            if now >= renewal:
                aging.append(job)
                # If the renewal fails it is repeated soon, well before the lease expires.
                renewal = now + min(1.0, lease * RENEWED_AFTER / 4)
            soonest = min(soonest, renewal, job.run_deadline, NEVER if job.reported else job.attempt_deadline)
        self.soonest = soonest
        return Review(overdue, expired, aging, tuple(late_runs))

    def renewal(self, jobs: list[Job]) -> list[Lease]:
        return [
            Lease(job.claim.tenant, job.claim.run_id, job.claim.step.no, job.claim.step.fence, self.microseconds(job))
            for job in jobs
        ]
